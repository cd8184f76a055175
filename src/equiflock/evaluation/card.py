"""The report card of controllers, as data: what `judge` returns, `card.json` stores and `card_page` draws."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import DamagedError, read_json, write_json
from equiflock.statistics import BreakpointStatus, Estimate

if TYPE_CHECKING:  # takes long to import
    import pandas as pd

TABLE_COLUMNS = [
    "kind",
    "group",
    "name",
    "title",
    "controller",
    "metric",
    "value",
    "low",
    "high",
    "n",
    "status",
    "remark",
]
"""Columns of `card.csv`."""
SIGNIFICANT_DIGITS = 6
"""Digits of the numbers of a card."""
CARD_FORMAT = 1
"""Version of `card.json`."""
Role = Literal["judged", "baseline", "reference"]
"""A controller that is judged, one it is compared with, or one that only fixes 0 and 1 of the score."""


@dataclass(frozen=True)
class ControllerFacts:
    """A controller of a card, with its properties that need no flights."""

    name: str
    """As `load` takes it."""
    label: str
    """Name in tables and figures."""
    role: Role
    checksum: str = ""
    """Checksum of the weights file; empty if there is none."""
    weights: int | None = None
    """Number of weights; None if it is not a network."""
    message_bytes: int | None = None
    """Bytes of the numbers in a message, as float32; None for an expert, which needs no messages."""
    bytes_per_second: float | None = None
    """Bytes that an agent sends per second, at the time step of the card."""
    equivariance_error: float | None = None
    """Largest difference between the accelerations of rotated observations and the rotated accelerations, as a share of
    the largest acceleration; None for an expert."""
    multiply_adds: float | None = None
    """Multiply-adds of a network per agent and step, any other operation of an activation counting as one; None if the
    controller is not a network of the package."""
    bound: float | None = None
    """The paper's bound on the generalization gap, for 30,150 training tuples; None where it does not apply."""
    error: str = ""
    """Why the controller could not be judged at all; empty if it could."""


@dataclass(frozen=True)
class RowResult:
    """One controller under one condition."""

    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    """Estimate of each metric, by the names of `CardRow.metrics`; without those that have no value."""
    score: Estimate | None = None
    """Success rate, scaled so that the expert has 1 and the worst law 0; None if these two are too close."""
    remark: str = ""
    """Why there is no result; empty if there is one."""
    success_flight: int | None = None
    """Index of a typical flock that succeeded; None if none did, or it is not shown."""
    failure_flight: int | None = None
    """Index of a typical flock that failed; None if none did, or it is not shown."""


@dataclass(frozen=True)
class CardRow:
    """One condition, and the results of all controllers under it."""

    name: str
    """Unique among the rows, such as "agents=12"."""
    group: str
    """Title of the section, such as "Flock size"."""
    title: str
    """Such as "12 agents"."""
    success_rule: str
    """What counts as a success, ends the sentence "A flight succeeds if ..."."""
    settings: str
    """Scenario, environment, time step and duration in one line."""
    flocks: int
    """Number of flights of each controller."""
    results: Mapping[str, RowResult] = field(default_factory=dict)
    """By the controllers' names, in the card's order."""
    verdict: str = ""
    """One sentence."""


@dataclass(frozen=True)
class BreakpointResult:
    """The level of a disturbance at which a controller's success rate falls below a threshold."""

    status: BreakpointStatus
    value: float
    """The level up to which the success rate was at least the threshold; the hard end if it holds everywhere, the mild
    end if it fails there."""
    low: float
    """Mild end of the 95% interval."""
    high: float
    """Hard end of the 95% interval."""
    text: str
    """Such as "34% [31%, 37%]"."""


@dataclass(frozen=True)
class CardBreakpoint:
    """One disturbance, and the level at which each controller breaks."""

    name: str
    """Such as "packet-loss"."""
    title: str
    """Such as "packet loss"."""
    mild: float
    """Level at the mild end of the range."""
    hard: float
    """Level at the hard end, which may be the smaller number."""
    is_logarithmic: bool
    """Whether levels are compared by their logarithms."""
    mild_text: str
    hard_text: str
    flocks: int
    settings: str
    results: Mapping[str, Mapping[str, BreakpointResult]] = field(default_factory=dict)
    """By the controllers' names, then by threshold, "95" and "50"; a controller without results is missing."""
    curves: Mapping[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    """Levels that were flown, from mild to hard, with their success rates, by the controllers' names."""
    remarks: Mapping[str, str] = field(default_factory=dict)
    """Why a controller has no result."""
    verdict: str = ""
    """One sentence, such as "starling holds to 34% packet loss [31%, 37%]"."""


@dataclass(frozen=True, repr=False)
class Card:
    """The report card of one controller or several."""

    profile: str
    seed: int
    controllers: tuple[ControllerFacts, ...]
    """Judged controllers first, then baselines and references."""
    rows: tuple[CardRow, ...]
    breakpoints: tuple[CardBreakpoint, ...]
    metric_titles: Mapping[str, str]
    """Titles of all metrics, by name, in the order of the tables' columns."""
    larger_is_better: Mapping[str, bool | None]
    """Whether a larger value of a metric is better; None if neither is."""
    scores: Mapping[str, Estimate]
    """Overall score of each controller: expert 1, worst law 0."""
    performance: Mapping[str, tuple[tuple[float, float, float, float], ...]]
    """Performance profile: (score, share of rows with at least this score, low, high) by the controllers' names."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Versions and options."""

    def __repr__(self) -> str:
        scores = (
            f"{name} {score}" for each in self.judged if (score := self.scores.get(name := each.name)) is not None
        )
        return f"Card({self.profile}, {len(self.rows)} rows; {', '.join(scores) or 'no scores'})"

    @property
    def judged(self) -> tuple[ControllerFacts, ...]:
        """Controllers that are judged, without baselines and references."""
        return tuple(each for each in self.controllers if each.role == "judged")

    def to_dict(self) -> dict[str, Any]:
        """Return the card as a JSON-serializable dict; estimates are lists [value, low, high, n], infinity "inf"."""
        result: dict[str, Any] = _encode_numbers({"format": CARD_FORMAT, **asdict(self)})
        return result

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Card:
        """Return the card of a dict that `to_dict` returned; raise InputError if it has another format."""
        values = dict(content)
        if values.pop("format", None) != CARD_FORMAT:
            raise InputError(f"a report card must have the format {CARD_FORMAT}; got {content.get('format')!r}")
        rows = [
            CardRow(**{**row, "results": {name: _read_row_result(each) for name, each in row["results"].items()}})
            for row in values["rows"]
        ]
        breakpoints = [
            CardBreakpoint(
                **{
                    **each,
                    "results": {
                        name: {threshold: BreakpointResult(**found) for threshold, found in results.items()}
                        for name, results in each["results"].items()
                    },
                    "curves": {name: tuple(map(tuple, curve)) for name, curve in each["curves"].items()},
                }
            )
            for each in values["breakpoints"]
        ]
        return cls(
            **{
                **values,
                "controllers": tuple(_read_facts(each) for each in values["controllers"]),
                "rows": tuple(rows),
                "breakpoints": tuple(breakpoints),
                "scores": {name: _read_estimate(each) for name, each in values["scores"].items()},
                "performance": {name: tuple(map(tuple, each)) for name, each in values["performance"].items()},
            }
        )

    def to_table(self) -> pd.DataFrame:
        """Return a row per estimate: of each metric and score in each row, each breakpoint, and the overall scores."""
        import pandas as pd

        table: list[dict[str, Any]] = []
        for row in self.rows:
            for name, result in row.results.items():
                place = {"kind": "row", "group": row.group, "name": row.name, "title": row.title, "controller": name}
                estimates = {**result.metrics, **({} if result.score is None else {"score": result.score})}
                table += [{**place, "metric": metric, **found._asdict()} for metric, found in estimates.items()]
                if result.remark:
                    table.append({**place, "remark": result.remark})
        for point in self.breakpoints:
            for name, results in point.results.items():
                place = {"kind": "breakpoint", "name": point.name, "title": point.title, "controller": name}
                for threshold, found in results.items():
                    low, high = sorted((found.low, found.high))
                    ends = {"value": found.value, "low": low, "high": high, "n": point.flocks}
                    table.append({**place, "metric": f"{threshold}% succeed up to", **ends, "status": found.status})
            for name, remark in point.remarks.items():
                place = {"kind": "breakpoint", "name": point.name, "title": point.title, "controller": name}
                table.append({**place, "remark": remark})
        table += [
            {"kind": "score", "name": "overall", "title": "overall score", "controller": name, **found._asdict()}
            for name, found in self.scores.items()
        ]
        return pd.DataFrame(table, columns=TABLE_COLUMNS)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the card as JSON with a checksum, atomically; return the path."""
        write_json(self.to_dict(), Path(path))
        return Path(path)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Card:
        """Read a card that `write` wrote; raise DamagedError if it is damaged."""
        try:
            return cls.from_dict(read_json(Path(path)))
        except (KeyError, TypeError) as error:
            raise DamagedError(f"{path} is no report card: {error}") from None


def round_number(value: float) -> float:
    """Return a number with SIGNIFICANT_DIGITS."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def _encode_numbers(value: Any) -> Any:
    """Return a value with tuples as lists and infinite numbers as "inf" and "-inf", which JSON does not have."""
    if isinstance(value, Mapping):
        return {key: _encode_numbers(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encode_numbers(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _read_estimate(content: Sequence[Any]) -> Estimate:
    """Return the estimate of a list whose numbers may be "inf"."""
    value, low, high, n = content
    return Estimate(float(value), float(low), float(high), n)


def _read_facts(content: Mapping[str, Any]) -> ControllerFacts:
    """Return the facts of a dict."""
    error = content["equivariance_error"]
    return ControllerFacts(**{**content, "equivariance_error": None if error is None else float(error)})


def _read_row_result(content: Mapping[str, Any]) -> RowResult:
    """Return the row result of a dict."""
    metrics = {name: _read_estimate(each) for name, each in content["metrics"].items()}
    score = None if content["score"] is None else _read_estimate(content["score"])
    return RowResult(**{**content, "metrics": metrics, "score": score})
