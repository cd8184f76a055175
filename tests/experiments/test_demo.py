"""The demonstration shows flocks that fall apart without a centre and stay together with one."""

from __future__ import annotations

import numpy as np

from equiflock.experiments.demo import demonstrate
from equiflock.experiments.summary import Row, summarize
from equiflock.initial import RandomDisk


def test_the_decentralized_law_splits_flocks_that_the_expert_keeps_whole() -> None:
    found = demonstrate(RandomDisk(flocks=5, seed=1))
    assert found.telling
    for flock in found.telling:
        assert (found.runs["tanner"].series["component_count"][:, flock] == 1).all()
        assert found.runs["tanner-dynamic"].series["component_count"][-1, flock] > 1
    assert (found.runs["tanner"].positions[0] == found.runs["tanner-dynamic"].positions[0]).all()


def test_a_summary_gives_medians_and_quartiles() -> None:
    row = Row("x", np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert row.quartiles == (2.0, 3.0, 4.0)
    assert row.text == "3 (2, 4)"
    assert Row("x", np.array([np.inf, np.inf])).text == "inf"


def test_a_run_with_leaders_reports_their_distance() -> None:
    import equiflock as ef
    from equiflock.experiments.summary import RECORDED

    plain = ef.random_disk(1, 20)
    roles = plain.roles.copy()
    roles[:, :2] = ef.Role.LEADER
    led = ef.Flock(plain.positions, plain.velocities, roles)
    names = [row.name for row in summarize(ef.simulate(led, ef.load("tanner"), duration=0.1, record=RECORDED))]
    assert any("MLVD" in name for name in names)
