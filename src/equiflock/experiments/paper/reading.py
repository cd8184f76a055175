"""Readings of the paper: what its text leaves open or says in two ways, as one named choice each.

A reading sets fields that trainings, scenarios and experiments have. The default is what the text says in so many
words or, where it is silent, the choice that the rest of this package makes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any, Self, get_args

from equiflock.features import HopMean
from equiflock.learning.recipe import EXPERT, USUAL_CLAMP, DAgger
from equiflock.runtime.checks import InputError, check_choice, check_count, check_positive
from equiflock.runtime.options import read_options
from equiflock.scenarios.leaders import LeaderVelocity
from equiflock.scenarios.passing import Awareness
from equiflock.scenarios.random_disk import VelocityRule
from equiflock.senses.aggregation import Obstacles

EVERYTHING = ("training", "connectivity", "flocking", "leaders", "obstacles", "generalization")


def _choice(usual: Any, others: tuple[Any, ...], changes: tuple[str, ...], sentence: str, kind: Any = None) -> Any:
    """A field of `Reading`.

    Args:
        usual: the default.
        others: the values that a search tries.
        changes: the experiments whose results it changes.
        sentence: the words of the paper that it interprets.
        kind: the type of its values, if these are some words.
    """
    about = {"others": others, "changes": changes, "sentence": sentence, "words": get_args(kind)}
    return field(default=usual, metadata=about)


@dataclass(frozen=True)
class Reading:
    """One choice for everything that the paper's text leaves open; `Reading()` is what the text says."""

    velocities: VelocityRule = _choice(
        "entries",
        ("disc",),
        EVERYTHING,
        "“the entries of V and b are uniformly randomly sampled from [-3, 3]”; but “velocities have magnitudes no "
        "larger than 6”, and a variance “from about 4”, fit vectors drawn from a disc of radius 3.",
        VelocityRule,
    )
    """Initial velocities: every entry uniform, or vectors uniform in a disc."""
    clamp: float = _choice(
        USUAL_CLAMP,
        (125.0, 150.0, 200.0),
        EVERYTHING,
        "“we enforce |a|_2 <= C”: C is not given.",
    )
    """C, the largest acceleration of the expert."""
    biases: str = _choice(
        "zero",
        ("uniform",),
        EVERYTHING,
        "“The trainable parameters are initialized using Xavier uniform initialization”, which has no meaning for "
        "biases: zero, or as the library draws them.",
    )
    """How biases begin: at zero, or uniform as torch draws them."""
    hop_mean: HopMean = _choice(
        "receiver",
        ("sender",),
        EVERYTHING,
        "“z_i^k = 1/|N_i| sum over j in N_i of z_j^(k-1)”; public code of the baseline divides by the sender's degree.",
        HopMean,
    )
    """By whose degree K-hop sums are divided."""
    flocking_duration: float = _choice(
        2.0,
        (4.0, 8.0),
        ("flocking",),
        "“we test each ML controller's ability to achieve asymptotic flocking”: for how long is not said; trainings "
        "and validations take 2 s.",
    )
    """Seconds of the flocking test."""
    leader_velocity: LeaderVelocity = _choice(
        "mean",
        ("first", "fresh", "flock", "diagonal"),
        ("leaders",),
        "“the leaders' velocities are set equal”: to what is not said.",
        LeaderVelocity,
    )
    """The leaders' common velocity."""
    obstacles: Obstacles = _choice(
        "nearest",
        ("all",),
        ("obstacles",),
        "“we limit the follower to only process the relative velocity computed from the position of the closest "
        "obstacle agent”: of the others nothing, or their positions but no velocity.",
        Obstacles,
    )
    """Which obstacle agents within R a follower hears."""
    awareness: Awareness = _choice(
        "followers",
        ("flock",),
        ("obstacles",),
        "“check if the minimum distance between the flock and the obstacle is greater than R, implying that the flock "
        "is unaware of the obstacle”: leaders, who hear nobody, are of the flock, too.",
        Awareness,
    )
    """Who makes the obstacle a node of the graph by being near it."""
    clear_time: float = _choice(
        1.0,
        (0.01,),
        ("obstacles",),
        "“that distance has been larger than R for the past T_passed >= 1 time steps”: how many is not said.",
    )
    """Seconds out of the obstacle's reach after which it counts as passed."""
    cloning_epochs: int = _choice(
        50,
        (400,),
        ("generalization",),
        "“the dataset of tuples may be computed before training by running E flocking simulations”: 80,400 tuples are "
        "400 of 201 steps, so E, the number of epochs, may have been 400 here, too.",
    )
    """Epochs of behaviour cloning."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.metadata["words"]:
                check_choice(each.name, value, each.metadata["words"])
            elif isinstance(each.default, float):
                object.__setattr__(self, each.name, float(check_positive(each.name, value)))
        check_choice("biases", self.biases, ("zero", "uniform"))
        check_count("cloning_epochs", self.cloning_epochs)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The reading that `velocities=disc:clamp=150` names; choices that are left out are the usual ones."""
        options = read_options(text) if text else {}
        names = [each.name for each in fields(cls)]
        for name in options:
            if name not in names:
                raise InputError(f"a reading has no choice {name!r}; it has {', '.join(names)}")
        return cls(**options)

    def __str__(self) -> str:
        return ":".join(f"{name}={_plain(value)}" for name, value in self.changes.items()) or "as the text says"

    @property
    def changes(self) -> dict[str, Any]:
        """The choices that are not the usual ones."""
        return {name: value for name, value in vars(self).items() if value != getattr(Reading, name)}

    def alternatives(self) -> Iterator[Self]:
        """The readings that differ from this one in one choice, by a value that a search tries."""
        for each in fields(self):
            for value in (each.default, *each.metadata["others"]):
                if value != getattr(self, each.name):
                    yield replace(self, **{each.name: value})

    def of(self, experiment: str) -> Self:
        """This reading with only those choices that change an experiment; where it is the same, so are results."""
        kept = {each.name for each in fields(self) if experiment in each.metadata["changes"]}
        return type(self)(**{name: value for name, value in vars(self).items() if name in kept})

    def of_flights(self) -> Self:
        """This reading with only those choices that change trainings or flights."""
        kept = {each.name for each in fields(self) if set(each.metadata["changes"]) - {"generalization"}}
        return type(self)(**{name: value for name, value in vars(self).items() if name in kept})

    @property
    def expert(self) -> str:
        """The expert with this reading's clamp, as `load` takes it."""
        return self.law(EXPERT)

    def law(self, name: str) -> str:
        """A law of Tanner's with this reading's clamp, as `load` takes it."""
        return name if self.clamp == USUAL_CLAMP else f"{name}:clamp={_plain(self.clamp)}"

    def network(self, name: str) -> str:
        """A network of the paper with the options of this reading, as trainings take it."""
        # ETDAGNN has no biases.
        wanted = {"biases": self.biases if name != "etdagnn" else "zero", "hop_mean": self.hop_mean}
        options = [f"{key}={value}" for key, value in wanted.items() if value != getattr(Reading, key)]
        return ":".join([name, *options])

    def recipe(self, usual: DAgger, controller: str, seed: int) -> DAgger:
        """The training of a network under this reading; `usual` says the rest."""
        return replace(
            usual, controller=self.network(controller), seed=seed, expert=self.expert, velocities=self.velocities
        )


def choices() -> tuple[Field[Any], ...]:
    """The fields of `Reading`; their metadata has the values that are tried and the sentence of the paper."""
    return fields(Reading)


def _plain(value: Any) -> Any:
    """A number without needless digits, such as 150 for 150.0."""
    return f"{value:g}" if isinstance(value, float) else value
