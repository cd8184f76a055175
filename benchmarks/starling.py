"""Comparison of starling with the paper's networks, its expert and other laws: the tables of docs/controller.md.

python benchmarks/starling.py                    # all tables, about an hour on two cores
python benchmarks/starling.py rates leaders      # some tables
python benchmarks/starling.py --out FILE.md      # also write the tables to a file

Every number is a median over the seeds of a network and the test flocks, or a share of them, with its 95% interval. The
flocks are those of `equiflock reproduce`. Results are stored in runs/controller; an interrupted comparison continues
from there. The row "etdagnn, starling's recipe" is shown once `make baseline` has trained and tuned it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import equiflock as ef
from equiflock._runtime.executors import run_jobs
from equiflock._runtime.jobs import read_results
from equiflock.controllers.gain_schedule import compute_gain
from equiflock.controllers.loading import has_open_seed
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.flight_statistics import format_estimate, is_share, summarize_flights
from equiflock.evaluation.job_weights import compute_weights_checksum, load_with_seed
from equiflock.scenarios import make_scenario
from equiflock.scenarios.registry import find_failed_flights
from equiflock.simulation import metrics
from equiflock.simulation.environment import Environment
from equiflock.simulation.flight_jobs import fly

FOLDER = Path("runs/controller")
WORKERS = os.cpu_count() or 1
FLOCKS, SEEDS = 50, 5
EXPERTS = ("tanner", "tanner-bounded")
# The paper's network, trained and tuned as starling is. Past obstacles it flies with one other set of weights.
FAIR = "etdagnn, starling's recipe"
FAIR_WEIGHTS = "runs/starling/baseline-tuned/etdagnn-{seed}/weights.safetensors"
FAIR_OBSTACLE_WEIGHTS = "runs/starling/baseline-near/weights.safetensors"
# A lossy, late radio and a limited body.
HARD = {"packet_loss": 0.2, "delay": 1, "max_acceleration": 30.0}


@dataclass(frozen=True)
class Column:
    """Flights of one column of a table."""

    scenario: str
    time_step: float
    duration: float
    flocks: int = FLOCKS
    environment: tuple[tuple[str, float], ...] = ()
    """Options of `Environment.from_options`."""
    gain_factor: float = 1.0
    """Further factor on the accelerations."""


@dataclass(frozen=True)
class FlightsJob:
    """Flights of one controller in one column."""

    # Titles do not affect the result.
    row: str = field(repr=False)
    column: str = field(repr=False)
    controller: str
    seed: int | None
    flights: Column
    checksum: str

    @property
    def key(self) -> str:
        text = f"{self.flights.scenario}-{self.flights.time_step:g}-{self.controller}-{self.seed}"
        return text.translate(str.maketrans(": /", "---"))

    @property
    def labels(self) -> dict[str, Any]:
        return {"row": self.row, "column": self.column, "seed": self.seed, "controller": self.controller}

    def run(self) -> pd.DataFrame:
        """Return a row per flock: variances, effort, separation, and how the flight ended."""
        column = self.flights
        scenario = make_scenario(column.scenario, flocks=column.flocks)
        controller: Any = load_with_seed(self.controller, self.seed)
        if column.gain_factor != 1.0:
            controller = controller.scale_output(compute_gain(controller, column.time_step) * column.gain_factor)
        record = [metrics.velocity_variance, metrics.minimum_separation, metrics.mean_acceleration_norm]
        record.append(metrics.peak_acceleration_norm)
        if scenario.name == "leaders":
            record.append(metrics.mean_leader_velocity_distance)
        environment = Environment.from_options(**dict(column.environment))
        run = fly(
            scenario,
            scenario.draw(),
            controller,
            column.time_step,
            column.duration,
            environment,
            keep_every=None,
            record=record,
        )
        return _measure(run, scenario)


def _measure(run: ef.Trajectory, scenario: Any) -> pd.DataFrame:
    """Return the numbers of every flock's flight."""
    series, flock = run.series, run.flock()
    variance, acceleration = series["velocity_variance"], series["mean_acceleration_norm"]
    disconnected = metrics.component_count(flock, run.comm_radius) > 1
    half_second = max(round(0.5 / run.time_step), 1)
    numbers = {
        "flock": np.arange(len(disconnected)),
        "variance": variance[-1],
        "connected_variance": np.where(disconnected, np.nan, variance[-1]),
        "early_variance": variance[min(round(0.1 / run.time_step), len(variance) - 1)],
        "residual": acceleration[-1 - half_second : -1].mean(axis=0),
        "peak": series["peak_acceleration_norm"].max(axis=0),
        "separation": series["minimum_separation"].min(axis=0),
        "disconnected": disconnected.astype(float),
    }
    if scenario.name == "leaders":
        numbers["MLVD"] = series["mean_leader_velocity_distance"][-1]
    if scenario.success_outcomes:
        numbers["failed"] = find_failed_flights(scenario, run.outcome).astype(float)
    return pd.DataFrame(numbers)


LARGER_IS_BETTER = ("separation",)


@dataclass(frozen=True)
class Table:
    """Flights in columns, controllers in rows."""

    title: str
    columns: dict[str, Column]
    metrics_shown: tuple[str, ...]
    """Metrics, one table each if there are several."""
    rows: dict[str, list[tuple[str, int | None]]]
    """Row title -> controllers with their seeds."""

    def build_jobs(self) -> list[FlightsJob]:
        return [
            FlightsJob(row, title, name, seed, column, compute_weights_checksum(name, seed))
            for row, controllers in self.rows.items()
            for title, column in self.columns.items()
            for name, seed in controllers
        ]

    def format(self) -> str:
        """Return the tables as Markdown."""
        flights = read_results(self.build_jobs(), FOLDER)
        summary = summarize_flights(
            flights, by=["row", "column"], metrics=self.metrics_shown, trainings=("controller", "seed")
        )
        lines = [f"**{self.title}**"]
        for metric in self.metrics_shown:
            cells = {(each.row, each.column): each for each in summary[summary.metric == metric].itertuples()}
            if len(self.metrics_shown) > 1:
                lines += ["", f"*{TITLES[metric]}*"]
            lines += ["", "| | " + " | ".join(self.columns) + " |", "|---|" + "--:|" * len(self.columns)]
            lines += [
                f"| {row} | " + " | ".join(self._format_cell(cells, row, column) for column in self.columns) + " |"
                for row in self.rows
            ]
        return "\n".join(lines)

    def _format_cell(self, cells: dict[tuple[str, str], Any], row: str, column: str) -> str:
        """Return a number and its interval; bold if it is better than those of all others that a swarm can run."""
        own = cells[row, column]
        others = [cells[other, column] for other in self.rows if other != row and not _is_expert(other)]
        text = _format_estimate(own)
        if _is_expert(row) or not others or own.n == 0:
            return text
        is_best = all(
            other.n == 0
            or (
                own.interval_low > other.interval_high
                if own.metric in LARGER_IS_BETTER
                else own.interval_high < other.interval_low
            )
            for other in others
        )
        return f"**{text}**" if is_best else text


def _format_estimate(row: Any) -> str:
    """Return value and interval of a row of `summarize_flights` with two figures; "-" if there are no flocks."""
    if row.n == 0:
        return "-"
    if is_share(row.metric):
        return format_estimate(row)
    numbers = row.median, row.interval_low, row.interval_high
    value, low, high = (f"{number:.2g}" if number < 100 else f"{number:.0f}" for number in numbers)
    return value if low == value == high else f"{value} ({low}, {high})"


TITLES = {
    "variance": "final velocity variance",
    "connected_variance": "final velocity variance of the flocks that stay connected",
    "early_variance": "velocity variance after 0.1 s",
    "residual": "residual acceleration: mean |a| in the last half second",
    "peak": "peak acceleration",
    "separation": "smallest separation in flight",
    "disconnected": "disconnected flocks",
    "MLVD": "mean distance from the leaders' velocity at the end",
    "failed": "flights that fail",
}


def _is_expert(row: str) -> bool:
    """Return whether a row is a centralized expert, which no swarm can run."""
    return row.strip("`") in EXPERTS


def list_seeds(*names: str, fair_weights: str = FAIR_WEIGHTS) -> dict[str, list[tuple[str, int | None]]]:
    """Return the controllers with their seeds, by row title; `fair_weights` are those of the row `FAIR`."""
    rows: dict[str, list[tuple[str, int | None]]] = {}
    for name in names:
        if name == FAIR:
            # Weights that do not depend on the seed fly once.
            paths = dict.fromkeys(fair_weights.format(seed=seed) for seed in range(SEEDS))
            # Without `make baseline` the row is left out.
            if all(Path(path).exists() for path in paths):
                rows[FAIR] = [(path, seed) for seed, path in enumerate(paths)]
        else:
            rows[f"`{name}`"] = [(name, seed) for seed in (range(SEEDS) if has_open_seed(name) else [None])]
    return rows


NETWORKS = (*PAPER_NETWORKS, FAIR, "starling")
ALL_CONTROLLERS = list_seeds(*EXPERTS, "reynolds", "tdagnn-tf", "tdagnn-tf-mean", "etdagnn", FAIR, "starling")
RATED = list_seeds("tanner-bounded", "etdagnn", FAIR, "starling")
SIZES, TIME_STEPS = (5, 12, 25, 50, 100, 400, 1600), (0.005, 0.01, 0.02, 0.03, 0.05)


def _count_flocks(agents: int) -> int:
    """Return the number of flocks: fewer of large ones, which vary less from flock to flock."""
    return {400: 20, 1600: 10}.get(agents, FLOCKS)


def _make_sizes(
    time_step: float, gain_factor: float = 1.0, sizes: tuple[int, ...] = SIZES, **environment: float
) -> dict[str, Column]:
    """Return a column per flock size, for flights of 4 s."""
    options = tuple(environment.items())
    return {
        f"N = {agents:,}": Column(
            f"flocking:agents={agents}", time_step, 4.0, _count_flocks(agents), options, gain_factor
        )
        for agents in sizes
    }


TABLES = {
    "sizes": Table(
        "Flocks of N agents after 2 s, 0.001 s per step",
        {
            f"N = {n}": Column(f"flocking:agents={n}", 1e-3, 2.0, 20 if n == 800 else FLOCKS)
            for n in (50, 100, 200, 400, 800)
        },
        ("variance", "early_variance"), ALL_CONTROLLERS,
    ),
    "densities": Table(
        "Final velocity variance after 2 s, 0.001 s per step, for disks of the paper's radius times a factor",
        {f"{scale:g}": Column(f"flocking:disk_scale={scale:g}", 1e-3, 2.0) for scale in (0.7, 0.8, 0.9, 1.1)},
        ("variance",), ALL_CONTROLLERS,
    ),
    **{
        f"rate-{time_step:g}": Table(
            f"Sampled every {time_step:g} s, after 4 s",
            _make_sizes(time_step), ("residual", "connected_variance", "disconnected", "peak"), RATED,
        )
        for time_step in TIME_STEPS
    },
    "paper-step": Table(
        "Sampled every 0.001 s, after 4 s",
        _make_sizes(0.001, sizes=(5, 12, 25, 50, 100)), ("disconnected",), list_seeds("etdagnn", "starling"),
    ),
    "margin": Table(
        "starling with its gain times a factor, sampled every 0.02 s: residual acceleration after 4 s",
        {
            f"{factor:g}, N = {agents:,}": Column(
                f"flocking:agents={agents}", 0.02, 4.0, _count_flocks(agents), gain_factor=factor
            )
            for factor in (1.3, 1.6, 2.0) for agents in (12, 100, 1600)
        },
        ("residual",), list_seeds("starling"),
    ),
    "environment": Table(
        "Sampled every 0.02 s, 20% packet loss, one step of delay, |a| <= 30, after 4 s",
        _make_sizes(0.02, 1.0, SIZES, **HARD), ("residual", "connected_variance", "disconnected"), RATED,
    ),
    "leaders": Table(
        "Led by two, after 3 s, 0.001 s per step",
        {"leaders": Column("leaders", 1e-3, 3.0)}, ("MLVD", "disconnected"), list_seeds("reynolds", *NETWORKS),
    ),
    "led": Table(
        "Led by two, after 3 s, 500 flocks",
        {f"{dt:g} s per step": Column("leaders", dt, 3.0, 500) for dt in (0.01, 0.02)},
        ("MLVD", "disconnected"), list_seeds(*NETWORKS),
    ),
    "obstacles": Table(
        "Flights past an obstacle that fail, 0.01 s per step",
        {f"{sides} sides": Column(f"obstacles:sides={sides}", 1e-2, 20.0) for sides in (12, 24, 48)}
        | {"96 sides, 200 flocks": Column("obstacles:sides=96", 1e-2, 20.0, 200)},
        ("failed",),
        list_seeds(
            "reynolds", "tdagnn-tf", "tdagnn-tf-mean", "etdagnn", FAIR, "starling", fair_weights=FAIR_OBSTACLE_WEIGHTS
        ),
    ),
    "long": Table(
        "After 60 s, 0.01 s per step",
        {"60 s": Column("flocking", 1e-2, 60.0)}, ("disconnected", "variance", "separation", "residual"),
        ALL_CONTROLLERS,
    ),
    "space": Table(
        "In space (D = 3), after 2 s",
        {f"{dt:g} s per step": Column("flocking:dimensions=3", dt, 2.0) for dt in (0.001, 0.02)},
        ("variance", "disconnected", "residual"), list_seeds(*EXPERTS, "tanner-dynamic", "etdagnn", FAIR, "starling"),
    ),
}  # fmt: skip


def main(arguments: list[str]) -> None:
    """Fly what is missing, print the tables, and write them to the file of --out."""
    out = None
    if "--out" in arguments:
        at = arguments.index("--out")
        out, arguments = Path(arguments[at + 1]), arguments[:at] + arguments[at + 2 :]
    names = [name for word in arguments for name in TABLES if name == word or name.startswith(f"{word}-")]
    for word in arguments:
        if not any(name == word or name.startswith(f"{word}-") for name in TABLES):
            sys.exit(f"a table must be one of {', '.join(TABLES)}; got {word!r}")
    texts = []
    for name in names or TABLES:
        jobs = TABLES[name].build_jobs()
        print(f"{name}: {len(jobs)} jobs", file=sys.stderr, flush=True)
        run_jobs(jobs, FOLDER, WORKERS, lambda job: print(".", end="", file=sys.stderr, flush=True))
        texts.append(TABLES[name].format())
        print(f"\n{texts[-1]}", flush=True)
    if out is not None:
        out.write_text("\n\n".join(texts) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
