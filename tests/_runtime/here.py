"""Jobs of a single worker in the process of the test."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import pytest

from equiflock._runtime import executors as run_jobs
from equiflock._runtime.executors import run_in_pool


def work_here(patch: pytest.MonkeyPatch) -> None:
    """Run the jobs of a single worker in this process, which has the kernels loaded; several workers are processes."""

    def work(do: Callable[..., object], jobs: Sequence[tuple[Any, ...]], workers: int) -> Generator[int, None, None]:
        if workers > 1:
            yield from run_in_pool(do, jobs, workers)
            return
        for number, job in enumerate(jobs):
            do(*job)
            yield number

    patch.setattr(run_jobs, "run_in_pool", work)
