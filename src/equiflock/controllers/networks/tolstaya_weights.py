"""Conversion of TDAGNN weights from and to the layout of Tolstaya's public code.

There, `conv_layers.{0,1,2}` are two-dimensional convolutions with kernels (32, 6, K, 1), (32, 32, 1, 1), (2, 32, 1, 1)
and biases, and the six input channels are ordered [vx, rx/r^4, rx/r^2, vy, ry/r^4, ry/r^2]; here the components of a
vector are adjacent, [vx, vy, rx/r^4, ry/r^4, rx/r^2, ry/r^2].
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from equiflock._runtime.checks import InputError
from equiflock.controllers.networks.architecture import describe_tdagnn
from equiflock.controllers.networks.models import TDAGNN

CHANNEL_ORDER = torch.arange(6).reshape(2, 3).T.flatten()
"""CHANNEL_ORDER[c] is the index in Tolstaya's order of equiflock's channel c."""


def from_tolstaya(source: str | os.PathLike[str] | Mapping[str, Tensor]) -> TDAGNN:
    """Return a `tdagnn` for D = 2 with the weights of a state dict, or of a torch file (opened with weights_only).

    K follows from the first kernel; the network is in evaluation mode. Raise InputError if names or shapes differ.
    """
    state = _read_state_dict(source) if isinstance(source, (str, os.PathLike)) else dict(source)
    expected = {f"conv_layers.{n}.{part}" for n in range(3) for part in ("weight", "bias")}
    if set(state) != expected:
        raise InputError(f"expected a state dict of {sorted(expected)}; got {sorted(state)}")
    first = state["conv_layers.0.weight"]
    if first.ndim != 4 or first.shape[:2] != (32, 6) or first.shape[3] != 1:
        raise InputError(f"conv_layers.0.weight must have shape (32, 6, K, 1); got {tuple(first.shape)}")
    network = TDAGNN(describe_tdagnn(hops=first.shape[2]))
    # Reorder the input channels of the first layer, and drop the last axis, of size 1, of all kernels.
    converted = {}
    for n in range(3):
        weight = state[f"conv_layers.{n}.weight"]
        converted[f"layers.{n}.weight"] = (weight[:, CHANNEL_ORDER] if n == 0 else weight).squeeze(-1)
        converted[f"layers.{n}.bias"] = state[f"conv_layers.{n}.bias"]
    try:
        network.load_state_dict(converted)
    except RuntimeError as error:
        raise InputError(f"the weights do not fit: {str(error).splitlines()[-1].strip()}") from None
    return network.eval()


def to_tolstaya(network: TDAGNN) -> dict[str, Tensor]:
    """Return a copy of the state dict of a `tdagnn` for D = 2 in Tolstaya's layout; other networks raise InputError."""
    if network.name != "tdagnn" or network.dimensions != 2:
        raise InputError(f"the network must be tdagnn for D = 2; got {network.name} for D = {network.dimensions}")
    state = {}
    for name, tensor in network.state_dict().items():
        _, n, part = name.split(".")
        # The inverse of `from_tolstaya`: Tolstaya's channel order, and an axis of size 1 at the end.
        converted = tensor.clone()
        if part == "weight":
            converted = (converted[:, torch.argsort(CHANNEL_ORDER)] if n == "0" else converted).unsqueeze(-1)
        state[f"conv_layers.{n}.{part}"] = converted
    return state


def _read_state_dict(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Read a torch file on the CPU without running its code; raise InputError if it is missing or unreadable."""
    if not Path(path).is_file():
        raise InputError(f"no weights at {path}: there is no such file")
    try:
        return dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:  # torch raises many types for foreign or damaged files
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} is not a readable torch file of weights: {reason}") from None
