"""The atlas: the laws' theorems hold in flights, claims have limits, and the script writes a page and films."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import atlas
import atlas_claims
import equiflock as ef
from atlas import ENTRIES, ClaimJob, Entry, build_claim_jobs
from atlas_claims import (
    BondLength,
    ConnectedShare,
    EscapeSpeed,
    FinalVelocityVariance,
    HeadOnDistance,
    MeanVelocityDrift,
    OrderPreserved,
    SmallestDistance,
    SuccessRate,
)
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

    monkeypatch.setattr(atlas_claims, "simulate", in_longer_steps)
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


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jobs_here: None) -> None:
    """Replace the entries by two with a small claim and a short film, and change to an empty folder."""
    entries = [
        Entry(
            name,
            f"The law {name}",
            "Much.",
            "Often.",
            (FinalVelocityVariance(name, "variance", most=most, disk=RandomDisk(2, agents=10), seconds=1.0),),
            (name, "tanner"),
            scenario="flocking:agents=10",
            seconds=0.3,
        )
        for name, most in (("cucker-smale", 0.1), ("reynolds", 0.0))
    ]
    monkeypatch.setattr(atlas, "ENTRIES", entries)
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_page_has_a_film_a_description_and_the_numbers_of_each_law(capsys: pytest.CaptureFixture[str]) -> None:
    atlas.main(["--out", "found", "--workers", "1"])
    page, table = Path("found/atlas.md").read_text(), pd.read_csv("found/atlas.csv")
    assert table.verdict.tolist() == ["holds", "does not hold"]
    for name, verdict in zip(("cucker-smale", "reynolds"), table.verdict, strict=True):
        assert Path(f"found/{name}.webp").stat().st_size > 1000
        section = page.split(f"## The law {name}")[1].split("\n## ")[0]
        assert f"![{name} beside tanner]({name}.webp)" in section
        assert "**Claims.** Much." in section
        assert f"| {verdict} |" in section
    printed = capsys.readouterr().out
    assert "does not hold" in printed
    assert "found/atlas.md" in printed


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_laws_are_added_to_those_measured_before(monkeypatch: pytest.MonkeyPatch) -> None:
    atlas.main(["--only", "reynolds", "--no-films", "--workers", "1"])
    page = Path("runs/atlas/atlas.md").read_text()
    assert "The law cucker-smale" not in page
    assert ".webp" not in page
    atlas.main(["--only", "cucker-smale", "--workers", "1"])
    page = Path("runs/atlas/atlas.md").read_text()
    assert "The law reynolds" in page
    assert "](cucker-smale.webp)" in page
    assert "](reynolds.webp)" not in page
    assert len(pd.read_csv("runs/atlas/atlas.csv")) == 2
    monkeypatch.setattr(FinalVelocityVariance, "measure", None)
    atlas.main(["--no-films", "--workers", "1"])
    with pytest.raises(TypeError):
        atlas.main(["--no-films", "--workers", "1", "--force"])
