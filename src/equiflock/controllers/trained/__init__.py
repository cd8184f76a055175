"""The weights that come with the package: seeds 0 to 4 of each of the paper's networks, and further trainings.

A further training is one of such a network by another recipe, under a name of its own, as etdagnn-robust is of etdagnn,
or one of another network, starling. It is known by that name if its files are here; the paper's experiments and
comparisons are without it.

Each file was made by the command in its metadata, which may begin from files of others (make weights and make starling
run them all), and stands beside the validation table of its training, a CSV with a row for every epoch that validated
and every flock.
"""

from __future__ import annotations

from pathlib import Path

from equiflock.runtime.checks import InputError, check_count

PAPER_NETWORKS = ("tdagnn", "tdagnn-tf", "tdagnn-tf-mean", "etdagnn")
"""The paper's four networks, by the default recipe."""
PAPER_SEEDS = range(5)
"""The seeds of the paper's networks; a further training may come with fewer."""
WEIGHTS_DIR = Path(__file__).parent


def bundled_names() -> tuple[str, ...]:
    """The names under which weights come: the paper's networks, and further trainings whose files are here."""
    found = {path.stem.rpartition("-")[0] for path in WEIGHTS_DIR.glob("*.safetensors")}
    return (*PAPER_NETWORKS, *sorted(found - set(PAPER_NETWORKS)))


def bundled_seeds(name: str) -> tuple[int, ...]:
    """The seeds that the weights of that name come for."""
    return tuple(seed for seed in PAPER_SEEDS if (WEIGHTS_DIR / f"{name}-{seed}.safetensors").exists())


def bundled_weights_path(name: str, seed: int = 0) -> Path:
    """The file of the weights of a network that was trained with this seed."""
    return WEIGHTS_DIR / f"{name}-{_check_seed(name, seed)}.safetensors"


def bundled_validation_path(name: str, seed: int = 0) -> Path:
    """The validation table of that training: epoch, controller, flock, ivv, iman; the expert's rows have epoch 0."""
    return WEIGHTS_DIR / f"{name}-{_check_seed(name, seed)}.csv"


def _check_seed(name: str, seed: int) -> int:
    there = bundled_seeds(name)
    if check_count("seed", seed, least=0) not in there:
        which = f"seeds {there[0]} to {there[-1]}" if len(there) > 1 else f"seed {there[0]} only"
        raise InputError(f"weights of {name} come for {which}; got {seed!r}")
    return seed
