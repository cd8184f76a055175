"""Do bound and empirical gap move together under other readings of what the paper leaves open?

python benchmarks/generalization.py      # medians and ranges over three training seeds; about an hour on two cores
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from equiflock.controllers.trained import TRAINED
from equiflock.experiments.executor import collect, run_cells
from equiflock.experiments.generalization import CloningCell, CloningCurves
from equiflock.files import check_config
from equiflock.imitation.fast_forward import FastForward
from equiflock.imitation.recipe import Cloning
from equiflock.imitation.run import versions

FOLDER = Path("runs/generalization-readings")
WORKERS = os.cpu_count() or 1
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Reading:
    words: str
    data: FastForward = field(default_factory=FastForward)
    recipe: Cloning = field(default_factory=Cloning)

    @property
    def folder(self) -> str:
        return self.words.replace(" ", "-").replace(",", "")


READINGS = (
    Reading("other flocks", FastForward(seed=1)),
    Reading("warm-up of 3000 steps", recipe=Cloning(warm_up=3000)),
    Reading("201 training tuples, 500 epochs", FastForward(train_flocks=1, test_flocks=20), Cloning(epochs=500)),
    Reading("ten times the learning rate", recipe=Cloning(learning_rate=5e-4)),
)


def report(reading: Reading) -> None:
    data = FOLDER / f"data-{reading.data.seed}-{reading.data.flocks}"
    reading.data.make(data)
    recipes = [replace(reading.recipe, controller=name, seed=seed) for seed in SEEDS for name in TRAINED]
    cells = [CloningCell(recipe, reading.data, data) for recipe in recipes]
    run_cells(cells, FOLDER / reading.folder, WORKERS)
    curves = CloningCurves(collect(cells, FOLDER / reading.folder))
    print(f"\n{reading.words}")
    for name in TRAINED:
        found = {
            "correlation": curves.correlation(name),
            "last gap": curves.last("gap", name),
            "last loss": curves.last("train_loss", name),
            "bound": curves.last("bound", name),
        }
        texts = (f"{label} {np.median(v):.3g} [{v.min():.2g}, {v.max():.2g}]" for label, v in found.items())
        print(f"  {name:16}" + "   ".join(texts), flush=True)


if __name__ == "__main__":
    check_config(FOLDER, {"readings": repr(READINGS), "versions": versions()})
    for reading in READINGS:
        report(reading)
