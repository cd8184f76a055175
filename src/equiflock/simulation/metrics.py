"""Metrics of a flock, a moment or a trajectory (section 5 of the paper, "Metrics", and Definition 1).

Each function takes a `Flock` or `Moment` and returns one number per flock, (B,), or a `Trajectory` and returns
(F, B), one per frame and flock. Metrics include leaders, but not obstacle agents. They count the agents that work at
that moment; separation and peak acceleration also include failed agents, which are still in the way. Without working
agents they are 0.

`@metric("name")` registers a function of a moment under a name: those below that take one, and users' own. `get_metric`
finds them for `measures` of scenarios, `simulate(record=...)` and the commands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

import numpy as np
from jaxtyping import Float64

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError, check_choice, shorten_repr
from equiflock._runtime.jit import Array, Index, kernel
from equiflock._runtime.memory import as_read_only
from equiflock._runtime.registry import Registry
from equiflock.flock import Flock, Role
from equiflock.graph import geometry
from equiflock.graph.algebraic_connectivity import compute_algebraic_connectivity
from equiflock.graph.radius_graph import components, label_components, run_over_flocks
from equiflock.protocols import Moment
from equiflock.simulation.trajectory import STATIC_ARRAYS, Trajectory

Subject: TypeAlias = Flock | Moment | Trajectory
MetricValues: TypeAlias = Float64[np.ndarray, "*frames B"]
OverTime = Literal["end", "mean", "integral", "smallest", "largest", "rms"]
"""How the values of a flight become one number: the last, their mean, dt times their sum, the smallest, the largest,
the root of their mean square."""
RESIDUAL_SECONDS = 0.5
"""Seconds at the end of a flight over which `residual_acceleration` is a mean."""
MetricFunction = TypeVar("MetricFunction", bound=Callable[..., Any])


@dataclass(frozen=True)
class Metric:
    """A registered metric; call it with a moment for one number per flock, (B,)."""

    name: str
    function: Callable[[Moment], Any]
    label: str
    """Title of its row or column in tables."""
    over_time: OverTime = "end"
    larger_is_better: bool = False
    is_share: bool = False
    """Whether it is 1 or 0 for a flock, so that tables show the share of flocks instead of a median."""
    of_commands: bool = False
    """Whether it is of commanded accelerations, so that a flight leaves out its last moment, which no step follows."""
    uses_last_step: bool = False
    """Whether it needs `Moment.last_step`, so that a flight leaves out its first moment."""

    @property
    def is_bundled(self) -> bool:
        """Whether it comes with the package, not from a user."""
        return getattr(self.function, "__module__", "").startswith("equiflock.")

    def __call__(self, moment: Moment) -> Float64[np.ndarray, " B"]:
        """Return one number per flock; raise InputError for anything else, NaN, or a share not from 0 to 1."""
        returned, B = self.function(moment), len(moment.flock)
        values = np.asarray(returned)
        if values.shape != (B,) or values.dtype.kind not in "biuf" or np.isnan(values).any():
            raise InputError(
                f"the metric {self.name!r} must return an array of {B} numbers, one per flock, none of them NaN; got "
                f"{shorten_repr(returned)}"
            )
        if self.is_share and ((values < 0) | (values > 1)).any():
            raise InputError(
                f"the metric {self.name!r} is a share: it must be from 0 to 1; got {shorten_repr(returned)}"
            )
        return values.astype(np.float64)

    def summarize(self, run: Trajectory) -> Float64[np.ndarray, " B"]:
        """Return the metric of whole flights, (B,), from the series that `simulate` recorded under its name."""
        return _summarize_series(self, run, run.series[self.name])


METRICS: Registry[Metric] = Registry("metric")


def metric(
    name: str,
    *,
    label: str | None = None,
    over_time: OverTime = "end",
    larger_is_better: bool = False,
    is_share: bool = False,
    of_commands: bool = False,
    uses_last_step: bool = False,
) -> Callable[[MetricFunction], MetricFunction]:
    """Register a metric for `simulate(record=["name"])`, `measures` of scenarios and the command line.

        @ef.metric("polarization", over_time="mean", larger_is_better=True)
        def polarization(moment):
            velocities = moment.flock.velocities  # (B, N, D)
            works = moment.flock.working[..., None]  # without obstacle agents and failed ones
            speeds = np.linalg.norm(velocities, axis=-1, keepdims=True)
            headings = velocities / np.maximum(speeds, 1e-12) * works
            return np.linalg.norm(headings.sum(axis=1) / np.maximum(works.sum(axis=1), 1), axis=-1)  # (B,)

    The function takes a `Moment` and returns an array (B,), one number per flock; it is returned unchanged. Commands
    with this `--plugin` show the metric of whole flights, for which `over_time` takes the values at all moments
    together. Raise InputError if the name is taken or is not made of letters, digits, _ and -, or for the integral of a
    share.

    Args:
        name: its name, and its column in tables.
        label: title of its row or column in tables; default: the first line of the docstring, or the name.
        over_time: "end" for the last value, "mean", "integral" for dt times the sum, "smallest", "largest", or "rms"
            for the root of the mean square.
        larger_is_better: whether comparisons count a larger value as an improvement.
        is_share: whether it is 1 or 0 for a flock, so that tables show the share of flocks instead of a median.
        of_commands: whether it is of commanded accelerations; the last moment of a flight, which no step follows, then
            counts only for "end".
        uses_last_step: whether it compares a moment with `moment.last_step`; the first moment then counts only for
            "end".
    """
    METRICS.check_new_name(name)
    if not re.fullmatch(r"[A-Za-z][\w-]*", name):
        raise InputError(f"the name of a metric must be made of letters, digits, _ and -; got {shorten_repr(name)}")
    check_choice("over_time", over_time, get_args(OverTime))
    if is_share and over_time == "integral":
        raise InputError("over_time of a share must not be 'integral', which is not from 0 to 1: use 'mean'")

    def declare(function: MetricFunction) -> MetricFunction:
        """Register the function and return it; raise InputError if it is none."""
        if not callable(function) or isinstance(function, type):
            raise InputError(f"the metric {name!r} must be a function of a Moment; got {shorten_repr(function)}")
        docstring = (function.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        title = label or docstring or name.replace("_", " ")
        METRICS.parts[name] = Metric(
            name, function, title, over_time, larger_is_better, is_share, of_commands, uses_last_step
        )
        return function

    return declare


def metric_names() -> tuple[str, ...]:
    """Return the names of all metrics of a moment, those of the package first."""
    return METRICS.names()


def get_metric(name: str, argument: str = "") -> Metric:
    """Return the metric of that name; raise InputError, which names the argument, if there is none."""
    return METRICS.find(name, argument)


def format_title(name: str) -> str:
    """Return the title of a metric in tables: its label, and how the values of a flight become one.

    A recorded series that is no metric has its name, and its last value.
    """
    metric = METRICS.parts.get(name)
    return f"{name.replace('_', ' ')}, end" if metric is None else f"{metric.label}, {metric.over_time}"


def list_user_metrics() -> tuple[Metric, ...]:
    """Return the metrics that users registered, which every command shows."""
    return tuple(each for each in METRICS.parts.values() if not each.is_bundled)


@metric("velocity_variance", label="velocity variance")
def velocity_variance(subject: Subject) -> MetricValues:
    """var(v) = (1/N) sum_i |v_i - mean(v)|^2: 0 when all agents fly with the same velocity."""
    flock = _stack_frames(subject)
    return _apply_to_vectors(_compute_variances, subject, flock.velocities, flock.working)


@metric("mean_acceleration_norm", label="mean acceleration norm", of_commands=True)
def mean_acceleration_norm(subject: Moment | Trajectory) -> MetricValues:
    """(1/N) sum_i |a_i| of the commanded accelerations of working agents.

    (F - 1, B) for a trajectory, since no step follows its last frame.
    """
    accelerations = _get_accelerations(subject)
    return _apply_to_vectors(_compute_mean_norms, subject, accelerations, _stack_frames(subject).working)


@metric("rms_acceleration", label="RMS acceleration", over_time="rms", of_commands=True)
def rms_acceleration(subject: Moment | Trajectory) -> MetricValues:
    """sqrt((1/N) sum_i |a_i|^2) of the commanded accelerations of working agents; (F - 1, B) for a trajectory."""
    accelerations = _get_accelerations(subject)
    return _apply_to_vectors(_compute_rms_norms, subject, accelerations, _stack_frames(subject).working)


@metric("peak_acceleration_norm", label="peak acceleration norm", over_time="largest", of_commands=True)
def peak_acceleration_norm(subject: Moment | Trajectory) -> MetricValues:
    """Max over i of |a_i|, failed agents included: the largest command to a body; (F - 1, B) for a trajectory."""
    accelerations = _get_accelerations(subject)
    mask = _stack_frames(subject).roles != Role.OBSTACLE
    return _apply_to_vectors(_compute_largest_norms, subject, accelerations, mask)


@metric("jerk", label="jerk", over_time="rms", of_commands=True, uses_last_step=True)
def jerk(subject: Moment | Trajectory) -> MetricValues:
    """sqrt((1/N) sum_i |a_i(t) - a_i(t - dt)|^2) / dt of the commanded accelerations of working agents.

    It is 0 at the start of a flock. (F - 2, B) for a trajectory, from its second frame to the last but one. Raise
    InputError for a moment without `last_step`, or a trajectory without a frame for every step.
    """
    changes, mask = _compute_change_rates(subject, "accelerations", "jerk")
    return _apply_to_vectors(_compute_rms_norms, subject, changes, mask)


@metric("mean_realised_acceleration_norm", label="mean realised acceleration norm", uses_last_step=True)
def mean_realised_acceleration_norm(subject: Moment | Trajectory) -> MetricValues:
    """(1/N) sum_i |v_i(t) - v_i(t - dt)| / dt of working agents: what bodies did in the step before the moment.

    `mean_acceleration_norm` is of what was commanded. It is 0 at the start of a flock. (F - 1, B) for a trajectory,
    from its second frame on. Raise InputError as `jerk`.
    """
    changes, mask = _compute_change_rates(subject, "velocities", "mean_realised_acceleration_norm")
    return _apply_to_vectors(_compute_mean_norms, subject, changes, mask)


def ivv(run: Trajectory) -> Float64[np.ndarray, " B"]:
    """IVV, the integrated velocity variance: dt sum_{n < T} var(v(t_n)), (B,), over the T steps that a flock flew.

    Raise InputError if the run has neither a frame for every step nor the recorded series `velocity_variance`.
    """
    return _integrate_metric(run, "velocity_variance")


def iman(run: Trajectory) -> Float64[np.ndarray, " B"]:
    """IMAN, the integrated mean acceleration norm: dt sum_{n < T} (1/N) sum_i |a_i(t_n)|, (B,).

    T is the number of steps that a flock flew. Raise InputError if the run has neither a frame for every step nor the
    recorded series `mean_acceleration_norm`.
    """
    return _integrate_metric(run, "mean_acceleration_norm")


def iman_realised(run: Trajectory) -> Float64[np.ndarray, " B"]:
    """IMAN of what bodies did: sum_{n < T} (1/N) sum_i |v_i(t_{n+1}) - v_i(t_n)|, (B,).

    It is the IMAN, to rounding, for a body that executes every command exactly. Raise InputError if the run has neither
    a frame for every step nor the recorded series `mean_realised_acceleration_norm`.
    """
    return _integrate_metric(run, "mean_realised_acceleration_norm")


class Effort(NamedTuple):
    """How hard and how smoothly the agents of each flock were commanded in a flight, each (B,)."""

    rms_acceleration: Float64[np.ndarray, " B"]
    """Root of the mean over steps and agents of |a_i|^2."""
    peak_acceleration: Float64[np.ndarray, " B"]
    """Largest |a_i| of any agent at any step."""
    jerk: Float64[np.ndarray, " B"]
    """Root of the mean over steps and agents of |a_i(t + dt) - a_i(t)|^2 / dt^2; 0 for a flight of one step."""
    residual_acceleration: Float64[np.ndarray, " B"]
    """See `residual_acceleration`."""


EFFORT_METRICS = (mean_acceleration_norm, rms_acceleration, peak_acceleration_norm, jerk)
"""Metrics to record for `effort`."""


def effort(run: Trajectory) -> Effort:
    """Return RMS, peak, jerk and residual of the commanded accelerations over the steps that each flock flew.

    Raise InputError if the run has neither a frame for every step nor the recorded series of `EFFORT_METRICS`.
    """
    rms, peak, changes = (
        _summarize_series(get_metric(name), run, _get_series(run, name))
        for name in ("rms_acceleration", "peak_acceleration_norm", "jerk")
    )
    return Effort(rms, peak, changes, residual_acceleration(run))


def residual_acceleration(run: Trajectory) -> Float64[np.ndarray, " B"]:
    """Mean over agents and the last half second of |a_i|, (B,): near 0 for a settled flock, but not if it oscillates.

    For flights of less than a second it is over the last half. Raise InputError if the run has neither a frame for
    every step nor the recorded series `mean_acceleration_norm`.
    """
    series = _get_series(run, "mean_acceleration_norm")
    window = np.minimum(round(RESIDUAL_SECONDS / run.time_step), -(-run.steps // 2)).clip(1)
    step = np.arange(len(series))[:, None]
    return _mean_where(series, (run.steps - window <= step) & (step < run.steps))


@metric("mean_leader_velocity_distance", label="leader velocity distance (MLVD)")
def mean_leader_velocity_distance(subject: Subject) -> MetricValues:
    """MLVD, the mean leader velocity distance: (1/N) sum_i |v_i - v_L| over working agents, leaders included.

    v_L is the leaders' velocity (the mean, if they differ). Raise InputError if a flock has no working leader.
    """
    flock = _stack_frames(subject)
    leaders = flock.working & (flock.roles == Role.LEADER)
    if not leaders.any(axis=-1).all():
        raise InputError("mean_leader_velocity_distance needs a leader in every flock")
    # v_L, then the mean over all agents of |v_i - v_L|.
    distances = flock.velocities - flock.velocities.mean(axis=-2, where=leaders[..., None], keepdims=True)
    return _apply_to_vectors(_compute_mean_norms, subject, distances, flock.working)


@metric("minimum_separation", label="minimum separation", larger_is_better=True)
def minimum_separation(subject: Subject) -> MetricValues:
    """Min over i != j of |r_ij| (Definition 2), failed agents included; infinite for a single agent."""
    return _apply_to_points(
        _compute_minimum_separations, subject, "positions", geometry.BRUTE_FORCE_SEPARATION_POINTS, include_failed=True
    )


@metric("diameter", label="diameter")
def diameter(subject: Subject) -> MetricValues:
    """Max over i, j of |r_ij|, whose boundedness is the cohesion of Definition 1."""
    return _apply_to_points(_compute_diameters, subject, "positions", geometry.BRUTE_FORCE_DIAMETER_POINTS)


@metric("largest_velocity_difference", label="largest velocity difference")
def largest_velocity_difference(subject: Subject) -> MetricValues:
    """Max over i, j of |v_ij|, whose limit zero is the alignment of Definition 1."""
    return _apply_to_points(_compute_diameters, subject, "velocities", geometry.BRUTE_FORCE_DIAMETER_POINTS)


@metric("component_count", label="components")
def component_count(subject: Subject, comm_radius: float | None = None) -> MetricValues:
    """Number of connected components of the communication graph of working agents, directions ignored.

    `comm_radius` replaces that of the flock or flight.
    """
    # Components are numbered from 0.
    return _unstack_frames(components(_stack_frames(subject), comm_radius).max(axis=1) + 1.0, subject)


@metric("order_parameter", label="order parameter", larger_is_better=True)
def order_parameter(subject: Subject) -> MetricValues:
    """|(1/N) sum_i v_i / |v_i||: 1 if all agents fly in one direction, about 1 / sqrt(N) in random ones (Vicsek).

    Agents that stand have no direction, and add 0.
    """
    flock = _stack_frames(subject)
    speeds = np.linalg.norm(flock.velocities, axis=-1, keepdims=True)
    headings = np.where(flock.working[..., None], flock.velocities / np.where(speeds > 0.0, speeds, 1.0), 0.0)
    agents = np.maximum(flock.working.sum(axis=-1), 1)
    return _unstack_frames(np.linalg.norm(headings.sum(axis=-2), axis=-1) / agents, subject)


@metric("algebraic_connectivity", label="algebraic connectivity", larger_is_better=True)
def algebraic_connectivity(subject: Subject, comm_radius: float | None = None) -> MetricValues:
    """Second-smallest eigenvalue of the Laplacian of the communication graph of working agents, directions ignored.

    0 if the graph is disconnected; the larger, the stronger its weakest cut. `comm_radius` replaces that of the flock
    or flight. It costs about 10 ms for a flock of 100 agents.
    """
    return _unstack_frames(compute_algebraic_connectivity(_stack_frames(subject), comm_radius), subject)


@metric("message_component_count", label="components by messages")
def message_component_count(subject: Moment) -> MetricValues:
    """Number of connected components of working agents, joined by the messages in use now, directions ignored.

    `component_count` depends on positions only; this counts messages that arrived, so a flock that is connected by
    distance can be disconnected for some steps.
    """
    if not isinstance(subject, Moment) or subject.compute_message_graph is None:
        raise InputError(
            f"message_component_count needs a Moment of a flight with messages; got {shorten_repr(subject)}"
        )
    counts: MetricValues = label_components(subject.compute_message_graph(), subject.flock.working).max(axis=1) + 1.0
    return counts


def _integrate_metric(run: Trajectory, name: str) -> Float64[np.ndarray, " B"]:
    """Return dt times the sum of a metric over the steps that each flock flew, (B,).

    The values are those that `simulate` recorded under this name, if any, else computed from the frames. Raise
    InputError if there are neither recorded values nor frames of every step.
    """
    return _integrate_series(get_metric(name), run, _get_series(run, name))


def _integrate_series(metric: Metric, run: Trajectory, series: Array) -> Float64[np.ndarray, " B"]:
    """Return dt times the sum over the steps that each flock flew, from the values (T + 1, B) at all moments."""
    # A value belongs to the step that follows its moment, n < T, or to the step before it.
    values = series[1:] if metric.uses_last_step else series[:-1]
    # A flock that ended early adds nothing after its last step.
    is_flying = np.arange(len(values))[:, None] < run.steps - (metric.of_commands and metric.uses_last_step)
    return np.asarray(run.time_step * values.sum(axis=0, where=is_flying))


def _summarize_series(metric: Metric, run: Trajectory, series: Array) -> Float64[np.ndarray, " B"]:
    """Return one number per flock from the values (T + 1, B) of a metric at all moments, by its `over_time`."""
    if metric.over_time == "end":
        return np.asarray(series[-1])
    if metric.over_time == "integral":
        return _integrate_series(metric, run, series)
    # A flock that ended early keeps its last value, which counts once.
    step = np.arange(len(series))[:, None]
    counted = (step >= metric.uses_last_step) & (step <= run.steps - metric.of_commands)
    if metric.over_time == "mean":
        return _mean_where(series, counted)
    if metric.over_time == "rms":
        return np.asarray(np.sqrt(_mean_where(np.square(series), counted)))
    # Without any value, such as the jerk of one step, it is 0.
    is_smallest = metric.over_time == "smallest"
    extreme = series.min if is_smallest else series.max
    values = extreme(axis=0, where=counted, initial=np.inf if is_smallest else -np.inf)
    return np.asarray(np.where(counted.any(axis=0), values, 0.0))


def _mean_where(values: Array, counted: Array) -> Float64[np.ndarray, " B"]:
    """Return the mean over time of the values that count, (B,), 0 without any; both arrays are (T + 1, B)."""
    return np.asarray(values.sum(axis=0, where=counted) / np.maximum(counted.sum(axis=0), 1))


def _get_series(run: Trajectory, name: str) -> Float64[np.ndarray, "steps B"]:
    """Return the values of a metric of the package at all moments of a flight, (T + 1, B).

    They are those that `simulate` recorded under this name, if any, else computed from the frames, with 0 at the first
    or last moment if the metric has no value there. Raise InputError if there are neither.
    """
    if not isinstance(run, Trajectory):
        raise InputError(f"a metric of a whole flight needs a Trajectory; got a {type(run).__name__}")
    # The recorded series has every step, even if the trajectory has fewer frames.
    if name in run.series:
        return run.series[name]
    if not run.has_every_step:
        raise InputError(f"the run has too few frames for this metric: simulate with record=[metrics.{name}]")
    metric = get_metric(name)
    function: Callable[..., Any] = metric.function
    return np.pad(function(run), ((int(metric.uses_last_step), int(metric.of_commands)), (0, 0)))


def _compute_change_rates(subject: Moment | Trajectory, quantity: str, name: str) -> tuple[Array, Array]:
    """Return the changes per second of agents' "velocities" or "accelerations" in a step, and the mask of working ones.

    (B, N, D) and (B, N) for a moment, of the step before it; all those of a trajectory are stacked as its frames, from
    the second on. Raise InputError for another subject, naming the metric.
    """
    if isinstance(subject, Moment):
        if subject.last_step is None:
            raise InputError(f"{name} needs the step before the moment: use simulate(record=[{name!r}])")
        present = subject.flock.velocities if quantity == "velocities" else subject.accelerations
        return (present - getattr(subject.last_step, quantity)) / subject.time_step, subject.flock.working
    if not isinstance(subject, Trajectory):
        raise InputError(f"{name} needs a Moment or a Trajectory; got {shorten_repr(subject)}")
    if not subject.has_every_step:
        raise InputError(f"{name} needs a frame for every step: simulate with record=[{name!r}], or keep_every=1")
    _, B, N, D = subject.positions.shape
    changes = (np.diff(getattr(subject, quantity), axis=0) / subject.time_step).reshape(-1, N, D)
    return changes, _stack_frames(subject).working[B : B + len(changes)]


def _get_accelerations(subject: Moment | Trajectory) -> Array:
    """Return accelerations (B, N, D), or those of all steps of a trajectory, ((F - 1) * B, N, D)."""
    if not isinstance(subject, (Moment, Trajectory)):
        raise InputError(f"a metric of accelerations needs a Moment or a Trajectory; got {shorten_repr(subject)}")
    return subject.accelerations.reshape(-1, *subject.accelerations.shape[-2:])


def _stack_frames(subject: Subject) -> Flock:
    """Return all frames of a trajectory as one batch of F * B flocks; for a moment or a flock, the flock."""
    if isinstance(subject, Moment):
        return subject.flock
    if isinstance(subject, Flock):
        return subject
    if not isinstance(subject, Trajectory):
        raise InputError(f"a metric needs a Flock, a Moment or a Trajectory; got {shorten_repr(subject)}")
    # Roles, obstacles and groups are the same in every frame.
    frames, B, N, D = subject.positions.shape
    agent_arrays = (
        np.broadcast_to(getattr(subject, name), (frames, B, N)).reshape(-1, N)
        for name in (*STATIC_ARRAYS, "conditions")
    )
    vectors = (array.reshape(-1, N, D) for array in (subject.positions, subject.velocities))
    return Flock.view(*vectors, *agent_arrays, comm_radius=subject.comm_radius)


def _unstack_frames(values: Array, subject: Subject) -> MetricValues:
    """Return the values of stacked frames as (F, B), or (F - 1, B), for a trajectory, else unchanged."""
    return values.reshape(-1, len(subject.steps)) if isinstance(subject, Trajectory) else values


def _apply_to_vectors(measure: Callable[..., None], subject: Subject, vectors: Array, mask: Array) -> MetricValues:
    """Apply a kernel for one vector per agent to all stacked frames on several threads.

    `mask` (F * B, N) selects the agents that count.
    """
    result = np.empty(len(vectors))
    stacked = as_read_only(np.ascontiguousarray(vectors))
    parts = threads.split_flocks(*vectors.shape[:2])
    threads.run_parallel(measure, [(stacked, mask, result, *part) for part in parts])
    return _unstack_frames(result, subject)


def _apply_to_points(
    measure: Callable[..., bool], subject: Subject, vectors: str, pairwise_limit: int, *, include_failed: bool = False
) -> MetricValues:
    """Apply a kernel to the points of all stacked frames: their "positions" or "velocities".

    In flocks of up to `pairwise_limit` agents the kernel compares all pairs. Obstacle agents never count, failed agents
    only with `include_failed`.
    """
    stacked = _stack_frames(subject)
    mask = stacked.roles != Role.OBSTACLE if include_failed else stacked.working
    result = np.empty(len(stacked))
    use_search = True if stacked.shape[1] > pairwise_limit else None
    run_over_flocks(measure, stacked, getattr(stacked, vectors), mask, result, use_search)
    return _unstack_frames(result, subject)


# Kernels over vectors (F * B, N, D) of the flocks first .. last - 1; `mask` (F * B, N) selects the agents that count.


@kernel
def write_squared_deviations(vectors: Array, member: Array, result: Array) -> None:
    """Write |x_i - mean(x)|^2 of each agent into result (B, N); the mean over members, 0 without any."""
    B, N, D = vectors.shape
    for b in range(B):
        count = 0
        for i in range(N):
            count += member[b, i]
            result[b, i] = 0.0
        # Entry by entry, so that loops over agents are vectorised.
        for d in range(D):
            total = 0.0
            for i in range(N):
                total += vectors[b, i, d] if member[b, i] else 0.0
            mean = total / max(count, 1)
            for i in range(N):
                result[b, i] += (vectors[b, i, d] - mean) ** 2


@kernel
def _compute_variances(vectors: Array, mask: Array, result: Array, first: Index, last: Index) -> None:
    """Write the mean over selected agents of |v_i - mean(v)|^2 into result."""
    _, N, D = vectors.shape
    mean = np.empty(D)
    for b in range(first, last):
        selected = mask[b]
        count = max(selected.sum(), 1)
        # mean(v), then the sum of |v_i - mean(v)|^2.
        mean[:] = 0.0
        for i in range(N):
            if selected[i]:
                for d in range(D):
                    mean[d] += vectors[b, i, d]
        mean /= count
        total = 0.0
        for i in range(N):
            if selected[i]:
                for d in range(D):
                    total += (vectors[b, i, d] - mean[d]) ** 2
        result[b] = total / count


@kernel
def _compute_mean_norms(vectors: Array, mask: Array, result: Array, first: Index, last: Index) -> None:
    """Write the mean over selected agents of |v_i| into result."""
    for b in range(first, last):
        norms = _compute_norms(vectors[b], mask[b])
        total = 0.0
        for norm in norms:
            total += norm
        result[b] = total / max(len(norms), 1)


@kernel
def _compute_rms_norms(vectors: Array, mask: Array, result: Array, first: Index, last: Index) -> None:
    """Write the root of the mean over selected agents of |v_i|^2 into result."""
    _, N, D = vectors.shape
    for b in range(first, last):
        total, count = 0.0, 0
        for i in range(N):
            if mask[b, i]:
                count += 1
                for d in range(D):
                    total += vectors[b, i, d] * vectors[b, i, d]
        result[b] = math.sqrt(total / max(count, 1))


@kernel
def _compute_largest_norms(vectors: Array, mask: Array, result: Array, first: Index, last: Index) -> None:
    """Write the largest |v_i| of selected agents, of which there is at least one, into result."""
    for b in range(first, last):
        result[b] = _compute_norms(vectors[b], mask[b]).max()


@kernel
def _compute_norms(vectors: Array, mask: Array) -> Array:
    """Return |v_i| of the selected agents of one flock, from vectors (N, D)."""
    norms, count = np.empty(len(vectors)), 0
    for i in range(len(vectors)):
        if mask[i]:
            square = 0.0
            for d in range(vectors.shape[1]):
                square += vectors[i, d] * vectors[i, d]
            norms[count] = math.sqrt(square)
            count += 1
    return norms[:count]


@kernel
def _select_members(vectors: Array, mask: Array) -> Array:
    """Return the vectors of the selected agents of one flock, from vectors (N, D)."""
    points = np.empty(vectors.shape)
    count = 0
    for i in range(len(vectors)):
        if mask[i]:
            for d in range(vectors.shape[1]):
                points[count, d] = vectors[i, d]
            count += 1
    return points[:count]


@kernel
def _compute_minimum_separations(
    vectors: Array, mask: Array, result: Array, use_search: Any, first: Index, last: Index
) -> bool:
    """Write the least distance in each flock into result, infinity for one point; `use_search` = None tests all pairs.

    Return True, as `run_over_flocks` expects.
    """
    for b in range(first, last):
        points = _select_members(vectors[b], mask[b])
        # Numba compiles only the branch for the type of use_search.
        if use_search is None:
            result[b] = math.sqrt(geometry.squared_distance_range(points)[0])
        else:
            result[b] = geometry.minimum_separation(points)
    return True


@kernel
def _compute_diameters(vectors: Array, mask: Array, result: Array, use_search: Any, first: Index, last: Index) -> bool:
    """Write the largest distance in each flock into result, 0 for one point; `use_search` = None compares all pairs.

    Return True, as `run_over_flocks` expects.
    """
    for b in range(first, last):
        points = _select_members(vectors[b], mask[b])
        if use_search is None:
            result[b] = math.sqrt(geometry.squared_distance_range(points)[1])
        else:
            result[b] = geometry.diameter(points)
    return True
