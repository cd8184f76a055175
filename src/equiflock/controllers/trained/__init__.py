"""The weights that come with the package: seeds 0 to 4 of each of the paper's networks, and of further trainings.

A further training is one of such a network by another recipe, under a name of its own, as etdagnn-robust is of etdagnn.
It is known by that name if its files are here; the paper's experiments and comparisons are without it.

Each file was made by the command in its metadata, and stands beside the validation table of its training, a CSV with a
row for every epoch that validated and every flock.
"""

from __future__ import annotations

from pathlib import Path

from equiflock.runtime.checks import InputError, check_count

TRAINED = ("tdagnn", "tdagnn-tf", "tdagnn-tf-mean", "etdagnn")
"""The paper's four networks, by the default recipe."""
SEEDS = range(5)
"""The seeds of the bundled trainings."""
FOLDER = Path(__file__).parent


def bundled_names() -> tuple[str, ...]:
    """The names under which weights come: the paper's networks, and further trainings whose files are here."""
    found = {path.stem.rpartition("-")[0] for path in FOLDER.glob("*.safetensors")}
    return (*TRAINED, *sorted(found - set(TRAINED)))


def trained_weights(name: str, seed: int = 0) -> Path:
    """The file of the weights of a network that was trained with this seed."""
    return FOLDER / f"{name}-{_checked(seed)}.safetensors"


def trained_validation(name: str, seed: int = 0) -> Path:
    """The validation table of that training: epoch, controller, flock, ivv, iman; the expert's rows have epoch 0."""
    return FOLDER / f"{name}-{_checked(seed)}.csv"


def _checked(seed: int) -> int:
    if check_count("seed", seed, least=0) not in SEEDS:
        raise InputError(f"weights come for seeds {SEEDS[0]} to {SEEDS[-1]}; got {seed!r}")
    return seed
