"""Training of a chain of our layers by compiled kernels: forth, back and Adam for one batch after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from equiflock.controllers.networks.chain import Chain, fold, unfold
from equiflock.controllers.networks.compiled import make_chain_args
from equiflock.controllers.networks.gradients import (
    add_gradient,
    add_squared_errors,
    make_batch_buffers,
    pack,
    transpose,
)
from equiflock.controllers.networks.lane_kernels import PARTIAL_SUMS, finish_sums
from equiflock.learning.adam import Adam, adam_step
from equiflock.learning.learner_types import Errors, LossWeighting, Tuples
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
        self._folded, self._transposed, self._folded_gradient = (np.zeros(folded, np.float32) for _ in range(3))
        self._partial_sums = np.zeros(folded * PARTIAL_SUMS, np.float32)
        self._gradient = np.zeros(chain.size, np.float32)
        self._batch_buffers: dict[int, Any] = {}

    def set_learning_rate(self, learning_rate: float) -> None:
        """Take the next steps with this learning rate."""
        self.adam.learning_rate = learning_rate

    def get_tuple_shapes(self, agents: int, dimensions: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Rows of agents, (rows, N) and (D, N)."""
        rows = self.chain.input_width * (dimensions if self.chain.acts_on_vectors else 1)
        return (rows, agents), (dimensions, agents)

    def pack(
        self,
        observations: Float32[np.ndarray, "T N K C D"],
        targets: Float32[np.ndarray, "T N D"],
        tuples: Tuples,
    ) -> None:
        """Transpose tuples, and apply the activation before the first layer once and for all."""
        T, N, *_, D = observations.shape
        components = D if self.chain.acts_on_vectors else 1
        pack(np.ascontiguousarray(observations).reshape(T, N, -1), self.chain.input_activation, components, tuples[0])
        tuples[1][:] = targets.transpose(0, 2, 1)

    def descend(
        self,
        tuples: Tuples,
        batch_indices: Int64[np.ndarray, "U b"],
        loss_weighting: LossWeighting | None = None,
    ) -> Float64[np.ndarray, "U b"]:
        """Take a step for every row of places; the errors of a row that a gate is given cost a pass of their own."""
        N, batch = tuples[1].shape[2], batch_indices.shape[1]
        weights, errors = self.chain.weights(), np.zeros(batch_indices.shape)
        tuple_weights = np.full(batch, 1.0 / (batch * N), np.float32)
        at_once = STEPS_PER_CALL if loss_weighting is None else 1
        for first in range(0, len(batch_indices), at_once):
            rows = slice(first, first + at_once)
            if loss_weighting is not None:
                fold(self.chain.table, weights, self._folded)
                tuple_weights = (loss_weighting(self._compute_errors(tuples, batch_indices[first])) / N).astype(
                    np.float32
                )
            self._run_adam_steps(tuples, batch_indices[rows], tuple_weights, weights, errors[rows])
        self.chain.store(weights)
        per_agent: Float64[np.ndarray, "U b"] = errors / N
        return per_agent

    def errors(self, tuples: Tuples) -> Errors:
        """The errors of these tuples."""
        fold(self.chain.table, self.chain.weights(), self._folded)
        return self._compute_errors(tuples, np.arange(len(tuples[0])))

    def state_dict(self) -> dict[str, Tensor]:
        """Adam's moments, in the order of the chain's weights, and the number of its steps."""
        adam = self.adam
        return {
            "mean": torch.from_numpy(adam.mean.copy()),
            "mean_square": torch.from_numpy(adam.mean_square.copy()),
            "steps": torch.tensor(adam.steps),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from such a state."""
        self.adam.mean[:] = state["mean"].numpy()
        self.adam.mean_square[:] = state["mean_square"].numpy()
        self.adam.steps = int(state["steps"])

    def _compute_errors(self, tuples: Tuples, batch_indices: Array) -> Float64[np.ndarray, " b"]:
        """The errors of the tuples at these places, with the folded weights as they are."""
        errors = np.zeros(len(batch_indices))
        add_squared_errors(
            tuples, batch_indices, make_chain_args(self.chain, self._folded), self._get_batch_buffers(tuples), errors
        )
        per_agent: Float64[np.ndarray, " b"] = errors / tuples[1].shape[2]
        return per_agent

    def _run_adam_steps(
        self, tuples: Any, batch_indices: Array, tuple_weights: Array, weights: Array, errors: Array
    ) -> None:
        adam, buffers = self.adam, self._get_batch_buffers(tuples)
        work = (
            make_chain_args(self.chain, self._folded),
            buffers,
            self._transposed,
            self._partial_sums,
            self._folded_gradient,
            self._gradient,
        )
        moments = adam.mean, adam.mean_square, adam.steps, adam.learning_rate
        _run_adam_steps(tuples, batch_indices, tuple_weights, weights, errors, work, moments)
        adam.steps += len(batch_indices)

    def _get_batch_buffers(self, tuples: Tuples) -> Any:
        """Memory for blocks of agents, kept for each number of dimensions."""
        D = tuples[1].shape[1]
        if D not in self._batch_buffers:
            self._batch_buffers[D] = make_batch_buffers(self.chain.table, D if self.chain.acts_on_vectors else 1, D)
        return self._batch_buffers[D]


@kernel
def _run_adam_steps(
    tuples: Any, batch_indices: Array, tuple_weights: Array, weights: Array, errors: Array, work: Any, moments: Any
) -> None:
    """One step of Adam for every row of places; errors (U, b) get the sums over agents of |error|^2."""
    chain_args, buffers, transposed, sums, folded_gradient, gradient = work
    mean, mean_square, steps, learning_rate = moments
    table, folded, _, _ = chain_args
    for u in range(len(batch_indices)):
        # The gradient of the folded weights over the batch, from it that of the weights, and Adam's step.
        fold(table, weights, folded)
        transpose(table, folded, transposed)
        sums[:] = np.float32(0)
        add_gradient(tuples, batch_indices[u], tuple_weights, chain_args, buffers, errors[u], transposed, sums)
        finish_sums(sums, folded_gradient)
        unfold(table, weights, folded, folded_gradient, gradient)
        adam_step(weights, gradient, mean, mean_square, steps + u + 1, learning_rate)
