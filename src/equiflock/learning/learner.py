"""Learners, which update a network's weights: Adam steps on batches of tuples, by torch or by compiled kernels.

A step follows the gradient of the loss of a batch (`equiflock.learning.loss`). Both learners have the same methods, and
after every call the torch module holds the current weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias, cast

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor, nn

from equiflock._runtime.jit import Array, Index, kernel
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
from equiflock.controllers.networks.models import find_trainable_chain
from equiflock.features import Senses
from equiflock.learning.loss import Errors, LossWeighting, Tuples, compute_errors, compute_loss
from equiflock.protocols import LocalController

BETA_1, BETA_2 = 0.9, 0.999
"""Decay rates per step of Adam's mean gradient and mean squared gradient."""
EPSILON = 1e-8
"""Added to the root of the mean square."""
STEPS_PER_CALL = 100
"""Adam steps per kernel call; Ctrl-C takes effect between calls."""


class TorchLearner:
    """Trains any torch module with torch's autograd and Adam."""

    def __init__(self, network: nn.Module, learning_rate: float) -> None:
        self.network = network
        self.senses: Senses = cast(LocalController, network).senses
        self.optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate, betas=(BETA_1, BETA_2), fused=True)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the next steps."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate

    def get_tuple_shapes(self, agents: int, dimensions: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the unpacked shapes, (N, K, C, D) and (N, D)."""
        return (agents, self.senses.hops, self.senses.width, dimensions), (agents, dimensions)

    def pack(
        self, observations: Float32[np.ndarray, "T N K C D"], targets: Float32[np.ndarray, "T N D"], tuples: Tuples
    ) -> None:
        """Copy observations and targets to `tuples`."""
        tuples.observations[:], tuples.targets[:] = observations, targets

    def descend(
        self, tuples: Tuples, batch_indices: Int64[np.ndarray, "U b"], loss_weighting: LossWeighting | None = None
    ) -> Errors:
        """Take U Adam steps, each on b tuples by index; return their errors (U, b) before each step.

        The caller sets the module to train or eval mode.
        """
        step_errors = []
        observations, targets = map(torch.from_numpy, tuples)
        for row in torch.from_numpy(batch_indices):
            errors = compute_errors(self.network(observations.index_select(0, row)), targets.index_select(0, row))
            loss = compute_loss(errors, loss_weighting)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            step_errors.append(errors.detach())
        # Convert once at the end, which is faster than after every step.
        return torch.stack(step_errors).double().numpy() if step_errors else np.empty(batch_indices.shape)

    def compute_errors(self, tuples: Tuples) -> Errors:
        """Return the errors of these tuples, (T,), in the current mode of the module."""
        observations, targets = map(torch.from_numpy, tuples)
        with torch.inference_mode():
            errors: Errors = compute_errors(self.network(observations), targets).double().numpy()
        return errors

    def state_dict(self) -> dict[str, Tensor]:
        """Return Adam's moments and step counts, named by the index of their parameter."""
        moments = self.optimizer.state_dict()["state"]
        return {f"{index}.{name}": tensor for index, moment in moments.items() for name, tensor in moment.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore Adam's moments and step counts from a `state_dict`; raise an error if it does not match."""
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in state.items():
            index, key = name.split(".")
            moments.setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})


class AdamState(NamedTuple):
    """The state of Adam as kernels take it."""

    mean: Array
    """float32 (size,): running mean of the gradient."""
    mean_square: Array
    """float32 (size,): running mean of the squared gradient."""
    steps: Index
    """Number of steps taken."""
    learning_rate: float


class Adam:
    """Adam (Kingma and Ba, 2015) for weights in one flat array, with the arithmetic of `torch.optim.Adam`."""

    def __init__(self, size: int, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.mean: Float32[np.ndarray, " size"] = np.zeros(size, np.float32)
        self.mean_square: Float32[np.ndarray, " size"] = np.zeros(size, np.float32)
        self.steps = 0

    def step(self, weights: Float32[np.ndarray, " size"], gradient: Float32[np.ndarray, " size"]) -> None:
        """Update the weights in place by one step."""
        self.steps += 1
        adam_step(weights, gradient, self.mean, self.mean_square, self.steps, self.learning_rate)


@kernel
def adam_step(
    weights: Array, gradient: Array, mean: Array, mean_square: Array, steps: Index, learning_rate: float
) -> None:
    """Take step number `steps`, counted from 1: w -= rate m / (sqrt(v) + eps), for bias-corrected m and v.

    `weights`, `mean` (m) and `mean_square` (v) are updated in place.
    """
    # m and v start at zero; these factors correct the resulting bias.
    size = np.float32(learning_rate / (1.0 - BETA_1**steps))
    per_root = np.float32(1.0 / np.sqrt(1.0 - BETA_2**steps))
    old, new = np.float32(BETA_1), np.float32(1.0 - BETA_1)
    old_square, new_square = np.float32(BETA_2), np.float32(1.0 - BETA_2)
    for n in range(weights.size):
        mean[n] = old * mean[n] + new * gradient[n]
        mean_square[n] = old_square * mean_square[n] + new_square * gradient[n] * gradient[n]
        weights[n] -= size * mean[n] / (np.sqrt(mean_square[n]) * per_root + np.float32(EPSILON))


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
    """Trains a chain of layers by compiled kernels: forward pass, backward pass and Adam, batch by batch."""

    def __init__(self, chain: Chain, learning_rate: float) -> None:
        self.chain = chain
        self.adam = Adam(chain.size, learning_rate)
        self._folded = np.zeros(chain.folded_size, np.float32)
        self._buffers: dict[int, LearnerBuffers] = {}

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the next steps."""
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
                batch_errors = self._compute_batch_errors(tuples, batch_indices[first])
                tuple_weights = (loss_weighting(batch_errors) / N).astype(np.float32)
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
        """Take one Adam step per row of indices, in a single kernel call; see `_run_adam_steps`."""
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
    """Take one Adam step per row of indices, and add each tuple's sum over agents of |error|^2 to errors (U, b).

    `weights` and the arrays of `adam_state` are updated in place.
    """
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


Learner: TypeAlias = TorchLearner | CompiledLearner


def make_learner(network: nn.Module, learning_rate: float) -> Learner:
    """Return a CompiledLearner if the network has a compiled form and trains all its weights, else a TorchLearner."""
    chain = find_trainable_chain(network)
    return TorchLearner(network, learning_rate) if chain is None else CompiledLearner(chain, learning_rate)


def copy_state_dict(network: nn.Module) -> dict[str, Tensor]:
    """Return copies of a network's weights and buffers by name; entries that are not tensors are left out."""
    state = network.state_dict().items()
    # The state of a module may hold other objects, which safetensors cannot store.
    return {name: tensor.detach().clone() for name, tensor in state if isinstance(tensor, Tensor)}


class WeightAverage:
    """Exponential average of a network's weights w_1, w_2, .. over epochs, corrected for initialization bias:

        a_n = a_(n-1) + (w_n - a_(n-1)) (1 - d) / (1 - d^n),

    so a_1 = w_1, and a_n is the mean of w_1 .. w_n in which each epoch has 1 / d times the weight of the previous one.
    d is `decay`, from 0 to 1.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.tensors: dict[str, Tensor] = copy_state_dict(network)

    def add(self, network: nn.Module, epoch: int) -> None:
        """Update the average with the weights after an epoch, counted from 1; integer buffers are copied."""
        share = (1.0 - self.decay) / (1.0 - self.decay**epoch)
        with torch.no_grad():
            for name, tensor in copy_state_dict(network).items():
                if tensor.is_floating_point():
                    self.tensors[name].lerp_(tensor, share)
                else:
                    self.tensors[name].copy_(tensor)

    @contextmanager
    def swap_into(self, network: nn.Module) -> Iterator[None]:
        """Inside the block, load the averaged weights into a network; restore its own afterwards."""
        current = copy_state_dict(network)
        network.load_state_dict(self.tensors)
        try:
            yield
        finally:
            network.load_state_dict(current)

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the tensors of a checkpoint; raise ValueError if they belong to another network."""
        expected, received = (
            {name: tensor.shape for name, tensor in state.items()} for state in (self.tensors, tensors)
        )
        if expected != received:
            raise ValueError("its averaged weights belong to another network")
        for name, tensor in tensors.items():
            self.tensors[name].copy_(tensor)
