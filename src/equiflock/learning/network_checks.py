"""Checks before a training: network, expert and recipe must match."""

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
    """Return the network to train; by default a new one, initialized from the recipe's seed.

    Raise InputError if the network or the expert does not fit the recipe, or if the replay needs more memory than the
    machine has.
    """
    if not isinstance(recipe, DAgger):
        raise InputError(f"recipe must be an equiflock.DAgger; got {recipe!r:.80}")
    if network is None:
        options = select_network_options(recipe.controller, hops=recipe.hops, dimensions=recipe.dimensions)
        # Report insufficient memory before allocating any.
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
    """Call the network once, on zeros and in eval mode; raise InputError if it fails or its output has a wrong shape.

    The mode of the network and torch's generator are restored.
    """
    senses = cast(LocalController, network).senses
    expected_shape = 1, recipe.min_agents, recipe.dimensions
    shape = *expected_shape[:2], senses.hops, senses.width, recipe.dimensions
    # Restore the mode of the network and torch's random generator afterwards.
    was_training = network.training
    try:
        with torch.random.fork_rng(devices=[]), torch.inference_mode():
            output = network.eval()(torch.zeros(shape))
    except (RuntimeError, TypeError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"the network does not take observations (B, N, K, C, D) = {shape}: {reason}") from None
    finally:
        network.train(was_training)
    if not isinstance(output, Tensor) or output.shape != expected_shape:
        received = tuple(output.shape) if isinstance(output, Tensor) else output
        raise InputError(f"the network must return accelerations (B, N, D) = {expected_shape}; got {received!r:.80}")
