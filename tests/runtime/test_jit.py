"""Compiled kernels on disk are dropped when any source file of the package changes."""

from equiflock.runtime import jit as kernels
from equiflock.senses.hearing import hear_flocks


def test_the_cache_is_stamped_with_the_whole_package() -> None:
    assert hear_flocks._cache._cache_file._source_stamp == kernels._package_stamp()  # type: ignore[attr-defined]
