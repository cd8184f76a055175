"""Markdown page of the atlas of laws: for each law a film, a description and the measured claims."""

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
"""Resolution of the films; low, as the page has one film per law."""
TIME_STEP = 0.01


def draw_films(
    selected_entries: Sequence[Entry], folder: Path, on_film: Callable[[str], object] = lambda name: None
) -> list[Path]:
    """Simulate and film each entry as NAME.gif in `folder`, its controllers side by side from the same start.

    Existing films are kept. `on_film` is called with the name after each entry. Return the paths of all films.
    """
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
    """Simulate the flights of an entry's film, one per controller, from the same start.

    They ignore the scenario's ending, so that all have the same duration.
    """
    start = make_scenario(entry.scenario, flocks=1).draw()
    # Keep only the frames that the film shows.
    keep_every = max(round(entry.speed / FRAMES_PER_SECOND / TIME_STEP), 1)
    return [
        simulate(start, load(name), time_step=TIME_STEP, duration=entry.seconds, keep_every=keep_every)
        for name in entry.panels
    ]


def write_atlas(table: pd.DataFrame, folder: Path) -> Path:
    """Write atlas.md in `folder`, replacing an earlier one, and return its path.

    It has a section for each law with rows in the table of claims: its film if that exists in `folder`, a description,
    and values beside their limits.
    """
    lines = [
        "# An atlas of laws",
        "",
        'The classical flocking laws. Each is a controller of the package: `ef.load("NAME")` in Python, '
        "`--controller NAME` on the command line, and an entry in the menu of the live page, where its parameters are "
        "sliders. Laws whose names end in `-local` are truncated at R, so that agents can compute them from their "
        "neighbours. The [guide](../guide.md#controllers) gives the number of agents that each law is meant for.",
        "",
        "`equiflock atlas` makes the films and the tables. A claim is a measured number with a limit; a number without "
        "a limit is reported, not claimed.",
        "",
    ]
    for entry in entries.ENTRIES:
        rows = table[table.claim.isin([job.number for job in entries.build_claim_jobs((entry.name,))])]
        if len(rows) == 0:
            continue
        lines += [f"## {entry.title}", ""]
        if (folder / f"{entry.name}.gif").exists():
            lines += [f"![{' beside '.join(entry.panels)}]({entry.name}.gif)", ""]
        lines += [f"**Claims.** {entry.promises}", "", f"**Fails.** {entry.failure_modes}", ""]
        lines += [
            format_markdown_table(
                ["measured", "controller", "number", "claimed", "verdict"], _format_rows(rows), align_left=True
            ),
            "",
        ]
    path = folder / PAGE_FILE
    with atomic_write(path) as scratch:
        scratch.write_text("\n".join(lines), encoding="utf-8")
    return path


def _format_rows(rows: pd.DataFrame) -> list[list[str]]:
    """Return the cells of an entry's table: description, law, value, claim and verdict of each row."""
    claims = {job.number: job.claim for job in entries.build_claim_jobs()}
    return [
        [
            row.description,
            f"`{row.law}`",
            f"{row.value:{claims[row.claim].value_format}}",
            claims[row.claim].rule,
            row.verdict,
        ]
        for row in rows.fillna("").itertuples()
    ]
