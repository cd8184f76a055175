"""The cache of compiled kernels, on disk and keyed by content.

Clones, environments and CI runs of one user share `<user cache>/equiflock/kernels/<key>/`; EQUIFLOCK_CACHE_DIR moves
it. The key is a hash of the sources that kernels depend on, of the versions of Numba, llvmlite, NumPy and Python,
and of Numba's settings. A file in it is one kernel for one tuple of argument types on one processor; its name is a hash
of these. Files are written under a temporary name and renamed, so any number of processes may share the cache.

Numba serialises machine code with pickle, and unpickling can run code. This is the one exception to the rule that this
program never unpickles a file. So the folder is used only if it belongs to the user and no other user can write to it
(`user_cache`).
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator
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

from equiflock._runtime.checks import InputError
from equiflock._runtime.user_cache import KEY_DIGITS, open_cache_dir

PACKAGE = Path(__file__).parent.parent

KERNEL_PACKAGES = ("_runtime", "graph", "observations", "bodies", "controllers", "scenarios", "simulation", "learning")
"""Packages that contain kernels or constants used in kernels, besides the modules at the top of the package."""

KERNEL_IMPORT = "from equiflock._runtime.jit import"
"""Text in every file that has kernels."""
IMPORTS = re.compile(r"^[ ]*from (equiflock(?:\.\w+)*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
"""Module and names of an import from this package."""

IGNORED_SETTINGS = {
    "CACHE_DIR",
    "CACHE_LOCATOR_CLASSES",
    "COLOR_SCHEME",
    "CUDA_INCLUDE_PATH",
    "GDB_BINARY",
    "NUMBA_DEFAULT_NUM_THREADS",
    "NUMBA_NUM_THREADS",
}
"""Settings of Numba that do not change compiled code but differ between machines and processes."""

_DIGEST_BYTES = 32


def list_source_files(package: Path = PACKAGE) -> list[Path]:
    """Return the Python files on which kernels may depend, sorted.

    They are the files of KERNEL_PACKAGES and at the top of the package that have kernels, and all files that these
    import, directly or indirectly: a kernel may use their constants and inline their functions.
    """
    parts = (path for part in KERNEL_PACKAGES for path in (package / part).rglob("*.py"))
    contents = {path: path.read_text("utf-8") for path in (*package.glob("*.py"), *parts)}
    missing = [path for path, content in contents.items() if KERNEL_IMPORT in content]
    found = set(missing)
    while missing:
        imported = set(_list_imports(contents[missing.pop()], package)) & contents.keys() - found
        found |= imported
        missing += imported
    return sorted(found)


def _list_imports(content: str, package: Path) -> Iterator[Path]:
    """Yield the files that may hold the modules and packages of our own which a source imports, existing or not."""
    for module, names in IMPORTS.findall(content):
        folder = package.joinpath(*module.split(".")[1:])
        yield folder.with_suffix(".py")
        yield folder / "__init__.py"
        # A name may be that of a module.
        yield from ((folder / name).with_suffix(".py") for name in re.findall(r"\w+", names))


def compute_cache_key(package: Path = PACKAGE) -> str:
    """Return 32 hex digits, the hash of the sources, versions and Numba's settings that compiled kernels depend on."""
    digest = hashlib.sha256()
    versions = numba.__version__, llvmlite.__version__, np.__version__, sys.implementation.cache_tag, sys.version
    settings = sorted((name, repr(value)) for name, value in vars(config).items() if name.isupper())
    digest.update(repr((versions, [each for each in settings if each[0] not in IGNORED_SETTINGS])).encode())
    for path in list_source_files(package):
        content = path.read_bytes()
        digest.update(f"\n{path.relative_to(package).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:KEY_DIGITS]


def _read_change_times(paths: list[Path]) -> list[tuple[int, int]]:
    return [(status.st_mtime_ns, status.st_ctime_ns) for status in map(os.stat, paths)]


# Computed before any module with kernels is imported, so that the key matches the imported code.
_SOURCE_FILES = list_source_files()
_CHANGE_TIMES = _read_change_times(_SOURCE_FILES)
CACHE_KEY = compute_cache_key()


@cache
def get_key_dir() -> Path | None:
    """Return the folder of this process's kernels, created if missing.

    Return None, with a notice on standard error, if it cannot be used or is not private.
    """
    try:
        return open_cache_dir("kernels", CACHE_KEY)
    except InputError as error:
        print(f"equiflock compiles its kernels in every process: {error}", file=sys.stderr)
        return None


class KernelCache(_Cache):
    """Cache of one kernel, which Numba's dispatcher queries before it compiles."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @property
    def cache_path(self) -> str:
        """Folder of the cached kernels."""
        return str(get_key_dir())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel for these argument types, or None if it is not cached or its file is damaged."""
        # Initialize only Numba's runtime: the rest of the compiler takes a third of a second to import.
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
        # Different types could have the same name.
        return CompileResult._rebuild(target_context, *reduced) if signature == _normalize_types(sig) else None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a compiled kernel atomically if it can be cached; else, or if writing fails, do nothing.

        A kernel cannot be cached if its types or code contain addresses of this process, if it is a closure, if sources
        have changed since the process started, or if there is no cache directory.
        """
        path = self._path(sig, data.codegen)
        if path is None or data.lifted or data.library.has_dynamic_globals or not _sources_are_unchanged():
            return
        # Drop the annotated source, which is only for humans and longer than the code.
        *reduced, environments = data._replace(type_annotation="")._reduce()
        # Environments hold Python objects of compiled code, and loading one imports its module: drop empty ones.
        used_environments = tuple(each for each in environments if each.consts)
        payload = dumps((_normalize_types(sig), (*reduced, used_environments)))
        scratch = path.with_suffix(f".{uuid4().hex}")
        try:
            # The folder may have been removed since this process started.
            path.parent.mkdir(mode=0o700, exist_ok=True)
            scratch.write_bytes(hashlib.sha256(payload).digest() + payload)
            scratch.replace(path)
        except OSError:
            # For example a full disk: the kernel still runs.
            scratch.unlink(missing_ok=True)

    def _path(self, sig: Any, codegen: Any) -> Path | None:
        """Return the file of the kernel for these types on this processor, or None if it cannot be cached."""
        folder = get_key_dir()
        types = str(_normalize_types(sig))
        # Types named by an address and closure values differ between processes.
        if folder is None or " at 0x" in types or self.function.__closure__:
            return None
        code = self.function.__code__
        # With the line number, as a module may have two functions of the same name.
        name = self.function.__module__, self.function.__qualname__, code.co_firstlineno
        described = repr((name, code.co_code, types, codegen.magic_tuple()))
        return folder / f"{self.function.__name__}-{hashlib.sha256(described.encode()).hexdigest()[:32]}.kernel"

    def enable(self) -> None:
        """Do nothing: this cache is always on, and files are removed together with their key."""

    disable = flush = enable


def _normalize_types(sig: Any) -> tuple[Any, Any]:
    """Return the types of the arguments, and of the result if declared."""
    arguments, result = normalize_signature(sig)
    return tuple(arguments), result


def _sources_are_unchanged() -> bool:
    """Return whether no source file has changed since this process started, so that late imports match the key."""
    try:
        return _read_change_times(_SOURCE_FILES) == _CHANGE_TIMES
    except OSError:
        return False
