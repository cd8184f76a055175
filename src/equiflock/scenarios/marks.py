"""Marks: what a scenario asks of a flock, as shapes to draw: goals, places in a pattern, gates, walls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError, check_choice, shorten_repr

MarkKind: TypeAlias = Literal["goal", "place", "gate", "wall"]
"""What a mark means, which selects its colour and its text in the legend."""
MarkShape: TypeAlias = Literal["circle", "point", "segment"]
COLUMNS: dict[str, int] = {"circle": 3, "point": 2, "segment": 4}
"""Numbers per mark of each shape."""


@dataclass(frozen=True, eq=False)
class Marks:
    """Marks of one kind and shape, in the plane of the first two coordinates; `circles` and the others make them."""

    kind: MarkKind
    shape: MarkShape
    numbers: Float64[np.ndarray, "M 4"]
    """Circle: x, y, radius, 0. Point: x, y, 0, 0. Segment: x, y of both ends."""
    moves: bool = False
    """Whether they move at the flock's mean velocity, so that a page moves them between two frames."""


def circles(kind: MarkKind, values: Sequence[Sequence[float]] | NDArray[Any]) -> Marks:
    """Return circles, each x, y and radius: such as a goal with its tolerance."""
    return _make_marks(kind, "circle", values)


def points(kind: MarkKind, values: Sequence[Sequence[float]] | NDArray[Any], *, moves: bool = False) -> Marks:
    """Return points, each x and y; further coordinates are ignored: such as the places of a pattern, which `moves`."""
    return replace(_make_marks(kind, "point", values), moves=moves)


def segments(kind: MarkKind, values: Sequence[Sequence[float]] | NDArray[Any]) -> Marks:
    """Return straight segments, each x, y of one end and x, y of the other: such as a gate."""
    return _make_marks(kind, "segment", values)


def _make_marks(kind: MarkKind, shape: MarkShape, values: Any) -> Marks:
    """Return marks with all columns; raise InputError for an unknown kind, or values that are not finite rows."""
    check_choice("kind of a mark", kind, get_args(MarkKind))
    columns = COLUMNS[shape]
    try:
        rows = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        rows = np.empty(0)
    is_wide = rows.ndim == 2 and (rows.shape[1] == columns or (shape == "point" and rows.shape[1] > columns))
    if not is_wide or not np.isfinite(rows).all():
        raise InputError(f"{shape}s of marks must be finite rows of {columns} numbers; got {shorten_repr(values)}")
    numbers = np.zeros((len(rows), 4))
    numbers[:, :columns] = rows[:, :columns]
    return Marks(kind, shape, numbers)
