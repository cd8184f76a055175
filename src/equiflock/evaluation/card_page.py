"""The page of a report card: score and breakpoints on top, flights, a section per group of rows, settings."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from equiflock.evaluation.card import Card, CardBreakpoint, CardRow, ControllerFacts, RowResult
from equiflock.evaluation.card_jobs import SHARE_METRICS, SUCCESS
from equiflock.evaluation.card_profiles import EXPERT, LAWS
from equiflock.evaluation.card_results import HIGH_RATE, LOW_RATE, describe_breakpoint
from equiflock.plotting.curve_panel import CurvePanel
from equiflock.plotting.html_report import Cell, Chip, HtmlReport, Kind
from equiflock.plotting.player.embedding import MAX_EMBEDDED_FLIGHTS, FlightChoice
from equiflock.plotting.svg_charts import Bar, BarGroup
from equiflock.simulation.trajectory import Trajectory
from equiflock.statistics import Estimate

Flights = Mapping[tuple[str, str], Sequence[tuple[str, Trajectory]]]
"""Flights with their titles, such as a success and a failure, by the names of row and controller."""
HIGH, LOW = f"{100 * HIGH_RATE:g}", f"{100 * LOW_RATE:g}"
"""Keys of the breakpoints' results."""
VERDICTS: Mapping[Kind, str] = {"holds": "holds", "partly": "partly", "fails": "fails", "open": "no result"}
SPEEDS = 0.25, 0.5, 1.0, 2.0, 4.0
"""Speeds of the player, in simulated seconds per second."""
PLAYING_SECONDS = 8.0
"""Longest time in which a flight plays, if a speed allows that."""


def write_card_page(card: Card, flights: Flights, path: str | os.PathLike[str]) -> Path:
    """Write the page of a card and return its path; pages of the same card and flights are equal byte for byte.

    Args:
        card: the report card.
        flights: flights to play, each of a single flock, by the names of row and controller; a row without flights has
            no player.
        path: file to write, replacing an existing one.
    """
    judged = [each for each in card.judged if not each.error]
    labels = {each.name: each.label for each in card.controllers}
    page = HtmlReport(
        f"Report card of {_join([each.label for each in card.judged])}",
        f"Profile “{card.profile}”, seed {card.seed}: {len(card.rows)} rows and {len(card.breakpoints)} breakpoints. "
        "All controllers fly the same random flocks. Distances are in communication radii R, times in seconds.",
    )
    series = page.assign_series(labels.values())
    totals = {each.name: Counter(classify(row.results.get(each.name)) for row in card.rows) for each in judged}
    page.add_verdict(describe_card(card), _list_totals(judged, totals))
    page.add_caption(
        f"A controller holds in a row if at least {HIGH_RATE:.0%} of its flights succeed, partly if at least "
        f"{LOW_RATE:.0%} do, and fails below; the intervals beside the rates say how sure that is."
    )
    for each in card.controllers:
        if each.error:
            page.add_text(f"{each.label} could not be judged: {each.error}")
    if card.scores:
        page.add_bars("Overall score", [_build_score_group(card, series)])
        page.add_caption(
            "Mean over rows of the success rate, scaled in each row so that the expert, "
            f"{EXPERT}, has 1 and the worst of {_join(list(LAWS), 'and')} has 0. The expert sees all agents, which no "
            "swarm can, and is scored in the rows that its law models. Whiskers: 95% intervals."
        )
    if groups := [group for point in card.breakpoints if (group := _build_breakpoint_group(card, point, series))]:
        page.add_bars(f"Breakpoints: up to which level {HIGH}% of flights succeed", groups, "best baseline")
        page.add_caption(
            "A bar grows with the disturbance that the controller stands; whiskers: 95% intervals; an arrow: it holds "
            "over the whole range."
        )
    entries = _add_flights(page, card, flights)
    if card.performance:
        page.add_heading("Performance profile")
        page.add_charts(
            [_build_performance_panel(card, labels)],
            "For each score, the share of rows in which a controller reaches it, expected over resampled flocks; "
            "bands: 95% intervals.",
        )
    _add_breakpoint_table(page, card, labels)
    for section in dict.fromkeys(row.group for row in card.rows):
        _add_group(page, card, section, entries)
    _add_facts(page, card)
    page.add_settings(card.settings)
    return page.write(path)


def classify(result: RowResult | None) -> Kind:
    """Return the verdict on a controller in a row, by its success rate; "open" without a result."""
    success = None if result is None or result.remark else result.metrics.get(SUCCESS)
    if success is None:
        return "open"
    return "holds" if success.value >= HIGH_RATE else "partly" if success.value >= LOW_RATE else "fails"


def describe_card(card: Card) -> str:
    """Return the verdict: each judged controller's score, in how many rows it holds, and the best baseline's score."""
    sentences = []
    for each in card.judged:
        held = sum(classify(row.results.get(each.name)) == "holds" for row in card.rows)
        score = f"scores {_format_score(card.scores[each.name])}" if each.name in card.scores else "has no score"
        sentences.append(
            f"{each.label} could not be judged."
            if each.error
            else f"{each.label} {score} and holds in {held} of {len(card.rows)} rows."
        )
    baselines = [each for each in card.controllers if each.role == "baseline" and each.name in card.scores]
    if best := max(baselines, key=lambda each: card.scores[each.name].value, default=None):
        sentences.append(f"The best baseline, {best.label}, scores {_format_score(card.scores[best.name])}.")
    return " ".join(sentences)


def _list_totals(judged: Sequence[ControllerFacts], totals: Mapping[str, Counter[Kind]]) -> list[Chip]:
    """Return chips with the numbers of rows by verdict, for each controller if there are several."""
    chips = []
    for each in judged:
        start = f"{each.label}, " if len(judged) > 1 else ""
        chips += [
            Chip(kind, f"{start}{text}: {totals[each.name][kind]}")
            for kind, text in VERDICTS.items()
            if totals[each.name][kind]
        ]
    return chips


def _build_score_group(card: Card, series: Mapping[str, int]) -> BarGroup:
    """Return a bar with the score of each controller; the axis has 0 and 1."""
    bars, ends = [], [0.0, 1.0]
    for each in card.controllers:
        if each.name not in card.scores:
            continue
        score = card.scores[each.name]
        ends += [score.value, score.high]
        bars.append(Bar(each.label, score.value, _format_score(score), score.low, score.high, series[each.label]))
    # Scores below that of the worst law have no bar.
    top = max(end for end in ends if math.isfinite(end))
    return BarGroup("Overall score", bars, (0.0, top), ("worst law: 0", "expert: 1" if top == 1.0 else f"{top:.2f}"))


def _build_breakpoint_group(card: Card, point: CardBreakpoint, series: Mapping[str, int]) -> BarGroup | None:
    """Return a bar for each judged controller, and the best baseline as reference; None without any result."""
    bars = []
    for each in card.judged:
        if not each.error and each.name in point.results:
            found = point.results[each.name][HIGH]
            bars.append(
                Bar(
                    each.label,
                    found.value,
                    describe_breakpoint(found),
                    found.low,
                    found.high,
                    series[each.label],
                    found.status == "holds",
                )
            )
        elif not each.error and (remark := point.remarks.get(each.name)):
            bars.append(Bar(each.label, None, f"no result: {remark}", series=series[each.label]))
    if not bars:
        return None
    axis, ends = (point.mild, point.hard), (point.mild_text, point.hard_text)
    group = BarGroup(_capitalize(point.title), bars, axis, ends, is_logarithmic=point.is_logarithmic)
    results = {
        each.label: point.results[each.name][HIGH]
        for each in card.controllers
        if each.role == "baseline" and each.name in point.results
    }
    if not results:
        return group
    best = max(results, key=lambda label: group.find_place(results[label].value))
    text = f"best baseline, {best}: {describe_breakpoint(results[best])}"
    return BarGroup(group.label, bars, axis, ends, results[best].value, text, point.is_logarithmic)


def _build_performance_panel(card: Card, labels: Mapping[str, str]) -> CurvePanel:
    """Return the chart of performance profiles."""
    curves = {}
    scores: list[float] = []
    for name, profile in card.performance.items():
        scores = [point[0] for point in profile]
        curves[labels[name]] = np.array([[low, share, high] for _, share, low, high in profile]).T
    return CurvePanel(np.array(scores), "score", "share of rows with at least this score", curves, "linear", (0.0, 1.0))


def _add_flights(page: HtmlReport, card: Card, flights: Flights) -> dict[str, str]:
    """Add the menu of flights, an entry per row, and return the ids of the rows' entries.

    Flights of several controllers are side by side, as many as a player has room for.
    """
    choices, rows = [], []
    for row in card.rows:
        shown = [found for each in card.judged if (found := flights.get((row.name, each.name)))]
        parts: list[list[tuple[str, Trajectory]]] = []
        for found in shown:
            if not parts or len(parts[-1]) + len(found) > MAX_EMBEDDED_FLIGHTS:
                parts.append([])
            parts[-1].extend(found)
        for k, part in enumerate(parts):
            titles, runs = zip(*part, strict=True)
            name = row.title if len(parts) == 1 else f"{row.title} ({k + 1} of {len(parts)})"
            speed = choose_speed(max(float(run.times[-1]) for run in runs))
            choices.append(FlightChoice(name, runs, titles, _list_outcomes(part), row.group, speed))
            rows.append(row.name)
    if not choices:
        return {}
    page.add_heading("Flights")
    caption = (
        "A typical success and a typical failure of each row: of the flights that succeed or fail, the one with the "
        "median final velocity variance. Point at a curve to read it, click it to enlarge it."
    )
    # The first entry with a success and a failure has more to see than the first.
    selected = next((k for k, choice in enumerate(choices) if "," in choice.note), 0)
    ids = page.add_flight_menu(choices, caption, compact=True, selected=selected)
    first_ids: dict[str, str] = {}
    for row_name, entry in zip(rows, ids, strict=True):
        first_ids.setdefault(row_name, entry)
    return first_ids


def _list_outcomes(part: Sequence[tuple[str, Trajectory]]) -> str:
    """Return which kinds of flights an entry has, the ends of their titles, such as "success, failure"."""
    kinds = dict.fromkeys(title.rpartition(": ")[2] for title, _ in part)
    return ", ".join(kinds)


def choose_speed(duration: float) -> float:
    """Return the slowest speed at which a flight plays within PLAYING_SECONDS, or the fastest."""
    return next((speed for speed in SPEEDS if duration <= speed * PLAYING_SECONDS), SPEEDS[-1])


def _add_breakpoint_table(page: HtmlReport, card: Card, labels: Mapping[str, str]) -> None:
    """Add the breakpoints of all controllers by disturbance: where 95% and where 50% of flights succeed."""
    if not card.breakpoints:
        return
    page.add_heading("Breakpoints")
    errors = {each.name for each in card.controllers if each.error}
    rows: list[list[str | Chip | Cell]] = []
    for point in card.breakpoints:
        for name, label in labels.items():
            if name in errors:
                continue
            if name in point.results:
                found = point.results[name]
                cells = [Cell(found[key].text, found[key].value) if key in found else "-" for key in (HIGH, LOW)]
                rows.append([point.title, label, *cells])
            elif name in point.remarks:
                rows.append([point.title, label, f"no result: {point.remarks[name]}", ""])
    page.add_table(
        ["disturbance", "controller", f"{HIGH}% succeed up to", f"{LOW}% succeed up to"], rows, align_left=True
    )
    page.add_caption("With 95% intervals.")
    with page.fold("All levels that were flown"):
        settings = [
            [point.title, f"{point.mild_text} to {point.hard_text}", str(point.flocks), point.settings]
            for point in card.breakpoints
        ]
        page.add_table(["disturbance", "range", "flights per level", "settings"], settings, align_left=True)
        levels: list[list[str | Chip | Cell]] = [
            [point.title, labels[name], f"{level:.6g}", f"{rate:.1%}"]
            for point in card.breakpoints
            for name, curve in point.curves.items()
            for level, rate in curve
        ]
        page.add_table(["disturbance", "controller", "level", "success rate"], levels, align_left=True)


def _add_group(page: HtmlReport, card: Card, group: str, entries: Mapping[str, str]) -> None:
    """Add the section of a group of rows: a sentence per row, and a table of metrics for each row and controller."""
    rows = [row for row in card.rows if row.group == group]
    metrics = [
        name
        for name in card.metric_titles
        if any(name in result.metrics for row in rows for result in row.results.values())
    ]
    page.add_heading(group)
    for row in rows:
        chips = [_make_chip(row, each, len(card.judged) > 1) for each in card.judged if not each.error]
        page.add_note(_capitalize(row.title), row.verdict, chips, entries.get(row.name, ""))
    # A column for reasons only where there are some.
    flown = [each for each in card.controllers if not each.error]
    has_remarks = any(row.results[each.name].remark for row in rows for each in flown if each.name in row.results)
    table: list[list[str | Chip | Cell]] = []
    for row in rows:
        for each in flown:
            result = row.results.get(each.name)
            if result is None:
                continue
            title = Cell(row.title, flight=entries.get(row.name, "") if each.role == "judged" else "")
            score = "-" if result.score is None else Cell(_format_score(result.score), result.score.value)
            cells = [_format_metric(result, name) for name in metrics]
            remark = [result.remark] if has_remarks else []
            table.append([title, each.label, Chip(classify(result), _name_result(result)), *remark, score, *cells])
    header = ["condition", "controller", "verdict", *(["why there is no result"] if has_remarks else []), "score"]
    page.add_table([*header, *(_mark(card, name) for name in metrics)], table)
    rules = dict.fromkeys(row.success_rule for row in rows)
    page.add_caption(
        f"A flight succeeds if {_join(list(rules), 'or, by row, if')}. Medians or shares over flights, with 95% "
        "intervals; ↑ marks metrics of which more is better, ↓ those of which less is."
    )
    with page.fold(f"How these rows are flown: {group}"):
        page.add_table(
            ["condition", "flights", "settings", "a flight succeeds if"],
            [[row.title, str(row.flocks), row.settings, row.success_rule] for row in rows],
            align_left=True,
        )


def _make_chip(row: CardRow, controller: ControllerFacts, with_name: bool) -> Chip:
    """Return the verdict on a controller in a row, with its name if there are several."""
    result = row.results.get(controller.name)
    text = _name_result(result)
    return Chip(classify(result), f"{controller.label} {text}" if with_name else text)


def _name_result(result: RowResult | None) -> str:
    """Return the verdict as a word, with the success rate."""
    kind = classify(result)
    if result is None or kind == "open":
        return VERDICTS["open"]
    return f"{VERDICTS[kind]}: {result.metrics[SUCCESS].value:.0%} succeed"


def _format_metric(result: RowResult, name: str) -> str | Cell:
    """Return a metric with its interval."""
    found = result.metrics.get(name)
    if found is None:
        return "-"
    return Cell(found.percent if name in SHARE_METRICS else str(found), found.value)


def _mark(card: Card, metric: str) -> str:
    """Return the title of a metric with an arrow in the direction of better values."""
    direction = card.larger_is_better.get(metric)
    return card.metric_titles[metric] + ("" if direction is None else "\u00a0↑" if direction else "\u00a0↓")


def _add_facts(page: HtmlReport, card: Card) -> None:
    """Add the table of the controllers' properties that need no flights."""
    page.add_heading("Controllers")
    rows: list[list[str | Chip | Cell]] = [
        [
            each.label,
            each.role,
            _format_fact(each.weights, ",d"),
            _format_fact(each.message_bytes, ",d"),
            _format_fact(each.bytes_per_second, ",.0f"),
            _format_fact(each.equivariance_error, ".1e"),
            _format_fact(each.multiply_adds, ",.0f"),
            _format_fact(each.bound, ".1f"),
        ]
        for each in card.controllers
    ]
    header = ["controller", "role", "weights", "bytes per message", "bytes per second and agent", "equivariance error"]
    page.add_table([*header, "multiply-adds per step", "bound"], rows)
    page.add_caption(
        "Multiply-adds are those of a network for one agent. The bound is the paper's, on the generalization gap for "
        "30,150 training tuples, where it applies."
    )


def _format_fact(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _format_score(score: Estimate) -> str:
    """Return a score with its interval, with two decimals."""
    return f"{score.value:.2f} ({score.low:.2f}, {score.high:.2f})"


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def _join(texts: Sequence[str], last: str = "and") -> str:
    """Return texts with commas, and a word before the last one."""
    return f" {last} ".join(filter(None, (", ".join(texts[:-1]), texts[-1]))) if texts else ""
