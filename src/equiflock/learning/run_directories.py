"""Folders of trainings: finding them, and clearing a folder for new ones without losing any result."""

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
"""The copy of the weights that a training began from."""
CHECKPOINTS = "checkpoints"
OUTPUT_PATTERNS = (WEIGHTS, INITIAL_WEIGHTS, CHECKPOINTS, *COLUMNS, "events.*")
"""The names of the files that a training writes beside its config, as patterns."""


def find_trainings(folder: Path) -> list[Path]:
    """The folder itself if it holds one training, or its subfolders if it holds several."""
    inside = sorted(path.parent for path in folder.glob(f"[!.]*/{CONFIG}"))
    return inside if inside and not (folder / CONFIG).exists() else [folder]


def has_results(folder: Path) -> bool:
    """Whether a training left anything to continue from: weights or a checkpoint."""
    return (folder / WEIGHTS).exists() or any((folder / CHECKPOINTS).glob("epoch-*.safetensors"))


def is_training(folder: Path) -> bool:
    """Whether a folder is that of a training, even one whose config is damaged."""
    return is_of_kind(folder, TRAINING)


def clear_run_dir(folder: Path, force: bool = False) -> None:
    """Remove old trainings from a folder, to make room for new ones, or raise an error.

    Trainings without any result, such as those killed in their first epochs, are removed; others only with `force`, and
    none while a process trains there. Anything else is never removed.
    """
    check_writable(folder)
    # An empty folder is in nobody's way.
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
    if not folder.exists():
        return
    found = find_trainings(folder)
    # Everything in the folder must be a training, or part of one.
    ours = all(map(is_training, found)) and (found == [folder] or _list_visible(folder) == set(found))
    if not ours:
        raise InputError(f"{folder} exists already and holds something else: choose another folder with --out")
    # Hours of training, or files that somebody else put there, go only if the user says so.
    if not force and any(has_results(training) or _has_foreign_files(training) for training in found):
        raise InputError(
            f"{folder} exists already: go on with --resume {folder}, begin anew with --force, or choose another folder "
            "with --out"
        )
    _remove(folder, found)


def remove_empty_trainings(folder: Path) -> None:
    """Remove the trainings of a command that failed, if they left nothing to continue from."""
    found = find_trainings(folder) if folder.is_dir() else []
    if found and all(map(is_training, found)) and not any(map(has_results, found)):
        with contextlib.suppress(InputError, OSError):  # what is left does no harm: the next attempt replaces it
            _remove(folder, found)


def _remove(folder: Path, trainings: list[Path]) -> None:
    """Remove the trainings and their folder; an error, and nothing removed, if a process trains in one of them."""
    # All locks are taken before anything is removed.
    with contextlib.ExitStack() as held:
        for training in trainings:
            held.enter_context(lock_dir(training))
        for training in trainings:
            remove_results(training, TRAINING, OUTPUT_PATTERNS)
    remove_path(folder)  # nothing but locks and other hidden files is left


def _has_foreign_files(folder: Path) -> bool:
    """Whether there is anything in the folder that no training writes."""
    return any(
        not any(fnmatch(path.name, ours) for ours in (CONFIG, *OUTPUT_PATTERNS)) for path in _list_visible(folder)
    )


def _list_visible(folder: Path) -> set[Path]:
    return {path for path in folder.iterdir() if not path.name.startswith(".")}
