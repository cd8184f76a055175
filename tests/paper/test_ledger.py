"""A verdict follows from the checks, the checks from the medians over seeds, and resamples tell what could change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equiflock.paper.ledger import Check, Statement, Verdict, format_checks_table, read_ledger, write_ledger


def test_a_comparison_is_judged_by_the_medians_and_counted_by_seed() -> None:
    check = Check.less("a below b", np.array([1.0, 2.0, 9.0]), np.array([3.0, 3.0, 3.0]))
    assert check.holds
    assert check.seeds == (True, True, False)
    assert check.measured == "2 [1, 9] against 3 [3, 3]"
    assert not Check.less("a below half of b", np.array([2.0]), np.array([3.0]), factor=0.5).holds


@pytest.mark.parametrize(
    ("held", "verdict"), [((True, True), "holds"), ((True, False), "partly"), ((False, False), "does not")]
)
def test_all_checks_some_or_none(held: tuple[bool, ...], verdict: Verdict) -> None:
    checks = tuple(Check("", "", holds, (holds, True)) for holds in held)
    assert Statement("X1", "text", "rule", checks).verdict == verdict


def test_the_count_says_in_how_many_seeds_everything_holds() -> None:
    checks = Check("", "", True, (True, True, False)), Check("", "", False, (True, False, False))
    statement = Statement("X1", "", "", checks)
    assert statement.summary == "1 of 2 checks; all of them in 1 of 3 seeds"
    assert statement.details == f"{statement.summary}; not resampled"


def spread(values: list[float]) -> Any:
    """Numbers of one seed: as measured, then a thousand resamples from the second to the third."""
    measured, first, last = values
    return np.concatenate([[measured], np.linspace(first, last, 1000)])[:, None]


@pytest.mark.parametrize(
    ("check", "verdict"),
    [
        (Check.within("", spread([0.5, 0.45, 0.55]), 0.4, 0.6), "holds"),
        (Check.within("", spread([0.5, 0.35, 0.55]), 0.4, 0.6), "holds, within noise"),
        (Check.within("", spread([0.7, 0.55, 0.75]), 0.4, 0.6), "does not hold, within noise"),
        (Check.within("", spread([0.7, 0.65, 0.75]), 0.4, 0.6), "does not hold"),
        (Check.within("", spread([0.3, 0.1, 0.9]), 0.4, 0.6), "does not hold, within noise"),
        # The upper limit is the largest possible share, which no controller can miss.
        (Check.within("", spread([1.0, 1.0, 1.0]), 0.95, 1.0), "holds"),
        (Check.within("", spread([1.0, 1.0, 1.0]), 0.95, 1.0, least=(0.93, 1.0)), "holds, within noise"),
        (Check.below("", spread([0.1, 0.1, 0.2]), 0.1), "does not hold"),
        (Check.below("", spread([0.05, 0.0, 0.1]), 0.11), "holds"),
        (Check.below("", spread([0.1, 0.05, 0.2]), 0.1), "does not hold, within noise"),
        (Check.less("", spread([1.0, 0.9, 1.1]), spread([2.0, 1.9, 2.1])), "holds"),
        (Check.less("", spread([1.0, 0.9, 1.1]), spread([1.05, 1.15, 0.95])), "holds, within noise"),
        (Check.less("", spread([1.0, 0.9, 1.1]), spread([2.5, 2.4, 2.6]), factor=0.5), "holds"),
        (Check.less("", spread([np.inf, 1.0, 2.0]), spread([np.inf, 3.0, 4.0])), "does not hold, within noise"),
    ],
)
def test_a_verdict_is_within_noise_if_the_interval_has_the_other_one(check: Check, verdict: str) -> None:
    assert check.verdict == verdict


def test_noise_that_both_controllers_share_does_not_count() -> None:
    shared = np.random.default_rng(0).normal(size=(1000, 1))
    check = Check.less("", shared, shared + 0.1, flocks=50)
    assert check.estimate is not None
    assert check.estimate[:3] == pytest.approx((-0.1, -0.1, -0.1))
    assert check.estimate.n == 50


def test_what_is_not_measured_on_flocks_is_exact() -> None:
    checks = Check.equal_to("weights", np.array([416.0]), 416), Check.within("error", np.array([1e-7]), 0.0, 1e-3)
    assert [check.interval for check in checks] == ["exact", "exact"]
    assert [str(check) for check in checks] == ["weights: 416 (exact)", "error: 1e-07 [1e-07, 1e-07] (exact)"]
    # One row alone was measured on flocks and not resampled.
    assert Check.within("", np.array([[0.5]]), 0.0, 1.0).interval == "not resampled"


def make_check(holds: bool, noisy: bool) -> Check:
    return Check.below("", spread([0.5, 0.0 if noisy else 0.5, 1.0 if noisy else 0.5]), 0.7 if holds else 0.3)


@pytest.mark.parametrize(
    ("checks", "is_within_noise"),
    [
        (((True, False), (True, False)), False),
        (((True, False), (True, True)), True),
        (((True, False), (False, True)), True),
        (((True, False), (False, True), (False, False)), False),
        (((True, True), (False, False)), True),
        (((True, True), (True, False), (False, False)), False),
        (((False, True), (False, False)), True),
        (((False, False),), False),
    ],
)
def test_a_statement_is_within_noise_if_its_noisy_checks_could_change_its_verdict(
    checks: tuple[tuple[bool, bool], ...], is_within_noise: bool
) -> None:
    statement = Statement("X1", "", "", tuple(make_check(*each) for each in checks))
    assert statement.is_within_noise is is_within_noise
    assert statement.marked_verdict.endswith(", within noise") is is_within_noise
    assert ("other flocks could change the verdict" in statement.details) is is_within_noise


def test_further_checks_are_reported_and_decide_nothing() -> None:
    statement = Statement("X1", "", "", (make_check(True, False),), further_checks=(make_check(False, True),))
    assert (statement.verdict, statement.is_within_noise) == ("holds", False)
    assert statement.summary == "1 of 1 checks; all of them in 1 of 1 seeds"
    assert "does not hold, within noise" in statement.details


def test_a_ledger_is_read_as_it_was_written(tmp_path: Path) -> None:
    checks = (
        Check.less("a", spread([np.inf, 1.0, 2.0]), spread([1.0, 1.5, 1.7]), flocks=50),
        Check.within("b", spread([0.5, 0.4, 0.6]), 0.5, np.inf, flocks=50),
        Check.equal_to("c", np.array([416.0]), 416),
    )
    written = [Statement("X1", "text", "rule", checks, "remark", (make_check(True, True),))]
    path = write_ledger(written, tmp_path / "ledger.json")
    assert read_ledger(path) == written
    (entry,) = json.loads(path.read_text(), parse_constant=pytest.fail)  # JSON has no infinite numbers
    assert entry["checks"][0]["estimate"]["value"] == "inf"
    assert entry["checks"][1]["estimate"] == pytest.approx(
        {"value": 0.5, "low": 0.405, "high": 0.595, "n": 50}, abs=1e-3
    )
    assert [each["is_within_noise"] for each in entry["checks"]] == [True, True, False]
    table = format_checks_table(written)
    assert "| at least 0.5 | holds, within noise | 1 |" in table
    assert "| 416 | exact | 416 | holds | 1 |" in table
