"""NumPy export: one agent's controller as a Python file, from templates/numpy_agent.txt, with weights as .npz."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import numpy as np

from equiflock.deployment.export.program import Activation, Program
from equiflock.deployment.export.source_text import (
    build_formulas,
    fill_template,
    list_template_parts,
    make_common_words,
    make_gain_words,
    make_limit_numbers,
    make_message_words,
    make_orbit_words,
)

EXAMPLE_PERIOD = 0.02
"""Sampling period in the example of a controller with limits but without a gain schedule, in seconds."""


def pack_weights(program: Program) -> bytes:
    """Return the content of the .npz file."""
    file = io.BytesIO()
    np.savez(file, **program.weights)  # type: ignore[arg-type]
    return file.getvalue()


def format_numpy_agent(program: Program, stem: str, weights: bytes) -> str:
    """Return the text of the Python file, which loads its weights from the .npz file of the same stem.

    `weights` is the content of that file. The text has its SHA-256, by which the agent detects damaged weights and
    those of another export.
    """
    scale, is_scaled = program.acceleration_scale, program.senses.is_scaled
    length, time = program.senses.scales
    words = make_common_words(program, stem) | make_orbit_words(program) | make_gain_words(program)
    words |= make_message_words(program) | _make_decoding_words(program)
    words |= {
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        "components": program.vector_size,
        "features": "".join(f"\n\n{text}\n" for text in _format_weight_functions(program)),
        "channels": "\n".join(_format_channels(program)),
        "network": "\n".join(f"        {line}" for line in _format_network(program)),
        "clamp": repr(program.clamp),
        "scale": "" if scale == 1.0 else f" * {scale!r}",
        "gain": "" if program.gain_schedule is None else " * self.gain",
        "to_length": f" / {length!r}" if is_scaled else "",
        "to_speed": f" * {time / length!r}" if is_scaled else "",
    }
    words |= _make_limit_words(program)
    return fill_template("numpy_agent.txt", words, list_template_parts(program), ("#", ""))


def _make_limit_words(program: Program) -> dict[str, Any]:
    """Return the words of the part `limits`; empty if there are no limits."""
    if program.safety is None:
        return {}
    fence, schedule = program.safety.fence, program.gain_schedule
    return {
        **make_limit_numbers(program),
        # In float32, as C stores it: rounding would be divided by the square of the braking time.
        "fence": None if fence is None else f"np.array({fence}, np.float32)",
        "least_distance": repr(1e-8 * program.senses.length_scale),
        "example_period": EXAMPLE_PERIOD if schedule is None else make_gain_words(program)["gain_period"],
    }


def _make_decoding_words(program: Program) -> dict[str, Any]:
    """Return the words of the functions that write and receive messages."""
    compact, bits = program.compact, 32 if program.compact is None else 16
    all_hops = program.relayed_hops == program.senses.hops - 1
    words: dict[str, Any] = {
        "step_bits": bits,
        "age_bits": bits - 1,
        "message_or_packets": "message" if program.packets == 1 else "list of packets",
        "first_packet": "[0]" if program.packets == 1 else "",
        "at_sender": " @ rotation" if program.own_frames else "",
        "end_hop": "" if all_hops else program.relayed_hops + 1,
        "hop_count": "K - 1" if all_hops else program.relayed_hops,
    }
    if compact is not None:
        words |= {"quantum": compact.quanta[0], "speed_quantum": compact.quanta[1]}
    return words


def _format_weight_functions(program: Program) -> list[str]:
    """Return Python functions for the feature weights that are more than one expression of |r_ij|^2.

    The other weights are written in the table CHANNELS.
    """
    texts = (formula.to_python(name) for name, formula in build_formulas(program.features).values())
    return [text for text in texts if _extract_expression(text) is None]


def _extract_expression(function: str) -> str | None:
    """Return the expression of a Python function of `square`, |r_ij|^2, that only returns it; else None."""
    head, _, body = function.partition("\n    return ")
    return body if head.endswith("(square):") and "\n" not in body else None


def _format_channels(program: Program) -> list[str]:
    """Return a row of the table CHANNELS for each channel: weight, whether of v_ij, among whom, whether a mean."""
    names, lines = build_formulas(program.features), []
    for feature, (_, aggregation) in zip(program.senses.features, program.senses.channels, strict=True):
        arguments = ["square", *(["inner"] if feature.uses_velocity else []), *map(repr, feature.options)]
        name, formula = names[feature.weight]
        call = f"{name}({', '.join(arguments)})"
        weight = f"lambda square, inner: {_extract_expression(formula.to_python(name)) or call}"
        columns = feature.vector == "velocity", feature.among, aggregation == "mean"
        lines.append(f"    ({', '.join([weight, *map(repr, columns)])}),".replace("'", '"'))
    return lines


def _format_network(program: Program) -> list[str]:
    """Return the Python lines from observations, `x`, to the acceleration before the clamp, also `x`."""
    lines = []
    if program.input_activation != "none":
        lines.append(f"x = {_format_activation(program.input_activation, 'x')}")
    # Names of the weights for agents near an obstacle start with "near_".
    quote = 'f"{near}' if program.near_obstacle_layers else '"'
    for k, layer in enumerate(program.layers):
        bias = "" if layer.bias is None else f' + self.weights[{quote}bias_{k}"][:, None]'
        output = f'self.weights[{quote}weight_{k}"] @ x{bias}'
        lines.append(f"x = {_format_activation(layer.activation, output)}")
    return lines


def _format_activation(activation: Activation, x: str) -> str:
    """Return the Python expression of an activation of the expression `x`."""
    function = "np.tanh" if activation == "tanh" else activation
    return x if activation == "none" else f"{function}({x})"
