"""Weights on disk: safetensors, in which nothing is ever executed, with a few words of metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from equiflock.files import written_whole
from equiflock.types import InputError
from equiflock.version import __version__

FORMAT = "equiflock weights 1"


def write_weights(
    network: nn.Module, path: str | os.PathLike[str], options: Mapping[str, int], extra: Mapping[str, str] | None
) -> Path:
    """Write a network's weights, its name, and the options that build it."""
    metadata = {
        **(extra or {}),
        "format": FORMAT,
        "network": str(network.name),
        "options": json.dumps(dict(options)),
        "equiflock": __version__,
    }
    state = {name: tensor.detach().contiguous() for name, tensor in network.state_dict().items()}
    with written_whole(path) as scratch:
        save_file(state, scratch, metadata)
    return Path(path)


def read_weights(path: str | os.PathLike[str]) -> tuple[dict[str, Tensor], str, dict[str, Any]]:
    """The weights in a file, the network's name, and the options that build it."""
    if not Path(path).is_file():
        raise InputError(f"no weights at {path}: there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise InputError(f"{path} is not a safetensors file that can be read: {error}") from None
    if metadata.get("format") != FORMAT:
        raise InputError(f"{path} does not hold weights of this program: expected format {FORMAT!r} in its metadata")
    try:
        options = {str(name): int(value) for name, value in dict(json.loads(metadata["options"])).items()}
        name = metadata["network"]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the metadata of {path} is damaged: {error!r}") from None
    if not all(torch.isfinite(tensor).all() for tensor in weights.values()):
        raise InputError(f"the weights in {path} are not finite")
    return weights, name, options
