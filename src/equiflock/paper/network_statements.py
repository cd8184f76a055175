"""Weight counts and symmetries of the networks (sections 3 and 5 of the paper)."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.flock import Flock
from equiflock.paper.ledger import Check, Statement
from equiflock.paper.policies import TrainedPolicies
from equiflock.protocols import Controller
from equiflock.scenarios import RandomDisk
from equiflock.simulation.flight_builder import flight

EXPECTED_WEIGHT_COUNTS = {"tdagnn": 1730, "tdagnn-tf": 1730, "tdagnn-tf-mean": 1730, "etdagnn": 416}
ROUNDING_TOLERANCE = 1e-3
"""Largest relative difference of accelerations that counts as rounding of float32 observations."""


def build_architecture_statements(policies: TrainedPolicies, seeds: tuple[int, ...]) -> list[Statement]:
    """Return A1, the weight counts, and A2, the symmetries.

    Every network is loaded for every seed, which may train it first.
    """
    # One number per training seed: the weight count, and the errors of the two symmetries.
    counts, turned, moved = {}, {}, {}
    for name in PAPER_NETWORKS:
        networks: list[Any] = [policies.load(name, seed) for seed in seeds]
        counts[name] = np.array([float(network.size) for network in networks])
        turned[name] = np.array([_measure_symmetry_error(network, rotate=True) for network in networks])
        moved[name] = np.array([_measure_symmetry_error(network, rotate=False) for network in networks])
    others = [name for name in PAPER_NETWORKS if name != "etdagnn"]
    return [
        Statement(
            "A1",
            "Weights: 1,730 in each TDAGNN, 416 in ETDAGNN.",
            "Counted.",
            tuple(
                Check.equal_to(f"weights of {name}", counts[name], EXPECTED_WEIGHT_COUNTS[name])
                for name in PAPER_NETWORKS
            ),
        ),
        Statement(
            "A2",
            "ETDAGNN commutes with rotations and reflections, the others do not; all are invariant under translations "
            "of positions and velocities.",
            "Accelerations of five flocks after four steps, turned and mirrored, or moved and set adrift: the largest "
            f"difference, relative to the largest acceleration, at most {ROUNDING_TOLERANCE:g} where nothing should "
            "change, at least 0.01 where it should.",
            (
                Check.within("turned and mirrored: etdagnn", turned["etdagnn"], 0.0, ROUNDING_TOLERANCE),
                *(Check.within(f"turned and mirrored: {name}", turned[name], 0.01, np.inf) for name in others),
                *(Check.within(f"moved and adrift: {each}", moved[each], 0.0, ROUNDING_TOLERANCE) for each in moved),
            ),
        ),
    ]


def _measure_symmetry_error(controller: Controller, rotate: bool) -> float:
    """Return the relative error of a symmetry: rotation with reflection, or translation of positions and velocities.

    The error is the largest |a(T x) - T a(x)| over flocks x and agents, divided by the largest |a|.
    """
    start = RandomDisk(5, 100, split="symmetry").draw()
    # Either a rotation by 1 rad with a reflection, or a shift and a common velocity.
    angle = 1.0
    mirror = np.diag([1.0, -1.0]) @ [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    matrix = mirror if rotate else np.eye(2)
    shift, drift = (np.zeros(2), np.zeros(2)) if rotate else (np.array([30.3, -20.7]), np.array([4.1, 7.9]))
    changed = Flock(start.positions @ matrix.T + shift, start.velocities @ matrix.T + drift)
    # After four steps, more than the number of hops, the observations of all hops are filled.
    before, after = (
        next(islice(flight(flock, controller), 4, None)).accelerations.copy() for flock in (start, changed)
    )
    return float(np.abs(after - before @ matrix.T).max() / np.abs(before).max())
