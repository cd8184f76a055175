"""Cost of a candidate: a weighted sum of its measures, each relative to that of the initial weights.

With m(c, t) the measure m of candidate c in task t, c_0 the initial weights on the same flocks, and h(c_0, t) their
measure on held-out flocks,

    scale(m, t) = max(m(c_0, t), h(c_0, t) / 2, tolerance_m)
    sum(c) = sum_t share_t sum_m weight_m m(c, t) / scale(m, t),        cost(c) = sum(c) / sum(c_0)

so that the initial weights cost 1 (0 if all their measures are 0). The lower limits of the scale keep a measure that
happens to be near 0 for the initial weights on a few flocks from dominating the sum. If a flight diverges, the measures
and the cost are infinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from equiflock.experiments.tuning.measures import TOLERANCES
from equiflock.experiments.tuning.tasks import Task, parse_shares
from equiflock.runtime.checks import InputError, check_choice, check_positive

DEFAULT_MEASURES = "1*detached+0.3*variance+0.5*final_variance+1*leaders+0.2*collisions+0.1*effort+1*failures"
"""Default weights of the measures."""
Measurements: TypeAlias = Sequence[Mapping[str, float]]
"""Measures of a candidate by name, for each task."""


def parse_measures(text: str) -> dict[str, float]:
    """Parse weights of measures such as 1*detached+0.5*variance; measures that are not named are left out.

    Raise InputError if a name is unknown or repeated, or a weight is not positive.
    """
    shares = parse_shares("measures", text, "1*detached+0.5*variance")
    weights = {}
    for weight, name in shares:
        check_choice("a measure", name, tuple(TOLERANCES))
        if name in weights:
            raise InputError(f"measures must name each measure once; got {text!r}")
        weights[name] = check_positive(f"the weight of {name}", weight)
    return weights


def compute_cost(
    measurements: Measurements,
    initial: Measurements,
    held_out: Measurements,
    tasks: Sequence[Task],
    weights: Mapping[str, float],
) -> float:
    """Return the cost of a candidate, infinite if a flight diverged; the module docstring has the formula.

    Measures that a task does not have are skipped. Raise InputError if the initial weights diverge, or if no task has
    any of the measures.

    Args:
        measurements: measures of the candidate.
        initial: measures of the initial weights on the same flocks.
        held_out: measures of the initial weights on held-out flocks, for the lower limits of the scale.
        tasks: the tasks of these measurements.
        weights: weights of the measures.
    """
    terms, initial_terms = [], []
    for task, own, first, typical in zip(tasks, measurements, initial, held_out, strict=True):
        for name in weights.keys() & own.keys():
            if not (math.isfinite(first[name]) and math.isfinite(typical[name])):
                raise InputError(f"the initial weights diverge in {task.scenario!r}: train them on it first")
            factor = task.share * weights[name] / max(first[name], typical[name] / 2.0, TOLERANCES[name])
            terms.append(factor * own[name])
            initial_terms.append(factor * first[name])
    if not terms:
        raise InputError(f"no task has a measure among {', '.join(weights)}: choose others with --measures")
    if not all(map(math.isfinite, terms)):
        return math.inf
    # fsum does not depend on the order. If all measures of the initial weights are 0, so is their cost.
    return math.fsum(terms) / (math.fsum(initial_terms) or 1.0)
