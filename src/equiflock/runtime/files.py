"""Writing files so that nothing half-written ever stands under its final name."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from equiflock.runtime.checks import InputError

Result = TypeVar("Result")


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, replace_folder: bool = False) -> Iterator[Path]:
    """A scratch path beside `path` to write a file or folder to; it takes the name when the block ends well.

    If the block fails or is interrupted, the scratch is removed and everything else is as it was. A file under the
    name is replaced; a folder only if `replace_folder` says so. What was written is on the disk before it takes the
    name, so that not even a power cut leaves a name without its content.
    """
    target = Path(path).resolve()
    if target.is_dir() and not replace_folder:
        raise InputError(f"{path} is a folder: choose another name, or remove it first")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    try:
        yield scratch
        interruptible(lambda: _flush(scratch))
        with uninterrupted():
            _take_name(scratch, target)
        interruptible(lambda: _flush_entry(target.parent))
    finally:
        remove(scratch)


def _take_name(scratch: Path, target: Path) -> None:
    """Put a file or folder in its place; if that fails, an old one is where it was."""
    if not target.is_dir():
        scratch.replace(target)
        return
    aside = target.with_name(f".{target.name}.{os.getpid()}.aside")
    target.rename(aside)
    try:
        scratch.replace(target)
    except BaseException:
        aside.rename(target)
        raise
    remove(aside)


def _flush(path: Path) -> None:
    """Wait until a file, or a folder and all that is in it, is on the disk."""
    for part in [path, *path.rglob("*")] if path.is_dir() else [path]:
        _flush_entry(part)


def _flush_entry(path: Path) -> None:
    if path.is_dir() and os.name != "posix":
        return  # other systems write the names in a folder themselves
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file or folder, trying again for a while: zarr may still be writing to it in the background."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
    for _ in range(50):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            break
        time.sleep(0.1)


def check_new(path: str | os.PathLike[str]) -> None:
    """Raise a clear error, before any work is done, unless something new can be written at `path`."""
    if Path(path).exists():
        raise InputError(f"{path} exists already: choose another name, or remove it first")
    check_writable(path)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise a clear error, before any work is done, unless the folder that `path` is in can be written to."""
    folder = Path(path).resolve().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"{path} cannot be written: {folder} is not a folder that may be written to")


@contextmanager
def folder_lock(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold a folder against other processes; the system lets go of it even if this one is killed.

    If another process holds it, that is an error, or its end is waited for.
    """
    lock = FileLock(folder / ".lock", timeout=-1 if wait else 0)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(f"another process is writing to {folder}") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def deaf_children() -> Iterator[None]:
    """Processes that are started meanwhile never hear Ctrl-C, which a terminal sends to all: their parent decides.

    One that is still importing would die with a traceback. A signal that comes meanwhile is heard afterwards.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Let a short block end before Ctrl-C takes its usual effect, where libraries do not clean up after themselves."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        signal.raise_signal(signal.SIGINT)


def interruptible(work: Callable[[], Result]) -> Result:
    """Do in another thread what may take long in one call that Python cannot interrupt, and hear Ctrl-C meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    future: Future[Result] = Future()

    def fulfil() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=fulfil, daemon=True).start()
    while not future.done():
        wait([future], timeout=0.2)
    return future.result()
