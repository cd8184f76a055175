"""Between NumPy, in which flocks fly, and torch, in which networks think: no copies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from equiflock.controllers.compiled import compiled
from equiflock.types import Controller


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
    if not learning and (fast := compiled(pilot)) is not None:
        return fast

    def think(*known: Any) -> NDArray[Any]:
        with torch.inference_mode():
            accelerations: NDArray[Any] = function(*known[:-1], torch.from_numpy(known[-1])).numpy()
        return accelerations

    return think


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view of an array that cannot be written to."""
    view = array.view()
    view.setflags(write=False)
    return view
