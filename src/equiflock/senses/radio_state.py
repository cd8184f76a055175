"""The radio of a flight's senses, which may change between two steps, and its reception while there is need of one."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool

from equiflock.flock import Flock
from equiflock.runtime.checks import InputError
from equiflock.runtime.jit import Array
from equiflock.senses.message_buffer import MessageBuffer
from equiflock.senses.radio import IDEAL_RADIO, Radio, check_radio


class RadioState:
    """Knows the radio, and has a reception where messages may be missing, late or inexact.

    Args:
        requires_ideal_radio: whether the senses need a perfect radio and no failures.
    """

    def __init__(self, requires_ideal_radio: bool) -> None:
        self.requires_ideal_radio = requires_ideal_radio
        self.radio = IDEAL_RADIO
        self.message_buffer: MessageBuffer | None = None
        self.steps = -1
        """The last step that anybody heard of by an imperfect radio."""

    def set_radio(self, radio: Radio | None) -> None:
        """Go on with another radio; what is on the way is lost, unless the other one remembers as many steps."""
        tuned, before = check_radio(radio), self.message_buffer
        if tuned.is_ideal:
            self._drop_buffer()
        else:
            # Steps are counted on, so that no message has the hash of another.
            self.message_buffer = self._start_buffer(tuned) if before is None else before.tuned(tuned)
        self.radio = tuned

    def set_senses(self, requires_ideal_radio: bool, kept: bool) -> None:
        """Go on with other senses; what is on the way is lost, unless it is `kept`."""
        if requires_ideal_radio and self.message_buffer is not None:
            raise _make_ideal_radio_error()
        self.requires_ideal_radio = requires_ideal_radio
        if self.message_buffer is not None and not kept:
            self.message_buffer = MessageBuffer(self.radio, self.message_buffer.step)

    def get_message_buffer(self, flock: Flock) -> MessageBuffer | None:
        """The reception of this flock; None where all messages arrive at once and exact."""
        # Messages that are not sent are like those that are lost, so failures take the way of a radio, too.
        if self.message_buffer is None and not flock.all_working:
            self.message_buffer = self._start_buffer(self.radio)
        return self.message_buffer

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Go on with another flock: its first agents are the kept ones."""
        if self.message_buffer is not None:
            self.message_buffer.replace(flock, keep)
        # Where all work again under a perfect radio, there is nothing to remember of it.
        if self.radio.is_ideal and flock.all_working:
            self._drop_buffer()

    def begin_steps(self, flock: Flock, previous: Array, steps: int) -> Any:
        """What the kernels are told of the radio for so many steps, which are counted; None if all messages arrive.

        For whoever makes observations by other means than `DelayedAggregation.hear`, of a flock in the units of the
        senses and by a radio that remembers nothing.
        """
        if self.message_buffer is None:
            return None
        self.message_buffer.begin_step(flock, previous, None)
        told = self.message_buffer.flock_radio(flock)
        self.message_buffer.step += steps - 1
        return told

    def rollback(self, steps: int) -> None:
        """Take back that so many steps were counted, as nobody heard anything."""
        if self.message_buffer is not None:
            self.message_buffer.step -= steps

    def _start_buffer(self, radio: Radio) -> MessageBuffer:
        if self.requires_ideal_radio:
            raise _make_ideal_radio_error()
        return MessageBuffer(radio, self.steps)

    def _drop_buffer(self) -> None:
        if self.message_buffer is not None:
            self.steps, self.message_buffer = self.message_buffer.step, None


def _make_ideal_radio_error() -> InputError:
    return InputError('hop_mean = "sender" needs a perfect radio and no failures: a sender cannot know who hears it')
