"""config.json of a training's run directory: the recipe, the initial weights, and versions."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from equiflock.controllers.networks.weights import read_weights
from equiflock.learning.recipe import DAgger
from equiflock.runtime.checks import InputError
from equiflock.runtime.checksums import DamagedError
from equiflock.runtime.provenance import CONFIG, KIND, format_kind, read_config, write_config

TRAINING = "training"
"""Kind of directory, as named in config.json."""


@dataclass(frozen=True)
class InitialWeights:
    """Weights file that a training started from; the run directory holds a copy."""

    name: str
    """Path given by the user."""
    checksum: str
    """Checksum of the file."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that the result of a training depends on."""

    recipe: DAgger
    initial_versions: Mapping[str, str]
    """Versions of equiflock and its libraries at the start of the training."""
    initial_weights: InitialWeights | None = None
    """Weights that the training started from; None for newly initialized ones."""

    @property
    def run_key(self) -> dict[str, Any]:
        """Recipe and initial weights; stored with every result to identify its training."""
        initial_weights = {} if self.initial_weights is None else {"from": asdict(self.initial_weights)}
        return {"recipe": self.recipe.settings, **initial_weights}

    @property
    def command(self) -> str:
        """Command that repeats the training."""
        option = "" if self.initial_weights is None else f" --from {shlex.quote(self.initial_weights.name)}"
        return self.recipe.command + option

    def write(self, folder: Path) -> None:
        """Write config.json atomically, with a checksum."""
        content = {"command": self.command, **self.run_key, "versions": dict(self.initial_versions)}
        write_config(folder, TRAINING, content)

    @classmethod
    def read(cls, folder: Path) -> RunConfig:
        """Read config.json; raise InputError if the directory is not the run directory of a training.

        Raise DamagedError if the file is damaged.
        """
        path = folder / CONFIG
        if not path.is_file():
            reason = f"it has no {CONFIG}" if folder.exists() else "it does not exist"
            raise InputError(f"{folder} is not the run directory of a training: {reason}")
        try:
            content = read_config(folder)
        except DamagedError as error:
            raise DamagedError(f"{error}; restart with --force, or choose another directory") from None
        if content.get(KIND) != TRAINING:
            raise InputError(f"{folder} is the run directory of {format_kind(content)}, not of a training")
        # The checksum matched, so a file with missing entries was written by another program or version.
        try:
            settings, initial_versions = dict(content["recipe"]), dict(content["versions"])
            initial_weights = InitialWeights(**content["from"]) if "from" in content else None
        except (KeyError, TypeError, ValueError):
            raise DamagedError(f"{path} is damaged: expected a recipe and versions") from None
        return cls(DAgger.from_settings(settings, path), initial_versions, initial_weights)


def adapt_recipe(weights: Path, recipe: DAgger, given: Collection[str] = ()) -> DAgger:
    """Return the recipe with controller, hops and dimensions of a weights file.

    Raise InputError if one of them is named in `given`, the fields that the user set, and has another value in the
    recipe.
    """
    content = read_weights(weights)
    # The file determines the network; only options that the user set explicitly can contradict it.
    network_fields: dict[str, Any] = {"controller": content.network}
    network_fields |= {key: content.options[key] for key in ("hops", "dimensions") if key in content.options}
    for key, value in network_fields.items():
        if key in given and getattr(recipe, key) != value:
            raise InputError(
                f"{weights} holds weights of {key} = {value}, not {getattr(recipe, key)}: omit {key} or change it"
            )
    return replace(recipe, **network_fields)
