"""pytest-xdist gives whole files to its workers, and all tests in a browser to the same one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import BROWSER, HERE, FileScheduling, pytest_xdist_make_scheduler

NAMES = ("one", "two[a@b]", "Class::three")


def test_tests_of_a_file_are_one_group_and_all_tests_in_a_browser_another(pytestconfig: pytest.Config) -> None:
    scheduling: Any = object.__new__(FileScheduling)
    assert {scheduling._split_scope(f"tests/test_cli.py::{name}") for name in NAMES} == {"tests/test_cli.py"}
    assert scheduling._split_scope("tests/cli/test_cli.py::one") == "tests/cli/test_cli.py"
    browser = [path.relative_to(HERE.parent).as_posix() for path in BROWSER]
    assert {scheduling._split_scope(f"{path}::{name}") for path in browser for name in NAMES} == {"browser"}
    # pytest-xdist asks the hook in the process that gives out the tests.
    assert pytestconfig.pluginmanager.hook.pytest_xdist_make_scheduler.get_hookimpls()[-1].function is (
        pytest_xdist_make_scheduler
    )
