"""Fills the replay of a training that continues, by flying again the flights whose tuples it held."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from equiflock.learning.dagger import Trainer
from equiflock.learning.rollouts import Rollout, copy_state_dict
from equiflock.runtime.checks import InputError

NOTICE_DELAY = 5.0
"""If the flights after the first take longer than this, in seconds, the user is told what is going on."""


def refill(trainer: Trainer, notice: Callable[[str], object]) -> None:
    """Fly the flights that a checkpoint has put into `trainer.rollouts`, and fill the replay with them.

    On another machine or with other versions they may differ in the last bits, and one may even be shorter or longer.
    The training then goes on with the flights as they are now, and with a notice.
    """
    rollouts = list(trainer.rollouts)
    if not rollouts:
        return
    # The network and the epoch are the flight's while it flies, and afterwards those of the checkpoint again.
    epoch, network = trainer.epoch, copy_state_dict(trainer.network)
    try:
        _repeat_rollouts(trainer, rollouts, rollouts[0].tuples_before, notice)
        # Shorter flights than before leave places of the ring without a tuple: all are then put at its beginning.
        if trainer.replay.total_added - rollouts[0].tuples_before < len(trainer.replay):
            _repeat_rollouts(trainer, rollouts, 0, notice)
    finally:
        trainer.network.load_state_dict(network)
        trainer.epoch = epoch
    if list(trainer.rollouts) != rollouts:
        notice(
            "its last flights, flown again, are not what they were: bits will differ from those without interruption"
        )


def _repeat_rollouts(
    trainer: Trainer, rollouts: Sequence[Rollout], first: int, notice: Callable[[str], object]
) -> None:
    """Fly these flights; the first tuple goes where that with the number `first` was."""
    trainer.rollouts.clear()
    trainer.replay.total_added = first
    deadline = math.inf
    for number, rollout in enumerate(rollouts):
        # The first flight may compile kernels and says nothing about the others.
        if number == 1:
            deadline = time.monotonic() + NOTICE_DELAY
        if time.monotonic() > deadline:
            notice(f"flying the last {len(rollouts)} flights again, {number} done so far")
            deadline = math.inf
        trainer.network.load_state_dict(rollout.network)
        trainer.epoch = rollout.epoch
        try:
            with trainer.seed_torch():
                trainer.run_rollout()
        except InputError as error:
            raise InputError(f"the flight of epoch {rollout.epoch + 1} cannot be flown again: {error}") from None
