"""The world tells robots from strangers and reports from noise, and names a robot that fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import equiflock as ef
from equiflock.deployment.crew import Crew
from equiflock.deployment.frames import REPORT, frame
from equiflock.deployment.report import Report, read_report
from tests.deployment.robots import children

pytest.importorskip("zenoh")


def settings(program: Path, kind: str = "numpy") -> dict[int, dict[str, Any]]:
    agent = {"number": 0, "group": 0}
    return {
        0: {"kind": kind, "program": str(program), "last_known": 0, "slot": 0.0, "garbage_from": -1, "agent": agent}
    }


def test_an_agent_that_never_answers_is_named(tmp_path: Path) -> None:
    (tmp_path / "asleep.py").write_text("import time\ntime.sleep(1000)\n")
    crew = Crew(settings(tmp_path / "asleep.py"), port=0, patience=1.0, first_answer=0.5)
    with pytest.raises(ef.InputError, match=r"1 of 1 agents did not answer within 0.5 s: 0"), crew:
        pass
    assert not children()


HONEST = "class Agent:\n    def __init__(self, number, group): pass\n"


def test_an_agent_may_import_what_is_on_the_users_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "only_there.py").write_text(HONEST)
    (tmp_path / "program.py").write_text("from only_there import Agent\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "there"))
    with Crew(settings(tmp_path / "program.py"), port=0, patience=1.0) as crew:
        pass
    assert crew.reports[0].seconds == []


def test_what_is_no_robot_or_no_report_is_told_to_nobody_and_counted(tmp_path: Path) -> None:
    import zenoh

    (tmp_path / "program.py").write_text(HONEST)
    with Crew(settings(tmp_path / "program.py"), port=0, patience=0.2) as crew:
        config = {"mode": "peer", "connect": {"endpoints": [crew._endpoint]}}
        with zenoh.open(zenoh.Config.from_json5(json.dumps(config))) as stranger:
            heard: list[Any] = []
            # Again and again, as the stranger may need a while to find who listens.
            while not any(each.kind == REPORT for each in heard):
                for key in ("7", "-1", "two", "0"):
                    stranger.put(f"{crew._run}/from/{key}", frame(REPORT, 0, b"[]"))
                heard += [each for each in [crew.next(0.2)] if each is not None]
            stranger.put(f"{crew._run}/from/0", frame(REPORT, 0, b'{"seconds": "long"}'))
    assert {each.number for each in heard} == {0}
    assert crew.unreadable == {0}


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b"[" * 100_000])
def test_a_report_that_is_none_is_not_read(content: bytes) -> None:
    assert read_report(content) is None


@pytest.mark.parametrize(
    "wrong", [{"ages": {"old": 1}}, {"dropped": {"why": "x"}}, {"seconds": [float("nan")]}, {"kilobytes": -1}]
)
def test_nor_is_one_with_other_values(wrong: dict[str, Any]) -> None:
    report = Report(dropped={"no number": 2}, ages={"0": 1}, seconds=[0.5], kilobytes=3, received="")
    assert read_report(report.encoded()) == report
    assert read_report(replace(report, **wrong).encoded()) is None


def test_an_agent_that_fails_at_once_says_why(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('no motors')\n")
    with pytest.raises(ef.InputError, match=r"agent 0 ended before the flight began.*no motors"):
        Crew(settings(tmp_path / "broken.py"), port=0, patience=1.0).__enter__()
    assert not children()
