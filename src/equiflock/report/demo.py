"""Writes the folder of the demonstration: weights, runs, films, figures and report.html."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from equiflock.controllers.networks.weights import write_weights
from equiflock.experiments.demo import CONTROLLERS, LABELS, PUPIL, Demonstration
from equiflock.experiments.summary import summarize
from equiflock.learning.folders import is_training
from equiflock.report.figures import Panel, draw_panels, quartiles
from equiflock.report.film import film, window_for
from equiflock.report.page import Page
from equiflock.runtime.checks import InputError
from equiflock.runtime.files import atomic_write, check_writable

MARK = "report.html"
WEIGHTS = f"{PUPIL}.safetensors"
TRAINING, CURVES = "training.png", "curves.png"
TRAINING_FOLDER = "demo-training"
"""The folder of the training while the demonstration runs; it is removed when the whole folder is replaced."""


def comparison(found: Demonstration) -> tuple[list[str], list[list[str]]]:
    """The table that compares the controllers: header and rows of text."""
    columns = [summarize(run) for run in found.runs.values()]
    rows = [[cells[0].name, *(cell.text for cell in cells)] for cells in zip(*columns, strict=True)]
    count = len(found.start)
    rows.append(["flocks that end in pieces", *(f"{found.splits(name).sum()} of {count}" for name in found.runs)])
    return ["median (quartiles)", *(LABELS[name] for name in found.runs)], rows


def short_comparison(found: Demonstration, quartiles: bool = True) -> tuple[list[str], list[list[str]]]:
    """A table narrow enough for a terminal: a row for each controller, with quartiles over flocks or without."""
    count = len(found.start)
    rows = []
    for name, run in found.runs.items():
        shown = [row.text if quartiles else row.median for row in summarize(run)[:3]]
        rows.append([LABELS[name], *shown, f"{found.splits(name).sum()} of {count}"])
    told = "median (quartiles)" if quartiles else "median"
    return [f"{told}\nover flocks", "IVV", "IMAN", "variance\nat end", "in\npieces"], rows


def check_demo_folder(folder: Path) -> None:
    """Raise a clear error, before anything is flown, unless `folder` is new or holds only a demonstration."""
    check_writable(folder)
    ours = {MARK, WEIGHTS, TRAINING, CURVES, *(f"{name}{kind}" for name in CONTROLLERS for kind in (".mp4", ".zarr"))}
    if is_training(folder / TRAINING_FOLDER):
        ours.add(TRAINING_FOLDER)
    if folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} <= ours):
        raise InputError(f"{folder} holds something else: choose another folder with --out")


def write_demo(
    found: Demonstration, folder: Path, on_frame: Callable[[str, int, int], object] | None = None
) -> list[Path]:
    """Write everything into `folder`, replacing an earlier demonstration; returns the files to look at."""
    check_demo_folder(folder)
    # The films show a flock on which the controllers differ, if there is one, all in the same window.
    shown = found.telling[0] if found.telling else 0
    window = window_for([run[shown] for run in found.runs.values()])
    # Everything is written into a scratch folder, which then takes the place of an earlier demonstration.
    with atomic_write(folder, replace_folder=True) as scratch:
        scratch.mkdir()
        write_weights(found.network, scratch / WEIGHTS, {"command": found.recipe.command})
        films = []
        for name, run in found.runs.items():
            progress = partial(on_frame, name) if on_frame is not None else None
            films.append(film([run], scratch / f"{name}.mp4", flock=shown, window=window, on_frame=progress))
            run.save(scratch / f"{name}.zarr")
        training = _draw_training(found, scratch / TRAINING)
        curves = _draw_flights(found, scratch / CURVES)
        _page(found, shown, films, training, curves).write(scratch / MARK)
    return [folder / name for name in (MARK, WEIGHTS, *(path.name for path in films))]


def _page(found: Demonstration, shown: int, films: list[Path], training: Path, curves: Path) -> Page:
    """The report: training, test, films, curves and settings."""
    header, rows = comparison(found)
    B, N, _ = found.start.shape
    page = Page(
        "Learned from an expert, flown without one",
        f"An ETDAGNN of 416 weights, trained from nothing for {found.recipe.epochs} epochs, and {B} flocks of {N} "
        "agents that it never saw.",
    )
    page.text(
        "“tanner” knows every agent's velocity: no swarm can run it, but a controller can learn from it. The others "
        "are decentralized: each agent uses only what it hears from neighbours within the communication radius. "
        f"“etdagnn” was just trained for {found.recipe.epochs} "
        "epochs, “tdagnn” came with the package, trained for 400; "
        "“tanner-dynamic” is the classical law."
    )
    page.heading("The training")
    page.pictures(
        [training],
        "Loss of every epoch; IVV and IMAN of the validation flocks, median and interquartile range, and the expert's.",
    )
    page.heading("The test")
    page.table(header, rows)
    page.text(
        f"In {len(found.telling)} of {B} flocks the network that was just trained keeps the communication graph "
        f"connected all the time while the classical law loses agents for good. The films show flock {shown} "
        "(counted from 0), which begins with every agent hearing at least two others."
        if found.telling
        else "In none of these flocks does the trained network keep a connection that the classical law loses."
    )
    page.heading("Films")
    page.pictures(films, f"Flock {shown}. Orange: agents; blue: velocities; light lines: who hears whom.")
    page.heading("Over time")
    page.pictures([curves], "Median over flocks (line) and interquartile range (band).")
    page.heading("Settings")
    page.settings({"training": found.recipe.command, "recipe": found.recipe.settings, **_flown(found)})
    return page


def _flown(found: Demonstration) -> dict[str, object]:
    """The settings of the flights, which are the same for all controllers."""
    some = next(iter(found.runs.values()))
    return {**some.config, "controller": ", ".join(found.runs)}


def _draw_training(found: Demonstration, path: Path) -> Path:
    """Loss of every epoch, and IVV and IMAN of those that were validated, beside the expert's."""
    epochs = np.array([report.epoch for report in found.epochs])
    judged = [(report.epoch, report.validation) for report in found.epochs if report.validation is not None]
    at = np.array([epoch for epoch, _ in judged])
    panels = [Panel(epochs, "epoch", "loss", {PUPIL: np.array([[report.loss for report in found.epochs]] * 3)})]
    for name, label in (("ivv", "IVV (validation)"), ("iman", "IMAN (validation)")):
        values = np.stack([getattr(validation, name) for _, validation in judged])
        # The expert was validated once: a horizontal line.
        expert = np.repeat(getattr(found.expert, name)[None], len(at), axis=0)
        panels.append(Panel(at, "epoch", label, {"tanner": quartiles(expert), PUPIL: quartiles(values)}))
    return draw_panels(panels, path)


def _draw_flights(found: Demonstration, path: Path) -> Path:
    """Velocity variance and mean acceleration norm over time, for every controller."""
    labels = {"velocity_variance": "velocity variance", "mean_acceleration_norm": "mean acceleration norm"}
    some = next(iter(found.runs.values()))
    panels = [
        Panel(some.times, "time (s)", label, {name: quartiles(run.series[series]) for name, run in found.runs.items()})
        for series, label in labels.items()
    ]
    return draw_panels(panels, path)
