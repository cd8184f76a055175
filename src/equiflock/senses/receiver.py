"""The radio of a flight's senses, which may change between two steps, and its reception while there is need of one."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool

from equiflock.flock import Flock
from equiflock.runtime.checks import InputError
from equiflock.runtime.jit import Array
from equiflock.senses.radio import PERFECT, Radio, check_radio
from equiflock.senses.reception import Reception


class Receiver:
    """Knows the radio, and has a reception where messages may be missing, late or inexact.

    Args:
        needs_perfection: whether the senses need a perfect radio and no failures.
    """

    def __init__(self, needs_perfection: bool) -> None:
        self.needs_perfection = needs_perfection
        self.radio = PERFECT
        self.reception: Reception | None = None
        self.steps = -1
        """The last step that anybody heard of by an imperfect radio."""

    def tune(self, radio: Radio | None) -> None:
        """Go on with another radio; what is on the way is lost, unless the other one remembers as many steps."""
        tuned, before = check_radio(radio), self.reception
        if tuned.is_perfect:
            self._end()
        else:
            # Steps are counted on, so that no message has the hash of another.
            self.reception = self._begin(tuned) if before is None else before.tuned(tuned)
        self.radio = tuned

    def change(self, needs_perfection: bool, kept: bool) -> None:
        """Go on with other senses; what is on the way is lost, unless it is `kept`."""
        if needs_perfection and self.reception is not None:
            raise _imperfect()
        self.needs_perfection = needs_perfection
        if self.reception is not None and not kept:
            self.reception = Reception(self.radio, self.reception.step)

    def reception_of(self, flock: Flock) -> Reception | None:
        """The reception of this flock; None where all messages arrive at once and exact."""
        # Messages that are not sent are like those that are lost, so failures take the way of a radio, too.
        if self.reception is None and not flock.all_work:
            self.reception = self._begin(self.radio)
        return self.reception

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Go on with another flock: its first agents are the kept ones."""
        if self.reception is not None:
            self.reception.replace(flock, keep)
        # Where all work again under a perfect radio, there is nothing to remember of it.
        if self.radio.is_perfect and flock.all_work:
            self._end()

    def begin_steps(self, flock: Flock, before: Array, steps: int) -> Any:
        """What the kernels are told of the radio for so many steps, which are counted; None if all messages arrive.

        For whoever makes observations by other means than `DelayedAggregation.hear`, of a flock in the units of the
        senses and by a radio that remembers nothing.
        """
        if self.reception is None:
            return None
        self.reception.begin_step(flock, before, None)
        told = self.reception.air(flock)
        self.reception.step += steps - 1
        return told

    def take_back(self, steps: int) -> None:
        """Take back that so many steps were counted, as nobody heard anything."""
        if self.reception is not None:
            self.reception.step -= steps

    def _begin(self, radio: Radio) -> Reception:
        if self.needs_perfection:
            raise _imperfect()
        return Reception(radio, self.steps)

    def _end(self) -> None:
        if self.reception is not None:
            self.steps, self.reception = self.reception.step, None


def _imperfect() -> InputError:
    return InputError('hop_mean = "sender" needs a perfect radio and no failures: a sender cannot know who hears it')
