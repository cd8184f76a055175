"""The weights that come with the package: seeds 0 to 4 of each of the paper's networks.

Each file was made by the command in its metadata, and stands beside the validation table of its training, a CSV with a
row for every epoch that validated and every flock.
"""

from __future__ import annotations

from pathlib import Path

from equiflock.runtime.checks import InputError, check_count

TRAINED = ("tdagnn", "tdagnn-tf", "tdagnn-tf-mean", "etdagnn")
SEEDS = range(5)
"""The seeds of the bundled trainings."""


def trained_weights(name: str, seed: int = 0) -> Path:
    """The file of the weights of a network that was trained with this seed."""
    return _beside(f"{name}-{_checked(seed)}.safetensors")


def trained_validation(name: str, seed: int = 0) -> Path:
    """The validation table of that training: epoch, controller, flock, ivv, iman; the expert's rows have epoch 0."""
    return _beside(f"{name}-{_checked(seed)}.csv")


def _checked(seed: int) -> int:
    if check_count("seed", seed, least=0) not in SEEDS:
        raise InputError(f"weights come for seeds {SEEDS[0]} to {SEEDS[-1]}; got {seed!r}")
    return seed


def _beside(name: str) -> Path:
    return Path(__file__).with_name(name)
