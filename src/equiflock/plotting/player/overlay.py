"""What a scenario shows with its flock: marks, a number of success, outcomes, and names of groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
from jaxtyping import Float64, UInt8

from equiflock._runtime.specs import parse_spec
from equiflock.flock import Flock
from equiflock.outcomes import Outcome
from equiflock.scenarios.marks import MarkKind, Marks, MarkShape, segments
from equiflock.scenarios.obstacle_shapes import obstacle_walls
from equiflock.scenarios.registry import Scenario, make_scenario
from equiflock.simulation.trajectory import Trajectory

MAX_MEASURED_AGENTS = 2_000
"""With more agents there is no number of success, which takes as long as a picture."""
MAX_MARKS = 2_000
"""With more marks none are drawn: they would hide the agents."""
MAX_GROUP_NAMES, MAX_NAME_LENGTH, MAX_OPTION_LENGTH = 20, 40, 100
KINDS: tuple[str, ...] = get_args(MarkKind)
SHAPES: tuple[str, ...] = get_args(MarkShape)


class MarkArrays(NamedTuple):
    """The marks of one picture."""

    numbers: Float64[np.ndarray, "M 4"]
    """As in `Marks`."""
    codes: UInt8[np.ndarray, "M 4"]
    """Index of each mark's kind in KINDS, of its shape in SHAPES, whether it moves (0 or 1), and 0."""


NO_MARKS = MarkArrays(np.empty((0, 4)), np.empty((0, 4), np.uint8))


class OverlayState(NamedTuple):
    """What one picture shows."""

    marks: MarkArrays = NO_MARKS
    success: float = math.nan
    """The scenario's number of success; NaN for none."""
    outcome: int = 0
    """Code of the outcome that the scenario's ending has reported; 0 for none yet."""
    outcome_time: float = math.nan
    """Its time, in seconds."""


NO_OVERLAY = OverlayState()


class Overlay:
    """What one scenario shows with a flock; nothing but the flock's walls if the scenario is None, unknown."""

    def __init__(self, scenario: Scenario | None = None) -> None:
        self._scenario = scenario
        self._success_measure = None if scenario is None else scenario.success_measure

    def to_dict(self) -> dict[str, Any]:
        """Return the texts for a page, JSON-serializable: `group_names`, `success` (text, unit) and `outcomes`.

        `outcomes` has, for each code of `Outcome`, its text and whether it is a success: None if no outcome is.
        """
        scenario, measure = self._scenario, self._success_measure
        names: Sequence[str] = () if scenario is None else scenario.group_names
        successes = () if scenario is None else scenario.success_outcomes
        return {
            "group_names": [str(name)[:MAX_NAME_LENGTH] for name in names[:MAX_GROUP_NAMES]],
            "success": None if measure is None else {"text": measure.text, "unit": measure.unit},
            "outcomes": {
                int(outcome): {
                    "text": outcome.name.lower().replace("_", " "),
                    "message": outcome.message,
                    "is_success": outcome in successes if successes else None,
                }
                for outcome in Outcome.all()
                if outcome not in (Outcome.FLYING, Outcome.TIME_UP)
            },
        }

    def measure(self, flock: Flock) -> float:
        """Return the number of success of a single flock; NaN without one, or beyond MAX_MEASURED_AGENTS."""
        if self._success_measure is None or flock.shape[1] > MAX_MEASURED_AGENTS:
            return math.nan
        return self._success_measure.measure(flock)

    def make_state(self, flock: Flock, outcome: int = 0, outcome_time: float = math.nan) -> OverlayState:
        """Return what a picture of a single flock shows."""
        return OverlayState(self.collect_marks(flock), self.measure(flock), outcome, outcome_time)

    def collect_marks(self, flock: Flock) -> MarkArrays:
        """Return the marks of the scenario and the walls of a single flock; none if they are more than MAX_MARKS."""
        marks = [segments("wall", obstacle_walls(flock))]
        if self._scenario is not None:
            marks += self._scenario.marks(flock)
        if not 0 < sum(len(each.numbers) for each in marks) <= MAX_MARKS:
            return NO_MARKS
        codes = [np.tile(_encode(each), (len(each.numbers), 1)) for each in marks]
        return MarkArrays(np.concatenate([each.numbers for each in marks]), np.concatenate(codes))


def _encode(marks: Marks) -> UInt8[np.ndarray, 4]:
    """Return the codes of marks, as in `MarkArrays`."""
    return np.array([KINDS.index(marks.kind), SHAPES.index(marks.shape), marks.moves, 0], np.uint8)


def load_overlay(run: Trajectory) -> Overlay:
    """Return the overlay of a saved flight's scenario; an empty one if it is unknown or does not fit the flock.

    The config of a flight, which may be any text of the user, has the name and options of the scenario: `simulate`
    writes them as `scenario` and `start`, the live page as `setting`.
    """
    setting = run.config.get("setting")
    sources = (setting, setting.get("options")) if isinstance(setting, dict) else (run.config.get("start"),)
    options = {name: value for source in sources if isinstance(source, dict) for name, value in source.items()}
    plain = {str(name): value for name, value in options.items() if _is_plain(value)}
    try:
        name = parse_spec(str(run.config.get("scenario", ""))).name
        overlay = Overlay(make_scenario(name, plain))
        overlay.make_state(run.flock(0))
    except Exception:  # a plugin's scenario may raise anything
        return Overlay()
    return overlay


def _is_plain(value: object) -> bool:
    """Return whether a value is a number, a boolean or a short text."""
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= MAX_OPTION_LENGTH)
