"""A controller of one's own beside those of the package, by the same cells as the reproduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from equiflock.controllers.trained import TRAINED
from equiflock.experiments.flocking import FlockingCell
from equiflock.experiments.leader_following import LeaderCell
from equiflock.experiments.obstacle_avoidance import ObstacleCell
from equiflock.imitation.recipe import EXPERT
from equiflock.types import Outcome

Scenario = Literal["flocking", "leaders", "obstacles"]


@dataclass(frozen=True)
class Evaluated:
    """A cell under a name of its own."""

    cell: Any
    name: str

    @property
    def key(self) -> str:
        """The cell's name."""
        return self.name

    @property
    def labels(self) -> dict[str, Any]:
        """Of its rows."""
        return {**self.cell.labels, "controller": self.name}

    def run(self) -> pd.DataFrame:
        """The cell's table."""
        table: pd.DataFrame = self.cell.run()
        return table


def evaluation_cells(
    controller: str, scenario: Scenario, agents: int, flocks: int, sides: int, time_step: float
) -> Sequence[Evaluated]:
    """One cell for the controller, and one for each of the package (seed 0) and, where it can fly, the expert."""
    rivals = [*([EXPERT] if scenario == "flocking" else []), *TRAINED]
    some: Any = {
        "flocking": FlockingCell("", None, agents, flocks, time_step),
        "leaders": LeaderCell("", None, flocks, agents, time_step=time_step),
        "obstacles": ObstacleCell("", None, sides, True, flocks, agents, time_step),
    }[scenario]
    seeds = {name: 0 if name in TRAINED else None for name in rivals}
    others = [Evaluated(replace(some, controller=name, seed=seed), name) for name, seed in seeds.items()]
    own = replace(some, controller=controller, seed=0 if controller in TRAINED else None)
    return [Evaluated(own, "evaluated"), *others]


def evaluation_rows(table: pd.DataFrame, scenario: Scenario) -> tuple[list[str], list[list[str]]]:
    """What a reader wants first: header, and a row for every controller."""
    names = list(dict.fromkeys(table.controller))
    if scenario == "obstacles":
        endings = [outcome.name for outcome in Outcome if outcome.name in set(table.outcome)]
        rows = []
        for name in names:
            mine = table[table.controller == name]
            shares = [f"{(mine.outcome == ending).mean():.0%}" for ending in endings]
            rows.append([name, *shares, f"{mine.seconds.median():.2f} s"])
        return ["", *(ending.replace("_", " ").lower() for ending in endings), "median time"], rows
    last = table[table.time == table.time.max()]
    rows = []
    for name in names:
        mine = last[last.controller == name].set_index("metric")
        cells = [
            f"{row.mean:.0%}" if row.Index == "disconnected" else f"{row.median:.3g} ({row.lower:.3g}, {row.upper:.3g})"
            for row in mine.itertuples()
        ]
        rows.append([name, *cells])
    metrics = list(dict.fromkeys(last.metric))
    return ["at the end, median (quartiles)", *(metric.replace("_", " ") for metric in metrics)], rows
