"""Only training needs torch: every other command runs on a machine that does not have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NOT_INSTALLED = """
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in ("tensorboard", "torch") else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""
RUN = "from equiflock.cli import main\n"
FEW = """
from equiflock.evaluation import robot_fit
robot_fit.CANDIDATES, robot_fit.FINALISTS, robot_fit.BISECTIONS, robot_fit.LONG_FACTOR = 2, 1, 1, 2
"""
SMALL = "--flocks 1 --agents 12 --duration 0.03"
WORK_HERE = """
from equiflock._runtime.executors import Executor
Executor.is_here = property(lambda self: self.workers == 1 and self.scheduler is None)
"""
WITH_WORKERS = [f"evaluate etdagnn:0 tanner {SMALL} --out evaluation --workers 1"]
"""Commands with a process for their jobs; one is enough."""
HERE = [
    f"simulate --controller starling {SMALL} --save run.zarr",
    "animate run.zarr --out film.gif --dots-per-inch 30",
    "export starling --out agent.h",
    "fit --comm-radius 4 --rate 20 --max-acceleration 4 --max-speed 2 --agents 4 --controller reynolds --flocks 1",
    "export tdagnn --out agent.npz",
    "sweep --controller etdagnn --agents 12 --flocks 1 --duration 0.03 --out sweep --workers 1",
    "tune etdagnn --tasks 1*flocking:flocks=1:agents=12:duration=0.03 --measures 1*variance --generations 1 "
    "--population 4 --validation-flocks 1 --measurement-interval 0.01 --out tuned --workers 1",
    "deploy --agents 1 --min-degree 0 --duration 0.03 --agent package",
    "bench --no-training --agents 12 --repeats 1",
]
NEED_TORCH = {
    "train --out training --epochs 1": "train needs torch: pip install 'equiflock[train]'",
    "export starling --out agent.onnx": "ONNX needs torch: pip install 'equiflock[train]'",
    "bench": "training (leave it out with --no-training) needs torch: pip install 'equiflock[train]'",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for Python's path, which hides torch from every process."""
    path = tmp_path / "path"
    path.mkdir()
    (path / "sitecustomize.py").write_text(NOT_INSTALLED)
    return path


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "200"}
    command = [sys.executable, "-c", RUN + code]
    return subprocess.run(command, cwd=folder.parent, env=environment, capture_output=True, text=True)


def test_commands_that_do_not_train_run_without_torch(folder: Path) -> None:
    rerun = """
from pathlib import Path
from equiflock.viewer.job_reruns import rerun_flight
rerun_flight(next(Path("evaluation/jobs").glob("etdagnn*.csv")))
"""
    loops = [
        f"for words in {some!r}:\n    print('::', words)\n    main(words.split())" for some in (WITH_WORKERS, HERE)
    ]
    done = run(f"{FEW}{loops[0]}\n{WORK_HERE}{loops[1]}\n{rerun}", folder)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    assert done.stdout.count("::") == len(WITH_WORKERS) + len(HERE)


def test_what_needs_torch_says_so_in_one_line_and_exits_with_2(folder: Path) -> None:
    code = f"""
import sys
for words in {list(NEED_TORCH)!r}:
    try:
        main(words.split())
    except SystemExit as end:
        assert end.code == 2
    else:
        raise AssertionError(words)
import equiflock as ef
for use in (lambda: ef.train, lambda: ef.theory, lambda: ef.load_module("etdagnn")):
    try:
        use()
    except ef.InputError as error:
        print(error, file=sys.stderr)
"""
    done = run(code, folder)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stderr.splitlines()
    assert len(lines) == len(NEED_TORCH) + 3
    for line, reason in zip(lines, NEED_TORCH.values(), strict=False):
        assert line.startswith("equiflock: ") and line.endswith(reason)
    assert all("needs torch: pip install 'equiflock[train]'" in line for line in lines)
    assert list(folder.parent.iterdir()) == [folder]
