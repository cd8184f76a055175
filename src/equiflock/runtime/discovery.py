"""Automatic import of submodules: a new part of the package is one new file."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable


def import_submodules(package: str, path: Iterable[str]) -> None:
    """Import every direct submodule of a package in alphabetical order, so that each registers its parts.

    Args:
        package: its `__name__`.
        path: its `__path__`.
    """
    for module in sorted(pkgutil.iter_modules(path), key=lambda module: module.name):
        importlib.import_module(f"{package}.{module.name}")
