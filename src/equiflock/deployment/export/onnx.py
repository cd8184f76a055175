"""A controller as an ONNX graph: observations (B, N, K, C, D) in, accelerations (B, N, D) out, B and N dynamic.

What agents hear, and what they make of it, is not part of the graph: it is the controller alone, which an agent runs on
the observations that it made.
"""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any, cast

from equiflock.deployment.export.export_checks import (
    check_local,
    get_controller_name,
    resolve_dimensions,
    unwrap_scaled,
)
from equiflock.deployment.export.program import is_network, read_program
from equiflock.runtime.checks import InputError
from equiflock.runtime.extras import require_modules, require_torch
from equiflock.runtime.files import atomic_write

INPUT, OUTPUT = "observations", "accelerations"


def write_onnx(controller: Any, path: str | os.PathLike[str], dimensions: int | None = None) -> None:
    """Write the graph; a clear error for a torch module that has none."""
    senses = check_local(controller)
    require_torch("ONNX")
    require_modules("deploy", "ONNX", "onnx", "onnxscript")
    D = resolve_dimensions(controller, dimensions)
    import torch
    from onnxscript import optimizer

    module = _build_module(controller, D)
    # Two flocks of three agents, as a dimension of size 1 would be taken for fixed.
    example = torch.zeros(2, 3, senses.hops, senses.width, D)
    B, N = torch.export.Dim("B"), torch.export.Dim("N")
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    try:
        quiet.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what torch says about itself
            graph: Any = torch.onnx.export(
                module,
                (example,),
                dynamo=True,
                optimize=False,
                verbose=False,
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_shapes=({0: B, 1: N},),
            )
            # Not all that torch would do: it takes x + 1e-30 for x, and a norm of zero has nothing else to divide by.
            optimizer.inline(graph.model)
            optimizer.fold_constants(graph.model)
            optimizer.remove_unused_nodes(graph.model)
    except InputError:
        raise
    except Exception as error:  # whatever torch raises about a module of the user's
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(
            f"{get_controller_name(controller)} is a torch module that ONNX has no form for: {reason}"
        ) from None
    finally:
        quiet.setLevel(level)
    with atomic_write(path) as scratch:
        graph.save(str(scratch), external_data=False)


def _build_module(controller: Any, D: int) -> Any:
    """The controller as a torch module of tensors: a network as it is, a law as its matrix and clamp."""
    import torch
    from torch import Tensor, nn

    from equiflock.controllers.networks.models import as_module

    found, scale = unwrap_scaled(controller)
    own = as_module(found)

    class Network(nn.Module):
        """A network, in the units of the robots."""

        def __init__(self) -> None:
            super().__init__()
            self.network = own

        def forward(self, observations: Tensor) -> Tensor:
            return cast(Tensor, self.network.forward(observations)) * scale

    class Law(nn.Module):
        """A law: one matrix, and the clamp of the acceleration."""

        def __init__(self) -> None:
            super().__init__()
            self.law = read_program(controller, D)
            (layer,) = self.law.layers
            self.weight = nn.Parameter(torch.from_numpy(layer.weight))
            self.bias = None if layer.bias is None else nn.Parameter(torch.from_numpy(layer.bias))

        def forward(self, observations: Tensor) -> Tensor:
            # The K C vectors of an agent, or its K C D numbers, by the matrix.
            if self.law.acts_on_vectors:
                x = torch.matmul(self.weight, observations.flatten(2, 3)).squeeze(2)
            else:
                x = nn.functional.linear(observations.flatten(2), self.weight, self.bias)
            if self.law.clamp is not None and self.law.clamp_by == "entry":
                x = torch.clamp(x, -self.law.clamp, self.law.clamp)
            elif self.law.clamp is not None:
                norm = torch.sqrt((x * x).sum(-1, keepdim=True))
                x = x * (self.law.clamp / torch.clamp(norm, min=self.law.clamp))
            return x * scale

    return (Network() if is_network(own) else Law()).eval()
