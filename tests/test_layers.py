"""Imports go down the ladder, never up, and never sideways between the world and the controllers."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "equiflock"

LADDER: list[set[str]] = [
    {"version", "checks", "kernels"},
    {"types"},
    {"threads", "randomness", "files"},
    {"checksums", "stores"},
    {"provenance"},
    {"trajectory"},
    {"cells"},
    {"graph", "orbit"},
    {"hearing"},
    {"observations", "world", "course", "initial"},
    {"controllers"},
    {"flight", "metrics"},
    {"simulation"},
    {"imitation", "theory"},
    {"experiments"},
    {"report"},
    {"viewer"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LADDER) for name in names}


def imported_parts(path: Path) -> set[str]:
    """The parts of equiflock that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "equiflock":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("equiflock."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("equiflock.")}
    return found


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_imports_only_from_its_own_part_or_below(path: Path) -> None:
    part = part_of(path)
    for other in imported_parts(path):
        assert other in LEVEL, f"{other} is not on the ladder"
        assert other == part or LEVEL[other] < LEVEL[part], f"{part} must not import {other}"


def test_every_part_is_on_the_ladder() -> None:
    assert {part_of(path) for path in FILES} == set(LEVEL)
