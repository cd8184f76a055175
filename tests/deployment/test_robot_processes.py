"""The host rejects frames of strangers and invalid reports, listens locally, and names a robot that fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import equiflock as ef
from equiflock.deployment.link_frames import END, HELLO, REPORT, RobotReport, pack_frame, parse_report
from equiflock.deployment.robot import Robot
from equiflock.deployment.robot_processes import RobotProcesses
from equiflock.deployment.swarm_results import FlightLog, find_failed_agents
from tests.deployment.robots import children

pytest.importorskip("zenoh")


def settings(program: Path, kind: str = "numpy") -> dict[int, dict[str, Any]]:
    agent = {"number": 0, "group": 0}
    return {
        0: {
            "kind": kind,
            "program": str(program),
            "last_known": 0,
            "listen_seconds": 0.0,
            "garbage_start_step": -1,
            "agent": agent,
        }
    }


def test_an_agent_that_never_answers_is_named(tmp_path: Path) -> None:
    (tmp_path / "asleep.py").write_text("import time\ntime.sleep(1000)\n")
    processes = RobotProcesses(settings(tmp_path / "asleep.py"), port=0, answer_timeout=1.0, startup_timeout=0.5)
    with pytest.raises(ef.InputError, match=r"1 of 1 agents did not answer within 0.5 s: 0"), processes:
        pass
    assert not children()


def test_a_robot_that_missed_steps_keeps_its_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = ef.Safe("etdagnn", max_acceleration=1.0, max_silence=0.1)
    program = ef.export(controller, tmp_path / "agent.py")[0]
    keys = {"key_to_host": "00" * 32, "key_to_robot": "11" * 32}
    robot = Robot({**settings(program)[0], "number": 0, "agent": {"number": 0, "period": 0.05}, **keys})
    monkeypatch.setattr(robot, "send", lambda frame: None)
    states = []
    for step in (0, 1, 2, 9, 10):
        robot.begin(step, (0.0, 0.0, 1.0, 0.0))
        robot.end()
        states.append(getattr(robot.agent, "state", None))
    assert states == ["ALONE", "ALONE", "STALE", "STALE", "STALE"] and robot.agent.step == 11


HONEST = "class Agent:\n    def __init__(self, number, group): pass\n"


def test_an_agent_may_import_what_is_on_the_users_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "only_there.py").write_text(HONEST)
    (tmp_path / "program.py").write_text("from only_there import Agent\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "there"))
    with RobotProcesses(settings(tmp_path / "program.py"), port=0, answer_timeout=1.0) as processes:
        pass
    assert processes.reports[0].seconds == []


def test_frames_of_strangers_are_rejected_and_counted(tmp_path: Path) -> None:
    import zenoh

    (tmp_path / "program.py").write_text(HONEST)
    with RobotProcesses(settings(tmp_path / "program.py"), port=0, answer_timeout=0.2) as processes:
        while processes.next_frame(0.0) is not None:  # further HELLO frames
            pass
        config = {"mode": "client", "connect": {"endpoints": [processes._endpoint]}}
        with zenoh.open(zenoh.Config.from_json5(json.dumps(config))) as stranger:
            # Repeat, because discovery takes a while.
            while len(processes.count_rejected_frames()) < 3:
                for key in ("7", "-1", "two", "0"):
                    stranger.put(f"{processes._key_prefix}/from/{key}", pack_frame(REPORT, 0, b"[]"))
                stranger.put(f"{processes._key_prefix}/from/0", pack_frame(REPORT, 0, bytes(100)))
                stranger.put(f"{processes._key_prefix}/to/0", pack_frame(END))
                frame = processes.next_frame(0.1)
                assert frame is None or frame.kind == HELLO
    assert set(processes.count_rejected_frames()) == {"unknown sender", "too short", "wrong authentication tag"}
    assert set(processes.reports) == {0} and not processes.unparsed_reports


def test_invalid_reports_are_counted(tmp_path: Path) -> None:
    broken = "from equiflock.deployment.link_frames import RobotReport\nRobotReport.to_json = lambda self: b'[]'\n"
    (tmp_path / "program.py").write_text(HONEST + broken)
    with RobotProcesses(settings(tmp_path / "program.py"), port=0, answer_timeout=0.2) as processes:
        pass
    assert processes.unparsed_reports == {0} and not processes.reports
    assert find_failed_agents(processes, FlightLog(), 0.0) == {0: "invalid report at the end"}


def test_only_the_host_listens_and_only_on_127_0_0_1(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(HONEST)
    before = set(psutil.Process().net_connections())
    with RobotProcesses(settings(tmp_path / "program.py"), port=0, answer_timeout=0.2) as processes:
        (robot,) = children()
        host_sockets = set(psutil.Process().net_connections()) - before
        addresses = [each.laddr for each in host_sockets if each.status in (psutil.CONN_LISTEN, psutil.CONN_NONE)]
        assert [f"tcp/{ip}:{port}" for ip, port in addresses] == [processes._endpoint]
        assert processes._endpoint.startswith("tcp/127.0.0.1:")
        assert [(each.status, each.raddr) for each in robot.net_connections()] == [
            (psutil.CONN_ESTABLISHED, addresses[0])
        ]


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b"[" * 100_000])
def test_invalid_reports_are_not_parsed(content: bytes) -> None:
    assert parse_report(content) is None


@pytest.mark.parametrize(
    "wrong", [{"ages": {"old": 1}}, {"dropped": {"why": "x"}}, {"seconds": [float("nan")]}, {"peak_memory_kib": -1}]
)
def test_reports_with_invalid_values_are_not_parsed(wrong: dict[str, Any]) -> None:
    report = RobotReport(
        dropped={"no number": 2},
        rejected={"too short": 1},
        ages={"0": 1},
        seconds=[0.5],
        peak_memory_kib=3,
        received_sha256="",
    )
    assert parse_report(report.to_json()) == report
    assert parse_report(replace(report, **wrong).to_json()) is None


def test_an_agent_that_fails_at_once_says_why(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('no motors')\n")
    with pytest.raises(ef.InputError, match=r"agent 0 ended before the flight began.*no motors"):
        RobotProcesses(settings(tmp_path / "broken.py"), port=0, answer_timeout=1.0).__enter__()
    assert not children()
