"""Learned controllers: layers, the paper's networks, their compiled form, and their weights.

Networks are registered when they are first asked for, not when the package is imported: torch takes seconds to import.
"""

from typing import Literal, TypeAlias

from equiflock.runtime.discovery import import_all

Biases: TypeAlias = Literal["zero", "uniform"]
"""How the biases of a network begin: at zero, or uniform as in torch's own convolutions."""


def register_networks() -> None:
    """Import every module here, so that the networks in it have names."""
    import_all(__name__, __path__)
