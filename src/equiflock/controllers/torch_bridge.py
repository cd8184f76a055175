"""Calls torch modules with NumPy arrays, in which flocks are simulated, without copies."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from equiflock.protocols import Controller
from equiflock.runtime.arrays import as_read_only
from equiflock.runtime.checks import InputError

Module = TypeVar("Module")


def as_numpy_function(controller: Controller) -> Callable[..., NDArray[Any]]:
    """The controller as a function of NumPy arrays.

    A controller that has a `compiled_form()`, such as a network of the package, is run in that form, with its present
    weights. Any other torch module shares memory with the arrays and keeps no gradients. All other controllers get
    read-only observations, so that they cannot change what agents remember.
    """
    function: Callable[..., Any] = controller
    torch = sys.modules.get("torch")  # without torch imported, it cannot be a module
    module = torch is not None and isinstance(controller, torch.nn.Module)
    if module:
        check_float32(controller)
    compiled = getattr(controller, "compiled_form", None)
    if compiled is not None and (fast := compiled()) is not None:
        return cast(Callable[..., NDArray[Any]], fast)
    if torch is None or not module:
        # A privileged controller gets the flock first; observations are always the last argument.
        return lambda *inputs: function(*inputs[:-1], as_read_only(inputs[-1]))

    def think(*inputs: Any) -> NDArray[Any]:
        with torch.inference_mode(), _explain_shape_errors(controller, inputs[-1].shape):
            accelerations: NDArray[Any] = function(*inputs[:-1], torch.from_numpy(inputs[-1])).numpy()
        return accelerations

    return think


@contextmanager
def _explain_shape_errors(module: object, shape: tuple[int, ...]) -> Iterator[None]:
    """One clear line where torch finds that weights do not fit the observations."""
    try:
        yield
    except (RuntimeError, IndexError) as error:
        name = getattr(module, "name", type(module).__name__)
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{name} does not take observations (B, N, K, C, D) = {tuple(shape)}: {reason}") from None


def check_float32(module: Any) -> None:
    """A clear error unless the weights of a torch module are float32, as observations are."""
    for name, weight in module.named_parameters():
        if weight.is_floating_point() and str(weight.dtype) != "torch.float32":
            raise InputError(
                f"observations are float32, but {name} is {str(weight.dtype)[6:]}: call .float() on the network"
            )


def accept_numpy(module: type[Module]) -> type[Module]:
    """Let the instances of a torch module's class take NumPy arrays and return one, as other controllers do.

    Given tensors they still return tensors, with gradients.
    """
    torch = sys.modules["torch"]
    think: Callable[..., Any] = module.__call__
    # A class that inherits from such a class takes arrays already.
    if getattr(think, "accept_numpy", False):
        return module

    def call(self: Any, *inputs: Any, **more: Any) -> Any:
        # Tensors go the usual way of torch.
        if not inputs or not isinstance(inputs[-1], np.ndarray):
            return think(self, *inputs, **more)
        # An array of the wrong shape would raise deep inside of torch, in words of torch.
        shape, senses = inputs[-1].shape, getattr(self, "senses", None)
        if len(shape) != 5 or (senses is not None and shape[2:4] != (senses.hops, senses.width)):
            name = getattr(self, "name", type(self).__name__)
            wanted = "K, C" if senses is None else f"K = {senses.hops}, C = {senses.width}"
            raise InputError(f"{name} needs observations of shape (B, N, {wanted}, D); got {shape}")
        with torch.inference_mode(), _explain_shape_errors(self, shape):
            # A copy, as torch has no read-only tensors.
            return think(self, *inputs[:-1], torch.tensor(inputs[-1], dtype=torch.float32), **more).numpy()

    call.accept_numpy = True  # type: ignore[attr-defined]
    module.__call__ = call  # type: ignore[method-assign]
    return module
