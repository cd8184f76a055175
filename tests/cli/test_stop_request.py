"""The first Ctrl-C is a wish, the second one a command."""

from __future__ import annotations

import signal
import time

import pytest

from equiflock.cli.stop_request import StopRequest
from equiflock.runtime.files import delay_sigint


def test_the_first_is_remembered_and_said_and_the_second_interrupts() -> None:
    said: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with StopRequest(lambda: said.append("finishing")) as stopping:
        assert not stopping()
        signal.raise_signal(signal.SIGINT)
        assert stopping()
        time.sleep(0.3)
        assert said == ["finishing"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_before_anything_could_be_lost_the_first_interrupts_too() -> None:
    with StopRequest(lambda: None), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_one_that_comes_while_a_file_takes_its_name_is_a_wish_as_well() -> None:
    with StopRequest(lambda: None) as stopping:
        assert not stopping()
        with delay_sigint():
            signal.raise_signal(signal.SIGINT)
            assert not stopping()
        assert stopping()
