"""Temporary directories of swarms, which the next swarm removes if their host was killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

PREFIX = "equiflock-swarm-"


@contextmanager
def make_scratch_directory() -> Iterator[Path]:
    """Yield a new directory that only this user can read, locked by this process; remove it at the end.

    The system releases the lock even if this process is killed. Directories without a lock, of this user, are removed
    first.
    """
    remove_abandoned_directories()
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = _lock(folder, wait=True)
        # Another swarm may have removed the directory before it was locked.
        if folder.exists():
            break
        _unlock(lock)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _unlock(lock)


def remove_abandoned_directories() -> None:
    """Remove the temporary directories of this user's swarms whose hosts have ended. Without effect on Windows."""
    if fcntl is None:
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        lock = _lock(folder, wait=False)
        if lock is not None:
            shutil.rmtree(folder, ignore_errors=True)
            _unlock(lock)


def _lock(folder: Path, wait: bool) -> int | None:
    """Lock a directory of this user and return a handle.

    Return None if another process holds the lock and `wait` is False, or if this is not a directory of this user.
    """
    if fcntl is None:
        return None
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if os.fstat(handle).st_uid == os.getuid():
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
    except OSError:  # another process holds the lock
        pass
    os.close(handle)
    return None


def _unlock(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)
