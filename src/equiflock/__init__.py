"""Train, evaluate, visualise and deploy decentralized controllers for robot swarms.

The public names are those of `equiflock.api`, imported at their first use so that `import equiflock` is fast.
"""

from __future__ import annotations

import sys
from importlib import import_module

from equiflock.version import __version__ as __version__

# `typing` takes longer than the rest, and Ctrl-C during this import cannot be handled.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from equiflock.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Return a public name of `equiflock.api`, which the first use imports."""
    # Python also looks up names such as __path__ and __wrapped__, which must not import the whole package.
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'equiflock' has no attribute {name!r}")
    api = import_module("equiflock.api")
    try:
        return getattr(api, name)
    except AttributeError:
        # With the module, Python suggests a public name that is close.
        message = f"module 'equiflock' has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules[__name__]) from None


def __dir__() -> list[str]:
    """List the public names."""
    return list(import_module("equiflock.api").__all__)
