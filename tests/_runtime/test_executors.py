"""An executor leaves no process behind, replaces dead ones, and runs jobs in processes that import the same modules."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import equiflock
import tests
from equiflock._runtime.checks import InputError
from equiflock._runtime.executors import Executor
from tests._runtime.squares import Chatty, Square, StopError, Whereabouts

pytestmark = pytest.mark.slow

CODE = """
import sys
from concurrent.futures import ProcessPoolExecutor
from equiflock._runtime.executors import get_process_context
import equiflock.flock

if __name__ == "__main__":
    with ProcessPoolExecutor(1, get_process_context()) as pool:
        found = pool.submit(eval, "__import__('equiflock.flock').flock.__file__").result()
    assert found == equiflock.flock.__file__, found
    assert "PYTHONSAFEPATH" not in __import__("os").environ
    print("fine")
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_results_of_all_rounds_come_from_the_same_processes(workers: int) -> None:
    with Executor(workers, here=True) as executor:
        rounds = [dict(executor.compute_tables([Whereabouts(number) for number in range(6)])) for _ in range(3)]
    for tables in rounds:
        assert {index: int(table.number[0]) for index, table in tables.items()} == {n: n for n in range(6)}
    processes = {int(table.process[0]) for tables in rounds for table in tables.values()}
    assert len(processes) <= workers
    assert (processes == {os.getpid()}) == (workers == 1)


def test_a_process_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Executor(2) as executor:
        jobs = [Whereabouts(0), Whereabouts(1, tmp_path / "death"), Whereabouts(2)]
        tables = list(executor.compute_tables(jobs))
        assert sorted((index, int(table.number[0])) for index, table in tables) == [(0, 0), (1, 1), (2, 2)]
        # Each pool takes seconds to start.
        monkeypatch.setattr("equiflock._runtime.executors.MAX_POOLS", 1)
        with pytest.raises(InputError, match="processes died 1 times"):
            list(executor.compute_tables([Whereabouts(0, tmp_path / "death", deadly=True)]))
    assert multiprocessing.active_children() == []


def test_the_error_of_a_job_is_raised_and_no_process_is_left(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no square today"), Executor(2) as executor:
        list(executor.compute_tables([Square(1, tmp_path), Square(2, tmp_path, fails=True)]))
    assert multiprocessing.active_children() == []
    with pytest.raises(InputError, match="workers must be"):
        Executor(0)


@pytest.mark.parametrize("workers", [1, 2])
def test_jobs_send_messages_and_learn_of_a_request_to_stop(workers: int) -> None:
    messages: list[tuple[int, str]] = []
    jobs = [Chatty(number) for number in range(3)]
    with Executor(workers, here=True, on_message=messages.append, should_stop=lambda: bool(messages)) as executor:
        outcomes = dict(executor.run(jobs))
    assert {index: type(outcome) for index, outcome in outcomes.items()} == dict.fromkeys(range(3), StopError)
    assert sorted(messages) == [(number, text) for number in range(3) for text in ("begun", "stopped")]


def test_modules_in_the_users_directory_are_not_imported_in_their_place(tmp_path: Path) -> None:
    (tmp_path / "script").mkdir()
    script = tmp_path / "script" / "main.py"
    script.write_text(CODE)
    here = tmp_path / "here"
    (here / "equiflock").mkdir(parents=True)
    for name in ("equiflock/__init__.py", "random.py"):
        (here / name).write_text("raise AssertionError('imported from the current directory')")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run([sys.executable, script], cwd=here, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "fine", done.stderr
    assert "AssertionError" not in done.stderr


def start_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python process that can import this package and its tests."""
    folders = os.pathsep.join(str(Path(module.__file__ or "").parents[1]) for module in (equiflock, tests))
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": folders},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


STUBBORN_WORKER = """
import sys
from pathlib import Path
from equiflock._runtime.executors import Executor
from tests._runtime.squares import Stubborn

if __name__ == "__main__":
    with Executor(1) as executor:
        list(executor.run([Stubborn(Path(sys.argv[1]))]))
"""
STUBBORN_IMPORT = """
import sys, time
from equiflock._runtime.executors import get_process_context

sys.path.insert(0, sys.argv[2])
sys.modules["torch"] = None  # the fork server imports it too, from the directory above
get_process_context()
time.sleep(3600)
"""


FIRST_WORKER = """
from equiflock._runtime.executors import Executor
from tests._runtime.squares import SignalMask

if __name__ == "__main__":
    with Executor(1) as executor:
        print(dict(executor.compute_tables([SignalMask(0)]))[0].blocked[0])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal masks")
def test_ctrl_c_is_blocked_in_the_first_worker_before_it_can_ignore_it() -> None:
    """In a new process, in which the first worker also starts the resource tracker, which unblocks Ctrl-C."""
    done = start_python(FIRST_WORKER)
    assert done.communicate() == ("True\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, processes that hold the GIL end when they release it")
@pytest.mark.parametrize("code", [STUBBORN_WORKER, STUBBORN_IMPORT], ids=["worker", "fork server"])
def test_a_process_that_holds_the_gil_ends_with_its_killed_parent(code: str, tmp_path: Path) -> None:
    path = tmp_path / "process.txt"
    (tmp_path / "torch.py").write_text(
        "from pathlib import Path\nfrom tests._runtime.squares import write_process_and_hold_gil\n"
        f"write_process_and_hold_gil(Path({str(path)!r}))"
    )
    parent = start_python(code, str(path), str(tmp_path))
    while not path.exists():
        assert parent.poll() is None
        time.sleep(0.02)
    child = psutil.Process(int(path.read_text()))
    parent.kill()
    try:
        child.wait(timeout=30)
    finally:
        if child.is_running():
            child.kill()
        parent.communicate()
