"""Atomic writes, directory locks, and Ctrl-C during writes."""

from __future__ import annotations

import os
import secrets
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

from equiflock._runtime.checks import InputError

Result = TypeVar("Result")


@contextmanager
def atomic_write(path: str | os.PathLike[str], *, replace_folder: bool = False) -> Iterator[Path]:
    """Yield a temporary path for a file or folder, and rename it to `path` when the block succeeds.

    If the block fails or is interrupted, the temporary path is removed and nothing else changes. Missing parent folders
    are created. An existing file is replaced; raise InputError if `path` is an existing folder, unless
    `replace_folder`. Content is flushed to disk before it is renamed, so that a power failure cannot leave a name
    without its content.
    """
    target = Path(path).resolve()  # replace the target of a link, not the link
    if target.is_dir() and not replace_folder:
        raise InputError(f"{path} is a folder: choose another name or remove it first")
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, as a rename is atomic only within a file system; with the suffix, by which libraries choose a
    # format. The random part lets two processes write the same file, and no link can be placed under the name before.
    scratch = target.with_name(f".{target.stem}.{secrets.token_hex(8)}{target.suffix}")
    try:
        yield scratch
        run_interruptibly(lambda: _flush(scratch))
        with delay_sigint():
            _rename_into_place(scratch, target)
        run_interruptibly(lambda: _flush_entry(target.parent))
    finally:
        remove_path(scratch)


def _rename_into_place(scratch: Path, target: Path) -> None:
    """Rename the temporary path to the target; an existing folder is removed, or restored if the rename fails."""
    if not target.is_dir():
        scratch.replace(target)
        return
    # A rename cannot replace a non-empty folder, so move the old one aside first.
    aside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.aside")
    target.rename(aside)
    try:
        scratch.replace(target)
    except BaseException:
        aside.rename(target)
        raise
    remove_path(aside)


def _flush(path: Path) -> None:
    """Flush a file, or a folder with its content, to disk."""
    for part in [path, *path.rglob("*")] if path.is_dir() else [path]:
        _flush_entry(part)


def _flush_entry(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk."""
    if path.is_dir() and os.name != "posix":
        return  # only POSIX can flush a folder
    handle = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_path(path: Path) -> None:
    """Remove a file or folder, or nothing if it is missing.

    Retry for five seconds, as zarr may still be writing in the background; then give up without an error.
    """
    if not path.is_dir():
        path.unlink(missing_ok=True)
    for _ in range(50):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            break
        time.sleep(0.1)


def check_absent(path: str | os.PathLike[str]) -> None:
    """Raise InputError, before any work is done, if `path` exists or cannot be written."""
    if Path(path).exists():
        raise InputError(f"{path} already exists: choose another name or remove it first")
    check_writable(path)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise InputError, before any work is done, if the nearest existing parent folder of `path` is not writable."""
    folder = Path(path).resolve().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"{path} cannot be written: {folder} is not a writable folder")


@contextmanager
def lock_dir(folder: Path, wait: bool = False) -> Iterator[None]:
    """Lock an existing folder against other processes, by a file .lock in it, which stays.

    If another process holds the lock, wait or raise InputError. The system releases the lock even if this process is
    killed.
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
    """Block Ctrl-C (SIGINT) in processes that start inside the block, for good: their parent ends them. Not on Windows.

    A terminal sends Ctrl-C to all, and a process that is still importing would die with a traceback. In this process
    Ctrl-C waits until the block ends, unless another thread receives it: combine with `delay_sigint` to be sure.
    """
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    # A child inherits the signal mask of its parent.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def delay_sigint() -> Iterator[None]:
    """Delay Ctrl-C until the end of a short block, where libraries do not clean up after an interruption."""
    # Python delivers signals to the main thread only, so other threads are never interrupted.
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
    """Run a long call that Python cannot interrupt in another thread, so that Ctrl-C takes effect; return its result.

    After Ctrl-C the call goes on in the background. On threads other than the main one it runs directly.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    future: Future[Result] = Future()

    def fulfil() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=fulfil, daemon=True).start()
    # On some systems a wait without a timeout cannot be interrupted.
    while not future.done():
        wait([future], timeout=0.2)
    return future.result()
