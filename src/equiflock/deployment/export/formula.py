"""The weights of features as text: the Python function that declares one, read again, as Python or as C.

A weight is arithmetic and functions of `math` (see `equiflock.features.feature`). Names of numbers are replaced by the
numbers, so that the text needs nothing but `math`.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np

from equiflock.features import Feature
from equiflock.runtime.checks import InputError, is_finite, shorten_repr

MATH_FUNCTIONS = """sqrt exp expm1 log log1p log2 log10 sin cos tan sinh cosh tanh asin acos atan atan2 hypot floor ceil pow
erf erfc fabs copysign fmod"""
C_FUNCTIONS = {name: f"{name}f" for name in MATH_FUNCTIONS.split()}
C_FUNCTIONS |= {"abs": "fabsf", "max": "fmaxf", "min": "fminf", "float": "(float)"}
"""Functions that a weight may call, and their names in C."""
BUILTINS: dict[Any, str] = {abs: "abs", max: "max", min: "min", float: "float"}
NUMPY_FUNCTIONS = {"absolute": "abs", "maximum": "max", "minimum": "min", "power": "pow"}
"""NumPy's functions of another name than in `math`."""
C_KEYWORD_LIST = """auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while"""
C_KEYWORDS = frozenset(C_KEYWORD_LIST.split())
"""Words of C, which Python lets variables be named."""
ARITHMETIC: dict[type[ast.AST], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
UNARY_OPERATORS: dict[type[ast.AST], str] = {ast.USub: "-", ast.UAdd: "+", ast.Not: "!"}
LOGIC: dict[type[ast.AST], str] = {ast.And: "&&", ast.Or: "||"}
RELATIONS: dict[type[ast.AST], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
MAX_FLOAT32 = float(np.finfo(np.float32).max)
OPERATORS = ARITHMETIC | UNARY_OPERATORS | LOGIC | RELATIONS


def float32(number: float) -> str:
    """A number as a constant of C, exact in float; a clear error if it is too large for one."""
    if MAX_FLOAT32 < abs(number) < math.inf:
        raise InputError(f"{shorten_repr(number)} has no form in C: float holds numbers up to {MAX_FLOAT32:.1e}")
    if not math.isfinite(number):
        return "INFINITY" if number > 0 else "(-INFINITY)"
    text = f"{float(np.float32(number)):.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _format_variable(name: str) -> str:
    """A variable's name in C."""
    return f"{name}_" if name in C_KEYWORDS else name


class Formula:
    """The weight of a feature, as text.

    Args:
        feature: whose weight is arithmetic; a clear error for anything else.
    """

    def __init__(self, feature: Feature) -> None:
        self.name = feature.name
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(feature.weight)))
        except (OSError, TypeError, SyntaxError):
            self._raise_unsupported("its source cannot be found")
        definition = tree.body[0]
        if not isinstance(definition, ast.FunctionDef):
            self._raise_unsupported("it is not written with def")
        self.arguments = [argument.arg for argument in definition.args.args]
        known = inspect.getclosurevars(feature.weight)
        local = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name) and _is_assigned(node)}
        self._local = [*dict.fromkeys(sorted(local - set(self.arguments)))]
        resolve = _NameResolver(
            {**known.builtins, **known.globals, **known.nonlocals}, {*local, *self.arguments}, self._raise_unsupported
        )
        self._body = [resolve.visit(line) for line in definition.body if not _is_docstring(line)]

    def to_python(self, function_name: str) -> str:
        """A function of that name, of the arguments that the weight has."""
        body = ast.unparse(ast.fix_missing_locations(ast.Module(self._body, [])))
        return f"def {function_name}({', '.join(self.arguments)}):\n" + textwrap.indent(body, "    ")

    def to_c(self, function_name: str) -> str:
        """The same in C99, of `float`."""
        lines = [
            f"static inline float {function_name}({', '.join(f'float {_format_variable(name)}' for name in self.arguments)})",
            "{",
        ]
        # Not all weights look at all of their arguments.
        lines += [f"    (void){_format_variable(name)};" for name in self.arguments if not self._is_read(name)]
        lines += [f"    float {_format_variable(name)} = 0.0f;" for name in self._local]
        return "\n".join([*lines, *self._format_block(self._body, 1), "}"])

    def _is_read(self, name: str) -> bool:
        nodes = (node for line in self._body for node in ast.walk(line))
        return any(isinstance(node, ast.Name) and node.id == name and not _is_assigned(node) for node in nodes)

    def _format_block(self, lines: list[ast.stmt], depth: int) -> list[str]:
        return [text for line in lines for text in self._format_statement(line, depth)]

    def _format_statement(self, line: ast.stmt, depth: int) -> list[str]:
        pad = "    " * depth
        match line:
            case ast.Return(value=ast.expr() as value):
                return [f"{pad}return {self._format_expression(value)};"]
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return [f"{pad}{_format_variable(name)} = {self._format_expression(value)};"]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                return [f"{pad}{_format_variable(name)} = {self._format_expression(value)};"]
            case ast.AugAssign(target=ast.Name(id=name), op=operator, value=value):
                return [
                    f"{pad}{_format_variable(name)} = {self._format_expression(ast.BinOp(ast.Name(name, ast.Load()), operator, value))};"
                ]
            case ast.If(test=test, body=body, orelse=other):
                told = [
                    f"{pad}if ({self._format_expression(test, is_condition=True)}) {{",
                    *self._format_block(body, depth + 1),
                ]
                more = [f"{pad}}} else {{", *self._format_block(other, depth + 1)] if other else []
                return [*told, *more, f"{pad}}}"]
            case ast.Pass():
                return []
        return self._raise_unsupported(f"{ast.unparse(line)!r} has no form in C")

    def _format_expression(self, node: ast.expr, is_condition: bool = False) -> str:
        """An expression; `is_condition` where only its truth counts."""
        match node:
            case ast.Constant(value=bool() as value):
                return "1.0f" if value else "0.0f"
            case ast.Constant(value=int() | float() as value):
                return float32(value)
            case ast.Name(id=name):
                return _format_variable(name)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return f"powf({self._format_expression(left)}, {self._format_expression(right)})"
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
                return f"({self._format_expression(left)} {OPERATORS[type(operator)]} {self._format_expression(right)})"
            case ast.UnaryOp(op=operator, operand=operand) if type(operator) in OPERATORS:
                return f"({OPERATORS[type(operator)]}{self._format_expression(operand, isinstance(operator, ast.Not))})"
            # In Python `a or b` is one of the two; in C it is 1 or 0, which is the same where truth is asked for.
            case ast.BoolOp(op=operator, values=values) if is_condition or all(map(_is_boolean, values)):
                return f"({f' {OPERATORS[type(operator)]} '.join(self._format_expression(value, is_condition=True) for value in values)})"
            case ast.IfExp(test=test, body=body, orelse=other):
                return f"({self._format_expression(test, is_condition=True)} ? {self._format_expression(body)} : {self._format_expression(other)})"
            case ast.Compare(left=left, ops=operators, comparators=others) if all(
                type(operator) in OPERATORS for operator in operators
            ):
                sides = [left, *others]
                pairs = (
                    f"{self._format_expression(sides[n])} {OPERATORS[type(operator)]} {self._format_expression(sides[n + 1])}"
                    for n, operator in enumerate(operators)
                )
                return f"({' && '.join(pairs)})"
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=given, keywords=[]) if (
                name in C_FUNCTIONS
            ):
                return self._format_call(name, [self._format_expression(each) for each in given])
        return self._raise_unsupported(f"{ast.unparse(node)!r} has no form in C")

    def _format_call(self, name: str, given: list[str]) -> str:
        # max and min of several are those of two, again and again.
        if name in ("max", "min"):
            text = given[0]
            for other in given[1:]:
                text = f"{C_FUNCTIONS[name]}({text}, {other})"
            return text
        # The logarithm to a base.
        if name == "log" and len(given) == 2:
            return f"(logf({given[0]}) / logf({given[1]}))"
        return f"{C_FUNCTIONS[name]}({', '.join(given)})"

    def _raise_unsupported(self, reason: str) -> NoReturn:
        raise InputError(
            f"the weight of the feature {self.name!r} cannot be exported: {reason}; it may be a function, written with "
            "def, of arithmetic, if, and functions of math"
        )


def build_formulas(features: Iterable[Feature]) -> dict[Callable[..., float], tuple[str, Formula]]:
    """The formula of every weight and the word for it, "weigh_" and the feature's name; options are arguments of it."""
    found: dict[Callable[..., float], tuple[str, Formula]] = {}
    words: set[str] = set()
    for feature in features:
        if feature.weight not in found:
            word = "weigh_" + re.sub(r"\W", "_", feature.name.partition(":")[0], flags=re.ASCII)
            # Two names may be one word.
            word = word if word not in words else f"{word}_{len(words)}"
            words.add(word)
            found[feature.weight] = word, Formula(feature)
    return found


class _NameResolver(ast.NodeTransformer):
    """Puts numbers in place of the names that a function takes from elsewhere, and math.X in place of functions."""

    def __init__(self, known: dict[str, Any], local: set[str], raise_unsupported: Callable[[str], NoReturn]) -> None:
        self.known, self.local, self.raise_unsupported = known, local, raise_unsupported

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return node if node.id in self.local else self._resolve_value(node, self.known.get(node.id))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        names, base = [node.attr], node.value
        while isinstance(base, ast.Attribute):
            names, base = [base.attr, *names], base.value
        if not isinstance(base, ast.Name) or base.id in self.local:
            self.raise_unsupported(f"{ast.unparse(node)!r} has no form in C")
        value = self.known.get(base.id)
        for name in names:
            value = getattr(value, name, None)
        return self._resolve_value(node, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        # The type of a local variable says nothing here.
        return self.visit(ast.Assign([node.target], node.value)) if node.value is not None else ast.Pass()

    def _resolve_value(self, node: ast.AST, value: Any) -> ast.AST:
        if is_finite(value):
            return ast.Constant(float(value))
        if value in (math.inf, -math.inf) and isinstance(value, float):
            return ast.Constant(value)
        if callable(value) and value in BUILTINS:
            return ast.Name(BUILTINS[value], ast.Load())
        # math.sqrt, and NumPy's function of the same name.
        name = getattr(value, "__name__", "")
        ours = callable(value) and (value is getattr(math, name, None) or value is getattr(np, name, None))
        name = NUMPY_FUNCTIONS.get(name, name)
        if not ours or name not in C_FUNCTIONS:
            self.raise_unsupported(f"it uses {ast.unparse(node)!r}")
        if name in BUILTINS.values():
            return ast.Name(name, ast.Load())
        return ast.Attribute(ast.Name("math", ast.Load()), name, ast.Load())


def _is_assigned(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _is_boolean(node: ast.expr) -> bool:
    """Whether an expression is true or false, and no other number."""
    if isinstance(node, ast.BoolOp):
        return all(map(_is_boolean, node.values))
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def _is_docstring(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)
