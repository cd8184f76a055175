"""One command makes all films of the documentation, which shows no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import films

ROOT = Path(__file__).parent.parent.parent


def test_every_film_that_the_documentation_shows_is_made_and_stored() -> None:
    shown = set()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\(([^)]+\.(?:gif|webp|mp4))\)", page.read_text()):
            shown.add((page.parent / link).resolve().relative_to(ROOT / "docs").as_posix())
    assert shown == set(films.FILMS)
    assert all((ROOT / "docs" / path).stat().st_size > 10_000 for path in shown)


def test_the_command_makes_the_films_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in films.FILMS:
        monkeypatch.setitem(films.FILMS, path, lambda target: target.write_text("film"))
    films.main(["tanner", "flock", "--out", str(tmp_path)])
    assert sorted(path.name for path in tmp_path.rglob("*.webp")) == ["flock.webp", "tanner.webp"]
    assert len(capsys.readouterr().out.splitlines()) == 2
    films.main(["--list"])
    assert "cucker-smale-singular" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        films.main(["flok"])


def test_two_rows_that_meet_head_on_pass_through_each_other_only_without_the_singular_influence() -> None:
    from atlas import ENTRIES
    from equiflock.controllers import load
    from equiflock.simulation.simulate import simulate

    entry = next(entry for entry in ENTRIES if entry.name == "cucker-smale-singular")
    assert entry.start is not None
    least = {}
    for name in entry.panels:
        run = simulate(entry.start(), load(name), time_step=entry.time_step, duration=entry.seconds)
        least[name] = float((run.positions[:, 0, 4:, 0] - run.positions[:, 0, :4, 0]).min())
    assert least["cucker-smale-singular"] > 0 > least["cucker-smale"]
