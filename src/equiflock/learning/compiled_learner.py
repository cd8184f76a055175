"""Training of a chain of layers by compiled kernels: forward pass, backward pass and Adam, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from equiflock.controllers.networks.chain import Chain, fold, unfold
from equiflock.controllers.networks.compiled import ChainArgs, make_chain_args
from equiflock.controllers.networks.gradients import (
    BatchBuffers,
    TrainingTuples,
    add_gradient,
    add_squared_errors,
    make_batch_buffers,
    pack,
    transpose,
)
from equiflock.controllers.networks.lane_kernels import PARTIAL_SUMS, finish_sums
from equiflock.learning.adam import Adam, AdamState, adam_step
from equiflock.learning.learner_types import Errors, LossWeighting
from equiflock.runtime.jit import Array, kernel

STEPS_PER_CALL = 100
"""Adam steps per kernel call; Ctrl-C takes effect between calls."""


class LearnerBuffers(NamedTuple):
    """The network and the memory of its gradient, as the kernel takes them.

    Folded weights are those of layers without an activation between them, multiplied to one matrix (see `Chain`).
    """

    chain_args: ChainArgs
    buffers: BatchBuffers
    transposed: Array
    """float32 (folded_size,): the folded matrices, transposed."""
    sums: Array
    """float32 (folded_size * PARTIAL_SUMS,): partial sums of the folded gradient."""
    folded_gradient: Array
    """float32 (folded_size,): gradient of the folded weights."""
    gradient: Array
    """float32 (size,): gradient of the weights."""


class CompiledLearner:
    """Trains the layers of a chain; see `equiflock.learning.learner.Learner`."""

    def __init__(self, chain: Chain, learning_rate: float) -> None:
        self.chain = chain
        self.adam = Adam(chain.size, learning_rate)
        self._folded = np.zeros(chain.folded_size, np.float32)
        self._buffers: dict[int, LearnerBuffers] = {}

    def set_learning_rate(self, learning_rate: float) -> None:
        """Take the next steps with this learning rate."""
        self.adam.learning_rate = learning_rate

    def get_tuple_shapes(self, agents: int, dimensions: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of one packed tuple, with agents last: observations (rows, N) and targets (D, N).

        There is a row per input of the first layer or, if layers act on vectors, per component of each.
        """
        rows = self.chain.input_width * (dimensions if self.chain.acts_on_vectors else 1)
        return (rows, agents), (dimensions, agents)

    def pack(
        self,
        observations: Float32[np.ndarray, "T N K C D"],
        targets: Float32[np.ndarray, "T N D"],
        tuples: TrainingTuples,
    ) -> None:
        """Write observations and targets to `tuples`, with agents as the last axis.

        The activation before the first layer has no weights, so it is applied to the observations here.
        """
        T, N, *_, D = observations.shape
        components = D if self.chain.acts_on_vectors else 1
        rows = np.ascontiguousarray(observations).reshape(T, N, -1)
        pack(rows, self.chain.input_activation, components, tuples.observations)
        tuples.targets[:] = targets.transpose(0, 2, 1)

    def descend(
        self,
        tuples: TrainingTuples,
        batch_indices: Int64[np.ndarray, "U b"],
        loss_weighting: LossWeighting | None = None,
    ) -> Float64[np.ndarray, "U b"]:
        """Take one Adam step per row of indices, update the module, and return the errors (U, b) before each step.

        `loss_weighting` needs the errors of a row before its step, which costs another forward pass.
        """
        N, batch = tuples.targets.shape[2], batch_indices.shape[1]
        weights, errors = self.chain.weights(), np.zeros(batch_indices.shape)
        tuple_weights = np.full(batch, 1.0 / (batch * N), np.float32)
        steps_per_call = STEPS_PER_CALL if loss_weighting is None else 1
        for first in range(0, len(batch_indices), steps_per_call):
            rows = slice(first, first + steps_per_call)
            if loss_weighting is not None:
                fold(self.chain.table, weights, self._folded)
                tuple_weights = (loss_weighting(self._compute_batch_errors(tuples, batch_indices[first])) / N).astype(
                    np.float32
                )
            self._run_adam_steps(tuples, batch_indices[rows], tuple_weights, weights, errors[rows])
        self.chain.store(weights)
        per_agent: Float64[np.ndarray, "U b"] = errors / N
        return per_agent

    def compute_errors(self, tuples: TrainingTuples) -> Errors:
        """Return the errors (T,) of these tuples with the current weights."""
        fold(self.chain.table, self.chain.weights(), self._folded)
        return self._compute_batch_errors(tuples, np.arange(len(tuples.observations)))

    def state_dict(self) -> dict[str, Tensor]:
        """Return Adam's moments, in the order of the chain's weights, and its number of steps."""
        adam = self.adam
        return {
            "mean": torch.from_numpy(adam.mean.copy()),
            "mean_square": torch.from_numpy(adam.mean_square.copy()),
            "steps": torch.tensor(adam.steps),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load a state that `state_dict` returned; raise ValueError if it has another size."""
        self.adam.mean[:] = state["mean"].numpy()
        self.adam.mean_square[:] = state["mean_square"].numpy()
        self.adam.steps = int(state["steps"])

    def _compute_batch_errors(self, tuples: TrainingTuples, batch_indices: Array) -> Float64[np.ndarray, " b"]:
        """Return the errors (b,) of the tuples with these indices; the caller has folded the weights into `_folded`."""
        errors = np.zeros(len(batch_indices))
        _, D, N = tuples.targets.shape
        work = self._get_buffers(D)
        add_squared_errors(tuples, batch_indices, work.chain_args, work.buffers, errors)
        per_agent: Float64[np.ndarray, " b"] = errors / N
        return per_agent

    def _run_adam_steps(
        self, tuples: TrainingTuples, batch_indices: Array, tuple_weights: Array, weights: Array, errors: Array
    ) -> None:
        """Take one Adam step per row of indices, in a single kernel call.

        Update `weights` and Adam's state in place, and add each tuple's sum over agents of |error|^2 to `errors` (U,
        b).
        """
        adam, work = self.adam, self._get_buffers(tuples.targets.shape[1])
        adam_state = AdamState(adam.mean, adam.mean_square, adam.steps, adam.learning_rate)
        _run_adam_steps(tuples, batch_indices, tuple_weights, weights, errors, work, adam_state)
        adam.steps += len(batch_indices)

    def _get_buffers(self, D: int) -> LearnerBuffers:
        """Return the buffers for D dimensions, which are allocated in the first call and then reused."""
        if D not in self._buffers:
            chain, size = self.chain, self.chain.folded_size
            self._buffers[D] = LearnerBuffers(
                chain_args=make_chain_args(chain, self._folded),
                buffers=make_batch_buffers(chain.table, D if chain.acts_on_vectors else 1, D),
                transposed=np.zeros(size, np.float32),
                sums=np.zeros(size * PARTIAL_SUMS, np.float32),
                folded_gradient=np.zeros(size, np.float32),
                gradient=np.zeros(chain.size, np.float32),
            )
        return self._buffers[D]


@kernel
def _run_adam_steps(
    tuples: TrainingTuples,
    batch_indices: Array,
    tuple_weights: Array,
    weights: Array,
    errors: Array,
    work: LearnerBuffers,
    adam_state: AdamState,
) -> None:
    """Take one step of Adam per row of indices, and add each tuple's sum over agents of |error|^2 to errors (U, b)."""
    chain_args, buffers, transposed, sums = work.chain_args, work.buffers, work.transposed, work.sums
    folded_gradient, gradient = work.folded_gradient, work.gradient
    mean, mean_square, steps = adam_state.mean, adam_state.mean_square, adam_state.steps
    table, folded = chain_args.table, chain_args.folded
    for u in range(len(batch_indices)):
        # The gradient of the folded weights over the batch.
        fold(table, weights, folded)
        transpose(table, folded, transposed)
        sums[:] = np.float32(0)
        add_gradient(tuples, batch_indices[u], tuple_weights, chain_args, buffers, errors[u], transposed, sums)
        finish_sums(sums, folded_gradient)
        # From it the gradient of the weights, and Adam's step.
        unfold(table, weights, folded, folded_gradient, gradient)
        adam_step(weights, gradient, mean, mean_square, steps + u + 1, adam_state.learning_rate)
