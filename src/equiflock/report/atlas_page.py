"""Writes the atlas of laws: a film and a paragraph for each, and what was measured of its promises, as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from equiflock.controllers import load
from equiflock.experiments.atlas import entries
from equiflock.experiments.atlas.entries import Entry
from equiflock.report.film import film
from equiflock.report.html_report import format_markdown_table
from equiflock.runtime.files import atomic_write
from equiflock.scenarios import make_scenario
from equiflock.simulation.simulate import simulate
from equiflock.simulation.trajectory import Trajectory

PAGE_FILE = "atlas.md"
FRAMES_PER_SECOND = 8
DOTS_PER_INCH = 50
"""Of films: small, as there is one for each law on one page."""
TIME_STEP = 0.01


def draw_films(
    selected_entries: Sequence[Entry], folder: Path, on_film: Callable[[str], object] = lambda name: None
) -> list[Path]:
    """Fly and film each entry, its controllers side by side from the same start; films that are there stay."""
    films = []
    for entry in selected_entries:
        path = folder / f"{entry.name}.gif"
        if not path.exists():
            film(
                _simulate_entry(entry),
                path,
                titles=entry.panels,
                frames_per_second=FRAMES_PER_SECOND,
                dots_per_inch=DOTS_PER_INCH,
                speed=entry.speed,
                window=entry.window,
            )
        films.append(path)
        on_film(entry.name)
    return films


def _simulate_entry(entry: Entry) -> list[Trajectory]:
    """The flights of an entry's film; without the scenario's ending, so that all are as long."""
    start = make_scenario(entry.scenario, flocks=1).draw()
    # A flight keeps as many frames as the film shows.
    every = max(round(entry.speed / FRAMES_PER_SECOND / TIME_STEP), 1)
    return [
        simulate(start, load(name), time_step=TIME_STEP, duration=entry.seconds, keep_every=every)
        for name in entry.panels
    ]


def write_atlas(table: pd.DataFrame, folder: Path) -> Path:
    """Write the page of all laws in a table of claims: films that are there, paragraphs, and numbers beside rules."""
    lines = [
        "# An atlas of laws",
        "",
        "The laws that flocking was studied by before it was learned, each a controller of the package by its name: "
        '`ef.load("NAME")`, `--controller NAME` on the command line, and in the menu of the live page, where its '
        "numbers are sliders. Names that end in `-local` are cut off at R, so that every agent can fly them by itself. "
        "The [guide](../guide.md#controllers) says up to how many agents each is meant for.",
        "",
        "The films and the numbers are made by one command, `equiflock atlas`. A promise is a number with a limit; "
        "where there is no limit, nothing is promised, and the number is what was found.",
        "",
    ]
    for entry in entries.ENTRIES:
        rows = table[table.claim.isin([job.number for job in entries.build_claim_jobs((entry.name,))])]
        if len(rows) == 0:
            continue
        lines += [f"## {entry.title}", ""]
        if (folder / f"{entry.name}.gif").exists():
            lines += [f"![{' beside '.join(entry.panels)}]({entry.name}.gif)", ""]
        lines += [f"**Promises.** {entry.promises}", "", f"**Fails.** {entry.failure_modes}", ""]
        lines += [
            format_markdown_table(["measured", "controller", "number", "promised", ""], _format_rows(rows), words=True),
            "",
        ]
    path = folder / PAGE_FILE
    with atomic_write(path) as scratch:
        scratch.write_text("\n".join(lines), encoding="utf-8")
    return path


def _format_rows(rows: pd.DataFrame) -> list[list[str]]:
    """The rows of an entry's table as text."""
    by_number = {job.number: job.claim for job in entries.build_claim_jobs()}
    return [
        [
            row.description,
            f"`{row.law}`",
            f"{row.value:{by_number[row.claim].value_format}}",
            by_number[row.claim].rule,
            row.verdict,
        ]
        for row in rows.fillna("").itertuples()
    ]
