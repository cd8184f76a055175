"""Training of a chain of our layers by compiled kernels: forth, back and Adam for one batch after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from equiflock.controllers.networks.chain import Chain, fold, unfold
from equiflock.controllers.networks.compiled import program_of
from equiflock.controllers.networks.gradients import add_errors, add_gradient, batch_memory, pack, turn
from equiflock.controllers.networks.lanes import PARTS, finish_sums
from equiflock.learning.adam import Adam, adam_step
from equiflock.learning.tuples import Errors, Gate, Tuples
from equiflock.runtime.jit import Array, kernel

STEPS_PER_CALL = 100
"""Steps of Adam between which Ctrl-C takes effect."""


class CompiledLearner:
    """Trains the layers of a chain; see `equiflock.learning.learner.Learner`."""

    def __init__(self, chain: Chain, learning_rate: float) -> None:
        self.chain = chain
        self.adam = Adam(chain.size, learning_rate)
        folded = chain.folded_size
        # Folded weights, the same transposed, their gradient with its partial sums, and that of the weights themselves.
        self._folded, self._turned, self._slopes = (np.zeros(folded, np.float32) for _ in range(3))
        self._sums = np.zeros(folded * PARTS, np.float32)
        self._gradient = np.zeros(chain.size, np.float32)
        self._memory: dict[int, Any] = {}

    def use_rate(self, learning_rate: float) -> None:
        """Take the next steps with this learning rate."""
        self.adam.learning_rate = learning_rate

    def shapes(self, agents: int, dimensions: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Rows of agents, (rows, N) and (D, N)."""
        rows = self.chain.width * (dimensions if self.chain.of_vectors else 1)
        return (rows, agents), (dimensions, agents)

    def pack(
        self,
        observations: Float32[np.ndarray, "T N K C D"],
        targets: Float32[np.ndarray, "T N D"],
        tuples: Tuples,
    ) -> None:
        """Transpose tuples, and apply the activation before the first layer once and for all."""
        T, N, *_, D = observations.shape
        components = D if self.chain.of_vectors else 1
        pack(np.ascontiguousarray(observations).reshape(T, N, -1), self.chain.before, components, tuples[0])
        tuples[1][:] = targets.transpose(0, 2, 1)

    def descend(
        self,
        tuples: Tuples,
        places: Int64[np.ndarray, "U b"],
        gate: Gate | None = None,
    ) -> Float64[np.ndarray, "U b"]:
        """Take a step for every row of places; the errors of a row that a gate is given cost a pass of their own."""
        N, batch = tuples[1].shape[2], places.shape[1]
        weights, errors = self.chain.weights(), np.zeros(places.shape)
        shares = np.full(batch, 1.0 / (batch * N), np.float32)
        at_once = STEPS_PER_CALL if gate is None else 1
        for first in range(0, len(places), at_once):
            rows = slice(first, first + at_once)
            if gate is not None:
                fold(self.chain.table, weights, self._folded)
                shares = (gate(self._errors(tuples, places[first])) / N).astype(np.float32)
            self._descend(tuples, places[rows], shares, weights, errors[rows])
        self.chain.store(weights)
        per_agent: Float64[np.ndarray, "U b"] = errors / N
        return per_agent

    def errors(self, tuples: Tuples) -> Errors:
        """The errors of these tuples."""
        fold(self.chain.table, self.chain.weights(), self._folded)
        return self._errors(tuples, np.arange(len(tuples[0])))

    def state(self) -> dict[str, Tensor]:
        """Adam's moments, in the order of the chain's weights, and the number of its steps."""
        adam = self.adam
        return {
            "mean": torch.from_numpy(adam.mean.copy()),
            "mean_square": torch.from_numpy(adam.mean_square.copy()),
            "steps": torch.tensor(adam.steps),
        }

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Go on from such a state."""
        self.adam.mean[:] = state["mean"].numpy()
        self.adam.mean_square[:] = state["mean_square"].numpy()
        self.adam.steps = int(state["steps"])

    def _errors(self, tuples: Tuples, places: Array) -> Float64[np.ndarray, " b"]:
        """The errors of the tuples at these places, with the folded weights as they are."""
        errors = np.zeros(len(places))
        add_errors(tuples, places, program_of(self.chain, self._folded), self._memory_for(tuples), errors)
        per_agent: Float64[np.ndarray, " b"] = errors / tuples[1].shape[2]
        return per_agent

    def _descend(self, tuples: Any, places: Array, shares: Array, weights: Array, errors: Array) -> None:
        adam, memory = self.adam, self._memory_for(tuples)
        work = program_of(self.chain, self._folded), memory, self._turned, self._sums, self._slopes, self._gradient
        moments = adam.mean, adam.mean_square, adam.steps, adam.learning_rate
        _descend(tuples, places, shares, weights, errors, work, moments)
        adam.steps += len(places)

    def _memory_for(self, tuples: Tuples) -> Any:
        """Memory for blocks of agents, kept for each number of dimensions."""
        D = tuples[1].shape[1]
        if D not in self._memory:
            self._memory[D] = batch_memory(self.chain.table, D if self.chain.of_vectors else 1, D)
        return self._memory[D]


@kernel
def _descend(tuples: Any, places: Array, shares: Array, weights: Array, errors: Array, work: Any, moments: Any) -> None:
    """One step of Adam for every row of places; errors (U, b) get the sums over agents of |error|^2."""
    program, memory, turned, sums, slopes, gradient = work
    mean, mean_square, steps, learning_rate = moments
    table, folded, _, _ = program
    for u in range(len(places)):
        # The gradient of the folded weights over the batch, from it that of the weights, and Adam's step.
        fold(table, weights, folded)
        turn(table, folded, turned)
        sums[:] = np.float32(0)
        add_gradient(tuples, places[u], shares, program, memory, errors[u], turned, sums)
        finish_sums(sums, slopes)
        unfold(table, weights, folded, slopes, gradient)
        adam_step(weights, gradient, mean, mean_square, steps + u + 1, learning_rate)
