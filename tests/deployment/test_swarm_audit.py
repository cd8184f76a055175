"""Robots that use only what they received pass the audit; robots that cheat do not."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import equiflock as ef
from equiflock.deployment import audit as audit_result
from equiflock.deployment import swarm
from equiflock.deployment.export import export
from equiflock.deployment.swarm import Deployment, deploy
from equiflock.deployment.swarm_audit import audit_swarm

pytest.importorskip("zenoh")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_once")]


def audited(agents: int = 3, steps: int = 5) -> Any:
    start = ef.random_disk(flocks=1, agents=agents, seed=0)
    deployment = Deployment(agent="numpy", steps=steps)
    return audit_swarm("etdagnn", start, deployment, deploy("etdagnn", start, deployment, keep_record=True))


def test_processes_that_use_only_what_they_received_pass_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The agents that the audit adds are no reason to refuse it.
    monkeypatch.setattr(swarm, "MAX_AGENTS", 3)
    monkeypatch.setattr(audit_result, "MAX_LINES", 3)
    found = audited()
    assert found.passed, str(found)
    assert found.agents == tuple(range(3))
    text = found.save(tmp_path / "audit.html").read_text()
    measured, message = found.record[:2]
    assert measured.sender == audit_result.OWN_MEASUREMENT and len(bytes.fromhex(measured.content)) == 16
    assert message.content.startswith("4546")  # EF
    assert measured.content in text and message.content in text
    # The page shows some of the record, and names the file that has all of it.
    assert found.record[10].content not in text
    assert "audit.csv" in text
    with (tmp_path / "audit.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["content"] for row in rows] == [row.content for row in found.record]
    assert sum(row["sender"] == "itself" for row in rows) == 3 * 5


def test_a_record_that_differs_from_the_received_bytes_is_an_error() -> None:
    start, deployment = ef.random_disk(flocks=1, agents=3, seed=0), Deployment(steps=3)
    found = deploy("etdagnn", start, deployment, keep_record=True)
    found.log.record[1][2] = found.log.record[1][2]._replace(radio_frame=b"")
    with pytest.raises(ef.InputError, match="agent 1 received other bytes"):
        audit_swarm("etdagnn", start, deployment, found)


# Two ways of cheating: read files that others write, and subscribe to the frames of others.
FILES = """
Honest = Agent


class Agent(Honest):
    def begin(self, position, velocity):
        (Path({folder!r}) / str(self.number)).write_text(str(position[0]))
        return super().begin(position, velocity)

    def end(self):
        seen = sum(float(path.read_text()) for path in sorted(Path({folder!r}).iterdir()))
        return super().end() + np.float32(1e-3 * seen)
"""
LISTENING = """
import json, sys, time, zenoh
Honest = Agent
overheard = [0]


class Agent(Honest):
    session = None

    def begin(self, position, velocity):
        settings = sys._getframe(1).f_locals["self"].settings
        if Agent.session is None:
            config = dict(mode="peer", connect=dict(endpoints=[settings["endpoint"]]))
            config["scouting"] = dict(multicast=dict(enabled=False))
            Agent.session = zenoh.open(zenoh.Config.from_json5(json.dumps(config)))
            own = "/to/" + str(settings["number"])

            def listen(sample):
                if not str(sample.key_expr).endswith(own):
                    overheard.append(sum(sample.payload.to_bytes()))

            Agent.session.declare_subscriber(settings["key_prefix"] + "/to/*", listen)
            time.sleep(0.5)
        return super().begin(position, velocity)

    def end(self):
        return super().end() + np.float32(1e-3 * sum(overheard))
"""


@pytest.mark.parametrize("cheat", [FILES, LISTENING], ids=["files", "listening"])
def test_processes_that_cheat_are_caught(cheat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_a_cheat(controller: Any, path: Path, **rest: Any) -> Any:
        written = export(controller, path, **rest)
        written[0].write_text(written[0].read_text() + cheat.replace("{folder!r}", repr(str(tmp_path))))
        return written

    monkeypatch.setattr("equiflock.deployment.swarm.export", with_a_cheat)
    found = audited(steps=4)
    assert not found.passed
    assert "used what it did not receive" in found.verdict
