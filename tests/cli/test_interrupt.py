"""Ctrl-C says how to go on, leaves nothing behind, and costs no bit of the result."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.cli.commands import command, start

SWEEP = ("sweep", "--controller", "etdagnn,tanner", "--agents", "20,40,60", "--flocks", "10", "--duration", "5")
SETTINGS = (*SWEEP, "--workers", "2", "--out", "sweep")


def interrupt(*arguments: str, folder: Path, jobs: int, whole_group: bool = True) -> str:
    """Press Ctrl-C when so many jobs are done and others are running; returns standard error."""
    process = start(*arguments, folder=folder)
    try:
        while process.poll() is None and not list(folder.glob("*/jobs")):
            time.sleep(0.02)
        time.sleep(1)  # processes are begun, and still importing
        while process.poll() is None and len(list(folder.glob("*/jobs/[!.]*.csv"))) < jobs:
            time.sleep(0.02)
        assert process.poll() is None
        if whole_group:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        else:
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    return errors


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    command(*SWEEP, "--workers", "1", "--out", "sweep", folder=folder)
    return folder / "sweep"


def test_a_sweep_goes_on_with_the_same_command_and_ends_with_the_same_bytes(tmp_path: Path, undisturbed: Path) -> None:
    errors = interrupt(*SETTINGS, "--force", folder=tmp_path, jobs=2, whole_group=True)
    assert errors == f"equiflock: interrupted\ngo on with: equiflock {' '.join(SETTINGS)}\n"
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("sweep/jobs/[!.]*.csv")}
    assert 2 <= len(kept) < 6
    command(*SETTINGS, folder=tmp_path)
    assert kept.items() <= {path: path.stat().st_mtime_ns for path in tmp_path.glob("sweep/jobs/*")}.items()
    for name in ("sweep.csv", "summary.csv", "ivv.png"):
        assert (tmp_path / "sweep" / name).read_bytes() == (undisturbed / name).read_bytes()


def test_evaluate_and_reproduce_say_how_to_go_on(tmp_path: Path) -> None:
    evaluate = ("evaluate", "tanner", "--workers", "2", "--out", "an evaluation")
    errors = interrupt(*evaluate, folder=tmp_path, jobs=1)
    again = "equiflock evaluate tanner --workers 2 --out 'an evaluation'"
    assert errors == f"equiflock: interrupted\ngo on with: {again}\n"
    reproduce = ("reproduce", "--only", "leaders", "--workers", "2", "--no-films")
    (tmp_path / "other").mkdir()
    errors = interrupt(*reproduce, "--out", "paper", folder=tmp_path / "other", jobs=1)
    again = f"equiflock {' '.join(reproduce)} --out paper"
    assert errors == f"equiflock: interrupted\ngo on with: {again}\n"
