"""The results of a training: the weights, whose metadata has the checksums of the tables beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from equiflock.controllers.networks.weights import FORMAT, read_tensors, read_weights, write_weights
from equiflock.learning.run_config import RunConfig
from equiflock.learning.run_directories import WEIGHTS
from equiflock.learning.training_tables import COLUMNS, Tables
from equiflock.runtime.checks import InputError
from equiflock.runtime.checksums import compute_file_checksum
from equiflock.runtime.provenance import collect_versions, list_differences

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
        extra = {"command": self.config.command, **self.config.run_key, "versions": collect_versions("torch")}
        # Versions at the end, and those at the beginning if they were others: bits may depend on both.
        if self.config.initial_versions != collect_versions("torch"):
            extra["begun_with"] = dict(self.config.initial_versions)
        return write_weights(network, self.weights, {**extra, "tables": tables.checksums})

    def epochs(self) -> int:
        """How many epochs the weights were trained for; 0 if there are none.

        Raises:
            InputError: if they are damaged, or of another training.
        """
        if not self.weights.exists():
            return 0
        run_key = dict(self._metadata())
        ours = self.config.run_key
        try:
            epochs = int(run_key["recipe"]["epochs"])
            before = {"recipe": {**run_key["recipe"], "epochs": ours["recipe"]["epochs"]}}
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{self.weights} does not say how it was trained") from None
        if "from" in run_key:
            before["from"] = run_key["from"]
        # The number of epochs may differ: a training can be prolonged.
        other = ", ".join(list_differences(before, ours))
        if other:
            raise InputError(f"{self.weights} was trained by another recipe: {other}")
        return epochs

    def find_damaged_tables(self) -> list[Path]:
        """The tables that changed since the weights were written."""
        checksums = dict(self._metadata().get("tables", {}))
        paths = {name: self.folder / name for name in COLUMNS}
        return [
            path
            for name, path in paths.items()
            if not path.is_file() or compute_file_checksum(path) != checksums.get(name)
        ]

    def _metadata(self) -> dict[str, Any]:
        read_weights(self.weights)  # checks that the tensors fit the network, and is not needed for anything else
        return read_tensors(self.weights, FORMAT)[1]
