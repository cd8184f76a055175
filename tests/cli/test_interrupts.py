"""Ctrl-C raises KeyboardInterrupt wherever the program is, or requests that a training stops; SIGTERM ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import pytest
from numba.core.codegen import initialize_llvm

from equiflock._runtime.files import delay_sigint
from equiflock.cli.interrupts import StopRequest, defer_signals, ensure_keyboard_interrupt, raise_system_exit
from tests.cli.commands import SOURCE, failure, start


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
    """Run on until Ctrl-C interrupts, as a flight does."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        time.sleep(0.01)


def test_ctrl_c_during_compilation_interrupts_after_the_compiler_callback() -> None:
    handed_over: list[bool] = []

    def take() -> None:
        press()
        handed_over.append(True)

    with ensure_keyboard_interrupt():
        compile_with(take)
        assert handed_over == [True]
        with pytest.raises(KeyboardInterrupt):
            fly_on()


def test_ctrl_c_during_compilation_before_the_first_epoch_interrupts() -> None:
    with ensure_keyboard_interrupt(), StopRequest(lambda: None):
        compile_with(press)
        with pytest.raises(KeyboardInterrupt):
            fly_on()


def test_sigterm_during_compilation_ends_the_program_after_the_compiler_callback() -> None:
    handed_over: list[bool] = []

    def take() -> None:
        signal.raise_signal(signal.SIGTERM)
        handed_over.append(True)

    before = signal.signal(signal.SIGTERM, raise_system_exit)
    try:
        compile_with(take)
        assert handed_over == [True]
        with pytest.raises(SystemExit, match="143"):
            fly_on()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_ctrl_c_in_a_destructor_interrupts_later() -> None:
    with ensure_keyboard_interrupt():
        Pressing()
        with pytest.raises(KeyboardInterrupt):
            fly_on()


def test_ctrl_c_elsewhere_interrupts_immediately() -> None:
    with ensure_keyboard_interrupt(), pytest.raises(KeyboardInterrupt):
        press()


def test_other_unraisable_errors_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def __del__(self) -> None:
            raise ValueError("no more")

    reported: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: reported.append(dropped.exc_type))
    with ensure_keyboard_interrupt():
        Failing()
    assert reported == [ValueError]


def test_handlers_are_restored_and_an_ignored_sigint_stays_ignored() -> None:
    hook = sys.unraisablehook
    with ensure_keyboard_interrupt():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert sys.unraisablehook is hook
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ensure_keyboard_interrupt(), StopRequest(lambda: None) as stopping:
            assert not stopping()
            press()
            assert not stopping()
    finally:
        signal.signal(signal.SIGINT, before)


SLOW_IMPORT = """
import time
from pathlib import Path

Path("importing").touch()
try:
    time.sleep(600)
except KeyboardInterrupt:
    raise ImportError("not now")
"""
IGNORING = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"


@pytest.mark.slow
@pytest.mark.parametrize("module", ["tyro", "numba"])
def test_ctrl_c_during_imports_ends_with_130_and_one_line(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{module}.py").write_text(SLOW_IMPORT)  # first in the path of `python -m`
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    process = start("simulate", folder=tmp_path)
    try:
        while process.poll() is None and not (tmp_path / "importing").exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "equiflock: interrupted\n")
        assert process.returncode == 130
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_few_modules_are_imported_before_ctrl_c_is_handled() -> None:
    code = "import sys; before = set(sys.modules); import equiflock.cli; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.split(".")[0] for name in done.stdout.split()} - sys.stdlib_module_names == {"equiflock"}
    assert "typing" not in done.stdout.split()


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_a_command_restores_the_handler_of_its_caller(handler: Any, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        failure(capsys, "nosuch")
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_tests_of_ctrl_c_pass_in_a_background_job_which_ignores_it() -> None:
    chosen = f"{__file__}::{test_ctrl_c_elsewhere_interrupts_immediately.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", chosen]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-c", IGNORING, *command], cwd=SOURCE.parent, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


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


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_deferred_signals_raise_nothing_and_the_first_is_returned(signum: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with defer_signals() as get_signal:
        assert get_signal() is None
        signal.raise_signal(signum)
        signal.raise_signal(signal.SIGINT)
        assert get_signal() == signum
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
