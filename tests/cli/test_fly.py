"""`equiflock fly`: what it prints, saves and films, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

import equiflock as ef
from equiflock.evaluation import robot_fit
from tests.cli.commands import failure, run

FEW = "--drones", "6", "--duration", "0.4"
SCALED = *FEW, "--time-scale", "20"


def read_table(printed: str) -> list[str]:
    """Return the printed lines without those of the speed."""
    return [line for line in printed.splitlines() if "real-time" not in line]


def test_fly_prints_the_margins_of_the_flight(capsys: pytest.CaptureFixture[str]) -> None:
    run("fly", *SCALED, "--flocks", "2", "--packet-loss", "0.2", "--delay", "1", "--downwash")
    printed = capsys.readouterr().out
    assert "2 x 6 drones in 3-D, R = 5 m, 50 Hz, 0.4 s" in printed
    for text in ("largest tilt", "thrust margin", "smallest separation", "collisions", "crashes", "settling time"):
        assert text in printed
    for text in ("connected at the end", "of 2", "real-time factor", "real-time factor times 2 flocks", "downwash"):
        assert text in printed
    assert "controller: starling:comm_radius=5.0:time_scale=20.0" in printed
    assert "chosen by test flights" not in printed


def test_flocks_that_do_not_settle_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    run("fly", *SCALED, "--duration", "0.06")
    captured = capsys.readouterr()
    assert "never" in captured.out
    assert "not settled: 1 of 1 flocks; try a larger --time-scale (20 now)" in captured.err


def test_the_same_seed_prints_the_same_table(capsys: pytest.CaptureFixture[str]) -> None:
    tables = []
    for seed in ("1", "1", "2"):
        run("fly", *SCALED, "--seed", seed)
        tables.append(read_table(capsys.readouterr().out))
    assert tables[0] == tables[1] != tables[2]


def test_the_time_scale_is_chosen_and_repeated_without_the_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("CANDIDATES", 2), ("FINALISTS", 1), ("SEARCH_FLOCKS", 1), ("BISECTIONS", 1)):
        monkeypatch.setattr(robot_fit, name, value)
    monkeypatch.setattr(robot_fit, "LONG_FACTOR", 1)
    run("fly", *FEW)
    fitted = capsys.readouterr().out
    option = fitted.split("test flights; ")[1].split()[:2]
    assert option[0] == "--time-scale"
    run("fly", *FEW, *option)
    repeated = read_table(capsys.readouterr().out)
    assert repeated == [line for line in read_table(fitted) if "chosen by test flights" not in line]


def test_a_flight_is_saved_and_filmed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved, film = tmp_path / "run.zarr", tmp_path / "film.gif"
    run(
        "fly",
        *SCALED,
        *("--save", str(saved), "--film", str(film), "--dots-per-inch", "40", "--frames-per-second", "5"),
    )
    trajectory = ef.Trajectory.load(saved)
    assert trajectory.positions.shape == (11, 1, 6, 3) and "quaternion" in trajectory.body_state
    assert trajectory.config["controller"] == "starling:comm_radius=5.0:time_scale=20.0"
    assert film.read_bytes()[:4] == b"GIF8"
    printed = capsys.readouterr().out.replace("\n", "")
    assert f"saved: {saved}" in printed and f"film: {film}" in printed


def test_help_has_the_options_of_drones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("fly", "--help")
    printed = capsys.readouterr().out
    assert ended.value.code == 0
    for option in ("drones", "flocks", "dimensions", "body", "packet-loss", "delay", "downwash", "time-scale", "film"):
        assert f"--{option}" in printed
    assert "100" in printed and "quadrotor" in printed


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-acceleration", "0"), "max_acceleration must be a finite number above 0"),
        (
            ("--max-acceleration", "30"),
            "max_acceleration must be at most 4.57 m/s^2, what tilt and thrust allow; got 30",
        ),
        (("--max-tilt", "0"), "max_tilt must be above 0"),
        (("--height", "0"), "height must be a finite number above 0"),
        (("--keep-every", "0"), "keep_every must be"),
        (("--delay", "99999"), "delay must be at most 1,000 steps"),
        (("--min-separation", "5"), "found no connected start of 6 drones at least 5 m apart"),
        (("--time-scale", "0"), "time_scale must be a finite number above 0"),
        (("--controller", "starling:time_scale=9"), "is not scaled to metres"),
        (("--controller", "starling:comm_radius=1:time_scale=9"), "must be that of the drones, 5 m"),
        (("--min-separation", "0.01"), "min_separation must be at least 0.3 m; got 0.01"),
        (("--film", "film.txt"), "must end in .mp4, .webp or .gif"),
        (("--duration", "0"), "duration must be"),
    ],
)
def test_bad_input_exits_with_2_and_one_line(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    line = failure(capsys, "fly", "--drones", "6", *options)
    assert message in line and line.count("\n") == 1
