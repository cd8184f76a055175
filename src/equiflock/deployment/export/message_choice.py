"""Choice of a message format that fits into the packets of a radio, and the table of the formats considered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from equiflock._runtime.checks import InputError, check_count
from equiflock.deployment.export.message_accuracy import measure_accuracy_losses
from equiflock.deployment.export.program import Program
from equiflock.deployment.wire_format import MAX_PACKETS, CompactFormat

DEFAULT_MAX_PACKETS = 4
"""Most packets of a message, unless the caller allows more or fewer."""


@dataclass(frozen=True)
class MessageOptions:
    """What a user wants of messages; the default is version 1 of the format."""

    message_bytes: int | None = None
    """Most bytes of a packet; None for version 1 of the format, of any size."""
    packets: int = DEFAULT_MAX_PACKETS
    """Most packets of a message."""
    relayed_hops: int | None = None
    """Number of hops that agents relay; None for all, if they fit."""
    own_frames: bool = False
    """Whether agents measure the frames of their neighbours."""

    def __post_init__(self) -> None:
        if check_count("packets", self.packets) > MAX_PACKETS:
            raise InputError(f"packets must be at most {MAX_PACKETS}, got {self.packets}")
        if self.message_bytes is not None:
            check_count("message_bytes", self.message_bytes)
        elif self.relayed_hops is not None:
            raise InputError("relayed_hops has no effect without message_bytes: give both")
        elif self.packets != DEFAULT_MAX_PACKETS:
            raise InputError("packets has no effect without message_bytes: give both")


@dataclass(frozen=True)
class MessageChoice:
    """A message format that was considered."""

    program: Program
    accuracy_loss: float
    """Relative difference of accelerations (see `measure_accuracy_losses`)."""
    fits: bool


def choose_messages(program: Program, comm_radius: float, options: MessageOptions) -> tuple[Program, str]:
    """Return the program with the message format for these options, and a Markdown table of all that were considered.

    Without `message_bytes` the format is version 1 and the table is empty. Otherwise it is the first of these that
    fits: version 1; version 2 with all hops and as few packets as possible; version 2 with fewer and fewer hops. Raise
    InputError if none fits.
    """
    program = replace(program, own_frames=options.own_frames)
    if options.message_bytes is None:
        return program, ""
    choices = _list_choices(program, comm_radius, options, options.message_bytes)
    chosen = next((choice for choice in choices if choice.fits), None)
    if chosen is None:
        least = min(choice.program.packet_bytes for choice in choices)
        raise InputError(
            f"message_bytes must be at least {least} for {program.name} with packets = {options.packets}, "
            f"got {options.message_bytes}"
        )
    check_speed(chosen.program)
    return chosen.program, _format_table(choices, chosen)


def check_speed(program: Program) -> None:
    """Raise InputError if agents with limits may be too fast for the velocities of a compact format.

    A faster neighbour would appear at another velocity: one that approaches may seem to leave.
    """
    compact, max_speed = program.compact, None if program.safety is None else program.safety.max_speed
    if compact is not None and max_speed is not None and 2.0 * max_speed >= compact.speed_reach:
        raise InputError(
            f"max_speed must be below {compact.speed_reach / 2.0:g} with compact messages, which represent relative "
            f"velocities below {compact.speed_reach:g}; got {max_speed:g}: leave out message_bytes, or lower time_scale"
        )


def _list_choices(
    program: Program, comm_radius: float, options: MessageOptions, message_bytes: int
) -> list[MessageChoice]:
    """Return all choices in the order of preference."""
    most = program.senses.hops - 1
    if options.relayed_hops is not None and check_count("relayed_hops", options.relayed_hops, least=0) > most:
        raise InputError(f"relayed_hops of {program.name} must be at most {most}, got {options.relayed_hops}")
    hops = range(most, -1, -1) if options.relayed_hops is None else [options.relayed_hops]
    formats: list[CompactFormat | None] = [None] if most in hops else []
    for count in hops:
        compact = CompactFormat(program.senses, program.dimensions, comm_radius, count)
        formats.append(_split(compact, message_bytes, options.packets))
    losses = measure_accuracy_losses(program, comm_radius, formats)
    programs = [replace(program, compact=each) for each in formats]
    return [
        MessageChoice(each, loss, each.packet_bytes <= message_bytes)
        for each, loss in zip(programs, losses, strict=True)
    ]


def _split(compact: CompactFormat, message_bytes: int, max_packets: int) -> CompactFormat:
    """Return the format with as few packets as fit into `message_bytes`, or as many as are allowed and not empty."""
    most = min(max_packets, compact.vectors_per_packet)
    splits = [replace(compact, packets=count) for count in range(1, most + 1)]
    return next((each for each in splits if each.packet_bytes <= message_bytes), splits[-1])


def _format_table(choices: list[MessageChoice], chosen: MessageChoice) -> str:
    """Return a row for each choice, in Markdown."""
    rows: list[list[Any]] = [["format", "relayed hops", "packets", "bytes per packet", "loss of accuracy", "choice"]]
    for choice in choices:
        program, mark = choice.program, "chosen" if choice is chosen else "" if choice.fits else "too large"
        name = "float32" if program.compact is None else "compact"
        loss = f"{100.0 * choice.accuracy_loss:.2g} %"
        rows.append([name, program.relayed_hops, program.packets, program.packet_bytes, loss, mark])
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    rows.insert(1, ["-" * width for width in widths])
    lines = (" | ".join(f"{cell!s:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(f"| {line} |" for line in lines)
