"""Correlation of bound and empirical gap under other interpretations of the paper.

python benchmarks/generalization.py      # about half an hour on two cores
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from equiflock._runtime.executors import run_jobs
from equiflock._runtime.jobs import read_results
from equiflock._runtime.provenance import claim_run_dir, read_package_versions
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.curves import Curves
from equiflock.learning.fast_forward import FastForward
from equiflock.learning.recipe import Cloning
from equiflock.paper.generalization_experiment import CloningJob, compute_correlation

FOLDER = Path("runs/generalization-interpretations")
WORKERS = os.cpu_count() or 1


@dataclass(frozen=True)
class Interpretation:
    title: str
    data: FastForward = field(default_factory=FastForward)
    recipe: Cloning = field(default_factory=Cloning)

    @property
    def folder(self) -> str:
        return self.title.replace(" ", "-").replace(",", "")


INTERPRETATIONS = (
    Interpretation("200 epochs", recipe=Cloning(epochs=200)),
    Interpretation("other flocks", FastForward(seed=1)),
)


def report(interpretation: Interpretation) -> None:
    data = FOLDER / f"data-{interpretation.data.seed}-{interpretation.data.flocks}"
    interpretation.data.make(data)
    jobs = [
        CloningJob(replace(interpretation.recipe, controller=name), interpretation.data, data)
        for name in PAPER_NETWORKS
    ]
    run_jobs(jobs, FOLDER / interpretation.folder, WORKERS)
    curves = Curves(read_results(jobs, FOLDER / interpretation.folder), over="epoch")
    print(f"\n{interpretation.title}")
    for name in PAPER_NETWORKS:
        results = {
            "correlation": compute_correlation(curves, name),
            "from epoch 20": compute_correlation(curves, name, first=20),
            "gap": curves.last("gap", name),
            "loss": curves.last("train_loss", name),
            "bound": curves.last("bound", name),
            "data bound": curves.last("data_bound", name),
        }
        print(f"  {name:16}" + "".join(f"{label} {values[0]:<12.3g}" for label, values in results.items()), flush=True)


if __name__ == "__main__":
    config = {"interpretations": repr(INTERPRETATIONS), "versions": read_package_versions()}
    claim_run_dir(FOLDER, "benchmark", config)
    for interpretation in INTERPRETATIONS:
        report(interpretation)
