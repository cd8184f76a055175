"""Another controller may take over in flight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.simulation import memory_order
from equiflock.simulation.flight_builder import change_controller

START = ef.random_disk(agents=40, seed=3)


@dataclass(frozen=True)
class Hops:
    """Alignment with what is known over so many hops."""

    hops: int = 2
    gain: float = 3.0
    hop_mean: Any = "receiver"

    @property
    def senses(self) -> ef.Senses:
        return replace(ef.paper_senses("mean", hops=self.hops), hop_mean=self.hop_mean)

    def __call__(self, observations: Any) -> Any:
        return -self.gain * observations[:, :, :, 0].astype(np.float64).sum(axis=2)


def after(flight: Any, steps: int) -> Any:
    """The moment so many steps later."""
    return next(islice(flight, steps - 1, None))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("reynolds", {"distance": 0.8, "cohesion": 1.0}),
        ("cucker-smale", {"beta": 1.0}),
        ("cucker-smale-local", {"beta": 2.0, "clamp": None}),
        ("bonding-local", {"half_distance": 0.2}),
        ("cucker-dong", {"core": 0.02}),
        ("segregation-local", {"within": 0.6}),
        ("tanner", {"clamp": 5.0, "clamp_by": "entry"}),
    ],
)
def test_a_law_of_one_hop_goes_on_as_if_it_had_always_had_these_numbers(name: str, options: dict[str, Any]) -> None:
    flight, before = (ef.flight(START, ef.load(name)) for _ in range(2))
    after(flight, 10)
    change_controller(flight, ef.load(name, **options))
    # What was decided is still done; the other numbers count from the next moment on.
    first = next(flight)
    last = after(before, 11)
    assert np.array_equal(first.flock.positions, last.flock.positions)
    assert not np.array_equal(first.accelerations, last.accelerations)
    expected = after(ef.flight(first.flock, ef.load(name, **options)), 11)
    found = after(flight, 10)
    assert found.step == 20
    assert np.array_equal(found.flock.positions, expected.flock.positions)
    assert np.array_equal(found.accelerations, expected.accelerations)


@pytest.mark.parametrize("radio", [None, ef.Radio(packet_loss=0.3, delay=2), ef.Radio(packet_loss=0.2, jitter=1)])
@pytest.mark.parametrize("controller", [Hops(), ef.load("etdagnn"), ef.load("tanner-fixed"), ef.load("bonding-local")])
def test_a_controller_that_takes_over_from_itself_changes_nothing(controller: Any, radio: ef.Radio | None) -> None:
    flight, untouched = (ef.flight(START, controller, radio=radio) for _ in range(2))
    after(flight, 7)
    change_controller(flight, controller)
    assert np.array_equal(after(flight, 5).flock.positions, after(untouched, 12).flock.positions)


@pytest.mark.parametrize("radio", [None, ef.Radio(packet_loss=0.3)])
def test_agents_keep_what_they_know_if_there_are_as_many_hops_and_else_begin_anew(radio: ef.Radio | None) -> None:
    for hops, kept in ((2, True), (3, False)):
        flight = ef.flight(START, Hops(), radio=radio)
        after(flight, 7)
        change_controller(flight, Hops(hops, gain=1.0))
        observations = next(flight).observations
        assert observations.shape[2] == hops
        assert bool(observations[:, :, 1].any()) == kept
        assert next(flight).observations[:, :, 1].any()


def test_a_fixed_topology_stays_that_of_the_start() -> None:
    flight = ef.flight(START, ef.load("tanner-fixed"))
    after(flight, 30)
    graph = flight.sensing.fixed_graph  # type: ignore[attr-defined]
    change_controller(flight, ef.load("tanner-fixed", clamp=3.0))
    next(flight)
    assert flight.sensing.fixed_graph is graph  # type: ignore[attr-defined]
    change_controller(flight, ef.load("tanner-dynamic"))
    expected = ef.flight(next(flight).flock, ef.load("tanner-dynamic"))
    assert np.array_equal(after(flight, 5).flock.positions, after(expected, 6).flock.positions)


@pytest.mark.parametrize("agents", [40, 3_500])
def test_a_network_gives_way_to_an_expert_whatever_the_order_in_memory(
    monkeypatch: pytest.MonkeyPatch, agents: int
) -> None:
    monkeypatch.setattr(memory_order, "CACHE_DISTANCE", 20)
    drawn = ef.random_disk(agents=agents, seed=2, radius_rule="constant-density")
    order = np.random.default_rng(0).permutation(agents)
    flight = ef.flight(ef.Flock(drawn.positions[:, order], drawn.velocities[:, order]), ef.load("etdagnn"))
    after(flight, 4)
    change_controller(flight, ef.load("tanner"))
    now = next(flight)
    expected = ef.flight(now.flock, ef.load("tanner"))
    assert np.array_equal(now.accelerations, next(expected).accelerations)
    assert np.array_equal(after(flight, 3).flock.positions, after(expected, 3).flock.positions)
    # And back, with nobody remembering anything.
    change_controller(flight, ef.load("etdagnn"))
    expected = ef.flight(next(flight).flock, ef.load("etdagnn"))
    assert np.array_equal(after(flight, 3).flock.positions, after(expected, 4).flock.positions)


def test_what_does_not_fit_is_refused_and_the_flight_goes_on() -> None:
    flight, untouched = (ef.flight(START, Hops(), radio=ef.Radio(packet_loss=0.2)) for _ in range(2))
    after(flight, 5)
    with pytest.raises(InputError, match="needs an ideal radio"):
        change_controller(flight, Hops(hop_mean="sender"))
    with pytest.raises(InputError, match="not its name"):
        change_controller(flight, "tanner")  # type: ignore[arg-type]
    assert np.array_equal(after(flight, 5).flock.positions, after(untouched, 10).flock.positions)
