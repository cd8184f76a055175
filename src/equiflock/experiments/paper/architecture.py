"""The networks' numbers of weights and their symmetries (sections 3 and 5 of the paper)."""

from __future__ import annotations

from itertools import islice, product
from typing import Any

import numpy as np

from equiflock.controllers.trained import TRAINED
from equiflock.experiments.paper.ledger import Check, Statement
from equiflock.experiments.paper.pupils import Pupils
from equiflock.flock import Flock
from equiflock.protocols import Controller
from equiflock.scenarios import RandomDisk
from equiflock.simulation.assembly import flight

WEIGHTS = {"tdagnn": 1730, "tdagnn-tf": 1730, "tdagnn-tf-mean": 1730, "etdagnn": 416}
SAME = 1e-3
"""The largest relative difference of accelerations that counts as rounding of float32 observations."""


def architecture_statements(pupils: Pupils, seeds: tuple[int, ...]) -> list[Statement]:
    """A1, the numbers of weights, and A2, the symmetries."""
    controllers: dict[tuple[str, int], Any] = {
        (name, seed): pupils.load(name, seed) for name, seed in product(TRAINED, seeds)
    }
    # One number for every training seed: weights, and the errors of the two symmetries.
    counts = {name: np.array([float(controllers[name, seed].size) for seed in seeds]) for name in TRAINED}
    turned = {name: np.array([_change(controllers[name, seed], turn=True) for seed in seeds]) for name in TRAINED}
    moved = {name: np.array([_change(controllers[name, seed], turn=False) for seed in seeds]) for name in TRAINED}
    return [
        Statement(
            "A1",
            "Weights: 1,730 in each TDAGNN, 416 in ETDAGNN.",
            "Counted.",
            tuple(Check.counted(f"weights of {name}", counts[name], WEIGHTS[name]) for name in TRAINED),
        ),
        Statement(
            "A2",
            "ETDAGNN commutes with rotations and reflections, the others do not; all are invariant under translations "
            "of positions and velocities.",
            "Accelerations of five flocks after four steps, turned and mirrored, or moved and set adrift: the largest "
            f"difference, relative to the largest acceleration, at most {SAME:g} where nothing should change, at least "
            "0.01 where it should.",
            (
                Check.within("turned and mirrored: etdagnn", turned["etdagnn"], 0.0, SAME),
                *(
                    Check.within(f"turned and mirrored: {name}", turned[name], 0.01, np.inf)
                    for name in TRAINED
                    if name != "etdagnn"
                ),
                *(Check.within(f"moved and adrift: {name}", moved[name], 0.0, SAME) for name in TRAINED),
            ),
        ),
    ]


def _change(controller: Controller, turn: bool) -> float:
    """The relative error of a symmetry: rotation with reflection, or translation of positions and velocities.

    It is the largest |a(changed flock) - changed a(flock)| of some flocks, by the largest |a|.
    """
    start = RandomDisk(5, 100, split="symmetry").draw()
    # Either a rotation by 1 rad with a reflection, or a shift and a common velocity.
    angle = 1.0
    mirror = np.diag([1.0, -1.0]) @ [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    matrix = mirror if turn else np.eye(2)
    shift, drift = (np.zeros(2), np.zeros(2)) if turn else (np.array([30.3, -20.7]), np.array([4.1, 7.9]))
    changed = Flock(start.positions @ matrix.T + shift, start.velocities @ matrix.T + drift)
    # After four steps, more than there are hops, observations of all hops are filled.
    before, after = (
        next(islice(flight(flock, controller), 4, None)).accelerations.copy() for flock in (start, changed)
    )
    return float(np.abs(after - before @ matrix.T).max() / np.abs(before).max())
