"""Source text of exported C and Python files: filled templates, and the weight functions of features.

A weight consists of arithmetic and functions of `math` (see `equiflock.features.feature`). Global constants are
replaced by their values, so that the source needs only `math`.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import reduce
from importlib.resources import files
from typing import Any, NoReturn

import numpy as np

from equiflock._runtime.checks import InputError, is_finite, shorten_repr
from equiflock._runtime.specs import parse_spec
from equiflock.controllers.networks.architecture import obstacle_channel
from equiflock.deployment.export.program import Program
from equiflock.deployment.link_frames import COMPACT_VERSION
from equiflock.deployment.wire_format import VERSION, WINDOW
from equiflock.features import Feature
from equiflock.version import __version__

MATH_FUNCTIONS = """sqrt exp expm1 log log1p log2 log10 sin cos tan sinh cosh tanh asin acos atan atan2 hypot floor ceil
pow erf erfc fabs copysign fmod"""
C_FUNCTIONS = {name: f"{name}f" for name in MATH_FUNCTIONS.split()}
C_FUNCTIONS |= {"abs": "fabsf", "max": "fmaxf", "min": "fminf", "float": "(float)"}
"""Functions that a weight may call: Python name to C name."""
BUILTINS: dict[Any, str] = {abs: "abs", max: "max", min: "min", float: "float"}
NUMPY_FUNCTIONS = {"absolute": "abs", "maximum": "max", "minimum": "min", "power": "pow"}
"""NumPy functions whose names differ from those in `math`."""
C_KEYWORD_LIST = """auto break case char const continue default do double else enum extern float for goto if inline int
long register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while"""
C_KEYWORDS = frozenset(C_KEYWORD_LIST.split())
"""C keywords; some are valid variable names in Python."""
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


def fill_template(name: str, words: Mapping[str, object], parts: Collection[str], comment: tuple[str, str]) -> str:
    """Return a template with its placeholders filled in and only the given parts.

    Args:
        name: file name in templates/.
        words: value of each placeholder `@word@`.
        parts: optional parts to keep. A part is enclosed by comment lines `[part` and `part]`; parts may be nested.
        comment: start and end of a comment in the template's language.
    """
    opened, closed = map(re.escape, comment)
    begins, ends = re.compile(rf"\s*{opened}\[(\w+){closed}"), re.compile(rf"\s*{opened}(\w+)\]{closed}")
    lines: list[str] = []
    enclosing: list[str] = []
    for line in files(__package__).joinpath("templates", name).read_text().splitlines():
        if begin := begins.fullmatch(line):
            enclosing.append(begin[1])
        elif end := ends.fullmatch(line):
            assert enclosing.pop() == end[1]
        elif all(part in parts for part in enclosing):
            lines.append(line)
    text = re.sub(r"@(\w+)@", lambda match: str(words[match[1]]), "\n".join(lines))
    # Parts that are left out leave too many empty lines.
    return re.sub(r"\n{4,}", "\n\n\n", text) + "\n"


def make_common_words(program: Program, stem: str) -> dict[str, Any]:
    """Return the values of placeholders that all templates of agents share."""
    senses = program.senses
    length, time = senses.scales
    return {
        "file": stem,
        "name": make_identifier(stem),
        # A name may be a path: replace what could end a comment or a string.
        "controller": re.sub(r"[^\w.,:;=+() /-]", "_", program.name, flags=re.ASCII),
        "version": __version__,
        "D": program.dimensions,
        "K": senses.hops,
        "C": senses.width,
        "obstacle_channel": obstacle_channel(senses),
        "length": f"{length:g}",
        "time": f"{time:g}",
    }


def make_orbit_words(program: Program) -> dict[str, float]:
    """Return the values of the placeholders in the part `orbit`; empty if the program has no orbit technique."""
    if program.orbit is None:
        return {}
    gravity_break, cosine, sine, near, slow = program.orbit.coefficients
    return {"minus_break": -gravity_break, "cosine": cosine, "sine": sine, "near": near, "slow": slow}


def make_gain_words(program: Program) -> dict[str, float]:
    """Return the numbers of the placeholders in the part `schedule`; empty if the program has no gain schedule."""
    if program.gain_schedule is None:
        return {}
    numbers = {"gain_period": program.gain_schedule.period, "largest_gain": program.gain_schedule.largest}
    if program.longest_period is not None:
        numbers["longest_period"] = program.longest_period
    # Without the last digits, as scaled periods are numbers such as 0.15000000000000002.
    return {name: float(f"{number:.12g}") for name, number in numbers.items()}


def make_limit_numbers(program: Program) -> dict[str, float]:
    """Return the numbers of the placeholders in the part `limits`, 0 for no limit; empty if there are no limits."""
    if program.safety is None:
        return {}
    names = "max_acceleration", "max_speed", "min_separation", "max_silence", "braking_time"
    return {name: getattr(program.safety, name) or 0.0 for name in names}


def make_message_words(program: Program) -> dict[str, Any]:
    """Return the values of placeholders about messages; those of the part `compact` are empty in version 1."""
    words: dict[str, Any] = {
        "format_version": VERSION,
        "size": program.packet_bytes,
        "packets": program.packets,
        "message": "message" if program.packets == 1 else "packet",
        "relayed": program.relayed_count,
        "relayed_hops": program.relayed_hops,
        "vectors": 2 + program.relayed_count // program.dimensions,
    }
    if (compact := program.compact) is not None:
        radius, speed = compact.comm_radius, compact.speed_reach
        words |= {
            "format_version": COMPACT_VERSION,
            "layout": compact.layout,
            "vectors": 1 + compact.vectors_per_packet,
        }
        words |= {"window": f"{WINDOW * radius:g}", "speed_window": f"{2.0 * speed:g}"}
        words |= {"reach": f"{WINDOW / 2 * radius:g}", "speed_reach": f"{speed:g}"}
    return words


def list_template_parts(program: Program) -> set[str]:
    """Return the names of the optional parts of the templates that a program needs."""
    optional = {
        "plane": program.dimensions == 2,
        "space": program.dimensions == 3,
        "fixed": program.senses.topology == "fixed",
        "orbit": program.orbit is not None,
        "scaled": program.senses.is_scaled,
        "unscaled": not program.senses.is_scaled,
        "near": program.near_obstacle_layers,
        "schedule": program.gain_schedule is not None,
        "constant_gain": program.gain_schedule is None,
        "plain_schedule": program.gain_schedule is not None and program.safety is None,
        "period": program.needs_period,
        "no_period": not program.needs_period,
        "limits": program.safety is not None,
        "unlimited": program.safety is None,
        "fence": program.safety is not None and program.safety.fence is not None,
        "no_fence": program.safety is not None and program.safety.fence is None,
        "longest_period": program.gain_schedule is not None and program.longest_period is not None,
        f"clamp_{program.clamp_by}": program.clamp is not None,
        "float32": program.compact is None,
        "compact": program.compact is not None,
        "whole": program.packets == 1,
        "split": program.packets > 1,
        "shared_frame": not program.own_frames,
        "own_frames": program.own_frames,
        # Messages are decoded as they arrive, rather than copied.
        "decoded": program.compact is not None or program.own_frames,
        "plain": program.compact is None and not program.own_frames,
    }
    parts = {name for name, is_needed in optional.items() if is_needed}
    return parts | {f"mean_{group}" for group in list_mean_groups(program)} | program.activations


def list_mean_groups(program: Program) -> set[str]:
    """Return the groups of neighbours, "same" or "others", over which a channel is a mean: these must be counted."""
    pairs = zip(program.senses.features, program.senses.channels, strict=True)
    groups = {str(feature.among) for feature, (_, aggregation) in pairs if aggregation == "mean"}
    return groups & {"same", "others"}


def make_identifier(stem: str) -> str:
    """Return a file stem as a lower-case identifier of C. Raise InputError if it does not start with a letter."""
    word = re.sub(r"\W", "_", stem, flags=re.ASCII).lower()
    if not re.match(r"[a-z]", word):
        raise InputError(f"the name of an exported file must start with a letter, got {stem!r}")
    return word


def format_c_float(number: float) -> str:
    """Return a number, rounded to float32, as a C constant. Raise InputError if it is NaN, or finite but too large."""
    if MAX_FLOAT32 < abs(number) < math.inf:
        raise InputError(
            f"constants must be at most {MAX_FLOAT32:.1e}, the largest float in C, got {shorten_repr(number)}"
        )
    if math.isnan(number):
        raise InputError(f"constants of an exported controller must be numbers, got {number}")
    if math.isinf(number):
        return "INFINITY" if number > 0 else "(-INFINITY)"
    text = f"{float(np.float32(number)):.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def _format_variable(name: str) -> str:
    """Return the name of a variable in C: keywords get a trailing underscore."""
    return f"{name}_" if name in C_KEYWORDS else name


class Formula:
    """The weight function of a feature as a syntax tree: arithmetic, `if` and functions of `math`, else InputError."""

    def __init__(self, feature: Feature) -> None:
        self.name = feature.name
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(feature.weight)))
        except (OSError, TypeError, SyntaxError):
            self._raise_unsupported("its source code is not available")
        definition = tree.body[0]
        if not isinstance(definition, ast.FunctionDef):
            self._raise_unsupported("it is not defined with def")
        self.arguments = [argument.arg for argument in definition.args.args]
        variables = inspect.getclosurevars(feature.weight)
        local = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name) and _is_assigned(node)}
        self._local = [*dict.fromkeys(sorted(local - set(self.arguments)))]
        resolve = _NameResolver(
            {**variables.builtins, **variables.globals, **variables.nonlocals},
            {*local, *self.arguments},
            self._raise_unsupported,
        )
        self._body = [resolve.visit(line) for line in definition.body if not _is_docstring(line)]

    def to_python(self, function_name: str) -> str:
        """Return a Python function with this name and the arguments of the weight."""
        body = ast.unparse(ast.fix_missing_locations(ast.Module(self._body, [])))
        return f"def {function_name}({', '.join(self.arguments)}):\n" + textwrap.indent(body, "    ")

    def to_c(self, function_name: str) -> str:
        """Return a C99 function of `float` with this name."""
        parameters = ", ".join(f"float {_format_variable(name)}" for name in self.arguments)
        lines = [f"static inline float {function_name}({parameters})", "{"]
        # Not every weight uses all of its arguments.
        lines += [f"    (void){_format_variable(name)};" for name in self.arguments if not self._is_read(name)]
        lines += [f"    float {_format_variable(name)} = 0.0f;" for name in self._local]
        return "\n".join([*lines, *self._format_block(self._body, 1), "}"])

    def _is_read(self, name: str) -> bool:
        """Return whether the function reads a variable, and does not only assign it."""
        nodes = (node for line in self._body for node in ast.walk(line))
        return any(isinstance(node, ast.Name) and node.id == name and not _is_assigned(node) for node in nodes)

    def _format_block(self, lines: list[ast.stmt], depth: int) -> list[str]:
        """Return the C lines of statements, indented by `depth` levels."""
        return [text for line in lines for text in self._format_statement(line, depth)]

    def _format_statement(self, line: ast.stmt, depth: int) -> list[str]:
        """Return the C lines of a return, assignment, if or pass."""
        pad = "    " * depth
        match line:
            case ast.Return(value=ast.expr() as value):
                return [f"{pad}return {self._format_expression(value)};"]
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                return [f"{pad}{_format_variable(name)} = {self._format_expression(value)};"]
            case ast.AugAssign(target=ast.Name(id=name), op=operator, value=value):
                result = ast.BinOp(ast.Name(name, ast.Load()), operator, value)
                return [f"{pad}{_format_variable(name)} = {self._format_expression(result)};"]
            case ast.If(test=test, body=body, orelse=other):
                condition = self._format_expression(test, is_condition=True)
                then_branch = [f"{pad}if ({condition}) {{", *self._format_block(body, depth + 1)]
                else_branch = [f"{pad}}} else {{", *self._format_block(other, depth + 1)] if other else []
                return [*then_branch, *else_branch, f"{pad}}}"]
            case ast.Pass():
                return []
        return self._raise_unsupported(f"{ast.unparse(line)!r} cannot be translated to C")

    def _format_expression(self, node: ast.expr, is_condition: bool = False) -> str:
        """Return an expression in C; of a condition only the truth value counts."""
        match node:
            case ast.Constant(value=bool() as value):
                return "1.0f" if value else "0.0f"
            case ast.Constant(value=int() | float() as value):
                return format_c_float(value)
            case ast.Name(id=name):
                return _format_variable(name)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return f"powf({self._format_expression(left)}, {self._format_expression(right)})"
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in OPERATORS:
                return f"({self._format_expression(left)} {OPERATORS[type(operator)]} {self._format_expression(right)})"
            case ast.UnaryOp(op=operator, operand=operand) if type(operator) in OPERATORS:
                return f"({OPERATORS[type(operator)]}{self._format_expression(operand, isinstance(operator, ast.Not))})"
            # `a or b` is one of its operands in Python, but 1 or 0 in C: the same only as a truth value.
            case ast.BoolOp(op=operator, values=values) if is_condition or all(map(_is_boolean, values)):
                operands = (self._format_expression(value, is_condition=True) for value in values)
                return f"({f' {OPERATORS[type(operator)]} '.join(operands)})"
            case ast.IfExp(test=test, body=body, orelse=other):
                condition = self._format_expression(test, is_condition=True)
                return f"({condition} ? {self._format_expression(body)} : {self._format_expression(other)})"
            case ast.Compare(left=left, ops=operators, comparators=others) if all(
                type(operator) in OPERATORS for operator in operators
            ):
                sides = [self._format_expression(side) for side in (left, *others)]
                symbols = [OPERATORS[type(operator)] for operator in operators]
                pairs = (f"{sides[n]} {symbol} {sides[n + 1]}" for n, symbol in enumerate(symbols))
                return f"({' && '.join(pairs)})"
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=arguments, keywords=[]) if (
                name in C_FUNCTIONS
            ):
                return self._format_call(name, [self._format_expression(argument) for argument in arguments])
        return self._raise_unsupported(f"{ast.unparse(node)!r} cannot be translated to C")

    def _format_call(self, name: str, arguments: list[str]) -> str:
        """Return a function call in C; `name` is the Python name, and `arguments` are C expressions."""
        # fmaxf and fminf take two arguments: nest them.
        if name in ("max", "min"):
            return reduce(lambda text, argument: f"{C_FUNCTIONS[name]}({text}, {argument})", arguments)
        # log(x, base)
        if name == "log" and len(arguments) == 2:
            return f"(logf({arguments[0]}) / logf({arguments[1]}))"
        return f"{C_FUNCTIONS[name]}({', '.join(arguments)})"

    def _raise_unsupported(self, reason: str) -> NoReturn:
        """Raise InputError with the feature's name and the reason why its weight cannot be exported."""
        raise InputError(
            f"the weight of the feature {self.name!r} cannot be exported: {reason}; it must be a function, defined "
            "with def, that uses only arithmetic, if and functions of math"
        )


def build_formulas(features: Iterable[Feature]) -> dict[Callable[..., float], tuple[str, Formula]]:
    """Return, by weight function, its name in the export and its formula.

    Features that differ only in their options share a formula: options are its arguments.
    """
    formulas: dict[Callable[..., float], tuple[str, Formula]] = {}
    for feature in features:
        if feature.weight not in formulas:
            name = "weigh_" + re.sub(r"\W", "_", parse_spec(feature.name).name, flags=re.ASCII)
            # Different feature names may give the same identifier.
            is_taken = name in (other for other, _ in formulas.values())
            formulas[feature.weight] = f"{name}_{len(formulas)}" if is_taken else name, Formula(feature)
    return formulas


class _NameResolver(ast.NodeTransformer):
    """Replaces global and closure names by their numbers, and functions by `math.X`; local names and arguments stay."""

    def __init__(
        self, variables: dict[str, Any], local: set[str], raise_unsupported: Callable[[str], NoReturn]
    ) -> None:
        self.variables, self.local, self.raise_unsupported = variables, local, raise_unsupported

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Return the node if it is local, else what replaces it."""
        return node if node.id in self.local else self._resolve_value(node, self.variables.get(node.id))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Return what replaces a dotted name such as `math.sqrt` or `constants.RADIUS`."""
        names, base = [node.attr], node.value
        while isinstance(base, ast.Attribute):
            names, base = [base.attr, *names], base.value
        if not isinstance(base, ast.Name) or base.id in self.local:
            self.raise_unsupported(f"{ast.unparse(node)!r} cannot be translated to C")
        value = self.variables.get(base.id)
        for name in names:
            value = getattr(value, name, None)
        return self._resolve_value(node, value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Return the assignment without its type; `pass` if nothing is assigned."""
        return self.visit(ast.Assign([node.target], node.value)) if node.value is not None else ast.Pass()

    def _resolve_value(self, node: ast.AST, value: Any) -> ast.AST:
        """Return a number as a constant, or a function as the name of its equivalent in `math` or builtins."""
        if is_finite(value):
            return ast.Constant(float(value))
        if value in (math.inf, -math.inf) and isinstance(value, float):
            return ast.Constant(value)
        if callable(value) and value in BUILTINS:
            return ast.Name(BUILTINS[value], ast.Load())
        # Functions of math, and NumPy functions with the same name.
        name = getattr(value, "__name__", "")
        is_math = callable(value) and (value is getattr(math, name, None) or value is getattr(np, name, None))
        name = NUMPY_FUNCTIONS.get(name, name)
        if not is_math or name not in C_FUNCTIONS:
            self.raise_unsupported(f"it uses {ast.unparse(node)!r}")
        if name in BUILTINS.values():
            return ast.Name(name, ast.Load())
        return ast.Attribute(ast.Name("math", ast.Load()), name, ast.Load())


def _is_assigned(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _is_boolean(node: ast.expr) -> bool:
    """Return whether the value of an expression is always a bool."""
    if isinstance(node, ast.BoolOp):
        return all(map(_is_boolean, node.values))
    return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))


def _is_docstring(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)
