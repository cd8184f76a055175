"""Readings of the paper: what its text leaves open or says in two ways, as one named choice each.

A reading sets fields that trainings, scenarios and experiments have. The usual reading, the default, is what the text
says in so many words; where it is silent, what the rest of this package does; and in three rules about obstacles, by
whose words hardly any flight could pass, what the text seems to mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args

from equiflock.controllers.networks.architecture import BiasInit
from equiflock.features import HopMean
from equiflock.learning.recipe import DEFAULT_CLAMP, EXPERT, DAgger
from equiflock.runtime.checks import InputError, check_choice, check_count, check_positive
from equiflock.runtime.options import parse_options
from equiflock.scenarios.course_survey import Awareness, ObstacleNode
from equiflock.scenarios.leaders import LeaderVelocity
from equiflock.scenarios.random_disk import VelocityRule
from equiflock.senses.aggregation import Obstacles

FLIGHT_EXPERIMENTS = ("training", "connectivity", "flocking", "leaders", "obstacles")
"""The experiments that fly, trainings among them."""
CLONING_EXPERIMENT = "generalization"
"""The experiment that clones the expert, which has data of its own."""


@dataclass(frozen=True, repr=False)
class Interpretation:
    """One choice for everything that the paper's text leaves open; `Interpretation()` is the usual one."""

    velocities: VelocityRule = "entries"
    """Initial velocities: every entry uniform, or vectors uniform in a disc."""
    clamp: float = DEFAULT_CLAMP
    """C, the largest acceleration of the expert."""
    biases: BiasInit = "zero"
    """How biases begin: at zero, or uniform as torch draws them."""
    hop_mean: HopMean = "receiver"
    """By whose degree K-hop sums are divided."""
    flocking_duration: float = 2.0
    """Seconds of the flocking test."""
    leader_velocity: LeaderVelocity = "mean"
    """The leaders' common velocity, as `LeaderFollowing` has it."""
    obstacles: Obstacles = "nearest"
    """Which obstacle agents within R a follower hears."""
    awareness: Awareness = "followers"
    """Who makes the obstacle a node of the graph by being near it."""
    obstacle_node: ObstacleNode = "one"
    """Whether the obstacle is one node of the graph, or each of its agents is one."""
    clear_time: float = 1.0
    """Seconds out of the obstacle's reach after which it counts as passed."""
    cloning_epochs: int = 50
    """Epochs of behaviour cloning."""

    def __post_init__(self) -> None:
        for name, choice in CHOICES.items():
            value = getattr(self, name)
            if choice.allowed_values:
                check_choice(name, value, choice.allowed_values)
            elif isinstance(getattr(Interpretation, name), float):
                object.__setattr__(self, name, float(check_positive(name, value)))
        check_count("cloning_epochs", self.cloning_epochs)

    @classmethod
    def from_text(cls, text: str) -> Interpretation:
        """The reading that `velocities=disc:clamp=150` names; choices that are left out are the usual ones."""
        options = parse_options(text) if text else {}
        for name in options:
            if name not in CHOICES:
                raise InputError(f"a reading has no choice {name!r}; it has {', '.join(CHOICES)}")
        return cls(**options)

    def __repr__(self) -> str:
        # Only what is not usual, as names of results are made of it.
        return f"Reading({', '.join(f'{name}={value!r}' for name, value in self.changes.items())})"

    def __str__(self) -> str:
        return ":".join(f"{name}={format_value(value)}" for name, value in self.changes.items()) or "usual"

    @property
    def changes(self) -> dict[str, Any]:
        """The choices that are not the usual ones."""
        return {name: getattr(self, name) for name in CHOICES if getattr(self, name) != getattr(Interpretation, name)}

    def alternatives(self) -> Iterator[Interpretation]:
        """The readings that differ from this one in one choice, by a value that a search tries."""
        for name in CHOICES:
            for value in list_values(name):
                if value != getattr(self, name):
                    yield replace(self, **{name: value})

    def restrict_to(self, *experiments: str) -> Interpretation:
        """This reading with only those choices that change one of these experiments: where it is the same, they are."""
        changes = self.changes
        return Interpretation(
            **{name: changes[name] for name in changes if set(experiments) & set(CHOICES[name].changes)}
        )

    def get_scenario_options(self, scenario: str) -> dict[str, Any]:
        """The options of a scenario under this reading, as `make_scenario` takes them."""
        own = {
            "leaders": ("leader_velocity",),
            "obstacles": ("obstacles", "awareness", "obstacle_node", "clear_time"),
        }
        names = ("velocities", *own.get(scenario.partition(":")[0], ()))
        return {name: getattr(self, name) for name in names}

    @property
    def expert(self) -> str:
        """The expert with this reading's clamp, as `load` takes it."""
        return self.format_law(EXPERT)

    def format_law(self, name: str) -> str:
        """A law of Tanner's with this reading's clamp, as `load` takes it."""
        return name if self.clamp == DEFAULT_CLAMP else f"{name}:clamp={format_value(self.clamp)}"

    def network(self, name: str) -> str:
        """A network of the paper with the options of this reading, as trainings take it."""
        # ETDAGNN has no biases.
        wanted = {"biases": self.biases if name != "etdagnn" else "zero", "hop_mean": self.hop_mean}
        options = [f"{key}={value}" for key, value in wanted.items() if value != getattr(Interpretation, key)]
        return ":".join([name, *options])

    def recipe(self, usual: DAgger, controller: str, seed: int) -> DAgger:
        """The training of a network under this reading; `usual` says the rest."""
        return replace(
            usual, controller=self.network(controller), seed=seed, expert=self.expert, velocities=self.velocities
        )


@dataclass(frozen=True)
class Choice:
    """What there is to know of one field of `Interpretation`."""

    quotation: str
    """The words of the paper that it interprets, in quotation marks, and what they leave open."""
    alternative_values: tuple[Any, ...]
    """The values beside the usual one that a search tries."""
    changes: tuple[str, ...]
    """The experiments whose results it changes."""
    allowed_values: tuple[str, ...] = ()
    """All values that it may have, if these are words."""


ALL_EXPERIMENTS = (*FLIGHT_EXPERIMENTS, CLONING_EXPERIMENT)
CHOICES = {
    "velocities": Choice(
        "“the entries of V and b are uniformly randomly sampled from [-3, 3]”; but “velocities have magnitudes no "
        "larger than 6” and a variance “from about 4” fit vectors drawn from a disc of radius 3.",
        ("disc",),
        ALL_EXPERIMENTS,
        get_args(VelocityRule),
    ),
    "clamp": Choice(
        "“we enforce |a|_2 <= C”: C is not given.", (25.0, 50.0, 75.0, 125.0, 150.0, 200.0), ALL_EXPERIMENTS
    ),
    "biases": Choice(
        "“The trainable parameters are initialized using Xavier uniform initialization”, which is not defined for "
        "biases: zero, or as the library draws them.",
        ("uniform",),
        ALL_EXPERIMENTS,
        get_args(BiasInit),
    ),
    "hop_mean": Choice(
        "“z_i^k = 1/|N_i| sum over j in N_i of z_j^(k-1)”; public code of the baseline divides by the sender's degree.",
        ("sender",),
        ALL_EXPERIMENTS,
        get_args(HopMean),
    ),
    "flocking_duration": Choice(
        "“we test each ML controller's ability to achieve asymptotic flocking”: for how long is not said; trainings "
        "and validations take 2 s.",
        (4.0, 8.0),
        ("flocking",),
    ),
    "leader_velocity": Choice(
        "“the leaders' velocities are set equal”: to what is not said.",
        ("first", "fresh", "flock", "diagonal"),
        ("leaders",),
        get_args(LeaderVelocity),
    ),
    "obstacles": Choice(
        "“we limit the follower to only process the relative velocity computed from the position of the closest "
        "obstacle agent”: usually nothing of the others counts; by the words, their positions do.",
        ("all",),
        ("obstacles",),
        get_args(Obstacles),
    ),
    "awareness": Choice(
        "“check if the minimum distance between the flock and the obstacle is greater than R, implying that the flock "
        "is unaware of the obstacle”: usually followers alone, who hear it; by the words, leaders, too.",
        ("flock",),
        ("obstacles",),
        get_args(Awareness),
    ),
    "obstacle_node": Choice(
        "“terminate the simulation if the graph containing leaders, followers, and obstacle agents is disconnected”: "
        "usually one node for the obstacle; by the words one for each of its agents, of which some are always apart.",
        ("each",),
        ("obstacles",),
        get_args(ObstacleNode),
    ),
    "clear_time": Choice(
        "“that distance has been larger than R for the past T_passed >= 1 time steps”: how many is not said.",
        (0.01, 2.0),
        ("obstacles",),
    ),
    "cloning_epochs": Choice(
        "“the dataset of tuples may be computed before training by running E flocking simulations”: 80,400 tuples are "
        "400 times 201, so E, the number of epochs, may have been 400 here, too.",
        (400,),
        (CLONING_EXPERIMENT,),
    ),
}
"""The fields of `Interpretation`, by their names."""


def list_values(name: str) -> tuple[Any, ...]:
    """The values of a choice that a search tries, the usual one first."""
    return (getattr(Interpretation, name), *CHOICES[name].alternative_values)


def format_value(value: Any) -> str:
    """The value of a choice as text, such as 150 for 150.0."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
