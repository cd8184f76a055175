"""Run directories of trainings: find them, and clear them for new trainings without losing results."""

from __future__ import annotations

import contextlib
from fnmatch import fnmatch
from pathlib import Path

from equiflock.learning.run_config import TRAINING
from equiflock.learning.training_tables import COLUMNS
from equiflock.runtime.checks import InputError
from equiflock.runtime.files import check_writable, lock_dir, remove_path
from equiflock.runtime.provenance import CONFIG, is_of_kind, remove_results

WEIGHTS = "weights.safetensors"
INITIAL_WEIGHTS = "from.safetensors"
"""Copy of the weights that a training started from."""
CHECKPOINTS = "checkpoints"
OUTPUT_PATTERNS = (WEIGHTS, INITIAL_WEIGHTS, CHECKPOINTS, *COLUMNS, "events.*")
"""Patterns of the files that a training writes beside config.json."""


def find_trainings(folder: Path) -> list[Path]:
    """Return the visible subdirectories with a config.json, sorted, if the directory itself has none.

    Otherwise, also if there are no such subdirectories, return the directory itself.
    """
    inside = sorted(path.parent for path in folder.glob(f"[!.]*/{CONFIG}"))
    return inside if inside and not (folder / CONFIG).exists() else [folder]


def has_results(folder: Path) -> bool:
    """Return whether a training left weights or a checkpoint."""
    return (folder / WEIGHTS).exists() or any((folder / CHECKPOINTS).glob("epoch-*.safetensors"))


def is_training(folder: Path) -> bool:
    """Return whether this is the run directory of a training, even if its config.json is damaged."""
    return is_of_kind(folder, TRAINING)


def clear_run_dir(folder: Path, force: bool = False) -> None:
    """Remove old trainings, and then the directory itself; raise InputError if it holds something to keep.

    Trainings without results, e.g. killed in their first epochs, are removed; those with weights or checkpoints only
    with `force`, and none while a process trains there. Other files are never removed: they raise the error.
    """
    check_writable(folder)
    # Remove an empty directory.
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if not folder.exists():
        return
    trainings = find_trainings(folder)
    # Everything in the directory must be a training, or part of one.
    only_trainings = all(map(is_training, trainings)) and (
        trainings == [folder] or _list_visible(folder) == set(trainings)
    )
    if not only_trainings:
        raise InputError(f"{folder} exists already and contains other files: choose another directory with --out")
    # Results and foreign files need the user's consent.
    if not force and any(has_results(training) or _has_foreign_files(training) for training in trainings):
        raise InputError(
            f"{folder} exists already: continue with --resume {folder}, restart with --force, or choose another "
            "directory with --out"
        )
    _remove(folder, trainings)


def remove_empty_trainings(folder: Path) -> None:
    """Remove the trainings of a failed command, if none of them has results; otherwise remove nothing.

    Errors, for example because a process trains there, are ignored.
    """
    trainings = find_trainings(folder) if folder.is_dir() else []
    if trainings and all(map(is_training, trainings)) and not any(map(has_results, trainings)):
        with contextlib.suppress(InputError, OSError):  # harmless: the next attempt replaces the files
            _remove(folder, trainings)


def _remove(folder: Path, trainings: list[Path]) -> None:
    """Remove the trainings and their directory; if a process trains in one, raise InputError and remove nothing."""
    # Take all locks before removing anything.
    with contextlib.ExitStack() as locks:
        for training in trainings:
            locks.enter_context(lock_dir(training))
        for training in trainings:
            remove_results(training, TRAINING, OUTPUT_PATTERNS)
    remove_path(folder)  # only locks and other hidden files are left


def _has_foreign_files(folder: Path) -> bool:
    """Return whether the directory holds visible files that no training writes."""
    return any(
        not any(fnmatch(path.name, pattern) for pattern in (CONFIG, *OUTPUT_PATTERNS)) for path in _list_visible(folder)
    )


def _list_visible(folder: Path) -> set[Path]:
    """Return the entries of a directory whose names do not start with a dot."""
    return {path for path in folder.iterdir() if not path.name.startswith(".")}
