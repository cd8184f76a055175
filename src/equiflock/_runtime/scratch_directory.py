"""Locked scratch directories; later runs remove those of processes that were killed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from equiflock._runtime.files import remove_path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def make_scratch_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new directory in `parent` that only this user can read, locked by this process; remove it at the end.

    The system releases the lock even if this process is killed. Abandoned directories with the same prefix are removed
    first. `parent` is created if missing.
    """
    remove_abandoned_directories(parent, prefix)
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = _lock(folder, wait=True)
        # Another process may have removed the directory before it was locked.
        if folder.exists():
            break
        _unlock(lock)
    try:
        yield folder
    finally:
        remove_path(folder)
        _unlock(lock)


def remove_abandoned_directories(parent: Path, prefix: str) -> None:
    """Remove this user's scratch directories in `parent`, which may be missing, whose processes have ended.

    Without effect on Windows and on file systems without locks.
    """
    if fcntl is None:
        return
    for folder in parent.glob(f"{prefix}*"):
        lock = _lock(folder, wait=False)
        if lock is not None:
            remove_path(folder)
            _unlock(lock)


def _lock(folder: Path, wait: bool) -> int | None:
    """Lock a directory of this user and return a handle.

    Return None if another process holds the lock and `wait` is False, if the file system has no locks, or if this is
    not a directory of this user.
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
    except OSError:  # another process holds the lock, or there are no locks
        pass
    os.close(handle)
    return None


def _unlock(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)
