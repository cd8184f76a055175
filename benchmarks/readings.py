"""The experiments with leaders and obstacles under other readings of what the paper leaves open.

python benchmarks/readings.py            # medians and ranges over five training seeds; some ten minutes on two cores
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from equiflock.controllers.trained import SEEDS, TRAINED
from equiflock.experiments.curves import Curves
from equiflock.experiments.paper.leader_following import DISTANCE, LeaderJob
from equiflock.experiments.paper.obstacle_avoidance import Endings, ObstacleJob
from equiflock.experiments.runner.jobs import collect
from equiflock.experiments.runner.running import run_jobs
from equiflock.runtime.provenance import claim_folder, versions
from equiflock.scenarios.leaders import LeaderVelocity

FOLDER = Path("runs/readings")
WORKERS = os.cpu_count() or 1
OBSTACLES: dict[str, dict[str, Any]] = {
    "default": {},
    "passed after 0.01 s out of reach, not 1 s": {"clear_time": 0.01},
    "passed after 2 s out of reach": {"clear_time": 2.0},
    "all obstacle agents within R heard": {"obstacles": "all"},
    "every obstacle agent a node of the graph": {"obstacle_node": "each"},
    "time step 0.001 s, 15 flocks": {"time_step": 0.001, "flocks": 15},
}


def leaders() -> None:
    print("MLVD at the last step, beside that of tdagnn-tf-mean, by the leaders' common velocity\n")
    others = [name for name in TRAINED if name != "tdagnn-tf-mean"]
    print(f"{'':10}" + "".join(f"{name:>22}" for name in others))
    for reading in get_args(LeaderVelocity):
        jobs = [LeaderJob(name, seed, leader_velocity=reading) for name in TRAINED for seed in SEEDS]
        run_jobs(jobs, FOLDER / "jobs", WORKERS)
        curves = Curves(collect(jobs, FOLDER / "jobs"))
        last = {name: curves.last("median", name, metric=DISTANCE) for name in TRAINED}
        ratios = [last[name] / last["tdagnn-tf-mean"] for name in others]
        texts = (f"{np.median(r):.2f} [{r.min():.2f}, {r.max():.2f}]" for r in ratios)
        print(f"{reading:10}" + "".join(f"{text:>22}" for text in texts), flush=True)


def obstacles() -> None:
    print("\npercentage of flights past an obstacle that fail\n")
    print(f"{'':44}{'sides':>6}" + "".join(f"{name:>19}" for name in TRAINED))
    for words, options in OBSTACLES.items():
        jobs = [
            replace(ObstacleJob(name, seed, sides, technique=True), **options)
            for sides in (48, 96)
            for name in TRAINED
            for seed in SEEDS
        ]
        run_jobs(jobs, FOLDER / "jobs", WORKERS)
        ends = Endings(collect(jobs, FOLDER / "jobs"))
        for sides in ends.sides:
            failed = {name: 100 * ends.failed(name, sides, technique=True) for name in TRAINED}
            texts = (f"{np.median(f):.0f} [{f.min():.0f}, {f.max():.0f}]" for f in failed.values())
            print(f"{words:44}{sides:6}" + "".join(f"{text:>19}" for text in texts), flush=True)


if __name__ == "__main__":
    claim_folder(FOLDER, "benchmark", {"obstacles": OBSTACLES, "versions": versions()})
    leaders()
    obstacles()
