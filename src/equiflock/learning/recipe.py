"""Recipes, i.e. the settings of a training: `DAgger`, with the command that repeats it, and `Cloning`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from equiflock._runtime.checks import (
    LARGEST_COUNT,
    InputError,
    check_choice,
    check_count,
    check_positive,
    is_finite,
    shorten_repr,
)
from equiflock._runtime.randomness import make_rng
from equiflock.flock import check_comm_radius
from equiflock.learning.training_scenarios import TrainingScenario, parse_training_scenarios
from equiflock.scenarios import RandomDisk
from equiflock.scenarios.random_disk import RadiusRule, VelocityRule
from equiflock.simulation.environment_ranges import (
    RANGE_DISTRIBUTIONS,
    EnvironmentRanges,
    Range,
    parse_range,
    parse_range_option,
)
from equiflock.simulation.simulate import count_steps

Schedule = Literal["constant", "cosine", "linear"]
Algorithm = Literal["dagger", "rollout"]
ROLLOUT_FIELDS = "algorithm", "objective", "horizon"
"""Fields that a recipe of DAgger does not store."""
NAME_TYPES = {"str": "a name"} | dict.fromkeys(
    ("RadiusRule", "VelocityRule", "Schedule", "Algorithm"), "the name of a rule"
)
"""Annotations of text fields, and the text that describes them in errors."""
EXPERT = "tanner"
"""The expert of the paper's trainings."""
DEFAULT_CLAMP = 100.0
"""Clamp C of the expert in the paper's trainings, and the default of `Tanner`."""


@dataclass(frozen=True)
class DAgger:
    """Settings of DAgger. The defaults are the paper's (section 5, "Training")."""

    controller: str = "etdagnn"
    """Network to train: tdagnn, tdagnn-tf, tdagnn-tf-mean, etdagnn, or your own registered torch module, with options
    such as mixer:width=8."""
    expert: str = EXPERT
    """Controller to imitate, as for `load`: tanner, tanner:clamp=50, or your own."""
    scenario: str = "flocking"
    """Scenario of the flights: flocking, leaders, obstacles:sides=48, or your own; or several with their shares of the
    flights, 0.6*flocking+0.4*leaders. Numbers in its options may be ranges: leaders:leaders=1-3."""
    algorithm: Algorithm = "dagger"
    """How to train: "dagger" imitates the expert; "rollout" lowers the objective of flights of `batch` flocks under the
    network alone, by gradients through the flights. It needs an ideal radio and no obstacles, and ignores expert_share,
    capacity, updates and gain_margin."""
    objective: str = "variance+0.0001*effort"
    """Weighted sum that "rollout" lowers, the mean over steps and agents: variance (squared distance of the velocity
    from the mean), effort (squared acceleration) and leaders (squared distance from the leaders' mean velocity)."""
    horizon: int = 20
    """Steps of a flight through which gradients of "rollout" pass; an Adam step follows each of these parts."""
    epochs: int = 400
    """Number of epochs; each is one flight and then `updates` Adam steps."""
    seed: int = 0
    """Seed of the initial weights, the flights and the batches."""
    agents: int | str = 100
    """N, the number of agents per flock, or a range such as 50-200, from which each flock draws N. If the number of
    followers differs between flocks, each step is reduced to the smallest number by drawing followers at random."""
    hops: int = 3
    """K, the number of hops, for networks with this option, such as the paper's."""
    flocks: int = 400
    """Number of initial conditions; each epoch draws one of them with replacement."""
    time_step: float | str = 0.01
    """Seconds per step, or a range such as 0.002-0.05 (log-uniform), from which each flight draws."""
    gain_margin: float = 1.0
    """Factor on the student's accelerations in its flights, such as 1.3, for networks with a gain schedule: a network
    that is calm with a larger gain in training has a margin after it."""
    duration: float = 2.0
    """Seconds per flight; overrides the duration of the scenario."""
    comm_radius: float = 1.0
    """R, the communication radius."""
    dimensions: Literal[2, 3] = 2
    """D; for 3, agents start in a ball with the same mean degree as in the disk."""
    radius_rule: RadiusRule = "quarter-power"
    """Rule for the radius of the initial disk as a function of N; see `RandomDisk` for this and the next fields."""
    disk_radius: float | None = None
    """Radius of the disk, instead of a rule, whose disk grows with R."""
    density: float | None = None
    """Agents per unit area for the constant-density rule; default: 10 / (pi R^2), the density of 100 agents."""
    min_separation: float = 0.1
    """R_min, the smallest initial distance between agents."""
    min_degree: int = 2
    """Smallest initial number of neighbours of an agent."""
    connected: bool = True
    """Whether the initial communication graph must be connected."""
    disk_scale: float | str = 1.0
    """Factor on the disk's radius, such as 0.8, or a range such as 0.6-1.1, from which each flock draws."""
    max_speed: float | str = 3.0
    """Bound on each entry of a random initial velocity, or on its magnitude if `velocities` is "disc". A number, or a
    range such as 1-3, from which each flock draws."""
    velocities: VelocityRule = "entries"
    """Distribution of initial velocities: uniform "entries", or vectors uniform in a "disc" of radius max_speed."""
    expert_share: float = 0.993
    """beta_0, the probability that the expert acts in a step of the first epoch, and its decay factor per epoch."""
    least_expert_share: float = 0.5
    """Lower limit of that probability."""
    capacity: int = 10_000
    """Number of tuples in the replay, which keeps the newest."""
    updates: int = 200
    """Adam steps per epoch."""
    batch: int = 20
    """Tuples per Adam step, drawn with replacement."""
    learning_rate: float = 5e-5
    """Learning rate of Adam, with betas 0.9 and 0.999."""
    schedule: Schedule = "constant"
    """Learning rate schedule: "constant", or a "cosine" or "linear" decay to final_learning_rate."""
    final_learning_rate: float = 0.0
    """Learning rate at the end of the schedule, as a share of learning_rate, such as 0.05."""
    warm_up: int = 0
    """Number of epochs at the start during which the learning rate grows linearly from 0."""
    average: float = 0.0
    """Decay per epoch, such as 0.98, of an exponential average of the weights, which validation and the written weights
    use; flights use the current weights. 0 for no average."""
    validation_flocks: int = 50
    """Number of validation flocks, the same for every seed."""
    validate_every: int = 40
    """Epochs between validations."""
    checkpoint_every: int = 10
    """Epochs between checkpoints, for a training in a run directory."""
    packet_loss: float | str = 0.0
    """Share of messages lost, independently per link and step: a number such as 0.2, or a range such as 0-0.5, from
    which each flight draws, as for all following options; see `Radio` and `DoubleIntegrator`."""
    burst: float | str | None = None
    """Mean length of a run of lost messages on a link, in steps, such as 5 or 2-20 (log-uniform)."""
    delay: int | str = 0
    """Steps from sending to receiving, such as 1 or 0-2 (each equally likely)."""
    jitter: int | str = 0
    """Largest additional delay in steps, drawn per message, such as 1 or 0-3."""
    noise: float | str = 0.0
    """Standard deviation of measured relative positions, in R, and velocities, in R/s, such as 0.01 or 0-0.05."""
    quantization: int | str | None = None
    """Bits per number of a message, from 10 to 32, such as 16 or 12-32."""
    send_interval: int | str = 1
    """Steps between two messages of an agent, each with a different phase, such as 2 or 1-4."""
    last_known: int | str = 0
    """Steps for which a received message is used if no newer one arrives, such as 5 or 0-10."""
    max_acceleration: float | str | None = None
    """Largest acceleration of a body, such as 5 or 3-100 (log-uniform)."""
    top_speed: float | str | None = None
    """Largest speed of a body, such as 4 or 2-20 (log-uniform): max_speed of `DoubleIntegrator`."""
    drag: float | str = 0.0
    """Decay rate of a body's velocity, per second, such as 0.1 or 0-0.5."""
    lag: float | str = 0.0
    """Time constant of a body's actuators in seconds, such as 0.05 or 0-0.1."""
    gust: float | str = 0.0
    """Standard deviation of each entry of a random acceleration, drawn at every step, such as 1 or 0-3."""

    def __post_init__(self) -> None:
        # Check types first, because a recipe may come from a file.
        for name in _FIELD_TYPES:
            # Radio and body check their own settings.
            if name in RANGE_DISTRIBUTIONS:
                object.__setattr__(self, name, parse_range_option(name, getattr(self, name)))
                continue
            object.__setattr__(self, name, check_field(name, _FIELD_TYPES[name], getattr(self, name)))
        # Then check the bounds of every number.
        check_choice("algorithm", self.algorithm, get_args(Algorithm))
        given = [name for name in ROLLOUT_FIELDS if getattr(self, name) != getattr(DAgger, name)]
        if self.algorithm == "dagger" and given:
            raise InputError(f"{given[0]} belongs to the algorithm 'rollout': set algorithm, or omit {given[0]}")
        counts = "horizon epochs hops flocks capacity updates batch validation_flocks validate_every checkpoint_every"
        for name in counts.split():
            check_count(name, getattr(self, name))
        check_comm_radius(self.comm_radius)
        check_positive("learning_rate", self.learning_rate)
        check_positive("gain_margin", self.gain_margin)
        check_count("agents", self.min_agents)
        for name in ("seed", "warm_up"):
            check_count(name, getattr(self, name), least=0)
        check_choice("schedule", self.schedule, get_args(Schedule))
        if self.schedule == "constant" and self.final_learning_rate != 0.0:
            raise InputError("final_learning_rate needs a decaying schedule: set schedule to cosine or linear")
        if not 0.0 <= self.average < 1.0:
            raise InputError(f"average must be from 0 to below 1; got {self.average!r}")
        for name in ("expert_share", "least_expert_share", "final_learning_rate"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InputError(f"{name} must be from 0 to 1; got {getattr(self, name)!r}")
        for time_step in self._time_step_ends:
            count_steps(self.duration, time_step)
        # Building the scenarios checks the fields that they share with the recipe.
        for scenario in self.training_scenarios:
            scenario.check(max(self.flocks, self.validation_flocks))
        self.environment_ranges.check()

    @property
    def settings(self) -> dict[str, Any]:
        """All fields, without those that only "rollout" uses, JSON-serializable; `from_settings` is the inverse."""
        unused = ROLLOUT_FIELDS if self.algorithm == "dagger" else ()
        return {name: value for name, value in asdict(self).items() if name not in unused}

    @property
    def environment_ranges(self) -> EnvironmentRanges:
        """Radios and bodies of the training's flights."""
        return EnvironmentRanges({name: getattr(self, name) for name in RANGE_DISTRIBUTIONS})

    @property
    def min_agents(self) -> int:
        """N, or the lower end of its range."""
        return int(self.agents.partition("-")[0]) if isinstance(self.agents, str) else self.agents

    @property
    def _time_step_range(self) -> Range | float:
        """The time step, or its range."""
        value = self.time_step
        return parse_range("time_step", value, "log_uniform") if isinstance(value, str) else value

    @property
    def _time_step_ends(self) -> tuple[float, float]:
        """Shortest and longest time step."""
        value = self._time_step_range
        return (value.low, value.high) if isinstance(value, Range) else (value, value)

    @property
    def longest_time_step(self) -> float:
        """The time step, or the upper end of its range."""
        return self._time_step_ends[1]

    @property
    def middle_time_step(self) -> float:
        """Time step of validations: the middle of the range."""
        value = self._time_step_range
        return value.middle if isinstance(value, Range) else value

    def draw_time_step(self, epoch: int) -> float:
        """Return the time step of an epoch's flight; it depends only on the seed and the epoch."""
        value = self._time_step_range
        return value.draw(make_rng(self.seed, "time step", epoch)) if isinstance(value, Range) else value

    def compute_expert_share(self, epoch: int) -> float:
        """Return beta_e = max(beta_0^(e + 1), least_expert_share) of epoch e, counted from 0; 0 for "rollout"."""
        if self.algorithm == "rollout":
            return 0.0
        return float(max(self.expert_share ** (epoch + 1), self.least_expert_share))

    def compute_learning_rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0: `learning_rate` times `compute_rate_factor`."""
        return self.learning_rate * compute_rate_factor(
            self.schedule, epoch, self.epochs, self.warm_up, self.final_learning_rate
        )

    @property
    def is_extendable(self) -> bool:
        """Whether the number of epochs may change: a decaying schedule depends on it, a constant one does not."""
        return self.schedule == "constant"

    def is_validation_due(self, epoch: int) -> bool:
        """Return whether a validation follows this epoch, counted from 1: every `validate_every`, and at the end."""
        return epoch % self.validate_every == 0 or epoch == self.epochs

    @cached_property
    def training_scenarios(self) -> tuple[TrainingScenario, ...]:
        """Scenarios of the flights, with their shares."""
        # Pass on the fields of RandomDisk that are not at their default, because a scenario may have other defaults.
        defaults = {field.name: field.default for field in fields(self)}
        shared = [field.name for field in fields(RandomDisk) if field.name in defaults.keys() - {"flocks", "seed"}]
        return parse_training_scenarios(
            self.scenario, {name: getattr(self, name) for name in shared if getattr(self, name) != defaults[name]}
        )

    @property
    def command(self) -> str:
        """Command that trains with this recipe."""
        return f"equiflock train {format_cli_options(self, ('controller', 'seed'))}"

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], source: object) -> DAgger:
        """Return the recipe with these settings; missing fields have their defaults.

        Raise InputError, whose message names `source`, if a field is unknown or a value invalid.
        """
        unknown = sorted(set(settings) - set(_FIELD_TYPES))
        if unknown:
            raise InputError(f"the recipe in {source} has unknown fields: {', '.join(unknown)}")
        try:
            return cls(**settings)
        except InputError as error:
            raise InputError(f"the recipe in {source}: {error}") from None


_FIELD_TYPES = {field.name: str(field.type) for field in fields(DAgger)}
"""Annotation of every field as text."""


@dataclass(frozen=True)
class Cloning:
    """Settings of behaviour cloning. The defaults are the paper's where it states one (M), else those of DAgger."""

    controller: str = "etdagnn"
    """Network to train: tdagnn, tdagnn-tf, tdagnn-tf-mean, etdagnn, or your own registered torch module."""
    seed: int = 0
    """Seed of the initial weights and the batches."""
    epochs: int = 50
    """Number of passes over the training set."""
    batch: int = 20
    """Tuples per Adam step."""
    learning_rate: float = 5e-5
    """Learning rate of Adam, with betas 0.9 and 0.999."""
    loss_scale: float = 2.0
    """M, the scale of the loss min(1, (b^2 + MSE) / M)."""
    warm_up: int = 0
    """Number of Adam steps at the start that use the loss (b^2 + MSE) / M, without min(1, .)."""
    measure_every: int = 1
    """Epochs between measurements of the losses; epoch 0 and the last epoch are always measured."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "measure_every"):
            check_count(name, getattr(self, name))
        for name in ("seed", "warm_up"):
            check_count(name, getattr(self, name), least=0)
        for name in ("learning_rate", "loss_scale"):
            check_positive(name, getattr(self, name))


def compute_rate_factor(schedule: Schedule, epoch: int, epochs: int, warm_up: int = 0, final: float = 0.0) -> float:
    """Return the factor on the learning rate in epoch e = `epoch`, counted from 0, of E = `epochs`.

    During the W = `warm_up` first epochs the factor is (e + 1) / (W + 1). Then it is 1, or decays to `final`:

        final + (1 - final) s(x),  x = (e - W) / (E - W),

    with s(x) = 1 - x ("linear") or s(x) = (1 + cos(pi x)) / 2 ("cosine"). x = 1 comes after the last epoch, so that no
    epoch has a rate of 0.
    """
    if epoch < warm_up:
        return (epoch + 1) / (warm_up + 1)
    if schedule == "constant":
        return 1.0
    x = (epoch - warm_up) / (epochs - warm_up)
    decay = 1.0 - x if schedule == "linear" else (1.0 + math.cos(math.pi * x)) / 2.0
    return final + (1.0 - final) * decay


def check_field(name: str, kind: str, value: Any) -> Any:
    """Return the value of a field as a recipe stores it; raise InputError if it does not match the field's annotation.

    NumPy numbers become Python numbers, texts of a range such as "0.0 - .5" become "0-0.5", and texts of one number
    become that number. `kind` is the annotation as text; it ends in "| str" for a number that may be a range.
    """
    if isinstance(value, np.generic):  # recipes are stored as JSON, which has plain numbers only
        value = value.item()
    number = kind.removesuffix(" | str")
    if number != kind and isinstance(value, str):
        result = parse_range(name, value, "uniform_integer" if number == "int" else "uniform")
        return str(result) if isinstance(result, Range) else result
    if not _has_type(number, value):
        words = {**NAME_TYPES, "bool": "True or False", "float": "a finite number"}
        expected = words.get(number.removesuffix(" | None"), "a whole number below 2^63")
        raise InputError(f"{name} must be {expected}; got {shorten_repr(value)}")
    return value


def _has_type(kind: str, value: object) -> bool:
    """Return whether a value has the type of an annotation, given as text.

    A bool is not a number, a float must be finite but may be an int, and an int must be within +-`LARGEST_COUNT`.
    """
    if value is None:
        return kind.endswith("| None")
    if kind in NAME_TYPES:
        return isinstance(value, str)
    # bool is a subclass of int, but True is not a number of epochs.
    if kind == "bool" or isinstance(value, bool):
        return kind == "bool" and isinstance(value, bool)
    if kind.startswith("float"):
        return is_finite(value)
    return isinstance(value, int) and abs(value) <= LARGEST_COUNT


def format_cli_options(settings: Any, always: Collection[str]) -> str:
    """Return the fields of a dataclass that are named in `always` or not at their defaults as command line options."""
    words: list[str] = []
    for field in fields(settings):
        value, option = getattr(settings, field.name), field.name.replace("_", "-")
        if value == field.default and field.name not in always:
            continue
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", str(value)]
    return shlex.join(words)
