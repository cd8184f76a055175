"""Training epochs per minute, compared with a dense implementation of the same recipe in the same run.

An epoch is that of the paper's recipe, the defaults of `ef.DAgger`: a flight of 200 steps of 100 agents, and 200
updates of 20 tuples. "dense" is a straightforward implementation, written for this benchmark, of the usual training of
delayed aggregation:

    state    N x N x 6 pairwise features in NumPy, masked by the N x N adjacency matrix and summed
    buffer   a Python object per step: K delayed values (1, K, 6, N), and K products of the normalized adjacency
             matrices, the delayed graph shift operators (1, K, N, N), as float tensors
    batch    a list of such objects and torch.cat
    network  operators times values, then Conv2d 6 -> 32 -> 32 -> 2 with tanh: the same function as our tdagnn
    update   torch's Adam, not fused

Its features, expert and network are checked against ours before they are timed. Both do the same work: the expert
flies half of the steps, as in three quarters of the recipe's 400 epochs, the student is evaluated in the others only,
and neither validates. Every training has one thread.

The recipe's replay buffer has 10,000 tuples. Dense tuples would take 1.3 GB, so the dense buffer has `BUFFER_SIZE`. If
anything this favours the dense implementation: its batches come from less memory.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing.synchronize import Barrier
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import equiflock as ef
from equiflock._runtime.threads import use_one_thread
from equiflock.controllers.classical.pair_law import DEFAULT_CLAMP as CLAMP
from equiflock.controllers.networks.architecture import describe_tdagnn
from equiflock.controllers.networks.models import TDAGNN
from equiflock.evaluation.benchmark import measure_best_time
from equiflock.learning.dagger import Trainer
from equiflock.learning.recipe import DAgger
from equiflock.protocols import LocalController, PrivilegedController
from equiflock.simulation.simulate import count_steps

Array = NDArray[Any]

BUFFER_SIZE = 1_000
"""Tuples in the dense buffer: 127 MB."""
OUR_CONTROLLERS = "tdagnn", "etdagnn"
DENSE = "dense tdagnn"
ROUNDS = 4
"""Number of rounds; the best one counts."""
ROUND_SECONDS = 3.0
"""Seconds of training in a round, at least one epoch."""


class TrainerProtocol(Protocol):
    """Interface of both trainers: an epoch, and its two halves."""

    recipe: DAgger

    def collect(self) -> object: ...

    def update(self) -> float: ...

    def run_epoch(self) -> object: ...


@dataclass
class DelayedState:
    """Input of the dense network at one step."""

    values: Tensor
    """(1, K, 6, N): the one-hop sums of this step, the previous step, .."""
    operators: Tensor
    """(1, K, N, N): I, A_t, A_t A_(t-1), .., where every row of A_t sums to 1."""


@dataclass
class Sample:
    """One tuple of the replay buffer."""

    state: DelayedState
    target: Tensor
    """(1, N, 2)"""


class DenseNetwork(nn.Module):
    """TDAGNN over delayed values and operators."""

    def __init__(self, hops: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(6, 32, (hops, 1))
        self.second = nn.Conv2d(32, 32, 1)
        self.third = nn.Conv2d(32, 2, 1)

    def forward(self, values: Tensor, operators: Tensor) -> Tensor:
        """Return accelerations (batch, N, 2)."""
        x = torch.matmul(values, operators.transpose(2, 3))  # (batch, K, 6, N): observations over k hops
        x = torch.tanh(self.first(x.transpose(1, 2)))
        x = self.third(torch.tanh(self.second(x)))
        accelerations: Tensor = x.squeeze(2).transpose(1, 2)
        return accelerations


def compute_pairwise(positions: Array, velocities: Array, radius: float) -> tuple[Array, Array]:
    """Return the features [v, r/|r|^4, r/|r|^2] of all pairs (N, N, 6), 0 beyond R, and the adjacency matrix (N, N)."""
    offsets = positions[:, None] - positions[None]
    relative_velocities = velocities[:, None] - velocities[None]
    squares = np.square(offsets).sum(axis=-1)
    np.fill_diagonal(squares, np.inf)
    adjacency = (squares <= radius * radius).astype(np.float64)
    squares = squares[..., None]
    features = np.concatenate([relative_velocities, offsets / squares**2, offsets / squares], axis=-1)
    return features * adjacency[..., None], adjacency


def compute_expert(velocities: Array, features: Array, clamp: float) -> Array:
    """Return Tanner's accelerations (N, 2): velocities relative to all agents, potential of the neighbours."""
    alignment = (velocities[:, None] - velocities[None]).sum(axis=1)
    sums = features.sum(axis=1)
    accelerations = -alignment - 2.0 * (sums[:, 4:] - sums[:, 2:4])
    norms = np.linalg.norm(accelerations, axis=1, keepdims=True)
    clamped: Array = accelerations * (clamp / np.maximum(norms, clamp))
    return clamped


def advance_state(features: Array, adjacency: Array, hops: int, before: DelayedState | None) -> DelayedState:
    """Return the delayed state of a step from its dense arrays and the previous state."""
    N = len(adjacency)
    now = torch.tensor(features.sum(axis=1).T, dtype=torch.float32)
    network = torch.tensor(adjacency / np.maximum(adjacency.sum(axis=1, keepdims=True), 1.0), dtype=torch.float32)
    values, operators = torch.zeros(1, hops, 6, N), torch.zeros(1, hops, N, N)
    values[0, 0], operators[0, 0] = now, torch.eye(N)
    if before is not None:
        values[0, 1:] = before.values[0, :-1]
        operators[0, 1:] = torch.matmul(network, before.operators[0, :-1])
    return DelayedState(values, operators)


class DenseTrainer:
    """DAgger with dense arrays and the methods of `Trainer`."""

    def __init__(self, recipe: DAgger) -> None:
        self.recipe = recipe
        self.network = DenseNetwork(recipe.hops)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.999))
        self.starts = ef.random_disk(recipe.flocks, recipe.min_agents, recipe.seed, split="train")
        self.rng = np.random.default_rng(recipe.seed)
        self.buffer: list[Sample] = []
        self.added = 0

    def run_epoch(self) -> None:
        self.collect()
        self.update()

    def collect(self) -> None:
        recipe = self.recipe
        start = self.starts[int(self.rng.integers(recipe.flocks))]
        positions, velocities = start.positions[0].copy(), start.velocities[0].copy()
        state, time_step = None, recipe.middle_time_step
        for _ in range(count_steps(recipe.duration, recipe.middle_time_step)):
            features, adjacency = compute_pairwise(positions, velocities, recipe.comm_radius)
            state = advance_state(features, adjacency, recipe.hops, state)
            accelerations = target = compute_expert(velocities, features, CLAMP)
            if self.rng.random() >= recipe.compute_expert_share(0):
                with torch.no_grad():
                    accelerations = self.network(state.values, state.operators)[0].numpy().astype(np.float64)
            self.store(Sample(state, torch.tensor(target[None], dtype=torch.float32)))
            positions += velocities * time_step + accelerations * (time_step**2 / 2)
            velocities += accelerations * time_step

    def store(self, sample: Sample) -> None:
        """Append a sample, or replace the oldest one if the buffer is full."""
        if len(self.buffer) < self.recipe.capacity:
            self.buffer.append(sample)
        else:
            self.buffer[self.added % self.recipe.capacity] = sample
        self.added += 1

    def update(self) -> float:
        recipe = self.recipe
        total = 0.0
        for _ in range(recipe.updates):
            batch = [self.buffer[index] for index in self.rng.integers(len(self.buffer), size=recipe.batch)]
            values = torch.cat([sample.state.values for sample in batch])
            operators = torch.cat([sample.state.operators for sample in batch])
            targets = torch.cat([sample.target for sample in batch])
            loss = (self.network(values, operators) - targets).square().sum(-1).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / recipe.updates


def check_equivalence(recipe: DAgger, steps: int = 5) -> None:
    """Check the dense implementation against ours: one-hop features, K hops, the expert, and the network."""
    ours = TDAGNN(describe_tdagnn(hops=recipe.hops))
    theirs = DenseNetwork(recipe.hops)
    for weights, layer in zip((theirs.first, theirs.second, theirs.third), ours.layers, strict=True):
        weights.weight.data = cast(Tensor, layer.weight).data.unsqueeze(-1)
        weights.bias.data = cast(Tensor, layer.bias).data  # type: ignore[union-attr]
    teacher = cast(PrivilegedController, ef.load("tanner", clamp=CLAMP))
    state = None
    loop = ef.flight(
        ef.random_disk(1, recipe.min_agents), cast(LocalController, ours), time_step=recipe.middle_time_step
    )
    for moment in islice(loop, steps):
        flock = moment.flock
        features, adjacency = compute_pairwise(flock.positions[0], flock.velocities[0], recipe.comm_radius)
        state = advance_state(features, adjacency, recipe.hops, state)
        aggregation = ef.observe(flock, ef.paper_senses("sum", 1), comm_radius=recipe.comm_radius)
        assert_close(features.sum(axis=1), aggregation.reshape(recipe.min_agents, 6))
        observations = torch.matmul(state.values, state.operators.transpose(2, 3))[0].permute(2, 0, 1)
        assert_close(observations.numpy(), moment.observations[0].reshape(recipe.min_agents, recipe.hops, 6))
        assert_close(compute_expert(flock.velocities[0], features, CLAMP), teacher(flock, aggregation)[0])
        with torch.no_grad():
            assert_close(theirs(state.values, state.operators)[0].numpy(), moment.accelerations[0])


def assert_close(theirs: Array, ours: Array) -> None:
    """Raise AssertionError unless relative differences are below 1e-3; ignore those far below the largest number."""
    np.testing.assert_allclose(theirs, ours, rtol=1e-3, atol=1e-5 * float(np.abs(ours).max()))


def make_trainer(name: str, seed: int) -> TrainerProtocol:
    """Return a trainer with `BUFFER_SIZE` tuples in its buffer."""
    controller = "tdagnn" if name == DENSE else name
    recipe = DAgger(controller=controller, seed=seed, flocks=10, expert_share=0.5, validate_every=1_000_000)
    trainer: TrainerProtocol = DenseTrainer(replace(recipe, capacity=BUFFER_SIZE)) if name == DENSE else Trainer(recipe)
    for _ in range(BUFFER_SIZE // count_steps(recipe.duration, recipe.middle_time_step)):
        trainer.collect()
    trainer.update()
    return trainer


def run_worker(name: str, seed: int, barrier: Barrier, results: Any) -> None:
    """Run one training in a process; put epochs per minute and cores used of each synchronized round into `results`."""
    with use_one_thread():
        trainer = make_trainer(name, seed)
        for _ in range(ROUNDS):
            barrier.wait()
            start, busy, epochs = time.perf_counter(), time.process_time(), 0
            while time.perf_counter() - start < ROUND_SECONDS:
                trainer.run_epoch()
                epochs += 1
            took = time.perf_counter() - start
            results.put((60.0 * epochs / took, (time.process_time() - busy) / took))
            barrier.wait()  # all processes finish the round


def measure_epochs_per_minute(name: str, processes: int) -> tuple[float, float]:
    """Return the rate of all trainings together in the best round, and the number of cores used in it."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(processes), context.Queue()
    workers = [context.Process(target=run_worker, args=(name, seed, barrier, results)) for seed in range(processes)]
    for worker in workers:
        worker.start()
    rounds = [np.sum([results.get(timeout=600) for _ in workers], axis=0) for _ in range(ROUNDS)]
    for worker in workers:
        worker.join()
    rate, cores = max(map(tuple, rounds))
    return float(rate), float(cores)


def main() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    print("the paper's recipe, one thread per training (ms, best of several; epochs per minute, best round)\n")
    print(
        f"{'':14}{'ms':>8}{'ms':>8}{'one training':>14}{'':>8}{'cores':>7}{f'{cores} at once':>14}{'':>8}{'cores':>7}"
    )
    print(f"{'':14}{'flight':>8}{'update':>8}" + f"{'epochs/min':>14}{'ratio':>8}{'used':>7}" * 2)
    rows = {}
    for name in (*OUR_CONTROLLERS, DENSE):
        with use_one_thread():
            trainer = make_trainer(name, seed=0)
            flight = measure_best_time(trainer.collect, repeats=5) * 1e3
            update = measure_best_time(trainer.update, repeats=5) * 1e3 / trainer.recipe.updates
        del trainer
        rows[name] = (
            f"{name:14}{flight:8.1f}{update:8.3f}",
            measure_epochs_per_minute(name, 1),
            measure_epochs_per_minute(name, cores),
        )
    for halves, *measured in rows.values():
        print(halves, end="")
        for (rate, used), (dense, _) in zip(measured, rows[DENSE][1:], strict=True):
            print(f"{rate:14.1f}{f'{rate / dense:.1f} x':>8}{used:7.2f}", end="")
        print()
    print(f"\nratios are to {DENSE!r}, also for etdagnn, which has no dense counterpart")
    print("cores used: CPU time / wall time; below the number of trainings, other programs were busy")
    print(f"the dense buffer has {BUFFER_SIZE:,} tuples instead of 10,000, which would take 1.3 GB per training")


if __name__ == "__main__":
    check_equivalence(DAgger())
    main()
