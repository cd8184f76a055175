"""The settings of a tuning, and the command that repeats it."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from equiflock.experiments.tuning.genome import SearchTarget
from equiflock.experiments.tuning.objective import DEFAULT_MEASURES, parse_measures
from equiflock.experiments.tuning.tasks import EXAMPLE, Task, parse_tasks
from equiflock.flock import OBSTACLE
from equiflock.orbit_technique import Orbit
from equiflock.runtime.checks import InputError, check_choice, check_count, check_positive
from equiflock.runtime.options import parse_options

DEFAULT_TASKS = (
    "1*flocking:agents=100+1*flocking:agents=300:radius_rule=constant-density+1*leaders"
    "+1*obstacles:sides=48+1*obstacles:sides=96"
)
Covariance = Literal["automatic", "full", "diagonal"]
MAX_FULL_COVARIANCE = 200
"""Up to so many numbers all covariances are adapted; for more, only variances."""


@dataclass(frozen=True)
class Tuning:
    """The settings of a tuning by CMA-ES."""

    tasks: str = DEFAULT_TASKS
    """Scenarios to fly, with their shares of the cost, as in 0.5*flocking+1*obstacles:sides=96. Beside the scenario's
    own, options are duration, time_step (0.01 unless said) and flocks, in place of --flocks."""
    measures: str = DEFAULT_MEASURES
    """What flights are measured by, with weights: apart (share of agents outside the largest component), variance (of
    velocities), settled (the same at the end), leaders (distance to their velocity), collisions (share of agents
    nearer than R_min to another), effort (accelerations), failures (share of flights that fail), gap (how far pieces
    of the flock are from each other), time (until the end is reached; all of it if a flight fails)."""
    search: SearchTarget = "weights"
    """What is searched: every weight by itself, or one gain for each input of each layer, far fewer numbers, which
    takes far fewer generations."""
    gain_features: str = ""
    """Names of features, such as velocity+leaving, if only the gains of what is heard of these are searched: a few
    numbers. With --search gains."""
    near: bool = False
    """Search only the weights of agents that know of an obstacle, which begin as those of all others; what the network
    does elsewhere stays as it is. For networks that hear of obstacles by themselves, such as starling."""
    near_from: str = ""
    """A file of weights, or the name of those in the package, from which those of --near begin instead: those that it
    has for agents near obstacles, or those for all, with its numbers of the technique. It may hear less, such as a
    training of etdagnn:aggregation=both."""
    last_layer_scale: float = 1.0
    """A factor on the last layer of the weights that --near begins with: below 1 agents near obstacles act softer."""
    initial_orbit: str = ""
    """Numbers of the orbit technique to begin with, such as gravity_break=0.56:near=1.2; the others, or all if left
    out, are those of the weights, or the paper's."""
    generations: int = 100
    """Generations to search; more of them, in the same folder, go on with a search that is done."""
    population: int | None = None
    """Candidates per generation; 4 + 3 ln n for n numbers if left out: 22 for 560 weights."""
    sigma: float = 0.05
    """The standard deviation of the first candidates, as a share of the root mean square of each tensor of weights, or
    of gains."""
    covariance: Covariance = "automatic"
    """What the search adapts: all covariances of the numbers, or only their variances; by default all for up to 200
    numbers."""
    seed: int = 0
    """Seeds the candidates and the flocks."""
    flocks: int = 10
    """Flocks of each task and generation, the same for all candidates; each generation draws its own."""
    validation_flocks: int = 40
    """Held-out flocks of each task that decide what is kept, the same for every seed."""
    validate_every: int = 10
    """Generations from one validation of the mean of the candidates' distribution to the next."""
    measurement_interval: float = 0.05
    """Seconds of flight from one measurement to the next."""
    orbit: bool = True
    """Search gravity_break, near and slow of the orbit technique, too, if a task has obstacles."""

    def __post_init__(self) -> None:
        for name in ("generations", "flocks", "validation_flocks", "validate_every"):
            check_count(name, getattr(self, name))
        check_count("seed", self.seed, least=0)
        if self.population is not None:
            check_count("population", self.population, least=4)
        for name in ("sigma", "measure_interval"):
            check_positive(name, getattr(self, name))
        check_choice("search", self.search, get_args(SearchTarget))
        if self.gain_features and self.search != "gains":
            raise InputError("heard goes with search gains only")
        check_choice("covariance", self.covariance, get_args(Covariance))
        parse_measures(self.measures)
        self.make_initial_orbit(None)  # a clear error about the technique
        check_positive("last_layer_scale", self.last_layer_scale)
        if (self.near_from or self.last_layer_scale != 1.0) and not self.near:
            raise InputError("near_from and soften go with near only")
        if self.near and not self.has_obstacles:
            raise InputError(f"near needs a task with obstacles, such as {EXAMPLE}; got {self.tasks!r:.80}")
        shortest = min(task.duration for task in self.parsed_tasks)
        if self.measurement_interval > shortest:
            raise InputError(
                f"look must be at most the duration of every task, {shortest:g} s; got {self.measurement_interval:g}"
            )

    @property
    def parsed_tasks(self) -> tuple[Task, ...]:
        """The tasks."""
        return parse_tasks(self.tasks)

    @property
    def measure_weights(self) -> dict[str, float]:
        """The weight of each measure."""
        return parse_measures(self.measures)

    @property
    def features(self) -> tuple[str, ...]:
        """The names in `gain_features`."""
        return tuple(self.gain_features.split("+")) if self.gain_features else ()

    @property
    def has_obstacles(self) -> bool:
        """Whether a task has obstacles."""
        return any(bool((task.build_scenario(1, 0, "").draw().roles == OBSTACLE).any()) for task in self.parsed_tasks)

    @property
    def tunes_orbit(self) -> bool:
        """Whether numbers of the technique are searched."""
        return self.orbit and any(task.build_scenario(1, 0, "").orbit == Orbit() for task in self.parsed_tasks)

    def make_initial_orbit(self, own: Orbit | None) -> Orbit | None:
        """The technique to begin with, where `own` is that of the weights."""
        if not self.initial_orbit:
            return own
        try:
            return replace(own or Orbit(), **parse_options(self.initial_orbit))
        except TypeError:
            names = ", ".join(each.name for each in fields(Orbit))
            raise InputError(f"technique must name numbers among {names}; got {self.initial_orbit!r:.80}") from None

    def is_diagonal(self, size: int) -> bool:
        """Whether only variances are adapted, for so many numbers."""
        return size > MAX_FULL_COVARIANCE if self.covariance == "automatic" else self.covariance == "diagonal"

    def is_validation_due(self, generation: int) -> bool:
        """Whether the mean is validated after this generation."""
        return generation % self.validate_every == 0 or generation == self.generations

    @property
    def settings(self) -> dict[str, Any]:
        """All fields, fit for JSON."""
        return asdict(self)

    def format_command(self, controller: str) -> str:
        """The command that tunes a controller so."""
        words = ["equiflock", "tune", controller]
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool):
                words += [] if value == each.default else [f"--{'' if value else 'no-'}{each.name}"]
            elif value != each.default or each.name == "seed":
                words += [f"--{each.name.replace('_', '-')}", str(value)]
        return shlex.join(words)
