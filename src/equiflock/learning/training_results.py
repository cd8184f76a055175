"""The results of a training: weights, whose metadata holds the checksums of the tables, and the tables."""

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
    """Weights and tables of the training with this config, verified by checksums."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder = folder
        self.weights = folder / WEIGHTS
        self.config = config

    def write(self, network: nn.Module, tables: Tables) -> Path:
        """Write the weights atomically, with run key, versions and the checksums of the tables; return their path."""
        extra = {"command": self.config.command, **self.config.run_key, "versions": collect_versions("torch")}
        # Store the versions at the end, and those at the start if they differ, as the result may depend on both.
        if self.config.initial_versions != collect_versions("torch"):
            extra["begun_with"] = dict(self.config.initial_versions)
        return write_weights(network, self.weights, {**extra, "tables": tables.checksums})

    def read_epochs(self) -> int:
        """Read the number of epochs that the weights file was trained for, or 0 if there is no file.

        Raises:
            InputError: if the weights are damaged or belong to another training.
        """
        if not self.weights.exists():
            return 0
        metadata = dict(self._read_metadata())
        run_key = self.config.run_key
        try:
            epochs = int(metadata["recipe"]["epochs"])
            # The number of epochs may differ, because a training can be extended.
            stored_key = {"recipe": {**metadata["recipe"], "epochs": run_key["recipe"]["epochs"]}}
        except (KeyError, TypeError, ValueError):
            raise InputError(f"the metadata of {self.weights} has no recipe") from None
        if "from" in metadata:
            stored_key["from"] = metadata["from"]
        differences = ", ".join(list_differences(stored_key, run_key))
        if differences:
            raise InputError(f"{self.weights} was trained with another recipe: {differences}")
        return epochs

    def find_damaged_tables(self) -> list[Path]:
        """Return the tables that are missing or changed since the weights, which must exist, were written."""
        checksums = dict(self._read_metadata().get("tables", {}))
        paths = {name: self.folder / name for name in COLUMNS}
        return [
            path
            for name, path in paths.items()
            if not path.is_file() or compute_file_checksum(path) != checksums.get(name)
        ]

    def _read_metadata(self) -> dict[str, Any]:
        """Return the metadata of the weights file; raise InputError if the file is missing or damaged."""
        read_weights(self.weights)  # only to check that the weights are valid
        return read_tensors(self.weights, FORMAT)[1]
