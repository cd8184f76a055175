"""Processes of the package import what this process imported, from wherever the user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.slow
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
