"""The parts of a flight put together: the one place that chooses them where a caller does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from equiflock.bodies import DoubleIntegrator
from equiflock.controllers.torch_bridge import as_numpy_function
from equiflock.features import Senses
from equiflock.flock import Flock
from equiflock.protocols import AnyBody, Controller, Ending, FusedStep, Sensing
from equiflock.runtime.checks import InputError, check_positive, shorten_repr
from equiflock.senses.aggregation import DelayedAggregation, Obstacles
from equiflock.senses.orbit import Orbit
from equiflock.senses.radio import Radio
from equiflock.simulation.body_motion import BodyState, check_body
from equiflock.simulation.failures import Failures
from equiflock.simulation.flight import DecisionFunction, Flight
from equiflock.simulation.fused_network_step import make_fused_step
from equiflock.simulation.memory_order import MemoryOrder


def flight(
    start: Flock,
    controller: Controller | None,
    *,
    time_step: float = 0.01,
    comm_radius: float | None = None,
    senses: Senses | None = None,
    body: AnyBody | None = None,
    ending: Ending | None = None,
    orbit: Orbit | None = None,
    obstacles: Obstacles = "nearest",
    radio: Radio | None = None,
    failures: Failures | None = None,
    body_state: BodyState | None = None,
) -> Flight:
    """Fly a flock: `for moment in flight(start, controller): ...`, endless unless the ending ends every flock.

    Args:
        start: the flock at t = 0.
        controller: such as `load("tanner")`; None if an outsider acts in its place, by `Flight.step`.
        time_step: dt, in seconds.
        comm_radius: R, if it shall be another than that of `start`.
        senses: what agents observe, if there is no controller; with one, what it declares, or that with another
            topology.
        body: what a commanded acceleration does; the double integrator if left out.
        ending: decides at every moment which flocks have ended; None lets them fly for ever.
        orbit: the technique by which followers avoid obstacles; None if obstacle agents just stand still.
        obstacles: which obstacle agents within R a follower hears, the "nearest" or "all".
        radio: how messages travel; all arrive at once and exact if left out.
        failures: who fails, how and when; nobody if left out.
        body_state: what the body remembers of the agents of `start`, such as `run.body_state_at(-1)` of a saved flight.
    """
    # What agents sense is declared by the controller, unless the caller overrides it.
    if controller is not None:
        check_controller(controller)
        declared = controller.senses
        senses = declared if senses is None else senses
        # Another topology is another flight; the controller is no function of other channels, hops or units.
        if isinstance(senses, Senses) and _get_observation_spec(senses) != _get_observation_spec(declared):
            raise InputError(f"the controller needs the channels, hops and units of {declared}; got {senses}")
    elif senses is None:
        raise InputError("a flight without a controller needs senses, such as equiflock.paper_senses()")
    if not isinstance(start, Flock):
        raise InputError(f"start must be a Flock of at least one flock; got {shorten_repr(start)}")
    # The state does not depend on R, so another R needs no new check of the arrays.
    if comm_radius is not None:
        start = Flock.view(*start.arrays, comm_radius=check_positive("comm_radius", comm_radius))
    if failures is not None and not isinstance(failures, Failures):
        raise InputError(
            f"failures must be such as equiflock.Failures(agents=5, time=1.0); got {shorten_repr(failures)}"
        )
    if failures is not None and failures.is_empty:
        failures = None
    # The paper's parts fill whatever the caller left open.
    sensing = DelayedAggregation(senses, orbit=orbit, obstacles=obstacles, radio=radio)
    body = DoubleIntegrator() if body is None else check_body(body)
    decide, compiled = (None, None) if controller is None else make_decision_function(controller)
    # Cell order pays only if nobody looks at the flock: an ending would have it copied back at every step.
    is_worthwhile = compiled is not None and ending is None and failures is None and MemoryOrder.is_worthwhile(start)
    order = MemoryOrder(sensing, start.shape[1]) if is_worthwhile else None
    # A fused step does not look who has failed.
    fused = _make_fused_step(controller, compiled, sensing, body) if failures is None else None
    parts: dict[str, Any] = {"ending": ending, "order": order, "fused": fused, "failures": failures}
    return Flight(start, sensing, decide, body, time_step=time_step, body_state=body_state, **parts)


def change_controller(flying: Flight, controller: Controller) -> None:
    """Go on with another controller from the next moment on; what was decided at this one is still done.

    Agents remember what they heard if the other controller has as many hops and channels, in the same units. The
    topology is the other controller's own.
    """
    check_controller(controller)
    sensing = flying.sensing
    if not isinstance(sensing, DelayedAggregation):
        raise InputError(f"only a flight by delayed aggregation can change its controller; got {shorten_repr(sensing)}")
    decide, compiled = make_decision_function(controller)
    sensing.set_senses(controller.senses)
    flying.set_controller(decide, _make_fused_step(controller, compiled, sensing, flying.body), compiled is not None)


def _get_observation_spec(senses: Senses) -> tuple[Any, ...]:
    """What observations are made of, whoever they are made of."""
    return senses.channels, senses.hops, senses.length_scale, senses.time_scale


def _make_fused_step(controller: object, network: object | None, sensing: Sensing, body: AnyBody) -> FusedStep | None:
    """The step that makes what these parts make in one call, if there is one."""
    # A controller may bring its own, such as the mixture of expert and pupil in learning.
    own: Callable[[Sensing, AnyBody], FusedStep | None] | None = getattr(controller, "make_fused_step", None)
    if own is not None or network is None:
        return None if own is None else own(sensing, body)
    return make_fused_step(sensing, network, body)


def make_decision_function(controller: Controller) -> tuple[DecisionFunction, object | None]:
    """The controller as a function of flock and observations; and its compiled form, which takes agents in any order.

    This is where a network of the package is compiled, with the weights that it has now (see `as_numpy_function`).
    """
    ask: Any = as_numpy_function(controller)
    # An expert indexes the flock itself, so agents must keep the caller's order.
    if getattr(controller, "privileged", False):
        return ask, None
    return (lambda flock, observations: ask(observations)), ask if getattr(ask, "order_independent", False) else None


def check_controller(controller: Any) -> None:
    """Raise a clear error unless `controller` can be called and declares its senses."""
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
