"""A claim is a number with limits; its value depends on the law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from equiflock.evaluation.atlas import claims
from equiflock.evaluation.atlas.claims import (
    BondLength,
    ClaimJob,
    ConnectedShare,
    EscapeSpeed,
    FinalVelocityVariance,
    HeadOnDistance,
    MeanVelocityDrift,
    OrderPreserved,
    SmallestDistance,
    SuccessRate,
)
from equiflock.evaluation.atlas.entries import ENTRIES, build_claim_jobs

import equiflock as ef
from equiflock.scenarios import RandomDisk

FEW = RandomDisk(3, agents=20)


def test_a_claim_holds_within_its_limits_and_has_no_verdict_without() -> None:
    claim = SuccessRate("segregation", "flocks that segregate", least=0.9)
    assert claim.rule == "at least 90%"
    assert [claim.judge(value) for value in (0.89, 0.9, 1.0)] == ["does not hold", "holds", "holds"]
    both = FinalVelocityVariance("tanner", "left", least=0.5, most=1e-6)
    assert both.rule == "at least 0.5, at most 1e-06"
    nothing = ConnectedShare("reynolds", "connected")
    assert (nothing.rule, nothing.judge(0.2)) == ("", "")


def test_a_job_is_a_row_of_the_table() -> None:
    job = ClaimJob(3, FinalVelocityVariance("cucker-smale", "left", most=1e-3, disk=FEW, seconds=2.0))
    found = job.run()
    assert job.labels == {"claim": 3, "law": "cucker-smale", "description": "left", "rule": "at most 0.001"}
    assert job.key == "03-cucker-smale"
    assert 0.0 < found.value[0] < 1e-3
    assert found.verdict[0] == "holds"


@pytest.mark.slow
def test_laws_differ_in_what_is_measured() -> None:
    drift = [MeanVelocityDrift(law, "", seconds=0.5).measure() for law in ("cucker-smale", "cucker-smale-local")]
    assert drift[0] < 1e-12 < 1e-3 < drift[1]
    nearest = [SmallestDistance(law, "", disk=FEW, seconds=0.3).measure() for law in ("cucker-dong", "cucker-smale")]
    assert nearest[0] > nearest[1]


@pytest.mark.slow
def test_two_agents_do_as_their_equation_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert EscapeSpeed("cucker-smale:beta=1", "").measure() == pytest.approx(1.0, abs=0.01)

    def in_longer_steps(*flight: Any, time_step: float, **how: Any) -> ef.Trajectory:
        return ef.simulate(*flight, time_step=4 * time_step, **how)

    monkeypatch.setattr(claims, "simulate", in_longer_steps)
    assert HeadOnDistance("cucker-smale-singular", "").measure() == pytest.approx(1.0, abs=0.01)
    # Another exponent is another equation.
    assert abs(HeadOnDistance("cucker-smale-singular:alpha=2", "").measure() - 1.0) > 0.1


def test_bonds_are_as_long_as_the_law_says() -> None:
    triangle = RandomDisk(2, agents=3, disk_radius=0.8)
    assert BondLength("bonding", "", disk=triangle, seconds=10.0).measure() == pytest.approx(1.0, abs=1e-3)
    assert BondLength("bonding:spring=0", "", disk=triangle, seconds=10.0).measure() != pytest.approx(1.0, abs=1e-3)


@pytest.mark.slow
def test_agents_on_a_line_keep_their_order_only_under_a_sufficiently_singular_influence() -> None:
    assert OrderPreserved("cucker-smale-singular", "").measure() == 1.0
    assert OrderPreserved("cucker-smale-singular:alpha=0.5", "").measure() < 1.0


@pytest.mark.slow
def test_success_is_counted_by_the_scenario() -> None:
    assert SuccessRate("segregation", "", scenario="segregation:agents=20:groups=2", flocks=4).measure() == 1.0
    assert SuccessRate("cucker-smale", "", scenario="segregation:agents=20:groups=2", flocks=4).measure() == 0.0


def test_every_entry_flies_controllers_of_the_package_in_a_scenario_of_it() -> None:
    for entry in ENTRIES:
        start = ef.make_scenario(entry.scenario, flocks=1).draw()
        for name in (*entry.panels, *(claim.law for claim in entry.claims)):
            moment = next(ef.flight(start, ef.load(name)))
            assert np.isfinite(moment.accelerations).all()
        assert entry.name in entry.panels


def test_numbers_of_claims_are_those_of_the_whole_atlas_whatever_is_chosen() -> None:
    everything = {job.number: job.claim for job in build_claim_jobs()}
    some = build_claim_jobs(("bonding",))
    assert 0 < len(some) < len(everything)
    assert all(everything[job.number] == job.claim for job in some)
