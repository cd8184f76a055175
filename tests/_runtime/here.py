"""Jobs of a single worker in the process of the test."""

from __future__ import annotations

import pytest

from equiflock._runtime.executors import Executor


def work_here(patch: pytest.MonkeyPatch) -> None:
    """Run the jobs of a single worker in this process, which has the kernels loaded; several workers are processes."""
    patch.setattr(Executor, "is_here", property(lambda self: self.workers == 1 and self.scheduler is None))
