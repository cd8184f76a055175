"""Live flights are recorded in bounded memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import equiflock as ef
from equiflock import cli
from equiflock.plotting.player.playback import Playback
from equiflock.simulation.trajectory import load_trajectories
from equiflock.viewer.flight_archive import save_flights
from equiflock.viewer.live_flight import Recording
from equiflock.viewer.setting import DiskObstacle
from tests.viewer.live_simulations import fly, live_simulation


def test_a_recording_matches_simulate() -> None:
    live = live_simulation(seed=2)
    fly(live, 30)
    found = live.to_trajectories()[0]
    expected = ef.simulate(ef.random_disk(agents=30, seed=2), ef.load("tanner"), duration=0.3, orbit=ef.Orbit())
    for name in ("times", "positions", "velocities", "accelerations", "roles"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name
    assert found.has_every_step
    assert ef.metrics.ivv(found) == ef.metrics.ivv(expected)


@pytest.mark.parametrize("steps", [7, 8, 9, 31, 100])
def test_a_long_flight_is_thinned_out_evenly_and_keeps_its_last_step(steps: int) -> None:
    flock = ef.random_disk(agents=5)
    recording = Recording(0, flock, max_bytes=0)  # the fewest frames: 8
    for step in range(steps + 1):
        recording.add(step, flock, np.full(flock.shape, float(step)))
    run = recording.to_trajectory(0.5, {})
    kept = np.round(run.times / 0.5).astype(int)
    assert len(kept) <= 9
    assert (kept[0], kept[-1]) == (0, steps)
    assert set(np.diff(kept[:-1])) <= {recording.keep_every}
    assert run.accelerations[:, 0, 0, 0].tolist() == kept[:-1].tolist()


def test_a_new_recording_starts_when_agents_or_roles_change() -> None:
    live = live_simulation()
    fly(live, 5)
    live.scatter()
    fly(live, 5)
    assert len(live.to_trajectories()[0].times) == 11
    live.add_disk(DiskObstacle(x=1.0, y=1.0, radius=0.3))
    fly(live, 4)
    run = live.to_trajectories()[0]
    assert len(run.times) == 5
    assert run.times[0] == 0.0
    assert run.config["start_time"] == pytest.approx(0.1)


@pytest.mark.slow
def test_a_saved_flight_opens_again_with_its_obstacles(tmp_path: Path) -> None:
    live = live_simulation(
        compare="tanner-dynamic",
        disks=(DiskObstacle(x=4.0, y=0.0, radius=0.3), DiskObstacle(x=-4.0, y=1.0, radius=0.5)),
    )
    fly(live, 5)
    drawn: list[tuple[int, int]] = []
    folder = save_flights(live.to_trajectories(), tmp_path / "out", 0.5, lambda *frame: drawn.append(frame))
    assert (folder / "film.mp4").stat().st_size > 1000
    assert drawn[-1][0] == drawn[-1][1] > 0
    runs = load_trajectories(folder)
    assert [run.config["controller"] for run in runs] == ["tanner", "tanner-dynamic"]
    assert runs[0].config["scenario"] == "flocking"
    again = Playback(runs)
    again.seek(5)
    shown, seen = live.make_pictures(), again.make_pictures()
    for picture, other in zip(shown, seen, strict=True):
        assert np.array_equal(picture.flock.positions, other.flock.positions)
        assert np.allclose(picture.disks, other.disks)
    cli.main(["animate", str(folder), "--out", str(tmp_path / "again.mp4"), "--dots-per-inch", "40"])
    assert (tmp_path / "again.mp4").exists()
    second = save_flights(live.to_trajectories(), tmp_path / "out", 0.5, lambda *frame: None)
    assert second != folder


def test_the_body_state_is_recorded_with_every_frame() -> None:
    loop = ef.flight(ef.random_disk(agents=5), ef.load("tanner"), body=ef.DoubleIntegrator(lag=0.1))
    moment = next(loop)
    recording = Recording(0, moment.flock, loop.body_state)
    for _ in range(4):
        recording.add(moment.step, moment.flock, moment.accelerations, moment.body_state)
        moment = next(loop)
    expected = ef.simulate(
        ef.random_disk(agents=5), ef.load("tanner"), body=ef.DoubleIntegrator(lag=0.1), duration=0.03
    )
    found = recording.to_trajectory(0.01, {})
    assert np.array_equal(found.body_state["actuators"], expected.body_state["actuators"])
