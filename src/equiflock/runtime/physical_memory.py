"""How much memory the machine has."""

from __future__ import annotations

import os


def read_physical_memory() -> float:
    """Bytes of memory that the machine has; infinite where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
