"""Exported graphs, run by onnxruntime, do what the package does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import equiflock as ef
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.deployment.export.program import read_program

CASES = [
    ("tanner-dynamic", 3),
    ("tanner-dynamic:clamp_by=entry", 2),
    ("tdagnn", 2),
    ("etdagnn", 3),
    ("starling", 3),
]
"""Every form of graph: laws, which differ in one matrix, by their clamp; networks; a gain schedule."""


def answer(path: Path, observations: Any, period: float | None = None) -> Any:
    inputs = {"observations": observations}
    if period is not None:
        inputs["period"] = np.array(period, np.float32)
    (found,) = onnxruntime.InferenceSession(path).run(["accelerations"], inputs)
    return found


def observations_of(controller: Any, B: int, N: int, D: int = 2) -> Any:
    shape = B, N, controller.senses.hops, controller.senses.width, D
    chance = np.random.default_rng(1)
    return (chance.normal(size=shape) * 10.0 ** chance.uniform(-1.0, 2.0, (B, N, 1, 1, 1))).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "D"), CASES)
def test_a_graph_takes_any_number_of_flocks_and_agents(name: str, D: int, tmp_path: Path) -> None:
    controller: Any = ef.load(name)
    path, readme = ef.export(controller, tmp_path / "graph.onnx", dimensions=D)
    assert "onnx" in readme.read_text()
    program = read_program(controller, D)
    schedule = program.gain_schedule
    period = None if schedule is None else schedule.period  # at which the gain is 1
    for B, N in ((1, 1), (1, 10), (3, 7)):
        observations = observations_of(controller, B, N, D)
        observations[:, 1:2] = 0.0  # the first step of an agent without neighbours
        wanted = as_numpy_function(controller)(observations)
        found = answer(path, observations, period)
        assert found.shape == (B, N, D)
        assert (np.abs(found - wanted) / program.compute_magnitude(observations)).max() < 1e-5


@pytest.mark.slow
def test_a_graph_for_space_and_in_units_of_robots(tmp_path: Path) -> None:
    controller: Any = ef.load("etdagnn", comm_radius=5.0, time_scale=4.0)
    path, _ = ef.export(controller, tmp_path / "graph.onnx", dimensions=3)
    observations = observations_of(controller, 2, 4, 3)
    np.testing.assert_allclose(answer(path, observations), as_numpy_function(controller)(observations), atol=1e-4)


class Own(nn.Module):
    """A network of custom layers."""

    def __init__(self) -> None:
        super().__init__()
        self.senses = ef.paper_senses(hops=2)
        self.layers = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.layers(observations.flatten(2))
        return made


class Looping(Own):
    """What it does depends on numbers, for which a graph has no form."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        steps = int(observations.sum().item())
        return observations[:, :, 0, 0] * len(range(steps))


@pytest.mark.slow
def test_a_torch_module_with_custom_layers_can_be_exported_to_onnx_only(tmp_path: Path) -> None:
    controller: Any = Own()
    path, readme = ef.export(controller, tmp_path / "graph.onnx")
    for part in ("`Own` of one agent", "| 28-51 | 6 x float32 | hops 1 .. 1", "A message has 52 bytes"):
        assert part in readme.read_text()
    assert "operations" not in readme.read_text()
    observations = observations_of(controller, 2, 5)
    np.testing.assert_allclose(
        answer(path, observations), as_numpy_function(controller)(observations), rtol=1e-4, atol=1e-3
    )
    for ending in (".h", ".npz"):
        with pytest.raises(ef.InputError, match=r"Own is a torch module with custom layers: .* ONNX \(\.onnx\) only"):
            ef.export(controller, tmp_path / f"own{ending}")


@pytest.mark.slow
def test_a_torch_module_that_cannot_be_converted_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ef.InputError, match="Looping is a torch module that cannot be converted to ONNX: ") as caught:
        ef.export(Looping(), tmp_path / "graph.onnx")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "graph.onnx").exists()


def test_without_the_extra_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "torch" or None)
    with pytest.raises(ef.InputError, match=r"ONNX needs onnx and onnxscript: pip install 'equiflock\[deploy\]'"):
        ef.export("etdagnn", tmp_path / "graph.onnx")
