"""Nothing out of an agent's reach changes a bit of what it knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from equiflock.features import paper_senses
from equiflock.flock import Flock
from equiflock.observations.aggregation import DelayedAggregation
from tests import twins


def reach(flock: Flock, agent: int, hops: int) -> NDArray[Any]:
    """Whom `agent` can know of after `hops` steps, in a flock that stands."""
    joined = twins.adjacency(flock.positions[0], flock.roles[0], 1.0) | np.eye(flock.shape[1], dtype=bool)
    return np.linalg.matrix_power(joined.astype(int), hops)[agent] > 0


@pytest.mark.slow
@pytest.mark.parametrize("D", [2, 3])
def test_agents_out_of_reach_do_not_change_observations(D: int) -> None:
    rng = np.random.default_rng(5)
    positions, velocities = rng.uniform(-3, 3, (1, 120, D)), rng.normal(size=(1, 120, D))
    flock = Flock(positions, velocities)
    for agent in range(0, 120, 10):
        for hops in (1, 2, 3):
            known = reach(flock, agent, hops)
            # Everybody out of reach goes elsewhere, far enough to change the cell table, and flies otherwise.
            away = np.where(known[:, None], positions[0], positions[0] * 37.0 + 1e4)
            other = Flock(away[None], np.where(known[:, None], velocities[0], -5.0 * velocities[0])[None])
            one, two = (DelayedAggregation(paper_senses("mean", hops), comm_radius=1.0) for _ in range(2))
            for _ in range(hops):
                here, there = one.observe(flock), two.observe(other)
            assert here[0, agent].tobytes() == there[0, agent].tobytes()
