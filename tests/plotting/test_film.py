"""Films: frame counts, colours, and no incomplete files."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
from imageio_ffmpeg import count_frames_and_secs, read_frames
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from numpy.typing import NDArray

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.flock import Condition, Role
from equiflock.plotting.film import FlockPanel, film
from equiflock.plotting.style import FAILED_COLOUR


@pytest.fixture(scope="module")
def run() -> ef.Trajectory:
    start = ef.random_disk(1, 40, seed=3)
    roles = start.roles.copy()
    roles[0, :3] = Role.LEADER
    velocities = start.velocities.copy()
    roles[0, 3:6], velocities[0, 3:6] = Role.OBSTACLE, 0.0
    return ef.simulate(ef.Flock(start.positions, velocities, roles), ef.load("tanner"), duration=0.4)


def pixels(path: Path) -> NDArray[np.uint8]:
    frames = read_frames(str(path))
    width, height = next(frames)["size"]
    return np.frombuffer(next(frames), np.uint8).reshape(height, width, 3)


def near(image: NDArray[np.uint8], colour: tuple[int, int, int]) -> int:
    return int((np.abs(image.astype(int) - colour).max(axis=-1) < 40).sum())


@pytest.mark.slow
def test_the_duration_of_a_film_is_that_of_the_flight_over_its_speed(run: ef.Trajectory, tmp_path: Path) -> None:
    drawn = []
    path = film(
        [run],
        tmp_path / "film.mp4",
        frames_per_second=10,
        speed=0.2,
        on_frame=lambda n, total: drawn.append((n, total)),
    )
    frames, seconds = count_frames_and_secs(str(path))
    assert frames == 21
    assert seconds == pytest.approx(2.1, abs=0.06)
    assert drawn[-1] == (21, 21)
    assert [p.name for p in tmp_path.iterdir()] == ["film.mp4"]


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_agents_edges_arrows_leaders_and_obstacles_have_their_colours(
    run: ef.Trajectory, tmp_path: Path, suffix: str
) -> None:
    image = pixels(film([run], tmp_path / f"film{suffix}", frames_per_second=5))
    for colour in ((238, 127, 14), (26, 152, 80), (123, 63, 160), (31, 78, 156), (169, 203, 232)):
        assert near(image, colour) > 20, colour


def test_failed_agents_are_grey(tmp_path: Path) -> None:
    start = ef.random_disk(1, 12, seed=3)
    run = ef.simulate(start, ef.load("tanner"), duration=0.2, failures=ef.Failures(agents=9, time=0.1))
    panel = FlockPanel(Figure().add_subplot(), run, "", 5.0)
    grey = to_rgba(FAILED_COLOUR)
    for time, failed in ((0.0, 0), (0.09, 0), (0.1, 9), (0.2, 9)):
        panel.draw(time)
        drawn = (np.asarray(panel.dots.get_facecolor()) == grey).all(axis=1)
        assert drawn.sum() == failed
        assert (drawn == (run.flock(round(time * 100)).conditions[0] != Condition.WORKING)).all()
    legend = panel.axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["follower", "failed"]
    assert film([run], tmp_path / "film.gif", frames_per_second=5, dots_per_inch=40).exists()


def test_several_runs_are_side_by_side(run: ef.Trajectory, tmp_path: Path) -> None:
    one = pixels(film([run], tmp_path / "one.mp4", frames_per_second=2, dots_per_inch=50))
    two = pixels(film([run, run], tmp_path / "two.mp4", frames_per_second=2, dots_per_inch=50))
    assert two.shape[1] == 2 * one.shape[1]


def test_an_interrupted_film_keeps_the_old_file(run: ef.Trajectory, tmp_path: Path) -> None:
    def interrupt(*_: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "film.mp4").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        film([run], tmp_path / "film.mp4", on_frame=interrupt)
    assert (tmp_path / "film.mp4").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(("message", "number"), [("No space left on device", errno.ENOSPC), ("broken", errno.EIO)])
def test_an_incomplete_film_is_not_written(
    run: ef.Trajectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str, number: int
) -> None:
    fake = tmp_path / "ffmpeg"
    fake.write_text(
        f'#!/bin/sh\nfor last; do :; done\necho half > "$last"\ncat > /dev/null\necho "{message}" >&2\nexit 1\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(fake))
    with pytest.raises(OSError, match=message) as caught:
        film([run], tmp_path / "out" / "film.mp4", frames_per_second=2)
    assert caught.value.errno == number
    assert list((tmp_path / "out").iterdir()) == []


def test_many_agents_are_visible(tmp_path: Path) -> None:
    run = ef.simulate(ef.random_disk(1, 6000, radius_rule="constant-density"), ef.load("tanner"), duration=0.01)
    image = pixels(film([run], tmp_path / "film.mp4", frames_per_second=1)).astype(int)
    assert (image[..., 0] - image[..., 2] > 60).sum() > 1000  # orange, if pale


def test_flocks_in_three_dimensions_are_seen_from_above(tmp_path: Path) -> None:
    run = ef.simulate(ef.random_disk(1, 20, dimensions=3), ef.load("tanner"), duration=0.05)
    assert film([run], tmp_path / "film.gif", frames_per_second=5, dots_per_inch=40).exists()


def test_unknown_suffixes_are_refused(run: ef.Trajectory, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in .mp4 or .gif; got 'film.mov'"):
        film([run], tmp_path / "film.mov")


def test_a_film_ends_with_the_last_flight_and_shows_its_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = ef.random_disk(1, 20)
    run = ef.simulate(start, ef.load("tanner"), duration=5.0, ending=lambda times, flock, flying: times >= 0.21)
    outcome_label = []
    draw = FlockPanel.draw

    def noted(panel: FlockPanel, time: float) -> None:
        draw(panel, time)
        outcome_label.append(panel.outcome_label.get_text())

    monkeypatch.setattr(FlockPanel, "draw", noted)
    film([run], tmp_path / "film.mp4", frames_per_second=10, speed=0.2)
    assert outcome_label == [""] * 11 + ["the ending's condition was met"]  # though 0.21 s fall between two frames


def test_followers_of_several_groups_have_their_own_colours(tmp_path: Path) -> None:
    scenario = ef.make_scenario("merging", agents=30)
    run = ef.simulate(scenario.draw(), ef.load("tanner"), duration=0.01)
    image = pixels(film([run], tmp_path / "film.mp4", frames_per_second=1))
    for colour in ((238, 127, 14), (0, 114, 178)):
        assert near(image, colour) > 20, colour
