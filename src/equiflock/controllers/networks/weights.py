"""Reading and writing tensors as safetensors, which execute no code, with metadata and a checksum.

Tensors are NumPy arrays here; training code converts them to torch.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from equiflock._runtime.checks import InputError, check_positive
from equiflock._runtime.checksums import VersionMismatchError, compute_checksum, matches_checksum
from equiflock._runtime.files import atomic_write
from equiflock._runtime.specs import parse_spec
from equiflock.observations.orbit import Orbit
from equiflock.version import __version__

Tensor: TypeAlias = NDArray[Any]

FORMAT = "equiflock weights 1"
METADATA_KEY = "equiflock"
"""Key of the only metadata entry of a file; its value is a JSON object."""
ORBIT_KEY = "orbit"
"""Key in that object of the parameters of the orbit technique, if the weights have any."""
LONGEST_TIME_STEP_KEY = "longest_time_step"
"""Key in that object of the longest time step of the training's flights, if the file has no recipe."""


class Weights(NamedTuple):
    """Content of a weights file: tensors by name, the registered name of the network and the options that build it."""

    tensors: dict[str, Tensor]
    network: str
    options: dict[str, Any]
    orbit: Orbit | None
    """Parameters of the orbit technique that the weights were tuned with, if any."""
    longest_time_step: float | None = None
    """Longest time step of the training's flights; None if unknown."""


def write_weights(network: Any, path: str | os.PathLike[str], extra: Mapping[str, Any] | None = None) -> Path:
    """Write the weights of a network or torch module, atomically; return the path.

    Its attributes `name`, `options`, `orbit` and `longest_time_step`, if it has them, and `extra` are the metadata,
    JSON-serializable.
    """
    metadata = {
        **(extra or {}),
        "network": str(getattr(network, "name", type(network).__name__)),
        "options": dict(getattr(network, "options", {})),
    }
    if isinstance(orbit := getattr(network, "orbit", None), Orbit):
        metadata[ORBIT_KEY] = asdict(orbit)
    # A recipe in `extra` has the time steps of the training.
    longest = getattr(network, "longest_time_step", None)
    if isinstance(longest, float) and _read_longest_time_step(metadata, path) is None:
        metadata[LONGEST_TIME_STEP_KEY] = longest
    return write_tensors(collect_tensors(network), path, FORMAT, metadata)


def collect_tensors(network: Any) -> dict[str, Tensor]:
    """Return the tensors of a compiled network or torch module by name, sharing memory (a copy if on a GPU)."""
    if not hasattr(network, "state_dict"):
        return dict(network.tensors)
    # A module's state may contain other objects, which a weights file cannot store.
    state = {name: tensor for name, tensor in network.state_dict().items() if hasattr(tensor, "dtype")}
    return {name: tensor.detach().cpu().numpy() for name, tensor in state.items()}


def read_weights(path: str | os.PathLike[str]) -> Weights:
    """Read a file of weights; raise InputError if it is missing, damaged, or its weights are not finite."""
    tensors, metadata = read_tensors(path, FORMAT)
    try:
        options, name = dict(metadata["options"]), str(metadata["network"])
        orbit = None if (parameters := metadata.get(ORBIT_KEY)) is None else Orbit(**parameters)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the metadata of {path} is damaged: {error!r}") from None
    if not all(np.isfinite(tensor).all() for tensor in tensors.values()):
        raise InputError(f"the weights in {path} must be finite; got NaN or infinity")
    return Weights(tensors, name, options, orbit, _read_longest_time_step(metadata, path))


def describe_weights(path: str | os.PathLike[str]) -> str:
    """Return in one sentence which network a file holds and, if its recipe says so, what it imitates and where."""
    metadata = read_tensors(path, FORMAT)[1]
    text = f"A file of weights: {metadata.get('network', 'a network')}"
    recipe = metadata.get("recipe")
    if not isinstance(recipe, Mapping) or not {"expert", "scenario"} <= set(recipe):
        return f"{text}."
    return f"{text}, trained on {recipe['expert']} in {recipe['scenario']}."


def read_training_radius(path: str | os.PathLike[str]) -> float:
    """Return the R of the training: `comm_radius` in a file's recipe, or in its scenario's options; 1 without both."""
    recipe = read_tensors(path, FORMAT)[1].get("recipe")
    if not isinstance(recipe, Mapping):
        return 1.0
    # An option of the scenario overrides the recipe's field.
    config = {**recipe, **parse_spec(str(recipe.get("scenario", ""))).options}
    return check_positive(f"comm_radius in the recipe of {path}", config.get("comm_radius", 1.0))


def _read_longest_time_step(metadata: Mapping[str, Any], path: str | os.PathLike[str]) -> float | None:
    """Return the longest time step of the training, from a file's metadata; None if unknown.

    It is `time_step` of the recipe, or the upper end of its range, as in 0.01-0.05. Without a recipe it is an entry.
    """
    recipe = metadata.get("recipe")
    if not isinstance(recipe, Mapping) or "time_step" not in recipe:
        longest = metadata.get(LONGEST_TIME_STEP_KEY)
        return None if longest is None else check_positive(f"{LONGEST_TIME_STEP_KEY} in {path}", longest)
    try:
        longest = float(re.split(r"(?<!e)-", str(recipe["time_step"]))[-1])
    except ValueError:
        raise InputError(f"time_step in the recipe of {path} must be a number or a range") from None
    return check_positive(f"time_step in the recipe of {path}", longest)


def write_tensors(
    tensors: Mapping[str, Tensor], path: str | os.PathLike[str], file_format: str, metadata: Mapping[str, Any]
) -> Path:
    """Write tensors and JSON-serializable metadata as a safetensors file, atomically, and return the path.

    The metadata get entries for the format, such as `FORMAT`, the package's version, and a checksum. Equal tensors and
    metadata give equal files.
    """
    # safetensors writes the buffer as it is in memory, so it must be contiguous.
    contiguous = {name: np.ascontiguousarray(tensor).reshape(tensor.shape) for name, tensor in tensors.items()}
    entry = {**metadata, "format": file_format, "equiflock": __version__}
    # One entry, because safetensors writes several in random order, and equal tensors must give equal files.
    entry["checksum"] = compute_checksum(*_list_content(contiguous, entry))
    content = save(contiguous, {METADATA_KEY: json.dumps(entry, indent=1)})
    with atomic_write(path) as scratch:
        scratch.write_bytes(content)
    return Path(path)


def read_tensors(path: str | os.PathLike[str], file_format: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and metadata of a file, after a check of its checksum, which is removed from the metadata.

    Raise InputError if it is missing, damaged or of another format; VersionMismatchError if only the version differs.
    """
    if not Path(path).is_file():
        raise InputError(f"{path}: there is no such file")
    try:
        with safe_open(path, framework="np") as file:
            metadata = dict(json.loads((file.metadata() or {}).get(METADATA_KEY, "{}")))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise InputError(f"{path} is not a safetensors file that can be read: {error}") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"the metadata of {path} is damaged: {error!r}") from None
    written = metadata.get("format")
    if written != file_format:
        if isinstance(written, str) and written.rpartition(" ")[0] == file_format.rpartition(" ")[0]:
            raise VersionMismatchError(
                f"{path} is of another version: expected format {file_format!r}; got {written!r}"
            )
        raise InputError(f"{path} is of another kind: expected format {file_format!r}; got {written!r}")
    if not matches_checksum(metadata.pop("checksum", None), *_list_content(tensors, metadata)):
        raise InputError(f"{path} is damaged: its checksum does not match")
    return tensors, metadata


def _list_content(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> list[bytes | memoryview]:
    """Return what a checksum covers: the metadata, and names, types, shapes and values of the tensors, sorted."""
    # Types have torch's names, as torch wrote the first files.
    parts: list[bytes | memoryview] = [json.dumps(metadata, sort_keys=True).encode()]
    for name in sorted(tensors):
        parts.append(f"{name} torch.{tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        parts.append(np.ascontiguousarray(tensors[name]).reshape(-1).view(np.uint8).data)
    return parts
