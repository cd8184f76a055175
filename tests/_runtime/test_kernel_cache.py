"""Compiled kernels are shared by copies of the package, and never outlive the sources that they were compiled from."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from equiflock._runtime import kernel_cache
from equiflock._runtime.kernel_cache import PACKAGE, KernelCache, compute_cache_key
from equiflock._runtime.user_cache import get_cache_root
from equiflock.observations.aggregation_kernels import aggregate_flocks

TINY = """
from equiflock.constants import FACTOR
from equiflock._runtime.jit import kernel

@kernel
def multiply(x):
    return FACTOR * x

if __name__ == "__main__":
    from equiflock.tiny import multiply
    print(multiply(1.0), sum(multiply._cache_hits.values()))
"""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A package with one kernel, whose constant is in another file, and our way of caching it."""
    package = tmp_path / "one" / "equiflock"
    (package / "_runtime").mkdir(parents=True)
    for name in ("__init__.py", "_runtime/__init__.py"):
        (package / name).touch()
    for name in ("jit.py", "compile_progress.py", "kernel_cache.py", "user_cache.py", "checks.py"):
        shutil.copy2(PACKAGE / "_runtime" / name, package / "_runtime" / name)
    (package / "tiny.py").write_text(TINY)
    (package / "constants.py").write_text("FACTOR = 2.0\n")
    return package


def result_and_hits(package: Path, **settings: str) -> tuple[float, int]:
    """What the kernel of a package gives for 1, in a process of its own, and how often it came from the cache."""
    environment = {**os.environ, "EQUIFLOCK_CACHE_DIR": str(package.parent.parent / "cache"), **settings}
    # -B: Python's own cache would go by the time and length of a file.
    command = [sys.executable, "-B", "-m", "equiflock.tiny"]
    done = subprocess.run(command, cwd=package.parent, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    result, hits = done.stdout.split()
    return float(result), int(hits)


def test_a_copy_elsewhere_finds_the_kernels_unless_a_source_or_a_setting_differs(tiny: Path, tmp_path: Path) -> None:
    assert result_and_hits(tiny) == (2.0, 0)
    copy = shutil.copytree(tiny, tmp_path / "two" / "equiflock", copy_function=shutil.copy)
    assert result_and_hits(copy) == (2.0, 1)
    # An edit of the same length, with the time of the file as it was.
    constants = copy / "constants.py"
    before = constants.stat()
    constants.write_text("FACTOR = 3.0\n")
    os.utime(constants, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert result_and_hits(copy) == (3.0, 0)
    # A setting that changes the code.
    assert result_and_hits(tiny, NUMBA_BOUNDSCHECK="1") == (2.0, 0)


def test_the_key_depends_on_the_names_and_contents_of_sources_and_on_settings(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [compute_cache_key(tiny)]
    (tiny / "constants.py").rename(tiny / "numbers.py")
    keys.append(compute_cache_key(tiny))
    (tiny / "cli").mkdir()
    (tiny / "cli" / "not_a_part_with_kernels.py").touch()
    assert compute_cache_key(tiny) == keys[-1]
    monkeypatch.setattr("numba.config.NUMBA_NUM_THREADS", 64)
    assert compute_cache_key(tiny) == keys[-1]
    for setting in ("BOUNDSCHECK", "OPT", "LOOP_VECTORIZE", "ENABLE_AVX", "DEBUGINFO_DEFAULT"):
        monkeypatch.setattr(f"numba.config.{setting}", 7)
        keys.append(compute_cache_key(tiny))
    assert len(set(keys)) == len(keys)


def test_kernels_of_the_package_are_in_this_cache() -> None:
    assert isinstance(aggregate_flocks._cache, KernelCache)  # type: ignore[attr-defined]


def test_a_damaged_file_counts_as_missing(tiny: Path, tmp_path: Path) -> None:
    assert result_and_hits(tiny) == (2.0, 0)
    (kept,) = (tmp_path / "cache").rglob("*.kernel")
    kept.write_bytes(kept.read_bytes()[:-1])
    assert result_and_hits(tiny) == (2.0, 0)
    assert result_and_hits(tiny) == (2.0, 1)


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache's folder that is not opened yet."""
    monkeypatch.setenv("EQUIFLOCK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel_cache, "get_key_dir", kernel_cache.get_key_dir.__wrapped__)
    return get_cache_root("kernels")


def test_the_cache_is_private(opened: Path) -> None:
    folder = kernel_cache.get_key_dir()
    assert folder is not None and folder.parent == opened
    assert folder.stat().st_mode & 0o777 == opened.stat().st_mode & 0o777 == 0o700


def test_a_folder_to_which_others_may_write_is_not_used(opened: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened.mkdir()
    opened.chmod(0o770)
    assert kernel_cache.get_key_dir() is None
    assert "other users can write to kernels" in capsys.readouterr().err
    assert list(opened.iterdir()) == []


def test_a_folder_of_another_user_is_not_used(
    opened: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: opened.parent.stat().st_uid + 1)
    assert kernel_cache.get_key_dir() is None
    assert "kernels belongs to another user" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_not_used(opened: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened.write_text("a file in the way")
    assert kernel_cache.get_key_dir() is None
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_nothing_is_kept_once_a_source_is_edited(tiny: Path, tmp_path: Path) -> None:
    source = tiny / "tiny.py"
    source.write_text(TINY.replace("    print", "    import os; os.utime('equiflock/constants.py', (1, 1))\n    print"))
    assert result_and_hits(tiny) == (2.0, 0)
    assert list((tmp_path / "cache").rglob("*.kernel")) == []


def test_the_key_ignores_files_that_no_kernel_imports(tiny: Path) -> None:
    key = compute_cache_key(tiny)
    (tiny / "tables.py").write_text("ROWS = 1\n")
    assert compute_cache_key(tiny) == key
    # Imports count over several files, as names of a package, and in functions.
    (tiny / "constants.py").write_text("from equiflock import (\n    tables,\n)\n\nFACTOR = 2.0\n")
    keys = [key, compute_cache_key(tiny)]
    (tiny / "tables.py").write_text("ROWS = 2\n")
    keys.append(compute_cache_key(tiny))
    (tiny / "tables.py").write_text("def draw():\n    from equiflock.colours import RED\n")
    (tiny / "colours.py").write_text("RED = 1\n")
    keys.append(compute_cache_key(tiny))
    (tiny / "colours.py").write_text("RED = 2\n")
    keys.append(compute_cache_key(tiny))
    assert len(set(keys)) == len(keys)


def test_every_file_that_kernels_use_is_part_of_the_key() -> None:
    """The imports of files with kernels are found by a pattern; here by parsing them."""
    listed = set(kernel_cache.list_source_files())
    sources = {path: ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
    with_kernels = {
        path
        for path, tree in sources.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(each).startswith(("kernel", "inline_kernel")) for each in node.decorator_list)
    }
    assert with_kernels
    assert with_kernels <= listed
    packages = {PACKAGE / part for part in kernel_cache.KERNEL_PACKAGES}
    for path in listed:
        for node in ast.walk(sources[path]):
            if isinstance(node, ast.Import):
                assert not any(each.name.startswith("equiflock") for each in node.names), f"{path}: use from .. import"
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative imports are not found"
                if (node.module or "").startswith("equiflock"):
                    folder = PACKAGE.joinpath(*str(node.module).split(".")[1:])
                    names = [folder, *(folder / each.name for each in node.names)]
                    files = {name.with_suffix(".py") for name in names} | {folder / "__init__.py"}
                    used = {
                        each for each in files & sources.keys() if packages & {*each.parents} or each.parent == PACKAGE
                    }
                    assert used <= listed, f"{path} imports {used - listed}"
