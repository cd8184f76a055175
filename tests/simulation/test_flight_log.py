"""A flight log is read onto a common grid and written again; a wrong one is an error with its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime import memory
from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import compute_file_checksum
from equiflock.flock import Condition, Role
from equiflock.simulation import metrics
from equiflock.simulation.trajectory import STATIC_ARRAYS

Write = Callable[[str], Path]
ARRAYS = ("times", "positions", "velocities", "accelerations", "conditions", *STATIC_ARRAYS, "steps", "outcomes")
GOOD = "time,agent,x,y\n0,a,0,0\n0,b,1,0\n1,a,0,1\n1,b,1,1\n2,a,0,2\n2,b,1,2\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_log(text: str) -> Path:
        path = tmp_path / "flight.csv"
        path.write_text(text)
        return path

    return write_log


def fly(dimensions: int = 2, duration: float = 0.2) -> ef.Trajectory:
    """A flight in which agents fail, with a leader."""
    start = ef.random_disk(1, 12, dimensions=dimensions, seed=3)
    roles = np.where(np.arange(12) == 5, Role.LEADER, Role.FOLLOWER)[None]
    return ef.simulate(
        ef.Flock(start.positions, start.velocities, roles),
        ef.load("tanner-dynamic"),
        duration=duration,
        failures=ef.Failures("stopped", agents=2, time=0.1),
    )


def line_up(times: np.ndarray, names: list[str], offset: float = 0.0) -> str:  # type: ignore[type-arg]
    """A log of agents on parallel lines, x = index and y = 2 t; each logs `offset` later than the one before."""
    rows = [
        f"{t + k * offset!r},{name},{k},{2.0 * (t + k * offset)!r}"
        for t in times.tolist()
        for k, name in enumerate(names)
    ]
    return "time,agent,x,y\n" + "\n".join(rows) + "\n"


@pytest.mark.parametrize("dimensions", [2, 3])
def test_a_flight_that_is_written_and_read_again_has_the_same_bits(tmp_path: Path, dimensions: int) -> None:
    run = fly(dimensions)
    assert run.conditions.any()
    back = ef.Trajectory.from_csv(run.to_csv(tmp_path / "flight.csv"), comm_radius=run.comm_radius)
    for name in ARRAYS:
        assert (getattr(back, name) == getattr(run, name)).all(), name
        assert getattr(back, name).dtype == getattr(run, name).dtype
    assert (back.time_step, back.comm_radius, back.outcome) == (run.time_step, run.comm_radius, run.outcome)
    assert [path.name for path in tmp_path.iterdir()] == ["flight.csv"]
    for metric in (metrics.ivv, metrics.iman, metrics.iman_realised, metrics.residual_acceleration):
        assert metric(back) == metric(run)
    assert (metrics.component_count(back) == metrics.component_count(run)).all()


def test_a_log_can_be_saved_and_keeps_its_source_and_the_names_of_its_agents(write: Write, tmp_path: Path) -> None:
    path = write("time,agent,x,y\n0,10,0,0\n0,9,1,0\n1,10,0,1\n1,9,1,1\n")
    log = ef.Trajectory.load(ef.Trajectory.from_csv(path, comm_radius=3.0).save(tmp_path / "flight.zarr"))
    assert (log.config["source"], log.config["checksum"]) == ("flight.csv", compute_file_checksum(path))
    assert log.config["agents"] == [9, 10]  # integers by value
    assert log.positions[0, 0, :, 0].tolist() == [1.0, 0.0]
    assert log.to_csv(tmp_path / "again.csv").read_text().splitlines()[1].startswith("0.0,9,1.0,0.0,")
    assert log.outcome == (ef.Outcome.TIME_UP,) and log.steps.tolist() == [1]


def test_only_the_steps_that_a_flock_flew_are_written(tmp_path: Path) -> None:
    run = ef.simulate(ef.random_disk(1, 5), ef.load("tanner"), duration=0.1, ending=lambda times, *_: times > 0.025)
    assert run.steps.tolist() == [3] and len(run.times) == 11
    back = ef.Trajectory.from_csv(run.to_csv(tmp_path / "flight.csv"), comm_radius=1.0)
    assert (back.positions == run.positions[:4]).all()


def test_agents_with_clocks_of_their_own_are_interpolated_at_common_times(write: Write) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for agent in range(4):
        times = 5.0 + 0.1 * agent + np.cumsum(rng.uniform(0.08, 0.12, 100))
        # Positions are linear in time, velocities too, so that interpolation is exact.
        rows += [f"{t!r},r{agent},{agent},{2 * t!r},{t!r},{-t!r}" for t in times.tolist()]
    log = ef.Trajectory.from_csv(write("Time, Robot, X, Y, VX, VY\n" + "\n".join(rows)), comm_radius=1.0)
    assert log.config["agents"] == ["r0", "r1", "r2", "r3"]
    assert 0.08 <= log.time_step <= 0.12
    np.testing.assert_allclose(np.diff(log.times), log.time_step, rtol=1e-9)
    clock = log.config["start_time"] + log.times
    firsts, lasts = ([float(row.split(",")[0]) for row in rows[k::100]] for k in (0, 99))
    assert clock[0] == max(firsts)
    assert 0.0 <= min(lasts) - clock[-1] < log.time_step
    np.testing.assert_allclose(log.positions[:, 0, :, 1], 2.0 * clock[:, None] * np.ones(4), rtol=1e-12)
    np.testing.assert_allclose(log.velocities[:, 0, 2], np.stack([clock, -clock], axis=1), rtol=1e-12)
    np.testing.assert_allclose(log.accelerations, np.diff(log.velocities, axis=0) / log.time_step)
    assert log.config["accelerations"] == "realised"


@pytest.mark.parametrize(
    ("time_step", "layout"), [(0.01, "{!r}"), (0.05, "{!r}"), (0.05, "{:.9f}"), (0.05, "{:.6f}"), (1 / 30, "{!r}")]
)
def test_a_log_with_unix_times_is_the_same_flight(tmp_path: Path, time_step: float, layout: str) -> None:
    start = ef.random_disk(1, 6, seed=3)
    run = ef.simulate(start, ef.load("tanner-dynamic"), time_step=time_step, duration=40 * time_step)
    header, *rows = run.to_csv(tmp_path / "flight.csv").read_text().splitlines()
    fields = [row.split(",", 1) for row in rows]
    shifted = [f"{layout.format(float(time) + 1.7e9)},{rest}" for time, rest in fields]
    (tmp_path / "unix.csv").write_text("\n".join([header, *shifted]) + "\n")
    log, unix = (ef.Trajectory.from_csv(tmp_path / name, comm_radius=1.0) for name in ("flight.csv", "unix.csv"))
    assert log.time_step == time_step
    assert unix.time_step == (time_step if time_step != 1 / 30 else pytest.approx(time_step, abs=1e-8))
    assert (unix.config["start_time"], len(unix.times)) == (1.7e9, len(run.times))
    for name in ("positions", "velocities", "accelerations"):
        np.testing.assert_allclose(getattr(unix, name), getattr(run, name), rtol=0, atol=1e-6)


def test_errors_name_the_times_of_the_file(write: Write) -> None:
    path = write("time,agent,x,y\n1700000000.5,a,0,0\n1700000000.25,a,0,0\n")
    with pytest.raises(InputError, match=r"agent 'a' has 1700000000\.25 after 1700000000\.5"):
        ef.Trajectory.from_csv(path, comm_radius=1.0)


def test_missing_velocities_are_differences_of_positions(write: Write) -> None:
    times = 0.1 * np.arange(11)
    rows = "".join(f"{t!r},0,{t**2!r},1\n" for t in times.tolist())
    log = ef.Trajectory.from_csv(write("t,id,x,y\n" + rows), comm_radius=1.0)
    # Central differences are exact for a parabola, except at both ends.
    np.testing.assert_allclose(log.velocities[1:-1, 0, 0, 0], 2.0 * times[1:-1], rtol=1e-9)
    assert not log.velocities[:, 0, 0, 1].any()
    np.testing.assert_allclose(log.accelerations[1:-1, 0, 0, 0], 2.0, rtol=1e-6)
    assert log.config["velocities"] == "differences"


def test_accelerations_are_those_of_the_last_sample(write: Write) -> None:
    rows = "0,0,0,0,1,0\n1,0,0,0,2,0\n2,0,0,0,,\n"
    log = ef.Trajectory.from_csv(write("time,agent,x,y,ax,ay\n" + rows), comm_radius=1.0, time_step=0.5)
    assert log.accelerations[:, 0, 0, 0].tolist() == [1.0, 1.0, 2.0, 2.0]
    assert log.config["accelerations"] == "logged"


def test_the_grid_has_the_given_step_and_a_gap_within_the_limit_is_interpolated(write: Write) -> None:
    path = write(line_up(np.array([0.0, 1.0, 2.0, 7.0, 8.0]), ["a", "b"]))
    log = ef.Trajectory.from_csv(path, comm_radius=1.0)  # a gap of exactly 5 steps
    assert log.positions[:, 0, 1, 1].tolist() == [2.0 * t for t in range(9)]
    halved = ef.Trajectory.from_csv(path, comm_radius=1.0, time_step=0.5, max_gap=5.0)
    assert halved.times.tolist() == [0.5 * k for k in range(17)]
    with pytest.raises(InputError, match=r"line 8: agent 'a' has no sample from 2 s to 7 s.* max_gap = 4 s"):
        ef.Trajectory.from_csv(path, comm_radius=1.0, max_gap=4.0)


def test_a_gap_outside_of_the_common_times_does_not_matter(write: Write) -> None:
    text = line_up(np.arange(10.0), ["a", "b"]) + "90,a,0,180\n"
    log = ef.Trajectory.from_csv(write(text), comm_radius=1.0)
    assert (log.config["duration"], log.config["log_duration"]) == (9.0, 90.0)


def test_roles_and_conditions_are_words(write: Write) -> None:
    rows = "0,a,0,0,Leader,working\n0,b,1,0,,\n1,a,0,0,Leader,silent\n1,b,1,0,,\n".replace(
        ",,\n", ",obstacle,working\n"
    )
    log = ef.Trajectory.from_csv(write("time,agent,x,y,role,condition\n" + rows), comm_radius=1.0)
    assert log.roles.tolist() == [[Role.LEADER, Role.OBSTACLE]]
    assert log.conditions[:, 0].tolist() == [[Condition.WORKING, 0], [Condition.SILENT, 0]]
    assert log.obstacles.tolist() == [[-1, 0]]


HEADER = "time,agent,x,y"
BAD = [
    ("", "must have the columns time, agent, x, y; its header lacks time, agent, x, y"),
    ("time,agent,x\n0,a,0\n", "must have the columns time, agent, x, y; its header lacks y"),
    (f"{HEADER},vx\n0,a,0,0,0\n", "must have the columns time, agent, x, y, vx, vy; its header lacks vy"),
    (f"{HEADER},vx,vy,vz\n0,a,0,0,0,0,0\n", "columns time, agent, x, y, z, vx, vy, vz; its header lacks z"),
    (f"t,{HEADER}\n0,0,a,0,0\n", "must have one column for 'time'; got 2"),
    (f"{HEADER}\n", "must have rows below its header"),
    (f"{GOOD}3,a,left,3\n", "line 8: x must be a number; got 'left'"),
    (f"{GOOD}3,a,,3\n", "line 8: x must be a number; got ''"),
    (f"{GOOD}\n3,a,0,nan\n", "line 9: y must be a finite number of at most 1e+20; got nan"),
    (f"{GOOD}3,a,0,-2e20\n", "line 8: y must be a finite number of at most 1e+20; got -2e+20"),
    (f"{GOOD}inf,a,0,0\n", "line 8: time must be a finite number of at most 1e+20; got inf"),
    (f"{GOOD}3,,0,3\n", "line 8: agent must be an integer or a name; got ''"),
    (f"{GOOD}3,a,0\n", "line 8: must have 4 fields, as the header; got 3"),
    (f"{GOOD}3,a,0,3,4\n", "line 8: must have 4 fields, as the header; got 5"),
    (f"{GOOD}1.5,a,0,3\n", "line 8: times of an agent must increase; agent 'a' has 1.5 after 2"),
    (f"{GOOD}2,b,0,3\n", "line 8: times of an agent must increase; agent 'b' has 2 twice"),
    (f"{GOOD}2,c,0,3\n", "line 8: agent 'c' has a single sample, and needs two: leave it out"),
    (f"{GOOD}3,c,0,3\n4,c,0,4\n", "agent 'a' ends at 2 s, before agent 'c' begins at 3 s"),
    (
        f"{GOOD}1.5,c,0,3\n4,c,0,4\n",
        "at least one time step, 1 s; got 0.5 s, from 1.5 s (agent 'c') to 2 s (agent 'a')",
    ),
    (
        f"{GOOD}9,a,0,2\n9,b,1,2\n",
        "line 8: agent 'a' has no sample from 2 s to 9 s, and may miss at most max_gap = 5 s",
    ),
    (f"{HEADER},ax,ay\n0,a,0,0,,\n1,a,0,0,,\n", "line 2: ax must be a finite number of at most 1.79769e+308; got nan"),
    (f"{HEADER},role\n0,a,0,0,pilot\n", "line 2: role must be one of follower, leader, obstacle; got 'pilot'"),
    (
        f"{HEADER},role\n0,a,0,0,leader\n1,a,0,0,follower\n",
        "line 3: an agent must keep its role; agent 'a' has another",
    ),
    (f"{HEADER},role\n0,a,0,0,obstacle\n1,a,0,0,obstacle\n", "no flock: every flock must have a leader or follower"),
    (f"{HEADER}\n0,a,-1e20,0\n1e-250,a,1e20,0\n", "has a frame that is no flock: velocities must be finite"),
    (f"{HEADER},vx,vy\n0,a,0,0,-1e20,0\n1e-300,a,0,0,1e20,0\n", "finite accelerations; got differences beyond float64"),
    (f"{GOOD}\x00,a,0,0\n", "line 8: time must be a number; got '\\x00'"),
    (f'{GOOD}3,"a,0,0\n' + "x" * 200_000, "line 9: field larger than field limit"),
]


@pytest.mark.parametrize(("text", "error"), BAD, ids=[error for _, error in BAD])
def test_a_wrong_log_is_a_one_line_error(write: Write, text: str, error: str) -> None:
    path = write(text)
    with pytest.raises(InputError) as caught:
        ef.Trajectory.from_csv(path, comm_radius=1.0)
    assert str(path) in str(caught.value) and error in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no flight log at .*nowhere\.csv: there is no such file"):
        ef.Trajectory.from_csv(tmp_path / "nowhere.csv", comm_radius=1.0)
    (tmp_path / "picture.csv").write_bytes(b"\x89PNG\r\n\xff\xfe")
    with pytest.raises(InputError, match="must be text in UTF-8"):
        ef.Trajectory.from_csv(tmp_path / "picture.csv", comm_radius=1.0)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"comm_radius": 0.0}, "comm_radius must be a finite number above 0; got 0.0"),
        ({"comm_radius": 1.0, "time_step": -1.0}, "time_step must be a finite number above 0; got -1.0"),
        ({"comm_radius": 1.0, "max_gap": np.nan}, "max_gap must be a finite number above 0; got nan"),
        ({"comm_radius": 1.0, "time_step": 1e-30}, "frames of .* needs .* GiB, more than this machine has"),
    ],
)
def test_a_wrong_argument_is_a_one_line_error(write: Write, options: dict, error: str) -> None:
    with pytest.raises(InputError, match=error):
        ef.Trajectory.from_csv(write(GOOD), **{"max_gap": 100.0, **options})


def test_a_log_beyond_the_memory_is_refused_before_it_is_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "read_physical_memory", lambda: 100.0)
    with pytest.raises(InputError, match=r"reading .*flight\.csv needs .* log fewer samples per second"):
        ef.Trajectory.from_csv(write(GOOD), comm_radius=1.0)


def test_several_flocks_and_an_existing_file_are_not_written(tmp_path: Path) -> None:
    run = ef.simulate(ef.random_disk(2, 5), ef.load("tanner"), duration=0.02)
    with pytest.raises(InputError, match=r"a flight log has one flock; got 2: choose one, such as run\[0\]"):
        run.to_csv(tmp_path / "flight.csv")
    run[1].to_csv(tmp_path / "flight.csv")
    with pytest.raises(InputError, match="already exists"):
        run[1].to_csv(tmp_path / "flight.csv")
