"""`equiflock demo`: trains a network, compares it with other controllers on unseen flocks, and writes a report."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import VersionMismatchError
from equiflock._runtime.files import atomic_write, check_writable
from equiflock._runtime.imports import require_torch
from equiflock._runtime.provenance import collect_versions
from equiflock.cli.interrupts import StopRequest
from equiflock.cli.terminal import TrainingProgress, out, print_paths, print_table, progress
from equiflock.controllers import load
from equiflock.controllers.networks.weights import write_weights
from equiflock.evaluation.summary import RECORDED_METRICS, summarize
from equiflock.flock import Flock
from equiflock.learning.recipe import DAgger
from equiflock.learning.run_directory import RunConfig, is_training, read_reports
from equiflock.learning.training_run import TrainingRun
from equiflock.learning.validation import Validation
from equiflock.plotting.curve_panel import CurvePanel, compute_quartiles
from equiflock.plotting.film import compute_window_width, film
from equiflock.plotting.html_report import Chip, HtmlReport, Kind
from equiflock.protocols import Controller, Moment
from equiflock.scenarios import RandomDisk
from equiflock.simulation.simulate import count_steps, simulate
from equiflock.simulation.trajectory import Trajectory

if TYPE_CHECKING:
    from equiflock.learning.validation import EpochReport

STUDENT = "etdagnn"
CONTROLLERS = ("tanner", STUDENT, "tdagnn", "tanner-dynamic")
LABELS = {
    "tanner": "tanner (the expert)",
    STUDENT: f"{STUDENT} (just trained)",
    "tdagnn": "tdagnn (bundled)",
    "tanner-dynamic": "tanner-dynamic",
}
RECIPE = DAgger(controller=STUDENT, epochs=120, validate_every=20, checkpoint_every=20)
DURATION, TIME_STEP = 2.0, 0.01
REPORT_FILE = "report.html"
WEIGHTS_FILE = f"{STUDENT}.safetensors"
OLD_FILES = "training.png", "curves.png"
"""Files of earlier versions' demonstrations, which are replaced, too."""
TRAINING_DIR = "demo-training"
"""Subdirectory of the training while the demonstration runs; absent from the finished directory."""


@dataclass(frozen=True)
class Demo:
    """Train a network, test it on unseen flocks beside other controllers, and write films and a report."""

    out: Path = Path("runs/demo")
    """Directory to write; replaces a finished demonstration and resumes an interrupted one."""
    flocks: int = 50
    """Number of test flocks, B."""
    agents: int = 100
    """Number of agents in a flock, N."""
    seed: int = 0
    """Seed of the test flocks and of the training."""
    epochs: int = RECIPE.epochs
    """Training epochs; the package's weights were trained for 400."""

    def run(self) -> None:
        """Train, test, write the demonstration, and print the comparison and the paths of report, weights and films."""
        require_torch("demo")
        check_demo_dir(self.out)
        disk = RandomDisk(self.flocks, self.agents, self.seed)
        # Validate a very short training at its end.
        validate_every = min(RECIPE.validate_every, self.epochs)
        recipe = replace(RECIPE, epochs=self.epochs, seed=self.seed, agents=self.agents, validate_every=validate_every)
        steps = count_steps(DURATION, TIME_STEP)
        with progress("loss", "IVV", "IMAN") as bar:
            # All bars are shown from the start, so that the user sees all stages.
            training = TrainingProgress(bar, recipe)
            flight_tasks = {name: bar.add_task(f"flying under {name}", total=steps) for name in CONTROLLERS}
            film_tasks = {name: bar.add_task(f"filming {name}", total=None) for name in CONTROLLERS}

            def on_step(name: str, moment: Moment) -> None:
                bar.update(flight_tasks[name], completed=moment.step)

            def on_frame(name: str, done: int, total: int) -> None:
                bar.update(film_tasks[name], completed=done, total=total)

            # Ctrl-C stops the training at a checkpoint. `demonstrate` only reads the results of the finished training.
            training_dir = self.out / TRAINING_DIR
            with StopRequest(
                lambda: training.print_notice(f"{training.stop_message}; the same command resumes the training")
            ) as stop_request:
                resume_or_create_training(training_dir, recipe).train(
                    training.show_epoch, training.print_notice, should_stop=stop_request
                )
            demonstration = demonstrate(disk, recipe, on_step=on_step, training=training_dir)
            files = write_demo(demonstration, self.out, on_frame)
        print_table(
            f"{self.flocks} unseen flocks of {self.agents} agents for {DURATION:g} s: integrals of velocity variance "
            "(IVV) and mean acceleration norm (IMAN)",
            *(format_short_comparison(demonstration, quartiles) for quartiles in (True, False)),
        )
        out.print(
            f"In {len(demonstration.contrasting_flocks)} of {self.flocks} flocks the trained network keeps the "
            "communication graph connected, while the classical decentralized law ends with a disconnected graph."
        )
        print_paths(files)


@dataclass(frozen=True)
class Demonstration:
    """Results of the demonstration."""

    recipe: DAgger
    network: Controller
    epochs: tuple[EpochReport, ...]
    expert: Validation
    """The expert's result on the validation flocks."""
    start: Flock
    """Initial conditions of the test, the same for all controllers."""
    runs: Mapping[str, Trajectory]
    """Flights by controller name."""

    def find_disconnected(self, controller: str) -> Bool[np.ndarray, " B"]:
        """Return a mask of the flocks that are disconnected at the end."""
        return np.asarray(self.runs[controller].series["component_count"][-1] > 1)

    @property
    def contrasting_flocks(self) -> list[int]:
        """Flocks that the student keeps connected at every step and that end disconnected under `tanner-dynamic`."""
        always_connected = (self.runs[STUDENT].series["component_count"] == 1).all(axis=0)
        return np.flatnonzero(always_connected & self.find_disconnected("tanner-dynamic")).tolist()


def resume_or_create_training(folder: Path, recipe: DAgger) -> TrainingRun:
    """Return the training in `folder` if it has this recipe and these versions; else replace it by a new one.

    Raise VersionMismatchError if another format version wrote it; then nothing is removed.
    """
    try:
        run = TrainingRun(folder)
        if run.config == RunConfig(recipe, collect_versions("torch")):
            return run
    except VersionMismatchError:
        raise
    except InputError:
        pass  # missing or damaged
    return TrainingRun.create(folder, recipe, force=True)


def demonstrate(
    disk: RandomDisk,
    recipe: DAgger = RECIPE,
    duration: float = DURATION,
    on_epoch: Callable[[EpochReport], object] | None = None,
    on_step: Callable[[str, Moment], object] | None = None,
    training: Path | None = None,
) -> Demonstration:
    """Train, then fly the flocks of `disk` under each of `CONTROLLERS`, one after another in this process.

    `training` is the run directory, where a training with the same recipe is continued; by default a temporary one.
    `on_epoch` is called for every epoch trained by this call, `on_step` with the controller's name and every moment.
    """
    # Reports are read from the run directory, which includes epochs of earlier processes.
    with tempfile.TemporaryDirectory() as elsewhere:
        run = resume_or_create_training(training or Path(elsewhere) / "training", recipe)
        run.train(on_epoch)
        # Training does not repair tables that were changed after the checkpoints were removed.
        if not run.is_finished:
            raise InputError(f"the tables in {run.folder} were changed or are damaged: remove it to train again")
        network = load(run.weights)
        epochs, expert = read_reports(run.folder)
    start = disk.draw()
    runs = {
        name: simulate(
            start,
            network if name == STUDENT else load(name),
            time_step=TIME_STEP,
            duration=duration,
            record=RECORDED_METRICS,
            on_step=partial(on_step, name) if on_step is not None else None,
            config={"controller": LABELS[name], "start": asdict(disk)},
        )
        for name in CONTROLLERS
    }
    return Demonstration(recipe, network, epochs, expert, start, runs)


def format_comparison(demonstration: Demonstration) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table that compares the controllers: a row per metric, a column per controller."""
    columns = [summarize(run) for run in demonstration.runs.values()]
    rows = [[cells[0].name, *(cell.text for cell in cells)] for cells in zip(*columns, strict=True)]
    counts = [f"{demonstration.find_disconnected(name).sum()} of {len(demonstration.start)}" for name in CONTROLLERS]
    rows.append(["flocks disconnected at the end", *counts])
    return ["median (quartiles)", *(LABELS[name] for name in demonstration.runs)], rows


def format_short_comparison(
    demonstration: Demonstration, show_quartiles: bool = True
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a table that fits a terminal: a row per controller, optionally with quartiles."""
    count = len(demonstration.start)
    rows = []
    for name, run in demonstration.runs.items():
        cells = [row.text if show_quartiles else row.median for row in summarize(run)[:3]]
        rows.append([LABELS[name], *cells, f"{demonstration.find_disconnected(name).sum()} of {count}"])
    statistic = "median (quartiles)" if show_quartiles else "median"
    return [f"{statistic}\nover flocks", "IVV", "IMAN", "variance\nat end", "discon-\nnected"], rows


def check_demo_dir(folder: Path) -> None:
    """Raise InputError if `folder` cannot be written or contains anything but a demonstration, even unfinished."""
    check_writable(folder)
    flight_files = {f"{name}{kind}" for name in CONTROLLERS for kind in (".mp4", ".zarr")}
    own_files = {REPORT_FILE, WEIGHTS_FILE, *OLD_FILES, *flight_files}
    if is_training(folder / TRAINING_DIR):
        own_files.add(TRAINING_DIR)
    if folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} <= own_files):
        raise InputError(f"{folder} contains other files: choose another directory with --out")


def write_demo(
    demonstration: Demonstration, folder: Path, on_frame: Callable[[str, int, int], object] | None = None
) -> list[Path]:
    """Write `folder`, replacing an earlier demonstration, and return the paths of report, weights and films.

    Films show the first flock that the trained network keeps connected and `tanner-dynamic` does not, or flock 0 if
    there is none. `on_frame` is called with (controller, frames drawn, total frames).
    """
    check_demo_dir(folder)
    film_flock = demonstration.contrasting_flocks[0] if demonstration.contrasting_flocks else 0
    window = compute_window_width([run[film_flock] for run in demonstration.runs.values()])
    with atomic_write(folder, replace_folder=True) as scratch:
        scratch.mkdir()
        write_weights(demonstration.network, scratch / WEIGHTS_FILE, {"command": demonstration.recipe.command})
        films = []
        for name, run in demonstration.runs.items():
            progress = partial(on_frame, name) if on_frame is not None else None
            films.append(film([run], scratch / f"{name}.mp4", flock=film_flock, window=window, on_frame=progress))
            run.save(scratch / f"{name}.zarr")
        _build_report(demonstration, film_flock).write(scratch / REPORT_FILE)
    return [folder / name for name in (REPORT_FILE, WEIGHTS_FILE, *(path.name for path in films))]


def _build_report(demonstration: Demonstration, shown_flock: int) -> HtmlReport:
    """Return the report: flights of one flock, verdict, test, training, curves and settings."""
    header, rows = format_comparison(demonstration)
    B, N, _ = demonstration.start.shape
    epochs, contrasts = demonstration.recipe.epochs, len(demonstration.contrasting_flocks)
    page = HtmlReport(
        "Imitation learning of a decentralized flocking controller",
        f"An ETDAGNN of 416 weights, trained from random weights for {epochs} epochs, and tested on {B} unseen flocks "
        f"of {N} agents.",
    )
    page.assign_series(demonstration.runs)
    page.add_player(
        list(demonstration.runs.values()),
        f"Flock {shown_flock} under each controller. Agents are coloured by direction of flight; lines: communication "
        "graph. Point at a curve to read it, click it to enlarge it.",
        flock=shown_flock,
        titles=[LABELS[name] for name in demonstration.runs],
        links=True,
    )
    page.add_verdict(
        f"In {contrasts} of {B} flocks the trained network keeps the communication graph connected throughout the "
        "flight, while the classical law ends with a disconnected graph."
        if contrasts
        else "There is no flock that the trained network keeps connected and the classical law does not.",
        [_make_connection_chip(demonstration, name) for name in demonstration.runs],
    )
    page.add_text(
        "“tanner”, the expert, uses the states of all agents: a swarm without a central computer cannot run it. The "
        "other controllers are decentralized: each agent uses only messages from neighbours within the communication "
        f"radius. “etdagnn” was just trained for {epochs} epochs, “tdagnn” comes with the package and was trained for "
        "400, and “tanner-dynamic” is the classical law. Above flies "
        + (
            f"flock {shown_flock} (counted from 0), the first in which the two differ."
            if contrasts
            else f"flock {shown_flock} (counted from 0)."
        )
    )
    page.add_heading("Test")
    page.add_table(header, rows)
    page.add_heading("Over time")
    page.add_charts(_build_flight_panels(demonstration), "Median over flocks (line) and interquartile range (band).")
    page.add_heading("Training")
    page.add_charts(
        _build_training_panels(demonstration),
        "Loss by epoch; IVV and IMAN on the validation flocks, median and interquartile range, beside the expert's.",
    )
    training_settings = {"training": demonstration.recipe.command, "recipe": demonstration.recipe.settings}
    flight_settings = {**demonstration.runs[STUDENT].config, "controller": ", ".join(demonstration.runs)}
    page.add_settings({**training_settings, **flight_settings})
    return page


def _make_connection_chip(demonstration: Demonstration, controller: str) -> Chip:
    """Return how many flocks are connected at the end: all, some or none."""
    B = len(demonstration.start)
    connected = B - int(demonstration.find_disconnected(controller).sum())
    kind: Kind = "holds" if connected == B else "partly" if connected else "fails"
    return Chip(kind, f"{LABELS[controller]}: {connected} of {B} connected")


def _build_training_panels(demonstration: Demonstration) -> list[CurvePanel]:
    """Return three panels by epoch: the loss, and on validation flocks IVV and IMAN, quartiles beside the expert's."""
    epochs = np.array([report.epoch for report in demonstration.epochs])
    losses = np.array([[report.loss for report in demonstration.epochs]] * 3)
    panels = [CurvePanel(epochs, "epoch", "loss", {STUDENT: losses})]
    validated = [report for report in demonstration.epochs if report.validation is not None]
    validated_epochs = np.array([report.epoch for report in validated])
    for name, label in (("ivv", "IVV (validation)"), ("iman", "IMAN (validation)")):
        values = np.stack([getattr(report.validation, name) for report in validated])
        # The expert is validated once and drawn as a horizontal line.
        expert = np.repeat(getattr(demonstration.expert, name)[None], len(validated), axis=0)
        curves = {"tanner": compute_quartiles(expert), STUDENT: compute_quartiles(values)}
        panels.append(CurvePanel(validated_epochs, "epoch", label, curves))
    return panels


def _build_flight_panels(demonstration: Demonstration) -> list[CurvePanel]:
    """Return panels of velocity variance and mean acceleration norm over time: quartiles over flocks by controller."""
    panels = []
    for series in ("velocity_variance", "mean_acceleration_norm"):
        curves = {name: compute_quartiles(run.series[series]) for name, run in demonstration.runs.items()}
        times = demonstration.runs[STUDENT].times
        panels.append(CurvePanel(times, "time (s)", series.replace("_", " "), curves))
    return panels
