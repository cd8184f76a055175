"""The results of a training: the weights, whose metadata has the checksums of the tables beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from equiflock.controllers.networks.weights import FORMAT, read_tensors, read_weights, write_weights
from equiflock.learning.config import RunConfig
from equiflock.learning.folders import WEIGHTS
from equiflock.learning.tables import COLUMNS, Tables
from equiflock.runtime.checks import InputError
from equiflock.runtime.checksums import file_checksum
from equiflock.runtime.provenance import circumstances, differences

if TYPE_CHECKING:  # torch takes seconds to import
    from torch import nn


class Results:
    """The weights and tables of the training with this config, whose damage is detected by checksums."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder = folder
        self.weights = folder / WEIGHTS
        self.config = config

    def write(self, network: nn.Module, tables: Tables) -> Path:
        """Write the weights, with the checksums of the tables, which must be written before."""
        extra = {"command": self.config.command, **self.config.made_by, "versions": circumstances("torch")}
        # Versions at the end, and those at the beginning if they were others: bits may depend on both.
        if self.config.begun_with != circumstances("torch"):
            extra["begun_with"] = dict(self.config.begun_with)
        return write_weights(network, self.weights, {**extra, "tables": tables.checksums})

    def epochs(self) -> int:
        """How many epochs the weights were trained for; 0 if there are none.

        Raises:
            InputError: if they are damaged, or of another training.
        """
        if not self.weights.exists():
            return 0
        made_by = dict(self._metadata())
        ours = self.config.made_by
        try:
            epochs = int(made_by["recipe"]["epochs"])
            before = {"recipe": {**made_by["recipe"], "epochs": ours["recipe"]["epochs"]}}
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{self.weights} does not say how it was trained") from None
        if "from" in made_by:
            before["from"] = made_by["from"]
        # The number of epochs may differ: a training can be prolonged.
        other = ", ".join(differences(before, ours))
        if other:
            raise InputError(f"{self.weights} was trained by another recipe: {other}")
        return epochs

    def damaged_tables(self) -> list[Path]:
        """The tables that changed since the weights were written."""
        checksums = dict(self._metadata().get("tables", {}))
        paths = {name: self.folder / name for name in COLUMNS}
        return [
            path for name, path in paths.items() if not path.is_file() or file_checksum(path) != checksums.get(name)
        ]

    def _metadata(self) -> dict[str, Any]:
        read_weights(self.weights)  # checks that the tensors fit the network, and is not needed for anything else
        return read_tensors(self.weights, FORMAT)[1]
