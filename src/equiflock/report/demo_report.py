"""Writes the folder of the demonstration: weights, runs, films, figures and report.html."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from equiflock.controllers.networks.weights import write_weights
from equiflock.experiments.demo import CONTROLLERS, LABELS, STUDENT, Demonstration
from equiflock.experiments.summary import summarize
from equiflock.learning.run_directories import is_training
from equiflock.report.curve_panels import CurvePanel, compute_quartiles, draw_panels
from equiflock.report.film import compute_window_width, film
from equiflock.report.html_report import HtmlReport
from equiflock.runtime.checks import InputError
from equiflock.runtime.files import atomic_write, check_writable

REPORT_FILE = "report.html"
WEIGHTS_FILE = f"{STUDENT}.safetensors"
TRAINING_FIGURE, CURVES_FIGURE = "training.png", "curves.png"
TRAINING_DIR = "demo-training"
"""The folder of the training while the demonstration runs; it is removed when the whole folder is replaced."""


def format_comparison(demonstration: Demonstration) -> tuple[list[str], list[list[str]]]:
    """The table that compares the controllers: header and rows of text."""
    columns = [summarize(run) for run in demonstration.runs.values()]
    rows = [[cells[0].name, *(cell.text for cell in cells)] for cells in zip(*columns, strict=True)]
    count = len(demonstration.start)
    rows.append(
        [
            "flocks that end in pieces",
            *(f"{demonstration.find_disconnected(name).sum()} of {count}" for name in demonstration.runs),
        ]
    )
    return ["median (quartiles)", *(LABELS[name] for name in demonstration.runs)], rows


def format_short_comparison(
    demonstration: Demonstration, show_quartiles: bool = True
) -> tuple[list[str], list[list[str]]]:
    """A table narrow enough for a terminal: a row for each controller, with quartiles over flocks or without."""
    count = len(demonstration.start)
    rows = []
    for name, run in demonstration.runs.items():
        shown = [row.text if show_quartiles else row.median for row in summarize(run)[:3]]
        rows.append([LABELS[name], *shown, f"{demonstration.find_disconnected(name).sum()} of {count}"])
    told = "median (quartiles)" if show_quartiles else "median"
    return [f"{told}\nover flocks", "IVV", "IMAN", "variance\nat end", "in\npieces"], rows


def check_demo_dir(folder: Path) -> None:
    """Raise a clear error, before anything is flown, unless `folder` is new or holds only a demonstration."""
    check_writable(folder)
    ours = {
        REPORT_FILE,
        WEIGHTS_FILE,
        TRAINING_FIGURE,
        CURVES_FIGURE,
        *(f"{name}{kind}" for name in CONTROLLERS for kind in (".mp4", ".zarr")),
    }
    if is_training(folder / TRAINING_DIR):
        ours.add(TRAINING_DIR)
    if folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} <= ours):
        raise InputError(f"{folder} holds something else: choose another folder with --out")


def write_demo(
    demonstration: Demonstration, folder: Path, on_frame: Callable[[str, int, int], object] | None = None
) -> list[Path]:
    """Write everything into `folder`, replacing an earlier demonstration; returns the files to look at."""
    check_demo_dir(folder)
    # The films show a flock on which the controllers differ, if there is one, all in the same window.
    film_flock = demonstration.contrasting_flocks[0] if demonstration.contrasting_flocks else 0
    window = compute_window_width([run[film_flock] for run in demonstration.runs.values()])
    # Everything is written into a scratch folder, which then takes the place of an earlier demonstration.
    with atomic_write(folder, replace_folder=True) as scratch:
        scratch.mkdir()
        write_weights(demonstration.network, scratch / WEIGHTS_FILE, {"command": demonstration.recipe.command})
        films = []
        for name, run in demonstration.runs.items():
            progress = partial(on_frame, name) if on_frame is not None else None
            films.append(film([run], scratch / f"{name}.mp4", flock=film_flock, window=window, on_frame=progress))
            run.save(scratch / f"{name}.zarr")
        training = _draw_training(demonstration, scratch / TRAINING_FIGURE)
        curves = _draw_flight_curves(demonstration, scratch / CURVES_FIGURE)
        _build_report(demonstration, film_flock, films, training, curves).write(scratch / REPORT_FILE)
    return [folder / name for name in (REPORT_FILE, WEIGHTS_FILE, *(path.name for path in films))]


def _build_report(
    demonstration: Demonstration, film_flock: int, films: list[Path], training: Path, curves: Path
) -> HtmlReport:
    """The report: training, test, films, curves and settings."""
    header, rows = format_comparison(demonstration)
    B, N, _ = demonstration.start.shape
    page = HtmlReport(
        "Learned from an expert, flown without one",
        f"An ETDAGNN of 416 weights, trained from nothing for {demonstration.recipe.epochs} epochs, and {B} flocks of {N} "
        "agents that it never saw.",
    )
    page.text(
        "“tanner” knows every agent's velocity: no swarm can run it, but a controller can learn from it. The others "
        "are decentralized: each agent uses only what it hears from neighbours within the communication radius. "
        f"“etdagnn” was just trained for {demonstration.recipe.epochs} "
        "epochs, “tdagnn” came with the package, trained for 400; "
        "“tanner-dynamic” is the classical law."
    )
    page.add_heading("The training")
    page.add_media(
        [training],
        "Loss of every epoch; IVV and IMAN of the validation flocks, median and interquartile range, and the expert's.",
    )
    page.add_heading("The test")
    page.table(header, rows)
    page.text(
        f"In {len(demonstration.contrasting_flocks)} of {B} flocks the network that was just trained keeps the communication graph "
        f"connected all the time while the classical law loses agents for good. The films show flock {film_flock} "
        "(counted from 0), which begins with every agent hearing at least two others."
        if demonstration.contrasting_flocks
        else "In none of these flocks does the trained network keep a connection that the classical law loses."
    )
    page.add_heading("Films")
    page.add_media(films, f"Flock {film_flock}. Orange: agents; blue: velocities; light lines: who hears whom.")
    page.add_heading("Over time")
    page.add_media([curves], "Median over flocks (line) and interquartile range (band).")
    page.add_heading("Settings")
    page.settings(
        {
            "training": demonstration.recipe.command,
            "recipe": demonstration.recipe.settings,
            **_get_flight_settings(demonstration),
        }
    )
    return page


def _get_flight_settings(demonstration: Demonstration) -> dict[str, object]:
    """The settings of the flights, which are the same for all controllers."""
    some = next(iter(demonstration.runs.values()))
    return {**some.config, "controller": ", ".join(demonstration.runs)}


def _draw_training(demonstration: Demonstration, path: Path) -> Path:
    """Loss of every epoch, and IVV and IMAN of those that were validated, beside the expert's."""
    epochs = np.array([report.epoch for report in demonstration.epochs])
    judged = [(report.epoch, report.validation) for report in demonstration.epochs if report.validation is not None]
    at = np.array([epoch for epoch, _ in judged])
    panels = [
        CurvePanel(epochs, "epoch", "loss", {STUDENT: np.array([[report.loss for report in demonstration.epochs]] * 3)})
    ]
    for name, label in (("ivv", "IVV (validation)"), ("iman", "IMAN (validation)")):
        values = np.stack([getattr(validation, name) for _, validation in judged])
        # The expert was validated once: a horizontal line.
        expert = np.repeat(getattr(demonstration.expert, name)[None], len(at), axis=0)
        panels.append(
            CurvePanel(at, "epoch", label, {"tanner": compute_quartiles(expert), STUDENT: compute_quartiles(values)})
        )
    return draw_panels(panels, path)


def _draw_flight_curves(demonstration: Demonstration, path: Path) -> Path:
    """Velocity variance and mean acceleration norm over time, for every controller."""
    labels = {"velocity_variance": "velocity variance", "mean_acceleration_norm": "mean acceleration norm"}
    some = next(iter(demonstration.runs.values()))
    panels = [
        CurvePanel(
            some.times,
            "time (s)",
            label,
            {name: compute_quartiles(run.series[series]) for name, run in demonstration.runs.items()},
        )
        for series, label in labels.items()
    ]
    return draw_panels(panels, path)
