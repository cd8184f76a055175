"""Hidden, locked directories for unfinished saves, and removal of those that killed processes left."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from equiflock.runtime.files import remove_path

SCRATCH_PREFIX = ".saving-"
LOCK_NAME = ".lock"
MIN_AGE_SECONDS = 10.0
"""A younger scratch directory is kept, as its process may not have locked it yet."""


@contextmanager
def make_scratch_dir(out: Path) -> Iterator[Path]:
    """Create a hidden directory in `out`, which is created if missing, and yield its path.

    On exit, also after an error, it is removed with its content. Until then it is locked. If the process is
    killed, the system releases the lock, and `remove_stale_scratch_dirs` can remove the directory.
    """
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=out))
    try:
        with ExitStack() as lock:
            with suppress(NotImplementedError):  # a file system without locks
                lock.enter_context(FileLock(folder / LOCK_NAME))
            yield folder
    finally:
        remove_path(folder)


def remove_stale_scratch_dirs(out: Path) -> None:
    """Remove the scratch directories that killed processes left in `out`, which may be missing.

    Those that are locked, younger than MIN_AGE_SECONDS, not accessible, or on a file system without locks stay.
    """
    for folder in out.glob(f"{SCRATCH_PREFIX}*"):
        try:
            if time.time() - folder.stat().st_mtime < MIN_AGE_SECONDS:
                continue
            # If the lock is free, the owner is gone.
            with FileLock(folder / LOCK_NAME, timeout=0):
                pass
        # In use, removed or not accessible, or on a file system without locks.
        except (Timeout, OSError, NotImplementedError):
            continue
        remove_path(folder)
