"""Tensors on disk as safetensors, which never execute anything, with metadata and a checksum."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from equiflock.runtime.checks import InputError, check_positive
from equiflock.runtime.checksums import OtherVersionError, checksum
from equiflock.runtime.files import atomic_write
from equiflock.runtime.options import read_options
from equiflock.technique import Orbit
from equiflock.version import __version__

FORMAT = "equiflock weights 1"
KEY = "equiflock"
"""The only entry of a file's metadata; its value is a JSON object."""
ORBIT = "orbit"
"""The entry of that object with the numbers of the orbit technique that belong to the weights, if there are any."""


def write_weights(network: nn.Module, path: str | os.PathLike[str], extra: Mapping[str, Any] | None = None) -> Path:
    """Write a network's weights, its name, and the `options` that build it; `extra` goes into the metadata.

    The options are the module's attribute `options`, which must be fit for JSON; none if it has no such attribute.
    """
    metadata = {
        **(extra or {}),
        "network": str(getattr(network, "name", type(network).__name__)),
        "options": getattr(network, "options", {}),
    }
    # Numbers of the orbit technique that belong to these weights travel with them.
    if isinstance(orbit := getattr(network, "orbit", None), Orbit):
        metadata[ORBIT] = asdict(orbit)
    return write_tensors(network.state_dict(), path, FORMAT, metadata)


def read_weights(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], str, dict[str, Any]]:
    """The weights in a file, the network's name, and the options that build it."""
    weights, metadata = read_tensors(path, FORMAT)
    try:
        options, name = dict(metadata["options"]), str(metadata["network"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the metadata of {path} is damaged: {error!r}") from None
    if not all(torch.isfinite(tensor).all() for tensor in weights.values()):
        raise InputError(f"the weights in {path} are not finite")
    return weights, name, options


def trained_radius(path: str | os.PathLike[str]) -> float:
    """R of the flocks that the weights in a file were trained with, as their recipe says; 1 if they have none."""
    recipe = read_tensors(path, FORMAT)[1].get("recipe")
    if not isinstance(recipe, Mapping):
        return 1.0
    # An option of the scenario goes before the recipe's field.
    _, colon, told = str(recipe.get("scenario", "")).partition(":")
    found = {**recipe, **(read_options(told) if colon else {})}
    return check_positive(f"comm_radius in the recipe of {path}", found.get("comm_radius", 1.0))


def orbit_of(path: str | os.PathLike[str]) -> Orbit | None:
    """The numbers of the orbit technique that the weights in a file were tuned with; None if they have none."""
    told = read_tensors(path, FORMAT)[1].get(ORBIT)
    if told is None:
        return None
    try:
        return Orbit(**told)
    except (TypeError, InputError) as error:
        raise InputError(f"the metadata of {path} is damaged: {error}") from None


def write_tensors(
    tensors: Mapping[str, Tensor], path: str | os.PathLike[str], kind: str, metadata: Mapping[str, Any]
) -> Path:
    """Write tensors and metadata, which must be fit for JSON, as a file of a kind, such as `FORMAT`."""
    whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    # safetensors refuses tensors that share memory, such as tied weights.
    if len({tensor.data_ptr() for tensor in whole.values() if tensor.numel()}) < len(whole):
        whole = {name: tensor.clone() for name, tensor in whole.items()}
    told = {**metadata, "format": kind, "equiflock": __version__}
    # One entry, because safetensors writes several in random order, and the same tensors shall be the same bytes.
    content = save(whole, {KEY: json.dumps({**told, "checksum": _checksum(whole, told)}, indent=1)})
    with atomic_write(path) as scratch:
        scratch.write_bytes(content)
    return Path(path)


def read_tensors(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and metadata that `write_tensors` wrote; a clear error if the file is damaged or of another kind."""
    if not Path(path).is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(json.loads((file.metadata() or {}).get(KEY, "{}")))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise InputError(f"{path} is not a safetensors file that can be read: {error}") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"the metadata of {path} is damaged: {error!r}") from None
    found = metadata.get("format")
    if found != kind:
        if isinstance(found, str) and found.rpartition(" ")[0] == kind.rpartition(" ")[0]:
            raise OtherVersionError(f"{path} is of another version: expected format {kind!r}; got {found!r}")
        raise InputError(f"{path} is of another kind: expected format {kind!r}; got {found!r}")
    if metadata.pop("checksum", None) != _checksum(tensors, metadata):
        raise InputError(f"{path} is damaged: its checksum does not fit")
    return tensors, metadata


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> str:
    # Names, types and shapes count as well as the numbers.
    parts: list[bytes | memoryview] = [json.dumps(metadata, sort_keys=True).encode()]
    for name in sorted(tensors):
        parts.append(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        parts.append(tensors[name].cpu().numpy().reshape(-1).view(np.uint8).data)
    return checksum(*parts)
