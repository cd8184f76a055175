"""The demonstration's folder: films, runs, figure and report.html."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from equiflock.experiments.demo import CONTROLLERS, Demonstration
from equiflock.experiments.summary import summarize
from equiflock.files import check_writable, written_whole
from equiflock.report.figures import curves_over_time
from equiflock.report.film import film, window_for
from equiflock.report.page import Page
from equiflock.types import InputError

MARK = "report.html"
FIGURE = "curves.png"


def comparison(found: Demonstration) -> tuple[list[str], list[list[str]]]:
    """The table that sets the controllers side by side: header and rows of text."""
    columns = [summarize(run) for run in found.runs.values()]
    rows = [[cells[0].name, *(cell.text for cell in cells)] for cells in zip(*columns, strict=True)]
    count = len(found.start)
    rows.append(["flocks that end in pieces", *(f"{found.splits(name).sum()} of {count}" for name in found.runs)])
    return ["median (quartiles)", *found.runs], rows


def check_demo_folder(folder: Path) -> None:
    """Raise a clear error, before anything is flown, unless `folder` is new or holds only a demonstration."""
    check_writable(folder)
    ours = {MARK, FIGURE, *(f"{name}{suffix}" for name in CONTROLLERS for suffix in (".mp4", ".zarr"))}
    if folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} <= ours):
        raise InputError(f"{folder} holds something else: choose another folder with --out")


def write_demo(
    found: Demonstration, folder: Path, on_frame: Callable[[str, int, int], object] | None = None
) -> list[Path]:
    """Write everything into `folder`, replacing an earlier demonstration; returns the files to look at."""
    check_demo_folder(folder)
    shown = found.telling[0] if found.telling else 0
    window = window_for([run[shown] for run in found.runs.values()])
    with written_whole(folder, replace_folder=True) as scratch:
        films = []
        for name, run in found.runs.items():
            progress = partial(on_frame, name) if on_frame is not None else None
            films.append(film([run], scratch / f"{name}.mp4", flock=shown, window=window, on_frame=progress))
            run.save(scratch / f"{name}.zarr")
        figure = _figure(found, scratch / FIGURE)
        _page(found, shown, films, figure).write(scratch / MARK)
    return [folder / name for name in (MARK, *(path.name for path in films))]


def _page(found: Demonstration, shown: int, films: list[Path], figure: Path) -> Page:
    header, rows = comparison(found)
    some = next(iter(found.runs.values()))
    B, N, _ = found.start.shape
    page = Page(
        "Together, with and without a centre",
        f"The same {B} flocks of {N} agents under two control laws of Tanner, Jadbabaie and Pappas.",
    )
    page.text(
        "The law “tanner” knows every agent's velocity: no swarm can run it, but a controller can learn "
        "from it. “tanner-dynamic” is its decentralized twin: each agent uses only what it hears from "
        "neighbours within the communication radius."
    )
    page.heading("What happened")
    page.table(header, rows)
    page.text(
        f"In {len(found.telling)} of {B} flocks the centralized law keeps the communication graph connected all the "
        f"time while the decentralized one loses it for good. The films show flock {shown} (counted from 0), "
        f"which begins with every agent hearing at least two others."
        if found.telling
        else "In none of these flocks does the decentralized law lose a connection that the centralized one keeps."
    )
    page.heading("Films")
    page.pictures(films, f"Flock {shown}. Orange: agents; blue: velocities; light lines: who hears whom.")
    page.heading("Over time")
    page.pictures([figure], "Median over flocks (line) and interquartile range (band).")
    page.heading("Settings")
    page.settings({**some.config, "controller": ", ".join(found.runs), "flock shown": shown})
    return page


def _figure(found: Demonstration, path: Path) -> Path:
    labels = {"velocity_variance": "velocity variance", "mean_acceleration_norm": "mean acceleration norm"}
    some = next(iter(found.runs.values()))
    panels = {label: {name: run.series[series] for name, run in found.runs.items()} for series, label in labels.items()}
    return curves_over_time(some.times, panels, path)
