"""Writing files so that nothing half-written ever stands under its final name."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from equiflock.types import InputError


@contextmanager
def written_whole(path: str | os.PathLike[str], *, replace_folder: bool = False) -> Iterator[Path]:
    """A scratch path beside `path` to write a file or folder to; it takes the name when the block ends well.

    If the block fails or is interrupted, the scratch is removed and everything else is as it was. A file under the
    name is replaced; a folder only if `replace_folder` says so.
    """
    target = Path(path).resolve()
    if target.is_dir() and not replace_folder:
        raise InputError(f"{path} is a folder: choose another name, or remove it first")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    aside = target.with_name(f".{target.stem}.{os.getpid()}.old")
    try:
        yield scratch
        with uninterrupted():
            if replace_folder and target.is_dir():
                target.rename(aside)  # removed only when the new one is in its place
            scratch.replace(target)
    finally:
        _remove(scratch)
        _remove(aside)


def _remove(path: Path) -> None:
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


def check_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write what the results in `folder` are results of, or refuse if there are results of something else."""
    path = folder / "config.json"
    text = json.dumps(config, indent=2) + "\n"
    if path.exists():
        if path.read_text() != text:
            raise InputError(f"{folder} holds results of other settings or versions: choose another folder with --out")
        return
    if folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise InputError(f"{folder} holds something else: choose another folder with --out")
    with written_whole(path) as scratch:
        scratch.write_text(text)


@contextmanager
def held_alone(folder: Path, wait: bool = False) -> Iterator[None]:
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
def uninterrupted() -> Iterator[None]:
    """Let a short block end before Ctrl-C takes effect, where libraries do not clean up after themselves."""
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
        raise KeyboardInterrupt
