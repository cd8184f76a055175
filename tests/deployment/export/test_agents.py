"""Exported agents match the package: every bundled controller, as C and as NumPy, from messages only."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import equiflock as ef
from equiflock.controllers.loading import make_network
from equiflock.controllers.networks.models import Conv, EqConv, ScaleLog, ScaleTanh
from equiflock.deployment.export.c_header import count_agent_bytes
from equiflock.deployment.export.program import read_program
from equiflock.deployment.exported_agents import COMPILER_FLAGS
from tests.deployment.exported import compiled, imported
from tests.deployment.lockstep import fly, start_of

CLOSE = 1e-5
"""Tolerance relative to `Program.compute_magnitude`; docs/swarm.md has measured errors."""
LOCAL = [name for name in ef.controller_names() if not getattr(ef.load(name), "privileged", False)]
ALTERNATING = [
    (name, getattr(ef.load(name), "dimensions", None) or 2 + number % 2) for number, name in enumerate(LOCAL)
]
"""Every controller in the plane or in space."""
STEPS = 8


@pytest.mark.parametrize(("name", "D"), ALTERNATING)
def test_every_bundled_controller_is_the_same_in_c_and_in_numpy(name: str, D: int, tmp_path: Path) -> None:
    controller: Any = ef.load(name)
    start = start_of(dimensions=D, groups=2)
    for made in (compiled, imported):
        parity = fly(controller, start, made(controller, tmp_path, D), STEPS)
        assert parity.worst < CLOSE
        assert parity.largest > 1.0
        assert np.mean(parity.degrees) > 3.0
        assert parity.dropped == []
    assert len((tmp_path / "agent.py").read_text().splitlines()) < 160


@pytest.mark.parametrize(
    "name",
    [
        "etdagnn:aggregation=both",
        "etdagnn:hops=1",
        "tdagnn:dimensions=3:hops=2",
        "tdagnn:groups=true:biases=uniform",
        "etdagnn:groups=true:aggregation=both",
    ],
)
def test_new_networks_of_any_channels_and_hops(name: str, tmp_path: Path) -> None:
    controller: Any = make_network(name, seed=3)
    D = getattr(controller, "dimensions", None) or 2
    start = start_of(dimensions=D, groups=3)
    for made in (compiled, imported):
        assert fly(controller, start, made(controller, tmp_path, D), STEPS).worst < CLOSE


def test_weights_of_another_public_code(tmp_path: Path) -> None:
    from equiflock.controllers.networks.tolstaya_weights import from_tolstaya, to_tolstaya

    controller = from_tolstaya(to_tolstaya(ef.load_module("tdagnn")))
    assert fly(controller, start_of(), compiled(controller, tmp_path), STEPS).worst < CLOSE


class Stack(nn.Module):
    """Any chain of layers."""

    def __init__(
        self, senses: ef.Senses, D: int, sizes: list[int], acts_on_vectors: bool, bends: list[bool], seed: int
    ):
        super().__init__()
        torch.manual_seed(seed)
        self.senses, self.acts_on_vectors = senses, acts_on_vectors
        if not acts_on_vectors:
            self.dimensions = D
        widths = [senses.width * (1 if acts_on_vectors else D), *sizes, 1 if acts_on_vectors else D]
        layers: list[nn.Module] = [ScaleLog()] if acts_on_vectors else []
        for k, (one, other) in enumerate(pairwise(widths)):
            layer = (EqConv if acts_on_vectors else Conv)(one, other, senses.hops if k == 0 else 1)
            if isinstance(layer, Conv):
                layer.draw_biases()
            last = k == len(sizes)
            layers += [layer] if last or not bends[k] else [layer, ScaleTanh() if acts_on_vectors else nn.Tanh()]
        self.layers = nn.ModuleList(layers)

    @property
    def chain(self) -> tuple[nn.Module, ...]:
        return tuple(self.layers)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        B, N, K, C, D = observations.shape
        x = observations.movedim(-1, 0) if self.acts_on_vectors else observations.reshape(B, N, K, C * D)
        for layer in self.layers:
            x = layer(x)
        return x.reshape(D, B, N).movedim(0, -1) if self.acts_on_vectors else x.reshape(B, N, D)


CHANNELS = st.tuples(
    st.sampled_from(
        (
            "velocity",
            "inverse-square",
            "position:among=same",
            "brake",
            "separation:distance=0.4:among=others",
            "velocity:among=obstacles",
        )
    ),
    st.sampled_from(("mean", "sum")),
)


@pytest.mark.slow
@settings(max_examples=10)
@given(
    st.lists(CHANNELS, min_size=1, max_size=5),
    st.integers(1, 4),
    st.sampled_from((2, 3)),
    st.lists(st.integers(1, 9), max_size=3),
    st.booleans(),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.integers(0, 99),
)
def test_any_chain_of_layers(
    tmp_path_factory: pytest.TempPathFactory,
    channels: Any,
    hops: int,
    D: int,
    sizes: list[int],
    acts_on_vectors: bool,
    bends: list[bool],
    seed: int,
) -> None:
    controller = Stack(ef.Senses(tuple(channels), hops), D, sizes, acts_on_vectors, bends, seed)
    folder = tmp_path_factory.mktemp("any")
    start = start_of(agents=8, dimensions=D, groups=2, seed=seed)
    for made in (compiled, imported):
        assert fly(controller, start, made(controller, folder, D), steps=hops + 2).worst < CLOSE


def test_agents_match_in_other_units(tmp_path: Path) -> None:
    controller: Any = ef.load("etdagnn", comm_radius=5.0, time_scale=4.0)
    start = start_of(radius=5.0)
    for made in (compiled, imported):
        assert fly(controller, start, made(controller, tmp_path), STEPS).worst < CLOSE


def course(agents: int = 10, rim: int = 12) -> ef.Flock:
    """Followers and a leader that fly by a round obstacle, whose agents stand on its rim."""
    chance = np.random.default_rng(5)
    angles = 2.0 * np.pi * np.arange(rim) / rim
    flock = np.concatenate(
        [chance.uniform(-1.0, 0.6, (agents, 2)), 0.3 * np.stack([np.cos(angles), np.sin(angles)], 1)]
    )
    velocities = np.concatenate([chance.normal((1.0, 0.0), size=(agents, 2)), np.zeros((rim, 2))])
    roles = np.array([[1] + [0] * (agents - 1) + [2] * rim])
    return ef.Flock(flock[None], velocities[None], roles)


@pytest.mark.parametrize("orbit", [None, ef.Orbit(), ef.Orbit(gravity_break=0.2, dodge_angle=1.1, near=0.7, slow=1.6)])
@pytest.mark.parametrize("units", [{}, {"comm_radius": 2.0, "time_scale": 3.0}])
def test_agents_match_near_obstacles(orbit: ef.Orbit | None, units: Any, tmp_path: Path) -> None:
    controller: Any = ef.load("etdagnn", **units)
    for made in (compiled, imported):
        parity = fly(controller, course(), made(controller, tmp_path, 2, orbit), STEPS, orbit=orbit)
        assert parity.worst < CLOSE
        assert parity.dropped == []


def test_of_two_equally_near_obstacle_agents_the_first_by_number_counts(tmp_path: Path) -> None:
    positions = [[[0.0, 0.0], [0.5, 0.5], [-0.25, 0.25], [0.25, 0.25]]]
    velocities = [[[0.25, 1.0], [0.5, 0.0], [0.0, 0.0], [0.0, 0.0]]]
    flock, orbit = ef.Flock(positions, velocities, [[0, 0, 2, 2]]), ef.Orbit()
    controller: Any = ef.load("etdagnn")
    for made in (compiled, imported):
        assert fly(controller, flock, made(controller, tmp_path, 2, orbit), 1, orbit=orbit).worst < CLOSE


def test_an_export_uses_the_controllers_orbit(tmp_path: Path) -> None:
    controller: Any = make_network("etdagnn:aggregation=both", seed=1)
    controller.orbit = ef.Orbit(gravity_break=0.9, near=2.0)
    assert read_program(controller).orbit == controller.orbit
    assert read_program(controller, orbit=ef.Orbit()).orbit == ef.Orbit()
    assert read_program(controller, dimensions=3).orbit is None
    assert fly(controller, course(), compiled(controller, tmp_path), STEPS, orbit=controller.orbit).worst < CLOSE


def test_agents_match_with_packet_loss(tmp_path: Path) -> None:
    controller: Any = ef.load("etdagnn")
    for made in (compiled, imported):
        assert (
            fly(controller, start_of(), made(controller, tmp_path), STEPS, radio=ef.Radio(packet_loss=0.4)).worst
            < CLOSE
        )


def test_the_last_message_of_a_silent_neighbour_is_used_for_a_while(tmp_path: Path) -> None:
    controller: Any = ef.load("etdagnn")
    radio = {"radio": ef.Radio(packet_loss=0.6, last_known=2), "delivering": ef.Radio(packet_loss=0.6)}
    remembering = compiled(controller, tmp_path, flags=(*COMPILER_FLAGS, "-DAGENT_LAST_KNOWN=2"))
    assert fly(controller, start_of(), remembering, 12, **radio).worst < CLOSE
    module: Any = imported(controller, tmp_path)
    assert fly(controller, start_of(), lambda i, group: module(i, group, last_known=2), 12, **radio).worst < CLOSE
    assert fly(controller, start_of(), module, 12, **radio).worst > 1e-3


@pytest.mark.slow
def test_the_same_bits_at_every_level_of_optimisation(tmp_path: Path) -> None:
    controller: Any = ef.load("etdagnn")
    found = []
    for level in ("-O0", "-O1", "-O2", "-O3", "-Os"):
        flags = (*(flag for flag in COMPILER_FLAGS if flag != "-O2"), level)
        parity = fly(controller, course(), compiled(controller, tmp_path, 2, ef.Orbit(), flags), STEPS)
        found.append(np.array(parity.answers))
    assert np.abs(found[0]).max() > 1.0
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("name", ["etdagnn", "tanner-fixed", "tdagnn", "reynolds"])
def test_the_memory_that_the_header_states_is_what_it_takes(name: str, tmp_path: Path) -> None:
    controller: Any = ef.load(name)
    agent = compiled(controller, tmp_path)(0, 0)
    assert agent.size == count_agent_bytes(read_program(controller))
    assert f"{agent.size} bytes of RAM per agent" in (tmp_path / "agent.h").read_text()
