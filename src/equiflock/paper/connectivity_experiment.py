"""Connectivity under Tanner's dynamic-topology law and under TDAGNN on the same flocks (Fig. 1 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from equiflock.paper.ledger import Check, Statement
from equiflock.paper.policies import PolicyFlightJob
from equiflock.paper.profile import Profile
from equiflock.simulation import metrics
from equiflock.statistics import RESAMPLES, limit_share, resample_share

LAW, NETWORK = "tanner-dynamic", "tdagnn"


@dataclass(frozen=True)
class ConnectivityJob(PolicyFlightJob):
    """Flights of one controller on the test flocks."""

    experiment = "connectivity"

    def run(self) -> pd.DataFrame:
        """Return a row per flock: flock, final_components, always_connected and first_disconnection.

        The latter is a time in seconds, infinite for a flock that is always connected.
        """
        run = self.fly(self.draw_start(), keep_every=None, record=(metrics.component_count,))
        components = run.series["component_count"]
        disconnected = components > 1
        ever = disconnected.any(axis=0)
        # argmax finds the first step at which a flock is disconnected.
        return pd.DataFrame(
            {
                "flock": range(self.flocks),
                "final_components": components[-1].astype(int),
                "always_connected": ~ever,
                "first_disconnection": np.where(ever, disconnected.argmax(axis=0) * self.time_step, np.inf),
            }
        )


def build_connectivity_jobs(profile: Profile, folder: Path) -> list[ConnectivityJob]:
    """Return the jobs of the law, and of the network with every seed."""
    controllers = [(profile.interpretation.format_law(LAW), None), *((NETWORK, seed) for seed in profile.seeds)]
    shared = profile.build_flight_options(folder, "connectivity")
    return [ConnectivityJob(name, seed, **shared) for name, seed in controllers]


def find_contrasting_flocks(table: pd.DataFrame, seed: int) -> list[int]:
    """Return the flocks that end disconnected under the law and are always connected under the seed's network."""
    contrasting = _compare_flocks(table, seed)
    return [int(flock) for flock in contrasting.index[contrasting]]


def _compare_flocks(table: pd.DataFrame, seed: int) -> pd.Series[bool]:
    """Return for each flock whether it contrasts, as `find_contrasting_flocks`."""
    # Both tables are indexed by flock, so that the conditions combine flock by flock.
    law = table[table.controller == LAW].set_index("flock")
    network = table[(table.controller == NETWORK) & (table.seed == seed)].set_index("flock")
    return (law.final_components > 1) & network.always_connected


def build_connectivity_statements(table: pd.DataFrame, resamples: int = RESAMPLES) -> list[Statement]:
    """Return A3: a flock that the law disconnects and the network keeps connected."""
    seeds = sorted(int(seed) for seed in table.seed.dropna().unique())
    contrasts = np.array([_compare_flocks(table, seed) for seed in seeds], np.float64)
    flocks = table.flock.nunique()
    shares = resample_share(contrasts, resamples=resamples)
    counts = np.rint(shares * flocks)
    low, high = limit_share(contrasts, share=float(np.median(shares[0])))
    least = low * flocks, high * flocks
    return [
        Statement(
            "A3",
            "On some initial conditions Tanner's dynamic-topology law loses connectivity for good where TDAGNN keeps "
            "the flock connected.",
            "At least one flock that ends disconnected under the law is connected all the time under TDAGNN.",
            (Check.within(f"such flocks, of {flocks}", counts, 1.0, float(flocks), flocks=flocks, least=least),),
        )
    ]
