"""The rules hold on results made as the paper describes them, and fail on their opposites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.paper.connectivity_experiment import build_connectivity_statements
from equiflock.paper.flocking_experiment import EFFORT, VARIANCE, build_flocking_statements
from equiflock.paper.leader_experiment import DISTANCE, build_leader_statements
from equiflock.paper.network_statements import build_architecture_statements
from equiflock.paper.obstacle_experiment import build_obstacle_statements
from equiflock.paper.policies import TrainedPolicies
from equiflock.paper.profile import Profile

TIMES = np.round(np.arange(0, 2.01, 0.05), 2)


def curves(value: Callable[[str, str, int, float], float], sizes: tuple[int, ...], metrics: tuple[str, ...]) -> Any:
    """Curves of two seeds."""
    rows = [
        {
            "time": t,
            "metric": metric,
            "controller": name,
            "seed": seed,
            "agents": n,
            "median": value(metric, name, n, t),
        }
        for metric in metrics
        for name in ("tanner", *PAPER_NETWORKS)
        for seed in ((None,) if name == "tanner" else (0, 1))
        for n in sizes
        for t in TIMES
    ]
    return pd.DataFrame(rows)


def flocking_as_described(metric: str, name: str, n: int, t: float) -> float:
    if metric == EFFORT:
        return {"tdagnn": 0.1, "tdagnn-tf": 0.11}.get(name, 0.12)
    rate = {"tanner": 3.0, "tdagnn": 1.9, "tdagnn-tf": 2.1, "tdagnn-tf-mean": 2.5, "etdagnn": 2.6}[name]
    if n == 50 and name == "tdagnn-tf":
        return float(4 * np.exp(-(2.9 if 0.05 < t < 0.35 else 3.1) * t))
    if n == 50 and name in ("tdagnn-tf-mean", "etdagnn"):
        rate = {"tdagnn-tf-mean": 3.2, "etdagnn": 3.3}[name]
    if n == 100 and name == "etdagnn":
        rate = 3.05
    if n >= 200 and t >= 1.9:
        rate = {"tdagnn": 2.7, "tdagnn-tf": 2.8}.get(name, rate)
    return float(4 * np.exp(-rate * t))


def verdicts(statements: list[Any]) -> dict[str, str]:
    return {statement.id: statement.verdict for statement in statements}


@pytest.mark.slow
def test_flocking_as_the_paper_describes_it_holds_and_its_opposite_does_not() -> None:
    sizes = (50, 100, 200, 400)
    found = build_flocking_statements(curves(flocking_as_described, sizes, (VARIANCE, EFFORT)))
    assert verdicts(found) == {f"F{n}": "holds" for n in range(1, 7)}
    swap = {"tdagnn": "etdagnn", "etdagnn": "tdagnn", "tdagnn-tf": "tdagnn-tf-mean", "tdagnn-tf-mean": "tdagnn-tf"}

    def opposite(metric: str, name: str, n: int, t: float) -> float:
        if metric == EFFORT:
            return {"tdagnn": 5.0, "tdagnn-tf": 4.0, "tdagnn-tf-mean": 0.2}.get(name, 0.1)
        if n == 50:
            return (
                1.0 if name == "tanner" else 4.0 - t if name != "tdagnn-tf" else (0.5 if 0.1 <= t <= 0.3 else 4.0 - t)
            )
        return flocking_as_described(metric, swap.get(name, name), n, t)

    wrong = verdicts(build_flocking_statements(curves(opposite, sizes, (VARIANCE, EFFORT))))
    assert (wrong["F3"], wrong["F4"], wrong["F5"], wrong["F6"]) == ("does not",) * 4
    assert wrong["F1"] != "holds"
    assert wrong["F2"] != "holds"


@pytest.mark.parametrize(
    ("below", "above", "failing"),
    [
        (21, 3, []),
        (20, 3, [f"share of time below: {name}" for name in ("tdagnn-tf", "tdagnn-tf-mean", "etdagnn")]),
        (21, 2, ["share of 0.1 to 0.3 s above: tdagnn-tf"]),
    ],
)
def test_half_of_the_times_is_not_most_of_them(below: int, above: int, failing: list[str]) -> None:
    times = [t for t in TIMES if t != 0.3]  # forty, four of them from 0.1 to 0.3 s

    def level(metric: str, name: str, n: int, t: float) -> float:
        """As the expert, but lower at the last `below` times, and TDAGNN-TF higher at the first `above` from 0.1 on."""
        if name == "tanner" or t == 0.3:
            return 1.0
        place = times.index(t)
        return 0.5 if place >= 40 - below else 1.5 if name == "tdagnn-tf" and 2 <= place < 2 + above else 1.0

    made = curves(level, (50,), (VARIANCE, EFFORT))
    f3 = build_flocking_statements(made[made.time != 0.3])[2]
    assert f3.id == "F3"
    assert [check.description for check in f3.checks if not check.holds] == failing


@pytest.mark.parametrize(
    ("effort", "f5", "f6"),
    [
        ((0.1, 0.1, 0.149, 0.149), "holds", "holds"),
        ((0.1, 0.1, 0.149, 0.151), "partly", "partly"),
        ((0.1, 0.1, 0.0901, 0.0901), "holds", "holds"),
        ((0.1, 0.1, 0.0901, 0.0899), "partly", "holds"),
        ((0.1, 0.151, 0.145, 0.145), "holds", "partly"),
    ],
)
def test_norms_are_about_the_same_if_they_differ_by_a_few_hundredths(
    effort: tuple[float, ...], f5: str, f6: str
) -> None:
    norms = dict(zip(PAPER_NETWORKS, effort, strict=True))
    found = verdicts(
        build_flocking_statements(
            curves(lambda metric, name, n, t: norms.get(name, 0.0), (50, 200), (VARIANCE, EFFORT))
        )
    )
    assert (found["F5"], found["F6"]) == (f5, f6)


@pytest.mark.parametrize(
    ("distance", "effort", "expected"),
    [
        ((3.0, 2.5, 1.0, 2.0), (0.02, 0.03, 0.04, 0.069), {"L1": "holds", "L2": "holds"}),
        ((3.0, 2.5, 1.0, 2.0), (0.02, 0.03, 0.04, 0.071), {"L1": "holds", "L2": "partly"}),
        ((1.0, 1.0, 9.0, 1.0), (1.0, 2.0, 4.0, 8.0), {"L1": "does not", "L2": "does not"}),
    ],
)
def test_leader_following(distance: tuple[float, ...], effort: tuple[float, ...], expected: dict[str, str]) -> None:
    values = {
        DISTANCE: dict(zip(PAPER_NETWORKS, distance, strict=True)),
        EFFORT: dict(zip(PAPER_NETWORKS, effort, strict=True)),
    }
    made = curves(lambda metric, name, n, t: values[metric].get(name, 0.0), (100,), (DISTANCE, EFFORT))
    assert verdicts(build_leader_statements(made)) == expected


def flights(failed: Callable[[str, int, bool], int], how: Callable[[int], str]) -> pd.DataFrame:
    """Return a table of a hundred flights of two seeds, of which `failed` flights fail."""
    return pd.DataFrame(
        [
            {"controller": name, "seed": seed, "sides": s, "uses_orbit": uses_orbit, "outcome": outcome, "flock": flock}
            for name in PAPER_NETWORKS
            for seed in (0, 1)
            for s in Profile.sides
            for uses_orbit in (True, False)
            for flock in range(100)
            for outcome in [how(s) if flock < failed(name, s, uses_orbit) else "PASSED"]
        ]
    )


def obstacles_as_described(hits: dict[tuple[str, int], int]) -> pd.DataFrame:
    """Return flights with `hits` collisions among the failures of seed 0; at 24 sides both seeds have 40 failures."""

    def failed(name: str, s: int, uses_orbit: bool) -> int:
        if not uses_orbit:
            return 100
        return {24: 20, 48: 20, 96: 60}.get(s, 5) if name == "etdagnn" else {24: 20, 48: 35, 96: 85}.get(s, 5)

    table = flights(failed, lambda s: "DISCONNECTED")
    for (name, s), count in hits.items():
        there = (table.controller == name) & (table.sides == s) & table.uses_orbit & (table.seed == 0)
        table.loc[there & (table.flock < count), "outcome"] = "HIT_OBSTACLE"
    return table


def test_obstacles_as_the_paper_describes_them_hold_and_the_opposite_does_not() -> None:
    found = build_obstacle_statements(obstacles_as_described({("tdagnn", 24): 1}))
    assert verdicts(found) == {f"O{n}": "holds" for n in range(1, 6)}
    spread = {"tdagnn": 20, "tdagnn-tf": 40, "tdagnn-tf-mean": 60, "etdagnn": 80}
    wrong = build_obstacle_statements(flights(lambda name, s, uses_orbit: spread[name], lambda s: "HIT_OBSTACLE"))
    # There are hits at 24 sides, as there should be; far too many, and not only there.
    assert verdicts(wrong) == {**{f"O{n}": "does not" for n in range(1, 5)}, "O5": "partly"}
    assert sum(check.holds for check in wrong[4].checks) == 1


SHARE = "collisions with the obstacle among failures of all seeds"


@pytest.mark.parametrize(
    ("hits", "failing"),
    [
        ({("tdagnn", 24): 1, ("etdagnn", 24): 1}, []),
        ({("tdagnn", 24): 1, ("etdagnn", 24): 2}, [f"s = 24, etdagnn: {SHARE}, below 0.05"]),
        ({("tdagnn", 24): 1, ("tdagnn-tf", 96): 1}, [f"s = 96, tdagnn-tf: {SHARE}"]),
        ({}, ["s = 24: number of collisions with the obstacle, all controllers and seeds"]),
    ],
)
def test_each_controller_hits_few_obstacles_and_only_those_of_24_sides(
    hits: dict[tuple[str, int], int], failing: list[str]
) -> None:
    o5 = build_obstacle_statements(obstacles_as_described(hits))[4]
    assert [check.description for check in o5.checks if not check.holds] == failing


def test_obstacles_of_24_sides_need_no_hits_if_they_are_not_in_the_table() -> None:
    table = obstacles_as_described({})
    assert verdicts(build_obstacle_statements(table[table.sides != 24]))["O5"] == "holds"


def test_the_law_must_lose_a_flock_that_the_network_keeps() -> None:
    def table(components: list[int], connected: list[bool]) -> pd.DataFrame:
        law = pd.DataFrame({"flock": [0, 1], "final_components": components, "always_connected": [False, True]})
        network = pd.DataFrame({"flock": [0, 1], "final_components": [1, 1], "always_connected": connected})
        return pd.concat(
            [law.assign(controller="tanner-dynamic", seed=None), network.assign(controller="tdagnn", seed=0.0)]
        )

    assert verdicts(build_connectivity_statements(table([3, 1], [True, True]))) == {"A3": "holds"}
    assert verdicts(build_connectivity_statements(table([3, 1], [False, True]))) == {"A3": "does not"}


def test_the_networks_are_what_the_paper_says_they_are() -> None:
    assert verdicts(build_architecture_statements(TrainedPolicies(), (0, 1))) == {"A1": "holds", "A2": "holds"}


def test_every_check_of_obstacles_has_an_interval_around_the_number_that_decides() -> None:
    statements = build_obstacle_statements(obstacles_as_described({("tdagnn", 24): 1}))
    for check in (check for statement in statements for check in statement.checks):
        assert check.estimate is not None, check.description
        value, low, high, flocks = check.estimate
        assert low <= value <= high and low < high, check.description
        assert flocks == 100
    # The same flights of both: the interval is as wide as chance makes it for pairs that agree.
    pair = next(each for each in statements[3].checks if each.description == "s = 48: tdagnn - tdagnn-tf, failed")
    assert pair.estimate is not None
    assert -0.05 < pair.estimate.low < 0.0 < pair.estimate.high < 0.05
    assert pair.verdict == "holds"


def test_without_resamples_no_check_of_obstacles_has_an_interval_and_all_verdicts_are_the_same() -> None:
    table = obstacles_as_described({("tdagnn", 24): 1})
    found, bare = build_obstacle_statements(table), build_obstacle_statements(table, resamples=0)
    assert verdicts(bare) == verdicts(found)
    assert not any(check.estimate or check.is_exact for statement in bare for check in statement.checks)
