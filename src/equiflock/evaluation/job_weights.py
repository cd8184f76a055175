"""Weights of the controllers of jobs: selection by training seed, and a check that the file has not changed."""

from __future__ import annotations

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import compute_file_checksum
from equiflock.controllers import load
from equiflock.controllers.loading import find_weights_file, has_open_seed
from equiflock.protocols import Controller


def load_with_seed(controller: str, seed: int | None) -> Controller:
    """Load a controller; `seed` selects among bundled weights that exist for several, and is ignored otherwise."""
    return load(controller, **_select_seed(controller, seed))


def compute_weights_checksum(controller: str, seed: int | None = None) -> str:
    """Return the checksum of the weights file that `load_with_seed` loads, or "" if there is none."""
    path = find_weights_file(controller, **_select_seed(controller, seed))
    return compute_file_checksum(path) if path is not None and path.is_file() else ""


def check_weights(controller: str, seed: int | None, checksum: str, kind: str) -> None:
    """Raise InputError if the weights file is not the one that the `kind`, such as "sweep", started with.

    On a worker the path may hold another file; here the file may have changed. Without a checksum nothing is checked.
    """
    if checksum and compute_weights_checksum(controller, seed) != checksum:
        raise InputError(f"{controller} is missing, or differs from the file that the {kind} started with")


def _select_seed(controller: str, seed: int | None) -> dict[str, int]:
    return {"seed": seed} if seed is not None and has_open_seed(controller) else {}
