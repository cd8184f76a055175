"""Provenance of results: the config of a run directory, and package versions."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import SHORT_DIGITS, DamagedError, VersionMismatchError, read_json, write_json
from equiflock._runtime.files import check_writable, lock_dir, remove_path
from equiflock.version import __version__

CONFIG = "config.json"
KIND = "kind"
"""Config entry with the kind of results, such as "training"."""
FORMAT = "equiflock run 2"
"""Format of run directories; version 0.2 wrote none."""

_plugin_checksums: dict[str, str] = {}


def read_package_versions(*packages: str) -> dict[str, str]:
    """Return the versions of equiflock, Python, NumPy, Numba and those `packages` that are installed."""
    names = (*packages, "numpy", "numba")
    versions = {name: version for name in names if (version := _read_version(name)) is not None}
    return {"equiflock": __version__, "python": platform.python_version(), **versions}


def _read_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def set_plugin_checksums(sources: Mapping[str, str]) -> None:
    """Store the checksums of the files of the plugin in use, for this process; empty if there is no plugin."""
    _plugin_checksums.clear()
    _plugin_checksums.update(sources)


def collect_versions(*packages: str) -> dict[str, str]:
    """Return `read_package_versions` and, if there is a plugin, the version of torch and the checksums of its files."""
    return {**read_package_versions(*packages, *(["torch"] if _plugin_checksums else [])), **_plugin_checksums}


@contextmanager
def lock_run_dir(
    folder: Path, kind: str, config: Mapping[str, Any], output_patterns: Sequence[str], force: bool = False
) -> Iterator[None]:
    """Lock a run directory during the block, and write its config or check that it is the same as before.

    Raise InputError if another process holds the lock, or if the folder has other files or results of another config.

    Args:
        folder: run directory; created if missing.
        kind: kind of results, such as "sweep".
        config: all settings that the results depend on, JSON-serializable.
        output_patterns: file name patterns of results of this kind.
        force: remove existing results first, if the folder contains results of this kind and nothing else.
    """
    check_writable(folder / CONFIG)
    folder.mkdir(parents=True, exist_ok=True)
    with lock_dir(folder):
        if force:
            remove_results(folder, kind, output_patterns)
        claim_run_dir(folder, kind, config)
        yield


def write_config(folder: Path, kind: str, config: Mapping[str, Any]) -> None:
    """Write the config of a run directory: kind, format and settings, with a checksum."""
    write_json({KIND: kind, "format": FORMAT, **config}, folder / CONFIG)


def read_config(folder: Path) -> dict[str, Any]:
    """Return the kind and settings that `write_config` wrote.

    Raise DamagedError if the checksum does not match, and VersionMismatchError if another version wrote it.
    """
    config = read_json(folder / CONFIG)
    if config.pop("format", None) != FORMAT:
        written = config.get("versions")
        version = written.get("equiflock") if isinstance(written, dict) else None
        raise VersionMismatchError(
            f"{folder} was written by equiflock {version or 'of another version'} and cannot be continued by "
            f"{__version__}: choose another folder with --out"
        )
    return config


def claim_run_dir(folder: Path, kind: str, config: Mapping[str, Any]) -> None:
    """Write the config into `folder` if it has none, or has no results; do nothing if the config is the same.

    Raise InputError if the folder has results of another config, other files but no config, or another kind of results.
    """
    # Normalize as JSON does: tuples become lists, keys become strings.
    wanted = json.loads(json.dumps({KIND: kind, **config}))
    if (folder / CONFIG).exists():
        conflict = _find_conflict(folder, wanted)
        if not conflict:
            return
        if _has_results(folder):
            raise InputError(f"{conflict}; choose another folder with --out, or start over with --force")
    elif _has_results(folder):
        raise InputError(f"{folder} contains other files, or has lost its {CONFIG}: choose another folder with --out")
    write_config(folder, kind, config)


def _find_conflict(folder: Path, wanted: Mapping[str, Any]) -> str:
    """Return why the results in a folder do not belong to the wanted config; empty if they do.

    Raise InputError if the folder is the run directory of another kind of results.
    """
    try:
        before = read_config(folder)
    except DamagedError as error:
        return f"{error}, so the settings of the results in {folder} are unknown"
    if before.get(KIND) != wanted[KIND]:
        raise InputError(
            f"{folder} is the run directory of {format_kind(before)}, not of {format_kind(wanted)}: choose another"
        )
    other = ", ".join(list_differences(before, wanted))
    return f"{folder} has results of other settings: {other}" if other else ""


def remove_results(folder: Path, kind: str, output_patterns: Sequence[str]) -> None:
    """Remove results of a kind and the config from a folder, which may be missing; hidden files stay.

    If the config, even if damaged, states another kind, or if there are other files, raise InputError and remove
    nothing.
    """
    inside = list_visible(folder) if folder.is_dir() else []
    if not inside:
        return
    # Check everything before removing anything.
    if not is_of_kind(folder, kind):
        raise InputError(
            f"{folder} contains other files, or has lost its {CONFIG}: --force removes only {format_kind({KIND: kind})}"
        )
    for path in list_foreign_files(folder, output_patterns):
        raise InputError(
            f"{path} is not a result of {format_kind({KIND: kind})}: move it elsewhere, then --force starts over"
        )
    for path in sorted(inside, key=lambda path: path.name == CONFIG):  # the config last, as it identifies the folder
        remove_path(path)


def list_visible(folder: Path) -> list[Path]:
    """Return the entries of a directory whose names do not start with a dot."""
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def list_foreign_files(folder: Path, output_patterns: Sequence[str]) -> list[Path]:
    """Return the visible entries of a run directory other than its config and results with these patterns."""
    known = CONFIG, *output_patterns
    return [path for path in list_visible(folder) if not any(fnmatch(path.name, pattern) for pattern in known)]


def is_of_kind(folder: Path, kind: str) -> bool:
    """Return whether the config of a folder, even if damaged, states this kind; False if there is no config."""
    path = folder / CONFIG
    try:
        return read_json(path).get(KIND) == kind
    except DamagedError:
        # A damaged config still identifies the folder if this entry is intact.
        return f'"{KIND}": "{kind}"'.encode() in path.read_bytes()
    except OSError:
        return False


def format_kind(config: Mapping[str, Any]) -> str:
    """Return the kind in a config with an article, such as "a sweep"."""
    kind = config.get(KIND)
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}" if isinstance(kind, str) else "something else"


def list_differences(before: Any, now: Any, name: str = "") -> Iterator[str]:
    """Yield the settings that differ, also in nested mappings, such as "flocks = 50, not 10"; a missing one is None."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*before, *now]):
            yield from list_differences(before.get(key), now.get(key), f"{name} {key}".strip())
    elif before != now:
        yield f"{name} = {_shorten_checksum(before)}, not {_shorten_checksum(now)}"


def _shorten_checksum(value: Any) -> Any:
    """Return the first digits of a checksum, for messages, and any other value unchanged."""
    return value[:SHORT_DIGITS] if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) else value


def _has_results(folder: Path) -> bool:
    """Return whether a folder contains files, at any depth, other than its config and hidden ones, or is a file."""
    if not folder.is_dir():
        return folder.exists()
    inside = (path for path in folder.rglob("*") if not path.name.startswith(".") and path != folder / CONFIG)
    return any(path.is_file() for path in inside)
