"""Folders of trainings: finding them, and clearing a folder for new ones without losing any result."""

from __future__ import annotations

import contextlib
from fnmatch import fnmatch
from pathlib import Path

from equiflock.learning.config import TRAINING
from equiflock.learning.tables import COLUMNS
from equiflock.runtime.checks import InputError
from equiflock.runtime.files import check_writable, folder_lock, remove
from equiflock.runtime.provenance import CONFIG, is_of_kind, remove_results

WEIGHTS = "weights.safetensors"
ORIGIN = "from.safetensors"
"""The copy of the weights that a training began from."""
CHECKPOINTS = "checkpoints"
OURS = (WEIGHTS, ORIGIN, CHECKPOINTS, *COLUMNS, "events.*")
"""The names of the files that a training writes beside its config, as patterns."""


def trainings_in(folder: Path) -> list[Path]:
    """The folder itself if it holds one training, or its subfolders if it holds several."""
    inside = sorted(path.parent for path in folder.glob(f"[!.]*/{CONFIG}"))
    return inside if inside and not (folder / CONFIG).exists() else [folder]


def has_results(folder: Path) -> bool:
    """Whether a training left anything to continue from: weights or a checkpoint."""
    return (folder / WEIGHTS).exists() or any((folder / CHECKPOINTS).glob("epoch-*.safetensors"))


def is_training(folder: Path) -> bool:
    """Whether a folder is that of a training, even one whose config is damaged."""
    return is_of_kind(folder, TRAINING)


def make_room(folder: Path, force: bool = False) -> None:
    """Remove what is in the way of new trainings in a folder, or raise an error.

    Trainings without any result, such as those killed in their first epochs, are removed; others only with `force`, and
    none while a process trains there. Anything else is never removed.
    """
    check_writable(folder)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if not folder.exists():
        return
    found = trainings_in(folder)
    # Everything in the folder must be a training, or part of one.
    ours = all(map(is_training, found)) and (found == [folder] or _visible(folder) == set(found))
    if not ours:
        raise InputError(f"{folder} exists already and holds something else: choose another folder with --out")
    if not force and any(has_results(training) or _has_others(training) for training in found):
        raise InputError(
            f"{folder} exists already: go on with --resume {folder}, begin anew with --force, or choose another folder "
            "with --out"
        )
    _remove(folder, found)


def discard_without_results(folder: Path) -> None:
    """Remove the trainings of a command that failed, if they left nothing to continue from."""
    found = trainings_in(folder) if folder.is_dir() else []
    if found and all(map(is_training, found)) and not any(map(has_results, found)):
        with contextlib.suppress(InputError, OSError):  # what is left does no harm: the next attempt replaces it
            _remove(folder, found)


def _remove(folder: Path, trainings: list[Path]) -> None:
    # All locks are taken before anything is removed.
    with contextlib.ExitStack() as held:
        for training in trainings:
            held.enter_context(folder_lock(training))
        for training in trainings:
            remove_results(training, TRAINING, OURS)
    remove(folder)  # nothing but locks and other hidden files is left


def _has_others(folder: Path) -> bool:
    """Whether there is anything in the folder that no training writes."""
    return any(not any(fnmatch(path.name, ours) for ours in (CONFIG, *OURS)) for path in _visible(folder))


def _visible(folder: Path) -> set[Path]:
    return {path for path in folder.iterdir() if not path.name.startswith(".")}
