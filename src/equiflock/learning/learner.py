"""Learners, which update a network's weights: Adam steps on batches of tuples, by torch or by compiled kernels.

A tuple holds the observations of the agents of one flock, (N, K, C, D), and the expert's accelerations, (N, D). Its
error is the mean over agents of |a_expert - a_student|^2. A step follows the gradient of a weighted sum of the errors
of a batch: their mean, or the sum with the weights that a `LossWeighting` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor, nn

from equiflock.controllers.networks.models import find_trainable_chain
from equiflock.features import Senses
from equiflock.learning.compiled_learner import CompiledLearner
from equiflock.learning.learner_types import Errors, LossWeighting, Tuples
from equiflock.protocols import LocalController


class Learner(Protocol):
    """Trains one network; after every call, the torch module holds the current weights."""

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate of the next steps."""
        ...

    def get_tuple_shapes(self, agents: int, dimensions: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of one tuple's packed observations and targets."""
        ...

    def pack(
        self, observations: Float32[np.ndarray, "T N K C D"], targets: Float32[np.ndarray, "T N D"], tuples: Tuples
    ) -> None:
        """Write observations and targets to `tuples` in the memory layout of this learner."""
        ...

    def descend(
        self, tuples: Tuples, batch_indices: Int64[np.ndarray, "U b"], loss_weighting: LossWeighting | None = None
    ) -> Errors:
        """Take U Adam steps, each on b tuples by index; return their errors (U, b) before each step."""
        ...

    def compute_errors(self, tuples: Tuples) -> Errors:
        """Return the errors of these tuples, (T,), with the current weights."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Return Adam's state by name; the weights are in the module."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a `state_dict`; raise KeyError, ValueError or RuntimeError if it does not match."""
        ...


def make_learner(network: nn.Module, learning_rate: float) -> Learner:
    """Return a CompiledLearner if the network has a compiled form and trains all its weights, else a TorchLearner."""
    chain = find_trainable_chain(network)
    return TorchLearner(network, learning_rate) if chain is None else CompiledLearner(chain, learning_rate)


class TorchLearner:
    """Trains any torch module with torch's autograd and Adam."""

    def __init__(self, network: nn.Module, learning_rate: float) -> None:
        self.network = network
        self.senses: Senses = cast(LocalController, network).senses
        self.optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate, betas=(0.9, 0.999), fused=True)

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
        tuples[0][:], tuples[1][:] = observations, targets

    def descend(
        self, tuples: Tuples, batch_indices: Int64[np.ndarray, "U b"], loss_weighting: LossWeighting | None = None
    ) -> Errors:
        """Take one Adam step per row of indices; return the errors (U, b) before each step.

        The caller sets the module to train or eval mode.
        """
        step_errors = []
        observations, targets = map(torch.from_numpy, tuples)
        for row in torch.from_numpy(batch_indices):
            errors = self._compute_batch_errors(observations.index_select(0, row), targets.index_select(0, row))
            weights = (
                None if loss_weighting is None else torch.from_numpy(loss_weighting(errors.detach().double().numpy()))
            )
            loss = errors.mean() if weights is None else (errors * weights.float()).sum()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            step_errors.append(errors.detach())
        # Convert once at the end, which is faster than after every step.
        return torch.stack(step_errors).double().numpy() if step_errors else np.empty(batch_indices.shape)

    def compute_errors(self, tuples: Tuples) -> Errors:
        """Return the errors of these tuples, (T,), without gradients and in the current mode of the module."""
        with torch.inference_mode():
            errors: Errors = (
                self._compute_batch_errors(torch.from_numpy(tuples[0]), torch.from_numpy(tuples[1])).double().numpy()
            )
        return errors

    def _compute_batch_errors(self, observations: Tensor, targets: Tensor) -> Tensor:
        """Return the mean over agents of |a_expert - a_student|^2, (b,)."""
        differences: Tensor = self.network(observations) - targets
        return differences.square().sum(-1).mean(-1)

    def state_dict(self) -> dict[str, Tensor]:
        """Return Adam's moments and step counts, named by the index of their parameter."""
        moments = self.optimizer.state_dict()["state"]
        return {f"{index}.{name}": tensor for index, moment in moments.items() for name, tensor in moment.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore Adam's moments and step counts from a `state_dict`; the learning rate is unchanged."""
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in state.items():
            index, key = name.split(".")
            moments.setdefault(int(index), {})[key] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
