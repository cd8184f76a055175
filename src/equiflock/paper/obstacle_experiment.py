"""Obstacle avoidance: led flocks pass a disk with and without the orbit technique (section 5, "Obstacle avoidance")."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float64

from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.observations.orbit import Orbit
from equiflock.outcomes import Outcome
from equiflock.paper.ledger import Check, Statement
from equiflock.paper.policies import PolicyFlightJob
from equiflock.paper.profile import Profile
from equiflock.plotting.curve_panel import CurvePanel
from equiflock.scenarios import ObstacleCourse, Scenario
from equiflock.simulation.flight_jobs import build_outcome_table
from equiflock.statistics import RESAMPLES, limit_share, limit_share_difference, resample_share


@dataclass(frozen=True, kw_only=True)
class ObstacleJob(PolicyFlightJob):
    """Flights of one controller past an obstacle of `sides` sides, with or without the orbit technique."""

    sides: int
    uses_orbit: bool
    duration: float = 20.0
    """Seconds after which a flight counts as failed."""

    experiment = scenario_name = "obstacles"
    label_names = ("sides", "uses_orbit")

    @property
    def scenario(self) -> Scenario:
        """Scenario of the flocks and their obstacle."""
        return self.build_scenario(sides=self.sides, orbit=Orbit() if self.uses_orbit else None)

    def run(self) -> pd.DataFrame:
        """Return the outcome and duration of each flock's flight."""
        return build_outcome_table(self.fly(self.draw_start(), keep_every=None))


def build_obstacle_jobs(profile: Profile, folder: Path) -> list[ObstacleJob]:
    """Return the jobs of the experiment: every controller, seed and obstacle, with and without the orbit technique."""
    shared = profile.build_flight_options(folder, "obstacles")
    return [
        ObstacleJob(name, seed, sides=sides, uses_orbit=uses_orbit, **shared)
        for sides, (name, seed), uses_orbit in product(profile.sides, profile.networks, (True, False))
    ]


class Share(NamedTuple):
    """A share of flights, or a difference of shares."""

    values: Float64[np.ndarray, "R S"]
    """One number per training seed in ascending order: first as measured, then of each resample of the flocks."""
    least: tuple[float, float]
    """Interval that the interval of the resamples should include."""


class OutcomeTable:
    """Fractions of flights by outcome, from the table of the experiment, with `resamples` of the flocks."""

    def __init__(self, table: pd.DataFrame, resamples: int = 0) -> None:
        successes = [outcome.name for outcome in ObstacleCourse.success_outcomes]
        self.table = table.assign(failed=~table.outcome.isin(successes))
        self.sides = sorted(int(s) for s in table.sides.unique())
        self.flocks = int(table.flock.nunique())
        self.resamples = resamples

    def compute_failure_rate(self, controller: str, sides: int, uses_orbit: bool) -> Share:
        """Return the fraction of flights that failed."""
        failed = self._read_flocks([controller], sides, uses_orbit)
        rate = resample_share(failed, resamples=self.resamples)
        return Share(rate, limit_share(failed, share=float(np.median(rate[0]))))

    def compute_rate_difference(self, first: tuple[str, bool], second: tuple[str, bool], sides: int) -> Share:
        """Return the difference of two failure rates on the same flocks, each of a controller with or without orbit."""
        one, other = (self._read_flocks([name], sides, uses_orbit) for name, uses_orbit in (first, second))
        rates = (resample_share(failed, resamples=self.resamples) for failed in (one, other))
        return Share(np.subtract(*rates), limit_share_difference(one, other))

    def compute_outcome_share(
        self,
        outcomes: Iterable[Outcome],
        names: Iterable[str],
        sides: int,
        uses_orbit: bool,
        is_pooled: bool = False,
    ) -> Share:
        """Return, of the failures of these controllers, the share with one of these outcomes, per seed.

        The outcomes must be failures; without failures the share is NaN. `is_pooled` counts all seeds as one.
        """
        selected = self._read_flocks(names, sides, uses_orbit, outcomes)
        failed = self._read_flocks(names, sides, uses_orbit)
        if is_pooled:
            selected, failed = (table.sum(axis=0, keepdims=True) for table in (selected, failed))
        share = resample_share(selected, failed, resamples=self.resamples)
        return Share(share, limit_share(selected, failed))

    def count_outcome(self, outcome: Outcome, names: Iterable[str], sides: int) -> Share:
        """Return the number of flights with the orbit technique and this outcome, of all controllers and seeds."""
        selected = self._read_flocks(names, sides, True, [outcome])
        low, high = limit_share(selected)
        counts = resample_share(selected, resamples=self.resamples).sum(axis=1, keepdims=True) * selected.shape[1]
        return Share(np.rint(counts), (low * selected.size, high * selected.size))

    def _read_flocks(
        self, names: Iterable[str], sides: int, uses_orbit: bool, outcomes: Iterable[Outcome] | None = None
    ) -> Float64[np.ndarray, "S B"]:
        """Return 1 for flights that failed, or had one of the outcomes, else 0: a row per controller and seed."""
        rows = self.select_rows(names, sides, uses_orbit)
        if outcomes is not None:
            rows = rows.assign(failed=rows.outcome.isin([outcome.name for outcome in outcomes]))
        wide = rows.pivot(index=["controller", "seed"], columns="flock", values="failed")
        return np.asarray(wide.sort_index(), np.float64)

    def select_rows(self, names: Iterable[str], sides: int, uses_orbit: bool) -> pd.DataFrame:
        """Return the flights of these controllers past one obstacle, with or without the orbit technique."""
        table = self.table
        return table[table.controller.isin(list(names)) & (table.sides == sides) & (table.uses_orbit == uses_orbit)]


def build_obstacle_statements(table: pd.DataFrame, resamples: int = RESAMPLES) -> list[Statement]:
    """Return O1 to O5, without those about obstacles that are not in the table."""
    outcomes = OutcomeTable(table, resamples)
    statements = [_judge_failures_without_orbit(outcomes), _judge_gain_of_orbit(outcomes)]
    if min(outcomes.sides) <= 6:
        statements.append(_judge_failures_at_small_obstacles(outcomes))
    if max(outcomes.sides) >= 48:
        statements.append(_judge_failures_at_large_obstacles(outcomes))
    return [*statements, _judge_collisions(outcomes)]


def _judge_failures_without_orbit(outcomes: OutcomeTable) -> Statement:
    """Judge statement O1."""
    checks = []
    for s, name in product(outcomes.sides, PAPER_NETWORKS):
        shares = {
            "failed": outcomes.compute_failure_rate(name, s, False),
            "disconnected among failures": outcomes.compute_outcome_share([Outcome.DISCONNECTED], [name], s, False),
        }
        for title, share in shares.items():
            # Without failures the share of disconnections is undefined, and the statement does not hold.
            values = np.nan_to_num(share.values)
            description = f"s = {s}, {name}: {title}"
            checks.append(Check.within(description, values, 0.95, 1.0, flocks=outcomes.flocks, least=share.least))
    return Statement(
        "O1",
        "Without the orbit technique the failure rate is near 100%, over 95% of it by disconnection.",
        "At least 95% of flights fail, and at least 95% of failures are disconnections, for each controller and "
        "obstacle.",
        tuple(checks),
    )


def _judge_gain_of_orbit(outcomes: OutcomeTable) -> Statement:
    """Judge statement O2."""
    # The paper's margins by perimeter, less 1e-9 for the rounding of differences of fractions.
    margins = {s: 0.8 if s <= 24 else 0.55 if s <= 48 else 0.1 for s in outcomes.sides}
    checks = []
    for s, name in product(outcomes.sides, PAPER_NETWORKS):
        fall, least = outcomes.compute_rate_difference((name, False), (name, True), s)
        description = f"s = {s}, {name}: fall of the failed fraction"
        checks.append(Check.within(description, fall, margins[s] - 1e-9, 1.0, flocks=outcomes.flocks, least=least))
    return Statement(
        "O2",
        "With it, the failure fraction falls by at least 80 points up to 24 sides, 55 at 48, 10 at 96.",
        "By at least that margin, for every controller and obstacle.",
        tuple(checks),
    )


def _judge_failures_at_small_obstacles(outcomes: OutcomeTable) -> Statement:
    """Judge statement O3."""
    checks = []
    for s, name in product([s for s in outcomes.sides if s <= 6], PAPER_NETWORKS):
        failed, least = outcomes.compute_failure_rate(name, s, True)
        description = f"s = {s}, {name}: failed, below 0.1"
        checks.append(Check.below(description, failed, 0.1, flocks=outcomes.flocks, least=least))
    return Statement(
        "O3",
        "Up to 6 sides all controllers fail in less than 10% of flights.",
        "Less than 10%, for every controller and obstacle.",
        tuple(checks),
    )


def _judge_failures_at_large_obstacles(outcomes: OutcomeTable) -> Statement:
    """Judge statement O4."""
    checks = []
    others = [name for name in PAPER_NETWORKS if name != "etdagnn"]
    for s, margin in ((48, 0.1), (96, 0.2)):
        if s not in outcomes.sides:
            continue
        pairs = [(name, "etdagnn", margin - 1e-9, 1.0) for name in others]
        pairs += [(a, b, -0.1 - 1e-9, 0.1 + 1e-9) for a, b in combinations(others, 2)]
        for a, b, low, high in pairs:
            # Flock by flock, as both pass the same obstacles.
            ahead, least = outcomes.compute_rate_difference((a, True), (b, True), s)
            description = f"s = {s}: {a} - {b}, failed"
            checks.append(Check.within(description, ahead, low, high, flocks=outcomes.flocks, least=least))
    return Statement(
        "O4",
        "ETDAGNN fails at least 10 points less than the others at 48 sides and 20 at 96; the others are within 10 "
        "points of each other at both.",
        "By at least that margin below each other controller; the others pair by pair.",
        tuple(checks),
    )


def _judge_collisions(outcomes: OutcomeTable) -> Statement:
    """Judge statement O5."""
    # Collisions with the obstacle are rare, so they are counted over all seeds: one number, repeated for each seed.
    seeds, hit = outcomes.table.seed.nunique(), Outcome.HIT_OBSTACLE
    checks = []
    for s, name in product(outcomes.sides, PAPER_NETWORKS):
        share = outcomes.compute_outcome_share([hit], [name], s, True, is_pooled=True)
        # Without failures there is no collision.
        values = np.repeat(np.nan_to_num(share.values), seeds, axis=1)
        description = f"s = {s}, {name}: collisions with the obstacle among failures of all seeds"
        if s == 24:
            description += ", below 0.05"
            checks.append(Check.below(description, values, 0.05, flocks=outcomes.flocks, least=share.least))
        else:
            checks.append(Check.within(description, values, 0.0, 0.0, flocks=outcomes.flocks, least=share.least))
    if 24 in outcomes.sides:
        count, least = outcomes.count_outcome(hit, PAPER_NETWORKS, 24)
        description = "s = 24: number of collisions with the obstacle, all controllers and seeds"
        counts = np.repeat(count, seeds, axis=1)
        checks.append(Check.within(description, counts, 1.0, np.inf, flocks=outcomes.flocks, least=least))
    return Statement(
        "O5",
        "Collisions with the obstacle are under 5% of failures, and occur at 24 sides only.",
        "Under 5% of each controller's failures at 24 sides, at least one there over all controllers, and none of any "
        "controller at the others; counted over all seeds.",
        tuple(checks),
    )


def build_obstacle_panels(table: pd.DataFrame) -> list[CurvePanel]:
    """Return panels of the share of flights that failed by the obstacle's number of sides, and of the causes.

    These flights use the orbit technique. The range is over training seeds. A cause of all failures, or of none, has no
    panel.
    """
    outcomes = OutcomeTable(table)
    collisions = Outcome.COLLIDED, Outcome.HIT_OBSTACLE
    quantities: dict[str, Callable[[str, int], Share]] = {
        "flights that fail": lambda name, s: outcomes.compute_failure_rate(name, s, True),
        "disconnected, of failures": lambda name, s: outcomes.compute_outcome_share(
            [Outcome.DISCONNECTED], [name], s, True
        ),
        "collided, of failures": lambda name, s: outcomes.compute_outcome_share(collisions, [name], s, True),
    }
    panels: list[CurvePanel] = []
    for title, compute in quantities.items():
        lines = {
            name: np.transpose([_compute_range(compute(name, s).values[0]) for s in outcomes.sides])
            for name in PAPER_NETWORKS
        }
        shares = np.concatenate([np.ravel(line) for line in lines.values()])
        if panels and len(np.unique(shares[~np.isnan(shares)])) < 2:
            continue
        x, x_label, ticks = np.array(outcomes.sides), "perimeter / $R_{min}$", tuple(outcomes.sides)
        panels.append(CurvePanel(x, x_label, "share", lines, "linear", (-0.03, 1.03), ticks, title))
    return panels


def format_failures_without_orbit(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the share of flights without the orbit technique that failed, by network and obstacle.

    Each is the median [range] over seeds. A figure would show nothing, as nearly all flights fail.
    """
    outcomes = OutcomeTable(table)
    rows = []
    for name in PAPER_NETWORKS:
        rates = [outcomes.compute_failure_rate(name, s, False).values[0] for s in outcomes.sides]
        rows.append([name, *(f"{np.median(r):.0%} [{r.min():.0%}, {r.max():.0%}]" for r in rates)])
    return ["failed, by sides", *map(str, outcomes.sides)], rows


def _compute_range(values: Float64[np.ndarray, " S"]) -> tuple[float, float, float]:
    """Return minimum, median and maximum over seeds, without NaNs (seeds without failures); NaN if all values are."""
    finite = values[~np.isnan(values)]
    return (finite.min(), float(np.median(finite)), finite.max()) if len(finite) else (np.nan, np.nan, np.nan)
