"""A new part of the package is one file: it is found because it is there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from equiflock._runtime.imports import import_submodules


def test_every_module_of_a_package_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "birds"
    package.mkdir()
    (package / "__init__.py").write_text("SEEN = []\n")
    for name in ("wren", "auk"):
        (package / f"{name}.py").write_text(f"import birds\nbirds.SEEN.append({name!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    import birds  # type: ignore[import-not-found]

    import_submodules("birds", birds.__path__)
    assert birds.SEEN == ["auk", "wren"]
    for name in ("birds", "birds.wren", "birds.auk"):
        monkeypatch.delitem(sys.modules, name)
