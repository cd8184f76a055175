"""Observed edges follow the obstacle rule of the senses."""

from __future__ import annotations

import numpy as np
import pytest

import equiflock as ef
from equiflock.observations.orbit import find_observed_edges

RIM = np.array([[0.5, 0.0], [-0.5, 0.0], [0.0, 0.4], [3.0, 0.0], [3.0, 0.2]])


def flock(*places: tuple[float, float], roles: tuple[int, ...] = ()) -> ef.Flock:
    """Agents at these places, and the rim's after them, two obstacles."""
    positions = np.concatenate([np.array(places), RIM])[None]
    crew = [*(roles or (0,) * len(places)), *(2,) * len(RIM)]
    obstacles = [*(-1,) * len(places), 0, 0, 0, 1, 1]
    return ef.Flock(positions, np.zeros_like(positions), np.array([crew]), np.array([obstacles]))


@pytest.mark.parametrize(
    ("place", "nearest"),
    [((0.0, 0.0), 3), ((0.0, -0.2), 1), ((-0.1, -0.2), 2), ((2.2, 0.1), 4)],
)  # fmt: skip
def test_only_the_nearest_obstacle_agent_is_observed_ties_by_index(place: tuple[float, float], nearest: int) -> None:
    assert find_observed_edges(flock(place)).tolist() == [[0, nearest]]


def test_all_flock_agents_are_observed_and_only_followers_observe() -> None:
    edges = find_observed_edges(flock((0.0, 0.0), (0.1, -0.5), (0.3, -0.6), roles=(0, 1, 0)))
    assert {tuple(edge) for edge in edges.tolist()} == {(0, 1), (0, 2), (2, 0), (2, 1), (0, 5), (2, 3)}


def test_given_graph_is_used_at_any_distance() -> None:
    before, now = flock((0.0, 0.0)), flock((40.0, 0.0))
    assert find_observed_edges(now, ef.radius_graph(before)).tolist() == [[0, 1]]
    assert find_observed_edges(now).shape == (0, 2)


def test_without_obstacles_edges_match_the_graph() -> None:
    start = ef.random_disk(agents=30, dimensions=3)
    assert np.array_equal(find_observed_edges(start), ef.radius_graph(start).edges(0))
