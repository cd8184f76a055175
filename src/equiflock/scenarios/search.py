"""Searches for a start that somebody else may stop."""

from __future__ import annotations

import numpy as np

from equiflock.runtime.checks import InputError


class SearchCancelledError(InputError):
    """The search for a start was stopped before it ended."""


class NoStartError(InputError):
    """After bounded effort there was no start that meets the conditions on distances, degrees and connectivity."""


class Stop:
    """A wish to stop, which any thread may make at any time; it cannot be taken back.

    Attributes:
        wished: (1,), what kernels look at. They run without Python's lock, and read it anew each time, since they call
            for a random number in between, of which the compiler knows nothing.
    """

    def __init__(self) -> None:
        self.wished = np.zeros(1, np.bool_)

    def set(self) -> None:
        """Wish it."""
        self.wished[0] = True

    def check(self) -> None:
        """Raise `SearchCancelledError` if it was wished."""
        if self.wished[0]:
            raise SearchCancelledError("the search was cancelled")
