"""Jobs that take no time, in a module that imports little, since every process imports it."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock._runtime.checks import InputError
from equiflock._runtime.executors import is_stop_requested, send_message


@dataclass(frozen=True)
class Square:
    """Job that squares a number, counts its runs in a file, and may fail."""

    number: int
    runs: Path
    fails: bool = False

    @property
    def key(self) -> str:
        return f"square-{self.number}"

    @property
    def labels(self) -> dict[str, Any]:
        return {"number": self.number}

    def run(self) -> pd.DataFrame:
        with (self.runs / f"{self.number}").open("a") as file:
            file.write("x")
        if self.fails:
            raise InputError("no square today")
        return pd.DataFrame({"square": [self.number**2]})


@dataclass(frozen=True)
class Fragile(Square):
    """Job whose process dies in the first run, or in every run."""

    always: bool = False

    def run(self) -> pd.DataFrame:
        first = not (self.runs / f"{self.number}").exists()
        table = super().run()
        if first or self.always:
            os.kill(os.getpid(), signal.SIGKILL)
        return table


@dataclass(frozen=True)
class Puzzled(Square):
    """Job that requires `prepare`."""

    def run(self) -> pd.DataFrame:
        return pd.DataFrame({"prepared": [os.environ.get("PREPARED")]})


def make_ready() -> None:
    os.environ["PREPARED"] = "yes"


def refuse() -> None:
    raise InputError("not like this")


@dataclass(frozen=True)
class Whereabouts:
    """Job that returns its process id; its first process may be killed."""

    number: int
    deaths: Path | None = None
    deadly: bool = False

    @property
    def key(self) -> str:
        return f"whereabouts-{self.number}"

    @property
    def labels(self) -> dict[str, Any]:
        return {"number": self.number}

    def run(self) -> pd.DataFrame:
        if self.deaths is not None and (self.deadly or not self.deaths.exists()):
            self.deaths.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return pd.DataFrame({"process": [os.getpid()], "number": [self.number]})


class StopError(Exception):
    """A job was stopped."""


@dataclass(frozen=True)
class Chatty(Whereabouts):
    """Job that sends messages until it is stopped."""

    def run(self) -> pd.DataFrame:
        send_message((self.number, "begun"))
        while not is_stop_requested():
            time.sleep(0.01)
        send_message((self.number, "stopped"))
        raise StopError


@dataclass(frozen=True)
class Stubborn:
    """Job that writes its process to a file and then holds the GIL for hours, as a compiler does for seconds."""

    path: Path

    @property
    def key(self) -> str:
        return "stubborn"

    @property
    def labels(self) -> dict[str, Any]:
        return {}

    def run(self) -> pd.DataFrame:
        write_process_and_hold_gil(self.path)
        return pd.DataFrame()


def write_process_and_hold_gil(path: Path) -> None:
    """Write the id of this process to a file in one step, and hold the GIL for hours."""
    scratch = path.with_suffix(".tmp")
    scratch.write_text(str(os.getpid()))
    scratch.rename(path)
    sum(range(10**13))


@dataclass(frozen=True)
class SignalMask(Whereabouts):
    """Job that returns whether Ctrl-C is blocked in its process, from its start on."""

    def run(self) -> pd.DataFrame:
        return pd.DataFrame({"blocked": [signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])]})
