"""The page that `equiflock evaluate` writes: flights of one flock, verdict, charts, tables and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import compute_checksum
from equiflock.evaluation.curves import build_measure_panels
from equiflock.evaluation.evaluate import (
    HEADINGS,
    EvaluationJob,
    build_comparison_rows,
    build_table_rows,
    compare_controllers,
    split_results,
    summarize_evaluation,
)
from equiflock.evaluation.flight_statistics import ENDED_PREFIX, FAILED, FEWEST_FLOCKS, format_summary, is_share
from equiflock.evaluation.saved_flights import load_or_fly
from equiflock.plotting.html_report import Chip, HtmlReport, Kind
from equiflock.plotting.player.embedding import MAX_EMBEDDED_FLIGHTS, MAX_FRAMES
from equiflock.plotting.svg_charts import Bar, BarGroup
from equiflock.simulation.simulate import count_steps
from equiflock.simulation.trajectory import Trajectory

REPORT_FILE = "report.html"
SHOWN_FLOCK = 0
"""Index of the flock of the player."""
STANDINGS: Mapping[Kind, str] = {"holds": "better than", "fails": "worse than", "open": "not distinguishable from"}
"""Texts of the kinds of chips."""
MAX_PLAYER_AGENTS = 12_000
"""Maximum number of agents in one player; larger flocks are not shown."""


def save_shown_flights(
    jobs: Sequence[EvaluationJob],
    run_dir: Path,
    on_flight: Callable[[str], object] = lambda name: None,
    on_notice: Callable[[str], object] = lambda text: None,
) -> list[Trajectory]:
    """Return the flight of one flock under each controller, loaded from the run directory or simulated and saved there.

    None if the flock is too large for a player. `on_flight` is called with each name before a simulation, and
    `on_notice` with a line of text about every damaged flight.
    """
    start = jobs[0].draw_start()[SHOWN_FLOCK]
    if start.shape[1] > MAX_PLAYER_AGENTS:
        return []
    steps = count_steps(jobs[0].duration, jobs[0].time_step)
    interval = -(-steps // (MAX_FRAMES - 1))
    return [
        load_or_fly(
            run_dir / "flights" / f"{job.key}.zarr",
            compute_checksum(repr((job, SHOWN_FLOCK, interval)).encode()),
            partial(
                job.fly, start, keep_every=interval, config={"controller": job.name, "scenario": job.scenario_name}
            ),
            partial(on_flight, job.name),
            on_notice,
        )
        for job in jobs
    ]


def write_evaluation_report(
    table: pd.DataFrame,
    jobs: Sequence[EvaluationJob],
    flights: Sequence[Trajectory],
    path: Path,
    *,
    title: str,
    settings: Mapping[str, Any],
) -> Path:
    """Write the page of an evaluation and return its path.

    Args:
        table: results of all jobs.
        jobs: one per controller, of which the first is compared with the others.
        flights: one flock under each controller, in the same order; none for no player.
        path: file to write.
        title: scenario, flocks and agents as text.
        settings: all that the results depend on.
    """
    scenario = jobs[0].scenario
    curves, results = split_results(table)
    summary, comparison = summarize_evaluation(results), compare_controllers(results)
    names = [job.name for job in jobs]
    page = HtmlReport(f"Evaluation of {names[0]}", title)
    page.assign_series(names)
    _add_players(page, flights, names)
    metric = FAILED if scenario.figure == "endings" else "ivv"
    page.add_heading("Verdict")
    standings = compare_by_metric(comparison, metric)
    page.add_verdict(describe_standings(names[0], metric, standings, summary), standings)
    if results.flock.nunique() < FEWEST_FLOCKS:
        page.add_text(f"Intervals of fewer than {FEWEST_FLOCKS} flocks are too narrow.")
    if scenario.figure == "endings":
        page.add_bars("How flights end", _build_outcome_groups(page, summary), caption="Whiskers: 95% intervals.")
    else:
        panels = build_measure_panels(curves, list(dict.fromkeys(curves.metric)))
        page.add_charts(panels, "Median over flocks (line) and interquartile range (band).")
    page.add_heading("Medians and shares")
    page.add_table(*_write_out(*build_table_rows(summary)))
    page.add_caption(f"Over {results.flock.nunique()} flocks, with 95% intervals.")
    if len(comparison):
        page.add_heading(f"Differences from {names[0]}")
        page.add_table(*_write_out(*build_comparison_rows(comparison, scenario, jobs[0].metrics)))
        page.add_caption(
            "On the same flocks, with 95% intervals; and the probability of improving on it, which is 50% for equals."
        )
    page.add_settings(settings)
    return page.write(path)


def compare_by_metric(comparison: pd.DataFrame, metric: str) -> list[Chip]:
    """Return how the first controller of a comparison stands beside each other one by one metric, as chips.

    It is better or worse if the 95% interval of the other's probability of improving on it leaves out 50%.
    """
    standings = []
    for row in comparison[comparison.metric == metric].itertuples():
        kind: Kind = "open"
        if row.n and row.improvement_high < 0.5:
            kind = "holds"
        elif row.n and row.improvement_low > 0.5:
            kind = "fails"
        standings.append(Chip(kind, f"{STANDINGS[kind]} {row.controller}"))
    return standings


def describe_standings(name: str, metric: str, standings: Sequence[Chip], summary: pd.DataFrame) -> str:
    """Return the verdict in two sentences: the controller's number, and than how many others it is better or worse."""
    own = next(row for row in summary[summary.metric == metric].itertuples() if row.controller == name)
    value = format_summary(own).replace("\n", " ")
    first = (
        f"{name} fails in {value} of flights."
        if metric == FAILED
        else f"The median {_name(metric)} of {name} is {value}."
    )
    if not standings:
        return first
    counts = Counter(each.kind for each in standings)
    parts = [f"{text} {counts[kind]}" for kind, text in STANDINGS.items() if counts[kind]]
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else parts[0]
    return f"{first} By {_name(metric)} it is {listed} of {len(standings)} other controllers."


def _add_players(page: HtmlReport, flights: Sequence[Trajectory], names: Sequence[str]) -> None:
    """Add players of the flights, which play together, or a text in their place."""
    if not flights:
        page.add_text("The flocks are too large for a player: `equiflock animate` makes films of them.")
        return
    agents = flights[0].roles.shape[1]
    count = min(max(MAX_PLAYER_AGENTS // agents, 1), MAX_EMBEDDED_FLIGHTS)
    # As many in each player, such as 3 and 3 rather than 4 and 2.
    players = -(-len(flights) // count)
    count = -(-len(flights) // players)
    try:
        for first in range(0, len(flights), count):
            part = slice(first, first + count)
            caption = f"Flock {SHOWN_FLOCK} under each controller." if part.stop >= len(flights) else ""
            page.add_player(flights[part], caption, titles=names[part], links=True, group="evaluation")
    except InputError as error:
        page.add_text(f"Not all flights are shown: {error}.")


def _build_outcome_groups(page: HtmlReport, summary: pd.DataFrame) -> list[BarGroup]:
    """Return bars of the shares of flights that failed, and of each outcome, a bar per controller."""
    groups = []
    for metric in dict.fromkeys(summary.metric):
        if metric != FAILED and not metric.startswith(ENDED_PREFIX):
            continue
        rows = list(summary[(summary.metric == metric) & (summary.n > 0)].itertuples())
        series = page.assign_series(row.controller for row in rows)
        bars = [
            Bar(
                row.controller,
                row.share,
                format_summary(row).replace("\n", " "),
                row.interval_low,
                row.interval_high,
                series[row.controller],
            )
            for row in rows
        ]
        groups.append(BarGroup(metric.removeprefix(ENDED_PREFIX), bars, (0.0, 1.0), ("0%", "100%")))
    return groups


def _write_out(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Return a table of the terminal without the breaks of its headings."""
    return ["controller", *map(_join, header[1:])], [list(row) for row in rows]


def _join(heading: str) -> str:
    """Return a heading in one line."""
    return heading.replace("-\n", "").replace("\n", " ")


def _name(metric: str) -> str:
    """Return the name of a metric in a sentence."""
    return "share of failures" if is_share(metric) else _join(HEADINGS[metric])
