"""The docstrings of a dataclass's fields, which Python itself does not keep: help for the command line and the page."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise
from typing import Any


@cache
def read_field_docstrings(kind: type[Any]) -> dict[str, str]:
    """The text below each field of a class and of those it inherits from, in one line each.

    Fields without such a text, and classes whose source is not at hand, are left out.
    """
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        except (OSError, SyntaxError, TypeError):
            continue
        for statement, below in pairwise(getattr(body, "body", [])):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found
