"""Physical memory of the machine."""

from __future__ import annotations

import os


def read_physical_memory() -> float:
    """Return the bytes of physical memory; infinity if unknown."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")
