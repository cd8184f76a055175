"""Conditions under which a report card flies controllers: its rows, and the disturbances whose breakpoints it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float64

from equiflock.flock import Flock
from equiflock.scenarios.drone_start import draw_drones
from equiflock.scenarios.registry import Scenario, find_failed_flights, make_scenario
from equiflock.simulation.environment import Environment, describe_environment
from equiflock.simulation.flight_jobs import fly
from equiflock.simulation.metrics import component_count, mean_leader_velocity_distance, velocity_variance
from equiflock.simulation.trajectory import Trajectory

SuccessRule: TypeAlias = Literal["settled", "led", "outcome"]
SETTLED_SHARE = 0.01
"""Share of its initial value below which the final velocity variance of a settled flock is."""
LED_SHARE = 0.1
"""Share of its initial value below which the final leader velocity distance of a led flock is."""
SUCCESS_TEXTS: Mapping[SuccessRule, str] = {
    "settled": "at its end the working agents are connected and their velocity variance is below 1% of the initial one",
    "led": "at its end the working agents are connected and their mean distance to the leaders' velocity is below 10% "
    "of the initial one",
    "outcome": "it ends as the scenario asks",
}
"""What counts as a success: ends the sentence "A flight succeeds if"."""
SPLIT = "report card"
"""Set of initial conditions, which no training, tuning or reproduction uses."""
DRONES = "drones"
"""Start of quadrotors in metres and seconds, in place of a scenario."""
DRONE_RADIUS, DRONE_TIME_SCALE, DRONE_STEP = 5.0, 25.0, 0.02
"""Communication radius in metres, seconds per second of the controller, and time step of the drones."""


@dataclass(frozen=True)
class Condition:
    """Everything about flights but the controller: scenario, environment, times, and what is a success."""

    name: str
    """Unique in a card, such as "agents=12"."""
    group: str
    """Section of the card, such as "Flock size"."""
    title: str
    """Such as "12 agents"."""
    scenario: str = "flocking"
    """Name of the scenario, without options, or "drones"."""
    options: tuple[tuple[str, Any], ...] = ()
    """Options of the scenario."""
    environment: tuple[tuple[str, Any], ...] = ()
    """Options of `Environment.from_options`."""
    time_step: float = 0.01
    duration: float = 3.0
    flocks: int = 40
    success: SuccessRule = "settled"
    seed: int = 0

    @property
    def units(self) -> dict[str, float]:
        """Options of a controller that scale it to these flights; none in units of R = 1."""
        return {"comm_radius": DRONE_RADIUS, "time_scale": DRONE_TIME_SCALE} if self.scenario == DRONES else {}

    @property
    def agents(self) -> int:
        """Number of agents of a flock, without obstacles."""
        options = dict(self.options)
        if self.scenario == DRONES:
            return int(options["drones"])
        scenario: Any = self.made_scenario
        return int(options.get("agents", scenario.disk.agents))

    @property
    def start_key(self) -> str:
        """Text that is equal for conditions with the same flocks at t = 0."""
        return f"{self.scenario} {self.options} {self.flocks} {self.seed}"

    @property
    def expert_options(self) -> str:
        """Options of the expert in these flights, as text after its name."""
        return ":aim=leaders" if self.success == "led" else ""

    @property
    def has_expert(self) -> bool:
        """Whether the expert's law models these flights; it knows no obstacles and no walls."""
        return self.success != "outcome"

    @cached_property
    def made_scenario(self) -> Scenario:
        """The scenario with its options; that of drones is plain flocking."""
        if self.scenario == DRONES:
            return make_scenario("flocking")
        options: dict[str, Any] = {"split": SPLIT, "seed": self.seed, "flocks": self.flocks} | dict(self.options)
        return make_scenario(self.scenario, **options)

    @cached_property
    def made_environment(self) -> Environment:
        """The environment with its options."""
        return Environment.from_options(**dict(self.environment))

    @property
    def settings(self) -> str:
        """Scenario, options, environment, time step and duration in one line."""
        return self.describe()

    def describe(self, has_time_step: bool = True) -> str:
        """Return the settings in one line, without the time step if a disturbance sets it."""
        options = [f"{name} {value}" for name, value in self.options]
        times = [*([f"time step {self.time_step:g} s"] if has_time_step else []), f"{self.duration:g} s"]
        environment = describe_environment(self.made_environment)
        return ", ".join([self.scenario, *options, *times, *([environment] if environment else [])])

    def draw_start(self) -> Flock:
        """Draw the flocks at t = 0, the same in every call."""
        if self.scenario == DRONES:
            return draw_drones(self.flocks, seed=self.seed, comm_radius=DRONE_RADIUS, split=SPLIT, **dict(self.options))
        return self.made_scenario.draw()

    def fly(self, controller: Any, start: Flock, **simulate_options: Any) -> Trajectory:
        """Fly flocks of `draw_start` under a controller."""
        flight = self.made_scenario, start, controller, self.time_step, self.duration, self.made_environment
        return fly(*flight, **simulate_options)

    def find_successes(self, start: Flock, run: Trajectory) -> Bool[np.ndarray, " B"]:
        """Return the mask of flights that succeeded."""
        if self.success == "outcome":
            return ~find_failed_flights(self.made_scenario, run.outcome)
        last = run.flock()
        connected = component_count(last) == 1.0
        if self.success == "led":
            distances = (mean_leader_velocity_distance(flock) for flock in (last, start))
            return np.asarray(connected & _is_below(LED_SHARE, *distances))
        return np.asarray(connected & _is_below(SETTLED_SHARE, velocity_variance(last), velocity_variance(start)))

    def explain_failure(self, run: Trajectory) -> str:
        """Return why a single flight failed, as text such as " (2 components)"."""
        if self.success == "outcome":
            return f" ({run.outcome[0].name.replace('_', ' ').lower()})"
        components = int(component_count(run.flock())[0])
        return f" ({components} components)" if components > 1 else " (not settled)"


def _is_below(share: float, values: Float64[np.ndarray, " B"], initial: Float64[np.ndarray, " B"]) -> Any:
    """Return the mask of finite values below a share of the initial ones."""
    return np.isfinite(values) & (values < share * initial)


@dataclass(frozen=True)
class Disturbance:
    """A setting that is worsened until flocks fail: levels from the mild end of a range to its hard end."""

    name: str
    """Such as "packet-loss"."""
    title: str
    """Such as "packet loss"."""
    option: str
    """Option of the scenario or the environment that the level sets, or "time_step"."""
    base: Condition
    """The flights, with all other settings."""
    mild: float
    hard: float
    """Ends of the range; the hard one may be the smaller number."""
    unit: str = ""
    """Text after a level; "%" multiplies it by 100."""
    is_logarithmic: bool = False
    """Whether levels are in equal ratios."""
    is_whole: bool = False
    """Whether levels are whole numbers, all of the range."""
    level_count: int = 49
    """Number of levels, if they are not whole numbers."""

    @cached_property
    def levels(self) -> tuple[float, ...]:
        """Levels from mild to hard; equal steps, equal ratios, or all whole numbers."""
        if self.is_whole:
            mild, hard = round(self.mild), round(self.hard)
            return tuple(range(mild, hard + 1) if mild < hard else range(mild, hard - 1, -1))
        grid = np.linspace(0.0, 1.0, self.level_count)
        if self.is_logarithmic:
            # Three figures, so that the printed level is the one that is flown.
            levels = (self.mild * (self.hard / self.mild) ** share for share in grid)
        else:
            levels = (self.mild + (self.hard - self.mild) * share for share in grid)
        return tuple(float(f"{level:.3g}") for level in levels)

    @property
    def settings(self) -> str:
        """Settings that all levels share, in one line; of failures, those of one failed agent."""
        base = self.apply(1) if self.option == "fail" else self.base
        return base.describe(has_time_step=self.option != "time_step")

    def apply(self, level: float) -> Condition:
        """Return the condition at a level."""
        if self.option == "time_step":
            return replace(self.base, time_step=level)
        if self.option in ENVIRONMENT_OPTIONS:
            return replace(self.base, environment=(*self.base.environment, (self.option, level)))
        return replace(self.base, options=(*self.base.options, (self.option, level)))

    def format_level(self, level: float) -> str:
        """Return a level as text, with its unit."""
        if self.unit == "%":
            return f"{100.0 * level:.3g}%"
        if self.unit == "ms":
            return f"{1000.0 * level:.3g} ms"
        if self.is_whole and self.unit.endswith("s") and level == 1:
            return f"1 {self.unit.removesuffix('s')}"
        return f"{level:.3g} {self.unit}".strip()


ENVIRONMENT_OPTIONS = frozenset(
    (
        *("packet_loss", "burst", "delay", "jitter", "noise", "quantization"),
        *("max_acceleration", "top_speed", "lag", "gust", "max_turn_rate", "fail"),
    )
)
"""Options that a disturbance sets in the environment; others are those of the scenario."""
