"""Calling torch modules with NumPy arrays, without copies."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from equiflock._runtime.checks import InputError
from equiflock._runtime.memory import as_read_only
from equiflock.protocols import Controller

Module = TypeVar("Module")


def as_numpy_function(controller: Controller) -> Callable[..., NDArray[Any]]:
    """Return a controller as a function of NumPy arrays.

    A controller with a `compiled_form()`, such as a network of the package, is evaluated in that form, with its present
    weights. Other torch modules share memory with the arrays and record no gradients. All other controllers get
    read-only observations, so that they cannot modify the observation buffers. Raise InputError if a torch module's
    weights are not float32.
    """
    function: Callable[..., Any] = controller
    torch = sys.modules.get("torch")  # a controller cannot be a module if torch was not imported
    module = torch is not None and isinstance(controller, torch.nn.Module)
    if module:
        check_float32(controller)
    compiled_form = getattr(controller, "compiled_form", None)
    if compiled_form is not None and (compiled := compiled_form()) is not None:
        return cast(Callable[..., NDArray[Any]], compiled)
    if torch is None or not module:
        # A privileged controller takes the flock first; observations are always the last argument.
        return lambda *inputs: function(*inputs[:-1], as_read_only(inputs[-1]))

    def evaluate(*inputs: Any) -> NDArray[Any]:
        with torch.inference_mode(), _explain_shape_errors(controller, inputs[-1].shape):
            accelerations: NDArray[Any] = function(*inputs[:-1], torch.from_numpy(inputs[-1])).numpy()
        return accelerations

    return evaluate


@contextmanager
def _explain_shape_errors(module: object, shape: tuple[int, ...]) -> Iterator[None]:
    """Turn any RuntimeError or IndexError in the block, such as torch's about shapes, into a one-line InputError."""
    try:
        yield
    except (RuntimeError, IndexError) as error:
        name = getattr(module, "name", type(module).__name__)
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{name} does not take observations (B, N, K, C, D) = {tuple(shape)}: {reason}") from None


def check_float32(module: Any) -> None:
    """Raise InputError if a torch module has floating-point weights that are not float32, as observations are."""
    for name, weight in module.named_parameters():
        if weight.is_floating_point() and str(weight.dtype) != "torch.float32":
            raise InputError(
                f"observations are float32, but {name} is {str(weight.dtype)[6:]}: call .float() on the network"
            )


def accept_numpy(module: type[Module]) -> type[Module]:
    """Change a torch module's class in place so that its instances accept and return NumPy arrays; return the class.

    Given an array, an instance records no gradients, and raises InputError if the shape does not fit its senses. Given
    tensors, it still returns tensors with gradients.
    """
    torch = sys.modules["torch"]
    original: Callable[..., Any] = module.__call__
    # A subclass of such a class accepts arrays already.
    if getattr(original, "accept_numpy", False):
        return module

    def call(self: Any, *inputs: Any, **more: Any) -> Any:
        # Tensors are passed on to torch.
        if not inputs or not isinstance(inputs[-1], np.ndarray):
            return original(self, *inputs, **more)
        # torch's own error for a wrong shape would not mention observations.
        shape, senses = inputs[-1].shape, getattr(self, "senses", None)
        if len(shape) != 5 or (senses is not None and shape[2:4] != (senses.hops, senses.width)):
            name = getattr(self, "name", type(self).__name__)
            expected = "K, C" if senses is None else f"K = {senses.hops}, C = {senses.width}"
            raise InputError(f"{name} needs observations of shape (B, N, {expected}, D); got {shape}")
        with torch.inference_mode(), _explain_shape_errors(self, shape):
            # A copy, as torch has no read-only tensors.
            return original(self, *inputs[:-1], torch.tensor(inputs[-1], dtype=torch.float32), **more).numpy()

    call.accept_numpy = True  # type: ignore[attr-defined]
    module.__call__ = call  # type: ignore[method-assign]
    return module
