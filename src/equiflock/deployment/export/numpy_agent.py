"""NumPy export: one agent's controller as a Python file, from templates/numpy_agent.txt, with weights as .npz."""

from __future__ import annotations

from equiflock.deployment.export.c_header import format_title, format_units, list_features, list_template_parts
from equiflock.deployment.export.program import Activation, Program
from equiflock.deployment.export.source_text import build_formulas, fill_template
from equiflock.version import __version__

VECTOR_ACTIVATIONS: dict[Activation, tuple[str, str]] = {
    "scale-log": ("Return x ln(1 + |x|) / |x|, which shortens long vectors.", "(np.log1p(norm) / norm)"),
    "scale-tanh": ("Return x tanh |x|, which shortens short vectors.", "np.tanh(norm)"),
}
"""Docstring of each activation of vectors, and the factor of the vector."""


def format_numpy_agent(program: Program, stem: str) -> str:
    """Return the text of the Python file, which loads its weights from the .npz file of the same stem."""
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
    """Return Python functions for the feature weights that are more than one expression of |r_ij|^2.

    The other weights are written in the table CHANNELS.
    """
    texts = (formula.to_python(name) for name, formula in build_formulas(list_features(program)).values())
    return [text for text in texts if _extract_expression(text) is None]


def _extract_expression(function: str) -> str | None:
    """Return the expression of a Python function of `square`, |r_ij|^2, that only returns it; else None."""
    head, _, body = function.partition("\n    return ")
    return body if head.endswith("(square):") and "\n" not in body else None


def _format_channels(program: Program) -> list[str]:
    """Return a row of the table CHANNELS for each channel: weight, whether of v_ij, among whom, whether a mean."""
    names, lines = build_formulas(list_features(program)), []
    for feature, (_, aggregation) in zip(program.senses.features, program.senses.channels, strict=True):
        arguments = ["square", *(["inner"] if feature.uses_velocity else []), *map(repr, feature.options)]
        name, formula = names[feature.weight]
        call = f"{name}({', '.join(arguments)})"
        weight = f"lambda square, inner: {_extract_expression(formula.to_python(name)) or call}"
        columns = feature.vector == "velocity", feature.among, aggregation == "mean"
        lines.append(f"    ({', '.join([weight, *map(repr, columns)])}),".replace("'", '"'))
    return lines


def _format_activations(program: Program) -> list[str]:
    """Return the lines of the functions of the vector activations that this network uses; tanh is NumPy's."""
    used, lines = {program.input_activation, *(layer.activation for layer in program.layers)}, []
    for kind, (docstring, scale) in VECTOR_ACTIVATIONS.items():
        if kind in used:
            lines += ["", "", f"def {kind.replace('-', '_')}(x):", f'    """{docstring}"""']
            lines += [
                "    norm = np.sqrt(np.square(x).sum(axis=1, keepdims=True) + 1e-30)",
                f"    return x * ({scale})",
            ]
    return lines


def _format_network(program: Program) -> list[str]:
    """Return the Python lines from observations, `x`, to the acceleration before the clamp, also `x`."""
    lines, key_prefix = [], '"'
    if program.input_activation != "none":
        lines.append(f"x = {_format_activation(program.input_activation, 'x')}")
    if program.near_obstacle_layers:
        # Agents near an obstacle use the weights whose names start with "near_".
        channel = program.obstacle_channel
        lines.append(f'near = "near_" if self.observations[:, {channel}].any() else ""  # obstacle channel not zero')
        key_prefix = 'f"{near}'
    for k, layer in enumerate(program.layers):
        bias = "" if layer.bias is None else f' + self.weights[{key_prefix}bias_{k}"][:, None]'
        output = f'self.weights[{key_prefix}weight_{k}"] @ x{bias}'
        lines.append(f"x = {_format_activation(layer.activation, output)}")
    return lines


def _format_activation(activation: Activation, x: str) -> str:
    """Return the Python expression of an activation of the expression `x`."""
    function = "np.tanh" if activation == "tanh" else activation.replace("-", "_")
    return x if activation == "none" else f"{function}({x})"


def _format_clamp(program: Program) -> list[str]:
    """Return the line that clamps the acceleration; an empty list if the program has no clamp."""
    if program.clamp is None:
        return []
    if program.clamp_by == "entry":
        return [f"x = np.clip(x, {-program.clamp!r}, {program.clamp!r})"]
    return [f"x = x * ({program.clamp!r} / max(np.linalg.norm(x), {program.clamp!r}))"]
