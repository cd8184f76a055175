"""Imports by name: all submodules of a package, and optional dependencies, which extras of the package install."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterable

from equiflock._runtime.checks import InputError


def import_submodules(package: str, path: Iterable[str]) -> None:
    """Import every direct submodule of a package with this `__name__` and `__path__`, so that each registers its parts.

    The order is alphabetical.
    """
    for module in sorted(pkgutil.iter_modules(path), key=lambda module: module.name):
        importlib.import_module(f"{package}.{module.name}")


def require_modules(extra: str, purpose: str, *modules: str) -> None:
    """Raise InputError, with the extra that installs them, if one of these modules is missing; import none.

    `purpose` is the subject of the message, the feature that needs them.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"{purpose} needs {' and '.join(missing)}: pip install 'equiflock[{extra}]'")


def require_torch(purpose: str) -> None:
    """Raise InputError if torch is not installed; see `require_modules`."""
    require_modules("train", purpose, "torch")
