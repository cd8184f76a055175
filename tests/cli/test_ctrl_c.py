"""Ctrl-C is heard wherever it comes."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import pytest
from numba.core.codegen import initialize_llvm

from equiflock.cli.ctrl_c import ensure_keyboard_interrupt
from equiflock.cli.stop_request import StopRequest


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def compile_with(called_back: Callable[[], None]) -> None:
    """Compile a module with LLVM, which hands the object over to a function in Python."""
    initialize_llvm()
    machine = llvm.Target.from_default_triple().create_target_machine()
    module = llvm.parse_assembly("define i32 @one() { ret i32 1 }")
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.set_object_cache(lambda module, compiled: called_back())
    engine.finalize_object()


class Pressing:
    def __del__(self) -> None:
        press()


def fly_on() -> None:
    """As a flight does that has not heard of Ctrl-C."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        time.sleep(0.01)


def test_while_a_kernel_is_compiled_it_waits_for_the_object_and_interrupts_then() -> None:
    handed_over: list[bool] = []

    def take() -> None:
        press()
        handed_over.append(True)

    with ensure_keyboard_interrupt():
        compile_with(take)
        assert handed_over == [True]
        with pytest.raises(KeyboardInterrupt):
            fly_on()


def test_so_it_does_before_the_first_epoch_of_a_training() -> None:
    with ensure_keyboard_interrupt(), StopRequest(lambda: None):
        compile_with(press)
        with pytest.raises(KeyboardInterrupt):
            fly_on()


def test_in_a_destructor_it_counts_a_moment_later() -> None:
    with ensure_keyboard_interrupt():
        Pressing()
        with pytest.raises(KeyboardInterrupt):
            fly_on()


def test_everywhere_else_it_counts_at_once() -> None:
    with ensure_keyboard_interrupt(), pytest.raises(KeyboardInterrupt):
        press()


def test_other_errors_that_python_drops_are_reported_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def __del__(self) -> None:
            raise ValueError("no more")

    told: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(dropped.exc_type))
    with ensure_keyboard_interrupt():
        Failing()
    assert told == [ValueError]


def test_afterwards_all_is_as_before_and_where_it_was_ignored_it_is_ignored() -> None:
    hook = sys.unraisablehook
    with ensure_keyboard_interrupt():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert sys.unraisablehook is hook
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ensure_keyboard_interrupt():
            press()
    finally:
        signal.signal(signal.SIGINT, before)
