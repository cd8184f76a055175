"""Optional dependencies, which extras of the package install."""

from __future__ import annotations

import importlib.util

from equiflock.runtime.checks import InputError


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
