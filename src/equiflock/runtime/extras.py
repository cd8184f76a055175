"""Optional dependencies, which extras of the package install."""

from __future__ import annotations

import importlib.util

from equiflock.runtime.checks import InputError


def require_modules(extra: str, purpose: str, *modules: str) -> None:
    """Raise InputError, with the command that installs them, unless these modules can be imported.

    Args:
        extra: the extra of the package that installs them, such as "train".
        purpose: what needs them, as the subject of the error.
        modules: their names.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"{purpose} needs {' and '.join(missing)}: pip install 'equiflock[{extra}]'")


def require_torch(purpose: str) -> None:
    """Raise InputError unless torch can be imported."""
    require_modules("train", purpose, "torch")
