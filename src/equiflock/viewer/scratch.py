"""Where a flight is written until it is whole: a hidden folder that does not outlive the process that works in it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from equiflock.runtime.files import remove

PREFIX = ".saving-"
LOCK = ".lock"
SETTLED = 10.0
"""Seconds; a younger one may be one that is not locked yet."""


@contextmanager
def scratch_folder(out: Path) -> Iterator[Path]:
    """A new hidden folder in `out`, which is made if it is not there. It is gone afterwards, however the block ends.

    The folder is locked. Should the process be killed, the system lets go of the lock, and `tidy_up` knows.
    """
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=out))
    try:
        with ExitStack() as held:
            with suppress(NotImplementedError):  # a disk without locks; nothing is tidied up there
                held.enter_context(FileLock(folder / LOCK))
            yield folder
    finally:
        remove(folder)


def tidy_up(out: Path) -> None:
    """Remove the scratch folders that processes which were killed have left in `out`."""
    for folder in out.glob(f"{PREFIX}*"):
        try:
            if time.time() - folder.stat().st_mtime < SETTLED:
                continue
            with FileLock(folder / LOCK, timeout=0):
                pass
        except (Timeout, OSError, NotImplementedError):  # somebody works there, it is gone or not ours, or nobody knows
            continue
        remove(folder)
