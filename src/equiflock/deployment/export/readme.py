"""README of an export: message format, bandwidth, memory and operations per step."""

from __future__ import annotations

from equiflock.deployment.export.c_header import (
    DEFAULT_MAX_NEIGHBOURS,
    count_agent_bytes,
    count_neighbour_bytes,
    count_stack_bytes,
    list_features,
)
from equiflock.deployment.export.program import Program
from equiflock.deployment.export.source_text import make_identifier
from equiflock.deployment.wire_format import OBSTACLE_GROUP, VERSION, count_message_bytes
from equiflock.version import __version__

RATES = (10, 50, 100)
"""Steps per second in the table of bandwidths."""
EXAMPLE_NEIGHBOURS = 10
"""Neighbours for which the README counts operations."""


def format_readme(program: Program, stem: str, suffix: str) -> str:
    """Return the README, in Markdown, of an exported file with this stem and suffix: .h, .py or .onnx.

    A program without layers has no section on memory and operations.
    """
    senses, D = program.senses, program.dimensions
    parts = [
        f"# {stem}{suffix}",
        f"The controller `{program.name}` of one agent, with D = {D} dimensions, K = {senses.hops} hops and "
        f"C = {senses.width} channels. Written by equiflock {__version__}.",
        _format_usage(stem, suffix),
        "## Channels",
        "\n".join(_format_channels(program)),
        "## Message format",
        "All numbers are little-endian. An agent sends one message per step.",
        "\n".join(_format_message_table(program)),
        "## Bandwidth",
        "\n".join(_format_bandwidth(program)),
        # The costs of custom layers are unknown.
        *(["## Memory and operations", "\n".join(_format_costs(program))] if program.layers else []),
        "## Units",
        _format_units(program),
        "## Obstacles",
        _format_obstacles(program),
    ]
    return "\n\n".join(parts) + "\n"


def _format_usage(stem: str, suffix: str) -> str:
    """Return how to use the exported file, which depends on its suffix."""
    if suffix == ".onnx":
        return (
            "Input `observations` (B, N, K, C, D), output `accelerations` (B, N, D), both float32, B and N dynamic. "
            "The graph has the controller only: the caller computes observations from messages, as described below."
        )
    if suffix == ".h":
        name = make_identifier(stem)
        return (
            f'Include `"{stem}.h"`, call `{name}_init` once and, at every step, `{name}_begin`, `{name}_receive` for '
            f"each message and `{name}_end`. Compile with `-std=c99 -O2` and link with `-lm`."
        )
    return (
        f"`{stem}.py` needs NumPy and `{stem}.npz` in the same directory. Make an `Agent(number)` and call, at every "
        "step, `begin`, `receive` for each message and `end`."
    )


def _format_channels(program: Program) -> list[str]:
    """Return the lines of a table with a row per channel of hop 1, and a sentence on the other hops."""
    lines = ["| channel | feature | aggregation | weight times | among |", "|---|---|---|---|---|"]
    pairs = zip(program.senses.features, program.senses.channels, strict=True)
    for c, (feature, (_, aggregation)) in enumerate(pairs):
        vector = "r_ij = r_i - r_j" if feature.vector == "position" else "v_ij = v_i - v_j"
        lines.append(f"| {c} | {feature.name} | {aggregation} | {vector} | {feature.among} |")
    older = "Hop k > 1 is the mean over all neighbours of their hop k - 1 at the previous step."
    topology = "Only the neighbours of the first step count." if program.senses.topology == "fixed" else ""
    notes = " ".join(filter(None, (older if program.senses.hops > 1 else "", topology)))
    return [*lines, *(["", notes] if notes else [])]


def list_message_fields(program: Program) -> list[tuple[int, int, str, str]]:
    """Return the fields of a message: first byte, last byte (inclusive), type, meaning."""
    D, relayed = program.dimensions, program.relayed_count
    rows: list[tuple[int, int, str, str]] = [
        (0, 1, "2 letters", "`EF`"),
        (2, 2, "uint8", f"version of the message format, {VERSION}"),
        (3, 3, "uint8", f"group of the sender, 0 if there are no groups; {OBSTACLE_GROUP} for obstacle agents"),
        (4, 7, "uint32", "number of the sender"),
        (8, 11, "uint32", "step at which it was sent, counted by the sender"),
        (12, 11 + 4 * D, f"{D} x float32", "position, in the robots' units, in a frame that all robots share"),
        (12 + 4 * D, 11 + 8 * D, f"{D} x float32", "velocity, in the robots' units, in the same frame"),
    ]
    if relayed:
        last = program.senses.hops - 1
        hops = f"hops 1 .. {last} of the sender's observations at the previous step, (K - 1, C, D)"
        rows.append((12 + 8 * D, 11 + 8 * D + 4 * relayed, f"{relayed} x float32", hops))
    return rows


def _format_message_table(program: Program) -> list[str]:
    """Return the lines of a table with a row per field of a message."""
    fields = ((f"{a}-{b}" if a < b else f"{a}", kind, meaning) for a, b, kind, meaning in list_message_fields(program))
    rows = [f"| {' | '.join(row)} |" for row in fields]
    return ["| bytes | type | meaning |", "|---|---|---|", *rows]


def _format_bandwidth(program: Program) -> list[str]:
    """Return the size of a message, and a table of bandwidths at RATES steps per second."""
    D, senses = program.dimensions, program.senses
    size = count_message_bytes(senses, D)
    floats = f"2 D + (K - 1) C D = {2 * D} + {program.relayed_count}"
    rows = [f"| {rate} | {size * rate:,} | {8 * size * rate / 1000:,.1f} |" for rate in RATES]
    return [
        f"A message has {size} bytes: a header of 12 bytes and {floats} numbers of 4 bytes.",
        "",
        "| steps per second | bytes per second sent by an agent | kbit/s |",
        "|---|---|---|",
        *rows,
    ]


def count_operations(program: Program, neighbours: int) -> int:
    """Estimate the multiplications and additions of an agent's step; a root or another function counts as one."""
    D, C, K = program.dimensions, program.senses.width, program.senses.hops
    # Per neighbour: r_ij, v_ij, |r_ij|^2, about five operations per weight, the features, the relayed observations.
    messages = neighbours * (4 * D + len(list_features(program)) * (5 + 2 * D) + program.relayed_count)
    matrices = sum(2 * layer.weight.size for layer in program.layers) * program.vector_size
    activations = sum(
        len(layer.weight) * (3 * program.vector_size + 2) for layer in program.layers if layer.activation != "none"
    )
    input_activation = K * C * (3 * D + 2) if program.input_activation != "none" else 0
    near_obstacle = K * D if program.near_obstacle_layers else 0
    return int(messages + K * C * D + matrices + activations + input_activation + near_obstacle)


TRAINING_TIME_STEP = 0.01
"""Time step of the paper's training, in seconds."""
_NEAR_OBSTACLE_NOTE = " Half of them are for agents that know of an obstacle: a step uses one half or the other."


def _format_costs(program: Program) -> list[str]:
    """Return a list of weights, memory of the C agent, and operations per step."""
    size, weight_count = count_agent_bytes(program), program.weight_count
    operations = count_operations(program, EXAMPLE_NEIGHBOURS)
    return [
        f"- Weights: {weight_count} numbers, {4 * weight_count:,} bytes of float32; layers without an activation "
        f"between them are multiplied.{_NEAR_OBSTACLE_NOTE if program.near_obstacle_layers else ''}",
        f"- Memory of the C agent: {size:,} bytes for up to {DEFAULT_MAX_NEIGHBOURS} neighbours, "
        f"{count_neighbour_bytes(program)} bytes each, and {count_stack_bytes(program)} bytes of numbers on the stack. "
        "It uses no heap.",
        f"- A step with {EXAMPLE_NEIGHBOURS} neighbours: about {operations:,} additions and multiplications.",
    ]


def _format_units(program: Program) -> str:
    """Return the units of the export: those of the training, or the robots' units and the scale factors."""
    length, time = program.senses.scales
    if not program.senses.is_scaled:
        return (
            "Units of the training: lengths in which the communication radius R is that of the controller, 1 for "
            f"bundled controllers, and seconds with {1 / TRAINING_TIME_STEP:g} steps each. "
            "`equiflock.load(name, comm_radius=.., time_scale=..)` scales a controller to the units of a robot."
        )
    return (
        f"Positions, velocities and accelerations are in the robots' units. With L = {length:g} and tau = {time:g}, "
        f"the controller observes r / L and v tau / L, and its accelerations are multiplied by "
        f"{program.acceleration_scale:g}. The observations in a message are in the controller's units. A training "
        f"step, {TRAINING_TIME_STEP:g} s of the controller's time, "
        f"is {TRAINING_TIME_STEP * time:g} s of the robots' time."
    )


def _format_obstacles(program: Program) -> str:
    return " ".join(filter(None, (_format_orbit(program), _format_near_obstacle(program))))


def _format_orbit(program: Program) -> str:
    """Return how an agent uses messages of obstacle agents, with the parameters of its orbit technique."""
    if program.dimensions != 2:
        return "Obstacle agents exist in 2D only; their messages are dropped."
    rule = f"Only the nearest obstacle agent (group {OBSTACLE_GROUP}) counts"
    if program.orbit is None:
        return f"{rule}, as an agent at rest."
    o = program.orbit
    return (
        f"{rule}, with the virtual velocity of the orbit technique: gravity_break {o.gravity_break:g}, "
        f"dodge_angle {o.dodge_angle:g}, near {o.near:g}, slow {o.slow:g}."
    )


def _format_near_obstacle(program: Program) -> str:
    """Return when an agent uses the weights for agents near an obstacle, or an empty string."""
    if not program.near_obstacle_layers:
        return ""
    relayed = ", directly or relayed by neighbours," if program.senses.hops > 1 else ""
    return (
        f"Channel {program.obstacle_channel} is the obstacle channel: an agent in which it is not zero in some hop "
        f"knows of an obstacle{relayed} and uses a second set of weights."
    )
