"""Commands that run jobs share the options of worker processes."""

from __future__ import annotations

from dataclasses import fields

import pytest

from equiflock import cli
from equiflock.cli.jobs import WorkerOptions


@pytest.mark.parametrize("name", ["evaluate", "sweep", "reproduce"])
def test_commands_that_run_jobs_list_the_options_of_workers_after_their_own(name: str) -> None:
    command = cli._load_command(name, [])
    assert issubclass(command, WorkerOptions)
    assert [each.name for each in fields(command)][-2:] == ["workers", "scheduler"]


def test_workers_prepare_nothing_without_a_plugin() -> None:
    assert WorkerOptions().prepare_worker is None
