"""Types and shapes that modules declare are enforced in the first calls of a test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jaxtyping import Float, TypeCheckError
from numpy.typing import NDArray

from tests.annotations import CHECKED_CALLS, begin_test, check_first_calls, checked

Array = NDArray[Any]


@pytest.fixture
def add() -> Any:
    @check_first_calls(typechecker=checked)  # type: ignore[untyped-decorator]
    def add(a: Float[Array, "N D"], b: Float[Array, " N"]) -> float:  # type: ignore[type-arg]
        return float(a.sum() + b.sum()) if a.size else None  # type: ignore[return-value]

    return add


def test_types_and_shapes_of_arguments_and_results_are_checked(add: Any) -> None:
    assert add(np.ones((2, 3)), np.ones(2)) == 8.0
    for wrong in ((np.ones((2, 3)), np.ones(3)), (np.ones((2, 3)), 1.0), (np.ones((0, 3)), np.ones(0))):
        with pytest.raises(TypeCheckError):
            add(*wrong)


def test_only_the_first_calls_of_a_test_are_checked(add: Any) -> None:
    for _ in range(CHECKED_CALLS):
        add(np.ones((2, 3)), np.ones(2))
    assert add(np.ones((2, 3)), np.ones(4)) == 10.0
    begin_test()
    with pytest.raises(TypeCheckError):
        add(np.ones((2, 3)), np.ones(4))


def test_functions_of_the_package_are_checked() -> None:
    from equiflock.evaluation.summary import MetricSummary

    with pytest.raises(TypeCheckError):
        MetricSummary("x", "no numbers")
