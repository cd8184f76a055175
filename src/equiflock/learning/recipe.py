"""The settings of a training, called its recipe, and for DAgger the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args

from equiflock.learning.field_types import check_field
from equiflock.learning.schedules import Schedule, compute_rate_factor
from equiflock.learning.training_scenarios import TrainingScenario, parse_training_scenarios
from equiflock.learning.worlds import SETTINGS, Worlds, parse_setting
from equiflock.runtime.checks import InputError, check_choice, check_count, check_positive
from equiflock.scenarios import RandomDisk
from equiflock.scenarios.random_disk import RadiusRule, VelocityRule
from equiflock.simulation.simulate import count_steps

EXPERT = "tanner"
"""The expert that the paper's pupils learn from."""


DEFAULT_CLAMP = 100.0
"""The expert's clamp C in the paper's trainings, and the default of `Tanner`."""


@dataclass(frozen=True)
class DAgger:
    """The settings of DAgger. The defaults are the paper's (section 5, "Training")."""

    controller: str = "etdagnn"
    """The network to train: tdagnn, tdagnn-tf, tdagnn-tf-mean, etdagnn, or a registered torch module of your own, with
    its options such as mixer:width=8."""
    expert: str = EXPERT
    """The controller to learn from, as for `load`: tanner, tanner:clamp=50, or one of your own."""
    scenario: str = "flocking"
    """The scenario of all flights: flocking, leaders, obstacles:sides=48, or one of your own; or several with their
    shares of flights, 0.6*flocking+0.4*leaders. Numbers of its options may be ranges: leaders:leaders=1-3."""
    epochs: int = 400
    """The number of epochs: one flight and then `updates` steps of Adam each."""
    seed: int = 0
    """Seeds the initial weights, the flights and the batches."""
    agents: int | str = 100
    """N, the agents of a flock: a number, or a range such as 50-200, of which each flock draws a number. If flocks have
    not the same number of followers, as many as the fewest have are drawn at each step to learn from."""
    hops: int = 3
    """K, for networks that take it as an option, as the paper's do."""
    flocks: int = 400
    """The size of the set of initial conditions; an epoch draws one of them with replacement."""
    time_step: float = 0.01
    """Seconds per step."""
    duration: float = 2.0
    """Seconds per flight, whatever the scenario's own duration."""
    comm_radius: float = 1.0
    """R, within which agents hear each other."""
    dimensions: Literal[2, 3] = 2
    """D; for 3 a ball in which two agents hear each other as often as in the disk: the same mean degree."""
    radius_rule: RadiusRule = "quarter-power"
    """How the disk in which agents begin grows with the flock; see `RandomDisk` for this field and those after it."""
    disk_radius: float | None = None
    """The disk's radius itself, in place of a rule."""
    density: float | None = None
    """Agents per unit area for the constant-density rule; if left out 10 / pi, that of 100 agents."""
    min_separation: float = 0.1
    """R_min, the least distance between agents at the start."""
    min_degree: int = 2
    """How many others each agent hears at least, at the start."""
    connected: bool = True
    """Whether the communication graph must be connected at the start."""
    disk_scale: float | str = 1.0
    """A factor on the disk's radius, such as 0.8, or 0.6-1.1, of which each flock draws a number."""
    max_speed: float | str = 3.0
    """The bound on each entry of a random velocity; under `velocities` = "disc" on its magnitude. A number, or a range
    such as 1-3, of which each flock draws a number."""
    velocities: VelocityRule = "entries"
    """What is uniform up to max_speed: the "entries" of random velocities, or the vectors, in a "disc"."""
    expert_share: float = 0.993
    """beta_0, the probability of the expert's acceleration in the first epoch, and its decay per epoch."""
    least_expert_share: float = 0.5
    """The lower limit of that probability."""
    capacity: int = 10_000
    """How many tuples the replay keeps, the newest ones."""
    updates: int = 200
    """Steps of Adam per epoch."""
    batch: int = 20
    """Tuples per step, drawn with replacement."""
    learning_rate: float = 5e-5
    """The learning rate of Adam, with betas 0.9 and 0.999."""
    schedule: Schedule = "constant"
    """How the learning rate changes over the epochs: not at all, or it falls to its end as a "cosine" or "linear"."""
    final_learning_rate: float = 0.0
    """What the schedule ends with, as a share of learning_rate, such as 0.05."""
    warm_up: int = 0
    """For how many epochs at the start the learning rate grows, along a line from 0."""
    average: float = 0.0
    """The decay per epoch, such as 0.98, of an exponential average of the weights: validation and the weights that are
    written are the average's, flights the network's own. 0 for none."""
    validation_flocks: int = 50
    """How many flocks the network is validated on, the same ones for every seed."""
    validate_every: int = 40
    """Epochs from one validation to the next."""
    checkpoint_every: int = 10
    """Epochs from one checkpoint to the next, for a training that is kept in a folder."""
    packet_loss: float | str = 0.0
    """The share of messages that are lost, each link and step by itself: a number such as 0.2, or a range such as
    0-0.5, of which each flight draws a number. So for all options that follow; see `Radio` and `DoubleIntegrator`."""
    burst: float | str | None = None
    """The mean length of a run of lost messages on a link, in steps, such as 5 or 2-20 (each decade as likely)."""
    delay: int | str = 0
    """Steps from sending to hearing, such as 1 or 0-2 (each as likely)."""
    jitter: int | str = 0
    """Up to so many steps more, each message by itself, such as 1 or 0-3."""
    noise: float | str = 0.0
    """The standard deviation of measured relative positions, in R, and velocities, in R/s, such as 0.01 or 0-0.05."""
    quantization: int | str | None = None
    """Bits per number of a message, from 10 to 32, such as 16 or 12-32."""
    send_interval: int | str = 1
    """Agents send at every so many-th step only, at phases of their own, such as 2 or 1-4."""
    last_known: int | str = 0
    """For how many steps after its arrival a message is used if no newer one comes, such as 5 or 0-10."""
    max_acceleration: float | str | None = None
    """The most that a body can accelerate, such as 5 or 3-100 (as likely from 3 to 10 as from 30 to 100)."""
    top_speed: float | str | None = None
    """The most that a body can fly, such as 4 or 2-20 (each decade as likely): max_speed of `DoubleIntegrator`."""
    drag: float | str = 0.0
    """The rate, per second, at which a body's velocity decays by itself, such as 0.1 or 0-0.5."""
    lag: float | str = 0.0
    """The time constant of a body's actuators in seconds, such as 0.05 or 0-0.1."""
    gust: float | str = 0.0
    """The standard deviation of each entry of a random acceleration, drawn anew at every step, such as 1 or 0-3."""

    def __post_init__(self) -> None:
        # Types first: a recipe may come from a file, where nothing has checked them.
        for name in _FIELD_TYPES:
            # Radio and body know themselves what makes sense for them.
            if name in SETTINGS:
                object.__setattr__(self, name, parse_setting(name, getattr(self, name)))
                continue
            object.__setattr__(self, name, check_field(name, _FIELD_TYPES[name], getattr(self, name)))
        # Then the range of every number.
        counts = "epochs hops flocks capacity updates batch validation_flocks validate_every checkpoint_every"
        for name in counts.split():
            check_count(name, getattr(self, name))
        for name in ("comm_radius", "learning_rate"):
            check_positive(name, getattr(self, name))
        check_count("agents", self.min_agents)
        for name in ("seed", "warm_up"):
            check_count(name, getattr(self, name), least=0)
        check_choice("schedule", self.schedule, get_args(Schedule))
        if self.schedule == "constant" and self.final_learning_rate != 0.0:
            raise InputError("final_learning_rate goes with a schedule that falls: take schedule cosine or linear")
        if not 0.0 <= self.average < 1.0:
            raise InputError(f"average must be from 0 to below 1; got {self.average!r}")
        for name in ("expert_share", "least_expert_share", "final_learning_rate"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"{name} must be from 0 to 1; got {getattr(self, name)!r}")
        check_count("duration / time_step", self.steps)
        # Making the scenarios checks the fields that they share with the recipe.
        for scene in self.training_scenarios:
            scene.check(max(self.flocks, self.validation_flocks))
        self.worlds.check()

    @property
    def settings(self) -> dict[str, Any]:
        """All fields, fit for JSON, as files and folders keep them; `from_settings` reads them again."""
        return asdict(self)

    @property
    def worlds(self) -> Worlds:
        """The radios and bodies of the training's flights."""
        return Worlds({name: getattr(self, name) for name in SETTINGS})

    @property
    def min_agents(self) -> int:
        """N, or the least of its range."""
        return int(self.agents.partition("-")[0]) if isinstance(self.agents, str) else self.agents

    @property
    def steps(self) -> int:
        """T, the steps of a flight."""
        return count_steps(self.duration, self.time_step)

    def compute_expert_share(self, epoch: int) -> float:
        """beta_e = max(beta_0 beta_(e-1), least share), epochs counted from 0."""
        return float(max(self.expert_share ** (epoch + 1), self.least_expert_share))

    def compute_learning_rate(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        told = self.schedule, epoch, self.epochs, self.warm_up, self.final_learning_rate
        return self.learning_rate * compute_rate_factor(*told)

    @property
    def is_extendable(self) -> bool:
        """Whether no epoch depends on how many there are; one of a schedule that falls does."""
        return self.schedule == "constant"

    def is_validation_due(self, epoch: int) -> bool:
        """Whether the network is validated after this epoch: every `validate_every` epochs, and at the end."""
        return epoch % self.validate_every == 0 or epoch == self.epochs

    @cached_property
    def training_scenarios(self) -> tuple[TrainingScenario, ...]:
        """The scenarios of the flights, with their shares."""
        # Fields that have the name of one of RandomDisk's go to the scenario, if they are not at their default: a
        # scenario may have defaults of its own.
        ours = {field.name: field.default for field in fields(self)}
        shared = [field.name for field in fields(RandomDisk) if field.name in ours.keys() - {"flocks", "seed"}]
        return parse_training_scenarios(
            self.scenario, {name: getattr(self, name) for name in shared if getattr(self, name) != ours[name]}
        )

    @property
    def command(self) -> str:
        """The command that trains by this recipe."""
        # Options at their defaults are left out, except the two that usually tell trainings apart.
        asked = [
            _format_option(field.name, getattr(self, field.name))
            for field in fields(self)
            if field.name in ("controller", "seed") or getattr(self, field.name) != field.default
        ]
        return " ".join(["equiflock train", *asked])

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], source: object) -> DAgger:
        """Return the recipe with these settings; fields that are missing have their defaults. Errors name `source`."""
        unknown = sorted(set(settings) - set(_FIELD_TYPES))
        if unknown:
            raise InputError(f"the recipe in {source} has unknown fields: {', '.join(unknown)}")
        try:
            return cls(**settings)
        except InputError as error:
            raise InputError(f"the recipe in {source}: {error}") from None


_FIELD_TYPES = {field.name: str(field.type) for field in fields(DAgger)}
"""The annotation of every field, as text."""


def _format_option(name: str, value: object) -> str:
    """A field as an option of the command line; a boolean is --name or --no-name."""
    words = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{words}" if value else f"--no-{words}"
    return f"--{words} {shlex.quote(str(value))}"


@dataclass(frozen=True)
class Cloning:
    """The settings of behaviour cloning. The defaults are the paper's where it gives one (M), else those of DAgger."""

    controller: str = "etdagnn"
    """The network to train: tdagnn, tdagnn-tf, tdagnn-tf-mean, etdagnn, or a registered torch module of your own."""
    seed: int = 0
    """Seeds the initial weights and the batches."""
    epochs: int = 50
    """How many times the whole training set is used."""
    batch: int = 20
    """Tuples per step of Adam."""
    learning_rate: float = 5e-5
    """The learning rate of Adam, with betas 0.9 and 0.999."""
    loss_scale: float = 2.0
    """M: the loss of a tuple grows until b^2 + MSE = M."""
    warm_up: int = 0
    """How many steps of Adam at the start use the plain loss, (b^2 + MSE) / M without min(1, .)."""
    measure_every: int = 1
    """Epochs from one measurement of the losses to the next; the first and the last epoch are always measured."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "measure_every"):
            check_count(name, getattr(self, name))
        for name in ("seed", "warm_up"):
            check_count(name, getattr(self, name), least=0)
        for name in ("learning_rate", "loss_scale"):
            check_positive(name, getattr(self, name))
