"""Where results come from: the settings that a folder keeps beside its results, and versions."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from equiflock.runtime.checks import InputError
from equiflock.runtime.checksums import DamagedError, VersionMismatchError, read_json, write_json
from equiflock.runtime.files import check_writable, lock_dir, remove_path
from equiflock.version import __version__

CONFIG = "config.json"
KIND = "kind"
"""The entry of a folder's config that says what is in it, such as "training"."""
FORMAT = "equiflock run 1"
"""The format of run directories. Version 0.2 wrote none into its configs."""

_plugin_checksums: dict[str, str] = {}


def read_package_versions(*packages: str) -> dict[str, str]:
    """Return the versions of all that the bits of a result depend on, and of `packages` that are installed."""
    parts = {name: found for name in (*packages, "numpy", "numba") if (found := _read_version(name)) is not None}
    return {"equiflock": __version__, "python": platform.python_version(), **parts}


def _read_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def set_plugin_checksums(sources: Mapping[str, str]) -> None:
    """Remember the files of the plugin in use, with their checksums; an empty mapping if there is no plugin."""
    _plugin_checksums.clear()
    _plugin_checksums.update(sources)


def collect_versions(*packages: str) -> dict[str, str]:
    """Return versions, and, if there is a plugin, the checksums of its files and the version of torch."""
    return {**read_package_versions(*packages, *(["torch"] if _plugin_checksums else [])), **_plugin_checksums}


@contextmanager
def lock_run_dir(
    folder: Path, kind: str, config: Mapping[str, Any], output_patterns: Sequence[str], force: bool = False
) -> Iterator[None]:
    """Lock a folder for results of these settings, during the block.

    Args:
        folder: made if it is not there.
        kind: what is in it, such as "sweep".
        config: all settings on which the results depend, as JSON can hold them.
        output_patterns: patterns of the names that results of this kind have.
        force: remove what is in the folder, if it is results of this kind and nothing else, and begin anew.
    """
    # The lock comes first: what is in the folder may be another process's work of this moment.
    check_writable(folder / CONFIG)
    folder.mkdir(parents=True, exist_ok=True)
    with lock_dir(folder):
        if force:
            remove_results(folder, kind, output_patterns)
        claim_run_dir(folder, kind, config)
        yield


def write_config(folder: Path, kind: str, config: Mapping[str, Any]) -> None:
    """Write the config of a run directory: its kind, its format and these settings, with a checksum."""
    write_json({KIND: kind, "format": FORMAT, **config}, folder / CONFIG)


def read_config(folder: Path) -> dict[str, Any]:
    """Return the kind and the settings that `write_config` wrote.

    Raises:
        DamagedError: if the checksum does not match.
        VersionMismatchError: if a version with another format of run directories wrote it.
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
    """Write these settings into `folder`, or raise an error if it holds results of other settings.

    A folder of other settings that has no result yet is taken over, as nothing is lost.
    """
    # As it will be read again: tuples become lists, keys become texts.
    wanted = json.loads(json.dumps({KIND: kind, **config}))
    if (folder / CONFIG).exists():
        refusal = _find_conflict(folder, wanted)
        if not refusal:
            return
        if _has_results(folder):
            raise InputError(f"{refusal}; choose another folder with --out, or begin anew with --force")
    elif _has_results(folder):
        raise InputError(f"{folder} holds something else: choose another folder with --out")
    write_config(folder, kind, config)


def _find_conflict(folder: Path, wanted: Mapping[str, Any]) -> str:
    """Why the results in a folder do not belong to the wanted config; empty if they do."""
    try:
        before = read_config(folder)
    except DamagedError as error:
        return f"{error}, so it is not known what the results in {folder} are of"
    if before.get(KIND) != wanted[KIND]:
        raise InputError(
            f"{folder} is the folder of {format_kind(before)}, not of {format_kind(wanted)}: choose another"
        )
    other = ", ".join(list_differences(before, wanted))
    return f"{folder} holds results of other settings: {other}" if other else ""


def remove_results(folder: Path, kind: str, output_patterns: Sequence[str]) -> None:
    """Remove results of a kind from a folder; if it holds anything else, raise an error and remove nothing.

    Args:
        folder: whose config says of what kind it is, even if it is damaged.
        kind: such as "sweep".
        output_patterns: patterns of the names that results of this kind have.
    """
    inside = [path for path in folder.iterdir() if not path.name.startswith(".")] if folder.is_dir() else []
    if not inside:
        return
    # All is checked before anything is removed.
    if not is_of_kind(folder, kind):
        raise InputError(f"{folder} holds something else: --force removes {format_kind({KIND: kind})} only")
    for path in inside:
        if not any(fnmatch(path.name, pattern) for pattern in (CONFIG, *output_patterns)):
            raise InputError(
                f"{path} is no result of {format_kind({KIND: kind})}: move it elsewhere, then --force begins anew"
            )
    for path in sorted(inside, key=lambda path: path.name == CONFIG):  # the config last: until then it is ours
        remove_path(path)


def is_of_kind(folder: Path, kind: str) -> bool:
    """Whether a folder's config says that it holds results of this kind, even if the config is damaged."""
    path = folder / CONFIG
    try:
        return read_json(path).get(KIND) == kind
    except DamagedError:
        # A damaged config still says what the folder was, if the text of that entry is whole.
        return f'"{KIND}": "{kind}"'.encode() in path.read_bytes()
    except OSError:
        return False


def format_kind(config: Mapping[str, Any]) -> str:
    """What a folder holds, by its config, with an article: "a sweep"."""
    kind = config.get(KIND)
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}" if isinstance(kind, str) else "something else"


def list_differences(before: Any, now: Any, name: str = "") -> Iterator[str]:
    """Which settings differ, and how: "flocks = 50, not 10"."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*before, *now]):
            yield from list_differences(before.get(key), now.get(key), f"{name} {key}".strip())
    elif before != now:
        yield f"{name} = {before}, not {now}"


def _has_results(folder: Path) -> bool:
    """Whether there are files in a folder, or below, other than its config and hidden ones."""
    if not folder.is_dir():
        return folder.exists()
    inside = (path for path in folder.rglob("*") if not path.name.startswith(".") and path != folder / CONFIG)
    return any(path.is_file() for path in inside)
