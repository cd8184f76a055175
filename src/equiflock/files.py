"""Writing files so that nothing half-written ever stands under its final name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from equiflock.types import InputError


@contextmanager
def written_whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A scratch path beside `path` to write a file or folder to; it takes the name when the block ends well.

    What stood under the name before is replaced then. If the block fails or is interrupted, the scratch is removed
    and everything else is as it was.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    try:
        yield scratch
        if target.is_dir():
            shutil.rmtree(target)
        scratch.replace(target)
    finally:
        if scratch.is_dir():
            shutil.rmtree(scratch, ignore_errors=True)
        scratch.unlink(missing_ok=True)


def refuse_existing(path: str | os.PathLike[str]) -> None:
    """Raise a clear error if there is something at `path`."""
    if Path(path).exists():
        raise InputError(f"{path} exists already: choose another name, or remove it first")
