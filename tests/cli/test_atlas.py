"""`equiflock atlas`: page, table and films, existing results, and one-line errors."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pandas as pd
import pytest
from equiflock.evaluation.atlas import entries
from equiflock.evaluation.atlas.claims import FinalVelocityVariance
from equiflock.evaluation.atlas.entries import Entry

from equiflock import cli
from equiflock.scenarios import RandomDisk

FEW = RandomDisk(2, agents=10)
SMALL = tuple(
    Entry(
        name,
        f"The law {name}",
        "Much.",
        "Often.",
        (FinalVelocityVariance(name, "final velocity variance", most=most, disk=FEW, seconds=1.0),),
        (name, "tanner"),
        scenario="flocking:agents=10",
        seconds=0.3,
    )
    for name, most in (("cucker-smale", 0.1), ("reynolds", 0.0))
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, jobs_here: None) -> None:
    monkeypatch.setattr(entries, "ENTRIES", SMALL)
    monkeypatch.chdir(tmp_path)


def atlas(*arguments: str) -> None:
    cli.main(["atlas", "--workers", "1", *arguments])


@pytest.mark.slow
def test_the_page_has_a_film_a_description_and_the_numbers_of_each_law(capsys: pytest.CaptureFixture[str]) -> None:
    atlas("--out", "found")
    page, table = Path("found/atlas.md").read_text(), pd.read_csv("found/atlas.csv")
    assert table.verdict.tolist() == ["holds", "does not hold"]
    for name, verdict in zip(("cucker-smale", "reynolds"), table.verdict, strict=True):
        assert Path(f"found/{name}.gif").stat().st_size > 1000
        section = page.split(f"## The law {name}")[1].split("\n## ")[0]
        assert f"![{name} beside tanner]({name}.gif)" in section
        assert "**Claims.** Much." in section
        assert f"| {verdict} |" in section
    printed = capsys.readouterr().out
    assert "does not hold" in printed
    assert "found/atlas.md" in printed


def test_existing_results_and_films_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    atlas()
    before = {path: path.stat().st_mtime_ns for path in Path("runs/atlas").rglob("*.gif")}
    monkeypatch.setattr(FinalVelocityVariance, "measure", None)
    atlas()
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_law_and_a_film_can_be_added_later() -> None:
    atlas("--only", "reynolds", "--no-films")
    page = Path("runs/atlas/atlas.md").read_text()
    assert "The law cucker-smale" not in page
    assert ".gif" not in page
    atlas("--only", "cucker-smale")
    page = Path("runs/atlas/atlas.md").read_text()
    assert "The law cucker-smale" in page
    assert "The law reynolds" in page
    assert "](cucker-smale.gif)" in page
    assert "](reynolds.gif)" not in page
    assert len(pd.read_csv("runs/atlas/atlas.csv")) == 2


def test_another_film_is_another_atlas(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    atlas("--no-films")
    monkeypatch.setattr(entries, "ENTRIES", tuple(dataclasses.replace(each, seconds=0.2) for each in SMALL))
    with pytest.raises(SystemExit):
        atlas("--no-films")
    assert "seconds = 0.3, not 0.2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--only", "boids"), "law must be one of 'cucker-smale', 'reynolds'; got 'boids'"),
        (("--workers", "0"), "workers must be a whole number of at least 1; got 0"),
    ],
)
def test_invalid_options_are_a_one_line_error(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["atlas", *arguments])
    assert caught.value.code == 2
    assert text in capsys.readouterr().err


def test_a_directory_with_other_files_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    with pytest.raises(SystemExit):
        atlas("--out", "mine")
    assert "contains other files" in capsys.readouterr().err
    assert list(Path("mine").glob("*.md")) == []
