"""One agent's controller as a C99 header, from templates/agent.h: the constants, the features and the network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from equiflock.deployment.export.formula import build_formulas, float32
from equiflock.deployment.export.program import Activation, FloatArray, Program
from equiflock.deployment.export.template import fill_template, make_identifier
from equiflock.deployment.wire_format import count_message_bytes
from equiflock.features import Feature
from equiflock.version import __version__

DEFAULT_MAX_NEIGHBOURS = 32
"""So many others an agent has room for, unless whoever compiles the header says otherwise."""
MEAN_FACTORS = {"all": "mean", "same": "mean_same", "others": "mean_others"}
"""By which a channel is multiplied, if it is a mean; one obstacle agent is heard at most, whose mean is its sum."""
GROUP_CONDITIONS = {
    "same": "if (other->group == agent->group)",
    "others": "if (other->group != agent->group && other->group != 255u)",
    "obstacles": "if (other->group == 255u)",
}
"""Which agents are of the same group, of others, or obstacle agents, which are of none."""
INTEGER_BYTES = 16
"""Bytes of a neighbour, and of an agent, that are whole numbers."""


def format_c_header(program: Program, stem: str) -> str:
    """The header for a file of this name, with which all names in it begin."""
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
        "passed": program.relayed_count,
        "size": count_message_bytes(senses, D),
        "features": len(features),
        "neighbours": DEFAULT_MAX_NEIGHBOURS,
        "ram": count_agent_bytes(program),
        "slot": count_neighbour_bytes(program),
        "stack": count_stack_bytes(program),
        "weights": 4 * program.weight_count,
        "per_length": float32(1.0 / senses.length_scale),
        "per_speed": float32(_compute_speed_scale(program)),
        "to_speed": f" * {float32(_compute_speed_scale(program))}" if senses.is_scaled else "",
        "constants": _format_constants(program, features, prefix),
        "sums": _format_sums(program, features, prefix),
        "channels": _format_channels(program, features, prefix.upper()),
        "activations": _format_activations(program, prefix),
        "network": _format_network(program, prefix, prefix.upper()),
    }
    if program.orbit is not None:
        gravity_break, cosine, sine, near, slow = program.orbit.coefficients
        words |= {"minus_break": float32(-gravity_break), "cosine": float32(cosine), "sine": float32(sine)}
        words |= {"near": float32(near), "slow": float32(slow)}
    return fill_template("agent.h", words, list_template_parts(program), ("/*", "*/"))


def format_title(program: Program) -> str:
    """In one line, what is exported."""
    senses = program.senses
    return f"{program.name}: {program.dimensions} dimensions, {senses.hops} hops of {senses.width} channels"


def format_units(program: Program) -> str:
    """In one line, what the robots' units are to the controller."""
    if not program.senses.is_scaled:
        return "Positions, velocities and accelerations are in the units that the controller was made for."
    length, time = program.senses.scales
    return f"One length of the controller is {length:g} of the robots' units, one of its seconds {time:g} of theirs."


def list_template_parts(program: Program) -> set[str]:
    """Which parts of the templates an agent needs."""
    senses = program.senses
    found = {"plane" if program.dimensions == 2 else "space"}
    found |= {"fixed"} if senses.topology == "fixed" else set()
    found |= {"orbit"} if program.orbit is not None else set()
    found |= {"scaled"} if senses.is_scaled else set()
    return found | {f"mean_{whom}" for whom in _list_mean_groups(program)}


def _list_mean_groups(program: Program) -> set[str]:
    """Groups over which means are made, so that those heard of them are counted."""
    pairs = zip(program.senses.features, program.senses.channels, strict=True)
    return {str(feature.among) for feature, (_, how) in pairs if how == "mean" and feature.among in ("same", "others")}


def list_features(program: Program) -> list[Feature]:
    """The features of its channels, each once: the mean and the sum of a feature need one sum."""
    return list(dict.fromkeys(program.senses.features))


def _compute_speed_scale(program: Program) -> float:
    length, time = program.senses.scales
    return time / length


def count_neighbour_bytes(program: Program) -> int:
    """How many bytes of memory a neighbour takes."""
    return INTEGER_BYTES + 4 * (2 * program.dimensions + program.relayed_count)


def count_agent_bytes(program: Program) -> int:
    """How many bytes of memory an agent takes."""
    known = program.senses.hops * program.senses.width * program.dimensions
    friends = 4 * (1 + DEFAULT_MAX_NEIGHBOURS) if program.senses.topology == "fixed" else 0
    return (
        INTEGER_BYTES
        + 4 * (2 * program.dimensions + known)
        + DEFAULT_MAX_NEIGHBOURS * count_neighbour_bytes(program)
        + friends
    )


def count_stack_bytes(program: Program) -> int:
    """How many bytes of numbers are on the stack at most: those of the features, or of the network."""
    D, heard = program.dimensions, len(list_features(program))
    return 4 * max((heard + 2) * D + (2 if program.orbit else 0), 2 * _count_buffer_floats(program))


def _count_buffer_floats(program: Program) -> int:
    first = program.layers[0].weight.shape[1] if program.input_activation != "none" else 0
    return program.vector_size * max(first, *(len(layer.weight) for layer in program.layers))


def collect_weights(program: Program) -> dict[str, FloatArray]:
    """The matrices and biases by their names; those of who knows of an obstacle begin with near."""
    found: dict[str, FloatArray] = {}
    for begin, layers in (("", program.layers), ("near_", program.near_obstacle_layers)):
        for k, layer in enumerate(layers):
            found[f"{begin}weight_{k}"] = layer.weight
            if layer.bias is not None:
                found[f"{begin}bias_{k}"] = layer.bias
    return found


def format_floats(values: Iterable[float]) -> str:
    """Constants of an array, eight to a line."""
    texts = [float32(float(value)) for value in values]
    return ",\n".join("    " + ", ".join(texts[n : n + 8]) for n in range(0, len(texts), 8))


def _format_constants(program: Program, features: list[Feature], prefix: str) -> str:
    """The matrices, and the weights of features as functions."""
    told = []
    for name, values in collect_weights(program).items():
        shape = " x ".join(map(str, values.shape))
        told.append(
            f"/* {name.replace('_', ' ')}, {shape} */\nstatic const float {prefix}_{name}[{values.size}] = {{\n"
            f"{format_floats(np.ravel(values))}}};"
        )
    told += [formula.to_c(f"{prefix}_{name}") for name, formula in build_formulas(features).values()]
    return "\n\n".join(told)


def _format_sums(program: Program, features: list[Feature], prefix: str) -> str:
    """The lines that add each feature to its sum, and count who is in which group."""
    lines, names = [], build_formulas(features)
    for whom in sorted(_list_mean_groups(program)):
        lines += [GROUP_CONDITIONS[whom], f"    {whom}++;"]
    if any(feature.uses_velocity for feature in features):
        inner = " + ".join(f"r[{d}] * v[{d}]" for d in range(program.dimensions))
        lines.append(f"const float inner = {inner};")
    for n, feature in enumerate(features):
        known = ["square", *(["inner"] if feature.uses_velocity else []), *map(float32, feature.options)]
        weight = f"{prefix}_{names[feature.weight][0]}({', '.join(known)})"
        vector = "r" if feature.vector == "position" else "v"
        line = f"{prefix}_add(sums + {n} * {prefix.upper()}_D, {weight}, {vector});"
        lines += [line] if feature.among == "all" else [GROUP_CONDITIONS[feature.among], f"    {line}"]
    return "\n".join(f"        {line}" for line in lines)


def _format_channels(program: Program, features: list[Feature], NAME: str) -> str:
    """A line for each channel of the first hop, the sum or the mean of its feature."""
    lines = []
    for c, (feature, (_, aggregation)) in enumerate(zip(program.senses.features, program.senses.channels, strict=True)):
        scale = f" * {MEAN_FACTORS[feature.among]}" if aggregation == "mean" and feature.among in MEAN_FACTORS else ""
        lines.append(f"known[{c} * {NAME}_D + n] = sums[{features.index(feature)} * {NAME}_D + n]{scale};")
    head = f"        for (n = 0; n < {NAME}_D; n++) {{"
    return "\n".join([head, *(f"            {line}" for line in lines), "        }"])


def _format_activations(program: Program, prefix: str) -> str:
    """The functions that bend what matrices make, of those that this network has."""
    D, told = program.dimensions, []
    used = {program.input_activation, *(layer.activation for layer in program.layers)}
    if "tanh" in used:
        told.append(
            f"static inline void {prefix}_tanh(int count, float *x)\n{{\n    int n;\n"
            "    for (n = 0; n < count; n++)\n        x[n] = tanhf(x[n]);\n}\n"
        )
    scales: tuple[tuple[Activation, str, str], ...] = (
        ("scale-log", "log1pf(norm) / norm", "x ln(1 + |x|) / |x|, which shortens long vectors"),
        ("scale-tanh", "tanhf(norm)", "x tanh |x|, which shortens short vectors"),
    )
    for kind, scale, what in scales:
        if kind in used:
            told.append(
                f"/* {what} */\nstatic inline void {prefix}_{kind.replace('-', '_')}(int count, float *x)\n{{\n"
                f"    int n, d;\n    for (n = 0; n < count; n++, x += {D}) {{\n"
                "        float norm = 1e-30f;\n"
                f"        for (d = 0; d < {D}; d++)\n            norm += x[d] * x[d];\n"
                f"        norm = sqrtf(norm);\n        norm = {scale};\n"
                f"        for (d = 0; d < {D}; d++)\n            x[d] *= norm;\n    }}\n}}\n"
            )
    return "\n".join(told)


def _format_network(program: Program, prefix: str, NAME: str) -> str:
    """The lines from observations to the acceleration."""
    lines, at, free, used = [], "agent->known", "x", set()
    if program.input_activation != "none":
        first = program.layers[0].weight.shape[1]
        lines += [f"for (n = 0; n < {first * program.vector_size}; n++)", "    x[n] = agent->known[n];"]
        lines.append(f"{prefix}_{program.input_activation.replace('-', '_')}({first}, x);")
        at, free, used = "x", "y", {"x"}
    for k, layer in enumerate(program.layers):
        outputs, inputs = layer.weight.shape
        weight = _select_weights(program, prefix, f"weight_{k}")
        bias = "NULL" if layer.bias is None else _select_weights(program, prefix, f"bias_{k}")
        told = f"{weight}, {bias}, {outputs}, {inputs}, {program.vector_size}, {at}, {free}"
        lines.append(f"{prefix}_layer({told});")
        used.add(free)
        if layer.activation != "none":
            lines.append(f"{prefix}_{layer.activation.replace('-', '_')}({outputs}, {free});")
        at, free = free, "y" if free == "x" else "x"
    lines += _format_clamp(program, at)
    scale = "" if program.acceleration_scale == 1.0 else f" * {float32(program.acceleration_scale)}"
    lines += [f"for (d = 0; d < {NAME}_D; d++)", f"    acceleration[d] = {at}[d]{scale};"]
    declared = [f"float {', '.join(f'{name}[{_count_buffer_floats(program)}]' for name in sorted(used))};"]
    return "\n".join(f"    {line}" for line in [*declared, *_format_near_obstacle(program, NAME), *lines])


def _select_weights(program: Program, prefix: str, name: str) -> str:
    """A matrix or bias of this name, or, for who knows of an obstacle, the other one."""
    return f"wary ? {prefix}_near_{name} : {prefix}_{name}" if program.near_obstacle_layers else f"{prefix}_{name}"


def _format_near_obstacle(program: Program, NAME: str) -> list[str]:
    """The lines that find whether the agent knows of an obstacle, if that makes a difference."""
    if not program.near_obstacle_layers:
        return []
    channel = program.obstacle_channel
    return [
        f"int wary = 0; /* is channel {channel}, which tells of obstacles, other than zero in any hop */",
        f"for (n = 0; n < {NAME}_K; n++)",
        f"    for (d = 0; d < {NAME}_D; d++)",
        f"        wary |= agent->known[(n * {NAME}_C + {channel}) * {NAME}_D + d] != 0.0f;",
    ]


def _format_clamp(program: Program, at: str) -> list[str]:
    """The lines that clamp the acceleration, if it is."""
    if program.clamp is None:
        return []
    D, clamp = program.dimensions, float32(program.clamp)
    if program.clamp_by == "entry":
        # Not by fminf and fmaxf, which make a number of what is none.
        kept = f"{at}[d] > {clamp} ? {clamp} : {at}[d] < -{clamp} ? -{clamp} : {at}[d]"
        return [f"for (d = 0; d < {D}; d++)", f"    {at}[d] = {kept};"]
    square = " + ".join(f"{at}[{d}] * {at}[{d}]" for d in range(D))
    return [
        "{",
        f"    const float norm = sqrtf({square});",
        f"    for (d = 0; d < {D} && norm > {clamp}; d++)",
        f"        {at}[d] *= {clamp} / norm;",
        "}",
    ]
