"""Control of the search for initial conditions: a stop request from any thread, and the errors of the search."""

from __future__ import annotations

import numpy as np

from equiflock.runtime.checks import InputError


class SearchCancelledError(InputError):
    """The search for initial conditions was stopped."""


class NoStartError(InputError):
    """The search found no start that meets the conditions on distances, degrees and connectivity."""


class Stop:
    """A request to stop a search. Any thread can make it at any time; it cannot be withdrawn.

    Attributes:
        requested: (1,), the flag that kernels read. They run without Python's global lock, and read the flag from
            memory each time, since the compiler must assume that calls of the random generator can change it.
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
