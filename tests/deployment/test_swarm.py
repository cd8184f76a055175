"""A swarm of processes flies as the simulator does, and goes on when some of them fail."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import equiflock as ef
from equiflock.deployment import swarm
from equiflock.deployment.export import export
from equiflock.deployment.link_frames import MESSAGE_HEADER
from equiflock.deployment.robot_processes import ROBOT_CODE
from equiflock.deployment.swarm import Deployment, DeploymentResult, build_robot_settings, deploy
from equiflock.deployment.swarm_audit import audit_swarm
from equiflock.simulation import metrics
from tests.deployment.export.test_starling import starling
from tests.deployment.robots import children

pytest.importorskip("zenoh")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_once")]


def flown(agents: int = 5, steps: int = 20, seed: int = 0, **options: Any) -> DeploymentResult:
    start = ef.random_disk(flocks=1, agents=agents, seed=seed, min_degree=min(2, agents - 1))
    parts = {name: options.pop(name) for name in ("radio", "failures") if name in options}
    on_step, keep_record = options.pop("on_step", None), options.pop("keep_record", False)
    deployment = Deployment(**({"agent": "c"} | options), steps=steps, environment=ef.Environment(**parts))
    return deploy("etdagnn", start, deployment, on_step, keep_record)


def value(found: DeploymentResult, name: str) -> str:
    return dict(found.table)[name]


@pytest.mark.parametrize(("agents", "steps", "packet_loss"), [(8, 40, 0.2), (4, 10, 0.0)])
def test_a_swarm_matches_the_simulator(agents: int, steps: int, packet_loss: float) -> None:
    found = flown(agents, steps, radio=ef.Radio(packet_loss=packet_loss))
    assert found.parity.compared_count == agents * steps
    assert found.parity.is_within_tolerance and found.parity.largest_relative_difference < 1e-5
    assert found.drift is not None and found.drift.last <= found.drift.largest < 1e-3
    assert value(found, "parity").startswith(f"yes: {agents * steps:,} of {agents * steps:,}")


@pytest.mark.parametrize("kind", ["numpy", "package"])  # others match in every test; "package" takes seconds to start
def test_every_kind_of_agent_matches_the_simulator_with_the_gain_of_the_time_step(kind: Any, scheduled: str) -> None:
    start = ef.random_disk(flocks=1, agents=2, seed=0, min_degree=1)
    found = deploy(scheduled, start, Deployment(agent=kind, time_step=0.05, steps=10))
    assert found.parity.compared_count == 20
    assert found.parity.is_within_tolerance
    longest = "relative to the flock's largest acceleration" in value(found, "parity")
    assert longest == (kind == "package")


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Weights of a network with the gain min(5, 0.02 / dt)."""
    path = tmp_path_factory.mktemp("weights") / "scheduled.safetensors"
    return str(ef.save(starling(near=False, gain_period=0.02), path))


@pytest.mark.parametrize(
    ("kind", "time_step"),
    # The gain is 5, the largest, 2, 1 and 0.4.
    [*(("c", step) for step in (0.002, 0.01, 0.02, 0.05)), ("numpy", 0.002)],
)
def test_agents_have_the_gain_of_the_time_step(kind: Any, time_step: float, scheduled: str) -> None:
    start = ef.random_disk(flocks=1, agents=2, seed=0, min_degree=1)
    found = deploy(scheduled, start, Deployment(agent=kind, time_step=time_step, steps=5))
    assert found.parity.compared_count == 10
    assert found.parity.is_within_tolerance


def test_periods_of_a_swarm_are_in_the_robots_seconds(scheduled: str) -> None:
    start = ef.random_disk(flocks=1, agents=3, seed=0).in_units(0.2, 0.25)  # R = 5, and four times as slow
    found = deploy(f"{scheduled}:comm_radius=5:time_scale=4", start, Deployment(agent="c", time_step=0.1, steps=5))
    assert found.parity.is_within_tolerance


def test_a_swarm_whose_robots_have_another_period_has_no_parity(
    scheduled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*arguments: Any) -> Any:
        settings = build_robot_settings(*arguments)
        for each in settings.values():
            each["agent"]["period"] *= 2.0
        return settings

    monkeypatch.setattr(swarm, "build_robot_settings", build)
    found = deploy(scheduled, ef.random_disk(flocks=1, agents=3, seed=0), Deployment(agent="c", steps=5))
    assert value(found, "parity").startswith("no")


def test_the_table_has_the_components_variance_and_residual_acceleration_of_the_simulator() -> None:
    near = ef.random_disk(flocks=1, agents=3, seed=0)
    apart = np.concatenate([near.positions, near.positions + 50.0], axis=1)
    start = ef.Flock(apart, np.concatenate([near.velocities, near.velocities], axis=1))
    found = deploy("etdagnn", start, Deployment(agent="c", steps=80))
    run = ef.simulate(found.host.start, ef.load("etdagnn"), time_step=0.01, duration=0.8)
    assert value(found, "components at the end") == "2"
    variance, residual = metrics.velocity_variance(run)[-1, 0], metrics.mean_acceleration_norm(run)[-40:, 0].mean()
    assert float(value(found, "final velocity variance")) == pytest.approx(variance, rel=1e-2)
    number, text = value(found, "residual acceleration").split(", ")
    assert float(number) == pytest.approx(residual, rel=1e-2)
    assert text == "mean |a| over the last 0.4 s"


@pytest.mark.parametrize(
    "radio", [ef.Radio(packet_loss=0.3, delay=1), ef.Radio(packet_loss=0.3, jitter=2, last_known=2, send_interval=2)]
)
def test_a_swarm_matches_the_simulator_with_loss_delay_and_jitter(radio: ef.Radio) -> None:
    found = flown(agents=6, steps=20, radio=radio)
    assert found.parity.compared_count == 6 * 20
    assert found.parity.is_within_tolerance


def test_a_swarm_with_compact_messages_is_close_to_the_simulator_but_not_judged() -> None:
    radio = ef.Radio(packet_loss=0.1, delay=1)
    found = flown(agents=5, steps=20, agent="numpy", message_bytes=60, radio=radio)
    assert found.parity.compared_count == 5 * 20
    assert value(found, "parity").startswith("not judged, as messages are compact: 100 accelerations")
    assert not found.parity.is_within_tolerance
    assert 1e-5 < found.parity.largest_relative_difference < 0.02
    assert value(found, "sent per agent").startswith("42 bytes per step")
    assert value(found, "dropped messages") == "none"


def test_a_swarm_with_messages_that_fit_in_float32_is_judged() -> None:
    assert flown(agents=3, steps=5, message_bytes=76).parity.is_within_tolerance


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"agent": "package", "message_bytes": 60}, "agent must be numpy or c"),
        # Neither several packets nor fewer hops.
        ({"message_bytes": 41}, "message_bytes must be at least 42 for etdagnn with packets = 1, got 41"),
    ],
)
def test_messages_that_a_swarm_cannot_pass_are_one_line(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ef.InputError, match=reason):
        flown(agents=3, steps=5, **options)


def test_compact_garbage_is_dropped() -> None:
    found = flown(agents=4, steps=20, message_bytes=60, garbage=1)
    reasons = value(found, "dropped messages")
    for reason in ("wrong length", "channels or units of the message are others", "does not match the link"):
        assert reason in reasons


def test_a_swarm_that_flies_by_another_controller_has_no_parity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "equiflock.deployment.swarm.export", lambda _, path, **rest: export(ef.load("tdagnn"), path, **rest)
    )
    found = flown(agents=6, steps=5)
    assert not found.parity.is_within_tolerance
    assert value(found, "parity").startswith("no")


SAFETY = ef.SafetyLimits(3.0, 1.2, 0.45, 0.06, ((-0.8, -0.8), (0.8, 0.8)))


def test_a_swarm_keeps_limits_as_the_simulator_does() -> None:
    found = flown(agents=4, steps=12, radio=ef.Radio(packet_loss=0.3, delay=1), time_step=0.02, safety=SAFETY)
    assert found.parity.compared_count == 48 and found.parity.is_within_tolerance
    assert found.drift is not None and found.drift.largest < 1e-4
    assert "FENCE" in value(found, "limits")
    assert (found.parity.state_counts > 0).sum() >= 3


def test_a_swarm_without_the_limits_of_the_simulator_has_no_parity(monkeypatch: pytest.MonkeyPatch) -> None:
    def export_wide(*arguments: Any, **options: Any) -> Any:
        return export(*arguments, **{**options, "safety": ef.SafetyLimits(max_acceleration=1e6)})

    monkeypatch.setattr(swarm, "export", export_wide)
    found = flown(agents=2, steps=4, time_step=0.02, safety=SAFETY)
    assert found.parity.different_count > 0


def test_agents_of_the_package_have_no_limits() -> None:
    with pytest.raises(ef.InputError, match="agents of kind package have no limits: use kind numpy or c"):
        flown(agents=2, agent="package", safety=SAFETY)


def test_killed_processes_are_those_that_fail_in_the_simulator() -> None:
    found = flown(agents=6, steps=20, failures=ef.Failures(agents=2, time=0.1))
    assert len(found.log.lost_robots) == 2
    assert all(lost_robots == (10, "SIGKILL") for lost_robots in found.log.lost_robots.values())
    assert not found.failed_agents
    assert found.parity.compared_count == 6 * 10 + 4 * 10
    assert found.parity.is_within_tolerance
    assert len(found.log.seconds) == 20


def test_the_others_fly_on_when_a_process_is_killed() -> None:
    def kill(step: int) -> None:
        if step == 5:
            children()[0].kill()

    found = flown(steps=20, on_step=kill)
    assert len(found.log.lost_robots) == 1
    assert len(found.log.seconds) == 20
    assert len(found.reports) == 4
    assert "not compared from step 5 on, when agent" in value(found, "parity")
    assert value(found, "parity").startswith("incomplete: 25 of 25") and not found.parity.is_within_tolerance
    assert list(found.failed_agents.values()) == ["lost at step 5, SIGKILL"]


def test_an_agent_that_is_stopped_has_failed_although_its_process_is_alive() -> None:
    def stop(step: int) -> None:
        if step == 5:
            children()[0].suspend()
        if step == 10:
            children()[0].resume()

    found = flown(agents=3, steps=10, answer_timeout=3.0, on_step=stop)
    assert len(found.failed_agents) == 1
    assert "missed 5 of 10 steps" in str(found.failed_agents)
    assert value(found, "parity").startswith("incomplete")


def test_an_agent_that_is_lost_after_the_last_step_has_failed() -> None:
    def kill(step: int) -> None:
        if step == 5:
            children()[0].kill()

    found = flown(agents=3, steps=5, on_step=kill)
    assert list(found.failed_agents.values()) == ["lost at the end, SIGKILL"]
    (number,) = found.failed_agents
    assert value(found, "lost agents") == f"{number} (at the end, SIGKILL)"
    assert value(found, "parity").startswith("incomplete: 15 of 15")
    assert value(found, "parity").endswith(f"; not compared at the end, when agent {number} failed")
    assert not found.parity.is_within_tolerance and found.drift is None


def test_the_others_fly_on_while_one_stalls_and_it_restarts_when_it_is_back() -> None:
    options = {"agent": "numpy", "steps": 40, "stall": 1}
    start = ef.random_disk(flocks=1, agents=4, seed=0)
    deployment = Deployment(**options)  # type: ignore[arg-type]
    # Slow enough for it to be back before the flight is over.
    found = deploy("etdagnn", start, deployment, lambda step: time.sleep(0.06 * (step > 20)), keep_record=True)
    record = found.log.record[0]
    missed_steps = set(range(40)) - set(record)
    assert len(found.log.seconds) == 40
    assert value(found, "stalled") == "0 (from step 20, 0.5 s)"
    assert "agent 0" in value(found, "missed steps")
    assert 0 not in found.failed_agents and value(found, "parity").startswith("incomplete")
    # It did not get the missed frames later, and its last answer came in time.
    assert missed_steps and min(missed_steps) == 21 and max(record) == 39 and record[39].command
    # It starts with a new agent: the relayed observations of its first message are zero.
    back = max(missed_steps) + 1
    relayed = slice(MESSAGE_HEADER.size + 16, None)
    assert not any(record[back].message[relayed]) and any(record[39].message[relayed])
    # The audit replays the step without an answer, but does not compare it.
    again = audit_swarm("etdagnn", start, deployment, found)
    assert again.passed, str(again)
    assert next(change for change in again.changes if change.agent == 0).compared_count == len(record) - 1


def test_garbage_is_dropped_and_counted_and_its_sender_is_silent_to_all() -> None:
    found = flown(steps=20, garbage=1)
    dropped = value(found, "dropped messages")
    assert all(reason in dropped for reason in ("wrong length", "not finite", "does not match the link"))
    assert found.parity.is_within_tolerance


def test_in_real_time_steps_take_as_long_as_they_should() -> None:
    found = flown(agents=3, steps=10, rate=10.0, time_step=0.1)
    assert sum(found.log.seconds) > 0.9
    assert len(found.log.seconds) == 10
    assert len(found.reports) == 3


def test_a_robot_of_the_exported_controller_imports_neither_torch_nor_kernels() -> None:
    asked = ROBOT_CODE.replace("main()", "print(sorted({'torch', 'numba', 'numpy', 'jaxtyping'} & set(sys.modules)))")
    package = str(Path(swarm.__file__).parent.parent)
    done = subprocess.run([sys.executable, "-P", "-c", asked, package], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_process_is_left_after_a_flight() -> None:
    flown(agents=3, steps=3)
    assert not children()


CALL = """
import equiflock as ef
from equiflock.deployment.swarm import Deployment, deploy
print("started", flush=True)
deploy("etdagnn", ef.random_disk(flocks=1, agents=3), Deployment(agent="c", steps=10**6, stall=1),
       lambda step: print("step", flush=True))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_the_host_is_interrupted_or_killed(
    how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", CALL],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert host.stdout is not None
    while "step" not in host.stdout.readline():
        assert host.poll() is None
    robots = psutil.Process(host.pid).children()
    assert len(robots) == 3
    # One of them is stopped, and cannot see that anything happened.
    robots[0].suspend()
    os.kill(host.pid, how)
    host.wait()
    host.stdout.close()
    _, alive = psutil.wait_procs(robots, timeout=30)
    assert not alive
    # Nor a file, if there was time to remove it; else the next swarm removes it.
    assert bool(list(tmp_path.glob("equiflock-*"))) == (how == signal.SIGKILL)
    if how == signal.SIGKILL:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        flown(agents=2, steps=1)
        assert not list(tmp_path.glob("equiflock-*"))


def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ef.InputError, match=f"port {port} of 127.0.0.1 is in use"):
            flown(agents=3, steps=1, port=port)


def test_a_missing_extra_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zenoh", None)
    with pytest.raises(ef.InputError, match=r"equiflock\[deploy\]"):
        flown(agents=3, steps=1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"radio": ef.Radio(noise=0.1)}, "noise is for equiflock simulate"),
        ({"failures": ef.Failures(agents=1, kind="drifting")}, "killed, so they are stopped"),
        ({"stall": 3, "garbage": 3}, "at most the number of followers"),
        ({"rate": 0.0}, "rate must be"),
        ({"port": 70000}, "port must be"),
        ({"agent": "C"}, "agent must be one of 'numpy', 'c', 'package'; got 'C'"),
    ],
)
def test_invalid_settings_are_one_clear_line(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(ef.InputError, match=expected):
        flown(agents=4, steps=2, **options)


def test_an_expert_cannot_be_deployed() -> None:
    with pytest.raises(ef.InputError, match="tanner is privileged"):
        deploy("tanner", ef.random_disk(flocks=1, agents=3), Deployment(steps=1))


def test_a_law_that_cannot_be_exported_can_be_flown_by_the_package() -> None:
    def flat(observations: Any) -> Any:
        return np.tanh(observations[:, :, 0, 0])

    flat.senses = ef.paper_senses("mean", hops=1)  # type: ignore[attr-defined]
    start = ef.random_disk(flocks=1, agents=3)
    with tempfile.TemporaryDirectory() as folder, pytest.raises(ef.InputError, match="--agent package"):
        swarm.build_robot_settings("flat", flat, start, Deployment(), Path(folder))  # type: ignore[arg-type]
