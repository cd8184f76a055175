"""What results are results of: the settings that a folder keeps beside them, and versions."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from equiflock.checks import InputError
from equiflock.checksums import DamagedError, read_json, write_json
from equiflock.version import __version__

CONFIG = "config.json"
KIND = "kind"
"""The entry of a folder's config that says what is in it, such as "training"."""


def versions() -> dict[str, str]:
    """Of everything that has a say in the bits of a result."""
    parts = {name: importlib.metadata.version(name) for name in ("torch", "numpy", "numba")}
    return {"equiflock": __version__, "python": platform.python_version(), **parts}


def claim_folder(folder: Path, kind: str, config: Mapping[str, Any], force: bool = False) -> None:
    """Make `folder` one of results of these settings, or refuse if there are results of others in it.

    Args:
        folder: made if it is not there.
        kind: what is in it, such as "sweep".
        config: everything that has a say in the results, such as JSON can hold.
        force: remove what is in the folder, if it is results of this kind, and begin anew.

    A folder of other settings that has no result yet is taken over: whatever failed there left nothing to lose.
    """
    wanted = json.loads(json.dumps({KIND: kind, **config}))
    path = folder / CONFIG
    if force:
        if path.exists():
            _refusal(path, wanted)  # whose results are of another kind keeps them
        remove_results(folder)
    if path.exists():
        refusal = _refusal(path, wanted)
        if not refusal:
            return
        if _has_results(folder):
            raise InputError(f"{refusal}; choose another folder with --out, or begin anew with --force")
    elif _has_results(folder):
        raise InputError(f"{folder} holds something else: choose another folder with --out")
    write_json(wanted, path)


def _refusal(path: Path, wanted: Mapping[str, Any]) -> str:
    """Why results beside this config are not those of the wanted one; empty if they are."""
    try:
        before = read_json(path)
    except DamagedError as error:
        return f"{error}, so it is not known what the results in {path.parent} are of"
    if before.get(KIND) != wanted[KIND]:
        raise InputError(f"{path.parent} is the folder of {told(before)}, not of {told(wanted)}: choose another")
    other = ", ".join(differences(before, wanted))
    return f"{path.parent} holds results of other settings: {other}" if other else ""


def remove_results(folder: Path) -> None:
    """Remove a folder that the program wrote, as its config tells; anything else is refused."""
    if not folder.exists():
        return
    path = folder / CONFIG
    try:
        ours = KIND in read_json(path)
    except DamagedError:
        ours = b'"checksum"' in path.read_bytes()
    except OSError:
        ours = False
    if not ours:
        raise InputError(f"{folder} holds something else: --force removes results of this program only")
    shutil.rmtree(folder)


def told(config: Mapping[str, Any]) -> str:
    """What a folder's config says is in it."""
    kind = config.get(KIND)
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}" if isinstance(kind, str) else "something else"


def differences(before: Any, now: Any, name: str = "") -> Iterator[str]:
    """Which settings differ, and how: "flocks = 50, not 10"."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*before, *now]):
            yield from differences(before.get(key), now.get(key), f"{name} {key}".strip())
    elif before != now:
        yield f"{name} = {before}, not {now}"


def _has_results(folder: Path) -> bool:
    """Whether there are files in a folder, or below, other than its config and hidden ones."""
    if not folder.is_dir():
        return folder.exists()
    inside = (path for path in folder.rglob("*") if not path.name.startswith(".") and path != folder / CONFIG)
    return any(path.is_file() for path in inside)
