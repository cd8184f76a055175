"""Do bound and empirical gap move together under other readings of what the paper leaves open?

python benchmarks/generalization.py      # some half an hour on two cores
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from equiflock.controllers.trained import TRAINED
from equiflock.experiments.curves import Curves
from equiflock.experiments.paper.generalization import CloningJob, correlation
from equiflock.experiments.runner.jobs import collect
from equiflock.experiments.runner.running import run_jobs
from equiflock.learning.fast_forward import FastForward
from equiflock.learning.recipe import Cloning
from equiflock.runtime.provenance import claim_folder, versions

FOLDER = Path("runs/generalization-readings")
WORKERS = os.cpu_count() or 1


@dataclass(frozen=True)
class Reading:
    words: str
    data: FastForward = field(default_factory=FastForward)
    recipe: Cloning = field(default_factory=Cloning)

    @property
    def folder(self) -> str:
        return self.words.replace(" ", "-").replace(",", "")


READINGS = (
    Reading("200 epochs", recipe=Cloning(epochs=200)),
    Reading("other flocks", FastForward(seed=1)),
)


def report(reading: Reading) -> None:
    data = FOLDER / f"data-{reading.data.seed}-{reading.data.flocks}"
    reading.data.make(data)
    jobs = [CloningJob(replace(reading.recipe, controller=name), reading.data, data) for name in TRAINED]
    run_jobs(jobs, FOLDER / reading.folder, WORKERS)
    curves = Curves(collect(jobs, FOLDER / reading.folder), over="epoch")
    print(f"\n{reading.words}")
    for name in TRAINED:
        found = {
            "correlation": correlation(curves, name),
            "from epoch 20": correlation(curves, name, first=20),
            "gap": curves.last("gap", name),
            "loss": curves.last("train_loss", name),
            "bound": curves.last("bound", name),
            "data bound": curves.last("data_bound", name),
        }
        print(f"  {name:16}" + "".join(f"{label} {values[0]:<12.3g}" for label, values in found.items()), flush=True)


if __name__ == "__main__":
    claim_folder(FOLDER, "benchmark", {"readings": repr(READINGS), "versions": versions()})
    for reading in READINGS:
        report(reading)
