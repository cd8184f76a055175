"""From the tables of a report card's jobs to the card: estimates, scores, breakpoints and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float64

from equiflock.evaluation.card import (
    BreakpointResult,
    CardBreakpoint,
    CardRow,
    ControllerFacts,
    RowResult,
    round_number,
)
from equiflock.evaluation.card_conditions import SUCCESS_TEXTS, Condition, Disturbance
from equiflock.evaluation.card_jobs import METRIC_TITLES, SHARE_METRICS, SUCCESS, THRESHOLDS
from equiflock.evaluation.card_profiles import EXPERT, LAWS
from equiflock.statistics import (
    Estimate,
    ScoreRow,
    compare_shares,
    estimate,
    estimate_flock_share,
    estimate_performance_profile,
    estimate_score,
    scale_share,
)

LEAST_SPREAD = 0.2
"""Least difference of the expert's and the worst law's success rates in a row that counts for the score."""
SCORE_LEVELS = tuple(np.linspace(0.0, 1.0, 41).round(3).tolist())
"""Scores of a performance profile."""
HIGH_RATE = THRESHOLDS[0]
"""Success rate from which on a verdict says that a controller holds."""
LOW_RATE = THRESHOLDS[1]


class CardTable:
    """The table of all jobs, split by controller and part."""

    def __init__(self, table: pd.DataFrame) -> None:
        self._parts = dict(iter(table.groupby(["controller", "part"], sort=False)))

    def find(self, controller: str, part: str) -> pd.DataFrame | None:
        """Return the result of a job; None if there was none."""
        return self._parts.get((controller, part))

    def read_remark(self, controller: str, part: str) -> str:
        """Return why a job has no result; empty if it has one or was not run."""
        found = self.find(controller, part)
        remark = None if found is None else found.remark.iloc[0]
        return remark if isinstance(remark, str) else ""

    def read_successes(self, controller: str, row: str) -> Float64[np.ndarray, " B"] | None:
        """Return 1 or 0 per flock; None if there is no result."""
        found = self.find(controller, row)
        if found is None or self.read_remark(controller, row):
            return None
        return np.asarray(found[SUCCESS], np.float64)


def build_row(condition: Condition, table: CardTable, controllers: Sequence[ControllerFacts]) -> CardRow:
    """Return the row of a condition with the results of all controllers, and its verdict."""
    row = CardRow(
        condition.name,
        condition.group,
        condition.title,
        SUCCESS_TEXTS[condition.success],
        condition.settings,
        condition.flocks,
        {each.name: _build_row_result(condition, table, each) for each in controllers},
    )
    return replace(row, verdict=write_row_verdict(row, table, controllers))


def _build_row_result(condition: Condition, table: CardTable, controller: ControllerFacts) -> RowResult:
    """Return the estimates of one controller under one condition; of a judged one also its typical flights."""
    found, remark = table.find(controller.name, condition.name), table.read_remark(controller.name, condition.name)
    if found is None or remark:
        return RowResult(remark=remark or controller.error or "not flown")
    estimates = {}
    for metric in METRIC_TITLES:
        values = found[metric].to_numpy(np.float64)
        if not np.isnan(values).any():
            measured = estimate_flock_share(values) if metric in SHARE_METRICS else estimate(values)
            estimates[metric] = _round_estimate(measured)
    scored = find_score_row(condition, table, controller.name)
    score = None
    if scored is not None:
        score = _round_estimate(scale_share(estimate_flock_share(scored.successes), scored.worst, scored.best))
    success = failure = None
    if controller.role == "judged":
        success, failure = (choose_typical_flock(found, succeeds) for succeeds in (True, False))
    return RowResult(estimates, score, "", success, failure)


def _round_estimate(found: Estimate) -> Estimate:
    """Return the estimate with SIGNIFICANT_DIGITS."""
    value, low, high = (round_number(number) for number in found[:3])
    return Estimate(value, low, high, found.n)


def find_score_row(condition: Condition, table: CardTable, controller: str) -> ScoreRow | None:
    """Return a controller's successes in a row, with the rates that have the scores 0 and 1.

    1 is the expert's rate; where its law does not model the task, it is success in all flights, and the expert itself
    has no score. 0 is the rate of the worst law. None without results of the controller, the expert or any law, or if
    the two rates are less than LEAST_SPREAD apart, so that the row tells nothing.
    """
    if controller == EXPERT and not condition.has_expert:
        return None
    own = table.read_successes(controller, condition.name)
    ends = _find_score_ends(condition, table)
    return None if own is None or ends is None else ScoreRow(own, *ends, condition.start_key)


def _find_score_ends(condition: Condition, table: CardTable) -> tuple[float, float] | None:
    """Return the success rates with the scores 0 and 1 in a row; None if it has no scores."""
    expert = table.read_successes(EXPERT, condition.name) if condition.has_expert else np.ones(1)
    laws = [rates for law in LAWS if (rates := table.read_successes(law, condition.name)) is not None]
    if expert is None or not laws:
        return None
    best, worst = float(expert.mean()), min(float(rates.mean()) for rates in laws)
    return (worst, best) if best - worst >= LEAST_SPREAD else None


def build_scores(
    conditions: Sequence[Condition], table: CardTable, controllers: Sequence[ControllerFacts]
) -> tuple[dict[str, Estimate], dict[str, tuple[tuple[float, float, float, float], ...]]]:
    """Return the overall score and the performance profile of each controller that could be loaded.

    A row that it could not fly counts as failed by all flocks; the expert's score is of the rows that its law models.
    """
    scores, profiles = {}, {}
    for each in controllers:
        rows = []
        for condition in conditions:
            own, ends = find_score_row(condition, table, each.name), _find_score_ends(condition, table)
            if own is not None:
                rows.append(own)
            elif ends is not None and each.name != EXPERT:
                rows.append(ScoreRow(np.zeros(condition.flocks), *ends, condition.start_key))
        if rows and not each.error:
            scores[each.name] = _round_estimate(estimate_score(rows))
            profiles[each.name] = tuple(
                (score, round_number(share), round_number(low), round_number(high))
                for score, share, low, high in estimate_performance_profile(rows, SCORE_LEVELS)
            )
    return scores, profiles


def build_breakpoint(
    disturbance: Disturbance, table: CardTable, controllers: Sequence[ControllerFacts]
) -> CardBreakpoint:
    """Return the breakpoints of all controllers that were flown under a disturbance, and the verdict."""
    results, curves, remarks = {}, {}, {}
    for each in controllers:
        found, remark = table.find(each.name, disturbance.name), table.read_remark(each.name, disturbance.name)
        if found is None or remark:
            if remark or each.error:
                remarks[each.name] = remark or each.error
            continue
        rows = found[found.threshold.notna()]
        flown = found[found.level.notna()]
        mild_rate = float(flown.successes.iloc[0]) / disturbance.base.flocks
        results[each.name] = {
            f"{100 * row.threshold:g}": _build_breakpoint_result(disturbance, row, mild_rate)
            for row in rows.itertuples()
        }
        curves[each.name] = tuple(
            (float(disturbance.levels[int(level)]), float(count) / disturbance.base.flocks)
            for level, count in zip(flown.level, flown.successes, strict=True)
        )
    point = CardBreakpoint(
        disturbance.name,
        disturbance.title,
        disturbance.levels[0],
        disturbance.levels[-1],
        disturbance.is_logarithmic,
        disturbance.format_level(disturbance.levels[0]),
        disturbance.format_level(disturbance.levels[-1]),
        disturbance.base.flocks,
        disturbance.settings,
        results,
        curves,
        remarks,
    )
    return replace(point, verdict=write_breakpoint_verdict(point, controllers))


def _build_breakpoint_result(disturbance: Disturbance, row: Any, mild_rate: float) -> BreakpointResult:
    """Return the breakpoint of a row of a `BreakpointJob`, with levels in place of indices.

    `mild_rate` is the success rate at the mildest level.
    Ends of the interval that the flights do not fix are at the ends of the range, and left out of the text.
    """
    last = len(disturbance.levels) - 1
    indices = (min(max(int(index), 0), last) for index in (row.value, row.low, row.high))
    value, low, high = (disturbance.levels[index] for index in indices)
    is_rising = disturbance.mild < disturbance.hard
    text, mild_text, hard_text = (disturbance.format_level(level) for level in (value, low, high))
    interval = {
        (True, True): f" [{mild_text}, {hard_text}]" if is_rising else f" [{hard_text}, {mild_text}]",
        (True, False): f" [from {mild_text} on]" if is_rising else f" [from {mild_text} down]",
        (False, True): f" [up to {hard_text}]" if is_rising else f" [down to {hard_text}]",
        (False, False): "",
    }[row.low >= 0, row.high <= last]
    if row.status == "fails":
        interval = "" if high == value else interval
        return BreakpointResult(row.status, value, low, high, f"not even at {text} ({mild_rate:.0%} succeed){interval}")
    if row.status == "holds":
        text = f"{text} or more" if is_rising else f"{text} or less"
        interval = "" if low == value else interval
    return BreakpointResult(row.status, value, low, high, ("" if is_rising else "down to ") + text + interval)


def write_row_verdict(row: CardRow, table: CardTable, controllers: Sequence[ControllerFacts]) -> str:
    """Return a sentence on the success rates of the judged controllers in a row, and on the best baseline."""
    parts = []
    for each in (each for each in controllers if each.role == "judged"):
        result = row.results[each.name]
        if result.remark:
            parts.append(f"{each.label} has no result: {result.remark}")
            continue
        success = result.metrics[SUCCESS]
        verb = "holds" if success.value >= HIGH_RATE else "fails" if success.value < LOW_RATE else "partly holds"
        comparison = _compare(row, each.name, table, controllers)
        parts.append(f"{each.label} {verb}: {success.percent} of {row.flocks} flights succeed{comparison}")
    return "; ".join(parts) + "."


def _compare(row: CardRow, name: str, table: CardTable, controllers: Sequence[ControllerFacts]) -> str:
    """Return the comparison with the best baseline on the same flocks, such as ", better than etdagnn's 78%"."""
    own = table.read_successes(name, row.name)
    baselines = [each for each in controllers if each.role == "baseline" and SUCCESS in row.results[each.name].metrics]
    if own is None or not baselines:
        return ""
    best = max(baselines, key=lambda each: row.results[each.name].metrics[SUCCESS].value)
    other = table.read_successes(best.name, row.name)
    assert other is not None
    difference = compare_shares(own, other, larger_is_better=True).difference
    rate = f"{best.label}'s {other.mean():.0%}"
    if difference.low > 0.0:
        return f", more than {rate}"
    if difference.high < 0.0:
        return f", fewer than {rate}"
    return f"; the difference from {rate} is within noise" if difference.value != 0.0 else f", as many as {rate}"


def write_breakpoint_verdict(point: CardBreakpoint, controllers: Sequence[ControllerFacts]) -> str:
    """Return a sentence on the level to which each controller holds."""
    key = f"{100 * HIGH_RATE:g}"
    parts = []
    for each in controllers:
        if each.name in point.remarks:
            parts.append(f"{each.label} has no result: {point.remarks[each.name]}")
        elif each.name in point.results:
            parts.append(f"{each.label} {describe_breakpoint(point.results[each.name][key])}")
    return f"{point.title}: {'; '.join(parts)}." if parts else ""


def describe_breakpoint(found: BreakpointResult) -> str:
    """Return a breakpoint as the end of a sentence, such as "holds to 34% [31%, 37%]"."""
    if found.status == "fails":
        return f"fails {found.text.removeprefix('not ')}"
    return f"holds {found.text}" if found.text.startswith("down to") else f"holds to {found.text}"


def choose_typical_flock(result: pd.DataFrame, succeeds: bool) -> int | None:
    """Return the index of the flock of median final variance among those that succeeded or failed; None without any."""
    flights = result[result[SUCCESS] == float(succeeds)].sort_values(["final_variance", "flock"])
    return None if flights.empty else int(flights.flock.iloc[(len(flights) - 1) // 2])


def to_marl_eval(results: pd.DataFrame, conditions: Sequence[Condition]) -> dict[str, Any]:
    """Return the flights of all rows in the layout of the package marl-eval, for its plots and tables.

    The nesting is environment, task (row), algorithm (controller), run (flock); each run has its metrics at step 0 and
    as `absolute_metrics`. Metrics that are infinite or have no value in a flock are left out of its run.
    """
    tasks: dict[str, Any] = {condition.name: {} for condition in conditions}
    for (controller, part), flights in results.groupby(["controller", "part"], sort=False):
        if part not in tasks or flights.remark.notna().any():
            continue
        runs: dict[str, Any] = {}
        for flight in flights.to_dict("records"):
            values = {name: [float(flight[name])] for name in METRIC_TITLES if np.isfinite(flight[name])}
            first = {"step_0": {"step_count": 0, **values}, "absolute_metrics": values}
            runs[f"run_{int(flight['flock'])}"] = first
        tasks[part][controller] = runs
    return {"equiflock": tasks}
