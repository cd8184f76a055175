"""What a page learns of one agent: the flight's own numbers, neighbours by hop, and why there is nothing to show."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.flock import Condition, Role
from equiflock.graph.radius_graph import radius_graph
from equiflock.plotting.player.playback import Playback
from equiflock.viewer import inspection
from equiflock.viewer.inspection import describe_agent
from equiflock.viewer.live_simulation import LiveSimulation
from equiflock.viewer.setting import DiskObstacle
from tests.viewer.live_simulations import fly, live_simulation

LATE = {"packet_loss": 0.3, "delay": 2}


def panels(current: Any, agent: int) -> list[Any]:
    """The descriptions of an agent, which are valid JSON."""
    answer = describe_agent(current, agent, None)
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    return answer["panels"]


def count_by_hops(graph: ef.Graph, agent: int, hops: int) -> list[set[int]]:
    """The agents whose shortest way of messages to an agent has 1, 2, .. hops, found one after the other."""
    rings: list[set[int]] = []
    reached = {agent}
    for _ in range(hops):
        last = rings[-1] if rings else {agent}
        rings.append({int(j) for i in last for j in graph.neighbours(0, i)} - reached)
        reached |= rings[-1]
    return rings


@pytest.mark.parametrize("environment", [{}, LATE])
def test_a_live_agent_is_described_by_the_numbers_of_its_flight(environment: dict[str, Any]) -> None:
    current = live_simulation(controller="starling", compare="reynolds", environment=environment)
    fly(current, 12)
    for live, found in zip(current.flights, panels(current, 7), strict=True):
        np.testing.assert_allclose(found["observations"], live.sensing.observations[0, 7], rtol=1e-5)
        np.testing.assert_allclose(found["commanded"], live.accelerations[0, 7], rtol=1e-5)
        explanation = found["explanation"]
        total = np.sum([part["vector"] for part in explanation["contributions"]], axis=0) + explanation["remainder"]
        np.testing.assert_allclose(total, found["commanded"], atol=1e-3)
        graph = live.sensing.compute_message_graph(live.flock)
        rings = count_by_hops(graph, 7, live.sensing.senses.hops)
        assert [hop["count"] for hop in found["neighbours"]] == [len(ring) for ring in rings]
        before = {7}
        for hop, ring in zip(found["neighbours"], rings, strict=True):
            assert {sender for _, sender in hop["links"]} == ring
            assert all(receiver in before and receiver in range(30) for receiver, _ in hop["links"])
            before = ring
        in_reach = set(radius_graph(live.flock).neighbours(0, 7).tolist())
        assert found["lost"] == len(in_reach - rings[0])
        assert found["reason"] is None
    assert panels(current, 7)[0]["ages"] == ([[0, 0], [1, 1], [2, 2]] if not environment else [[2, 2], [5, 5], [8, 8]])


def test_agents_that_command_nothing_say_why() -> None:
    current = live_simulation(scenario="obstacles", controller="etdagnn", options={"sides": 6}, agents=12)
    fly(current, 2)
    first = current.flights[0].flock
    current.toggle_leader(3)
    for kind in ("stopped", "drifting", "silent"):
        current.fail_agents(kind, 2)
    fly(current, 2)
    flock = current.flights[0].flock
    for agent in range(flock.shape[1]):
        (found,) = panels(current, agent)
        works = flock.roles[0, agent] == Role.FOLLOWER
        works &= flock.conditions[0, agent] in (Condition.WORKING, Condition.SILENT)
        assert (found["explanation"] is not None) == (found["reason"] is None) == works
        assert found["role"] == Role(int(flock.roles[0, agent])).name.lower()
        assert found["condition"] == Condition(int(flock.conditions[0, agent])).name.lower()
        if not works:
            assert found["neighbours"][0]["count"] == 0
            assert "commands nothing" in found["reason"]
    assert first.shape == flock.shape


def test_an_agent_is_found_again_after_others_were_removed() -> None:
    current = live_simulation(controller="etdagnn")
    fly(current, 3)
    answer = describe_agent(current, 9, None)
    remove(current, 2)
    current.add_disk(DiskObstacle(x=20.0, y=20.0, radius=0.5))
    again = describe_agent(current, None, answer["id"])
    assert (again["agent"], again["agents"]) == (8, current.flights[0].flock.shape[1])
    # Until the next step, the acceleration is that of another flock.
    assert again["panels"][0]["is_changed"]
    assert again["panels"][0]["explanation"] is None
    fly(current, 1)
    assert describe_agent(current, None, answer["id"])["panels"][0]["explanation"] is not None
    remove(current, 8)
    gone = describe_agent(current, None, answer["id"])
    assert (gone["agent"], gone["panels"]) == (None, [])
    with pytest.raises(InputError, match="agent must be below"):
        describe_agent(current, 10**9, None)


def remove(current: LiveSimulation, agent: int) -> None:
    x, y = current.flights[0].flock.positions[0, agent].tolist()
    current.remove_agents([(x, y)], 1e-9, 0)


@pytest.mark.parametrize("name", ["etdagnn", "tanner", "formation", "tanner-fixed"])
def test_a_saved_agent_observes_what_it_did_in_flight(name: str) -> None:
    controller, start = ef.load(name), ef.random_disk(agents=20, seed=2)
    run = ef.simulate(start, controller, duration=0.06)
    moments = ef.flight(start, controller)
    observations = [next(moments).observations.copy() for _ in range(6)]
    current = Playback([run])
    for frame in (0, 1, 5):
        current.seek(frame)
        (found,) = panels(current, 4)
        assert found["reason"] is None
        np.testing.assert_allclose(found["observations"], observations[frame][0, 4], rtol=1e-5)
        parts = [part["vector"] for part in found["explanation"]["contributions"]]
        total = np.sum(parts, axis=0) + found["explanation"]["remainder"]
        np.testing.assert_allclose(total, run.accelerations[frame, 0, 4], rtol=1e-3, atol=1e-3)
    assert len(found["neighbours"]) == controller.senses.hops
    current.seek(6)
    (found,) = panels(current, 4)
    assert found["commanded"] is None
    assert "nothing is commanded" in found["reason"]


def test_a_saved_agent_in_space_has_state_and_neighbours() -> None:
    start = ef.random_disk(agents=20, seed=2, dimensions=3)
    current = Playback([ef.simulate(agents, ef.load("etdagnn"), duration=0.05) for agents in (start, start_of(5))])
    current.seek(2)
    found, other = panels(current, 4)
    rings = count_by_hops(radius_graph(current.runs[0].flock(2)), 4, 3)
    assert [hop["count"] for hop in found["neighbours"]] == [len(ring) for ring in rings]
    assert found["dimensions"] == 3
    assert found["speed"] == pytest.approx(np.linalg.norm(current.runs[0].velocities[2, 0, 4]))
    assert other is not None
    assert panels(current, 9)[1] is None


def start_of(agents: int) -> ef.Flock:
    return ef.random_disk(agents=agents, seed=2, dimensions=3)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"controller": "nobody"}, "not known here"),
        ({"controller": "../x.safetensors", "senses": None}, "does not say"),
        ({"senses": {"channels": [["velocity", "mean"]], "hops": 10**9}}, "at most 10 hops"),
        ({"senses": {"channels": [["nosuch", "mean"]]}}, "does not say"),
        ({"senses": {"colour": 1}}, "does not say"),
        ({"radio": {"kind": "Radio", "packet_loss": 0.5}}, "which messages arrived"),
        ({"controller": "etdagnn:3"}, "more than these observations"),
        ({"start_time": 3.0}, "begins later"),
    ],
)
def test_a_saved_flight_that_lacks_something_says_so(changes: dict[str, Any], text: str) -> None:
    run = ef.simulate(ef.random_disk(agents=12, seed=2), ef.load("etdagnn"), duration=0.05)
    current = Playback([replace(run, config={**run.config, **changes})])
    current.seek(1)
    (found,) = panels(current, 4)
    assert text in found["reason"]
    assert found["explanation"] is None
    assert found["neighbours"][0]["count"] > 0


def test_frames_that_are_far_apart_give_no_observations() -> None:
    run = ef.simulate(ef.random_disk(agents=12, seed=2), ef.load("etdagnn"), duration=0.08, keep_every=2)
    current = Playback([run])
    current.seek(3)
    assert "farther apart than a time step" in panels(current, 4)[0]["reason"]


def test_a_controller_that_cannot_be_explained_says_why(own_registry: None, monkeypatch: pytest.MonkeyPatch) -> None:
    @ef.controller("numbered")
    def numbered(observations: Any) -> Any:
        return observations[:, :, 0, 0] + np.arange(observations.shape[1])[None, :, None]

    @ef.controller("fragile")
    def fragile(observations: Any) -> Any:
        return observations[:, :, 0, 0] if observations.shape[1] > 1 else observations[:, :, 0, 0] * np.nan

    @ef.controller("expert", privileged=True)
    def expert(flock: Any, observations: Any) -> Any:
        return -flock.velocities

    for name, text in (("numbered", "more than these"), ("fragile", "NaN"), ("expert", "no named terms")):
        current = live_simulation(controller=name)
        fly(current, 1)
        (found,) = panels(current, 5)
        assert text in found["reason"]
        assert found["explanation"] is None
        assert len(found["observations"]) == 1
    monkeypatch.setattr(inspection, "MAX_VECTORS", 2)
    (found,) = panels(current, 5)
    assert "at most 2" in found["reason"]
