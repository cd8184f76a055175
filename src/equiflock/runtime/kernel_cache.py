"""The cache of compiled kernels, on disk and keyed by content.

Clones, environments and CI runs of one user share `<user cache>/equiflock/kernels/<key>/`; EQUIFLOCK_CACHE_DIR moves
it. The key is a hash of the sources that kernels may depend on, of the versions of Numba, llvmlite, NumPy and Python,
and of Numba's settings. A file in it is one kernel for one tuple of argument types on one processor; its name is a hash
of these. Files are written under another name and renamed, so any number of processes may use the cache at once.

Numba serialises machine code with pickle, and unpickling can run code. This is the one exception to the rule that this
program never unpickles a file. So the folder must belong to the user, and nobody else may write to it; otherwise it is
not used.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
from numba import config
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

PACKAGE = Path(__file__).parent.parent

KERNEL_PACKAGES = ("runtime", "pairs", "senses", "bodies", "controllers", "scenarios", "simulation", "learning")
"""Kernels, and the constants in them, are in these parts of the package and in the modules at its top."""

MAX_UNUSED_DAYS = 60
"""A key that no process used for so long is removed."""

IGNORED_SETTINGS = {
    "CACHE_DIR",
    "CACHE_LOCATOR_CLASSES",
    "COLOR_SCHEME",
    "CUDA_INCLUDE_PATH",
    "GDB_BINARY",
    "NUMBA_DEFAULT_NUM_THREADS",
    "NUMBA_NUM_THREADS",
}
"""Settings of Numba that do not change the code of a kernel, and differ between machines and processes."""

_DIGEST_BYTES = 32


def list_source_files(package: Path = PACKAGE) -> list[Path]:
    """All files that kernels may depend on, in the order of their names."""
    parts = (path for part in KERNEL_PACKAGES for path in (package / part).rglob("*.py"))
    return sorted([*package.glob("*.py"), *parts])


def compute_cache_key(package: Path = PACKAGE) -> str:
    """The hash of everything, apart from the processor, that all kernels depend on."""
    digest = hashlib.sha256()
    versions = numba.__version__, llvmlite.__version__, np.__version__, sys.implementation.cache_tag, sys.version
    settings = sorted((name, repr(value)) for name, value in vars(config).items() if name.isupper())
    digest.update(repr((versions, [each for each in settings if each[0] not in IGNORED_SETTINGS])).encode())
    for path in list_source_files(package):
        content = path.read_bytes()
        digest.update(f"\n{path.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:32]


def _read_change_times(paths: list[Path]) -> list[tuple[int, int]]:
    """When each file was changed, as far as its file system tells."""
    return [(status.st_mtime_ns, status.st_ctime_ns) for status in map(os.stat, paths)]


# Taken before any module with kernels is imported, so that the key is that of the code that is imported.
_SOURCE_FILES = list_source_files()
_CHANGE_TIMES = _read_change_times(_SOURCE_FILES)
CACHE_KEY = compute_cache_key()


def get_cache_root() -> Path:
    """The folder of the keys: in EQUIFLOCK_CACHE_DIR, or in the user's cache."""
    named = os.environ.get("EQUIFLOCK_CACHE_DIR")
    if named:
        return Path(named).absolute() / "kernels"
    from platformdirs import user_cache_path

    return user_cache_path("equiflock", appauthor=False) / "kernels"


@cache
def get_key_dir() -> Path | None:
    """The folder with the kernels of this process; None, after a notice, if it cannot be used."""
    root = get_cache_root()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(root)
        return open_key_dir(root, CACHE_KEY)
    except OSError as error:
        print(
            f"equiflock compiles its kernels in every process, as they cannot be kept in {root}: "
            f"{error.strerror or error}; the variable EQUIFLOCK_CACHE_DIR names another folder",
            file=sys.stderr,
        )
        return None


def _check_private(folder: Path) -> None:
    """Raise an OSError if a folder belongs to another user, or if others may write to it."""
    status = folder.lstat()
    if not hasattr(os, "geteuid"):  # Windows keeps the user's folders private
        return
    if status.st_uid != os.geteuid():
        raise OSError("it belongs to another user")
    if status.st_mode & 0o022:
        raise OSError("other users may write to it: remove it, and it is made anew")


def open_key_dir(root: Path, key: str) -> Path:
    """The folder of a key, marked as used now; if it is new, keys that were not used for long are removed."""
    folder = root / key
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        _check_private(folder)
        os.utime(folder)
    else:
        remove_unused_keys(root)
    return folder


def remove_unused_keys(root: Path) -> None:
    """Remove all keys that were not used for DAYS_KEPT days.

    A process that uses one of them at this moment compiles its kernels anew.
    """
    oldest = time.time() - MAX_UNUSED_DAYS * 24 * 3600
    for folder in root.iterdir():
        # Another process may remove it at the same time.
        with suppress(OSError):
            if re.fullmatch(r"[0-9a-f]{32}", folder.name) and folder.lstat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)


class KernelCache(_Cache):
    """The cache of one kernel, which Numba's dispatcher asks before it compiles."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @property
    def cache_path(self) -> str:
        """The folder of all kernels."""
        return str(get_key_dir())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled kernel for these argument types, or None."""
        # Numba's runtime alone: what else compiling needs takes a third of a second to import.
        rtsys.initialize(target_context)
        path = self._path(sig, target_context.codegen())
        try:
            content = path.read_bytes() if path else b""
        except OSError:
            return None
        digest, payload = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        # A damaged file counts as missing.
        if hashlib.sha256(payload).digest() != digest:
            return None
        signature, reduced = pickle.loads(payload)
        # Types of another meaning could have the same name.
        return CompileResult._rebuild(target_context, *reduced) if signature == _normalize_types(sig) else None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a compiled kernel, unless its code holds addresses of this process or the sources have changed."""
        path = self._path(sig, data.codegen)
        if path is None or data.lifted or data.library.has_dynamic_globals or not _sources_are_unchanged():
            return
        # Without the annotated source, which is for people and longer than the code.
        *reduced, environments = data._replace(type_annotation="")._reduce()
        # Environments hold Python objects that compiled code uses, and import a module: those without any are left out.
        kept = tuple(each for each in environments if each.consts)
        payload = dumps((_normalize_types(sig), (*reduced, kept)))
        scratch = path.with_suffix(f".{uuid4().hex}")
        try:
            # The folder may have been removed since this process began.
            path.parent.mkdir(mode=0o700, exist_ok=True)
            scratch.write_bytes(hashlib.sha256(payload).digest() + payload)
            scratch.replace(path)
        except OSError:
            # A full disk, say: the kernel runs all the same.
            scratch.unlink(missing_ok=True)

    def _path(self, sig: Any, codegen: Any) -> Path | None:
        folder = get_key_dir()
        types = str(_normalize_types(sig))
        # Types that are named by an address differ from process to process, and so do the values of a closure.
        if folder is None or " at 0x" in types or self.function.__closure__:
            return None
        code = self.function.__code__
        # The module and the line: one module may have two functions of the same name.
        name = self.function.__module__, self.function.__qualname__, code.co_firstlineno
        described = repr((name, code.co_code, types, codegen.magic_tuple()))
        return folder / f"{self.function.__name__}-{hashlib.sha256(described.encode()).hexdigest()[:32]}.kernel"

    def enable(self) -> None:
        """Numba's way to turn a cache on; this one always is."""

    def disable(self) -> None:
        """Numba's way to turn a cache off; this one never is."""

    def flush(self) -> None:
        """Numba's way to empty a cache; files of this one go with their key."""


def _normalize_types(sig: Any) -> tuple[Any, Any]:
    """The types of the arguments, and of the result if it is declared."""
    arguments, result = normalize_signature(sig)
    return tuple(arguments), result


def _sources_are_unchanged() -> bool:
    """Whether no source was edited since this process began, so that modules imported late are what the key says."""
    try:
        return _read_change_times(_SOURCE_FILES) == _CHANGE_TIMES
    except OSError:
        return False
