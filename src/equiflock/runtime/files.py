"""Atomic writes, folder locks, and Ctrl-C while files are written."""

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
    """A scratch path beside `path` to write a file or folder to; it is renamed to `path` when the block succeeds.

    If the block fails or is interrupted, the scratch is removed and everything else is as it was. A file under the
    name is replaced; a folder only if `replace_folder` says so. What was written is flushed to the disk before it is
    renamed, so that not even a power cut leaves a name without its content.
    """
    # Links are followed: what they point to is replaced, not the link.
    target = Path(path).resolve()
    if target.is_dir() and not replace_folder:
        raise InputError(f"{path} is a folder: choose another name, or remove it first")
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, as only a rename within a file system is atomic; with the process's number, so that two
    # processes that write the same file do not share it; with the suffix, by which libraries choose a format.
    scratch = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    try:
        yield scratch
        run_interruptibly(lambda: _flush(scratch))
        with delay_sigint():
            _rename_into_place(scratch, target)
        run_interruptibly(lambda: _flush_entry(target.parent))
    finally:
        remove_path(scratch)


def _rename_into_place(scratch: Path, target: Path) -> None:
    """Rename the scratch to the target; if that fails, a folder that was there before is put back."""
    if not target.is_dir():
        scratch.replace(target)
        return
    # A folder that is not empty cannot be replaced by a rename, so the old one is moved aside first.
    aside = target.with_name(f".{target.name}.{os.getpid()}.aside")
    target.rename(aside)
    try:
        scratch.replace(target)
    except BaseException:
        aside.rename(target)
        raise
    remove_path(aside)


def _flush(path: Path) -> None:
    """Wait until a file, or a folder and all that is in it, is on the disk."""
    for part in [path, *path.rglob("*")] if path.is_dir() else [path]:
        _flush_entry(part)


def _flush_entry(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk."""
    if path.is_dir() and os.name != "posix":
        return  # only POSIX lets a program flush a folder
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_path(path: Path) -> None:
    """Remove a file or folder, trying again for a while: zarr may still be writing to it in the background."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
    for _ in range(50):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            break
        time.sleep(0.1)


def check_absent(path: str | os.PathLike[str]) -> None:
    """Raise a clear error, before any work is done, unless something new can be written at `path`."""
    if Path(path).exists():
        raise InputError(f"{path} exists already: choose another name, or remove it first")
    check_writable(path)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise a clear error, before any work is done, unless the folder that `path` is in can be written to."""
    # The folder itself may not exist yet: then the nearest one above it must allow it to be made.
    folder = Path(path).resolve().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"{path} cannot be written: {folder} is not a folder that may be written to")


@contextmanager
def lock_dir(folder: Path, wait: bool = False) -> Iterator[None]:
    """Lock a folder against other processes; the system releases the lock even if this one is killed.

    Args:
        folder: exists.
        wait: wait while another process holds the lock, rather than raise an error.
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
def ignore_sigint_in_children() -> Iterator[None]:
    """Processes that are started inside the block ignore Ctrl-C, which a terminal sends to all: their parent ends them.

    Otherwise one that is still importing would die with a traceback. Ctrl-C during the block takes effect after it.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    # A child inherits the mask of signals that its parent blocks.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def delay_sigint() -> Iterator[None]:
    """Delay Ctrl-C until the end of a short block, where libraries do not clean up after an interruption."""
    # Python delivers signals to the main thread only, so no other is ever interrupted.
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


def run_interruptibly(work: Callable[[], Result]) -> Result:
    """Run in another thread what may be one long call that Python cannot interrupt, so that Ctrl-C takes effect."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    future: Future[Result] = Future()

    def fulfil() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=fulfil, daemon=True).start()
    # A wait without a timeout would not be interrupted on all systems.
    while not future.done():
        wait([future], timeout=0.2)
    return future.result()
