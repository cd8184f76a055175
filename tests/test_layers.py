"""Imports go down the ladder that CONTRIBUTING.md draws, never up or sideways, and never in a circle."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from equiflock._runtime.kernel_cache import KERNEL_PACKAGES

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "equiflock"
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def ladder() -> list[list[str]]:
    """The parts of each rung, from the top, as CONTRIBUTING.md names them in front of what each of them is."""
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## The ladder")[1].split("\n## ")[0]
    rungs = re.findall(r"^ {4}([\w/]+(?:, [\w/]+)*)", text, re.MULTILINE)
    return [[part.strip("/") for part in rung.split(", ")] for rung in rungs]


HEIGHT = {part: -rung for rung, parts in enumerate(ladder()) for part in parts}


def module_name(path: Path) -> str:
    """Such as "senses.graph", and "senses" for the file senses/__init__.py."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in FILES}


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imported_modules(path: Path) -> set[str]:
    """The modules of equiflock that a file imports, anywhere in it: in functions, too, and for type checkers only."""
    found = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import, which hides where it goes"
            # What is imported from a package may be a module of it, or a name in the package itself.
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in inside if name.removeprefix("equiflock.") in MODULES}
            found |= modules | ({str(node.module)} if modules != inside else set())
    return {name.removeprefix("equiflock.") for name in found if name.split(".")[0] == "equiflock"}


def part_of(module: str) -> str:
    return module.split(".")[0]


def test_every_part_is_on_the_ladder() -> None:
    assert set(map(part_of, MODULES)) == set(HEIGHT)


def test_a_module_imports_only_from_its_own_part_or_from_below() -> None:
    pairs = [(module, other) for module in MODULES for other in sorted(imported_modules(MODULES[module]))]
    for module, other in pairs:
        assert other in MODULES, f"{module} imports {other}: name the module that has it"

    def below(module: str, other: str) -> bool:
        return part_of(other) == part_of(module) or HEIGHT[part_of(other)] < HEIGHT[part_of(module)]

    wrong = [f"{module} must not import {other}" for module, other in pairs if not below(module, other)]
    assert wrong == []


def circle_from(start: str) -> list[str]:
    """A way along imports from a module back to itself; empty if there is none."""
    ways, seen = [[start]], set()
    while ways:
        way = ways.pop()
        for other in imported_modules(MODULES[way[-1]]) & set(MODULES):
            if other == start:
                return [*way, start]
            if other not in seen:
                seen.add(other)
                ways.append([*way, other])
    return []


def test_no_module_imports_itself_by_way_of_others() -> None:
    circles = [" -> ".join(circle_from(module)) for module in MODULES]
    assert [circle for circle in circles if circle] == []


def decorators_in(source: Path) -> set[str]:
    functions = [node for node in ast.walk(parse(source)) if isinstance(node, ast.FunctionDef)]
    return {ast.unparse(decorator) for function in functions for decorator in function.decorator_list}


def test_kernels_are_only_where_a_change_compiles_them_anew() -> None:
    elsewhere = [
        source
        for module, source in MODULES.items()
        if source.parent != PACKAGE and part_of(module) not in KERNEL_PACKAGES
    ]
    assert [source for source in elsewhere if decorators_in(source) & {"kernel", "inline_kernel"}] == []
