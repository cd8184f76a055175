"""The texts below the fields of a class, which are the help of options on the command line and on the page."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import Any


def field_helps(kind: type[Any]) -> dict[str, str]:
    """The docstring below each field of a class or of those it inherits from; none where no source is at hand."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        try:
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        except (OSError, SyntaxError, TypeError):
            continue
        for field, below in pairwise(getattr(definition, "body", [])):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found
