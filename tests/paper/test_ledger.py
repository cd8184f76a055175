"""A verdict follows from the checks, and the checks from the medians over seeds."""

from __future__ import annotations

import numpy as np
import pytest

from equiflock.paper.ledger import Check, Statement, Verdict


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
    assert Statement("X1", "", "", checks).summary == "1 of 2 checks; all of them in 1 of 3 seeds"
