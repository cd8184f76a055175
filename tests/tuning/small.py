"""A tuning that takes a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from equiflock._runtime.executors import Executor
from equiflock.controllers.loading import make_network, save
from equiflock.tuning.tuning_recipe import Tuning
from equiflock.tuning.tuning_run import BestCandidate, TuningRun

FLOCKING = "flocking:agents=20:duration=0.3"
COURSE = "obstacles:sides=6:agents=20:duration=1"
SMALL: dict[str, Any] = {
    "tasks": f"1*{FLOCKING}+0.5*{COURSE}",
    "generations": 5,
    "population": 4,
    "flocks": 2,
    "validation_flocks": 2,
    "validate_every": 2,
}
FILES = "weights.safetensors", "generations.csv", "validation.csv", "config.json"


def small(folder: Path, network: str = "etdagnn", **options: Any) -> TuningRun:
    """Return a small tuning of an untrained network."""
    weights = save(make_network(network, seed=1), folder.parent / "start.safetensors")
    return TuningRun(folder, Tuning(**{**SMALL, **options}), weights, "start.safetensors")


def tuned(run: TuningRun, workers: int = 1, **more: Any) -> BestCandidate:
    """Run the tuning to its end, or until `should_stop` returns True."""
    with Executor(workers, here=True) as executor:
        return run.tune(executor, **more)


def results(folder: Path) -> dict[str, bytes]:
    """Return the content of every file that must be the same bit for bit."""
    paths = [*(folder / name for name in FILES), *sorted((folder / "scores").iterdir())]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
