"""Exported controllers with a gain schedule do what the simulator does at any sampling period of the robot."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import equiflock as ef
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.controllers.registry import CONTROLLERS
from equiflock.controllers.unit_scaling import scale_controller
from equiflock.deployment.export.c_header import count_agent_bytes
from equiflock.deployment.export.program import read_program
from equiflock.deployment.exported_agents import CompiledAgent, import_agent_class
from equiflock.simulation.flight_builder import make_decision_function
from tests.deployment.export.test_onnx import answer
from tests.deployment.export.test_starling import ORBIT, observations_of, starling, strung
from tests.deployment.exported import compile_header_once, compiled, imported
from tests.deployment.lockstep import fly, start_of

CLOSE = 1e-5
"""Tolerance relative to `Program.compute_magnitude`."""
STEPS = 6
PERIODS = (0.001, 0.004, 0.01, 0.02, 0.05, 0.3)
"""Sampling periods; the gain is constant up to 0.004."""
INVALID_PERIODS = (0.0, -0.01, math.nan, math.inf, -math.inf)


def scheduled(**options: Any) -> Any:
    """A starling with random weights and the gain min(5, 0.02 / dt)."""
    return starling(gain_period=0.02, largest_gain=5.0, **options)


@dataclass(frozen=True)
class Brake:
    """A law with a clamp and a gain schedule."""

    name: ClassVar[str] = "brake"
    senses: ClassVar[ef.Senses] = ef.Senses((("velocity", "mean"), ("inverse-square", "sum")), 1)
    gain_schedule: ClassVar[ef.GainSchedule] = ef.GainSchedule(period=0.02)
    clamp: float | None = 3.0
    clamp_by: str = "norm"

    def __call__(self, observations: Any) -> Any:
        known = observations[:, :, 0].astype(np.float64)
        accelerations = -4.0 * known[:, :, 0] + known[:, :, 1]
        if self.clamp is None:
            return accelerations
        norms = np.linalg.norm(accelerations, axis=-1, keepdims=True)
        return accelerations * np.minimum(1.0, self.clamp / np.maximum(norms, 1e-12))


@pytest.mark.parametrize("time_step", PERIODS)
def test_c_and_numpy_agents_match_the_simulator_at_any_period(time_step: float, tmp_path: Path) -> None:
    controller = scheduled()
    for made in (compiled, imported):
        make = made(controller, tmp_path, 2, ORBIT, time_step=time_step)
        parity = fly(controller, strung(0), make, STEPS, orbit=ORBIT, time_step=time_step)
        assert parity.worst < CLOSE
        assert parity.dropped == []
    assert len((tmp_path / "agent.py").read_text().splitlines()) < 160


@pytest.mark.parametrize("time_step", [0.002, 0.02, 0.05])
def test_networks_of_numbers_match_in_space(time_step: float, tmp_path: Path) -> None:
    from equiflock.controllers.loading import make_network

    controller: Any = make_network("tdagnn:dimensions=3", seed=2, gain_period=0.02)
    for made in (compiled, imported):
        make = made(controller, tmp_path, time_step=time_step)
        assert fly(controller, start_of(dimensions=3), make, STEPS, time_step=time_step).worst < CLOSE


@pytest.mark.parametrize("time_step", [0.002, 0.01, 0.05])
def test_the_gain_of_a_law_multiplies_its_clamped_acceleration(time_step: float, tmp_path: Path) -> None:
    for made in (compiled, imported):
        make = made(Brake(), tmp_path, time_step=time_step)
        parity = fly(Brake(), start_of(), make, STEPS, time_step=time_step)
        assert parity.worst < CLOSE
        norms = np.linalg.norm(parity.answers, axis=-1)
        assert norms.max() == pytest.approx(3.0 * min(5.0, 0.02 / time_step), rel=1e-5)


def test_a_registered_function_with_a_gain_schedule_can_be_exported(tmp_path: Path) -> None:
    @ef.controller("brake-test", senses=Brake.senses, gain_schedule=ef.GainSchedule(period=0.02))
    def brake(observations: Any, gain: float = 4.0) -> Any:
        return -gain * observations[:, :, 0, 0]

    try:
        for made in (compiled, imported):
            make = made("brake-test", tmp_path, time_step=0.05)
            assert fly(ef.load("brake-test"), start_of(), make, STEPS, time_step=0.05).worst < CLOSE
    finally:
        del CONTROLLERS.parts["brake-test"]


@pytest.mark.parametrize("time_step", [0.01, 0.04, 0.1])
def test_periods_are_in_the_robots_seconds(time_step: float, tmp_path: Path) -> None:
    controller: Any = scale_controller(scheduled(), 1.0, comm_radius=3.0, time_scale=2.0)
    program = read_program(controller)
    assert program.gain_schedule == ef.GainSchedule(0.04, 5.0)
    for made in (compiled, imported):
        make = made(controller, tmp_path, time_step=time_step)
        assert fly(controller, strung(2, radius=3.0), make, STEPS, time_step=time_step).worst < CLOSE


@pytest.mark.slow
@pytest.mark.parametrize("controller", [scale_controller(scheduled(), 1.0, 3.0, 2.0), Brake()])
def test_a_graph_and_a_program_match_the_simulator_at_any_period(controller: Any, tmp_path: Path) -> None:
    path, readme = ef.export(controller, tmp_path / "graph.onnx")
    assert "`period`, a scalar" in readme.read_text()
    shape = 1, 9, controller.senses.hops, controller.senses.width, 2
    known = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    program = read_program(controller, 2)
    for period in PERIODS:
        wanted = make_decision_function(controller, period).decide(None, known)  # type: ignore[arg-type]
        for found in (answer(path, known, period), program(known, period)):
            assert (np.abs(found - wanted) / program.compute_magnitude(known, period)).max() < CLOSE
    for period in INVALID_PERIODS:
        np.testing.assert_array_equal(answer(path, known, period), 0.0)


def test_a_program_without_a_period_has_the_gain_1() -> None:
    controller = scheduled()
    program, known = read_program(controller), observations_of(controller, 2)
    np.testing.assert_array_equal(program(known), program(known, 0.02))
    np.testing.assert_allclose(program(known, 0.05), 0.4 * program(known), rtol=1e-12)
    np.testing.assert_array_equal(program(known, 0.001), program(known, 0.004))


def end_of_one_step(agent: Any, other: Any) -> Any:
    """Return the agent's acceleration after a message of another."""
    agent.begin((0.0, 0.0), (1.0, 0.0))
    agent.receive(other.begin((0.4, 0.1), (0.0, 0.0)))
    return agent.end()


@pytest.mark.parametrize("period", INVALID_PERIODS)
def test_an_invalid_period_gives_no_acceleration_in_c_and_an_error_in_numpy(period: float, tmp_path: Path) -> None:
    controller = scheduled()
    ef.export(controller, tmp_path / "agent.h")
    library = compile_header_once(tmp_path / "agent.h", tmp_path / "agent.so")
    assert end_of_one_step(CompiledAgent(library, 0, 0, period), CompiledAgent(library, 1, 0, period)) == [0.0, 0.0]
    assert any(end_of_one_step(CompiledAgent(library, 0, 0, 0.02), CompiledAgent(library, 1, 0, 0.02)))
    ef.export(controller, tmp_path / "agent.npz")
    agent_class = import_agent_class(tmp_path / "agent.py")
    with pytest.raises(ValueError, match="period must be a positive number of seconds; got"):
        agent_class(0, period=period)


def test_an_agent_without_its_period_is_an_error(tmp_path: Path) -> None:
    controller = scheduled()
    ef.export(controller, tmp_path / "agent.h")
    library = compile_header_once(tmp_path / "agent.h", tmp_path / "agent.so")
    with pytest.raises(ef.InputError, match="period must be the robot's sampling period in seconds"):
        CompiledAgent(library, 0)
    ef.export(controller, tmp_path / "agent.npz")
    with pytest.raises(TypeError, match="period"):
        import_agent_class(tmp_path / "agent.py")(0)


def test_exports_state_the_schedule_and_the_longest_period_of_the_training(tmp_path: Path) -> None:
    network: CompiledNetwork = scheduled().compiled_form()
    trained: Any = scale_controller(replace(network, longest_time_step=0.05), 1.0, time_scale=3.0)
    header, readme = ef.export(trained, tmp_path / "robot.h")
    text = header.read_text()
    for part in (
        "robot_init(&agent, number, group, period);",
        "#define ROBOT_GAIN_PERIOD 0.0599999987f ",
        "#define ROBOT_LARGEST_GAIN 5.0f ",
        "#define ROBOT_LONGEST_PERIOD 0.150000006f ",
        f"{count_agent_bytes(read_program(trained))} bytes of RAM per agent",
    ):
        assert part in text
    for part in ("multiplied by min(5, 0.06 / period)", "periods of up to 0.15 s", "`robot_end` returns -1"):
        assert part in readme.read_text()
    module, readme = ef.export(trained, tmp_path / "robot.py")[::2]
    assert "Its training had periods of up to 0.15 s" in module.read_text()
    assert "`Agent(number, period=..)`" in readme.read_text()
    assert "LONGEST_PERIOD" not in ef.export(scheduled(), tmp_path / "robot.h")[0].read_text()


def test_the_memory_of_an_agent_includes_its_gain(tmp_path: Path) -> None:
    sizes = []
    for controller in (scheduled(), starling()):
        agent = compiled(controller, tmp_path)(0, 0)
        assert agent.size == count_agent_bytes(read_program(controller))
        sizes.append(agent.size)
    assert sizes[0] == sizes[1] + 4


def test_a_controller_without_a_gain_schedule_is_exported_without_a_period(tmp_path: Path) -> None:
    for suffix in (".h", ".py"):
        path, *_, readme = ef.export("etdagnn", tmp_path / f"agent{suffix}")
        assert "period" not in path.read_text() and "period" not in readme.read_text()
