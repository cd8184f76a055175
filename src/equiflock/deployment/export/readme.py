"""The text beside what was exported: the message byte by byte, bandwidth, memory, and operations per step."""

from __future__ import annotations

from equiflock.deployment.export.c_header import (
    DEFAULT_MAX_NEIGHBOURS,
    count_agent_bytes,
    count_neighbour_bytes,
    count_stack_bytes,
    list_features,
)
from equiflock.deployment.export.program import Program
from equiflock.deployment.export.template import make_identifier
from equiflock.deployment.wire_format import OBSTACLE_GROUP, VERSION, count_message_bytes
from equiflock.version import __version__

RATES = (10, 50, 100)
"""Steps per second for which the bandwidth is told."""
EXAMPLE_NEIGHBOURS = 10
"""Neighbours for which operations are told."""


def format_readme(program: Program, stem: str, suffix: str) -> str:
    """The text, in Markdown, for what was written as a file of this name and ending."""
    senses, D = program.senses, program.dimensions
    parts = [
        f"# {stem}{suffix}",
        f"The controller `{program.name}` of one agent, for D = {D}, K = {senses.hops} hops and C = {senses.width} "
        f"channels, written by equiflock {__version__}.",
        _format_usage(stem, suffix),
        "## Channels",
        "\n".join(_format_channels(program)),
        "## The message, byte by byte",
        "All numbers are little-endian. An agent sends one message per step.",
        "\n".join(_format_message_table(program)),
        "## Bandwidth",
        "\n".join(_format_bandwidth(program)),
        # Of layers that the package does not know there is nothing to count.
        *(["## Memory and operations", "\n".join(_format_costs(program))] if program.layers else []),
        "## Units",
        _format_units(program),
        "## Obstacles",
        _format_obstacles(program),
    ]
    return "\n\n".join(parts) + "\n"


def _format_usage(stem: str, suffix: str) -> str:
    if suffix == ".onnx":
        return (
            "Input `observations` (B, N, K, C, D), output `accelerations` (B, N, D), both float32; B and N are free. "
            "The graph is the controller alone: observations are made of messages by whoever runs it, as below."
        )
    if suffix == ".h":
        word = make_identifier(stem)
        return (
            f'`#include "{stem}.h"`, then `{word}_init` once and, at every step, `{word}_begin`, `{word}_hear` for '
            f"each message and `{word}_end`. Compile with `-std=c99 -O2` and link with `-lm`."
        )
    return (
        f"`{stem}.py` needs NumPy and `{stem}.npz` beside it: `Agent(number)`, then at every step `begin`, `hear` for "
        "each message and `end`."
    )


def _format_channels(program: Program) -> list[str]:
    """A row for each channel of the first hop."""
    lines = ["| channel | feature | aggregation | a number times | of whom |", "|---|---|---|---|---|"]
    for c, (feature, (_, how)) in enumerate(zip(program.senses.features, program.senses.channels, strict=True)):
        vector = "r_ij = r_i - r_j" if feature.vector == "position" else "v_ij = v_i - v_j"
        lines.append(f"| {c} | {feature.name} | {how} | {vector} | {feature.among} |")
    older = "Hop k > 1 is the mean over all whom the agent hears of their own hop k - 1 a step before."
    topology = "Heard are those who were heard at the first step." if program.senses.topology == "fixed" else ""
    told = " ".join(filter(None, (older if program.senses.hops > 1 else "", topology)))
    return [*lines, *(["", told] if told else [])]


def list_message_fields(program: Program) -> list[tuple[int, int, str, str]]:
    """The parts of a message: first byte, last byte, type, and what it is."""
    D, known = program.dimensions, program.relayed_count
    rows: list[tuple[int, int, str, str]] = [
        (0, 1, "2 letters", "`EF`"),
        (2, 2, "uint8", f"version of the format, {VERSION}"),
        (3, 3, "uint8", f"group of the sender, 0 unless it has one; {OBSTACLE_GROUP}: it is an obstacle agent"),
        (4, 7, "uint32", "number of the sender"),
        (8, 11, "uint32", "step, counted by the sender"),
        (12, 11 + 4 * D, f"{D} x float32", "position, in the robots' units, in a frame that all share"),
        (12 + 4 * D, 11 + 8 * D, f"{D} x float32", "velocity, in the robots' units, in that frame"),
    ]
    if known:
        last = program.senses.hops - 1
        hops = f"hops 1 .. {last} of its observations of the step before: hop by hop, channel by channel"
        rows.append((12 + 8 * D, 11 + 8 * D + 4 * known, f"{known} x float32", hops))
    return rows


def _format_message_table(program: Program) -> list[str]:
    spans = ((f"{a}-{b}" if a < b else f"{a}", kind, what) for a, b, kind, what in list_message_fields(program))
    rows = [f"| {' | '.join(row)} |" for row in spans]
    return ["| bytes | type | what |", "|---|---|---|", *rows]


def _format_bandwidth(program: Program) -> list[str]:
    """Bytes of a message, and per second."""
    D, senses = program.dimensions, program.senses
    size = count_message_bytes(senses, D)
    floats = f"2 D + (K - 1) C D = {2 * D} + {program.relayed_count}"
    rows = [f"| {rate} | {size * rate:,} | {8 * size * rate / 1000:,.1f} |" for rate in RATES]
    return [
        f"A message has {size} bytes: a header of 12, and {floats} numbers of 4 bytes.",
        "",
        "| steps per second | bytes per second sent by an agent | kbit/s |",
        "|---|---|---|",
        *rows,
    ]


def count_operations(program: Program, neighbours: int) -> int:
    """About how many multiplications and additions a step takes, roots and other functions counted as one each."""
    D, C, K = program.dimensions, program.senses.width, program.senses.hops
    # For a neighbour: r_ij, v_ij, |r_ij|^2, some five per weight, the features, and what was passed on.
    heard = neighbours * (4 * D + len(list_features(program)) * (5 + 2 * D) + program.relayed_count)
    matrices = sum(2 * layer.weight.size for layer in program.layers) * program.vector_size
    bends = sum(
        len(layer.weight) * (3 * program.vector_size + 2) for layer in program.layers if layer.activation != "none"
    )
    input_activation = K * C * (3 * D + 2) if program.input_activation != "none" else 0
    wary = K * D if program.near_obstacle_layers else 0
    return int(heard + K * C * D + matrices + bends + input_activation + wary)


TRAINING_TIME_STEP = 0.01
"""Seconds from one step to the next in the paper's training."""
_NEAR_OBSTACLE_NOTE = " Half of them are those of agents that know of an obstacle: a step takes one half or the other."


def _format_costs(program: Program) -> list[str]:
    size, weight_count = count_agent_bytes(program), program.weight_count
    return [
        f"- Weights: {weight_count} numbers, {4 * weight_count:,} bytes of float32; layers with nothing between them are one."
        f"{_NEAR_OBSTACLE_NOTE if program.near_obstacle_layers else ''}",
        f"- Memory of the C agent: {size:,} bytes with room for {DEFAULT_MAX_NEIGHBOURS} neighbours, {count_neighbour_bytes(program)} "
        f"bytes each, and {count_stack_bytes(program)} bytes of numbers on the stack. There is no heap.",
        f"- A step with {EXAMPLE_NEIGHBOURS} neighbours: about {count_operations(program, EXAMPLE_NEIGHBOURS):,} additions and multiplications.",
    ]


def _format_units(program: Program) -> str:
    length, time = program.senses.scales
    if not program.senses.is_scaled:
        return (
            "Those of the training: lengths in which R is the communication radius that the controller was made for, 1 "
            f"for those that come with the package, and seconds, {1 / TRAINING_TIME_STEP:g} steps in each. "
            "`equiflock.load(name, comm_radius=.., time_scale=..)` scales it to the units of a robot."
        )
    return (
        f"Positions, velocities and accelerations are in the robots' units. With L = {length:g} and tau = {time:g}, "
        f"r / L and v tau / L are sensed, accelerations are {program.acceleration_scale:g} times those of the "
        "controller, and the observations in a message are in the controller's units. A step of training, "
        f"{TRAINING_TIME_STEP:g} s of the controller's time, is {TRAINING_TIME_STEP * time:g} s of the robots'."
    )


def _format_obstacles(program: Program) -> str:
    return " ".join(filter(None, (_format_orbit(program), _format_near_obstacle(program))))


def _format_orbit(program: Program) -> str:
    if program.dimensions != 2:
        return "Obstacle agents exist in the plane only; their messages are dropped."
    rule = f"Of obstacle agents (group {OBSTACLE_GROUP}) only the nearest is heard"
    if program.orbit is None:
        return f"{rule}, as an agent that stands still."
    o = program.orbit
    return (
        f"{rule}, and the orbit technique says which velocity it is taken to have: gravity_break {o.gravity_break:g}, "
        f"dodge_angle {o.dodge_angle:g}, near {o.near:g}, slow {o.slow:g}."
    )


def _format_near_obstacle(program: Program) -> str:
    """Who knows of an obstacle, and what difference that makes."""
    if not program.near_obstacle_layers:
        return ""
    farther = ", by itself or from others, as hops pass it on," if program.senses.hops > 1 else ""
    return (
        f"Channel {program.obstacle_channel} tells of obstacles: an agent in which it is other than zero in any hop "
        f"knows of one{farther} and decides by weights of its own."
    )
