"""What changes a network's weights: steps of Adam on batches of tuples, by torch or by compiled kernels.

A tuple is what the agents of one flock observed, (N, K, C, D), and the accelerations that they should have answered,
(N, D). Its error is the mean over agents of |a_expert - a_pupil|^2. A step follows the gradient of a weighted sum of
the errors of a batch: their mean, or what a gate makes of them.
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
    """Trains one network, whose weights are those of the torch module after every call."""

    def set_learning_rate(self, learning_rate: float) -> None:
        """Take the next steps with this learning rate."""
        ...

    def get_tuple_shapes(self, agents: int, dimensions: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shapes of one tuple's packed observations and targets."""
        ...

    def pack(
        self, observations: Float32[np.ndarray, "T N K C D"], targets: Float32[np.ndarray, "T N D"], tuples: Tuples
    ) -> None:
        """Write tuples in the form in which this learner reads them."""
        ...

    def descend(
        self, tuples: Tuples, batch_indices: Int64[np.ndarray, "U b"], loss_weighting: LossWeighting | None = None
    ) -> Errors:
        """Take U steps of Adam, each on the b tuples at its places; returns their errors (U, b) before each step."""
        ...

    def errors(self, tuples: Tuples) -> Errors:
        """The errors of these tuples, (T,), with the present weights."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """The state of Adam by names; the weights are in the module."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from such a state; KeyError, ValueError or RuntimeError if it does not fit."""
        ...


def make_learner(network: nn.Module, learning_rate: float) -> Learner:
    """Compiled kernels for a network that is a chain of our layers, torch for any other module."""
    chain = find_trainable_chain(network)
    return TorchLearner(network, learning_rate) if chain is None else CompiledLearner(chain, learning_rate)


class TorchLearner:
    """Trains any torch module by torch's own gradients and Adam."""

    def __init__(self, network: nn.Module, learning_rate: float) -> None:
        self.network = network
        self.senses: Senses = cast(LocalController, network).senses
        self.optimizer = torch.optim.Adam(network.parameters(), lr=learning_rate, betas=(0.9, 0.999), fused=True)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Take the next steps with this learning rate."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate

    def get_tuple_shapes(self, agents: int, dimensions: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Tuples are kept as they come, (N, K, C, D) and (N, D)."""
        return (agents, self.senses.hops, self.senses.width, dimensions), (agents, dimensions)

    def pack(
        self, observations: Float32[np.ndarray, "T N K C D"], targets: Float32[np.ndarray, "T N D"], tuples: Tuples
    ) -> None:
        """Copy tuples."""
        tuples[0][:], tuples[1][:] = observations, targets

    def descend(
        self, tuples: Tuples, batch_indices: Int64[np.ndarray, "U b"], loss_weighting: LossWeighting | None = None
    ) -> Errors:
        """Take a step for every row of places; the module is in the mode that the caller chose, train or eval."""
        found = []
        observations, targets = map(torch.from_numpy, tuples)
        for row in torch.from_numpy(batch_indices):
            errors = self._compute_errors(observations.index_select(0, row), targets.index_select(0, row))
            shares = (
                None if loss_weighting is None else torch.from_numpy(loss_weighting(errors.detach().double().numpy()))
            )
            loss = errors.mean() if shares is None else (errors * shares.float()).sum()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            found.append(errors.detach())
        # Fetched once, so that torch is not asked for numbers after every step.
        return torch.stack(found).double().numpy() if found else np.empty(batch_indices.shape)

    def errors(self, tuples: Tuples) -> Errors:
        """The errors of these tuples, (T,)."""
        with torch.inference_mode():
            errors: Errors = (
                self._compute_errors(torch.from_numpy(tuples[0]), torch.from_numpy(tuples[1])).double().numpy()
            )
        return errors

    def _compute_errors(self, observations: Tensor, targets: Tensor) -> Tensor:
        """The mean over agents of |a_expert - a_pupil|^2, (b,)."""
        differences: Tensor = self.network(observations) - targets
        return differences.square().sum(-1).mean(-1)

    def state_dict(self) -> dict[str, Tensor]:
        """Adam's moments and step counts, by the index of the weight that they belong to."""
        moments = self.optimizer.state_dict()["state"]
        return {
            f"{place}.{name}": tensor for place, state_dict in moments.items() for name, tensor in state_dict.items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Go on from such a state."""
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in state.items():
            place, key = name.split(".")
            moments.setdefault(int(place), {})[key] = tensor
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
