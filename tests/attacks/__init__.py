"""Attacks on the program, one module each, run by `python -m tests.hostile`.

Each module has a function `attack(count, seed)`, which yields one `Attempt` after the other.
"""

from __future__ import annotations

from typing import NamedTuple

FAULTS = "silent", "crash", "traceback", "memory", "hang", "obeyed", "orphan"
"""Ways in which the program may fail: it accepts bad input without a notice, dies by a signal, prints a traceback,
allocates without a limit, does not end, obeys a forged frame, or leaves processes or files behind."""


class Attempt(NamedTuple):
    """One attack and its result."""

    action: str
    """What was done, in a few words, so that it can be repeated."""
    fault: str = ""
    """One of FAULTS, or "" if the program held."""
