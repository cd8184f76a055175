"""Arrays and dictionaries that cannot be changed."""

from __future__ import annotations

from typing import Any, NoReturn

from numpy.typing import NDArray


def as_read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view of an array that cannot be written to."""
    view = array.view()
    view.setflags(write=False)
    return view


class ReadOnlyDict(dict[str, Any]):
    """A dictionary that is filled when it is made; it can be copied and sent to other processes as any other."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this dictionary is read-only: make a changed copy of it")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = pop = popitem = clear = setdefault = _refuse

    def __reduce__(self) -> tuple[type[ReadOnlyDict], tuple[dict[str, Any]]]:
        """Pickled as a plain dictionary that is made read-only again."""
        return ReadOnlyDict, (dict(self),)
