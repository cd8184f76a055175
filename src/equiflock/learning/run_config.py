"""The config of a training's folder: the recipe, the weights that it began from, and versions."""

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
"""The kind of folder that its config names."""


@dataclass(frozen=True)
class InitialWeights:
    """The file of weights that a training began from; a copy of it is in the folder."""

    name: str
    """The path that the user gave."""
    checksum: str
    """The checksum of its content."""


@dataclass(frozen=True)
class RunConfig:
    """Everything on which the bits of a training depend."""

    recipe: DAgger
    initial_versions: Mapping[str, str]
    """The versions of the program and its libraries when it began."""
    initial_weights: InitialWeights | None = None
    """The weights that the network began from; None if it began with fresh ones."""

    @property
    def run_key(self) -> dict[str, Any]:
        """The recipe and origin, which are written with every result so that it is not taken for another training's."""
        begun = {} if self.initial_weights is None else {"from": asdict(self.initial_weights)}
        return {"recipe": self.recipe.settings, **begun}

    @property
    def command(self) -> str:
        """The command that repeats the training."""
        begun = "" if self.initial_weights is None else f" --from {shlex.quote(self.initial_weights.name)}"
        return self.recipe.command + begun

    def write(self, folder: Path) -> None:
        """Write the folder's config, with a checksum."""
        content = {"command": self.command, **self.run_key, "versions": dict(self.initial_versions)}
        write_config(folder, TRAINING, content)

    @classmethod
    def read(cls, folder: Path) -> RunConfig:
        """Read the config of a folder; a clear error if the folder is not that of a training."""
        path = folder / CONFIG
        if not path.is_file():
            why = f"there is no {CONFIG} in it" if folder.exists() else "there is no such folder"
            raise InputError(f"{folder} is not the folder of a training: {why}")
        try:
            content = read_config(folder)
        except DamagedError as error:
            raise DamagedError(f"{error}; begin anew with --force, or in another folder") from None
        if content.get(KIND) != TRAINING:
            raise InputError(f"{folder} is the folder of {format_kind(content)}, not of a training")
        # The checksum fitted, so whatever is missing here was written by another program or version.
        try:
            settings, initial_versions = dict(content["recipe"]), dict(content["versions"])
            initial_weights = InitialWeights(**content["from"]) if "from" in content else None
        except (KeyError, TypeError, ValueError):
            raise DamagedError(f"{path} is damaged: expected a recipe and versions") from None
        return cls(DAgger.from_settings(settings, path), initial_versions, initial_weights)


def adapt_recipe(weights: Path, recipe: DAgger, given: Collection[str] = ()) -> DAgger:
    """The recipe with the network of a file of weights; fields that were `given` must agree with the file."""
    held = read_weights(weights)
    # The file decides on the network; only what the user asked for explicitly can contradict it.
    found: dict[str, Any] = {"controller": held.network}
    found |= {key: held.options[key] for key in ("hops", "dimensions") if key in held.options}
    for key, value in found.items():
        if key in given and getattr(recipe, key) != value:
            raise InputError(f"{weights} holds weights of {key} = {value}, not {getattr(recipe, key)}: leave it out")
    return replace(recipe, **found)
