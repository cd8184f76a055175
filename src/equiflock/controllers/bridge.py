"""Between NumPy, in which flocks fly, and torch, in which networks think: no copies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from equiflock.checks import InputError
from equiflock.controllers.compiled import compiled
from equiflock.types import Controller

Module = TypeVar("Module")


def as_numpy_function(pilot: Controller, learning: bool = False) -> Callable[..., NDArray[Any]]:
    """The pilot as a function of NumPy arrays.

    A network of the paper is compiled, with the weights that it has now, unless it is `learning`. Any other torch
    module shares memory with the arrays and keeps no gradients. Others get their messages read-only, so that nobody can
    change what agents remember.
    """
    function: Callable[..., Any] = pilot
    torch = sys.modules.get("torch")  # a module can only come from where torch was imported
    if torch is None or not isinstance(pilot, torch.nn.Module):
        return lambda *known: function(*known[:-1], read_only(known[-1]))
    check_float32(pilot)
    if not learning and (fast := compiled(pilot)) is not None:
        return fast

    def think(*known: Any) -> NDArray[Any]:
        with torch.inference_mode():
            accelerations: NDArray[Any] = function(*known[:-1], torch.from_numpy(known[-1])).numpy()
        return accelerations

    return think


def check_float32(module: Any) -> None:
    """A clear error unless a torch module has weights of the kind that messages have."""
    for name, weight in module.named_parameters():
        if weight.is_floating_point() and str(weight.dtype) != "torch.float32":
            raise InputError(
                f"messages are float32, but {name} is {str(weight.dtype)[6:]}: call .float() on the network"
            )


def takes_numpy(module: type[Module]) -> type[Module]:
    """Let the instances of a torch module's class take NumPy arrays and answer with one, as laws do.

    Tensors in still give tensors out, with their gradients.
    """
    torch = sys.modules["torch"]
    think: Callable[..., Any] = module.__call__
    if getattr(think, "takes_numpy", False):
        return module

    def call(self: Any, *known: Any, **more: Any) -> Any:
        if not known or not isinstance(known[-1], np.ndarray):
            return think(self, *known, **more)
        shape, hops = known[-1].shape, getattr(self, "hops", None)
        if len(shape) != 5 or (hops is not None and shape[2] != hops):
            name = getattr(self, "name", type(self).__name__)
            raise InputError(f"{name} needs messages of shape (B, N, K = {hops}, 3, D); got {shape}")
        with torch.inference_mode():
            # A copy: torch does not know arrays that must not be written to.
            return think(self, *known[:-1], torch.tensor(known[-1], dtype=torch.float32), **more).numpy()

    call.takes_numpy = True  # type: ignore[attr-defined]
    module.__call__ = call  # type: ignore[method-assign]
    return module


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view of an array that cannot be written to."""
    view = array.view()
    view.setflags(write=False)
    return view
