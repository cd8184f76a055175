"""`equiflock compare`, and flight logs for `view` and `animate`."""

from __future__ import annotations

from pathlib import Path

import pytest

import equiflock as ef
from equiflock.cli.view import View
from tests.cli.commands import failure, run

SMALL = "--dots-per-inch", "40", "--frames-per-second", "10"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The log of a simulated flight, without velocities and accelerations."""
    path = tmp_path_factory.mktemp("logs") / "flight.csv"
    flight = ef.simulate(ef.random_disk(1, 8, comm_radius=3.0), ef.load("tanner", comm_radius=3.0), duration=0.1)
    lines = flight.to_csv(path).read_text().splitlines()
    path.write_text("\n".join(",".join(line.split(",")[:4]) for line in lines))
    return str(path)


def test_compare_prints_both_columns_and_saves_both_flights(
    log: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "both"
    run("compare", log, "--comm-radius", "3", "--controller", "tanner:comm_radius=3", "--save", str(folder))
    printed = capsys.readouterr().out
    for text in (
        "8 agents for 0.1 s in steps of 0.01 s",
        "metric",
        "log",
        "simulation",
        "drift (RMS distance",
        "saved: ",
    ):
        assert text in printed
    assert "velocities are differences of positions, as the log has none" in printed
    assert sorted(path.name for path in folder.glob("*.zarr")) == ["log.zarr", "simulation.zarr"]
    assert len(View(flights=(folder,))._make_viewer_config().flights) == 2
    run("animate", str(folder), "--out", str(tmp_path / "film.gif"), *SMALL)


def test_view_and_animate_read_a_log(log: str, tmp_path: Path) -> None:
    (flight,) = View(flights=(Path(log),), comm_radius=3.0)._make_viewer_config().flights
    assert (flight.comm_radius, flight.config["source"]) == (3.0, "flight.csv")
    run("animate", log, "--comm-radius", "3", "--out", str(tmp_path / "film.gif"), *SMALL)
    assert (tmp_path / "film.gif").read_bytes()[:4] == b"GIF8"


def test_a_radius_is_also_that_of_new_flights(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert View(controller="tanner", comm_radius=2.0)._make_viewer_config().setting.comm_radius == 2.0
    new = "animate", "--controller", "tanner", "--comm-radius", "2", "--agents", "5", "--duration", "0.02"
    run(*new, "--out", str(tmp_path / "film.gif"), *SMALL)
    assert "tanner is for comm_radius = 1 and is not scaled to 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("compare", "LOG"), "--comm-radius"),
        (("compare", "LOG", "--comm-radius", "-1"), "comm_radius must be a finite number above 0; got -1.0"),
        (("compare", "LOG", "--comm-radius", "3", "--controller", "taner"), "did you mean 'tanner'?"),
        (
            ("compare", "LOG", "--comm-radius", "3", "--time-step", "1"),
            "must have all agents for at least one time step",
        ),
        (("compare", "nowhere.csv", "--comm-radius", "3"), "no flight log at nowhere.csv: there is no such file"),
        (("compare", "LOG", "--comm-radius", "3", "--save", "LOG"), "already exists"),
        (("view", "LOG"), "for a flight log pass --comm-radius"),
        (("animate", "LOG"), "for a flight log pass --comm-radius"),
        (("animate", "nowhere.csv"), "nowhere.csv: there is no such file"),
        (("animate", "some.zarr", "--comm-radius", "3"), "--comm-radius has no effect on saved flights"),
        (("view", "some.zarr", "--comm-radius", "3"), "--comm-radius has no effect on saved flights"),
    ],
)
def test_bad_input_is_a_one_line_error(
    log: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], error: str
) -> None:
    assert error in failure(capsys, *(log if each == "LOG" else each for each in arguments))
