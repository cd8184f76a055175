"""README of an export, from templates/readme.md: message format, bandwidth, memory and operations per step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from equiflock.deployment.export.c_header import (
    DEFAULT_MAX_NEIGHBOURS,
    count_agent_bytes,
    count_neighbour_bytes,
    count_stack_bytes,
)
from equiflock.deployment.export.program import Program
from equiflock.deployment.export.source_text import (
    fill_template,
    list_template_parts,
    make_common_words,
    make_gain_words,
    make_identifier,
    make_limit_numbers,
    make_message_words,
)
from equiflock.deployment.wire_format import OBSTACLE_GROUP

RATES = (10, 50, 100)
"""Steps per second in the table of bandwidths."""
EXAMPLE_NEIGHBOURS = 10
"""Neighbours for which the README counts operations."""
TRAINING_TIME_STEP = 0.01
"""Time step of the paper's training, in seconds."""


def format_readme(program: Program, stem: str, suffix: str, choices: str = "") -> str:
    """Return the README, in Markdown, of an exported file with this stem and suffix: .h, .py or .onnx.

    `choices` is the table of message formats that were considered; empty if the user did not limit their size.
    A program without layers, whose costs are unknown, has no section on memory and operations.
    """
    senses, D = program.senses, program.dimensions
    size = program.packets * program.packet_bytes
    words = make_common_words(program, stem) | make_message_words(program) | _make_layout_words(program, stem, suffix)
    words |= {
        "suffix": suffix,
        "period": ", period=.." if program.needs_period else "",
        "channels": "\n".join(_format_channels(program)),
        "choices": choices,
        "rates": "\n".join(f"| {rate} | {size * rate:,} | {8 * size * rate / 1000:,.1f} |" for rate in RATES),
        "scale": f"{program.acceleration_scale:g}",
        "training_steps": "",
        "scaled_training_step": "",
        "knows_relayed": ", directly or relayed by neighbours," if senses.hops > 1 else "",
    }
    optional = {
        "relaying": senses.hops > 1,
        "rest": D == 2 and program.orbit is None,
        "layers": program.layers,
        "chosen": choices,
        "sends_hops": program.relayed_hops > 0,
        "omits_hops": program.relayed_hops < senses.hops - 1,
        "frame_free": program.is_equivariant,
        "frame_needed": not program.is_equivariant,
    }
    if program.gain_schedule is None:
        dt = TRAINING_TIME_STEP
        words["training_steps"] = f" with {1 / dt:g} steps each"
        words["scaled_training_step"] = (
            f" A training step, {dt:g} s of the controller's time, is {dt * senses.scales[1]:g} s of the robots' time."
        )
    words |= {name: f"{number:g}" for name, number in make_gain_words(program).items()}
    words |= _make_limit_words(program)
    words["upper"] = words["name"].upper()
    words["delay"] = f"`{words['name']}_set_delay`" if suffix == ".h" else "the argument `delay`"
    if program.orbit is not None:
        words |= {name: f"{value:g}" for name, value in vars(program.orbit).items()}
    if program.layers:
        words |= {
            "weights": program.weight_count,
            "weight_bytes": f"{4 * program.weight_count:,}",
            "ram": f"{count_agent_bytes(program):,}",
            "slot": count_neighbour_bytes(program),
            "neighbours": DEFAULT_MAX_NEIGHBOURS,
            "stack": count_stack_bytes(program),
            "example_neighbours": EXAMPLE_NEIGHBOURS,
            "operations": f"{count_operations(program, EXAMPLE_NEIGHBOURS):,}",
        }
    parts = {suffix[1:], *(name for name, is_needed in optional.items() if is_needed)}
    return fill_template("readme.md", words, parts | list_template_parts(program), ("<!--", "-->"))


def _make_limit_words(program: Program) -> dict[str, str]:
    """Return the words of the section on limits: their values, or "none"; empty if there are no limits."""
    if program.safety is None:
        return {}
    words = {name: f"{number:g}" if number else "none" for name, number in make_limit_numbers(program).items()}
    fence = program.safety.fence
    corners = [f"({', '.join(f'{number:g}' for number in corner)})" for corner in fence or ()]
    default = {} if program.safety.braking_time else {"braking_time": "4 periods"}
    return words | default | {"fence": " to ".join(corners) or "none"}


def _make_layout_words(program: Program, stem: str, suffix: str) -> dict[str, Any]:
    """Return the words about the bytes of messages and the frames of agents."""
    D, compact = program.dimensions, program.compact
    is_mirrored = program.orbit is None or program.orbit.dodge_angle == math.pi / 2
    words: dict[str, Any] = {
        "obstacle_group": OBSTACLE_GROUP,
        "last_relayed": program.senses.hops - 1,
        "state": 2 * D,
        "call_rotated": f"`{make_identifier(stem)}_receive_rotated`" if suffix == ".h" else "`receive`",
        "handedness": "Mirrored frames are possible, too."
        if is_mirrored
        else "Mirrored frames are not possible: the orbit technique tells left from right.",
    }
    if compact is None:
        size = program.packet_bytes
        ends = {"position_end": 11 + 4 * D, "velocity_end": 11 + 8 * D, "relayed_end": size - 1}
        return words | ends | {"velocity_start": 12 + 4 * D, "relayed_start": 12 + 8 * D}
    others = compact.vectors_per_packet
    return words | {
        "packet_or_packets": "packet" if compact.packets == 1 else "packets",
        "last_packet": compact.packets - 1,
        "position_end": 9 + 2 * D,
        "velocity_start": 10 + 2 * D,
        "packet_end": compact.packet_bytes - 1,
        "other_vectors": others,
        "last_vector": others - 1,
        "last_relayed_vector": compact.relayed_hops * program.senses.width,
        "first_omitted": compact.relayed_hops + 1,
        "quantum": f"{compact.quanta[0]:.9g}",
        "speed_quantum": f"{compact.quanta[1]:.9g}",
        "message_size": compact.packets * compact.packet_bytes,
    }


def _format_channels(program: Program) -> Iterator[str]:
    """Yield a row of the table for each channel of hop 1."""
    pairs = zip(program.senses.features, program.senses.channels, strict=True)
    for c, (feature, (_, aggregation)) in enumerate(pairs):
        vector = "r_ij = r_i - r_j" if feature.vector == "position" else "v_ij = v_i - v_j"
        yield f"| {c} | {feature.name} | {aggregation} | {vector} | {feature.among} |"


def count_operations(program: Program, neighbours: int) -> int:
    """Estimate the multiplications and additions of an agent's step; a root or another function counts as one."""
    D, C, K = program.dimensions, program.senses.width, program.senses.hops
    # Per neighbour: r_ij, v_ij, |r_ij|^2, about five operations per weight, the features, the relayed observations.
    messages = neighbours * (4 * D + len(program.features) * (5 + 2 * D) + program.relayed_count)
    matrices = sum(2 * layer.weight.size for layer in program.layers) * program.vector_size
    activations = sum(
        len(layer.weight) * (3 * program.vector_size + 2) for layer in program.layers if layer.activation != "none"
    )
    input_activation = K * C * (3 * D + 2) if program.input_activation != "none" else 0
    near_obstacle = K * D if program.near_obstacle_layers else 0
    return int(messages + K * C * D + matrices + activations + input_activation + near_obstacle)
