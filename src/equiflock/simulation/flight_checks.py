"""Checks of what controllers, endings and callers pass to a flight."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Int8

from equiflock.flock import Flock, Vectors, check_flock
from equiflock.outcomes import Outcome
from equiflock.protocols import Ending
from equiflock.runtime.checks import InputError, shorten_repr

FLYING = int(Outcome.FLYING)


def check_accelerations(answer: Any) -> Vectors:
    """Return a controller's result as float64; raise InputError if it is not an array of real numbers.

    Shape and finiteness are not checked here.
    """
    try:
        array = np.asarray(answer)
    except (TypeError, ValueError):  # such as rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "fiu":
        received = f"{array.dtype} of shape {array.shape}" if array.shape else shorten_repr(answer)
        raise InputError(f"the controller must return an array of real numbers; got {received}")
    return array.astype(np.float64, copy=False)


def check_ending(ending: Ending | None) -> None:
    """Raise InputError if `ending` is a class or not callable; None is fine."""
    if isinstance(ending, type):
        raise InputError(f"ending must be an instance: {ending.__name__}(), not {ending.__name__}")
    if ending is not None and not callable(ending):
        raise InputError(f"ending must be callable, such as equiflock.UntilDisconnected(); got {shorten_repr(ending)}")


def check_outcomes(answer: Any, flocks: int) -> Int8[np.ndarray, " B"]:
    """Return an ending's result as outcome codes (B,); True becomes ENDED and False FLYING.

    Raise InputError if it is not one known outcome or boolean for each flock.
    """
    try:
        outcomes = np.asarray(answer)
    except ValueError:  # such as rows of different lengths
        outcomes = np.asarray(None)
    # True ends a flock without a more specific outcome.
    if outcomes.dtype == bool:
        outcomes = np.where(outcomes, int(Outcome.ENDED), FLYING)
    valid = outcomes.dtype.kind in "iu" and np.isin(outcomes, [int(outcome) for outcome in Outcome.all()]).all()
    if outcomes.shape != (flocks,) or not valid:
        raise InputError(
            f"the ending must return one Outcome, or True or False, for each flock, ({flocks},); "
            f"got {shorten_repr(answer)}"
        )
    return outcomes.astype(np.int8)


def check_keep_mask(
    flock: Flock, keep: Bool[np.ndarray, " N"] | None, shape: tuple[int, ...], comm_radius: float
) -> Bool[np.ndarray, " N"]:
    """Return the mask of agents that a flight of that shape (B, N, D) keeps in a changed flock; default: all.

    Raise InputError if they do not fit into the new flock, or if it changes B, D or R of the flight.
    """
    check_flock(flock)
    B, N, D = shape
    keep = np.ones(N, bool) if keep is None else np.asarray(keep)
    if keep.shape != (N,) or keep.dtype != bool:
        raise InputError(f"keep must be booleans of shape ({N},); got {keep.dtype} of shape {keep.shape}")
    if (flock.shape[0], flock.shape[2]) != (B, D) or flock.shape[1] < keep.sum():
        raise InputError(f"the new flock must be {B} flocks of at least {keep.sum()} agents, D = {D}; got {flock!r}")
    if flock.comm_radius != comm_radius:
        raise InputError(
            f"the new flock must have comm_radius = {comm_radius:g}, that of the flight; got {flock.comm_radius:g}"
        )
    return keep
