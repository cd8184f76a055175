"""The worked examples of docs/extending.md are whole files, short, and work in Python and on the command line."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from equiflock import cli

PAGE = Path(__file__).parent.parent / "docs" / "extending.md"
LONGEST = 80
"""Lines."""


class Example(NamedTuple):
    """A part of the page: its heading, the file, the name that the file goes by, and the commands that use it."""

    heading: str
    content: str
    name: str
    commands: list[str]


def examples() -> list[Example]:
    found = []
    for part in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        (content,) = re.findall(r"^```python\n(.*?)^```", part, flags=re.DOTALL | re.MULTILINE)
        shell = re.findall(r"^```sh\n(.*?)^```", part, flags=re.DOTALL | re.MULTILINE)
        name = content.partition(":")[0].removeprefix('"""')
        commands = [line for text in shell for line in text.splitlines()]
        found.append(Example(part.splitlines()[0], content, name, commands))
    return found


EXAMPLES = examples()


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None) -> None:
    monkeypatch.chdir(tmp_path)


def test_there_are_six() -> None:
    headings = ["law", "torch network", "feature", "scenario", "body", "expert"]
    assert len(EXAMPLES) == len(headings)
    for example, word in zip(EXAMPLES, headings, strict=True):
        assert word in example.heading


SHORTENED = {"animate": ("--dots-per-inch", "40", "--frames-per-second", "5"), "evaluate": ("--workers", "1")}
"""Options that make a command take seconds."""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_is_one_short_file_that_runs(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(example.content.splitlines()) <= LONGEST
    Path(example.name).write_text(example.content)
    runpy.run_path(example.name, run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_commands_below_an_example_run(example: Example, monkeypatch: pytest.MonkeyPatch, jobs_here: None) -> None:
    Path(example.name).write_text(example.content)
    monkeypatch.delitem(sys.modules, example.name.removesuffix(".py"), raising=False)
    for line in example.commands:
        _, command, *options = shlex.split(line)
        cli.main([command, *options, *SHORTENED.get(command, ())])
