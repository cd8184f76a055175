"""What is checked before a training begins: that network, expert and recipe fit each other."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from equiflock.controllers import load
from equiflock.controllers.loading import make_network, select_network_options
from equiflock.learning.recipe import DAgger
from equiflock.learning.replay import check_memory
from equiflock.protocols import Controller, LocalController
from equiflock.runtime.checks import InputError
from equiflock.simulation.flight_builder import check_controller


def prepare_network(recipe: DAgger, network: nn.Module | None = None) -> nn.Module:
    """The network to train, fresh if none is given; a clear error if it, or the expert, does not fit the recipe."""
    if not isinstance(recipe, DAgger):
        raise InputError(f"recipe must be an equiflock.DAgger; got {recipe!r:.80}")
    if network is None:
        options = select_network_options(recipe.controller, hops=recipe.hops, dimensions=recipe.dimensions)
        # A lack of memory is reported before any is allocated.
        tuples = recipe.capacity + recipe.batch
        check_memory(tuples, recipe.min_agents, options.get("hops", 1), recipe.dimensions)
        network = make_network(recipe.controller, recipe.seed, **options)
    if not isinstance(network, nn.Module) or not list(network.parameters()):
        expected = "a torch module with weights to train, such as equiflock.load_module returns"
        raise InputError(f"network must be {expected}; got {network!r:.80}")
    check_controller(cast(Controller, network))
    _check_output_shape(network, recipe)
    check_controller(load(recipe.expert))
    return network


def _check_output_shape(network: nn.Module, recipe: DAgger) -> None:
    """Call the network once, so that a wrong shape is reported before the training begins."""
    senses = cast(LocalController, network).senses
    wanted = 1, recipe.min_agents, recipe.dimensions
    shape = *wanted[:2], senses.hops, senses.width, recipe.dimensions
    # Without a trace: the mode and torch's random numbers are as before.
    learning = network.training
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            answer = network.eval()(torch.zeros(shape))
    except (RuntimeError, TypeError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"the network does not take observations (B, N, K, C, D) = {shape}: {reason}") from None
    finally:
        network.train(learning)
    if not isinstance(answer, Tensor) or answer.shape != wanted:
        got = tuple(answer.shape) if isinstance(answer, Tensor) else answer
        raise InputError(f"the network must return accelerations (B, N, D) = {wanted}; got {got!r:.80}")
