"""One agent's controller as a file of plain Python, from templates/numpy_agent.txt, and its weights as .npz."""

from __future__ import annotations

from equiflock.deployment.export.c_header import format_title, format_units, list_features, list_template_parts
from equiflock.deployment.export.formula import build_formulas
from equiflock.deployment.export.program import Activation, Program
from equiflock.deployment.export.template import fill_template
from equiflock.version import __version__

VECTOR_ACTIVATIONS: dict[Activation, tuple[str, str]] = {
    "scale-log": ("x ln(1 + |x|) / |x|, which shortens long vectors", "(np.log1p(norm) / norm)"),
    "scale-tanh": ("x tanh |x|, which shortens short vectors", "np.tanh(norm)"),
}


def format_numpy_agent(program: Program, stem: str) -> str:
    """The file, which loads its weights from the .npz file of the same name."""
    senses, scale = program.senses, program.acceleration_scale
    length, time = senses.scales
    words = {
        "title": format_title(program),
        "version": __version__,
        "file": stem,
        "units": format_units(program),
        "D": program.dimensions,
        "K": senses.hops,
        "C": senses.width,
        "components": program.vector_size,
        "features": "".join(f"\n\n{text}\n" for text in _format_weight_functions(program)),
        "channels": "\n".join(_format_channels(program)),
        "activations": "\n".join(_format_activations(program)),
        "network": "\n".join(f"        {line}" for line in [*_format_network(program), *_format_clamp(program)]),
        "scale": "" if scale == 1.0 else f" * {scale!r}",
        "to_length": f" / {length!r}" if senses.is_scaled else "",
        "to_speed": f" * {time / length!r}" if senses.is_scaled else "",
    }
    if program.orbit is not None:
        gravity_break, cosine, sine, near, slow = program.orbit.coefficients
        words |= {"minus_break": -gravity_break, "cosine": cosine, "sine": sine, "near": near, "slow": slow}
    return fill_template("numpy_agent.txt", words, list_template_parts(program), ("#", ""))


def _format_weight_functions(program: Program) -> list[str]:
    """The weights of features that are more than one expression of |r_ij|^2, as functions."""
    texts = (text.to_python(name) for name, text in build_formulas(list_features(program)).values())
    return [text for text in texts if _extract_expression(text) is None]


def _extract_expression(function: str) -> str | None:
    """What a function of |r_ij|^2 alone returns, if that is all it does."""
    head, _, body = function.partition("\n    return ")
    return body if head.endswith("(square):") and "\n" not in body else None


def _format_channels(program: Program) -> list[str]:
    """A line for each channel."""
    names, lines = build_formulas(list_features(program)), []
    for feature, (_, aggregation) in zip(program.senses.features, program.senses.channels, strict=True):
        known = ["square", *(["inner"] if feature.uses_velocity else []), *map(repr, feature.options)]
        name, text = names[feature.weight]
        called = f"{name}({', '.join(known)})"
        weight = f"lambda square, inner: {_extract_expression(text.to_python(name)) or called}"
        marks = feature.vector == "velocity", feature.among, aggregation == "mean"
        lines.append(f"    ({', '.join([weight, *map(repr, marks)])}),".replace("'", '"'))
    return lines


def _format_activations(program: Program) -> list[str]:
    """The functions that bend vectors, of those that this network has."""
    used, lines = {program.input_activation, *(layer.activation for layer in program.layers)}, []
    for kind, (what, scale) in VECTOR_ACTIVATIONS.items():
        if kind in used:
            lines += ["", "", f"def {kind.replace('-', '_')}(x):", f'    """{what}"""']
            lines += [
                "    norm = np.sqrt(np.square(x).sum(axis=1, keepdims=True) + 1e-30)",
                f"    return x * ({scale})",
            ]
    return lines


def _format_network(program: Program) -> list[str]:
    """The lines from observations to the acceleration."""
    lines, which = [], '"'
    if program.input_activation != "none":
        lines.append(f"x = {_format_activation(program.input_activation, 'x')}")
    if program.near_obstacle_layers:
        # The names of weights begin by what the agent knows.
        channel = program.obstacle_channel
        lines.append(f'near = "near_" if self.known[:, {channel}].any() else ""  # does it know of an obstacle')
        which = 'f"{near}'
    for k, layer in enumerate(program.layers):
        bias = "" if layer.bias is None else f' + self.weights[{which}bias_{k}"][:, None]'
        made = f'self.weights[{which}weight_{k}"] @ x{bias}'
        lines.append(f"x = {_format_activation(layer.activation, made)}")
    return lines


def _format_activation(activation: Activation, x: str) -> str:
    function = "np.tanh" if activation == "tanh" else activation.replace("-", "_")
    return x if activation == "none" else f"{function}({x})"


def _format_clamp(program: Program) -> list[str]:
    """The line that clamps the acceleration, if it is."""
    if program.clamp is None:
        return []
    if program.clamp_by == "entry":
        return [f"x = np.clip(x, {-program.clamp!r}, {program.clamp!r})"]
    return [f"x = x * ({program.clamp!r} / max(np.linalg.norm(x), {program.clamp!r}))"]
