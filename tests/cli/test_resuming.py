"""Ctrl-C prints the command that resumes the run, and does not change the result."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from equiflock._runtime.executors import Executor
from tests.cli.commands import run, start, stays_alive

SWEEP = ("sweep", "--controller", "etdagnn,tanner", "--agents", "20,40,60", "--flocks", "10", "--duration", "3")
SETTINGS = (*SWEEP, "--workers", "2", "--out", "sweep")


def interrupt(*arguments: str, folder: Path, jobs: int) -> str:
    """Send SIGINT when `jobs` jobs are done and others are running; return standard error."""
    process = start(*arguments, folder=folder)
    try:
        while process.poll() is None and len(list(folder.glob("*/jobs/[!.]*.csv"))) < jobs:
            time.sleep(0.002)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    return errors


@pytest.mark.slow
def test_the_same_command_resumes_a_sweep_with_identical_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs_here: None
) -> None:
    errors = interrupt(*SETTINGS, "--force", folder=tmp_path, jobs=2)
    assert errors == f"equiflock: interrupted\nresume with: equiflock {' '.join(SETTINGS)}\n"
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("sweep/jobs/[!.]*.csv")}
    assert 2 <= len(kept) < 6
    monkeypatch.chdir(tmp_path)
    run(*SETTINGS, "--workers", "1")
    assert kept.items() <= {path: path.stat().st_mtime_ns for path in tmp_path.glob("sweep/jobs/*")}.items()
    run(*SWEEP, "--workers", "1", "--out", "undisturbed")
    for name in ("sweep.csv", "summary.csv", "ivv.png"):
        assert (tmp_path / "sweep" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", "tanner", "--workers", "2", "--out", "an evaluation"),
        ("reproduce", "--only", "leaders", "--workers", "2", "--no-films", "--out", "paper"),
    ],
    ids=lambda words: words[0],
)
def test_other_commands_with_jobs_print_how_to_resume(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: their processes are those of a sweep."""
    asked: list[int] = []

    def pressed(executor: Executor, jobs: object) -> Iterator[int]:
        asked.append(executor.workers)
        signal.raise_signal(signal.SIGINT)
        yield 0

    monkeypatch.setattr(Executor, "run", pressed)
    monkeypatch.chdir(tmp_path)
    with stays_alive(), pytest.raises(SystemExit) as caught:
        run(*words)
    assert (caught.value.code, asked) == (130, [2])
    assert capsys.readouterr().err == f"equiflock: interrupted\nresume with: {shlex.join(['equiflock', *words])}\n"
