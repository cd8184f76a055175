"""The recipe of a training: every number of it, and for DAgger the command that repeats it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from equiflock.simulation import count_steps
from equiflock.types import InputError, check_count, check_positive

EXPERT = "tanner"
"""Whom pupils learn from."""


@dataclass(frozen=True)
class DAgger:
    """DAgger's numbers. The defaults are the paper's (section 5, "Training")."""

    controller: str = "etdagnn"
    """The network to train: tdagnn, tdagnn-tf, tdagnn-tf-mean, etdagnn, or a registered torch module of your own."""
    epochs: int = 400
    """How many flights, each with its updates."""
    seed: int = 0
    """Of weights, flights and batches."""
    agents: int = 100
    """N."""
    hops: int = 3
    """K, of the paper's networks; one of your own brings its own."""
    flocks: int = 400
    """The size of the set of initial conditions; an epoch draws one of them with replacement."""
    time_step: float = 0.01
    """Seconds per step."""
    duration: float = 2.0
    """Seconds per flight."""
    comm_radius: float = 1.0
    """R."""
    clamp: float = 100.0
    """C, the largest norm of the expert's acceleration."""
    expert_share: float = 0.993
    """beta_0, the probability of the expert's acceleration in the first epoch, and its decay per epoch."""
    least_expert_share: float = 0.5
    """What that probability never falls below."""
    capacity: int = 10_000
    """How many tuples are kept, the newest."""
    updates: int = 200
    """Steps of Adam per epoch."""
    batch: int = 20
    """Tuples per step, drawn with replacement."""
    learning_rate: float = 5e-5
    """Of Adam, with betas 0.9 and 0.999."""
    validation_flocks: int = 50
    """How many flocks, the same for every seed, the network is judged on."""
    validate_every: int = 40
    """Epochs from one validation to the next."""
    checkpoint_every: int = 10
    """Epochs from one checkpoint to the next, for a training that is kept in a folder."""

    def __post_init__(self) -> None:
        counts = "epochs agents hops flocks capacity updates batch validation_flocks validate_every checkpoint_every"
        for name in counts.split():
            check_count(name, getattr(self, name))
        for name in ("comm_radius", "clamp", "learning_rate"):
            check_positive(name, getattr(self, name))
        check_count("seed", self.seed, least=0)
        for name in ("expert_share", "least_expert_share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"{name} must be from 0 to 1; got {getattr(self, name)!r}")
        check_count("duration / time_step", self.steps)

    @property
    def steps(self) -> int:
        """T, the steps of a flight."""
        return count_steps(self.duration, self.time_step)

    def beta(self, epoch: int) -> float:
        """beta_e = max(beta_0 beta_(e-1), least share), epochs counted from 0."""
        return float(max(self.expert_share ** (epoch + 1), self.least_expert_share))

    @property
    def command(self) -> str:
        """The command that trains by this recipe."""
        asked = [
            f" --{field.name.replace('_', '-')} {getattr(self, field.name)}"
            for field in fields(self)
            if field.name in ("controller", "seed") or getattr(self, field.name) != field.default
        ]
        return "equiflock train" + "".join(asked)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], source: object) -> DAgger:
        """The recipe that `dataclasses.asdict` made these settings of; `source` is named if they are not that."""
        names = {field.name for field in fields(cls)}
        if set(settings) != names:
            wrong = sorted(set(settings) ^ names)
            raise InputError(f"the recipe in {source} has missing or unknown fields: {', '.join(wrong)}")
        for field in fields(cls):
            value = settings[field.name]
            kinds = (int, float) if isinstance(field.default, float) else type(field.default)
            if not isinstance(value, kinds) or isinstance(value, bool):
                raise InputError(f"{field.name} in {source} must be like {field.default!r}; got {value!r}")
        return cls(**settings)


@dataclass(frozen=True)
class Cloning:
    """Behaviour cloning's numbers. The defaults are the paper's where it gives one (M), and DAgger's for the rest."""

    controller: str = "etdagnn"
    """The network to train: tdagnn, tdagnn-tf, tdagnn-tf-mean, etdagnn, or a registered torch module of your own."""
    seed: int = 0
    """Of weights and batches."""
    epochs: int = 50
    """How often the whole training set is gone through."""
    batch: int = 20
    """Tuples per step of Adam."""
    learning_rate: float = 5e-5
    """Of Adam, with betas 0.9 and 0.999."""
    loss_scale: float = 2.0
    """M, where the loss of a tuple ends to grow."""
    warm_up: int = 0
    """How many steps of Adam at the start take the plain loss, (b^2 + MSE) / M without min(1, .)."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch"):
            check_count(name, getattr(self, name))
        for name in ("seed", "warm_up"):
            check_count(name, getattr(self, name), least=0)
        for name in ("learning_rate", "loss_scale"):
            check_positive(name, getattr(self, name))
