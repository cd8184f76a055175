"""Read-only arrays and dictionaries, and checks against the physical memory of the machine."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from numpy.typing import NDArray

from equiflock._runtime.checks import InputError


def as_read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view of an array, which itself stays writable; both share the memory."""
    view = array.view()
    view.setflags(write=False)
    return view


class ReadOnlyDict(dict[str, Any]):
    """A dictionary that cannot be changed after construction; it can be copied and pickled."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this dictionary is read-only: change a copy of it")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = pop = popitem = clear = setdefault = _refuse

    def __reduce__(self) -> tuple[type[ReadOnlyDict], tuple[dict[str, Any]]]:
        """Pickle as a plain dictionary that becomes read-only again."""
        return ReadOnlyDict, (dict(self),)


def read_physical_memory() -> float:
    """Return the bytes of physical memory; infinity if unknown."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def check_fits_memory(purpose: str, size: float, advice: str) -> None:
    """Raise InputError if `size` bytes exceed the physical memory: before an allocation, which may succeed at first.

    `purpose` is the subject of the message, such as "keeping 100 frames", and `advice` says what to do.
    """
    if size > read_physical_memory():
        raise InputError(f"{purpose} needs {size / 2**30:,.0f} GiB, more than this machine has: {advice}")
