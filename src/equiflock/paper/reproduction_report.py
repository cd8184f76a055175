"""Directory that `equiflock reproduce` writes: tables, ledger, figures like the paper's, films, and report.html."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock._runtime.files import atomic_write
from equiflock._runtime.provenance import read_package_versions
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.curves import Curves, draw_measure_curves
from equiflock.paper import generalization_experiment
from equiflock.paper.connectivity_experiment import LAW, NETWORK
from equiflock.paper.flocking_experiment import EFFORT, VARIANCE
from equiflock.paper.leader_experiment import DISTANCE
from equiflock.paper.ledger import CHECK_COLUMNS, list_checks, write_checks, write_ledger
from equiflock.paper.obstacle_experiment import draw_obstacles, format_failures_without_orbit
from equiflock.paper.report_flights import DRAWN_SIDES, FILMS, load_report_flight
from equiflock.paper.reproduction import Reproduction
from equiflock.paper.training_experiment import draw_training
from equiflock.plotting.figures import CurvePanel, draw_panels
from equiflock.plotting.film import film
from equiflock.plotting.html_report import HtmlReport
from equiflock.plotting.snapshots import draw_snapshots
from equiflock.simulation.trajectory import Trajectory

HEADINGS = {
    "training.png": "Training",
    "connectivity.png": "Fig. 1: connectivity",
    "flocking-variance.png": "Flocking: velocity variance",
    "flocking-acceleration.png": "Flocking: acceleration",
    "leaders.png": "Leader following",
    "obstacles.png": "Obstacle avoidance with the orbit technique",
    "generalization-losses.png": "Generalization: losses",
    "generalization-bound.png": "Generalization: bound and gap",
    "generalization-terms.png": "Generalization: the terms of the bound",
    "generalization-correlation.png": "Generalization: correlation of bound and gap",
    "flocks.png": "Initial conditions: flocks",
    "courses.png": "Initial conditions: obstacle courses",
}
CAPTIONS = {
    "training.png": "Training: IVV and IMAN on the validation flocks by epoch.",
    "connectivity.png": "The same flock under Tanner's dynamic-topology law (above) and under TDAGNN (below).",
    "flocking-variance.png": "Flocking: velocity variance over time for flocks of several sizes.",
    "flocking-acceleration.png": "Flocking: mean acceleration norm over time.",
    "leaders.png": "Leader following: mean leader velocity distance and mean acceleration norm over time.",
    "obstacles.png": "Obstacle avoidance with the orbit technique: share of flights that fail, and causes. Bands: "
    "range over training seeds.",
    "generalization-losses.png": "Behaviour cloning: training loss by epoch, and the difference of the test loss. Bars "
    "at the right, here and below: range over training seeds at the last epoch.",
    "generalization-bound.png": "The bound (as proven) and the empirical gap (test loss - training loss) by epoch.",
    "generalization-terms.png": "Terms in which the bounds differ.",
    "generalization-correlation.png": "Bound and gap, standardized over epochs (mean 0, standard deviation 1); ρ is "
    "their correlation, median [range] over training seeds.",
    "flocks.png": "Initial conditions: three flocks of the RandomDisk set.",
    "courses.png": "Initial conditions: three obstacle courses of 12, 48 and 96 sides.",
}


def write_reproduction(
    reproduction: Reproduction,
    folder: Path,
    elapsed_seconds: float,
    with_films: bool,
    on_file: Callable[[str], object] = lambda name: None,
) -> list[Path]:
    """Write tables, ledger, figures, films and the report; return the paths of the report and the ledger.

    Figures and films are drawn from the flights that `reproduce` saved in the folder. `on_file` is called with the name
    of each figure and film before it is drawn.
    """
    # Tables and ledger, the results, come first, so that they exist even if drawing fails.
    for name, table in reproduction.tables.items():
        with atomic_write(folder / f"{name}.csv") as scratch:
            table.to_csv(scratch, index=False, float_format="%.6g")
    write_ledger(reproduction.statements, folder / "ledger.json")
    write_checks(reproduction.statements, folder / "checks.md")
    figures = draw_figures(reproduction.tables, folder, on_file)
    filmed = list(FILMS) if with_films and reproduction.profile.has_networks(reproduction.tables) else []
    for name in filmed:
        on_file(f"{name}.mp4")
        draw_scenario_film(name, folder)
    page = _build_report(reproduction, folder, figures, filmed, elapsed_seconds)
    return [page.write(folder / "report.html"), folder / "ledger.json"]


def draw_figures(
    tables: Mapping[str, pd.DataFrame], folder: Path, on_file: Callable[[str], object] = lambda name: None
) -> list[Path]:
    """Draw the figures of all experiments that have a table, and pictures of initial conditions; return their paths.

    Pictures of flocks are drawn from the flights that `save_report_flights` saved in the folder.
    """
    drawings: dict[str, Callable[[Path], object]] = {}
    for experiment, table in tables.items():
        drawings |= {name: partial(draw, table) for name, draw in FIGURES[experiment].items()}
    drawings |= {"flocks.png": _draw_flocks, "courses.png": _draw_courses}
    for name, draw in drawings.items():
        on_file(name)
        draw(folder / name)
    return [folder / name for name in drawings]


def draw_scenario_film(name: str, folder: Path, **options: Any) -> Path:
    """Film one flock of a scenario under each of the paper's networks, side by side, from the saved flights.

    `options` are arguments of `film` that replace the defaults of this function. Return the path, NAME.mp4 in `folder`.
    """
    runs = _load_film_flights(name, folder)
    # Four panels: lower resolution and frame rate than a film of one panel.
    settings: Any = {"dots_per_inch": 85, "speed": FILMS[name].speed, "frames_per_second": 20, **options}
    return film(runs, folder / f"{name}.mp4", titles=PAPER_NETWORKS, **settings)


def _load_film_flights(name: str, folder: Path) -> list[Trajectory]:
    """Load the saved flights of a film, one for each of the paper's networks."""
    return [load_report_flight(folder, name, network) for network in PAPER_NETWORKS]


def _draw_flocking(metric: str, table: pd.DataFrame, path: Path) -> Path:
    """Draw quartiles over flocks of one metric over time, for every controller: a panel for each flock size."""
    curves = Curves(table)
    panels = []
    for agents in sorted(int(n) for n in table.agents.unique()):
        lines = {name: curves.quartiles(name, metric=metric, agents=agents) for name in table.controller.unique()}
        panels.append(CurvePanel(curves.x, "time (s)", metric.replace("_", " "), lines, title=f"N = {agents}"))
    return draw_panels(panels, path)


def _draw_connectivity(table: pd.DataFrame, path: Path) -> Path:
    """Draw the paper's Fig. 1 from saved flights: one flock at three times, under the classical law and the network."""
    runs = {name: load_report_flight(path.parent, "connectivity", name)[0] for name in (LAW, NETWORK)}
    rows = [[(run, name, step * run.time_step) for step in (0, 27, 53)] for name, run in runs.items()]
    return draw_snapshots(rows, path)


def _draw_flocks(path: Path) -> Path:
    """Draw some flocks of the RandomDisk set at t = 0."""
    start = load_report_flight(path.parent, "flocks")
    return draw_snapshots([[(start[b], f"flock {b}", 0.0) for b in range(len(start.steps))]], path)


def _draw_courses(path: Path) -> Path:
    """Draw an obstacle course of each size at t = 0."""
    courses = {sides: load_report_flight(path.parent, "course", str(sides))[0] for sides in DRAWN_SIDES}
    return draw_snapshots([[(start, f"{sides} sides", 0.0) for sides, start in courses.items()]], path)


FIGURES: Mapping[str, Mapping[str, Callable[[pd.DataFrame, Path], object]]] = {
    "training": {"training.png": draw_training},
    "connectivity": {"connectivity.png": _draw_connectivity},
    "flocking": {
        "flocking-variance.png": partial(_draw_flocking, VARIANCE),
        "flocking-acceleration.png": partial(_draw_flocking, EFFORT),
    },
    "leaders": {"leaders.png": partial(draw_measure_curves, measures=(DISTANCE, EFFORT))},
    "obstacles": {
        "obstacles.png": draw_obstacles,
    },
    "generalization": generalization_experiment.FIGURES,
}
"""Drawing functions of each experiment, by the file name of the figure."""


def _build_report(
    reproduction: Reproduction, folder: Path, figures: list[Path], filmed: list[str], elapsed_seconds: float
) -> HtmlReport:
    """Return the report: ledger, figures, bound, flights that are also filmed, checks and settings."""
    profile = reproduction.profile
    page = HtmlReport(
        "Reproduction of the paper",
        f"Profile “{profile.name}”: training seeds {', '.join(map(str, profile.seeds))}; {profile.flocks} flocks for "
        f"each number. Interpretation of the paper: {profile.interpretation}.",
    )
    if profile.name != "paper":
        page.add_text("This profile has fewer seeds, flocks and sizes than the paper's experiments.")
    page.add_heading("Ledger")
    page.add_text(
        "A check compares medians over training seeds by the rule in the third column. A statement holds if all its "
        "checks hold, and partly holds if some do. A verdict is within noise if the 95% intervals over flocks include "
        "the other one."
    )
    rows = [[s.id, s.text, s.rule, s.verdict, s.details] for s in reproduction.statements]
    page.add_table(["", "the paper's statement", "rule", "verdict", "checks that hold"], rows, align_left=True)
    for path in figures:
        page.add_heading(HEADINGS[path.name])
        page.add_media([path], CAPTIONS[path.name])
    if "obstacles" in reproduction.tables:
        page.add_heading("Obstacle avoidance without the orbit technique")
        page.add_table(*format_failures_without_orbit(reproduction.tables["obstacles"]))
        page.add_text("Share of flights that fail by sides of the obstacle: median [range] over training seeds.")
    if "generalization" in reproduction.tables:
        page.add_heading("Generalization: the bound and its terms at the last epoch")
        page.add_table(*generalization_experiment.format_bound_rows(reproduction.tables["generalization"]))
        page.add_text("Medians over training seeds. The paper prints 3 L + 1 where its proof gives 3 (L + 1).")
    for name in filmed:
        page.add_heading(f"Flights: {FILMS[name].title}")
        page.add_player(
            _load_film_flights(name, folder),
            f"The same flock under each of the paper's networks (seed 0); also filmed as {name}.mp4.",
            titles=PAPER_NETWORKS,
            speed=FILMS[name].speed,
            links=True,
        )
    page.add_heading("Checks")
    page.add_table(CHECK_COLUMNS, list_checks(reproduction.statements), align_left=True)
    page.add_heading("Settings")
    page.add_settings(
        {
            "profile": profile.settings,
            "versions": read_package_versions("torch"),
            "duration of the last run (s)": round(elapsed_seconds, 1),
        }
    )
    return page
