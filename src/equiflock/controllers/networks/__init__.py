"""Learned controllers: layers, the paper's networks, their compiled form, and their weights.

Networks are registered when they are first asked for, not when the package is imported: torch takes seconds to import.
"""

from equiflock.runtime.discovery import import_all


def register_networks() -> None:
    """Import every module here, so that the networks in it have names."""
    import_all(__name__, __path__)
