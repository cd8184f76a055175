"""Refills the replay of a resumed training by repeating the rollouts whose tuples it held."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from equiflock.learning.dagger import Trainer
from equiflock.learning.rollouts import Rollout, copy_state_dict
from equiflock.runtime.checks import InputError

NOTICE_DELAY = 5.0
"""Seconds after which the user receives a progress notice, counted from the second rollout."""


def refill(trainer: Trainer, notice: Callable[[str], object]) -> None:
    """Repeat the rollouts in `trainer.rollouts`, restored from a checkpoint, and fill the replay with them.

    Network weights and epoch of the trainer are the same afterwards; without rollouts nothing is done. Raise InputError
    if a rollout cannot be repeated.

    On another machine or with other versions they may differ in rounding, and even in length. The training then
    continues with the new rollouts, with a notice.
    """
    rollouts = list(trainer.rollouts)
    if not rollouts:
        return
    # Each rollout uses its own network and epoch; restore those of the checkpoint afterwards.
    epoch, network = trainer.epoch, copy_state_dict(trainer.network)
    try:
        _repeat_rollouts(trainer, rollouts, rollouts[0].tuples_before, notice)
        # If rollouts are now shorter, parts of the ring stay empty: repeat them from the start of the ring.
        if trainer.replay.total_added - rollouts[0].tuples_before < len(trainer.replay):
            _repeat_rollouts(trainer, rollouts, 0, notice)
    finally:
        trainer.network.load_state_dict(network)
        trainer.epoch = epoch
    if list(trainer.rollouts) != rollouts:
        notice(
            "its last rollouts, repeated, differ from the original ones: the result will differ from that of an "
            "uninterrupted training"
        )


def _repeat_rollouts(
    trainer: Trainer, rollouts: Sequence[Rollout], first: int, notice: Callable[[str], object]
) -> None:
    """Replace `trainer.rollouts` by repetitions of these, whose first tuple gets the number `first` in the replay.

    Network weights and epoch of the trainer are those of the last rollout afterwards. If this takes long, a notice
    reports it.
    """
    trainer.rollouts.clear()
    trainer.replay.total_added = first
    deadline = math.inf
    for number, rollout in enumerate(rollouts):
        # The first rollout may compile kernels, so its time does not count.
        if number == 1:
            deadline = time.monotonic() + NOTICE_DELAY
        if time.monotonic() > deadline:
            notice(f"repeating the last {len(rollouts)} rollouts, {number} done so far")
            deadline = math.inf
        trainer.network.load_state_dict(rollout.network)
        trainer.epoch = rollout.epoch
        try:
            with trainer.seed_torch():
                trainer.run_rollout()
        except InputError as error:
            raise InputError(f"the rollout of epoch {rollout.epoch + 1} cannot be repeated: {error}") from None
