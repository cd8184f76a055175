"""What would remove two limits of starling: experiments on flocks of no test, training or tuning.

python benchmarks/starling_limits.py               # both, about four minutes on one core
python benchmarks/starling_limits.py curves        # a gain that depends on the error, for led flocks
python benchmarks/starling_limits.py delay         # messages that are late, or that predict the time of their arrival

A curve F:U:C replaces the network's output u, before its gain schedule, by

    u' = clamp(u f(|u|), C),        f = 1 + (F - 1) |u|^2 / (|u|^2 + U^2)

so f is 1 near equilibrium and F for large errors, and |u'| is at most C. At 0.01 s the schedule multiplies by 2.25, so
C = 89 is a limit of 200 on accelerations. The result is equivariant and local. The columns are the led flocks that end
disconnected after 3 s at 0.01 s, the median and the largest of their peak accelerations, and the residual acceleration
after 4 s at 0.02 s with the gain times 1.3.

A sender that decides before it sends knows the state that it will have when its message arrives, if its body obeys.
Messages with that state are at best as good as a radio without delay.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import equiflock as ef
from equiflock.controllers.gain_schedule import GainSchedule, compute_gain
from equiflock.features import Senses
from equiflock.observations.orbit import Orbit
from equiflock.scenarios import make_scenario
from equiflock.simulation import metrics
from equiflock.simulation.environment import Environment
from equiflock.simulation.flight_jobs import fly
from equiflock.statistics import estimate, estimate_flock_share

SPLIT = "output curves"
"""Split of the flocks: neither training, tuning nor test flocks."""
SEEDS = 5
CURVES = ("1:20:1000", "1:20:89", "2:20:89", "1.5:8:89", "1.7:8:89", "1.4:2:89", "1.4:0.1:89")
LED_FLOCKS, MARGIN = 200, 1.3
MARGIN_FLOCKS = {12: 20, 100: 6, 1600: 1}
LIMITED: Mapping[str, float] = {"packet_loss": 0.2, "max_acceleration": 30.0}
ENVIRONMENTS: Mapping[str, Mapping[str, float]] = {
    "ideal": {},
    "accelerations up to 30": {"max_acceleration": 30.0},
    "and 20% packet loss": LIMITED,
    "and one step of delay": {**LIMITED, "delay": 1},
}
DELAY_FLOCKS = {12: 200, 25: 100, 50: 100, 100: 50, 400: 10, 1600: 2}


@dataclass(frozen=True)
class CurvedNetwork:
    """A network with a curve on the norm of its output."""

    network: Any
    strength: float
    knee: float
    limit: float
    gain: float = 1.0
    """Factor on the result: that of the gain schedule in flights."""

    @property
    def senses(self) -> Senses:
        senses: Senses = self.network.senses
        return senses

    @property
    def orbit(self) -> Orbit | None:
        orbit: Orbit | None = self.network.orbit
        return orbit

    @property
    def gain_schedule(self) -> GainSchedule | None:
        schedule: GainSchedule | None = self.network.gain_schedule
        return schedule if self.gain == 1.0 else None

    def scale_output(self, factor: float) -> CurvedNetwork:
        """Return the controller with its accelerations multiplied by a factor."""
        return replace(self, gain=self.gain * factor)

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        output = np.asarray(self.network(observations), np.float64)
        norm = np.sqrt(np.square(output).sum(axis=-1, keepdims=True))
        square = np.square(norm)
        factor = 1.0 + (self.strength - 1.0) * square / (square + self.knee**2)
        factor = np.minimum(factor, self.limit / np.maximum(norm, 1e-9))
        result: NDArray[np.float64] = self.gain * factor * output
        return result


def load_trainings() -> list[Any]:
    """Return the five trainings of starling."""
    return [ef.load(f"starling:{seed}") for seed in range(SEEDS)]


def fly_led(curve: CurvedNetwork, flocks: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return whether each led flock ends disconnected, as 0 or 1, and its peak acceleration."""
    scenario = make_scenario("leaders", {"flocks": flocks, "split": SPLIT})
    record = [metrics.peak_acceleration_norm]
    run = fly(scenario, scenario.draw(), curve, 0.01, 3.0, keep_every=None, record=record)
    return _find_disconnected(run), run.series["peak_acceleration_norm"].max(axis=0)


def fly_free(
    controller: Any, agents: int, flocks: int, environment: Environment
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return whether each flock ends disconnected after 4 s at 0.02 s, as 0 or 1, and its residual acceleration."""
    scenario = make_scenario("flocking", {"agents": agents, "flocks": flocks, "split": SPLIT})
    options: dict[str, Any] = {"keep_every": None, "record": [metrics.mean_acceleration_norm]}
    run = fly(scenario, scenario.draw(), controller, 0.02, 4.0, environment, **options)
    return _find_disconnected(run), run.series["mean_acceleration_norm"][-26:-1].mean(axis=0)


def _find_disconnected(run: ef.Trajectory) -> NDArray[np.float64]:
    return (metrics.component_count(run.flock(), run.comm_radius) > 1).astype(float)


def print_curves(curves: list[str]) -> None:
    """Print a row per curve."""
    sizes = "".join(f" | residual, N = {agents:,}" for agents in MARGIN_FLOCKS)
    print(f"| F:U:C | led, disconnected | peak, median | largest{sizes} |")
    print("|---|" + "--:|" * (3 + len(MARGIN_FLOCKS)))
    for text in curves:
        strength, knee, limit = (float(number) for number in text.split(":"))
        networks = [CurvedNetwork(network, strength, knee, limit) for network in load_trainings()]
        led = [fly_led(network, LED_FLOCKS) for network in networks]
        disconnected, peaks = (np.array(values) for values in zip(*led, strict=True))
        cells = [estimate_flock_share(disconnected).percent, f"{estimate(peaks).value:.0f}", f"{peaks.max():.0f}"]
        scaled = [network.scale_output(compute_gain(network, 0.02) * MARGIN) for network in networks]
        for agents, flocks in MARGIN_FLOCKS.items():
            residuals = [fly_free(network, agents, flocks, Environment())[1] for network in scaled]
            cells.append(f"{np.median(residuals):.2g}")
        print(f"| {text} | " + " | ".join(cells) + " |", flush=True)


def print_delay() -> None:
    """Print a row per environment: disconnected flocks and the median residual acceleration of each size."""
    print("\n| at 0.02 s | " + " | ".join(f"N = {agents:,}" for agents in DELAY_FLOCKS) + " |")
    print("|---|" + "--:|" * len(DELAY_FLOCKS))
    for title, settings in ENVIRONMENTS.items():
        environment, cells = Environment.from_options(**settings), []
        for agents, flocks in DELAY_FLOCKS.items():
            flights = [fly_free(network, agents, flocks, environment) for network in load_trainings()]
            disconnected, residuals = (np.array(values) for values in zip(*flights, strict=True))
            cells.append(f"{estimate_flock_share(disconnected).percent}; {estimate(residuals).value:.2g}")
        print(f"| {title} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="curves|delay", help="default: both")
    parser.add_argument("--curve", action="append", metavar="F:U:C", help="fly this curve instead; may be repeated")
    options = parser.parse_args()
    tables = options.tables or ["curves", "delay"]
    if wrong := set(tables) - {"curves", "delay"}:
        parser.error(f"a table must be curves or delay; got {sorted(wrong)[0]!r}")
    if "curves" in tables:
        print_curves(options.curve or list(CURVES))
    if "delay" in tables:
        print_delay()


if __name__ == "__main__":
    main()
