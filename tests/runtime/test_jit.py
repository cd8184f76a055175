"""Compiled kernels on disk are dropped when any source file that they may depend on changes."""

from equiflock.runtime import jit
from equiflock.senses.hearing import hear_flocks


def test_the_cache_of_a_kernel_is_stamped_with_all_parts_that_have_kernels() -> None:
    assert hear_flocks._cache._cache_file._source_stamp == jit._stamp()  # type: ignore[attr-defined]
