"""Obstacle avoidance at 48 and 96 sides under other readings of what the paper leaves open.

python benchmarks/readings.py            # the percentage of flights that fail: median [range] over five training seeds
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from equiflock.controllers.trained import SEEDS, TRAINED
from equiflock.experiments.executor import collect, run_cells
from equiflock.experiments.obstacle_avoidance import Endings, ObstacleCell

FOLDER = Path("runs/readings")
READINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "passed after 0.01 s out of reach, not 1 s": {"clear_time": 0.01},
    "passed after 2 s out of reach": {"clear_time": 2.0},
    "all obstacle agents within R heard": {"obstacles": "all"},
    "every obstacle agent a node of the graph": {"obstacle_node": "each"},
    "time step 0.001 s, 15 flocks": {"time_step": 0.001, "flocks": 15},
}


def main() -> None:
    print(f"{'':44}{'sides':>6}" + "".join(f"{name:>19}" for name in TRAINED))
    for number, (words, options) in enumerate(READINGS.items()):
        cells = [
            replace(ObstacleCell(name, seed, sides, technique=True), **options)
            for sides in (48, 96)
            for name in TRAINED
            for seed in SEEDS
        ]
        run_cells(cells, FOLDER / str(number), os.cpu_count() or 1)
        ends = Endings(collect(cells, FOLDER / str(number)))
        for sides in ends.sides:
            failed = {name: 100 * ends.failed(name, sides, technique=True) for name in TRAINED}
            numbers = (f"{np.median(f):.0f} [{f.min():.0f}, {f.max():.0f}]" for f in failed.values())
            print(f"{words:44}{sides:6}" + "".join(f"{text:>19}" for text in numbers), flush=True)


if __name__ == "__main__":
    main()
