"""Users see how far the compiler is, once it takes long."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from numba import njit

from equiflock._runtime import compile_progress
from equiflock._runtime.kernel_cache import KernelCache
from equiflock.observations.aggregation_kernels import aggregate_flocks


def kernel(function: Any) -> Any:
    """As kernels of the package are; it is never called here."""
    compiled = njit(function)
    compiled._cache = KernelCache(function)
    return compiled


@kernel
def leaf(x: Any) -> Any:
    return x


@njit
def part(x: Any) -> Any:
    return leaf(x)


@kernel
def root(x: Any) -> Any:
    return part(x) + leaf(x)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> compile_progress._Listener:
    monkeypatch.setattr(compile_progress, "DISPLAY_DELAY", -1.0)
    monkeypatch.setattr(compile_progress, "_listener", compile_progress._Listener())
    return compile_progress._listener


def compile_event(dispatcher: Any) -> Any:
    """What Numba tells a listener."""
    return SimpleNamespace(data={"dispatcher": dispatcher})


def compile_both(listener: compile_progress._Listener) -> None:
    """What happens when `root` is called, and `leaf` is compiled for it."""
    listener.on_start(compile_event(root))
    listener.on_start(compile_event(part))
    listener.on_start(compile_event(leaf))
    listener.on_end(compile_event(leaf))
    listener.on_end(compile_event(part))
    listener.on_end(compile_event(root))


def test_kernels_are_counted_with_those_that_they_call_and_nothing_else_is() -> None:
    assert {each.py_func.__name__ for each in compile_progress.list_kernels(root)} == {"root", "leaf"}
    reached = {each.py_func.__name__ for each in compile_progress.list_kernels(aggregate_flocks)}  # type: ignore[arg-type]
    assert {"aggregate_flocks", "list_batch", "aggregate_paper_channels", "sort_into_cells"} <= reached


def test_a_terminal_has_one_line_that_is_cleared_at_the_end(
    listener: compile_progress._Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    compile_both(listener)
    line = "compiling kernels, first run only: 0 of 2"
    assert terminal.getvalue() == f"{compile_progress.CLEAR_LINE}{line}" * 2 + compile_progress.CLEAR_LINE


def test_elsewhere_there_is_a_single_line(
    listener: compile_progress._Listener, capsys: pytest.CaptureFixture[str]
) -> None:
    compile_both(listener)
    compile_both(listener)
    assert capsys.readouterr().err == "compiling kernels, first run only; this may take a minute\n"


def test_displays_ask_for_the_progress_and_nothing_else_is_written(
    listener: compile_progress._Listener, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compile_progress.format_progress() is None
    with compile_progress.suppress_progress_output():
        listener.on_start(compile_event(root))
        assert compile_progress.format_progress() == "compiling kernels, first run only: 0 of 2"
        listener.on_start(compile_event(leaf))
        listener.on_end(compile_event(leaf))
        listener.on_end(compile_event(root))
    assert compile_progress.format_progress() is None
    assert capsys.readouterr().err == ""


def test_nothing_is_shown_of_what_takes_a_moment(
    listener: compile_progress._Listener, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compile_progress, "DISPLAY_DELAY", 60.0)
    listener.on_start(compile_event(root))
    assert compile_progress.format_progress() is None
    listener.on_end(compile_event(root))
    assert capsys.readouterr().err == ""
