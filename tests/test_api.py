"""The public names are those of `equiflock.api`, and `dir` lists nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

import equiflock as ef
import equiflock.cli
import equiflock.flock
import equiflock.theory
from equiflock import api


def test_dir_lists_the_public_names_and_no_submodules() -> None:
    # Importing a submodule makes it an attribute of the package, which dir does not list.
    assert {"api", "cli", "flock"} <= set(vars(ef))
    assert dir(ef) == sorted(api.__all__)


def test_no_submodule_hides_a_public_name() -> None:
    assert all(getattr(ef, name) is getattr(api, name) for name in api.__all__)


@pytest.mark.slow
def test_python_suggests_a_close_public_name() -> None:
    script = "import equiflock as ef; ef.simulat"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert process.stderr.endswith("no attribute 'simulat'. Did you mean: 'simulate'?\n")


@pytest.mark.slow
def test_the_first_use_of_a_public_name_imports_no_slow_package() -> None:
    script = "import sys, equiflock as ef; ef.simulate; print({'matplotlib', 'pandas', 'torch'} & set(sys.modules))"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert process.stdout == "set()\n"
