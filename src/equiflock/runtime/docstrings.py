"""Docstrings of dataclass fields, which Python does not keep; the command line and the page show them as help."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise
from typing import Any


@cache
def read_field_docstrings(kind: type[Any]) -> dict[str, str]:
    """Return the docstring below each field of a class and its bases, as one line each.

    Fields without a docstring and classes without source code are left out.
    """
    docstrings: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        except (OSError, SyntaxError, TypeError):
            continue
        for statement, below in pairwise(getattr(body, "body", [])):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    docstrings[name] = " ".join(text.split())
    return docstrings
