"""Plugins: checksums of all imported sources, names that clash, and one-line errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from equiflock._runtime.checks import InputError
from equiflock.cli.plugins import collect_plugin_sources, convert_plugin_errors, import_plugin
from tests.cli.commands import forgetting_plugins, run

LAW = """
import equiflock as ef

{top}

@ef.controller("{name}")
def law(observations):
    {inside}
    return -{gain} * observations[:, :, 0, 0]
"""


def write_law(path: Path, name: str, top: str = "", inside: str = "pass", gain: str = "2.0") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(LAW.format(name=name, top=top, inside=inside, gain=gain))


@pytest.fixture(autouse=True)
def nothing_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None) -> Iterator[None]:
    """Forget imported modules, so that tests may use the same names."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    with forgetting_plugins(tmp_path):
        yield


def sources_of(plugin: str) -> set[str]:
    import_plugin(plugin)
    return set(collect_plugin_sources(plugin))


def test_sources_include_imports_inside_functions_and_indirect_imports(tmp_path: Path) -> None:
    write_law(tmp_path / "laws.py", "a", top="from gains import G", inside="import late.deep as deep")
    (tmp_path / "gains.py").write_text("import units\nG = 2.0\n")
    (tmp_path / "units.py").write_text("import json, numpy, equiflock\n")
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "__init__.py").write_text("")
    (tmp_path / "late" / "deep.py").write_text("from . import other\nfrom .more import x\nfrom .. import nothing\n")
    (tmp_path / "late" / "other.py").write_text("")
    (tmp_path / "late" / "more.py").write_text("x = 1\n")
    (tmp_path / "unused.py").write_text("")
    sources = sources_of(str(tmp_path / "laws.py"))
    late = {"late/__init__.py", "late/deep.py", "late/other.py", "late/more.py"}
    assert sources == {"laws.py", "gains.py", "units.py", *late}


def test_sources_of_a_module_include_its_package(tmp_path: Path) -> None:
    write_law(tmp_path / "my_package" / "laws.py", "b", top="from .gains import G\nfrom my_package import shared")
    (tmp_path / "my_package" / "__init__.py").write_text("")
    (tmp_path / "my_package" / "gains.py").write_text("G = 2.0\n")
    (tmp_path / "my_package" / "shared.py").write_text("")
    names = {"__init__.py", "laws.py", "gains.py", "shared.py"}
    assert sources_of("my_package.laws") == {f"my_package/{name}" for name in names}


def test_sources_include_namespace_packages(tmp_path: Path) -> None:
    write_law(tmp_path / "plain" / "laws.py", "c", top="from plain.gains import G")
    (tmp_path / "plain" / "gains.py").write_text("G = 2.0\n")
    assert sources_of("plain.laws") == {"plain/laws.py", "plain/gains.py"}


def test_sources_include_modules_imported_by_importlib(tmp_path: Path) -> None:
    write_law(tmp_path / "laws.py", "d", top="import importlib\nG = importlib.import_module('ga' + 'ins').G")
    (tmp_path / "gains.py").write_text("G = 2.0\n")
    assert sources_of("laws.py") == {"laws.py", "gains.py"}


def test_sources_include_files_with_syntax_errors(tmp_path: Path) -> None:
    write_law(tmp_path / "laws.py", "e", inside="import broken")
    (tmp_path / "broken.py").write_text("def")
    assert sources_of("laws.py") == {"laws.py", "broken.py"}


def test_names_of_sources_are_relative(tmp_path: Path) -> None:
    write_law(tmp_path / "here" / "laws.py", "f", top="from gains import G")
    (tmp_path / "here" / "gains.py").write_text("G = 2.0\n")
    import_plugin("here/laws.py")
    assert list(collect_plugin_sources("here/laws.py")) == ["gains.py", "laws.py"]


@pytest.mark.parametrize("name", ["random", "numpy", "equiflock"])
def test_a_file_with_the_name_of_another_module_is_refused(tmp_path: Path, name: str) -> None:
    write_law(tmp_path / f"{name}.py", "g")
    with pytest.raises(
        InputError, match=rf"--plugin {name}\.py: Python would import another module named '{name}' instead: rename"
    ):
        import_plugin(f"{name}.py")


def test_a_worker_with_another_version_of_the_plugin_refuses(tmp_path: Path) -> None:
    write_law(tmp_path / "laws.py", "h", top="from gains import G")
    (tmp_path / "gains.py").write_text("G = 2.0\n")
    import_plugin("laws.py")
    sources = collect_plugin_sources("laws.py")
    import_plugin("laws.py", sources)
    (tmp_path / "gains.py").write_text("G = 3.0\n")
    with pytest.raises(
        InputError, match=r"differs between the command and this worker: gains\.py = \w{12}, not \w{12}"
    ):
        import_plugin("laws.py", collect_plugin_sources("laws.py"))  # it was imported before the change


def test_an_exception_of_a_plugin_is_one_line_with_its_location(tmp_path: Path) -> None:
    write_law(tmp_path / "laws.py", "i", inside="observations['x']")
    import_plugin("laws.py")
    law = sys.modules["laws"].law
    text = r"--plugin laws\.py failed: TypeError: .* \(laws\.py, line 8\)"
    with pytest.raises(InputError, match=text), convert_plugin_errors("laws.py"):
        law({}.keys())
    with pytest.raises(ZeroDivisionError), convert_plugin_errors(None):
        _ = 1 / 0


SMALL = ("--flocks", "2", "--agents", "20", "--time-step", "0.05", "--duration", "0.5", "--workers", "1")


def test_evaluate_runs_again_when_an_imported_file_changed(tmp_path: Path, jobs_here: None, no_curves: None) -> None:
    write_law(tmp_path / "laws.py", "mine", inside="from gains import G", gain="G")
    (tmp_path / "gains.py").write_text("G = 2.0\n")
    mine = ("mine", "--plugin", "laws.py")
    folder = tmp_path / "runs" / "evaluation" / "mine-flocking"
    seen = []
    for gain in ("2.0", "9.0"):
        (tmp_path / "gains.py").write_text(f"G = {gain}\n")
        with forgetting_plugins(tmp_path):
            run("evaluate", *mine, *SMALL)
        seen.append((folder / "flocking.csv").read_text())
    assert seen[0] != seen[1]
    # The package's controllers ran once, the law once for each of its two versions.
    names = [path.name for path in (folder / "jobs").iterdir()]
    assert sum(name.startswith("mine-") for name in names) == 2
    assert sum(name.startswith("etdagnn-") for name in names) == 1
