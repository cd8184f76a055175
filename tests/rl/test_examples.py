"""The examples of reinforcement learning run; that of BenchMARL, which needs a separate environment, is Python."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "rl"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torchrl
def test_ppo_changes_the_weights_and_saves_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchrl", reason="the extra rl is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["ppo.py", "1"])
    runpy.run_path(str(EXAMPLES / "ppo.py"), run_name="__main__")
    observations = np.random.default_rng(0).normal(size=(1, 10, 3, 3, 2)).astype(np.float32)
    controllers: list[Any] = [ef.load("ppo.safetensors"), ef.load("etdagnn")]
    trained, before = (controller(observations) for controller in controllers)
    assert np.isfinite(trained).all() and (trained != before).any()


def test_the_task_of_benchmarl_compiles() -> None:
    path = EXAMPLES / "benchmarl_task.py"
    compile(path.read_text(), str(path), "exec")
