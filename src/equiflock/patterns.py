"""Patterns that a flock can fly in: a vee, a circle, words in capital letters, or points of one's own.

A pattern is a place z_i for each agent, of which only the differences z_i - z_j matter. A flock has it when all r_i -
z_i are the same; how far it is from that is `pattern_error`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float64
from numpy.typing import NDArray

from equiflock.flock import OBSTACLE, Flock, Vectors
from equiflock.runtime.checks import InputError, check_count, check_positive, shorten_repr
from equiflock.runtime.options import SAFE_PATTERN

Points: TypeAlias = Float64[np.ndarray, "N D"]
PatternName: TypeAlias = Literal["vee", "circle"] | str
"""The name of a pattern, one of `SHAPES`, or a word in capital letters."""
Pattern: TypeAlias = PatternName | Sequence[Sequence[float]] | NDArray[Any]
"""The name of a pattern, a word in capital letters, or points (N, D) of one's own."""
WORD_METADATA = {SAFE_PATTERN: "[A-Z]{1,12}"}
"""Metadata of a field that is a pattern: a live page may choose any such word, which is drawn and names no file."""

DEFAULT_SPACING = 0.4
"""Between neighbours, in units of length: they are well within R = 1 of each other, and not too near."""
VEE_HALF_ANGLE = math.radians(35.0)
"""Between each arm of the vee and its axis, our choice: above 30 degrees the two behind the head are not nearer to each
other than neighbours on an arm are."""
LETTER_GAP = 3.0
"""Between two letters of a word, in units of the grid on which they are drawn: they are six units tall."""

# Strokes of each letter, divided by "|": corners of a line, each the digits of its x and y. Strokes may begin and end
# on each other, but never cross, so that no two agents get the same place.
LETTERS = {
    "A": "00 36 60|12 52",
    "B": "00 06 36 45 44 33 03|33 42 41 30 00",
    "C": "45 36 16 05 01 10 30 41",
    "D": "00 06 26 44 42 20 00",
    "E": "46 06 00 40|03 33",
    "F": "46 06 00|03 33",
    "G": "45 36 16 05 01 10 30 41 43 23",
    "H": "06 00|46 40|03 43",
    "I": "06 00",
    "J": "36 31 20 10 01",
    "K": "06 00|03 46|03 40",
    "L": "06 00 40",
    "M": "00 06 33 66 60",
    "N": "00 06 50 56",
    "O": "16 36 45 41 30 10 01 05 16",
    "P": "00 06 36 45 44 33 03",
    "Q": "16 36 45 42 20 10 01 05 16|22 31|31 40",
    "R": "00 06 36 45 44 33 03|23 40",
    "S": "45 36 16 05 04 13 33 42 41 30 10 01",
    "T": "06 46|26 20",
    "U": "06 01 10 30 41 46",
    "V": "06 30 66",
    "W": "06 10 33 50 66",
    "X": "06 23|46 23|00 23|40 23",
    "Y": "06 23|46 23|23 20",
    "Z": "06 46 00 40",
}


def make_pattern_points(pattern: Pattern, agents: int, dimensions: int = 2, spacing: float = DEFAULT_SPACING) -> Points:
    """The place z_i of each agent in a pattern, (N, D), centred at the origin; in space it lies in the x-y plane.

    Args:
        pattern: "vee", as pelicans fly: agent 0 is the head, at the right, and the others line up behind it, left and
            right in turn; "circle", counterclockwise from the right; a word in capital letters A to Z, such as "EQ",
            along whose strokes agents are spread evenly; or points (N, D), which are only centred.
        agents: N.
        dimensions: D, 2 or 3.
        spacing: the distance between neighbours, for letters along a stroke, as nearly as whole agents allow.
    """
    check_count("agents", agents)
    if dimensions not in (2, 3):
        raise InputError(f"dimensions must be 2 or 3; got {shorten_repr(dimensions)}")
    check_positive("spacing", spacing)
    if not isinstance(pattern, str):
        points = _parse_points(pattern)
        if points.shape != (agents, dimensions):
            raise InputError(
                f"a pattern of points must have one for each agent, of shape (N, D) = ({agents}, {dimensions}); got "
                f"{points.shape}"
            )
        return np.asarray(points - points.mean(axis=0))
    check_pattern(pattern)
    result = np.zeros((agents, dimensions))
    result[:, :2] = _make_plane_points(pattern, agents) * spacing
    return result


def check_pattern(pattern: Pattern) -> None:
    """A clear error unless it is the name of a pattern, a word that can be written, or finite points (N, D)."""
    if not isinstance(pattern, str):
        _parse_points(pattern)
    elif pattern not in SHAPES and (not pattern or set(pattern) - set(LETTERS)):
        upper = pattern.upper()
        hint = f"; did you mean {upper!r}?" if upper and not set(upper) - set(LETTERS) else ""
        names = ", ".join(map(repr, SHAPES))
        raise InputError(
            f"pattern must be {names}, or a word in capital letters A to Z; got {shorten_repr(pattern)}{hint}"
        )


def assign_places(flock: Flock, pattern: Pattern, spacing: float) -> Vectors:
    """The place z_i of each agent in the pattern, (B, N, D): the agents of the flock take its places in their order.

    Obstacle agents take none; theirs are zeros. Agents that have failed keep theirs.
    """
    _, _, D = flock.shape
    places = np.zeros(flock.shape)
    member = flock.roles != OBSTACLE
    # Flocks of a batch mostly have the same number of obstacle agents, so the pattern is made once.
    counts = member.sum(axis=1)
    for count in np.unique(counts).tolist():
        points = make_pattern_points(pattern, count, D, spacing)
        same = counts == count
        places[same[:, None] & member] = np.tile(points, (int(same.sum()), 1))
    return places


def pattern_error(
    positions: Vectors, places: Vectors, member: Bool[np.ndarray, "B N"] | None = None
) -> Float64[np.ndarray, " B"]:
    """How far flocks are from a pattern, as a share of its size: 0 when every agent has its place, wherever that is.

    With x_i = r_i - z_i, it is the root mean square of |x_i - mean(x)| over that of |z_i - mean(z)|, the size of the
    pattern; over 1 if that is 0, as for a single agent.

    Args:
        positions: (B, N, D).
        places: (B, N, D), as `assign_places` gives them.
        member: (B, N), which agents count; all if left out. 0 where nobody does.
    """
    counted = np.ones(positions.shape[:2], bool) if member is None else member
    size = _compute_spread(places, counted)
    return np.asarray(_compute_spread(positions - places, counted) / np.where(size > 0.0, size, 1.0))


def _compute_spread(vectors: Vectors, member: Bool[np.ndarray, "B N"]) -> Float64[np.ndarray, " B"]:
    """The root mean square distance of vectors from their mean."""
    count = np.maximum(member.sum(axis=1), 1)
    mean = vectors.sum(axis=1, keepdims=True, where=member[..., None]) / count[:, None, None]
    squares = np.square(vectors - mean).sum(axis=2)
    return np.asarray(np.sqrt(squares.sum(axis=1, where=member) / count))


def _parse_points(given: Any) -> Points:
    """Points of one's own as an array, or a clear error."""
    expected = "a pattern of one's own must be finite points of shape (N, D), D = 2 or 3"
    try:
        points = np.array(given, np.float64)
    except (OverflowError, TypeError, ValueError):
        raise InputError(f"{expected}; got {shorten_repr(given)}") from None
    if points.ndim != 2 or len(points) < 1 or points.shape[1] not in (2, 3) or not np.isfinite(points).all():
        raise InputError(f"{expected}; got {shorten_repr(given)}")
    return points


@lru_cache(maxsize=64)
def _make_plane_points(pattern: str, agents: int) -> Points:
    """A named pattern in the plane, or a word, with a spacing of 1 and centred."""
    points = SHAPES[pattern](agents) if pattern in SHAPES else _make_word(pattern, agents)
    points -= points.mean(axis=0)
    points.setflags(write=False)  # it is kept
    return points


def _make_vee(agents: int) -> Points:
    """Agent 0 in front, at the right; agents 1, 3, .. on its left behind it, agents 2, 4, .. on its right."""
    number = np.arange(agents)
    behind, side = (number + 1) // 2, np.where(number % 2 == 1, 1.0, -1.0)
    return np.stack([-behind * math.cos(VEE_HALF_ANGLE), side * behind * math.sin(VEE_HALF_ANGLE)], axis=1)


def _make_circle(agents: int) -> Points:
    """The corners of a regular polygon with sides of length 1."""
    radius = 0.5 / math.sin(math.pi / agents) if agents > 1 else 0.0
    angles = 2.0 * math.pi * np.arange(agents) / agents
    return radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


SHAPES = {"vee": _make_vee, "circle": _make_circle}


def _make_word(word: str, agents: int) -> Points:
    """Agents along the strokes of a word, about 1 apart."""
    strokes = _make_strokes(word)
    lengths = np.array([np.linalg.norm(np.diff(stroke, axis=0), axis=1).sum() for stroke in strokes])
    # Each stroke gets its share of the agents; those lost to rounding down go where most was lost.
    shares = agents * lengths / lengths.sum()
    counts = np.floor(shares).astype(int)
    counts[np.argsort(counts - shares, kind="stable")[: agents - counts.sum()]] += 1
    # Half a spacing from both ends of a stroke, so that strokes which meet there keep their agents apart.
    placed = [
        _interpolate_stroke(stroke, (np.arange(n) + 0.5) / n) for stroke, n in zip(strokes, counts, strict=True) if n
    ]
    return np.asarray(np.concatenate(placed) * (agents / lengths.sum()))


def _make_strokes(word: str) -> list[Points]:
    """The strokes of all letters of a word, one letter after the other, on the grid."""
    strokes, left = [], 0.0
    for letter in word:
        drawn = [[[float(digit) for digit in corner] for corner in line.split()] for line in LETTERS[letter].split("|")]
        lines = [np.array(corners) for corners in drawn]
        strokes += [line + np.array([left, 0.0]) for line in lines]
        left += max(line[:, 0].max() for line in lines) + LETTER_GAP
    return strokes


def _interpolate_stroke(stroke: Points, shares: Float64[np.ndarray, " n"]) -> Points:
    """The points at these shares of the length of a stroke."""
    ends = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(stroke, axis=0), axis=1))])
    return np.stack([np.interp(shares * ends[-1], ends, stroke[:, d]) for d in range(2)], axis=1)
