"""Draws the figures of docs/reproduction and docs/media again from the tables beside them; no experiment is repeated.

    python benchmarks/figures.py                   # all
    python benchmarks/figures.py leaders robust    # some; --list prints their names

Pictures of flocks are drawn from flights of one step, and Fig. 1 from two of 0.6 s, which are simulated in a
temporary directory. docs/media/sweep.csv is what the command of docs/cluster.md writes.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from equiflock._runtime.provenance import write_config
from equiflock.evaluation.benchmark import LoopTiming, draw_bench
from equiflock.evaluation.sweep import draw_sweep
from equiflock.paper.profile import PROFILES
from equiflock.paper.report_flights import save_report_flights
from equiflock.paper.reproduction_report import draw_figures

DOCS = Path(__file__).parent.parent / "docs"
TABLES = "training", "connectivity", "flocking", "leaders", "obstacles", "generalization"


def draw_reproduction(names: Sequence[str]) -> None:
    """Draw the figures of the paper's experiments of these names from the tables in docs/reproduction."""
    tables = {name: pd.read_csv(DOCS / "reproduction" / f"{name}.csv") for name in TABLES}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        profile = PROFILES["paper"]
        write_config(folder, "reproduction", profile.settings)
        save_report_flights(profile, folder, tables, films=False)
        for path in draw_figures(tables, folder):
            target = DOCS / ("media" if path.stem == "training" else "reproduction") / path.name
            if not names or path.stem in names:
                shutil.move(path, target)
                print(target)


def draw_media(names: Sequence[str]) -> None:
    """Draw the figures of sweeps and of the benchmark from the tables in docs/media."""
    media = DOCS / "media"
    for name in ("sweep", "robust"):
        if not names or name in names:
            table = pd.read_csv(media / f"{name}.csv")
            # robust.csv has medians over seeds and flocks.
            table = table if "seed" in table else table.assign(seed=0, flock=0)
            print(draw_sweep(table, "ivv", media / f"{name}.png"))
    if not names or "performance" in names:
        rows = pd.read_csv(media / "performance.csv").to_dict("records")
        bounds = [float(row.pop("least")) for row in rows]
        timings = [LoopTiming(**{str(key): value for key, value in row.items()}, costs={}) for row in rows]
        print(draw_bench(timings, bounds, media / "performance.png"))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Draw the figures of the documentation again from their tables.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to draw; by default all")
    names = parser.parse_args(arguments).names
    media = {"sweep", "robust", "performance"}
    if not names or set(names) & media:
        draw_media(names)
    if not names or set(names) - media:
        draw_reproduction(names)


if __name__ == "__main__":
    main()
