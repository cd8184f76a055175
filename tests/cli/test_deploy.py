"""`equiflock deploy`: its table, the page of its audit, and one-line errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from equiflock.cli.deploy import Deploy
from equiflock.cli.shared_options import add_dynamic_options
from equiflock.deployment import swarm
from equiflock.scenarios import scenario_names
from tests.cli.commands import failure, run
from tests.deployment.robots import children

pytest.importorskip("zenoh")

pytestmark = pytest.mark.usefixtures("compile_once")
SHORT = ("deploy", "--agents", "3", "--agent", "c")


@pytest.mark.parametrize("scenario", scenario_names())
def test_a_swarm_has_one_flock_of_12_agents_by_default(scenario: str) -> None:
    options = add_dynamic_options(Deploy, ["--scenario", scenario])().options
    assert (options.flocks, options.agents) == (1, 12)


@pytest.mark.slow
def test_the_table_has_parity_bandwidth_ages_and_times(capsys: pytest.CaptureFixture[str]) -> None:
    run(*SHORT, "--duration", "0.1", "--packet-loss", "0.2")
    printed = capsys.readouterr().out
    for line in ("parity", "drift", "time per step", "sent per agent", "age of messages", "dropped messages"):
        assert line in printed
    for line in ("components at the end", "final velocity variance", "residual acceleration"):
        assert line in printed
    assert "30 of 30 accelerations" in printed


@pytest.mark.slow
def test_the_audit_is_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(*SHORT, "--duration", "0.03", "--audit")
    assert "audit: starling used nothing that it did not receive" in capsys.readouterr().out
    page = (tmp_path / "audit.html").read_text()
    assert "Locality audit of starling" in page
    assert "passed" in page
    assert (tmp_path / "audit.csv").exists()


@pytest.mark.slow
@pytest.mark.parametrize("fails", ["parity", "audit"])
def test_a_swarm_that_fails_its_checks_has_exit_code_1(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fails == "parity":
        monkeypatch.setattr("equiflock.deployment.swarm_results.TOLERANCE", 0.0)
        options: tuple[str, ...] = "--duration", "0.05"
    else:
        monkeypatch.setattr("equiflock.deployment.audit.Audit.passed", False)
        monkeypatch.setattr("equiflock.deployment.audit.Audit.verdict", "it used what it did not receive")
        options = "--duration", "0.01", "--audit", "--audit-page", str(tmp_path / "page.html")
    with pytest.raises(SystemExit) as caught:
        run(*SHORT, *options)
    assert caught.value.code == 1
    assert (tmp_path / "page.html").exists() == (fails == "audit")


@pytest.mark.slow
def test_an_unplanned_loss_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def kill_two(self: swarm.Swarm, *arguments: Any) -> None:
        for robot in children()[:2]:
            robot.kill()
        fly(self, *arguments)

    fly = swarm.Swarm.fly
    monkeypatch.setattr(swarm.Swarm, "fly", kill_two)
    with pytest.raises(SystemExit) as caught:
        run(*SHORT, "--duration", "0.05")
    printed = capsys.readouterr()
    assert caught.value.code == 1
    assert printed.err == "agents failed unexpectedly: 0 (lost at step 0, SIGKILL), 1 (lost at step 0, SIGKILL)\n"
    assert "yes" not in printed.out


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault", [("--fail", "1", "--fail-time", "0.1"), ("--stall", "1", "--answer-timeout", "0.4"), ("--garbage", "1")]
)
def test_planned_faults_have_exit_code_0(fault: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    run(*SHORT, "--duration", "0.2", *fault)
    assert "failed unexpectedly" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--controller", "tanner"), "tanner is privileged"),
        (("--noise", "0.1"), "noise is for equiflock simulate"),
        (("--rate", "20", "--audit"), "--audit needs lockstep"),
        (("--audit-page", "audit.html"), "give both"),
        (("--time-step", "0"), "time_step must be"),
        (("--flocks", "2"), "a swarm is a single flock"),
        (("--fail", "1", "--fail-kind", "silent"), "killed, so they are stopped"),
    ],
)
def test_unsupported_options_are_a_one_line_error(
    arguments: tuple[str, ...],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    said = failure(capsys, *SHORT, *arguments)
    assert expected in said
    assert len(said.strip().splitlines()) == 1
