"""Comparison of starling with the paper's networks, its expert and other laws: the tables of docs/controller.md.

python benchmarks/starling.py                    # all tables, about 40 minutes on two cores
python benchmarks/starling.py leaders obstacles  # some tables
python benchmarks/starling.py ablation           # first trains starling without one ingredient at a time

Every number is the median over the seeds of a network, each with 50 test flocks. Results are stored in runs/controller
and runs/ablation; an interrupted comparison continues from there.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import equiflock as ef
from equiflock._runtime.executors import run_jobs
from equiflock._runtime.jobs import read_results
from equiflock.controllers.loading import has_open_seed
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.job_weights import compute_weights_checksum
from equiflock.scenarios import make_scenario
from equiflock.scenarios.registry import find_failed_flights
from equiflock.simulation import metrics
from equiflock.simulation.flight_jobs import fly

FOLDER = Path("runs/controller")
WORKERS = os.cpu_count() or 1
FLOCKS, SEEDS, ABLATION_SEEDS = 50, 5, 3
NETWORKS = (*PAPER_NETWORKS, "starling")
# The training recipe of starling before tuning, and without one ingredient at a time.
EXPERT, MIXTURE, DENSITIES = "tanner:attraction=0.75:aim=leaders:hold=450", "0.5*flocking+0.5*leaders", "0.6-1.1"
ABLATION = {
    "starling before tuning": ("starling", EXPERT, MIXTURE, DENSITIES),
    "the paper's three channels": ("etdagnn", EXPERT, MIXTURE, DENSITIES),
    "no damping of separating agents": ("starling", EXPERT.replace(":hold=450", ""), MIXTURE, DENSITIES),
    "the paper's potential": ("starling", EXPERT.replace("attraction=0.75:", ""), MIXTURE, DENSITIES),
    "no leaders": ("starling", EXPERT, "flocking", DENSITIES),
    "one density": ("starling", EXPERT, MIXTURE, "1"),
}
TRAINING = ("--learning-rate", "2e-4", "--schedule", "cosine", "--average", "0.95")
ABLATION_DIR = Path("runs/ablation")
EXPERT_LAW = "tanner"
LAWS = ("tanner-dynamic", "reynolds", "cucker-smale-local", "bonding-local")


@dataclass(frozen=True)
class FlightsJob:
    """Flights of one controller in one scenario."""

    # The row of the table does not affect the result.
    row: str = field(repr=False)
    controller: str
    seed: int | None
    scenario: str
    time_step: float
    duration: float
    checksum: str
    flocks: int = FLOCKS

    @property
    def key(self) -> str:
        text = f"{self.scenario}-{self.duration:g}-{self.controller}-{self.seed}"
        return text.translate(str.maketrans(": /", "---"))

    @property
    def labels(self) -> dict[str, Any]:
        return {"row": self.row, "scenario": self.scenario}

    def run(self) -> pd.DataFrame:
        scenario = make_scenario(self.scenario, {"flocks": self.flocks, "split": "test"})
        controller: Any = ef.load(self.controller, **({} if self.seed is None else {"seed": self.seed}))
        record = [metrics.velocity_variance, metrics.minimum_separation]
        if scenario.name == "leaders":
            record.append(metrics.mean_leader_velocity_distance)
        start = scenario.draw()
        run = fly(scenario, start, controller, self.time_step, self.duration, keep_every=None, record=record)
        series, flock = run.series, run.flock()
        numbers = {
            "variance": np.median(series["velocity_variance"][-1]),
            "early_variance": np.median(
                series["velocity_variance"][min(round(0.1 / self.time_step), len(series["velocity_variance"]) - 1)]
            ),
            "separation": np.median(series["minimum_separation"].min(axis=0)),
            "disconnected": (metrics.component_count(flock, run.comm_radius) > 1).mean(),
        }
        if scenario.name == "leaders":
            numbers["MLVD"] = np.median(series["mean_leader_velocity_distance"][-1])
        if scenario.success_outcomes:
            numbers["failures"] = find_failed_flights(scenario, run.outcome).mean()
        return pd.DataFrame([numbers])


SHARES = ("disconnected", "failures")
LARGER_IS_BETTER = ("separation",)


@dataclass(frozen=True)
class Table:
    """Scenarios in columns, controllers in rows."""

    title: str
    columns: dict[str, str]
    """Column title -> scenario."""
    metrics_shown: tuple[str, ...]
    """Metrics in each cell."""
    time_step: float
    duration: float
    rows: dict[str, list[tuple[str, int | None]]]
    """Row title -> controllers with their seeds, over which the row is the median."""
    flocks: int = FLOCKS

    def build_jobs(self) -> list[FlightsJob]:
        return [
            FlightsJob(
                row,
                name,
                seed,
                scenario,
                self.time_step,
                self.duration,
                compute_weights_checksum(name, seed),
                self.flocks,
            )
            for row, controllers in self.rows.items()
            for scenario in self.columns.values()
            for name, seed in controllers
        ]

    def show(self) -> None:
        results = read_results(self.build_jobs(), FOLDER)
        medians = results.groupby(["row", "scenario"])[list(self.metrics_shown)].median()
        print(f"\n{self.title}\n")
        print("| | " + " | ".join(self.columns) + " |\n|---|" + "--:|" * len(self.columns))
        for row in self.rows:
            texts = (
                " / ".join(self._format_cell(medians, row, scenario, metric) for metric in self.metrics_shown)
                for scenario in self.columns.values()
            )
            print(f"| {row} | " + " | ".join(texts) + " |", flush=True)

    def _format_cell(self, medians: pd.DataFrame, row: str, scenario: str, metric: str) -> str:
        """Return a number as text, bold if it is the best among decentralized controllers."""
        swarm = [other for other in self.rows if other != f"`{EXPERT_LAW}`"]
        values = [medians.loc[(other, scenario), metric] for other in swarm]
        best = max(values) if metric in LARGER_IS_BETTER else min(values)
        text, best_text = (
            f"{100 * value:.3g}%" if metric in SHARES else f"{value:.2g}"
            for value in (medians.loc[(row, scenario), metric], best)
        )
        return f"**{text}**" if row in swarm and text == best_text else text


def list_seeds(*names: str) -> dict[str, list[tuple[str, int | None]]]:
    """Return the controllers with their seeds, by row title."""
    return {f"`{name}`": [(name, seed) for seed in (range(SEEDS) if has_open_seed(name) else [None])] for name in names}


def get_ablation_dir(title: str) -> Path:
    """Return the run directory of the trainings of a row of `ABLATION`; its name contains a hash of the recipe."""
    recipe = hashlib.sha256(repr((ABLATION[title], TRAINING)).encode()).hexdigest()[:8]
    name = title.replace("'", "").replace(" ", "-")
    return ABLATION_DIR / f"{name}-{recipe}"


DECENTRALIZED = list_seeds(*LAWS, *NETWORKS)
ALL_CONTROLLERS = list_seeds(EXPERT_LAW) | DECENTRALIZED
ABLATED_CONTROLLERS: dict[str, list[tuple[str, int | None]]] = {
    title: [
        (f"{get_ablation_dir(title)}/{recipe[0]}-{seed}/weights.safetensors", None) for seed in range(ABLATION_SEEDS)
    ]
    for title, recipe in ABLATION.items()
}
UNTUNED = next(iter(ABLATION))
TUNED: dict[str, list[tuple[str, int | None]]] = {"tuned": [("starling", seed) for seed in range(ABLATION_SEEDS)]}
TABLES = {
    "sizes": Table(
        "Velocity variance after 2 s / after 0.1 s, for flocks of N agents",
        {f"N = {n}": f"flocking:agents={n}" for n in (50, 100, 200, 400, 800)},
        ("variance", "early_variance"), 1e-3, 2.0, ALL_CONTROLLERS,
    ),
    "densities": Table(
        "Velocity variance after 2 s, for disks of the paper's radius times a factor",
        {f"{scale:g}": f"flocking:disk_scale={scale:g}" for scale in (0.7, 0.8, 0.9, 1.1)},
        ("variance",), 1e-3, 2.0, ALL_CONTROLLERS,
    ),
    "leaders": Table(
        "Led by two: MLVD after 3 s / disconnected flocks",
        {"leaders": "leaders"}, ("MLVD", "disconnected"), 1e-3, 3.0, DECENTRALIZED,
    ),
    "led": Table(
        "The same with 500 flocks: disconnected after 3 s, at 0.01 s per step",
        {"500 flocks": "leaders"}, ("disconnected",), 1e-2, 3.0, list_seeds(*NETWORKS), flocks=500,
    ),
    "obstacles": Table(
        "Flights past an obstacle that fail",
        {f"{sides} sides": f"obstacles:sides={sides}" for sides in (12, 24, 48, 96)},
        ("failures",), 1e-2, 20.0, DECENTRALIZED,
    ),
    "long": Table(
        "After 60 s: disconnected flocks / velocity variance / smallest separation in flight",
        {"60 s": "flocking"}, ("disconnected", "variance", "separation"), 1e-2, 60.0, ALL_CONTROLLERS,
    ),
    "space": Table(
        "In space (D = 3): velocity variance after 2 s / disconnected flocks",
        {"D = 3": "flocking:dimensions=3"}, ("variance", "disconnected"), 1e-3, 2.0,
        list_seeds(EXPERT_LAW, "tanner-dynamic", "etdagnn", "starling"),
    ),
    "ablation": Table(
        "Without one ingredient: velocity variance after 2 s / after 0.1 s",
        {"N = 100": "flocking:agents=100", "N = 400": "flocking:agents=400", "0.7": "flocking:disk_scale=0.7"},
        ("variance", "early_variance"), 1e-3, 2.0, TUNED | ABLATED_CONTROLLERS,
    ),
    "ablation-led": Table(
        "Without one ingredient: MLVD after 3 s / disconnected flocks",
        {"leaders": "leaders"}, ("MLVD", "disconnected"), 1e-3, 3.0, TUNED | ABLATED_CONTROLLERS,
    ),
    "ablation-obstacles": Table(
        "Before and after the tuning: flights past an obstacle that fail",
        {f"{sides} sides": f"obstacles:sides={sides}" for sides in (24, 48, 96)},
        ("failures",), 1e-2, 20.0, TUNED | {UNTUNED: ABLATED_CONTROLLERS[UNTUNED]},
    ),
}  # fmt: skip


def train_ablations() -> None:
    """Train starling without one ingredient at a time, or continue these trainings."""
    for title, (network, expert, mixture, densities) in ABLATION.items():
        folder = get_ablation_dir(title)
        recipe = f"--controller {network} --expert {expert} --scenario {mixture} --disk-scale {densities}".split()
        recipe += [*TRAINING, "--seeds", f"0-{ABLATION_SEEDS - 1}", "--out", str(folder)]
        options = ["--resume", str(folder)] if folder.exists() else recipe
        subprocess.run([sys.executable, "-m", "equiflock", "train", *options, "--workers", str(WORKERS)], check=True)


def main(names: list[str]) -> None:
    for name in names:
        if name not in TABLES:
            sys.exit(f"a table must be one of {', '.join(TABLES)}; got {name!r}")
    if not names or any(name.startswith("ablation") for name in names):
        train_ablations()
    for name in names or TABLES:
        jobs = TABLES[name].build_jobs()
        print(f"{name}: {len(jobs)} flights of {TABLES[name].flocks} flocks", file=sys.stderr, flush=True)
        run_jobs(jobs, FOLDER, WORKERS, lambda job: print(".", end="", file=sys.stderr, flush=True))
        TABLES[name].show()


if __name__ == "__main__":
    main(sys.argv[1:])
