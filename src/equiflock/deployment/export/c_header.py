"""C export: one agent's controller as a C99 header, from templates/agent.h."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from equiflock.controllers.safety_limits import count_microseconds
from equiflock.deployment.export.program import Program
from equiflock.deployment.export.source_text import (
    build_formulas,
    fill_template,
    format_c_float,
    list_mean_groups,
    list_template_parts,
    make_common_words,
    make_gain_words,
    make_identifier,
    make_limit_numbers,
    make_message_words,
    make_orbit_words,
)

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
LIMIT_BYTES = 28
"""Bytes of an agent's fields for its limits."""


def format_c_header(program: Program, stem: str) -> str:
    """Return the text of the C99 header. All names in it start with the identifier made from the file stem."""
    prefix = make_identifier(stem)
    length, time = program.senses.scales
    words = make_common_words(program, stem) | make_message_words(program) | _make_decoding_words(program, prefix)
    words |= {
        "NAME": prefix.upper(),
        "features": len(program.features),
        "neighbours": DEFAULT_MAX_NEIGHBOURS,
        "ram": count_agent_bytes(program),
        "slot": count_neighbour_bytes(program),
        "stack": count_stack_bytes(program),
        "weights": 4 * program.weight_count,
        "per_length": format_c_float(1.0 / length),
        "per_speed": format_c_float(time / length),
        "to_speed": f" * {format_c_float(time / length)}" if program.senses.is_scaled else "",
        "constants": _format_constants(program, prefix),
        "sums": _format_sums(program, prefix),
        "channels": _format_channels(program, prefix.upper()),
    }
    numbers = make_orbit_words(program) | make_gain_words(program) | make_limit_numbers(program)
    words |= {name: format_c_float(number) for name, number in numbers.items()}
    words |= _make_network_words(program, prefix) | _make_limit_words(program)
    return fill_template("agent.h", words, list_template_parts(program), ("/*", "*/"))


def _make_decoding_words(program: Program, prefix: str) -> dict[str, Any]:
    """Return the words of the functions that write and receive messages."""
    NAME, compact = prefix.upper(), program.compact
    is_decoded = compact is not None or program.own_frames
    words: dict[str, Any] = {
        "message_bytes": f"{NAME}_MESSAGE" if program.packets == 1 else f"{NAME}_PACKETS * {NAME}_MESSAGE",
        "initial_state": "NAN" if is_decoded else "0.0f",
        "position": "numbers" if is_decoded else "message",
        "newest_numbers": "numbers" if program.packets == 1 else "arriving",
        "own_number": "agent->number" if compact is None else "(uint16_t)agent->number",
        "step_offset": 8 if compact is None else 6,
        "step_bits": 32 if compact is None else 16,
        "largest_age": "7fffffff" if compact is None else "7fff",
    }
    if compact is not None:
        for name, quantum in zip(("quantum", "speed_quantum"), compact.quanta, strict=True):
            words |= {name: format_c_float(quantum), f"per_{name}": format_c_float(1.0 / quantum)}
    return words


def count_neighbour_bytes(program: Program) -> int:
    """Return the bytes of memory per neighbour."""
    numbers = 4 * (2 * program.dimensions + program.relayed_count)
    # An agent keeps the last message of a neighbour, and the packets of the next one that have arrived.
    return INTEGER_BYTES + numbers if program.packets == 1 else INTEGER_BYTES + 8 + 2 * numbers


def count_agent_bytes(program: Program) -> int:
    """Return the bytes of memory per agent, with room for DEFAULT_MAX_NEIGHBOURS neighbours."""
    observations = program.senses.hops * program.senses.width * program.dimensions
    initial_neighbours = 4 * (1 + DEFAULT_MAX_NEIGHBOURS) if program.senses.topology == "fixed" else 0
    gain = 0 if program.gain_schedule is None else 4
    return (
        INTEGER_BYTES
        + gain
        + (0 if program.safety is None else LIMIT_BYTES)
        + 4 * (2 * program.dimensions + observations)
        + DEFAULT_MAX_NEIGHBOURS * count_neighbour_bytes(program)
        + initial_neighbours
    )


def count_stack_bytes(program: Program) -> int:
    """Return the bytes of numbers on the stack: of feature sums, network buffers, limits or a decoded message."""
    D, compact = program.dimensions, program.compact
    sums = (len(program.features) + 2) * D + (2 if program.orbit else 0)
    limits = 0 if program.safety is None else 4 * D
    decoded = 0 if compact is None else (1 + compact.vectors_per_packet) * D
    if program.own_frames:
        decoded = (decoded or 2 * D + program.relayed_count) + 2 * D + D * D
    return 4 * max(sums, 2 * _count_buffer_floats(program), limits, decoded)


def _count_buffer_floats(program: Program) -> int:
    """Return the size, in floats, of each of the network's two buffers: that of the widest layer."""
    first = program.layers[0].weight.shape[1] if program.input_activation != "none" else 0
    return program.vector_size * max(first, *(len(layer.weight) for layer in program.layers))


def format_floats(values: Iterable[float]) -> str:
    """Return the values of a C array, without braces, eight per line."""
    texts = [format_c_float(float(value)) for value in values]
    return ",\n".join("    " + ", ".join(texts[n : n + 8]) for n in range(0, len(texts), 8))


def _format_constants(program: Program, prefix: str) -> str:
    """Return C definitions of the weights as arrays, and of the weight functions of features."""
    parts = []
    for name, values in program.weights.items():
        shape = " x ".join(map(str, values.shape))
        parts.append(
            f"/* {name.replace('_', ' ')}, {shape} */\nstatic const float {prefix}_{name}[{values.size}] = {{\n"
            f"{format_floats(np.ravel(values))}}};"
        )
    parts += [formula.to_c(f"{prefix}_{name}") for name, formula in build_formulas(program.features).values()]
    return "\n\n".join(parts)


def _format_sums(program: Program, prefix: str) -> str:
    """Return the C lines that add a neighbour's features to their sums, and count it if its group has a mean."""
    lines, features = [], program.features
    names = build_formulas(features)
    for group in sorted(list_mean_groups(program)):
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


def _format_channels(program: Program, NAME: str) -> str:
    """Return a loop over components that sets each channel of hop 1 to the sum or mean of its feature."""
    lines, features = [f"        for (n = 0; n < {NAME}_D; n++) {{"], program.features
    for c, (feature, (_, aggregation)) in enumerate(zip(program.senses.features, program.senses.channels, strict=True)):
        scale = f" * {MEAN_FACTORS[feature.among]}" if aggregation == "mean" and feature.among in MEAN_FACTORS else ""
        total = f"sums[{features.index(feature)} * {NAME}_D + n]{scale}"
        lines.append(f"            observations[{c} * {NAME}_D + n] = {total};")
    return "\n".join([*lines, "        }"])


def _make_network_words(program: Program, prefix: str) -> dict[str, Any]:
    """Return the words of the code from observations to the acceleration. Layers alternate between buffers x and y."""
    lines, source, target, buffers = [], "agent->observations", "x", set()
    if program.input_activation != "none":
        first = program.layers[0].weight.shape[1]
        lines += [f"for (n = 0; n < {first * program.vector_size}; n++)", "    x[n] = agent->observations[n];"]
        lines.append(f"{prefix}_{program.input_activation}({first}, x);")
        source, target, buffers = "x", "y", {"x"}
    for k, layer in enumerate(program.layers):
        outputs, inputs = layer.weight.shape
        weight = _select_weights(program, prefix, f"weight_{k}")
        bias = "NULL" if layer.bias is None else _select_weights(program, prefix, f"bias_{k}")
        arguments = weight, bias, outputs, inputs, program.vector_size, source, target
        lines.append(f"{prefix}_layer({', '.join(map(str, arguments))});")
        buffers.add(target)
        if layer.activation != "none":
            lines.append(f"{prefix}_{layer.activation}({outputs}, {target});")
        source, target = target, "y" if target == "x" else "x"
    return {
        "network": "\n".join(f"    {line}" for line in lines),
        "buffers": ", ".join(f"{name}[{_count_buffer_floats(program)}]" for name in sorted(buffers)),
        "output": source,
        "square": " + ".join(f"{source}[{d}] * {source}[{d}]" for d in range(program.dimensions)),
        "clamp": "" if program.clamp is None else format_c_float(program.clamp),
        "scale": "" if program.acceleration_scale == 1.0 else f" * {format_c_float(program.acceleration_scale)}",
        "gain": "" if program.gain_schedule is None else " * agent->gain",
    }


def _make_limit_words(program: Program) -> dict[str, str]:
    """Return the words of the limits besides their numbers; empty if there are no limits."""
    if program.safety is None:
        return {}
    length, time = program.senses.scales
    silence = program.safety.max_silence
    words = {
        "to_robot_length": "",
        "to_robot_speed": "",
        "max_silence_us": "0" if silence is None else str(count_microseconds(silence)),
    }
    if program.senses.is_scaled:
        words |= {
            "to_robot_length": f" * {format_c_float(length)}",
            "to_robot_speed": f" * {format_c_float(length / time)}",
        }
    for name, corner in zip(("fence_lower", "fence_upper"), program.safety.fence or (), strict=False):
        words[name] = f"{{{', '.join(map(format_c_float, corner))}}}"
    return words


def _select_weights(program: Program, prefix: str, name: str) -> str:
    """Return a C expression for a matrix or bias, which depends on `near_obstacle` if the program has two sets."""
    both = f"near_obstacle ? {prefix}_near_{name} : {prefix}_{name}"
    return both if program.near_obstacle_layers else f"{prefix}_{name}"
