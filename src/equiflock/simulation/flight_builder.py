"""Builds flights from their parts, with defaults for the parts that a caller omits."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from equiflock._runtime.checks import InputError, TimeStepWarning, check_positive, shorten_repr
from equiflock.controllers.gain_schedule import as_sampled_function, compute_gain, describe_long_time_step
from equiflock.controllers.safe import unwrap_safe
from equiflock.controllers.safety_limits import SafetyLimits, get_safety_limits
from equiflock.features import Senses
from equiflock.flock import Flock, check_comm_radius
from equiflock.observations.aggregation import DelayedAggregation, Obstacles
from equiflock.observations.orbit import Orbit
from equiflock.observations.radio import Radio
from equiflock.protocols import AnyBody, Controller, Ending, FusedStep, Sensing
from equiflock.simulation.body_motion import BodyState
from equiflock.simulation.environment import Environment, apply_shorthands
from equiflock.simulation.failures import Failures
from equiflock.simulation.flight import DecisionFunction, Flight
from equiflock.simulation.fused_step import make_fused_step
from equiflock.simulation.memory_order import MemoryOrder
from equiflock.simulation.safety_filter import SafetyFilter


class DecisionFunctions(NamedTuple):
    """A controller as a flight calls it."""

    decide: DecisionFunction
    """Function of the flock and its observations."""
    compiled: object | None
    """Compiled form, which accepts agents in any order; None if there is none."""


def flight(
    start: Flock,
    controller: Controller | None,
    *,
    time_step: float = 0.01,
    comm_radius: float | None = None,
    senses: Senses | None = None,
    environment: Environment | None = None,
    body: AnyBody | None = None,
    ending: Ending | None = None,
    orbit: Orbit | None = None,
    obstacles: Obstacles = "nearest",
    radio: Radio | None = None,
    failures: Failures | None = None,
    body_state: BodyState | None = None,
    safety: SafetyLimits | None = None,
) -> Flight:
    """Return a flight: `for moment in flight(start, controller): ...`, endless unless the ending ends every flock.

    Args:
        start: the flock at t = 0.
        controller: such as `load("tanner")`; None if the caller provides accelerations by `Flight.step`.
        time_step: dt, in seconds.
        comm_radius: R; default: that of `start`.
        senses: observations of the agents; default: those that the controller declares, from which only the topology
            may differ. Required without a controller.
        environment: radio, body and failures; default: the paper's, see `Environment`.
        body: shorthand for that part of the environment, as are `radio` and `failures`.
        ending: decides at every moment which flocks have ended; None: the flight is endless.
        orbit: orbit technique by which followers avoid obstacles; None: obstacle agents only stand still.
        obstacles: obstacle agents within R from which a follower receives messages: the "nearest" or "all".
        radio: see `body`.
        failures: see `body`.
        body_state: body state of the agents of `start`, such as `run.body_state_at(-1)` of a saved flight.
        safety: limits that the agents keep; default: those of a `Safe` controller. Without a controller they change
            nothing, but `Flight.safety` can apply them.
    """
    # The controller declares the senses, unless the caller overrides them.
    if controller is not None:
        check_controller(controller)
        declared = controller.senses
        senses = declared if senses is None else senses
        # The controller can fly with another topology, but not with other channels, hops or units.
        if isinstance(senses, Senses) and _get_observation_spec(senses) != _get_observation_spec(declared):
            raise InputError(f"the controller needs the channels, hops and units of {declared}; got {senses}")
        if (text := describe_long_time_step(controller, check_positive("time_step", time_step))) is not None:
            warnings.warn(text, TimeStepWarning, stacklevel=2)
    elif senses is None:
        raise InputError("a flight without a controller needs senses, such as equiflock.paper_senses()")
    if not isinstance(start, Flock):
        raise InputError(f"start must be a Flock of at least one flock; got {shorten_repr(start)}")
    # The arrays do not depend on R, so another R needs no new check of them.
    if comm_radius is not None:
        start = Flock.view(*start.arrays, comm_radius=check_comm_radius(comm_radius))
    environment = apply_shorthands(environment, radio=radio, body=body, failures=failures)
    body, failures = environment.body, None if environment.failures.is_empty else environment.failures
    sensing = DelayedAggregation(senses, orbit=orbit, obstacles=obstacles, radio=environment.radio)
    latency = environment.radio.latency
    decide, compiled = (None, None) if controller is None else make_decision_function(controller, time_step, latency)
    limits = get_safety_limits(controller) if safety is None else safety
    safety_filter = None if limits is None else _make_safety_filter(limits, start, senses, time_step, environment.radio)
    # Cell order saves time only without an ending, which would need the caller's order at every step.
    is_plain = ending is None and failures is None and safety_filter is None
    is_worthwhile = compiled is not None and is_plain and MemoryOrder.is_worthwhile(start)
    order = MemoryOrder(sensing, start.shape[1]) if is_worthwhile else None
    # Fused steps support neither failed agents nor limits.
    can_fuse = failures is None and safety_filter is None
    fused = _make_fused_step(controller, compiled, sensing, body) if can_fuse else None
    parts: dict[str, Any] = {
        "ending": ending,
        "order": order,
        "fused": fused,
        "failures": failures,
        "safety": safety_filter,
    }
    return Flight(start, sensing, decide, body, time_step=time_step, body_state=body_state, **parts)


def change_controller(flying: Flight, controller: Controller) -> None:
    """Use another controller from the next moment on; the step that is already commanded is still executed.

    The state of the senses is kept if hop count, channel count and units are unchanged. The topology is that of the new
    controller. Raise InputError if the flight has senses other than `DelayedAggregation`, or if flight or controller
    have limits.
    """
    check_controller(controller)
    sensing = flying.sensing
    if flying.safety is not None or get_safety_limits(controller) is not None:
        raise InputError("a flight with limits keeps its controller: start another flight")
    if not isinstance(sensing, DelayedAggregation):
        raise InputError(
            f"only a flight with DelayedAggregation can change its controller; got {shorten_repr(sensing)}"
        )
    decide, compiled = make_decision_function(controller, flying.time_step, sensing.radio.latency)
    sensing.set_senses(controller.senses)
    flying.set_controller(decide, _make_fused_step(controller, compiled, sensing, flying.body), compiled is not None)


def _get_observation_spec(senses: Senses) -> tuple[Any, ...]:
    """Return the fields of observations that must match; the topology may differ."""
    return senses.channels, senses.hops, senses.length_scale, senses.time_scale


def _make_fused_step(controller: object, network: object | None, sensing: Sensing, body: AnyBody) -> FusedStep | None:
    """Return the fused step of the controller's `make_fused_step`, if any, else of the compiled network.

    None if this combination is unsupported.
    """
    # A controller may provide its own, such as the mixture of expert and student in training.
    factory: Callable[[Sensing, AnyBody], FusedStep | None] | None = getattr(controller, "make_fused_step", None)
    if factory is not None:
        return factory(sensing, body)
    return None if network is None else make_fused_step(sensing, network, body)


def _make_safety_filter(
    limits: SafetyLimits, start: Flock, senses: Senses, time_step: float, radio: Radio
) -> SafetyFilter:
    """Return the filter of a flight; raise InputError if the limits do not fit the space and R of the flock."""
    if not isinstance(limits, SafetyLimits):
        expected = "safety must be SafetyLimits, such as equiflock.SafetyLimits(max_acceleration=4.0)"
        raise InputError(f"{expected}; got {shorten_repr(limits)}")
    limits.check_dimensions(start.shape[2])
    limits.check_radius(start.comm_radius)
    return SafetyFilter(limits, senses, time_step, radio)


def make_decision_function(controller: Controller, time_step: float, latency: int = 0) -> DecisionFunctions:
    """Return the controller as a function of flock and observations, and its compiled form.

    This compiles a network of the package with its present weights, and applies the gain that the controller's schedule
    has at this time step and latency of the radio, in steps (see `as_sampled_function`). The compiled form is None for
    privileged controllers and for functions that depend on the order of agents. The function returns accelerations
    before the limits of a `Safe` controller.
    """
    controller = unwrap_safe(controller)
    function: Any = as_sampled_function(controller, compute_gain(controller, time_step, latency))
    # A privileged controller indexes the flock, so agents must keep the caller's order.
    if getattr(controller, "privileged", False):
        return DecisionFunctions(function, None)
    compiled = function if getattr(function, "order_independent", False) else None
    return DecisionFunctions(lambda flock, observations: function(observations), compiled)


def check_controller(controller: Any) -> None:
    """Raise InputError if `controller` is a name or a class, is not callable, or declares no senses."""
    if isinstance(controller, str):
        raise InputError(f"controller must be a controller, not its name: use equiflock.load({controller!r})")
    if not callable(controller):
        raise InputError(
            f"controller must be callable and declare senses (see LocalController); got {shorten_repr(controller)}"
        )
    if isinstance(controller, type):
        raise InputError(f"controller must be an instance: {controller.__name__}(), not {controller.__name__}")
    senses = getattr(controller, "senses", None)
    if not isinstance(senses, Senses):
        raise InputError(
            f"{type(controller).__name__} must declare senses, such as senses = "
            f'equiflock.paper_senses("mean", hops=1); got {shorten_repr(senses)}'
        )
