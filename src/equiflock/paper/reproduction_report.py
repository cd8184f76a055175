"""Directory that `equiflock reproduce` writes: tables, ledger, figures like the paper's, films, and report.html."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock._runtime.files import atomic_write
from equiflock._runtime.provenance import read_package_versions
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.curves import Curves, build_measure_panels
from equiflock.paper import generalization_experiment
from equiflock.paper.connectivity_experiment import LAW, NETWORK
from equiflock.paper.flocking_experiment import EFFORT, VARIANCE
from equiflock.paper.leader_experiment import DISTANCE
from equiflock.paper.ledger import CHECK_COLUMNS, Verdict, list_checks, write_checks, write_ledger
from equiflock.paper.obstacle_experiment import build_obstacle_panels, format_failures_without_orbit
from equiflock.paper.report_flights import DRAWN_SIDES, FILMS, load_report_flight
from equiflock.paper.reproduction import Reproduction
from equiflock.paper.training_experiment import build_training_panels
from equiflock.plotting.curve_panel import CurvePanel
from equiflock.plotting.figures import draw_panels
from equiflock.plotting.film import film
from equiflock.plotting.html_report import Chip, HtmlReport, Kind
from equiflock.plotting.player.embedding import FlightChoice
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

PanelBuilder = Callable[[pd.DataFrame], list[CurvePanel]]
KINDS: Mapping[Verdict, Kind] = {"holds": "holds", "partly": "partly", "does not": "fails"}
"""Kind of chip of each verdict."""


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
        if experiment == "connectivity":
            drawings["connectivity.png"] = _draw_connectivity
        for name, build in PANELS.get(experiment, {}).items():
            drawings[name] = partial(_draw_table, build, table)
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


def _draw_table(build: PanelBuilder, table: pd.DataFrame, path: Path) -> Path:
    """Draw the panels that are built from a table."""
    return draw_panels(build(table), path)


def _build_flocking_panels(table: pd.DataFrame, metric: str) -> list[CurvePanel]:
    """Return a panel for each flock size: quartiles over flocks of one metric over time, for every controller."""
    curves = Curves(table)
    panels = []
    for agents in sorted(int(n) for n in table.agents.unique()):
        lines = {name: curves.quartiles(name, metric=metric, agents=agents) for name in table.controller.unique()}
        panels.append(CurvePanel(curves.x, "time (s)", metric.replace("_", " "), lines, title=f"N = {agents}"))
    return panels


def _draw_connectivity(path: Path) -> Path:
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


PANELS: Mapping[str, Mapping[str, PanelBuilder]] = {
    "training": {"training.png": build_training_panels},
    "flocking": {
        "flocking-variance.png": partial(_build_flocking_panels, metric=VARIANCE),
        "flocking-acceleration.png": partial(_build_flocking_panels, metric=EFFORT),
    },
    "leaders": {"leaders.png": partial(build_measure_panels, measures=(DISTANCE, EFFORT))},
    "obstacles": {"obstacles.png": build_obstacle_panels},
    "generalization": generalization_experiment.PANELS,
}
"""Functions that build the panels of each experiment from its table, by the file name of the figure."""


def _build_report(
    reproduction: Reproduction, folder: Path, figures: list[Path], filmed: list[str], elapsed_seconds: float
) -> HtmlReport:
    """Return the report: flights that are also filmed, verdict, ledger, figures, bound, checks and settings."""
    profile, statements = reproduction.profile, reproduction.statements
    page = HtmlReport(
        "Reproduction of the paper",
        f"Profile “{profile.name}”: training seeds {', '.join(map(str, profile.seeds))}; {profile.flocks} flocks for "
        f"each number. Interpretation of the paper: {profile.interpretation}.",
    )
    if profile.name != "paper":
        page.add_text("This profile has fewer seeds, flocks and sizes than the paper's experiments.")
    page.assign_series(PAPER_NETWORKS)
    if filmed:
        page.add_heading("Flights")
        page.add_flight_menu(
            [
                FlightChoice(
                    FILMS[name].title, _load_film_flights(name, folder), PAPER_NETWORKS, speed=FILMS[name].speed
                )
                for name in filmed
            ],
            "The same flock under each of the paper's networks (seed 0); also filmed as "
            f"{', '.join(f'{name}.mp4' for name in filmed)}.",
            links=True,
        )
    page.add_heading("Verdict")
    counts = Counter(statement.verdict for statement in statements)
    chips = [Chip(kind, f"{verdict}: {counts[verdict]}") for verdict, kind in KINDS.items() if counts[verdict]]
    if uncertain := sum(statement.is_within_noise for statement in statements):
        chips.append(Chip("open", f"of these within noise: {uncertain}"))
    page.add_verdict(f"{counts['holds']} of {len(statements)} statements of the paper hold.", chips)
    page.add_text(
        "A check compares medians over training seeds by the rule in the third column. A statement holds if all its "
        "checks hold, and partly holds if some do. A verdict is within noise if the 95% intervals over flocks include "
        "the other one."
    )
    page.add_heading("Ledger")
    rows: list[list[str | Chip]] = [
        [s.id, s.text, s.rule, Chip(KINDS[s.verdict], s.marked_verdict), s.details] for s in statements
    ]
    page.add_table(["id", "the paper's statement", "rule", "verdict", "checks that hold"], rows, align_left=True)
    panels = {
        name: build(table)
        for experiment, table in reproduction.tables.items()
        for name, build in PANELS.get(experiment, {}).items()
    }
    for path in figures:
        page.add_heading(HEADINGS[path.name])
        if path.name in panels:
            page.add_charts(panels[path.name], CAPTIONS[path.name])
        else:
            page.add_media([path], CAPTIONS[path.name])
    if "obstacles" in reproduction.tables:
        page.add_heading("Obstacle avoidance without the orbit technique")
        page.add_table(*format_failures_without_orbit(reproduction.tables["obstacles"]))
        page.add_caption("Share of flights that fail by sides of the obstacle: median [range] over training seeds.")
    if "generalization" in reproduction.tables:
        page.add_heading("Generalization: the bound and its terms at the last epoch")
        page.add_table(*generalization_experiment.format_bound_rows(reproduction.tables["generalization"]))
        page.add_caption("Medians over training seeds. The paper prints 3 L + 1 where its proof gives 3 (L + 1).")
    page.add_heading("Checks")
    place = CHECK_COLUMNS.index("verdict")
    all_checks = [check for each in statements for check in (*each.checks, *each.further_checks)]
    checks: list[list[str | Chip]] = [
        [*row[:place], Chip("holds" if check.holds else "fails", row[place]), *row[place + 1 :]]
        for row, check in zip(list_checks(statements), all_checks, strict=True)
    ]
    page.add_table(["id", *CHECK_COLUMNS[1:]], checks, align_left=True)
    page.add_settings(
        {
            "profile": profile.settings,
            "versions": read_package_versions("torch"),
            "duration of the last run (s)": round(elapsed_seconds, 1),
        }
    )
    return page
