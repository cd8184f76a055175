"""Formation patterns: a vee, a circle, words in capital letters, or user-defined points.

A pattern assigns a place z_i to each agent; only the differences z_i - z_j matter. A flock has reached it when all
r_i - z_i are equal; `pattern_error` measures the deviation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float64
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, check_count, check_positive, shorten_repr
from equiflock._runtime.specs import SAFE_PATTERN
from equiflock.flock import OBSTACLE, Flock, Vectors

Points: TypeAlias = Float64[np.ndarray, "N D"]
PatternName: TypeAlias = Literal["vee", "circle"] | str
"""The name of a pattern, one of `SHAPES`, or a word in capital letters."""
Pattern: TypeAlias = PatternName | Sequence[Sequence[float]] | NDArray[Any]
"""The name of a pattern, a word in capital letters, or user-defined points (N, D)."""
WORD_METADATA = {SAFE_PATTERN: "[A-Z]{1,12}"}
"""Field metadata of a pattern: words that the live page may send; they are drawn, never used as file names."""

DEFAULT_SPACING = 0.4
"""Distance between neighbours: well within R = 1 and not too close."""
VEE_HALF_ANGLE = math.radians(35.0)
"""Angle between an arm of the vee and its axis. Above 30 degrees, the two agents behind the head are farther apart
than neighbours on an arm."""
LETTER_GAP = 3.0
"""Gap between two letters of a word, in grid units; letters are six units tall."""

# Strokes of each letter, separated by "|": corners of a polyline, each given by its x and y digits. Strokes may start
# or end on each other but never cross, so that no two agents share a place.
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
    "Q": "16 36 45 43 21 11 02 05 16|14 32|32 50",
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
    """Return the place z_i of each agent, (N, D), centred at the origin; for D = 3 in the x-y plane.

    Raise InputError if the pattern is unknown, or if user-defined points are not (N, D).

    Args:
        pattern: "vee": agent 0 leads, at the right, and the others line up behind it, alternating between left and
            right; "circle": counterclockwise from the right; a word in capital letters A to Z, such as "EQ": agents
            are spread evenly along its strokes; or points (N, D), which are centred but not scaled by `spacing`.
        agents: N.
        dimensions: D, 2 or 3.
        spacing: distance between neighbours; for words along a stroke, as closely as N allows.
    """
    check_count("agents", agents)
    if dimensions not in (2, 3):
        raise InputError(f"dimensions must be 2 or 3; got {shorten_repr(dimensions)}")
    check_positive("spacing", spacing)
    if not isinstance(pattern, str):
        points = _parse_points(pattern)
        if points.shape != (agents, dimensions):
            raise InputError(
                f"a pattern of points must have shape (N, D) = ({agents}, {dimensions}); got {points.shape}"
            )
        return np.asarray(points - points.mean(axis=0))
    check_pattern(pattern)
    result = np.zeros((agents, dimensions))
    result[:, :2] = _make_plane_points(pattern, agents) * spacing
    return result


def check_pattern(pattern: Pattern) -> None:
    """Raise InputError unless `pattern` is a known name, a word in capital letters, or finite points (N, D)."""
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
    """Return the place z_i of each agent, (B, N, D): leaders and followers take the places in the order of agents.

    Obstacle agents have zeros and do not count; failed agents keep their places.
    """
    places = np.zeros(flock.shape)
    member = flock.roles != OBSTACLE
    # Flocks of a batch usually have the same number of members, so the pattern is computed once per number.
    counts = member.sum(axis=1)
    for count in np.unique(counts).tolist():
        points = make_pattern_points(pattern, count, flock.shape[2], spacing)
        same = counts == count
        places[same[:, None] & member] = np.tile(points, (int(same.sum()), 1))
    return places


def pattern_error(
    positions: Vectors, places: Vectors, member: Bool[np.ndarray, "B N"] | None = None
) -> Float64[np.ndarray, " B"]:
    """Return the deviation from a pattern relative to its size, (B,): 0 if all agents are in place, up to translation.

    With x_i = r_i - z_i, the error is the root mean square of |x_i - mean(x)| divided by that of |z_i - mean(z)|, the
    size of the pattern; divided by 1 if the size is 0, as for a single agent. `places` are those of `assign_places`;
    `member` is the mask of the agents that count, all by default. The error is 0 if none does.
    """
    counted = np.ones(positions.shape[:2], bool) if member is None else member
    return np.asarray(_compute_spread(positions - places, counted) / compute_size(places, counted))


def compute_size(places: Vectors, member: Bool[np.ndarray, "B N"]) -> Float64[np.ndarray, " B"]:
    """Return the size of a pattern, the root mean square of |z_i - mean(z)| over members, (B,); 1 where it is 0."""
    size = _compute_spread(places, member)
    return np.asarray(np.where(size > 0.0, size, 1.0))


def move_places(positions: Vectors, places: Vectors, member: Bool[np.ndarray, "B N"]) -> Vectors:
    """Return the places moved along with the flock, (B, N, D): z_i + mean(r - z) over members, as in `pattern_error`.

    Without members, the places are not moved.
    """
    return np.asarray(places + _compute_mean(positions - places, member))


def _compute_mean(vectors: Vectors, member: Bool[np.ndarray, "B N"]) -> Float64[np.ndarray, "B 1 D"]:
    """Return the mean of the vectors of members; 0 without members."""
    count = np.maximum(member.sum(axis=1), 1)
    return np.asarray(vectors.sum(axis=1, keepdims=True, where=member[..., None]) / count[:, None, None])


def _compute_spread(vectors: Vectors, member: Bool[np.ndarray, "B N"]) -> Float64[np.ndarray, " B"]:
    """Return the root mean square distance of the vectors of members from their mean, (B,); 0 without members."""
    squares = np.square(vectors - _compute_mean(vectors, member)).sum(axis=2)
    return np.asarray(np.sqrt(squares.sum(axis=1, where=member) / np.maximum(member.sum(axis=1), 1)))


def _parse_points(given: Any) -> Points:
    """Return user-defined points as a float64 array; raise InputError if they are not finite, or not (N, D)."""
    try:
        points = np.array(given, np.float64)
    except (OverflowError, TypeError, ValueError):
        points = np.empty(0)
    if points.ndim != 2 or len(points) < 1 or points.shape[1] not in (2, 3) or not np.isfinite(points).all():
        expected = "pattern must be a name, a word in capital letters, or finite points of shape (N, D), D = 2 or 3"
        raise InputError(f"{expected}; got {shorten_repr(given)}")
    return points


@lru_cache(maxsize=64)
def _make_plane_points(pattern: str, agents: int) -> Points:
    """Return a named pattern or a word for D = 2, centred, with a spacing of 1."""
    points = SHAPES[pattern](agents) if pattern in SHAPES else _make_word(pattern, agents)
    points -= points.mean(axis=0)
    points.setflags(write=False)  # the cache shares it
    return points


def _make_vee(agents: int) -> Points:
    """Return a vee: agent 0 in front, at the right; agents 1, 3, .. behind it on its left, 2, 4, .. on its right."""
    number = np.arange(agents)
    behind, side = (number + 1) // 2, np.where(number % 2 == 1, 1.0, -1.0)
    return np.stack([-behind * math.cos(VEE_HALF_ANGLE), side * behind * math.sin(VEE_HALF_ANGLE)], axis=1)


def _make_circle(agents: int) -> Points:
    """Return the corners of a regular polygon with sides of length 1."""
    radius = 0.5 / math.sin(math.pi / agents) if agents > 1 else 0.0
    angles = 2.0 * math.pi * np.arange(agents) / agents
    return radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)


SHAPES = {"vee": _make_vee, "circle": _make_circle}


def _make_word(word: str, agents: int) -> Points:
    """Return places along the strokes of a word, about 1 apart, stroke by stroke; short strokes may get none."""
    strokes = _make_strokes(word)
    lengths = np.array([np.linalg.norm(np.diff(stroke, axis=0), axis=1).sum() for stroke in strokes])
    # Distribute the agents by stroke length; the largest remainders get those lost to rounding down.
    shares = agents * lengths / lengths.sum()
    counts = np.floor(shares).astype(int)
    counts[np.argsort(counts - shares, kind="stable")[: agents - counts.sum()]] += 1
    # Start half a spacing from both ends, so that agents on adjoining strokes keep their distance.
    places = [
        _interpolate_stroke(stroke, (np.arange(n) + 0.5) / n) for stroke, n in zip(strokes, counts, strict=True) if n
    ]
    return np.asarray(np.concatenate(places) * (agents / lengths.sum()))


def _make_strokes(word: str) -> list[Points]:
    """Return the strokes of all letters of a word, in grid units: polylines (corners, 2), from left to right."""
    strokes, left = [], 0.0
    for letter in word:
        lines = [
            np.array([[float(digit) for digit in corner] for corner in line.split()])
            for line in LETTERS[letter].split("|")
        ]
        strokes += [line + np.array([left, 0.0]) for line in lines]
        left += max(line[:, 0].max() for line in lines) + LETTER_GAP
    return strokes


def _interpolate_stroke(stroke: Points, shares: Float64[np.ndarray, " n"]) -> Points:
    """Return the points at the given fractions of a stroke's length."""
    ends = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(stroke, axis=0), axis=1))])
    return np.stack([np.interp(shares * ends[-1], ends, stroke[:, d]) for d in range(2)], axis=1)
