"""C export: one agent's controller as a C99 header, from templates/agent.h."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from equiflock.deployment.export.program import Activation, FloatArray, Program
from equiflock.deployment.export.source_text import build_formulas, fill_template, format_c_float, make_identifier
from equiflock.deployment.wire_format import count_message_bytes
from equiflock.features import Feature
from equiflock.version import __version__

DEFAULT_MAX_NEIGHBOURS = 32
"""Default of the header's macro NEIGHBOURS: neighbours for which an agent has memory."""
MEAN_FACTORS = {"all": "mean", "same": "mean_same", "others": "mean_others"}
"""C variable that turns the sum of a channel into a mean. At most one obstacle agent counts, so its mean is its sum."""
GROUP_CONDITIONS = {
    "same": "if (other->group == agent->group)",
    "others": "if (other->group != agent->group && other->group != 255u)",
    "obstacles": "if (other->group == 255u)",
}
"""C condition for neighbours of the same group, of other groups, and obstacle agents, which have no group."""
INTEGER_BYTES = 16
"""Bytes of the integer fields of a neighbour, and of an agent."""


def format_c_header(program: Program, stem: str) -> str:
    """Return the text of the C99 header. All names in it start with the identifier made from the file stem."""
    prefix = make_identifier(stem)
    senses, D = program.senses, program.dimensions
    features = list_features(program)
    words: dict[str, Any] = {
        "file": stem,
        "name": prefix,
        "NAME": prefix.upper(),
        "title": format_title(program),
        "version": __version__,
        "units": f" * {format_units(program)}",
        "D": D,
        "K": senses.hops,
        "C": senses.width,
        "relayed": program.relayed_count,
        "size": count_message_bytes(senses, D),
        "features": len(features),
        "neighbours": DEFAULT_MAX_NEIGHBOURS,
        "ram": count_agent_bytes(program),
        "slot": count_neighbour_bytes(program),
        "stack": count_stack_bytes(program),
        "weights": 4 * program.weight_count,
        "per_length": format_c_float(1.0 / senses.length_scale),
        "per_speed": format_c_float(_compute_speed_scale(program)),
        "to_speed": f" * {format_c_float(_compute_speed_scale(program))}" if senses.is_scaled else "",
        "constants": _format_constants(program, features, prefix),
        "sums": _format_sums(program, features, prefix),
        "channels": _format_channels(program, features, prefix.upper()),
        "activations": _format_activations(program, prefix),
        "network": _format_network(program, prefix, prefix.upper()),
    }
    if program.orbit is not None:
        gravity_break, cosine, sine, near, slow = program.orbit.coefficients
        numbers = {"minus_break": -gravity_break, "cosine": cosine, "sine": sine, "near": near, "slow": slow}
        words |= {name: format_c_float(number) for name, number in numbers.items()}
    return fill_template("agent.h", words, list_template_parts(program), ("/*", "*/"))


def format_title(program: Program) -> str:
    """Return the title: controller, dimensions, hops and channels."""
    senses = program.senses
    return f"{program.name}: {program.dimensions} dimensions, {senses.hops} hops of {senses.width} channels"


def format_units(program: Program) -> str:
    """Return one sentence on the units of the export."""
    if not program.senses.is_scaled:
        return "Positions, velocities and accelerations are in the controller's units."
    length, time = program.senses.scales
    return f"The controller's unit of length is {length:g} of the robots' units, its second {time:g} of their seconds."


def list_template_parts(program: Program) -> set[str]:
    """Return the names of the optional parts of the templates (see `fill_template`) that a program needs."""
    senses = program.senses
    parts = {"plane" if program.dimensions == 2 else "space"}
    parts |= {"fixed"} if senses.topology == "fixed" else set()
    parts |= {"orbit"} if program.orbit is not None else set()
    parts |= {"scaled"} if senses.is_scaled else set()
    return parts | {f"mean_{group}" for group in _list_mean_groups(program)}


def _list_mean_groups(program: Program) -> set[str]:
    """Return the groups of neighbours, "same" or "others", over which a channel is a mean: these must be counted."""
    pairs = zip(program.senses.features, program.senses.channels, strict=True)
    means = (feature for feature, (_, aggregation) in pairs if aggregation == "mean")
    return {str(feature.among) for feature in means if feature.among in ("same", "others")}


def list_features(program: Program) -> list[Feature]:
    """Return the distinct features of the channels: the mean and the sum of a feature share one sum."""
    return list(dict.fromkeys(program.senses.features))


def _compute_speed_scale(program: Program) -> float:
    """Return the factor from the robots' velocities to the controller's."""
    length, time = program.senses.scales
    return time / length


def count_neighbour_bytes(program: Program) -> int:
    """Return the bytes of memory per neighbour."""
    return INTEGER_BYTES + 4 * (2 * program.dimensions + program.relayed_count)


def count_agent_bytes(program: Program) -> int:
    """Return the bytes of memory per agent, with room for DEFAULT_MAX_NEIGHBOURS neighbours."""
    observations = program.senses.hops * program.senses.width * program.dimensions
    initial_neighbours = 4 * (1 + DEFAULT_MAX_NEIGHBOURS) if program.senses.topology == "fixed" else 0
    return (
        INTEGER_BYTES
        + 4 * (2 * program.dimensions + observations)
        + DEFAULT_MAX_NEIGHBOURS * count_neighbour_bytes(program)
        + initial_neighbours
    )


def count_stack_bytes(program: Program) -> int:
    """Return the bytes of numbers on the stack: the larger of the feature sums and the network's two buffers."""
    D, features = program.dimensions, len(list_features(program))
    return 4 * max((features + 2) * D + (2 if program.orbit else 0), 2 * _count_buffer_floats(program))


def _count_buffer_floats(program: Program) -> int:
    """Return the size, in floats, of each of the network's two buffers: that of the widest layer."""
    first = program.layers[0].weight.shape[1] if program.input_activation != "none" else 0
    return program.vector_size * max(first, *(len(layer.weight) for layer in program.layers))


def collect_weights(program: Program) -> dict[str, FloatArray]:
    """Return matrices and biases by name: weight_0, bias_0, weight_1, ..

    Names of the layers for agents near an obstacle start with "near_". Layers without a bias have no entry for it.
    """
    weights: dict[str, FloatArray] = {}
    for prefix, layers in (("", program.layers), ("near_", program.near_obstacle_layers)):
        for k, layer in enumerate(layers):
            weights[f"{prefix}weight_{k}"] = layer.weight
            if layer.bias is not None:
                weights[f"{prefix}bias_{k}"] = layer.bias
    return weights


def format_floats(values: Iterable[float]) -> str:
    """Return the values of a C array, without braces, eight per line."""
    texts = [format_c_float(float(value)) for value in values]
    return ",\n".join("    " + ", ".join(texts[n : n + 8]) for n in range(0, len(texts), 8))


def _format_constants(program: Program, features: list[Feature], prefix: str) -> str:
    """Return C definitions of the weights as arrays, and of the weight functions of features."""
    parts = []
    for name, values in collect_weights(program).items():
        shape = " x ".join(map(str, values.shape))
        parts.append(
            f"/* {name.replace('_', ' ')}, {shape} */\nstatic const float {prefix}_{name}[{values.size}] = {{\n"
            f"{format_floats(np.ravel(values))}}};"
        )
    parts += [formula.to_c(f"{prefix}_{name}") for name, formula in build_formulas(features).values()]
    return "\n\n".join(parts)


def _format_sums(program: Program, features: list[Feature], prefix: str) -> str:
    """Return the C lines that add a neighbour's features to their sums, and count it if its group has a mean."""
    lines, names = [], build_formulas(features)
    for group in sorted(_list_mean_groups(program)):
        lines += [GROUP_CONDITIONS[group], f"    {group}++;"]
    if any(feature.uses_velocity for feature in features):
        inner = " + ".join(f"r[{d}] * v[{d}]" for d in range(program.dimensions))
        lines.append(f"const float inner = {inner};")
    for n, feature in enumerate(features):
        arguments = ["square", *(["inner"] if feature.uses_velocity else []), *map(format_c_float, feature.options)]
        weight = f"{prefix}_{names[feature.weight][0]}({', '.join(arguments)})"
        vector = "r" if feature.vector == "position" else "v"
        line = f"{prefix}_add(sums + {n} * {prefix.upper()}_D, {weight}, {vector});"
        lines += [line] if feature.among == "all" else [GROUP_CONDITIONS[feature.among], f"    {line}"]
    return "\n".join(f"        {line}" for line in lines)


def _format_channels(program: Program, features: list[Feature], NAME: str) -> str:
    """Return a loop over components that sets each channel of hop 1 to the sum or mean of its feature."""
    lines = []
    for c, (feature, (_, aggregation)) in enumerate(zip(program.senses.features, program.senses.channels, strict=True)):
        scale = f" * {MEAN_FACTORS[feature.among]}" if aggregation == "mean" and feature.among in MEAN_FACTORS else ""
        lines.append(f"observations[{c} * {NAME}_D + n] = sums[{features.index(feature)} * {NAME}_D + n]{scale};")
    head = f"        for (n = 0; n < {NAME}_D; n++) {{"
    return "\n".join([head, *(f"            {line}" for line in lines), "        }"])


def _format_activations(program: Program, prefix: str) -> str:
    """Return the C functions of the activations that this network uses; empty if it uses none."""
    D, functions = program.dimensions, []
    used = {program.input_activation, *(layer.activation for layer in program.layers)}
    if "tanh" in used:
        functions.append(
            f"static inline void {prefix}_tanh(int count, float *x)\n{{\n    int n;\n"
            "    for (n = 0; n < count; n++)\n        x[n] = tanhf(x[n]);\n}\n"
        )
    scales: tuple[tuple[Activation, str, str], ...] = (
        ("scale-log", "log1pf(norm) / norm", "x ln(1 + |x|) / |x|, which shortens long vectors"),
        ("scale-tanh", "tanhf(norm)", "x tanh |x|, which shortens short vectors"),
    )
    for kind, scale, formula in scales:
        if kind in used:
            functions.append(
                f"/* {formula} */\nstatic inline void {prefix}_{kind.replace('-', '_')}(int count, float *x)\n{{\n"
                f"    int n, d;\n    for (n = 0; n < count; n++, x += {D}) {{\n"
                "        float norm = 1e-30f;\n"
                f"        for (d = 0; d < {D}; d++)\n            norm += x[d] * x[d];\n"
                f"        norm = sqrtf(norm);\n        norm = {scale};\n"
                f"        for (d = 0; d < {D}; d++)\n            x[d] *= norm;\n    }}\n}}\n"
            )
    return "\n".join(functions)


def _format_network(program: Program, prefix: str, NAME: str) -> str:
    """Return the C lines from observations to the acceleration. Layers alternate between the buffers x and y."""
    lines, source, target, buffers = [], "agent->observations", "x", set()
    if program.input_activation != "none":
        first = program.layers[0].weight.shape[1]
        lines += [f"for (n = 0; n < {first * program.vector_size}; n++)", "    x[n] = agent->observations[n];"]
        lines.append(f"{prefix}_{program.input_activation.replace('-', '_')}({first}, x);")
        source, target, buffers = "x", "y", {"x"}
    for k, layer in enumerate(program.layers):
        outputs, inputs = layer.weight.shape
        weight = _select_weights(program, prefix, f"weight_{k}")
        bias = "NULL" if layer.bias is None else _select_weights(program, prefix, f"bias_{k}")
        lines.append(
            f"{prefix}_layer({weight}, {bias}, {outputs}, {inputs}, {program.vector_size}, {source}, {target});"
        )
        buffers.add(target)
        if layer.activation != "none":
            lines.append(f"{prefix}_{layer.activation.replace('-', '_')}({outputs}, {target});")
        source, target = target, "y" if target == "x" else "x"
    lines += _format_clamp(program, source)
    scale = "" if program.acceleration_scale == 1.0 else f" * {format_c_float(program.acceleration_scale)}"
    lines += [f"for (d = 0; d < {NAME}_D; d++)", f"    acceleration[d] = {source}[d]{scale};"]
    declared = [f"float {', '.join(f'{name}[{_count_buffer_floats(program)}]' for name in sorted(buffers))};"]
    return "\n".join(f"    {line}" for line in [*declared, *_format_near_obstacle(program, NAME), *lines])


def _select_weights(program: Program, prefix: str, name: str) -> str:
    """Return a C expression for a matrix or bias, which depends on `near_obstacle` if the program has two sets."""
    if not program.near_obstacle_layers:
        return f"{prefix}_{name}"
    return f"near_obstacle ? {prefix}_near_{name} : {prefix}_{name}"


def _format_near_obstacle(program: Program, NAME: str) -> list[str]:
    """Return the lines that set `near_obstacle`; an empty list if the program has one set of layers."""
    if not program.near_obstacle_layers:
        return []
    channel = program.obstacle_channel
    return [
        f"int near_obstacle = 0; /* is the obstacle channel, {channel}, not zero in any hop */",
        f"for (n = 0; n < {NAME}_K; n++)",
        f"    for (d = 0; d < {NAME}_D; d++)",
        f"        near_obstacle |= agent->observations[(n * {NAME}_C + {channel}) * {NAME}_D + d] != 0.0f;",
    ]


def _format_clamp(program: Program, buffer: str) -> list[str]:
    """Return the lines that clamp the acceleration in a buffer; an empty list if the program has no clamp."""
    if program.clamp is None:
        return []
    D, clamp = program.dimensions, format_c_float(program.clamp)
    if program.clamp_by == "entry":
        # Not with fminf and fmaxf, which replace NaN by a number.
        clamped = f"{buffer}[d] > {clamp} ? {clamp} : {buffer}[d] < -{clamp} ? -{clamp} : {buffer}[d]"
        return [f"for (d = 0; d < {D}; d++)", f"    {buffer}[d] = {clamped};"]
    square = " + ".join(f"{buffer}[{d}] * {buffer}[{d}]" for d in range(D))
    return [
        "{",
        f"    const float norm = sqrtf({square});",
        f"    for (d = 0; d < {D} && norm > {clamp}; d++)",
        f"        {buffer}[d] *= {clamp} / norm;",
        "}",
    ]
