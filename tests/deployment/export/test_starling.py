"""Exported agents with an obstacle channel, which use other weights if they know of an obstacle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

import equiflock as ef
from equiflock.cli import main
from equiflock.controllers import trained
from equiflock.controllers.loading import make_network
from equiflock.controllers.networks.architecture import STARLING_CHANNELS as CHANNELS
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.controllers.unit_scaling import scale_controller
from equiflock.deployment.export.program import Program, read_program
from equiflock.deployment.wire_format import count_message_bytes
from tests.deployment.exported import compiled, imported
from tests.deployment.lockstep import fly, start_of

CLOSE = 1e-5
"""Tolerance relative to `Program.compute_magnitude`."""
STEPS = 8
OBSTACLE = len(CHANNELS) - 1
"""The obstacle channel."""
ORBIT = ef.Orbit(gravity_break=0.4, near=1.7, slow=0.6)


def starling(near: bool = True, seed: int = 0, **options: Any) -> Any:
    """A starling whose weights, and those near obstacles, are all random: each has a say in what is done."""
    network: Any = make_network("starling", near=near, **{"gain_period": None, **options})
    chance = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        parameter.data = 0.4 * torch.randn(parameter.shape, generator=chance)
    return network.eval()


def strung(seed: int, radius: float = 1.0) -> ef.Flock:
    """Return a long flock: some agents receive from an obstacle agent, some know of it from neighbours, some do not.

    Agents keep a distance, so that float32 does not lose digits in the sums of large terms.
    """
    chance = np.random.default_rng(seed)
    places = np.stack(np.meshgrid(0.6 * np.arange(9), 0.45 * np.arange(3), indexing="ij"), -1).reshape(-1, 2)
    positions = radius * (places + chance.uniform(-0.12, 0.12, places.shape))
    roles = np.array([[2, 2, 2, 1, *[0] * 23]])  # at its end are three obstacle agents and a leader
    velocities = radius * np.where(roles[0, :, None] == 2, 0.0, chance.normal((0.3, 0.0), 0.3, places.shape))
    return ef.Flock(positions[None], velocities[None], roles, comm_radius=radius)


def test_such_flocks_have_agents_of_all_three_kinds() -> None:
    senses = ef.DelayedAggregation(starling().senses)
    flock = strung(0)
    for _ in range(3):
        known = senses.observe(flock)[0]
    aware = (known[4:, :, OBSTACLE] != 0.0).any(axis=-1)
    assert aware[:, 0].any()
    assert (aware[:, 1:].any(axis=1) & ~aware[:, 0]).any()
    assert (~aware.any(axis=1)).any()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("near", [True, False])
@pytest.mark.parametrize("orbit", [None, ORBIT])
def test_a_starling_among_obstacles(orbit: ef.Orbit | None, near: bool, seed: int, tmp_path: Path) -> None:
    controller = starling(near, seed)
    for made in (compiled, imported):
        parity = fly(controller, strung(seed), made(controller, tmp_path, 2, orbit), STEPS, orbit=orbit)
        assert parity.worst < CLOSE
        assert parity.dropped == []


@pytest.mark.parametrize("near", [True, False])
def test_a_starling_in_space(near: bool, tmp_path: Path) -> None:
    controller = starling(near)
    for made in (compiled, imported):
        assert fly(controller, start_of(dimensions=3), made(controller, tmp_path, 3), STEPS).worst < CLOSE


def test_a_starling_in_units_of_robots(tmp_path: Path) -> None:
    controller: Any = scale_controller(starling(), 1.0, comm_radius=3.0, time_scale=2.0)
    for made in (compiled, imported):
        assert fly(controller, strung(2, radius=3.0), made(controller, tmp_path), STEPS).worst < CLOSE


def test_the_first_channel_among_obstacles_decides_and_means_of_them_are_known(tmp_path: Path) -> None:
    channels = (
        ("velocity", "mean"),
        ("position:among=obstacles", "mean"),
        ("inverse-square:among=same", "mean"),
        ("velocity:among=obstacles", "sum"),
    )
    controller = starling(channels=channels, hops=2)
    assert read_program(controller).obstacle_channel == 1
    for made in (compiled, imported):
        parity = fly(controller, strung(3), made(controller, tmp_path, 2, ORBIT), STEPS, orbit=ORBIT)
        assert parity.worst < CLOSE


def observations_of(controller: Any, D: int) -> Any:
    """Observations of agents who know nothing of obstacles, who know by the last hop alone, and by all."""
    shape = 2, 9, controller.senses.hops, controller.senses.width, D
    known = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    known[:, :6, :, OBSTACLE] = 0.0
    known[:, 3:6, -1, OBSTACLE, D - 1] = 1e-3
    return known


@pytest.mark.slow
@pytest.mark.parametrize(("near", "D"), [(True, 3), (False, 2)])
def test_the_graph_of_a_starling(near: bool, D: int, tmp_path: Path) -> None:
    controller = starling(near)
    path, readme = ef.export(controller, tmp_path / "graph.onnx", dimensions=D)
    known = observations_of(controller, D)
    (found,) = onnxruntime.InferenceSession(path).run(None, {"observations": known})
    program = read_program(controller, D)
    for wanted in (as_numpy_function(controller)(known), program(known)):
        assert (np.abs(found - wanted) / program.compute_magnitude(known)).max() < CLOSE
    assert ("uses a second set of weights" in readme.read_text()) == near


def plain(program: Program, known: Any) -> Any:
    """Return what the program computes without its layers for agents near an obstacle."""
    return replace(program, near_obstacle_layers=())(known)


def test_agents_that_know_of_an_obstacle_in_any_hop_use_other_weights() -> None:
    controller = starling()
    program, known = read_program(controller), observations_of(controller, 2)
    other = (program(known) != plain(program, known)).any(axis=-1)
    np.testing.assert_array_equal(other, [[False] * 3 + [True] * 6] * 2)


def test_weights_near_obstacles_that_do_something_else_are_found(tmp_path: Path) -> None:
    network = starling()
    network.near[1].register_forward_hook(lambda module, inputs, output: 2.0 * output)
    with pytest.raises(ef.InputError, match="does not compute the same as its chain of layers"):
        ef.export(network, tmp_path / "agent.h")


def test_weights_near_obstacles_of_another_shape_cannot_be_exported(tmp_path: Path) -> None:
    network = starling()
    network.near = make_network("etdagnn").layers
    with pytest.raises(ef.InputError, match="with custom layers"):
        ef.export(network, tmp_path / "agent.h")


def test_the_text_counts_both_sets_of_weights_and_all_channels(tmp_path: Path) -> None:
    controller = starling()
    header, readme = ef.export(controller, tmp_path / "starling.h")
    text = readme.read_text()
    # Of 16 x 24 and 1 x 16 numbers, as the last two layers are one.
    assert read_program(controller).weight_count == 2 * (16 * 24 + 16)
    assert count_message_bytes(controller.senses, 2) == 12 + 4 * (4 + 2 * 8 * 2)
    for part in (
        "Weights: 800 numbers, 3,200 bytes",
        "Half of them",
        "A message has 156 bytes",
        "| 28-155 | 32 x float32 |",
        "| 7 | velocity:among=obstacles | sum | v_ij = v_i - v_j | obstacles |",
        "Channel 7 is the obstacle channel",
    ):
        assert part in text
    assert "3200 bytes of constant weights" in header.read_text()


@pytest.mark.parametrize("asked", [[], ["--orbit"]])
def test_exports_use_the_orbit_of_a_weights_file(asked: list[str], tmp_path: Path) -> None:
    controller = starling()
    controller.orbit = ORBIT
    weights = ef.save(controller, tmp_path / "mine.safetensors")
    for name in (f"{weights}", f"{weights}:comm_radius=2"):
        main(["export", name, "--out", str(tmp_path / "agent.h"), *asked])
        assert "gravity_break 0.4, dodge_angle" in (tmp_path / "agent.README.md").read_text()
    loaded: Any = ef.load(weights)
    assert fly(loaded, strung(4), compiled(loaded, tmp_path), STEPS, orbit=ORBIT).worst < CLOSE


def test_exports_use_the_orbit_of_bundled_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = starling()
    controller.orbit = ORBIT
    ef.save(controller, tmp_path / "starling-0.safetensors")
    monkeypatch.setattr(trained, "WEIGHTS_DIR", tmp_path)
    assert fly(controller, strung(5), compiled("starling", tmp_path), STEPS, orbit=ORBIT).worst < CLOSE
    assert fly(controller, strung(5), imported("starling", tmp_path), STEPS, orbit=ORBIT).worst < CLOSE
    assert len((tmp_path / "agent.py").read_text().splitlines()) < 160
