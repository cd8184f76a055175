"""Interpretations of the paper: one named choice for each ambiguity of its text.

An interpretation sets fields of trainings, scenarios and experiments. The default follows the text literally; where
the text is silent, it follows the rest of this package; and for three rules about obstacles, which hardly any flight
could satisfy literally, it follows the apparent intention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, get_args

from equiflock._runtime.checks import InputError, check_choice, check_count, check_positive
from equiflock._runtime.specs import parse_options, parse_spec
from equiflock.controllers.networks.architecture import BiasInit
from equiflock.features import HopMean
from equiflock.learning.recipe import DEFAULT_CLAMP, EXPERT, DAgger
from equiflock.observations.aggregation import Obstacles
from equiflock.scenarios.course_survey import Awareness, ObstacleNode
from equiflock.scenarios.leaders import LeaderVelocity
from equiflock.scenarios.random_disk import VelocityRule

SCENARIO_CHOICES = {
    "leaders": ("leader_velocity",),
    "obstacles": ("obstacles", "awareness", "obstacle_node", "clear_time"),
}
"""Choices that are options of one scenario; velocities are an option of all."""
FLIGHT_EXPERIMENTS = ("training", "connectivity", "flocking", "leaders", "obstacles")
"""Experiments with flights, including trainings."""
CLONING_EXPERIMENT = "generalization"
"""The experiment that clones the expert; it has separate data."""


@dataclass(frozen=True, repr=False)
class Interpretation:
    """One choice for each ambiguity of the paper's text; `Interpretation()` is the default."""

    velocities: VelocityRule = "entries"
    """Initial velocities: every entry uniform, or vectors uniform in a disc."""
    clamp: float = DEFAULT_CLAMP
    """C, the largest acceleration of the expert."""
    biases: BiasInit = "zero"
    """Initial biases: zero, or uniform as torch draws them."""
    hop_mean: HopMean = "receiver"
    """Whose degree divides K-hop sums."""
    flocking_duration: float = 2.0
    """Seconds of the flocking test."""
    leader_velocity: LeaderVelocity = "mean"
    """The leaders' common velocity, as in `LeaderFollowing`."""
    obstacles: Obstacles = "nearest"
    """Obstacle agents within R that a follower observes."""
    awareness: Awareness = "followers"
    """Agents whose proximity makes the obstacle a node of the graph."""
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
        """Parse an interpretation such as `velocities=disc:clamp=150`; raise InputError for unknown names or values."""
        options = parse_options(text) if text else {}
        for name in options:
            if name not in CHOICES:
                raise InputError(f"an interpretation has no choice {name!r}; choices are {', '.join(CHOICES)}")
        return cls(**options)

    def __repr__(self) -> str:
        # Only choices that differ from the defaults: names of results derive from this text.
        return f"Interpretation({', '.join(f'{name}={value!r}' for name, value in self.changes.items())})"

    def __str__(self) -> str:
        return ":".join(f"{name}={format_value(value)}" for name, value in self.changes.items()) or "usual"

    @property
    def changes(self) -> dict[str, Any]:
        """Choices that differ from the defaults."""
        return {name: getattr(self, name) for name in CHOICES if getattr(self, name) != getattr(Interpretation, name)}

    def iterate_alternatives(self) -> Iterator[Interpretation]:
        """Yield the interpretations that differ from this one in one choice, for all values that a search tries."""
        for name in CHOICES:
            for value in list_values(name):
                if value != getattr(self, name):
                    yield replace(self, **{name: value})

    def restrict_to(self, *experiments: str) -> Interpretation:
        """Return this interpretation with all choices that affect none of these experiments reset to their defaults.

        Interpretations with equal restrictions give equal results in these experiments.
        """
        affects = {name: set(experiments) & set(CHOICES[name].affected_experiments) for name in CHOICES}
        return Interpretation(**{name: value for name, value in self.changes.items() if affects[name]})

    def get_scenario_options(self, scenario: str) -> dict[str, Any]:
        """Return the choices that are options of a scenario, named with or without options, for `make_scenario`."""
        names = ("velocities", *SCENARIO_CHOICES.get(parse_spec(scenario).name, ()))
        return {name: getattr(self, name) for name in names}

    @property
    def expert(self) -> str:
        """Name of the expert with this interpretation's clamp, for `load`."""
        return self.format_law(EXPERT)

    def format_law(self, name: str) -> str:
        """Return the name of one of Tanner's laws with this interpretation's clamp, for `load`."""
        return name if self.clamp == DEFAULT_CLAMP else f"{name}:clamp={format_value(self.clamp)}"

    def format_network(self, name: str) -> str:
        """Return the name of a network of the paper with this interpretation's options, for trainings."""
        # ETDAGNN has no biases.
        values = {"biases": self.biases if name != "etdagnn" else "zero", "hop_mean": self.hop_mean}
        options = [f"{key}={value}" for key, value in values.items() if value != getattr(Interpretation, key)]
        return ":".join([name, *options])

    def build_recipe(self, template: DAgger, controller: str, seed: int) -> DAgger:
        """Return the training recipe of a network under this interpretation; `template` sets the other fields."""
        network = self.format_network(controller)
        return replace(template, controller=network, seed=seed, expert=self.expert, velocities=self.velocities)


@dataclass(frozen=True)
class Choice:
    """Description of one field of `Interpretation`."""

    quotation: str
    """The interpreted passage of the paper in quotation marks, and its ambiguity."""
    alternative_values: tuple[Any, ...]
    """Values other than the default that a search tries."""
    affected_experiments: tuple[str, ...]
    """Experiments whose results depend on the choice."""
    allowed_values: tuple[str, ...] = ()
    """All allowed values, for choices among names."""


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
        "“we test each ML controller's ability to achieve asymptotic flocking”: the duration is not stated; trainings "
        "and validations take 2 s.",
        (4.0, 8.0),
        ("flocking",),
    ),
    "leader_velocity": Choice(
        "“the leaders' velocities are set equal”: the value is not stated.",
        ("first", "fresh", "flock", "diagonal"),
        ("leaders",),
        get_args(LeaderVelocity),
    ),
    "obstacles": Choice(
        "“we limit the follower to only process the relative velocity computed from the position of the closest "
        "obstacle agent”: by default the others are ignored; literally, their positions count.",
        ("all",),
        ("obstacles",),
        get_args(Obstacles),
    ),
    "awareness": Choice(
        "“check if the minimum distance between the flock and the obstacle is greater than R, implying that the flock "
        "is unaware of the obstacle”: by default only followers, which observe it; literally, leaders as well.",
        ("flock",),
        ("obstacles",),
        get_args(Awareness),
    ),
    "obstacle_node": Choice(
        "“terminate the simulation if the graph containing leaders, followers, and obstacle agents is disconnected”: "
        "by default one node for the obstacle; literally one for each of its agents, some of which are always "
        "disconnected.",
        ("each",),
        ("obstacles",),
        get_args(ObstacleNode),
    ),
    "clear_time": Choice(
        "“that distance has been larger than R for the past T_passed >= 1 time steps”: the number is not stated.",
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
"""Fields of `Interpretation` by name."""


def list_values(name: str) -> tuple[Any, ...]:
    """Return the values of a choice that a search tries, the default first."""
    return (getattr(Interpretation, name), *CHOICES[name].alternative_values)


def format_value(value: Any) -> str:
    """Return the value of a choice as text, such as 150 for 150.0."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
