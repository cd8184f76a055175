"""Profiles of a report card: which rows and disturbances it has, and how many flocks fly them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from equiflock.evaluation.card_conditions import DRONE_STEP, DRONES, Condition, Disturbance, SuccessRule

EXPERT = "tanner-bounded"
"""The expert that has 1 in the score: it sees all agents, and is calm at every time step of a card."""
LAWS = ("reynolds", "tanner-dynamic")
"""Classical laws, of which the one with the lowest success rate in a row has 0 there."""
DEFAULT_BASELINES = ("etdagnn",)
AGENTS = 100
"""Number of agents where a row does not say otherwise."""
FAIL_TIME = 1.0
"""Time at which agents fail, in seconds."""
LOSS_OF_BURSTS = 0.2
"""Packet loss at which the length of bursts varies."""


@dataclass(frozen=True)
class CardProfile:
    """Rows and disturbances of a card."""

    name: str
    rows: tuple[Condition, ...]
    disturbances: tuple[Disturbance, ...]

    def with_seed(self, seed: int) -> CardProfile:
        """Return the profile with other random flocks, radios and failures."""
        if seed == 0:
            return self
        disturbances = (replace(each, base=_set_seed(each.base, seed)) for each in self.disturbances)
        return replace(self, rows=tuple(_set_seed(row, seed) for row in self.rows), disturbances=tuple(disturbances))


def _set_seed(condition: Condition, seed: int) -> Condition:
    """Return the condition with another seed of flocks, radio, failures and body."""
    environment = dict(condition.environment)
    environment |= {"radio_seed": seed, "fail_seed": seed}
    if "gust" in environment:
        environment["body_seed"] = seed
    return replace(condition, seed=seed, environment=tuple(environment.items()))


def _make_row(
    name: str,
    group: str,
    title: str,
    flocks: int,
    *,
    agents: int | None = AGENTS,
    scenario: str = "flocking",
    success: SuccessRule = "settled",
    time_step: float = 0.01,
    duration: float = 3.0,
    options: dict[str, Any] | None = None,
    **environment: Any,
) -> Condition:
    """Return a row; further arguments are options of the environment."""
    options = ({} if agents is None else {"agents": agents}) | (options or {})
    return Condition(
        name,
        group,
        title,
        scenario,
        tuple(options.items()),
        tuple(environment.items()),
        time_step,
        duration,
        flocks,
        success,
    )


def _make_flocking_rows(
    flocks: int, sizes: Sequence[int], scales: Sequence[float], steps: Sequence[float]
) -> list[Condition]:
    """Return the rows of flocks of other sizes, densities and time steps; large flocks are fewer, as they vary less."""
    rows = [
        _make_row(f"agents={N}", "Flock size", f"{N:,} agents", max(flocks * 200 // max(N, 200), 4), agents=N)
        for N in sizes
    ]
    for scale in scales:
        title = f"disk {scale:g} times as wide"
        rows.append(_make_row(f"scale={scale:g}", "Density", title, flocks, options={"disk_scale": scale}))
    rows += [_make_row(f"dt={step:g}", "Time step", f"{1000 * step:g} ms", flocks, time_step=step) for step in steps]
    return rows


def _make_task_rows(
    flocks: int, leaders: Sequence[int], sides: Sequence[int], courses: int, long_flocks: int
) -> list[Condition]:
    """Return the rows of other tasks: `courses` flights past obstacles or of merging flocks, `long_flocks` of 60 s."""

    def make(name: str, title: str, count: int, **further: Any) -> Condition:
        return _make_row(name, "Tasks", title, count, **further)

    past: dict[str, Any] = {"success": "outcome"}
    rows = []
    for count in leaders:
        title = "1 leader" if count == 1 else f"{count} leaders"
        rows.append(
            make(f"leaders={count}", title, flocks, scenario="leaders", success="led", options={"leaders": count})
        )
    for count in sides:
        title = f"obstacle of {count} sides"
        options = {"sides": count}
        rows.append(
            make(f"sides={count}", title, courses, scenario="obstacles", duration=20.0, options=options, **past)
        )
    return [
        *rows,
        make("corridor", "corridor", courses, agents=None, scenario="corridor", duration=30.0, **past),
        make("merging", "two flocks merge", courses, scenario="merging", duration=10.0, **past),
        make("space", "three dimensions", flocks, options={"dimensions": 3}),
        make("long", "60 s", long_flocks, agents=50, duration=60.0),
    ]


def _make_environment_rows(flocks: int, drones: int) -> list[Condition]:
    """Return the rows of other radios, bodies and failures; `drones` is the number of flocks of quadrotors."""
    settings: dict[str, dict[str, dict[str, Any]]] = {
        "Radio": {
            "20% packet loss": {"packet_loss": 0.2},
            "20% loss in bursts of 5 steps": {"packet_loss": LOSS_OF_BURSTS, "burst": 5.0},
            "1 step of delay": {"delay": 1},
            "up to 2 steps of jitter": {"jitter": 2},
            "noise of 0.02 R": {"noise": 0.02},
            "12 bits per number": {"quantization": 12},
        },
        "Body": {
            "acceleration at most 30": {"max_acceleration": 30.0},
            "speed at most 4": {"top_speed": 4.0},
            "20 ms of lag": {"lag": 0.02},
            "gusts of 2": {"gust": 2.0},
            "unicycle, 20 rad/s": {"body": "unicycle", "max_turn_rate": 20.0},
        },
        # Others do not receive from silent agents either, so these would fly as past stopped ones.
        "Failures": {
            f"10 agents {kind}": {"fail": 10, "fail_kind": kind, "fail_time": FAIL_TIME}
            for kind in ("stopped", "drifting")
        },
    }
    rows = {
        group: [_make_row(title, group, title, flocks, **options) for title, options in titles.items()]
        for group, titles in settings.items()
    }
    flight: dict[str, Any] = {"agents": None, "scenario": DRONES, "time_step": DRONE_STEP, "duration": 20.0}
    body: dict[str, Any] = {"body": "quadrotor", "max_acceleration": 2.7, "top_speed": 2.0}
    rows["Body"].append(
        _make_row("quadrotors", "Body", "30 quadrotors", drones, options={"drones": 30}, **flight, **body)
    )
    return [row for group in rows.values() for row in group]


def _make_disturbances(flocks: int, duration: float) -> dict[str, Disturbance]:
    """Return all disturbances by name, with `flocks` flights at each level."""

    def make_base(title: str, **environment: Any) -> Condition:
        return _make_row(title, "Breakpoints", title, flocks, duration=duration, **environment)

    def make(name: str, option: str, mild: float, hard: float, unit: str = "", **further: Any) -> Disturbance:
        environment = further.pop("environment", {})
        title = name.replace("-", " ")
        return Disturbance(name, title, option, make_base(title, **environment), mild, hard, unit, **further)

    logarithmic, whole = {"is_logarithmic": True}, {"is_whole": True}
    found = [
        make("time-step", "time_step", 0.002, 0.1, "ms", **logarithmic),
        make("packet-loss", "packet_loss", 0.0, 0.96, "%"),
        make("delay", "delay", 0, 20, "steps", **whole),
        make("jitter", "jitter", 0, 20, "steps", **whole),
        make("burst-length", "burst", 2.0, 64.0, "steps", environment={"packet_loss": LOSS_OF_BURSTS}, **logarithmic),
        make("noise", "noise", 0.001, 0.5, "R", **logarithmic),
        make("quantization", "quantization", 32, 10, "bits", **whole),
        make("acceleration-limit", "max_acceleration", 300.0, 1.0, "R/s²", **logarithmic),
        make("speed-limit", "top_speed", 10.0, 0.5, "R/s", **logarithmic),
        make("lag", "lag", 0.001, 0.3, "ms", **logarithmic),
        make("gusts", "gust", 0.1, 100.0, "R/s²", **logarithmic),
        make("turn-rate", "max_turn_rate", 300.0, 1.0, "rad/s", environment={"body": "unicycle"}, **logarithmic),
        make("initial-speed", "max_speed", 1.0, 30.0, "R/s", **logarithmic),
        make("failed-agents", "fail", 0, 80, "agents", environment={"fail_time": FAIL_TIME}, **whole),
    ]
    return {each.name: each for each in found}


def _make_quick_profile() -> CardProfile:
    """Return the profile of two minutes."""
    rows = (
        *_make_flocking_rows(24, (5, 12, 25, 50, 100, 400), (0.7, 1.1), (0.001, 0.005, 0.02, 0.05)),
        *_make_task_rows(24, leaders=(2,), sides=(12, 48), courses=16, long_flocks=8),
        *_make_environment_rows(24, drones=4),
    )
    names = (
        *("time-step", "packet-loss", "delay", "noise"),
        *("acceleration-limit", "lag", "initial-speed", "failed-agents"),
    )
    disturbances = _make_disturbances(80, 2.0)
    return CardProfile("quick", rows, tuple(disturbances[name] for name in names))


def _make_full_profile() -> CardProfile:
    """Return the profile of half an hour."""
    sizes, scales = (5, 12, 25, 50, 100, 200, 400, 800, 1600, 3200), (0.6, 0.8, 1.0, 1.1, 1.2)
    rows = (
        *_make_flocking_rows(100, sizes, scales, (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05)),
        *_make_task_rows(100, leaders=(1, 2, 5, 10), sides=(3, 6, 12, 24, 48, 96), courses=100, long_flocks=40),
        *_make_environment_rows(100, drones=20),
    )
    return CardProfile("full", rows, tuple(_make_disturbances(200, 3.0).values()))


PROFILES = {profile.name: profile for profile in (_make_quick_profile(), _make_full_profile())}
