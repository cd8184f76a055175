"""Leader following: two agents lead, the others were trained only to flock (section 5, "Leader following")."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float64

from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.curves import build_curve_table
from equiflock.paper.ledger import FEW_HUNDREDTHS, Check, Statement
from equiflock.paper.policies import PolicyFlightJob
from equiflock.paper.profile import Profile
from equiflock.paper.resampled_curves import ResampledCurves
from equiflock.simulation.flight_jobs import resolve_measures
from equiflock.statistics import RESAMPLES

DISTANCE, EFFORT, COMPONENTS = "mean_leader_velocity_distance", "mean_acceleration_norm", "component_count"


@dataclass(frozen=True)
class LeaderJob(PolicyFlightJob):
    """Flights of one controller on the test flocks with two leaders each."""

    time_step: float = 1e-3
    duration: float = 3.0

    experiment = scenario_name = "leaders"
    label_names = ("leader_velocity",)

    @property
    def leader_velocity(self) -> str:
        """How the leaders' common velocity is chosen."""
        return self.policies.interpretation.leader_velocity

    def run(self) -> pd.DataFrame:
        """Return quartiles over flocks every 0.01 s; see `build_curve_table`.

        Metrics are the distance to the leaders' velocity, the mean acceleration norm and "disconnected", 0 or 1 per
        flock, whose mean is the share of disconnected flocks.
        """
        run = self.fly(self.draw_start(), keep_every=None, record=resolve_measures(self.scenario))
        series = {name: run.series[name] for name in (DISTANCE, EFFORT)}
        series["disconnected"] = (run.series[COMPONENTS] > 1).astype(float)
        return build_curve_table(series, self.time_step, _select_last)


def _select_last(metric: str, values: Float64[np.ndarray, "X B"]) -> Bool[np.ndarray, " X"]:
    """Return the last time only, at which statements compare controllers."""
    return np.asarray(np.arange(len(values)) == len(values) - 1)


def build_leader_jobs(profile: Profile, folder: Path) -> list[LeaderJob]:
    """Return the jobs of the experiment: every controller and seed."""
    shared = profile.build_flight_options(folder, "leaders")
    return [LeaderJob(name, seed, **shared) for name, seed in profile.networks]


def build_leader_statements(table: pd.DataFrame, resamples: int = RESAMPLES) -> list[Statement]:
    """Return L1, the distance to the leaders' velocity, and L2, the effort, both at the last step."""
    curves = ResampledCurves(table, resamples=resamples)
    flocks = curves.flocks
    # One number per training seed: the median over flocks at the last step.
    last = {name: curves.last("median", name, metric=DISTANCE) for name in PAPER_NETWORKS}
    effort = {name: curves.last("median", name, metric=EFFORT) for name in PAPER_NETWORKS}
    best = "tdagnn-tf-mean"
    others = [name for name in PAPER_NETWORKS if name != best]
    return [
        Statement(
            "L1",
            "At the last step TDAGNN-TF-mean has the lowest median MLVD; ETDAGNN's is nearly double, TDAGNN's nearly "
            "triple.",
            "Below each of the others; ratios from 1.5 to 2.5 and from 2.25 to 3.75.",
            (
                *(
                    Check.less(f"last MLVD: {best} below {name}", last[best], last[name], flocks=flocks)
                    for name in others
                ),
                Check.within(f"last MLVD: etdagnn / {best}", last["etdagnn"] / last[best], 1.5, 2.5, flocks=flocks),
                Check.within(f"last MLVD: tdagnn / {best}", last["tdagnn"] / last[best], 2.25, 3.75, flocks=flocks),
            ),
        ),
        Statement(
            "L2",
            "The controllers have approximately the same mean acceleration norm.",
            f"Medians at the last step within {FEW_HUNDREDTHS:g} of each other, pair by pair.",
            Check.close_pairs("last acceleration: {} - {}", effort, FEW_HUNDREDTHS, flocks=flocks),
        ),
    ]
