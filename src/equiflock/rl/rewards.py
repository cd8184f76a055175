"""Rewards of agents: `@reward("name")` registers one, `make_reward("variance+0.1*effort")` makes a weighted sum.

A reward is a function of the moment after a step, whose `last_step` has the velocities before it and the commanded
accelerations. It returns one number per agent, (B, N); the larger, the better, so costs are negative. Numbers of agents
that did not obey commands in the step are ignored.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float64

from equiflock._runtime.checks import InputError, check_positive, shorten_repr
from equiflock._runtime.registry import Registry
from equiflock._runtime.specs import Spec, parse_weighted_specs
from equiflock.controllers.loading import load
from equiflock.flock import LEADER, Flock, Vectors
from equiflock.graph.radius_graph import components, compute_connectivity
from equiflock.observations.aggregation import DelayedAggregation
from equiflock.protocols import Controller, LastStep, Moment
from equiflock.simulation.flight import DecisionFunction, Flight
from equiflock.simulation.flight_builder import check_controller, make_decision_function
from equiflock.simulation.metrics import write_squared_deviations

EXAMPLE = "variance+0.1*effort"
Reward = Callable[[Moment], Any]
"""Returns one number per agent, (B, N), of the moment after a step.

An object may also have `begin_flight(flight)`, called before the first step of a flight, and `begin_step(moment)`,
called with the moment before every step.
"""
Definition = TypeVar("Definition", bound=Callable[..., Any])


class RegisteredReward(NamedTuple):
    """A registered function or class."""

    make: Callable[..., Reward]
    """Makes the reward from its options."""
    uses_last_step: bool


REWARDS: Registry[RegisteredReward] = Registry("reward")


def reward(name: str, *, uses_last_step: bool = False) -> Callable[[Definition], Definition]:
    """Register a reward for `VectorFlocks`, `parallel_env` and `torchrl_env`.

        @ef.reward("slow")
        def slow(moment, limit=1.0):
            speeds = np.linalg.norm(moment.flock.velocities, axis=-1)  # (B, N)
            return -np.maximum(speeds - limit, 0.0)

    A function takes the `Moment` after a step and returns an array (B, N); further arguments are options, such as
    slow:limit=2. A class takes the options, and its instances the moment; they may have `begin_flight(flight)` and
    `begin_step(moment)`, see `Reward`. Raise InputError if the name is taken.

    Args:
        name: its name.
        uses_last_step: whether it reads `moment.last_step`, the velocities before the step and its accelerations.
    """
    REWARDS.check_new_name(name)

    def add(definition: Definition) -> Definition:
        if not callable(definition):
            raise InputError(f"a reward must be a function of a Moment, or a class; got {shorten_repr(definition)}")
        is_class = isinstance(definition, type)
        make = definition if is_class else partial(_make_function_reward, definition)
        REWARDS.parts[name] = RegisteredReward(make, uses_last_step)
        return definition

    return add


def _make_function_reward(function: Callable[..., Any], /, **options: Any) -> Reward:
    """Return the function with these options; raise TypeError if it does not take them."""
    inspect.signature(function).bind(None, **options)
    return partial(function, **options)


def reward_names() -> tuple[str, ...]:
    """Return the names of all rewards, those of the package first."""
    return REWARDS.names()


class Term(NamedTuple):
    """One reward of a weighted sum."""

    weight: float
    name: str
    function: Reward
    uses_last_step: bool


@dataclass(frozen=True)
class RewardSum:
    """A weighted sum of rewards, itself a reward; `make_reward` makes it."""

    terms: tuple[Term, ...]

    def begin_flight(self, flight: Flight) -> None:
        """Let every term begin a new flight."""
        self._call_all("begin_flight", flight)

    def begin_step(self, moment: Moment) -> None:
        """Let every term read the moment before a step."""
        self._call_all("begin_step", moment)

    @cached_property
    def uses_last_step(self) -> bool:
        """Whether a term reads `Moment.last_step`."""
        return any(term.uses_last_step for term in self.terms)

    @cached_property
    def reads_before(self) -> bool:
        """Whether a term reads the moment before a step."""
        return any(hasattr(term.function, "begin_step") for term in self.terms)

    def __call__(self, moment: Moment) -> Float64[np.ndarray, "B N"]:
        """Return the sum of weight times reward, (B, N); raise InputError for a wrong shape, or NaN or infinity."""
        first, *others = (term.weight * _evaluate(term.function, term.name, moment) for term in self.terms)
        return sum(others, first)

    def _call_all(self, method: str, argument: Any) -> None:
        for term in self.terms:
            if (call := getattr(term.function, method, None)) is not None:
                call(argument)


def _evaluate(function: Reward, name: str, moment: Moment) -> Float64[np.ndarray, "B N"]:
    """Return the numbers of a reward; raise InputError if they are not finite numbers of shape (B, N)."""
    returned, shape = function(moment), moment.flock.shape[:2]
    values = np.asarray(returned)
    if values.shape != shape or values.dtype.kind not in "biuf" or not np.isfinite(values).all():
        received = shorten_repr(returned) if values.shape == shape else f"{values.dtype} of shape {values.shape}"
        raise InputError(f"the reward {name!r} must return finite numbers of shape (B, N) = {shape}; got {received}")
    return values.astype(np.float64, copy=False)


def make_reward(given: str | Reward) -> RewardSum:
    """Return a reward by its name, a weighted sum such as variance+0.1*effort:.., or a function of a moment.

    Raise InputError if a name or an option is unknown.
    """
    if isinstance(given, str):
        terms = parse_weighted_specs("reward", given, EXAMPLE, reward_names())
        return RewardSum(tuple(_make_term(*term) for term in terms))
    if not callable(given) or isinstance(given, type):
        raise InputError(
            f"reward must be a name, a sum such as {EXAMPLE!r}, or a function of a Moment; got {shorten_repr(given)}"
        )
    return RewardSum((Term(1.0, getattr(given, "__name__", type(given).__name__), given, True),))


def _make_term(weight: float, spec: Spec) -> Term:
    """Return a term of a weighted sum."""
    registered = REWARDS.find(spec.name)
    function: Reward = REWARDS.construct(spec.name, registered.make, spec.options)
    return Term(weight, spec.name, function, registered.uses_last_step)


def _get_last_step(moment: Moment) -> LastStep:
    """Return the step that led to the moment; raise InputError if there is none."""
    if moment.last_step is None:
        raise InputError("a reward that reads the step before a moment must be registered with uses_last_step=True")
    return moment.last_step


def _compute_squares(vectors: Vectors) -> Float64[np.ndarray, "B N"]:
    """Return |x_i|^2 of each agent's vector."""
    # Entry by entry, as loops over all agents are several times faster than loops over an agent's entries.
    first, *others = (np.square(vectors[..., d]) for d in range(vectors.shape[2]))
    return np.asarray(sum(others, first))


def _compute_squared_deviations(flock: Flock, member: Bool[np.ndarray, "B N"]) -> Float64[np.ndarray, "B N"]:
    """Return |v_i - mean(v)|^2 of each agent, the mean over the agents where `member` is True."""
    result = np.empty(member.shape)
    write_squared_deviations(flock.velocities, member, result)
    return result


@reward("variance")
def variance(moment: Moment) -> Float64[np.ndarray, "B N"]:
    """Return -|v_i - mean(v)|^2, the mean over working agents: on average minus the velocity variance."""
    return -_compute_squared_deviations(moment.flock, moment.flock.working)


@reward("leaders")
def leaders(moment: Moment) -> Float64[np.ndarray, "B N"]:
    """Return -|v_i - v_L|^2, v_L the mean velocity of working leaders; raise InputError if a flock has none."""
    flock = moment.flock
    leads = flock.working & (flock.roles == LEADER)
    if not leads.any(axis=1).all():
        raise InputError("the reward 'leaders' needs a leader in every flock: use the scenario leaders, or another one")
    return -_compute_squared_deviations(flock, leads)


@reward("effort", uses_last_step=True)
def effort(moment: Moment) -> Float64[np.ndarray, "B N"]:
    """Return -|a_i|^2 of the commanded acceleration."""
    return -_compute_squares(_get_last_step(moment).accelerations)


@reward("connectivity")
def connectivity(moment: Moment) -> Float64[np.ndarray, "B N"]:
    """Return minus the share of the other working agents that are not in the agent's component; 0 if connected.

    Components are those of positions, whatever messages arrive.
    """
    flock, working = moment.flock, moment.flock.working
    labels = components(flock)
    if labels.max() <= 0:
        return np.zeros(labels.shape)
    # Members of each component, counted over rows b N + label; other agents have label -1 and count nowhere.
    rows = labels + labels.shape[1] * np.arange(len(labels))[:, None]
    sizes = np.bincount(rows[working], minlength=labels.size)[rows]
    count = working.sum(axis=1, keepdims=True)
    return np.where(working, (sizes - count) / np.maximum(count - 1, 1), 0.0)


@reward("collision")
class Collision:
    """Minus the number of agents within `min_separation`, obstacle agents and failed ones included."""

    def __init__(self, min_separation: float = 0.1) -> None:
        self.min_separation = check_positive("min_separation", min_separation)

    def __call__(self, moment: Moment) -> Float64[np.ndarray, "B N"]:
        """Return the reward of each agent."""
        return -compute_connectivity(moment.flock, self.min_separation).degrees.astype(np.float64)


@reward("imitation", uses_last_step=True)
class Imitation:
    """-|a_i - e_i|^2, with e_i the acceleration that an expert commands in the same state.

    The expert is a controller or its name, which may be privileged; further options, as in imitation:clamp=5, are the
    expert's. As in DAgger, its messages are not lost or late.
    """

    def __init__(self, expert: str | Controller = "tanner", **options: Any) -> None:
        self.expert: Controller = load(expert, **options) if isinstance(expert, str) else expert
        check_controller(self.expert)
        self._decide: DecisionFunction | None = None
        self._sensing: DelayedAggregation | None = None
        self._commands: Vectors | None = None

    def begin_flight(self, flight: Flight) -> None:
        """Observe a new flight, with its orbit technique and rule for obstacles."""
        sensing = flight.sensing
        rules: dict[str, Any] = {}
        if isinstance(sensing, DelayedAggregation):
            rules = {"orbit": sensing.orbit, "obstacles": sensing.obstacles}
        self._sensing = DelayedAggregation(self.expert.senses, **rules)
        self._decide = make_decision_function(self.expert, flight.time_step).decide

    def begin_step(self, moment: Moment) -> None:
        """Compute the expert's accelerations at the moment before a step."""
        assert self._sensing is not None and self._decide is not None
        flock, flying = moment.flock, moment.flying
        observations = self._sensing.observe(flock, flying)
        # Flocks that restarted have no past.
        restarted = moment.flock_steps == 0
        if moment.step > 0 and restarted.any():
            observations = self._sensing.restart(flock, restarted, restarted & flying)
        self._commands = np.asarray(self._decide(flock, observations), np.float64)

    def __call__(self, moment: Moment) -> Float64[np.ndarray, "B N"]:
        """Return the reward of each agent."""
        assert self._commands is not None
        return -_compute_squares(_get_last_step(moment).accelerations - self._commands)
