"""What disks, editors and interrupted copies do to files."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path


def flip_a_bit(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def cut_short(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def zero_a_piece(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    first = rng.randrange(len(content))
    # A byte that is no zero, so that something changes.
    while content[first] == 0:
        first = (first + 1) % len(content)
    last = min(first + rng.randrange(1, 200), len(content))
    content[first:last] = bytes(last - first)
    path.write_bytes(content)


def lose_a_line(path: Path, rng: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    path.write_bytes(b"".join(lines))


DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (flip_a_bit, cut_short, empty, zero_a_piece, lose_a_line)
