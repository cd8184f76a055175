"""Bundled weights: seeds 0 to 4 of each of the paper's networks, and additional trainings.

An additional training uses another recipe, such as etdagnn-robust for etdagnn, or another network, starling. Its name
is known if its files are in this directory; the paper's experiments and comparisons do not include it.

Each file was made by the command in its metadata, which may start from the weights of another file (`make weights` and
`make starling` run them all). Beside it is the validation table of its training, a CSV with one row per validated epoch
and flock.
"""

from __future__ import annotations

from pathlib import Path

from equiflock._runtime.checks import InputError, check_count

PAPER_NETWORKS = ("tdagnn", "tdagnn-tf", "tdagnn-tf-mean", "etdagnn")
"""The paper's four networks, trained by the default recipe."""
PAPER_SEEDS = range(5)
"""Seeds of the paper's networks; an additional training may have fewer."""
DEFAULT_CONTROLLER = "starling"
"""Controller of commands and of the live page, unless another one is chosen."""
WEIGHTS_DIR = Path(__file__).parent
DESCRIPTIONS = {
    "tdagnn": "The paper's baseline: a network of numbers, whose output does not turn with the flock.",
    "tdagnn-tf": "TDAGNN without the second tanh, which bounds its output.",
    "tdagnn-tf-mean": "TDAGNN-TF with means over neighbours in place of sums.",
    "etdagnn": "The paper's equivariant network: its output turns with the flock. It imitates Tanner's law.",
    "etdagnn-robust": "ETDAGNN, trained with lost and delayed messages and with slow, weak bodies.",
    "etdagnn-segregation": "ETDAGNN that parts a flock into its groups, trained on the law of segregation.",
    "tdagnn-segregation": "TDAGNN that parts a flock into its groups, trained on the law of segregation.",
    "starling": "The default: calm for flocks of 5 to 1,600 agents and time steps of 1 to 50 ms.",
}
"""What each bundled network is, in one sentence."""


def bundled_names() -> tuple[str, ...]:
    """Return the names of bundled weights: the paper's networks, then additional trainings in alphabetical order."""
    names = {path.stem.rpartition("-")[0] for path in WEIGHTS_DIR.glob("*.safetensors")}
    return (*PAPER_NETWORKS, *sorted(names - set(PAPER_NETWORKS)))


def bundled_seeds(name: str) -> tuple[int, ...]:
    """Return the seeds, among 0 to 4, for which there are bundled weights of that name; () for an unknown name."""
    return tuple(seed for seed in PAPER_SEEDS if (WEIGHTS_DIR / f"{name}-{seed}.safetensors").exists())


def bundled_weights_path(name: str, seed: int = 0) -> Path:
    """Return the weights file of the training with this seed; raise InputError if there is none."""
    return WEIGHTS_DIR / f"{name}-{_check_seed(name, seed)}.safetensors"


def bundled_validation_path(name: str, seed: int = 0) -> Path:
    """Return the validation table of that training, a CSV: epoch (0 for experts), controller, flock, ivv, iman."""
    return WEIGHTS_DIR / f"{name}-{_check_seed(name, seed)}.csv"


def _check_seed(name: str, seed: int) -> int:
    """Return the seed; raise InputError if there are no bundled weights of it. `name` must be a bundled name."""
    seeds = bundled_seeds(name)
    if check_count("seed", seed, least=0) not in seeds:
        choices = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"
        raise InputError(f"seed of the bundled {name} must be {choices}; got {seed!r}")
    return seed
