"""The search for initial conditions, which another thread may stop."""

from __future__ import annotations

import numpy as np

from equiflock.runtime.checks import InputError


class SearchCancelledError(InputError):
    """The search for a start was stopped before it ended."""


class NoStartError(InputError):
    """After bounded effort there was no start that meets the conditions on distances, degrees and connectivity."""


class Stop:
    """A request to stop a search, which any thread may make at any time; it cannot be withdrawn.

    Attributes:
        requested: (1,), the flag that kernels look at. They run without Python's lock, and read it anew each time,
            since the compiler must expect the random generator that they call in between to change anything.
    """

    def __init__(self) -> None:
        self.requested = np.zeros(1, np.bool_)

    def set(self) -> None:
        """Request the search to stop."""
        self.requested[0] = True

    def check(self) -> None:
        """Raise `SearchCancelledError` if a stop was requested."""
        if self.requested[0]:
            raise SearchCancelledError("the search was cancelled")
