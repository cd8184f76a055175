"""Starling: ETDAGNN that hears means and sums, who leaves, and obstacles by themselves.

One controller for all sizes and tasks. Its eight channels are the mean and the sum of the paper's three features,
since the mean serves small flocks best and the sum large ones; those who fly away, to hold on to them; and the relative
velocity of the nearest obstacle agent, as the orbit technique takes it. Hops pass on the last, so that an agent knows
of an obstacle that it does not hear itself, and may fly there by other weights.
"""

from __future__ import annotations

from functools import partial

from equiflock.controllers.classical.tanner import LEAVING
from equiflock.controllers.networks.paper import ETDAGNN
from equiflock.controllers.registry import add_network
from equiflock.features import Channel, feature_with, paper_channels

CHANNELS: tuple[Channel, ...] = (
    *paper_channels("mean"),
    *paper_channels("sum"),
    (LEAVING, "mean"),
    (feature_with("velocity", among="obstacles"), "sum"),
)
"""The channels of one hop."""

add_network("starling", partial(ETDAGNN, "starling", channels=CHANNELS))
