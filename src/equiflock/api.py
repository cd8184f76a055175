"""The public names of the package: `import equiflock as ef`, then `ef.simulate` and all others."""

import importlib
from typing import TYPE_CHECKING, Any

from equiflock._runtime import threads
from equiflock._runtime.checks import InputError, TimeStepWarning
from equiflock._runtime.imports import require_torch
from equiflock.bodies import Crazyflow, DoubleIntegrator, Quadrotor, Unicycle, body, body_names, make_body
from equiflock.controllers import (
    Safe,
    SafetyLimits,
    SafetyState,
    controller,
    controller_names,
    load,
    load_module,
    save,
)
from equiflock.controllers.explanation import Explanation, explain
from equiflock.controllers.gain_schedule import GainSchedule
from equiflock.deployment.audit import audit
from equiflock.deployment.export import export
from equiflock.evaluation.card import Card
from equiflock.evaluation.flight_comparison import FlightComparison, compare_with_simulation
from equiflock.evaluation.robot_fit import RobotFit, fit_robot
from equiflock.features import Senses, feature, feature_names, paper_senses
from equiflock.flock import Condition, Flock, Role
from equiflock.graph.radius_graph import Graph, components, radius_graph
from equiflock.learning.fast_forward import FastForward
from equiflock.learning.recipe import DAgger
from equiflock.observations.aggregation import DelayedAggregation, observe
from equiflock.observations.orbit import Orbit
from equiflock.observations.radio import Radio
from equiflock.outcomes import Outcome
from equiflock.plotting.player.embedding import FlightPlayer, show
from equiflock.protocols import Body, BodyStep, Ending, LocalController, Moment, PrivilegedController, StatefulBody
from equiflock.rl.interfaces import parallel_env, torchrl_env
from equiflock.rl.rewards import reward, reward_names
from equiflock.rl.vector_flocks import VectorFlocks
from equiflock.scenarios import (
    Flocking,
    LeaderFollowing,
    ObstacleCourse,
    RandomDisk,
    make_scenario,
    random_disk,
    scenario,
    scenario_names,
)
from equiflock.scenarios.endings import UntilDisconnected, UntilPassed
from equiflock.simulation import metrics
from equiflock.simulation.environment import Environment
from equiflock.simulation.failures import Failures
from equiflock.simulation.flight import Flight
from equiflock.simulation.flight_builder import flight
from equiflock.simulation.metrics import metric, metric_names
from equiflock.simulation.simulate import simulate
from equiflock.simulation.trajectory import Trajectory
from equiflock.version import __version__

if TYPE_CHECKING:
    from equiflock import theory
    from equiflock.evaluation.judge import judge
    from equiflock.learning.training import train

__all__ = [
    "Body",
    "BodyStep",
    "Card",
    "Condition",
    "Crazyflow",
    "DAgger",
    "DelayedAggregation",
    "DoubleIntegrator",
    "Ending",
    "Environment",
    "Explanation",
    "Failures",
    "FastForward",
    "Flight",
    "FlightComparison",
    "FlightPlayer",
    "Flock",
    "Flocking",
    "GainSchedule",
    "Graph",
    "InputError",
    "LeaderFollowing",
    "LocalController",
    "Moment",
    "ObstacleCourse",
    "Orbit",
    "Outcome",
    "PrivilegedController",
    "Quadrotor",
    "Radio",
    "RandomDisk",
    "RobotFit",
    "Role",
    "Safe",
    "SafetyLimits",
    "SafetyState",
    "Senses",
    "StatefulBody",
    "TimeStepWarning",
    "Trajectory",
    "Unicycle",
    "UntilDisconnected",
    "UntilPassed",
    "VectorFlocks",
    "__version__",
    "audit",
    "body",
    "body_names",
    "compare_with_simulation",
    "components",
    "controller",
    "controller_names",
    "explain",
    "export",
    "feature",
    "feature_names",
    "fit_robot",
    "flight",
    "judge",
    "load",
    "load_module",
    "make_body",
    "make_scenario",
    "metric",
    "metric_names",
    "metrics",
    "observe",
    "paper_senses",
    "parallel_env",
    "radius_graph",
    "random_disk",
    "reward",
    "reward_names",
    "save",
    "scenario",
    "scenario_names",
    "show",
    "simulate",
    "theory",
    "threads",
    "torchrl_env",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import `judge`, `train` and `theory` at their first use: they need pandas, which is slow, or torch, an extra."""
    if name == "judge":
        return importlib.import_module("equiflock.evaluation.judge").judge
    if name not in ("theory", "train"):
        raise AttributeError(f"module 'equiflock.api' has no attribute {name!r}")
    require_torch(f"equiflock.{name}")
    if name == "train":
        return importlib.import_module("equiflock.learning.training").train
    return importlib.import_module("equiflock.theory")
