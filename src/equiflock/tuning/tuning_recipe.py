"""Settings of a tuning, and the command that repeats it."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, cast, get_args

from equiflock._runtime.checks import InputError, check_choice, check_count, check_positive
from equiflock._runtime.specs import parse_options
from equiflock.features import Aggregation, Channel
from equiflock.flock import OBSTACLE
from equiflock.learning.recipe import format_cli_options
from equiflock.observations.orbit import Orbit
from equiflock.tuning.objective import DEFAULT_MEASURES, EXAMPLE, Task, parse_measures, parse_tasks
from equiflock.tuning.search_space import SearchTarget

DEFAULT_TASKS = (
    "1*flocking:agents=100+1*flocking:agents=300:radius_rule=constant-density+1*leaders"
    "+1*obstacles:sides=48+1*obstacles:sides=96"
)
Covariance = Literal["automatic", "full", "diagonal"]
MAX_FULL_COVARIANCE = 200
"""Largest number of parameters with a full covariance; above it, only variances are adapted."""


@dataclass(frozen=True)
class Tuning:
    """Settings of a tuning by CMA-ES."""

    tasks: str = DEFAULT_TASKS
    """Scenarios with their shares of the cost, such as 0.5*flocking+1*obstacles:sides=96. Options are those of the
    scenario, and duration, time_step (default 0.01), flocks (default --flocks) and gain_margin, a further factor on the
    accelerations (default 1)."""
    measures: str = DEFAULT_MEASURES
    """Measures of flights, with weights: detached (share of agents outside the largest component), variance (of
    velocities), final_variance (the same at the end), leaders (distance to their velocity), collisions (share of
    agents closer than R_min to another), effort (accelerations), residual (accelerations in the last half second),
    peak (the largest acceleration), failures (share of flights that fail), gap (distance between the components of a
    disconnected flock), time (until the end is reached; the full duration if a flight fails)."""
    search: SearchTarget = "weights"
    """Search all weights, one gain per input of each layer, or one gain per channel: far fewer parameters, which need
    far fewer generations."""
    gain_features: str = ""
    """Search only the gains of the channels of these features, such as velocity+leaving. Requires --search gains or
    channels."""
    near: bool = False
    """Search only the second set of weights, used by agents that observe an obstacle. It starts as a copy of the
    network's weights; elsewhere the network is unchanged. For networks with an obstacle channel, such as starling."""
    near_from: str = ""
    """Weights file, or name of bundled weights, from which the second set of weights starts instead, together with its
    orbit technique parameters. If the file has a second set, that one is used. It may have fewer channels, such as a
    training of etdagnn:aggregation=both, and must have the same gain_period or none. Requires --near."""
    last_layer_scale: float = 1.0
    """Factor on the last layer of the initial weights near obstacles: below 1, agents near obstacles accelerate less.
    Requires --near."""
    channel_scales: str = ""
    """Factors on the initial weights near obstacles of channels in the first layer, such as velocity/mean=0.6, or
    several joined by +. Requires --near."""
    gain_period: float | None = None
    """gain_period of the tuned weights and of all flights, such as 0.0225; default: that of the initial weights. A
    longer one is a larger gain. Requires a network with a gain schedule."""
    largest_gain: float | None = None
    """largest_gain of the tuned weights and of all flights; default: that of the initial weights. Requires a network
    with a gain schedule."""
    initial_orbit: str = ""
    """Initial parameters of the orbit technique, such as gravity_break=0.56:near=1.2; the others are those of the
    weights, or the paper's."""
    generations: int = 100
    """Number of generations; a larger number in the same run directory continues a finished search. 0 writes the
    initial weights, with those near obstacles of --near-from."""
    population: int | None = None
    """Candidates per generation; by default 4 + 3 ln n for n parameters: 22 for 560 weights."""
    sigma: float = 0.05
    """Standard deviation of the first candidates, relative to the root mean square of each tensor; absolute for
    gains."""
    covariance: Covariance = "automatic"
    """Adapt all covariances of the parameters, or only their variances; by default all for up to 200 parameters."""
    seed: int = 0
    """Seed of the candidates and the flocks."""
    flocks: int = 10
    """Flocks per task and generation, the same for all candidates; each generation draws new ones."""
    validation_flocks: int = 40
    """Held-out flocks per task that decide which candidate is kept; the same for every seed."""
    validate_every: int = 10
    """Generations between validations of the mean of the candidates' distribution."""
    measurement_interval: float = 0.05
    """Simulated seconds between measurements."""
    orbit: bool = True
    """Also search gravity_break, near and slow of the orbit technique, if a task has obstacles."""

    def __post_init__(self) -> None:
        for name in ("flocks", "validation_flocks", "validate_every"):
            check_count(name, getattr(self, name))
        for name in ("generations", "seed"):
            check_count(name, getattr(self, name), least=0)
        if self.population is not None:
            check_count("population", self.population, least=4)
        for name in ("sigma", "measurement_interval"):
            check_positive(name, getattr(self, name))
        check_choice("search", self.search, get_args(SearchTarget))
        if self.gain_features and self.search == "weights":
            raise InputError("gain_features requires search=gains or search=channels; got search=weights")
        check_choice("covariance", self.covariance, get_args(Covariance))
        parse_measures(self.measures)
        self.make_initial_orbit(None)  # raises InputError if initial_orbit is invalid
        check_positive("last_layer_scale", self.last_layer_scale)
        for name in ("gain_period", "largest_gain"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        if (self.near_from or self.last_layer_scale != 1.0 or self.parsed_channel_scales) and not self.near:
            raise InputError("near_from, last_layer_scale and channel_scales require near")
        if self.near and not self.has_obstacles:
            raise InputError(f"near requires a task with obstacles, such as {EXAMPLE}; got {self.tasks!r:.80}")
        shortest = min(task.duration for task in self.parsed_tasks)
        if self.measurement_interval > shortest:
            raise InputError(
                f"measurement_interval must be at most the duration of every task, {shortest:g} s; "
                f"got {self.measurement_interval:g}"
            )

    @property
    def parsed_tasks(self) -> tuple[Task, ...]:
        """Tasks parsed from `tasks`."""
        return parse_tasks(self.tasks)

    @property
    def measure_weights(self) -> dict[str, float]:
        """Weight of each measure."""
        return parse_measures(self.measures)

    @property
    def features(self) -> tuple[str, ...]:
        """Feature names in `gain_features`."""
        return tuple(self.gain_features.split("+")) if self.gain_features else ()

    @property
    def parsed_channel_scales(self) -> dict[Channel, float]:
        """Factor of each channel in `channel_scales`; raise InputError if the text is invalid."""
        scales: dict[Channel, float] = {}
        for text in self.channel_scales.split("+") if self.channel_scales else ():
            name, _, scale = text.rpartition("=")
            feature, _, aggregation = name.rpartition("/")
            try:
                if aggregation not in get_args(Aggregation):
                    raise ValueError
                scales[feature, cast(Aggregation, aggregation)] = check_positive("a factor", float(scale))
            except ValueError:
                raise InputError(
                    f"channel_scales must be such as velocity/mean=0.6, with factors above 0; got {text!r:.80}"
                ) from None
        return scales

    @property
    def has_obstacles(self) -> bool:
        """Whether a task has obstacles."""
        return any(bool((task.build_scenario(1, 0, "").draw().roles == OBSTACLE).any()) for task in self.parsed_tasks)

    @property
    def tunes_orbit(self) -> bool:
        """Whether orbit parameters are searched."""
        return self.orbit and any(task.build_scenario(1, 0, "").orbit == Orbit() for task in self.parsed_tasks)

    def make_initial_orbit(self, own: Orbit | None) -> Orbit | None:
        """Return the initial orbit technique: `own`, that of the weights, with parameters from `initial_orbit`.

        If `initial_orbit` is empty, return `own`, which may be None. Raise InputError if a parameter is unknown.
        """
        if not self.initial_orbit:
            return own
        try:
            return replace(own or Orbit(), **parse_options(self.initial_orbit))
        except TypeError:
            names = ", ".join(each.name for each in fields(Orbit))
            raise InputError(
                f"initial_orbit must set parameters among {names}; got {self.initial_orbit!r:.80}"
            ) from None

    def is_diagonal(self, size: int) -> bool:
        """Return whether only variances are adapted, for `size` parameters."""
        return size > MAX_FULL_COVARIANCE if self.covariance == "automatic" else self.covariance == "diagonal"

    def is_validation_due(self, generation: int) -> bool:
        """Return whether the mean is validated after this generation: every `validate_every`, and at the last."""
        return generation % self.validate_every == 0 or generation == self.generations

    @property
    def settings(self) -> dict[str, Any]:
        """All fields, JSON-serializable."""
        return asdict(self)

    def format_command(self, controller: str) -> str:
        """Return the command line that tunes a controller with these settings; defaults except the seed are omitted."""
        return f"equiflock tune {shlex.quote(controller)} {format_cli_options(self, ('seed',))}"
