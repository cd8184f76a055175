"""The user's cache directory: private folders that all runs of one user share, named by keys.

It is the system's cache directory of the user, or EQUIFLOCK_CACHE_DIR. A kind of content, such as "kernels", has a
folder with one subfolder per key, 32 hexadecimal digits.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path

from equiflock._runtime.checks import InputError

MAX_UNUSED_DAYS = 60
"""Keys that were not used for this many days are removed."""
KEY_DIGITS = 32


def get_cache_root(kind: str) -> Path:
    """Return the folder of a kind of content in EQUIFLOCK_CACHE_DIR or in the user's cache; create nothing."""
    named = os.environ.get("EQUIFLOCK_CACHE_DIR")
    if named:
        return Path(named).absolute() / kind
    from platformdirs import user_cache_path

    return user_cache_path("equiflock", appauthor=False) / kind


def open_cache_dir(kind: str, key: str) -> Path:
    """Return the folder of a key, created or marked as used now; if it is new, remove unused keys.

    Raise InputError if it cannot be created, is a symbolic link, or another user owns it or can write to it.
    """
    root = get_cache_root(kind)
    folder = root / key
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(root)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            _check_private(folder)
            os.utime(folder)
        else:
            remove_unused_keys(root)
    except OSError as error:
        raise InputError(
            f"{root} cannot be used: {error.strerror or error}; set EQUIFLOCK_CACHE_DIR to use another folder"
        ) from None
    return folder


def _check_private(folder: Path) -> None:
    """Raise OSError if this is no folder, belongs to another user, or others can write to it."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise OSError(f"{folder.name} is a symbolic link or a file, not a folder")
    if not hasattr(os, "geteuid"):  # Windows keeps the user's folders private
        return
    if status.st_uid != os.geteuid():
        raise OSError(f"{folder.name} belongs to another user")
    if status.st_mode & 0o022:
        raise OSError(f"other users can write to {folder.name}: remove it and it will be created again")


def remove_unused_keys(root: Path) -> None:
    """Remove all keys that were not used for MAX_UNUSED_DAYS days."""
    oldest = time.time() - MAX_UNUSED_DAYS * 24 * 3600
    for folder in root.iterdir():
        # Another process may remove it at the same time.
        with suppress(OSError):
            if re.fullmatch(rf"[0-9a-f]{{{KEY_DIGITS}}}", folder.name) and folder.lstat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)
