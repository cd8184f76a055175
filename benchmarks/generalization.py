"""Correlation of bound and empirical gap under other interpretations of the paper, and on other splits of its tuples.

python benchmarks/generalization.py              # other interpretations: about half an hour on two cores
python benchmarks/generalization.py splits 0     # other splits, data set 0: about five minutes on two cores

Interrupted commands continue. The second writes runs/generalization-splits/splits.csv, with the correlations of every
split, and prints the table of docs/theory.md; `equiflock reproduce` has the same columns for all its data sets.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from equiflock._runtime.executors import run_jobs
from equiflock._runtime.jobs import read_results
from equiflock._runtime.provenance import claim_run_dir, read_package_versions
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.curves import Curves
from equiflock.learning.fast_forward import FastForward
from equiflock.learning.recipe import Cloning
from equiflock.paper.generalization_experiment import (
    CloningJob,
    build_cloning_jobs,
    compute_correlation,
    format_split_table,
)
from equiflock.paper.profile import PROFILES

FOLDER = Path("runs/generalization-interpretations")
SPLITS_FOLDER = Path("runs/generalization-splits")
SPLIT_COLUMNS = ["controller", "seed", "epoch", "bound", "gap", "split_correlation"]
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


def redraw_splits(seeds: tuple[int, ...]) -> None:
    """Clone the expert on these data sets of the paper's size, and print the correlations on other splits."""
    profile = replace(PROFILES["paper"], cloning_seeds=seeds)
    claim_run_dir(SPLITS_FOLDER, "benchmark of splits", {"versions": read_package_versions()})
    for home, data in profile.build_datasets(SPLITS_FOLDER).items():
        data.make(home, WORKERS)
    jobs = build_cloning_jobs(profile, SPLITS_FOLDER)
    run_jobs(jobs, SPLITS_FOLDER / "jobs", WORKERS, lambda job: print(job.key, flush=True))
    table = read_results(jobs, SPLITS_FOLDER / "jobs")[SPLIT_COLUMNS]
    table.to_csv(SPLITS_FOLDER / "splits.csv", index=False, float_format="%.6g")
    print(format_split_table(table))


def compare_interpretations() -> None:
    """Print the correlations under other interpretations."""
    config = {"interpretations": repr(INTERPRETATIONS), "versions": read_package_versions()}
    claim_run_dir(FOLDER, "benchmark", config)
    for interpretation in INTERPRETATIONS:
        report(interpretation)


if __name__ == "__main__":
    if sys.argv[1:2] == ["splits"]:
        redraw_splits(tuple(map(int, sys.argv[2:])) or PROFILES["paper"].cloning_seeds)
    else:
        compare_interpretations()
