"""Bounding box, closest pair and farthest pair of points (n, D), D = 2 or 3.

Results are exact; for points that are spread out they take far less time than comparing all pairs.
"""

from __future__ import annotations

import math

import numpy as np

from equiflock._runtime.jit import Array, Index, inline_kernel, kernel

BRUTE_FORCE_DIAMETER_POINTS = 256
"""Up to this many points, comparing all pairs finds the farthest pair fastest."""
BRUTE_FORCE_SEPARATION_POINTS = 128
"""Up to this many points, comparing all pairs finds the closest pair about as fast as a sweep, and compiles in a tenth
of the time."""


@kernel
def bounding_box(points: Array) -> tuple[Array, Array]:
    """Return the minimum and maximum of each coordinate of at least one point, each (D,)."""
    low, high = points[0].copy(), points[0].copy()
    for i in range(len(points)):
        for d in range(points.shape[1]):
            low[d], high[d] = min(low[d], points[i, d]), max(high[d], points[i, d])
    return low, high


@inline_kernel
def squared_distance(points: Array, i: Index, j: Index) -> float:
    """Return |r_i - r_j|^2 for D = 2 or 3."""
    x, y = points[i, 0] - points[j, 0], points[i, 1] - points[j, 1]
    z = points[i, 2] - points[j, 2] if points.shape[1] == 3 else 0.0
    square: float = x * x + y * y + z * z
    return square


@kernel
def squared_distance_range(points: Array) -> tuple[float, float]:
    """Return the smallest and largest squared distance between two points, by comparing all pairs.

    For a single point: infinity and 0. Square roots equal `minimum_separation` and `diameter` to the bit.
    """
    least, largest = math.inf, 0.0
    for j in range(len(points)):
        for i in range(j):
            square = squared_distance(points, i, j)
            least, largest = min(least, square), max(largest, square)
    return least, largest


@kernel
def minimum_separation(points: Array) -> float:
    """Return the smallest distance between two points; infinity for a single point."""
    least = math.inf
    if len(points) < 2:
        return least
    # Sweep along the axis with the largest extent.
    low, high = bounding_box(points)
    axis = np.argmax(high - low)
    order = np.argsort(points[:, axis])
    # Compare each point with its successors along the axis, while these can be closer than the closest pair so far.
    for n in range(len(points)):
        for m in range(n + 1, len(points)):
            i, j = order[n], order[m]
            # Later points are farther away along this axis alone.
            if points[j, axis] - points[i, axis] >= least:
                break
            least = min(least, math.sqrt(squared_distance(points, i, j)))
    return least


@kernel
def diameter(points: Array) -> float:
    """Return the largest distance between two points; 0 for a single point."""
    return math.sqrt(farthest_pair(points)[2]) if len(points) > 1 else 0.0


@kernel
def farthest_pair(points: Array) -> tuple[Index, Index, float]:
    """Return the farthest pair i < j of at least two points, and its squared distance.

    Ties are broken by the smallest (j, i). Time is quadratic for few points, and otherwise only for points on one
    circle or sphere.
    """
    # Few points: compare all pairs.
    best = 0, 1, -1.0
    if len(points) <= BRUTE_FORCE_DIAMETER_POINTS:
        for j in range(len(points)):
            for i in range(j):
                square = squared_distance(points, i, j)
                if square > best[2]:
                    best = i, j, square
        return best
    # Sort the points into a few hundred boxes, and compute an upper bound of the distance for each pair of boxes.
    starts, order, low, high = _sort_into_boxes(points)
    pairs = np.empty((len(low) * (len(low) + 1) // 2, 2), np.int64)
    reaches = np.empty(len(pairs))
    n = 0
    for p in range(len(low)):
        for q in range(p + 1):
            pairs[n, 0], pairs[n, 1] = p, q
            reaches[n] = _max_squared_distance(low[p], high[p], low[q], high[q])
            n += 1
    # Visit pairs of boxes by decreasing bound, until no remaining pair can contain a farther pair of points.
    for n in np.argsort(-reaches):
        if reaches[n] < best[2]:
            break
        # Skip a point if the other box lies too close to it.
        p, q = pairs[n, 0], pairs[n, 1]
        for one in order[starts[p] : starts[p + 1]]:
            if _max_squared_distance(points[one], points[one], low[q], high[q]) < best[2]:
                continue
            for other in order[starts[q] : starts[q + 1]]:
                # Boxes are not visited in the order of points, so ties are broken explicitly.
                i, j, square = min(one, other), max(one, other), squared_distance(points, one, other)
                if i < j and (square > best[2] or (square == best[2] and (j, i) < (best[1], best[0]))):
                    best = i, j, square
    return best


@kernel
def _max_squared_distance(low: Array, high: Array, other_low: Array, other_high: Array) -> float:
    """Return the largest squared distance between two boxes.

    Rounding is monotonic, so the computed squared distance of any two points inside is never larger.
    """
    square = 0.0
    for d in range(len(low)):
        square += max(high[d] - other_low[d], other_high[d] - low[d]) ** 2
    return square


@kernel
def _sort_into_boxes(points: Array) -> tuple[Array, Array, Array, Array]:
    """Sort points into at most a few hundred boxes of a grid.

    Returns:
        starts, order: box p holds the points order[starts[p] : starts[p + 1]].
        low, high: (boxes, D), tight bounds of the points in each box; empty boxes are left out.
    """
    # Assign each point to a cell of a grid over the bounding box, and count the points per cell.
    N, D = points.shape
    # 256 cells for D = 2 and 343 for D = 3: few enough to visit all pairs of cells.
    across = 16 if D == 2 else 7
    low, high = bounding_box(points)
    cell = np.zeros(N, np.int64)
    sizes = np.zeros(across**D, np.int64)
    for i in range(N):
        for d in range(D):
            extent = high[d] - low[d]
            place = int((points[i, d] - low[d]) / extent * across) if extent > 0 else 0
            cell[i] = cell[i] * across + min(place, across - 1)
        sizes[cell[i]] += 1
    # Boxes are the occupied cells, shrunk to their points.
    order = np.argsort(cell, kind="mergesort")
    occupied = np.flatnonzero(sizes)
    starts = np.zeros(len(occupied) + 1, np.int64)
    lows, highs = np.empty((len(occupied), D)), np.empty((len(occupied), D))
    for box in range(len(occupied)):
        starts[box + 1] = starts[box] + sizes[occupied[box]]
        lows[box], highs[box] = bounding_box(points[order[starts[box] : starts[box + 1]]])
    return starts, order, lows, highs
