"""Times of a training epoch: one flight, and 200 updates of 20 tuples of 100 agents, on one thread.

"alone" is the same network on one prepared batch: only torch's forward, backward and fused Adam. "Conv1d" is the same
with the network built from torch's standard layers.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

import equiflock as ef
from equiflock._runtime.threads import use_one_thread
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.benchmark import measure_best_time
from equiflock.learning.dagger import Trainer


class PlainTDAGNN(nn.Module):
    """The TDAGNN family in torch's convolutions."""

    def __init__(self, second_tanh: bool) -> None:
        super().__init__()
        second = [nn.Tanh()] if second_tanh else []
        self.layers = nn.Sequential(nn.Conv1d(6, 32, 3), nn.Tanh(), nn.Conv1d(32, 32, 1), *second, nn.Conv1d(32, 2, 1))

    def forward(self, observations: Tensor) -> Tensor:
        B, N = observations.shape[:2]
        channels = observations.view(B * N, 3, 6).transpose(1, 2)
        result: Tensor = self.layers(channels).view(B, N, 2)
        return result


class PlainETDAGNN(nn.Module):
    """ETDAGNN in torch's convolutions, applied to x and y separately."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(3, 16, 3, bias=False)
        self.rest = nn.Sequential(nn.Conv1d(16, 16, 1, bias=False), nn.Conv1d(16, 1, 1, bias=False))

    def forward(self, observations: Tensor) -> Tensor:
        B, N = observations.shape[:2]
        x = observations.view(B * N, 3, 3, 2).permute(0, 3, 2, 1)  # agent, component, channel, hop
        norm = x.norm(dim=1, keepdim=True).clamp_min(1e-12)
        x = (x * torch.log1p(norm) / norm).reshape(B * N * 2, 3, 3)
        x = self.first(x).view(B * N, 2, 16, 1)
        x = x * torch.tanh(x.norm(dim=1, keepdim=True))
        result: Tensor = self.rest(x.reshape(B * N * 2, 16, 1)).view(B, N, 2)
        return result


def make_update(network: nn.Module, observations: Tensor, targets: Tensor) -> Callable[[], object]:
    """Return a function that makes one update of a network on a prepared batch."""
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-5, fused=True)

    def update() -> None:
        optimizer.zero_grad()
        (network(observations) - targets).square().sum(-1).mean().backward()
        optimizer.step()

    return update


def collect_tuples(trainer: Trainer, count: int) -> tuple[Tensor, Tensor]:
    """Return observations and targets of the first steps of a flight as tensors."""
    moments = islice(ef.flight(trainer.starts[0][0].flock, trainer.student), count)
    observations, targets = zip(*((m.observations.copy(), m.accelerations.copy()) for m in moments), strict=True)
    return torch.from_numpy(np.concatenate(observations)), torch.from_numpy(np.concatenate(targets)).float()


def main() -> None:
    print("one epoch of the paper's recipe, one thread (ms; best of several)\n")
    print(
        f"{'':16}{'flight':>8}{'update':>8}{'alone':>8}{'ratio':>7}{'Conv1d':>8}{'ratio':>7}{'epoch':>8}{'flight':>8}"
    )
    for name in PAPER_NETWORKS:
        trainer = Trainer(ef.DAgger(controller=name, flocks=10))
        recipe = trainer.recipe
        trainer.run_epoch()
        flight = measure_best_time(trainer.collect, repeats=5) * 1e3
        update = measure_best_time(trainer.update, repeats=5) * 1e3 / recipe.updates
        batch = collect_tuples(trainer, recipe.batch)
        alone = measure_best_time(make_update(trainer.network, *batch), repeats=15) * 1e3
        plain = PlainETDAGNN() if name == "etdagnn" else PlainTDAGNN(second_tanh=name == "tdagnn")
        conv = measure_best_time(make_update(plain, *batch), repeats=15) * 1e3
        epoch = flight + update * recipe.updates
        print(
            f"{name:16}{flight:8.1f}{update:8.3f}{alone:8.3f}{update / alone:7.2f}{conv:8.3f}{conv / update:6.1f}x"
            f"{epoch:8.0f}{flight / epoch:8.0%}"
        )
    before = measure_peak_memory()
    start = time.perf_counter()
    for _ in range(20):
        trainer.run_epoch()
    seconds = time.perf_counter() - start
    print(f"\npeak memory grew by {measure_peak_memory() - before:.1f} MB in 20 more epochs ({seconds:.1f} s)")


def measure_peak_memory() -> float:
    """Return the peak resident memory in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    with use_one_thread():
        main()
