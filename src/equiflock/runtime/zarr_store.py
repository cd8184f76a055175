"""Datasets as zarr stores, written in chunks so that Ctrl-C takes effect during large writes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from equiflock.runtime.files import delay_sigint

if TYPE_CHECKING:
    import xarray

CHUNK_BYTES = 16 * 2**20
"""Size of a chunk, which is written in a fraction of a second."""


def write_zarr(data: xarray.Dataset, path: Path) -> None:
    """Write a dataset for `xarray.open_zarr`, in zarr format 2 with consolidated metadata.

    Replaces a store at `path`. Not atomic: write to the temporary path of `atomic_write`.
    """
    import zarr

    with delay_sigint():
        group = zarr.open_group(path, mode="w", zarr_format=2, attributes=dict(data.attrs))
    for name, variable in data.variables.items():
        # Write whole rows of the first axis, as many as fit into a chunk.
        values = variable.values
        row_bytes = max(values.itemsize * math.prod(values.shape[1:]), 1)
        rows = max(CHUNK_BYTES // row_bytes, 1)
        with delay_sigint():
            array: Any = group.create_array(
                str(name),
                shape=values.shape,
                dtype=values.dtype,
                chunks=(min(rows, max(len(values), 1)), *(max(size, 1) for size in values.shape[1:])),
                fill_value=None,  # readers interpret any other value as missing
                attributes={"_ARRAY_DIMENSIONS": [str(name) for name in variable.dims]},
            )
        for first in range(0, len(values), rows):
            # zarr writes in a background thread, which an interruption would leave running.
            with delay_sigint():
                array[first : first + rows] = np.ascontiguousarray(values[first : first + rows])
    with delay_sigint():
        zarr.consolidate_metadata(path, zarr_format=2)
