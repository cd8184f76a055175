"""The radio of a flight, which may change between two steps, and its message buffer while one is needed."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

from equiflock.flock import Flock
from equiflock.runtime.checks import InputError
from equiflock.runtime.jit import Array
from equiflock.senses.message_buffer import MessageBuffer
from equiflock.senses.radio import IDEAL_RADIO, Radio, check_radio
from equiflock.senses.radio_kernels import RadioArgs


class RadioState:
    """A radio, and a message buffer if messages may be lost, late or inexact.

    Args:
        requires_ideal_radio: whether the senses need an ideal radio and no failures.
    """

    def __init__(self, requires_ideal_radio: bool) -> None:
        self.requires_ideal_radio = requires_ideal_radio
        self.radio = IDEAL_RADIO
        self.message_buffer: MessageBuffer | None = None
        self.steps = -1
        """The last step of the last message buffer; -1 before the first."""

    def set_radio(self, radio: Radio | None) -> None:
        """Change the radio; None for the ideal one.

        Messages in transit are lost unless both radios have the same `memory`. Raise InputError if the senses require
        an ideal radio and this one is not.
        """
        checked, before = check_radio(radio), self.message_buffer
        if checked.is_ideal:
            self._drop_buffer()
        else:
            # Continue the count of steps, so that no two messages have the same hash.
            self.message_buffer = self._start_buffer(checked) if before is None else before.with_radio(checked)
        self.radio = checked

    def set_senses(self, requires_ideal_radio: bool, keep_messages: bool) -> None:
        """Change the senses; messages in transit are lost unless `keep_messages`.

        Raise InputError if the senses require an ideal radio and a message buffer is in use.
        """
        if requires_ideal_radio and self.message_buffer is not None:
            raise _make_ideal_radio_error()
        self.requires_ideal_radio = requires_ideal_radio
        if self.message_buffer is not None and not keep_messages:
            self.message_buffer = MessageBuffer(self.radio, self.message_buffer.step)

    def get_message_buffer(self, flock: Flock) -> MessageBuffer | None:
        """Return the message buffer, or None if all messages arrive at once and exact.

        With an ideal radio, this starts a buffer once an agent has failed; raise InputError if the senses do not
        support it.
        """
        # Messages that failed agents do not send are like lost ones, so failures need a message buffer, too.
        if self.message_buffer is None and not flock.all_working:
            self.message_buffer = self._start_buffer(self.radio)
        return self.message_buffer

    def replace(self, flock: Flock, keep: Bool[np.ndarray, " N"]) -> None:
        """Continue with another flock, whose first agents are the kept ones; their messages in transit are kept.

        With an ideal radio and no failed agents, this drops the message buffer.
        """
        if self.message_buffer is not None:
            self.message_buffer.replace(flock, keep)
        # With an ideal radio, a flock whose agents all work needs no message buffer.
        if self.radio.is_ideal and flock.all_working:
            self._drop_buffer()

    def begin_steps(self, flock: Flock, previous: Array, steps: int) -> RadioArgs | None:
        """Count `steps` steps and return the radio of the first, or None if all messages arrive at once and exact.

        For callers that compute observations without `DelayedAggregation.observe`, of a flock in the units of the
        senses, with a radio without memory.
        """
        if self.message_buffer is None:
            return None
        self.message_buffer.begin_step(flock, previous, None)
        radio_args = self.message_buffer.make_radio_args(flock)
        self.message_buffer.step += steps - 1
        return radio_args

    def rollback(self, steps: int) -> None:
        """Undo the count of `begin_steps` if the steps have failed."""
        if self.message_buffer is not None:
            self.message_buffer.step -= steps

    def _start_buffer(self, radio: Radio) -> MessageBuffer:
        """Return a new buffer that continues the count of steps; raise InputError if the senses do not support one."""
        if self.requires_ideal_radio:
            raise _make_ideal_radio_error()
        return MessageBuffer(radio, self.steps)

    def _drop_buffer(self) -> None:
        """Remove the message buffer, if any, and store its count of steps for the next one."""
        if self.message_buffer is not None:
            self.steps, self.message_buffer = self.message_buffer.step, None


def _make_ideal_radio_error() -> InputError:
    return InputError(
        'hop_mean = "sender" needs an ideal radio and no failures: a sender cannot know how many agents receive from it'
    )
