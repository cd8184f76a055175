"""The cost of a candidate: a weighted sum of its measures, each beside that of the weights that the search began with.

With m(c, t) the measure m of candidate c in task t, c_0 the beginning on the same flocks, and h(c_0, t) its measure on
held-out flocks,

    scale(m, t) = max(m(c_0, t), h(c_0, t) / 2, nothing_m)
    sum(c) = sum_t share_t sum_m weight_m m(c, t) / scale(m, t),        cost(c) = sum(c) / sum(c_0)

so that the beginning costs 1, and few flocks with which it happened to have no trouble do not make that measure the
only one that counts. The measures of a candidate whose flight diverged are infinite, and so is its cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from equiflock.experiments.tuning.measures import TOLERANCES
from equiflock.experiments.tuning.tasks import Task, parse_shares
from equiflock.runtime.checks import InputError, check_choice, check_positive

DEFAULT_MEASURES = "1*disconnected+0.3*variance+0.5*final_variance+1*leaders+0.2*collisions+0.1*effort+1*failures"
"""The usual weights of the measures."""
Measurements: TypeAlias = Sequence[Mapping[str, float]]
"""What a candidate was measured by, in each task."""


def parse_measures(text: str) -> dict[str, float]:
    """The weights of measures that a text such as 1*apart+0.5*variance tells; the others count for nothing."""
    shares = parse_shares("measures", text, "1*disconnected+0.5*variance")
    found = {}
    for weight, name in shares:
        check_choice("a measure", name, tuple(TOLERANCES))
        if name in found:
            raise InputError(f"measures must name each measure once; got {text!r}")
        found[name] = check_positive(f"the weight of {name}", weight)
    return found


def compute_cost(
    measurements: Measurements,
    initial: Measurements,
    held_out: Measurements,
    tasks: Sequence[Task],
    weights: Mapping[str, float],
) -> float:
    """The cost of a candidate.

    Args:
        measurements: what it was measured by.
        initial: the same of the beginning, on the same flocks.
        held_out: the same of the beginning, on held-out flocks.
        tasks: of which these are.
        weights: of the measures.
    """
    parts, usual = [], []
    for task, own, first, typical in zip(tasks, measurements, initial, held_out, strict=True):
        for name in weights.keys() & own.keys():
            if not (math.isfinite(first[name]) and math.isfinite(typical[name])):
                raise InputError(f"in {task.scenario!r} the weights to begin from diverge: train them on it first")
            factor = task.share * weights[name] / max(first[name], typical[name] / 2.0, TOLERANCES[name])
            parts.append(factor * own[name])
            usual.append(factor * first[name])
    if not parts:
        raise InputError(f"none of the tasks has a measure among {', '.join(weights)}: choose others by --measures")
    if not all(map(math.isfinite, parts)):
        return math.inf
    # Sums that do not depend on the order. Where nothing is wrong with the beginning, it costs nothing.
    return math.fsum(parts) / (math.fsum(usual) or 1.0)
