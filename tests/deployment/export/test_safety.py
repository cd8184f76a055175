"""Exported agents keep their limits: every rule in C and in NumPy, the same as the simulator's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest

import equiflock as ef
from equiflock.deployment.export.c_header import count_agent_bytes
from equiflock.deployment.export.program import read_program
from equiflock.deployment.exported_agents import COMPILER_FLAGS, CompiledAgent, import_agent_class
from equiflock.deployment.wire_format import OBSTACLE_GROUP, Message, encode_message, make_zero_hops
from tests.deployment.export.test_agents import CLOSE, course
from tests.deployment.export.test_gain_schedule import INVALID_PERIODS, Brake
from tests.deployment.exported import compile_header_once, compiled, imported
from tests.deployment.lockstep import fly, start_of
from tests.safety import limit_one

PERIOD = 0.02
LIMITS = ef.SafetyLimits(4.0, 1.5, 0.3, 0.1, ((-2.0, -2.0), (2.0, 2.3)))
LAW = "reynolds"
KINDS = "c", "numpy"


def limited(controller: Any = LAW, **changes: Any) -> Any:
    return ef.Safe(controller, **{**vars(LIMITS), **changes})


class Step(NamedTuple):
    """What an agent measures and receives at a step, and its state afterwards."""

    position: tuple[float, float]
    velocity: tuple[float, float]
    neighbours: tuple[tuple[tuple[float, float], tuple[float, float]], ...]
    state: str


NEAR, FAR = ((0.625, 0.0), (0.0, 0.0)), ((0.8, 0.5), (0.1, 0.0))
SCRIPT = (
    Step((0.0, 0.0), (0.0, 0.0), (NEAR, FAR), "OK"),
    Step((0.0, 0.0), (0.1, 0.0), (), "ALONE"),
    Step((0.4, 0.0), (0.0, 0.0), (NEAR, FAR), "TOO_CLOSE"),
    Step((0.0, 0.0), (0.1, 0.1), (((0.5, 0.5), (40.0, 0.0)),), "LIMITED"),
    Step((0.0, 0.0), (1.6, 0.0), (((0.5, 0.5), (1.6, 0.0)),), "LIMITED"),
    Step((1.99, 0.0), (0.3, 0.0), (((1.2, 0.5), (0.3, 0.0)),), "FENCE"),
    Step((0.0, -2.2), (0.0, 0.0), (((0.5, -1.7), (0.0, 0.0)),), "FENCE"),
    # Too close and outside the fence: the more severe state counts.
    Step((0.0, -2.2), (0.0, 0.0), (((0.1, -2.2), (0.0, 0.0)),), "FENCE"),
    Step((2e8, 0.0), (0.0, 0.0), (NEAR,), "INVALID"),
    *[Step((0.0, 0.0), (0.3, 0.1), (), "ALONE")] * 4,
    Step((0.0, 0.0), (0.3, 0.1), (), "STALE"),
    Step((5.0, 0.0), (0.3, 0.1), (), "STALE"),
    # Coincident: no direction, no force.
    Step((0.625, 0.0), (0.0, 0.0), (NEAR,), "OK"),
)
"""The states in turn, of one agent."""


def message_of(neighbour: Any, sender: int, step: int, group: int = 0) -> bytes:
    """Return the message of a neighbour that has observed nothing."""
    position, velocity = np.array(neighbour, np.float32)
    hops = make_zero_hops(ef.load(LAW).senses, 2)
    return encode_message(Message(sender, step, position, velocity, hops, group))


def list_messages(step: int) -> list[bytes]:
    return [message_of(each, 1 + n, step) for n, each in enumerate(SCRIPT[step].neighbours)]


def run_script(agent: Any) -> Iterator[tuple[Any, str | None]]:
    """Yield the acceleration and the state of every step; None without limits."""
    for n, step in enumerate(SCRIPT):
        agent.begin(step.position, step.velocity)
        assert [agent.receive(message) for message in list_messages(n)] == [None] * len(step.neighbours)
        yield np.array(agent.end(), np.float64), getattr(agent, "state", None)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("limits")
    ef.export(limited(), folder / "agent.h")
    return compile_header_once(folder / "agent.h", folder / "agent.so")


@pytest.fixture(scope="module")
def agent_class(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("limits")
    ef.export(limited(), folder / "agent.py")
    return import_agent_class(folder / "agent.py")


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, library: Path, agent_class: Any) -> Any:
    """Makes agents of the law with LIMITS, in C and in NumPy."""
    if request.param == "c":
        return lambda period=PERIOD: CompiledAgent(library, 0, 0, period)
    return lambda period=PERIOD: agent_class(0, period=period)


def test_every_rule_is_tripped_and_does_what_the_slow_twin_does(make: Any, tmp_path: Path) -> None:
    unlimited = imported(LAW, tmp_path)(0, 0)
    silent_steps = -1
    for step, (found, state), (command, _) in zip(SCRIPT, run_script(make()), run_script(unlimited), strict=True):
        assert state == step.state
        silent_steps = 0 if step.neighbours else silent_steps + 1
        expected = limit_one(LIMITS, PERIOD, *step[:3], silent_steps * PERIOD, command)
        expected = [0.0, 0.0] if state == "INVALID" else expected
        # Relative to |v| / T, the largest term of the speed limit.
        np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE * (1.0 + math.hypot(*step.velocity) / PERIOD))
        assert np.linalg.norm(found) <= 4.0 * (1 + 1e-6)
    assert {step.state for step in SCRIPT} == {state.name for state in ef.SafetyState}


@pytest.mark.parametrize("entry", [math.nan, math.inf, -math.inf, 1e9])
def test_a_measured_state_that_is_no_number_is_invalid(entry: float, make: Any) -> None:
    agent = make()
    for position, velocity in (((entry, 0.0), (0.0, 0.0)), ((0.0, 0.0), (1.0, entry))):
        agent.begin(position, velocity)
        assert list(agent.end()) == [0.0, 0.0] and agent.state == "INVALID"
    agent.begin((0.0, 0.0), (1.0, 0.0))
    agent.end()
    assert agent.state == "ALONE"


@dataclass(frozen=True)
class Overflow:
    """A law whose accelerations are beyond float32, but finite in float64, unless all neighbours are at rest."""

    name: ClassVar[str] = "overflow"
    senses: ClassVar[ef.Senses] = ef.Senses((("velocity", "sum"),), 1)

    def __call__(self, observations: Any) -> Any:
        return 3e38 * observations[:, :, 0, 0].astype(np.float64)


@pytest.mark.parametrize("made", [compiled, imported])
def test_limits_hold_if_the_controllers_acceleration_is_out_of_range(made: Any, tmp_path: Path) -> None:
    agent = made(ef.Safe(Overflow(), **{**vars(LIMITS), "min_separation": None}), tmp_path, time_step=PERIOD)(0, 0)
    agent.begin((1.99, 0.0), (0.3, 0.0))
    # The law has one hop, so its messages have no relayed observations.
    agent.receive(encode_message(Message(1, 0, np.zeros(2), np.array([-1e7, 0.0]), np.zeros((0, 1, 2)))))
    found = agent.end()
    assert agent.state == "INVALID" and found[0] < -3.0 and found[1] == 0.0


def test_obstacle_agents_push_but_do_not_end_a_silence(make: Any) -> None:
    agent = make()
    for step in range(7):
        agent.begin((0.0, 0.0), (0.0, 0.0))
        assert agent.receive(message_of(((0.1, 0.0), (0.0, 0.0)), 1, step, OBSTACLE_GROUP)) is None
        found = agent.end()
        assert agent.state == ("TOO_CLOSE" if step < 5 else "STALE")
        assert found[0] < -1.0


def test_a_robots_clock_counts_silence_and_late_steps(make: Any) -> None:
    def step(time: float | None) -> str:
        agent.begin((0.0, 0.0), (0.1, 0.0))
        if time is not None:
            agent.set_time(time)
        agent.end()
        return str(agent.state)

    agent, start = make(), 4294.95  # 32 bits of microseconds wrap at 4294.967
    assert [step(start + 0.029 * n) for n in range(5)] == ["ALONE"] * 4 + ["STALE"]
    assert agent.late_count == 0
    assert step(start + 0.147) == "STALE" and agent.late_count == 1
    # A step without a clock takes a period, and so does the first one with it.
    agent = make()
    assert [step(None), step(1.0), step(1.05), step(1.1), step(9.0)] == ["ALONE"] * 3 + ["STALE"] * 2
    assert agent.late_count == 3


def test_a_restart_forgets_neighbours_and_observations_and_keeps_the_silence(make: Any) -> None:
    agent, other = make(), make()
    for step, neighbours in enumerate([(NEAR, FAR), (), (), (), (), ()]):
        for each in agent, other:
            each.begin((0.0, 0.0), (0.3, 0.1))
            for n, neighbour in enumerate(neighbours):
                assert each.receive(message_of(neighbour, 1 + n, step)) is None
            each.set_time(10.0 + 0.019 * step)
            each.end()
    assert agent.state == "ALONE"
    agent.begin((0.0, 0.0), (0.3, 0.1))
    assert agent.receive(message_of(NEAR, 1, 6)) is None
    agent.restart()
    assert agent.step == 6
    # Neither the message nor an observation is left, and the clock goes on.
    fresh = make()
    fresh.step = 6
    assert agent.begin((0.0, 0.0), (0.3, 0.1)) == fresh.begin((0.0, 0.0), (0.3, 0.1))
    agent.set_time(10.119)
    agent.end()
    assert (agent.state, agent.step, agent.late_count) == ("STALE", 7, 0)


def test_an_agent_in_c_without_limits_restarts_at_its_step(tmp_path: Path) -> None:
    ef.export(LAW, tmp_path / "agent.h")
    agent = CompiledAgent(compile_header_once(tmp_path / "agent.h", tmp_path / "agent.so"), 3)
    first = agent.begin((0.0, 0.0), (0.3, 0.1))
    agent.receive(message_of(NEAR, 1, 0))
    assert any(agent.end())
    agent.restart()
    assert agent.step == 1
    agent.step = 0
    assert agent.begin((0.0, 0.0), (0.3, 0.1)) == first and not any(agent.end())


@pytest.mark.parametrize("name", ["tanner-fixed", "etdagnn"])
@pytest.mark.parametrize("message_bytes", [None, 40])
def test_agents_of_all_formats_are_like_new_after_a_restart(
    name: str, message_bytes: int | None, tmp_path: Path
) -> None:
    changes: dict[str, Any] = {"fence": None, "max_speed": None, "max_silence": None}
    controller, options = limited(name, **changes), {} if message_bytes is None else {"message_bytes": message_bytes}
    header, program = (ef.export(controller, tmp_path / name, **options)[0] for name in ("agent.h", "agent.py"))
    library, agent_class = compile_header_once(header, tmp_path / "agent.so"), import_agent_class(program)
    trios: list[list[Any]] = [
        [CompiledAgent(library, n, 0, PERIOD) for n in range(3)],
        [agent_class(n, period=PERIOD) for n in range(3)],
    ]
    for agent, fresh, other in trios:
        fly_pair(agent, other)
        agent.restart()
        for each in (agent, fresh):
            each.begin((0.0, 0.0), (0.1, 0.0))
        sent = other.begin((0.4, 0.1), (0.0, 0.2))
        for message in sent if isinstance(sent, list) else [sent]:
            assert agent.receive(message) == fresh.receive(message) is None
        assert list(agent.end()) == list(fresh.end()) != [0.0, 0.0]


def fly_pair(agent: Any, other: Any) -> None:
    """Fly two steps in which the agent receives all messages of another."""
    for _ in range(2):
        agent.begin((0.0, 0.0), (0.1, 0.0))
        sent = other.begin((0.5, 0.2), (0.0, 0.1))
        for message in sent if isinstance(sent, list) else [sent]:
            assert agent.receive(message) is None
        agent.end()
        other.end()


def test_an_agent_that_is_silent_for_hours_stays_stale(library: Path) -> None:
    agent = CompiledAgent(library, 0, 0, PERIOD)
    states = []
    for hour in range(50):
        agent.begin((0.0, 0.0), (0.1, 0.0))
        agent.set_time(3600.0 * hour)
        agent.end()
        states.append(agent.state)
    assert states[1:] == ["STALE"] * 49


@pytest.mark.parametrize(
    ("flag", "microseconds"),
    [
        ((), 1_000_000_010),
        (("-DAGENT_MAX_SILENCE_US=70000",), 70_000),
        (("-DAGENT_MAX_SILENCE=0.07f",), 70_000),
        (("-DAGENT_MAX_SILENCE=0",), None),
    ],
)
def test_silence_is_compared_in_microseconds(flag: Any, microseconds: int | None, tmp_path: Path) -> None:
    make = compiled(limited(max_silence=1000.00001), tmp_path, flags=(*COMPILER_FLAGS, *flag), time_step=PERIOD)
    for elapsed in (microseconds - 1, microseconds) if microseconds else (4_000_000_000,):
        agent = make(0, 0)
        for time in (0, elapsed):
            agent.begin((0.0, 0.0), (0.1, 0.0))
            agent.set_time(time * 1e-6)
            agent.end()
        assert agent.state == ("STALE" if elapsed == microseconds else "ALONE")


@pytest.mark.parametrize("period", INVALID_PERIODS)
def test_an_invalid_period_is_refused(period: float, library: Path, agent_class: Any) -> None:
    agent = CompiledAgent(library, 0, 0, period)
    for found, state in run_script(agent):
        assert not found.any() and state == "INVALID"
    with pytest.raises(ValueError, match="period must be a positive number of seconds; got"):
        agent_class(0, period=period)


def test_an_agent_with_limits_needs_its_period(library: Path, agent_class: Any) -> None:
    with pytest.raises(ef.InputError, match="period must be the robot's sampling period in seconds"):
        CompiledAgent(library, 0)
    with pytest.raises(TypeError, match="period"):
        agent_class(0)


def test_macros_override_limits_and_add_a_fence(tmp_path: Path) -> None:
    ef.export(ef.Safe(LAW, max_acceleration=4.0), tmp_path / "agent.h")
    macros = "-DAGENT_MAX_ACCELERATION=0.5f", "-DAGENT_FENCE_LOWER={-1.0f,-1.0f}", "-DAGENT_FENCE_UPPER={1.0f,1.0f}"
    library = compile_header_once(tmp_path / "agent.h", tmp_path / "agent.so", flags=(*COMPILER_FLAGS, *macros))
    agent = CompiledAgent(library, 0, 0, PERIOD)
    agent.begin((2.0, 0.0), (0.0, 0.0))
    np.testing.assert_allclose(agent.end(), (-0.5, 0.0), rtol=1e-6)
    assert agent.state == "FENCE"


RADIOS = {
    "ideal": (ef.Radio(), ef.Radio(), 0),
    "loss": (ef.Radio(packet_loss=0.2, last_known=2), ef.Radio(packet_loss=0.2), 2),
    "heavy loss": (ef.Radio(packet_loss=0.8), ef.Radio(packet_loss=0.8), 0),
    "delay": (ef.Radio(delay=1), ef.Radio(delay=1), 0),
}


@pytest.mark.parametrize(("radio", "D"), [("ideal", 2), ("ideal", 3), ("loss", 2), ("heavy loss", 2), ("delay", 3)])
@pytest.mark.parametrize("units", [{}, {"comm_radius": 3.0, "time_scale": 2.0}])
def test_agents_match_the_simulator(radio: str, D: int, units: Any, tmp_path: Path) -> None:
    used, delivering, last_known = RADIOS[radio]
    R = units.get("comm_radius", 1.0)
    controller: Any = ef.Safe(
        ef.load("starling", **units),
        max_acceleration=3.0 * R,
        max_speed=1.2 * R,
        min_separation=0.4 * R,
        max_silence=0.06,
        fence=((2.1 * R,) * D, (3.7 * R,) * D),
    )
    start, common = start_of(dimensions=D, radius=R), {"time_step": PERIOD, "delay": PERIOD * used.delay}
    flags = *COMPILER_FLAGS, f"-DAGENT_LAST_KNOWN={last_known}"
    c, numpy = compiled(controller, tmp_path, D, flags=flags, **common), imported(controller, tmp_path, D, **common)
    for make in (c, lambda i, group: numpy(i, group, last_known=last_known)):  # type: ignore[call-arg]
        found = fly(controller, start, make, 14, radio=used, delivering=delivering, time_step=PERIOD)
        assert found.worst < CLOSE and found.different_states == 0 and found.dropped == []
        assert {"LIMITED", "TOO_CLOSE", "FENCE"} <= set(found.states)
        assert ("STALE" in found.states) == (radio == "heavy loss")


def test_agents_match_the_simulator_near_obstacles(tmp_path: Path) -> None:
    controller = limited("etdagnn", min_separation=0.45, max_silence=0.04)
    for made in (compiled, imported):
        make = made(controller, tmp_path, 2, ef.Orbit(), time_step=PERIOD)
        found = fly(controller, course(), make, 8, orbit=ef.Orbit(), time_step=PERIOD)
        assert found.worst < CLOSE and found.different_states == 0
        assert found.states.count("TOO_CLOSE") > 5


def test_the_delay_lowers_the_gain_only(tmp_path: Path) -> None:
    controller = limited(Brake(), max_speed=None, min_separation=None, fence=None)
    for made in (compiled, imported):
        norms = []
        for delay in (0.0, PERIOD):
            agent = made(controller, tmp_path, time_step=PERIOD, delay=delay)(0, 0)
            agent.begin((0.0, 0.0), (9.0, 0.0))
            agent.receive(message_of(((0.5, 0.0), (0.0, 0.0)), 1, 0))
            norms.append(np.linalg.norm(agent.end()))
        np.testing.assert_allclose(norms, (3.0, 1.5), rtol=1e-5)
    with pytest.raises(ValueError, match="delay must be a number of seconds of at least 0"):
        imported(controller, tmp_path, time_step=PERIOD, delay=-1.0)(0, 0)
    agent = compiled(controller, tmp_path, time_step=PERIOD, delay=-1.0)(0, 0)
    agent.begin((0.0, 0.0), (1.0, 0.0))
    assert list(agent.end()) == [0.0, 0.0] and agent.state == "INVALID"


@pytest.mark.parametrize("name", [LAW, "starling"])
def test_the_memory_that_the_header_states_includes_the_limits(name: str, tmp_path: Path) -> None:
    sizes = []
    for controller in (ef.load(name), limited(name)):
        program = read_program(controller)
        sizes.append(compiled(controller, tmp_path)(0, 0).size)
        assert sizes[-1] == count_agent_bytes(program)
        assert f"{sizes[-1]} bytes of RAM per agent" in (tmp_path / "agent.h").read_text()
    assert sizes[1] == sizes[0] + 28


def test_files_state_the_limits(tmp_path: Path) -> None:
    header, readme = ef.export(limited("starling"), tmp_path / "robot.h")
    for text in (
        "#define ROBOT_MAX_SPEED 1.5f ",
        "#define ROBOT_FENCE_UPPER {2.0f, 2.29999995f} ",
        "robot_set_time(&agent, microseconds);",
        "robot_set_delay(&agent, seconds);",
    ):
        assert text in header.read_text()
    for text in ("| fence | (-2, -2) to (2, 2.3) | FENCE |", "| braking_time | 4 periods |", "`robot_set_delay`"):
        assert text in readme.read_text()
    module, _, readme = ef.export(ef.Safe(LAW, max_acceleration=4.0), tmp_path / "robot.py")
    assert "FENCE = None" in module.read_text() and "agent = Agent(number=7, period=0.02)" in module.read_text()
    assert "| max_speed | none | LIMITED |" in readme.read_text()


@pytest.mark.parametrize("name", ["etdagnn", "starling"])
def test_exports_without_limits_have_no_trace_of_them(name: str, tmp_path: Path) -> None:
    for suffix in (".h", ".py"):
        for path in ef.export(name, tmp_path / f"agent{suffix}"):
            if path.suffix != ".npz":
                assert not any(word in path.read_text() for word in ("limit(", "LIMITED", "silence", "set_time"))


def test_limits_cannot_be_exported_to_onnx(tmp_path: Path) -> None:
    with pytest.raises(ef.InputError, match="limits need the robot's state, which is no input of an ONNX graph"):
        ef.export(limited(), tmp_path / "agent.onnx")
    assert not any(tmp_path.iterdir())


def test_a_fence_of_other_dimensions_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ef.InputError, match="corners of the fence must have D = 3 numbers each; got 2"):
        ef.export(limited(), tmp_path / "agent.h", dimensions=3)
