"""Fills the replay of a training that continues, by flying again the flights whose tuples it held."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from equiflock.learning.dagger import Trainer
from equiflock.learning.flights import Flown, snapshot
from equiflock.runtime.checks import InputError

SECONDS_IN_SILENCE = 5.0
"""If the flights after the first take longer than this, in seconds, the user is told what is going on."""


def refill(trainer: Trainer, notice: Callable[[str], object]) -> None:
    """Fly the flights that a checkpoint has put into `trainer.flights`, and fill the replay with them.

    On another machine or with other versions they may differ in the last bits, and one may even be shorter or longer.
    The training then goes on with the flights as they are now, and with a notice.
    """
    flights = list(trainer.flights)
    if not flights:
        return
    # The network and the epoch are the flight's while it flies, and afterwards those of the checkpoint again.
    epoch, network = trainer.epoch, snapshot(trainer.network)
    try:
        _fly(trainer, flights, flights[0].before, notice)
        # Shorter flights than before leave places of the ring without a tuple: all are then put at its beginning.
        if trainer.replay.added - flights[0].before < len(trainer.replay):
            _fly(trainer, flights, 0, notice)
    finally:
        trainer.network.load_state_dict(network)
        trainer.epoch = epoch
    if list(trainer.flights) != flights:
        notice(
            "its last flights, flown again, are not what they were: bits will differ from those without interruption"
        )


def _fly(trainer: Trainer, flights: Sequence[Flown], first: int, notice: Callable[[str], object]) -> None:
    """Fly these flights; the first tuple goes where that with the number `first` was."""
    trainer.flights.clear()
    trainer.replay.added = first
    deadline = math.inf
    for number, flown in enumerate(flights):
        # The first flight may compile kernels and says nothing about the others.
        if number == 1:
            deadline = time.monotonic() + SECONDS_IN_SILENCE
        if time.monotonic() > deadline:
            notice(f"flying the last {len(flights)} flights again, {number} done so far")
            deadline = math.inf
        trainer.network.load_state_dict(flown.network)
        trainer.epoch = flown.epoch
        try:
            with trainer.randomness():
                trainer.fly()
        except InputError as error:
            raise InputError(f"the flight of epoch {flown.epoch + 1} cannot be flown again: {error}") from None
