"""The first Ctrl-C requests a stop, the second one interrupts."""

from __future__ import annotations

import signal
import time

import pytest

from equiflock._runtime.files import delay_sigint
from equiflock.cli.interrupts import StopRequest


def test_the_first_ctrl_c_is_confirmed_and_the_second_interrupts() -> None:
    confirmations: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with StopRequest(lambda: confirmations.append("finishing")) as stopping:
        assert not stopping()
        signal.raise_signal(signal.SIGINT)
        assert stopping()
        time.sleep(0.3)
        assert confirmations == ["finishing"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_ctrl_c_before_the_first_poll_interrupts() -> None:
    with StopRequest(lambda: None), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_while_a_file_is_renamed_is_a_request() -> None:
    with StopRequest(lambda: None) as stopping:
        assert not stopping()
        with delay_sigint():
            signal.raise_signal(signal.SIGINT)
            assert not stopping()
        assert stopping()
