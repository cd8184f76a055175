"""Hidden folders in which flights are written until they are complete; those of killed processes are removed."""

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
"""Seconds; a younger scratch folder is left alone, as its process may not have locked it yet."""


@contextmanager
def make_scratch_dir(out: Path) -> Iterator[Path]:
    """A new hidden folder in `out`, which is made if it is not there. It is gone afterwards, however the block ends.

    The folder is locked. If the process is killed, the system releases the lock, by which `remove_stale_scratch_dirs` finds it.
    """
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=out))
    try:
        with ExitStack() as held:
            with suppress(NotImplementedError):  # a disk without locks; nothing is tidied up there
                held.enter_context(FileLock(folder / LOCK_NAME))
            yield folder
    finally:
        remove_path(folder)


def remove_stale_scratch_dirs(out: Path) -> None:
    """Remove the scratch folders that processes which were killed have left in `out`."""
    for folder in out.glob(f"{SCRATCH_PREFIX}*"):
        try:
            if time.time() - folder.stat().st_mtime < MIN_AGE_SECONDS:
                continue
            # Whoever gets the lock knows that the owner is gone.
            with FileLock(folder / LOCK_NAME, timeout=0):
                pass
        except (
            Timeout,
            OSError,
            NotImplementedError,
        ):  # in use, gone or not ours, or a disk without locks
            continue
        remove_path(folder)
