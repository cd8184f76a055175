"""Imports by name: all submodules of a package, and optional dependencies, which extras of the package install."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterable

from equiflock._runtime.checks import InputError

# Automatic import of submodules: a new part of the package is one new file.


def import_submodules(package: str, path: Iterable[str]) -> None:
    """Import every direct submodule of a package in alphabetical order, so that each registers its parts.

    Args:
        package: its `__name__`.
        path: its `__path__`.
    """
    for module in sorted(pkgutil.iter_modules(path), key=lambda module: module.name):
        importlib.import_module(f"{package}.{module.name}")


# Optional dependencies, which extras of the package install.


def require_modules(extra: str, purpose: str, *modules: str) -> None:
    """Raise InputError, with the command that installs them, if one of these modules is not installed; import none.

    Args:
        extra: extra of the package that installs the modules, such as "train".
        purpose: subject of the error message: the feature that needs them.
        modules: module names.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"{purpose} needs {' and '.join(missing)}: pip install 'equiflock[{extra}]'")


def require_torch(purpose: str) -> None:
    """Raise InputError if torch is not installed; `purpose` is the subject of the message."""
    require_modules("train", purpose, "torch")
