"""The fused training step gives the same bits as its parts: accelerations, observations and targets."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import equiflock as ef
from equiflock._runtime.checks import NumericRangeError
from equiflock.controllers.loading import make_network
from equiflock.flock import Flock
from equiflock.learning.mixture import Mixture
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.protocols import FusedStep
from equiflock.simulation import fused_step
from equiflock.simulation.fused_step import CompiledStep
from tests.flocks import flocks
from tests.simple import EndAt


class Apart:
    """The slow twin: a mixture that brings no fused step."""

    privileged = True

    def __init__(self, mixture: Mixture) -> None:
        self.senses = mixture.senses
        self.mixture = mixture

    def __call__(self, flock: Flock, observations: Any) -> Any:
        return self.mixture(flock, observations)


def lesson(
    start: Flock, student: Any, beta: float, fused: bool, steps: int = 12, expert: str = "tanner", **more: Any
) -> list[tuple[Any, ...]]:
    """The bits of every moment and every target."""
    rules = {name: value for name, value in more.items() if name in ("orbit", "obstacles")}
    sensing = DelayedAggregation(ef.load(expert).senses, **rules)
    mixture = Mixture(ef.load(expert), student, beta, np.random.default_rng(7), 0.01, sensing)
    loop = ef.flight(start, mixture if fused else Apart(mixture), **more)
    found = []
    for moment in itertools.islice(loop, steps):
        arrays = *moment.flock.arrays, moment.observations, moment.accelerations, moment.flying
        assert mixture.target is not None
        found.append((moment.step, *(array.tobytes() for array in (*arrays, mixture.target))))
    return found


def network(name: str, dimensions: int) -> Any:
    return make_network(name, 5, **({} if name == "etdagnn" else {"dimensions": dimensions})).eval()


@given(flocks(), st.sampled_from(["etdagnn", "tdagnn"]), st.sampled_from([0.0, 0.5, 1.0]))
def test_a_fused_rollout_has_the_same_bits(start: Flock, name: str, beta: float) -> None:
    student = network(name, start.shape[2])
    for more in ({}, {"orbit": ef.Orbit(), "obstacles": "nearest"}):
        assert lesson(start[0], student, beta, True, 5, **more) == lesson(start[0], student, beta, False, 5, **more)


@pytest.mark.parametrize("scenario", [ef.LeaderFollowing(), ef.ObstacleCourse(sides=6)])
@pytest.mark.parametrize(
    ("expert", "name"),
    # Each pair compiles a kernel, which takes seconds.
    [
        ("tanner", "etdagnn"),
        ("tanner:attraction=0.8:aim=leaders", "etdagnn:aggregation=both"),
        ("tanner-bounded", "starling:gain_period=0.004"),
    ],
)
def test_fused_rollouts_of_scenarios_have_the_same_bits(
    scenario: Any, expert: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, kernel = [], fused_step.step_flocks
    start, rules = scenario.draw()[0], {"expert": expert, "orbit": scenario.orbit, "obstacles": scenario.obstacles}
    student = make_network(name).eval()
    expected = lesson(start, student, 0.5, False, ending=scenario.ending(), **rules)
    monkeypatch.setattr(fused_step, "step_flocks", lambda *known: calls.append(1) or kernel(*known))  # type: ignore[func-returns-value]
    assert lesson(start, student, 0.5, True, ending=scenario.ending(), **rules) == expected
    assert len(calls) == 12


@pytest.mark.parametrize("options", ["clamp=3:clamp_by=entry", "potential=inverse-square:clamp=3", "cut_off=false"])
def test_fused_rollouts_of_all_tanner_options_have_the_same_bits(options: str) -> None:
    start, student, expert = ef.random_disk(1, 30, seed=3), ef.load("etdagnn"), f"tanner:{options}"
    ours, theirs = (lesson(start, student, 0.5, fused, expert=expert) for fused in (True, False))
    assert ours == theirs
    fused = Mixture(ef.load(expert), student, 0.5, np.random.default_rng(0), 0.01).make_fused_step(  # type: ignore[arg-type]
        DelayedAggregation(student.senses),  # type: ignore[attr-defined]
        ef.DoubleIntegrator(),
    )
    assert (fused is None) == (options == "cut_off=false")  # all pairs of a flock are not fused


def test_a_flight_that_ends_is_the_same_to_its_last_moment() -> None:
    start, options = ef.random_disk(1, 30, seed=3), {"ending": EndAt((4,)), "time_step": 0.1}
    ours, theirs = (lesson(start, ef.load("etdagnn"), 0.5, fused, **options) for fused in (True, False))
    assert ours == theirs
    assert len(ours) == 5


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_failing_student_raises_at_the_step_at_which_it_acts(beta: float) -> None:
    student = network("etdagnn", 2)
    with torch.no_grad():
        student.layers[-1].weight[:] = float("nan")
    messages = []
    for fused in (True, False):
        with pytest.raises(NumericRangeError, match="NaN or infinity at t = ") as caught:
            lesson(ef.random_disk(1, 30, seed=3), student, beta, fused)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


class Own(torch.nn.Module):
    """A custom student without a compiled form."""

    senses = ef.paper_senses("sum", hops=1)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return observations[:, :, 0, 0]


def test_unsupported_mixtures_have_no_fused_step() -> None:
    rng, network = np.random.default_rng(0), ef.load("etdagnn")
    parts = DelayedAggregation(network.senses), ef.DoubleIntegrator()  # type: ignore[attr-defined]
    known = Mixture(ef.load("tanner"), network, 0.5, rng, 0.01).make_fused_step(*parts)  # type: ignore[arg-type]
    assert isinstance(known, CompiledStep)
    assert isinstance(known, FusedStep)
    assert Mixture(ef.load("tanner"), Own(), 0.5, rng, 0.01).make_fused_step(*parts) is None  # type: ignore[arg-type]
    assert Mixture(ef.load("tanner-dynamic"), network, 0.5, rng, 0.01).make_fused_step(*parts) is None  # type: ignore[arg-type]
    by_sender: Any = make_network("etdagnn", hop_mean="sender").eval()
    others = DelayedAggregation(by_sender.senses), ef.DoubleIntegrator()
    assert Mixture(ef.load("tanner"), by_sender, 0.5, rng, 0.01).make_fused_step(*others) is None


def test_skipped_steps_of_a_rollout_draw_their_numbers() -> None:
    start, student, positions = ef.random_disk(1, 30, seed=3), ef.load("etdagnn"), []
    for skipped in (0, 6):
        mixture = Mixture(ef.load("tanner"), student, 0.5, np.random.default_rng(1), 0.01)  # type: ignore[arg-type]
        loop = ef.flight(start, mixture)
        loop.skip(skipped)
        positions.append(next(itertools.islice(loop, 7 - skipped, None)).flock.positions.copy())
    assert np.array_equal(*positions)
