"""ONNX export: a graph from observations (B, N, K, C, D) to accelerations (B, N, D), with B and N dynamic.

A controller with a gain schedule has the robot's sampling period, a scalar, as its second input. The graph has the
controller only. Messages and the computation of observations are not part of it.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any, cast

from equiflock._runtime.checks import InputError
from equiflock._runtime.files import atomic_write
from equiflock._runtime.imports import require_modules, require_torch
from equiflock.controllers.gain_schedule import GainSchedule, get_gain_schedule
from equiflock.deployment.export.program import get_controller_name, is_network, read_program, unwrap_scaled

INPUT, PERIOD_INPUT, OUTPUT = "observations", "period", "accelerations"


def write_onnx(controller: Any, path: Path, D: int) -> None:
    """Write the ONNX graph of a local controller. Needs torch, onnx and onnxscript.

    Raise InputError for a torch module that ONNX cannot represent, or a law that is not linear in observations.
    """
    require_torch("ONNX")
    require_modules("deploy", "ONNX", "onnx", "onnxscript")
    import torch
    from onnxscript import optimizer

    module = _build_module(controller, D)
    # B = 2 and N = 3, because torch.export treats dimensions of size 1 as static.
    example = torch.zeros(2, 3, controller.senses.hops, controller.senses.width, D)
    B, N = torch.export.Dim("B"), torch.export.Dim("N")
    schedule = get_gain_schedule(controller)
    inputs: dict[str, Any] = {INPUT: example}
    shapes: tuple[Any, ...] = ({0: B, 1: N},)
    if schedule is not None:
        inputs[PERIOD_INPUT] = torch.tensor(schedule.period, dtype=torch.float32)
        shapes = *shapes, {}
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    try:
        quiet.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations inside torch
            graph: Any = torch.onnx.export(
                module,
                tuple(inputs.values()),
                dynamo=True,
                optimize=False,
                verbose=False,
                input_names=list(inputs),
                output_names=[OUTPUT],
                dynamic_shapes=shapes,
            )
            # Not torch's full optimization: it replaces x + 1e-30 by x, and a norm of zero would then divide by zero.
            optimizer.inline(graph.model)
            optimizer.fold_constants(graph.model)
            optimizer.remove_unused_nodes(graph.model)
    except InputError:
        raise
    except Exception as error:  # torch raises many kinds of errors for unsupported modules
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise InputError(
            f"{get_controller_name(controller)} is a torch module that cannot be converted to ONNX: {reason}"
        ) from None
    finally:
        quiet.setLevel(level)
    with atomic_write(path) as scratch:
        graph.save(str(scratch), external_data=False)


def _build_module(controller: Any, D: int) -> Any:
    """Return the controller as a torch module in evaluation mode, with accelerations in the robots' units."""
    import torch
    from torch import Tensor, nn

    from equiflock.controllers.networks.models import as_module

    unscaled, scale = unwrap_scaled(controller)
    module = as_module(unscaled)

    class Network(nn.Module):
        """A network with accelerations in the robots' units."""

        def __init__(self) -> None:
            super().__init__()
            self.network = module

        def forward(self, observations: Tensor) -> Tensor:
            return cast(Tensor, self.network.forward(observations)) * scale

    class Law(nn.Module):
        """A law: a matrix and the clamp of the acceleration."""

        def __init__(self) -> None:
            super().__init__()
            self.law = read_program(controller, D)
            (layer,) = self.law.layers
            self.weight = nn.Parameter(torch.from_numpy(layer.weight))
            self.bias = None if layer.bias is None else nn.Parameter(torch.from_numpy(layer.bias))

        def forward(self, observations: Tensor) -> Tensor:
            # The matrix acts on the K C vectors of an agent, or on its K C D numbers.
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

    class Scheduled(nn.Module):
        """A controller whose accelerations are multiplied by its gain at a sampling period; by 0 if that is invalid."""

        def __init__(self, inner: nn.Module, schedule: GainSchedule) -> None:
            super().__init__()
            self.inner, self.schedule = inner, schedule

        def forward(self, observations: Tensor, period: Tensor) -> Tensor:
            gain = torch.clamp(self.schedule.period / period, max=self.schedule.largest)
            # False for NaN; an infinite period has the gain 0.
            gain = torch.where(period > 0.0, gain, torch.zeros_like(gain))
            return cast(Tensor, self.inner(observations)) * gain

    inner, schedule = Network() if is_network(module) else Law(), get_gain_schedule(controller)
    return (inner if schedule is None else Scheduled(inner, schedule)).eval()
