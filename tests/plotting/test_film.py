"""Films: frame counts, formats, colours, the camera, and no incomplete files."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
from imageio_ffmpeg import count_frames_and_secs, read_frames
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from numpy.typing import NDArray
from PIL import Image

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.flock import Role
from equiflock.plotting.film import film
from equiflock.plotting.film_frame import FilmFrame
from equiflock.plotting.palettes import PALETTES

SMALL = {"frames_per_second": 5, "dots_per_inch": 50}


@pytest.fixture(scope="module")
def run() -> ef.Trajectory:
    start = ef.random_disk(1, 40, seed=3)
    roles = start.roles.copy()
    roles[0, :3] = Role.LEADER
    velocities = start.velocities.copy()
    roles[0, 3:6], velocities[0, 3:6] = Role.OBSTACLE, 0.0
    return ef.simulate(ef.Flock(start.positions, velocities, roles), ef.load("tanner"), duration=0.4)


def pixels(path: Path) -> NDArray[np.uint8]:
    """Return the first frame of a film, (height, width, 3)."""
    if path.suffix == ".webp":  # ffmpeg does not read animated WebP
        with Image.open(path) as film:
            return np.asarray(film.convert("RGB"))
    frames = read_frames(str(path))
    width, height = next(frames)["size"]
    return np.frombuffer(next(frames), np.uint8).reshape(height, width, 3)


def near(image: NDArray[np.uint8], colour: str) -> int:
    """Return the number of pixels of about a colour."""
    return int((np.abs(image / 255 - np.array(to_rgb(colour))).max(axis=-1) < 0.12).sum())


@pytest.mark.slow
def test_the_duration_of_a_film_is_that_of_the_flight_over_its_speed(run: ef.Trajectory, tmp_path: Path) -> None:
    drawn = []
    path = film(
        [run],
        tmp_path / "film.mp4",
        frames_per_second=10,
        speed=0.2,
        dots_per_inch=50,
        on_frame=lambda n, total: drawn.append((n, total)),
    )
    frames, seconds = count_frames_and_secs(str(path))
    assert frames == 21
    assert seconds == pytest.approx(2.1, abs=0.06)
    assert drawn[-1] == (21, 21)
    assert [p.name for p in tmp_path.iterdir()] == ["film.mp4"]


@pytest.mark.parametrize("suffix", [".mp4", ".gif", ".webp"])
def test_every_format_has_all_frames_and_the_colours_of_the_page(
    run: ef.Trajectory, tmp_path: Path, suffix: str
) -> None:
    path = film([run], tmp_path / f"film{suffix}", frames_per_second=5)
    if suffix == ".mp4":
        assert count_frames_and_secs(str(path))[0] == 5
    else:
        with Image.open(path) as pictures:
            assert pictures.n_frames == 5  # type: ignore[attr-defined]
    image, palette = pixels(path), PALETTES["dark"]
    for colour in (palette.background, palette.ink, palette.obstacle, palette.series[0], palette.hairline):
        assert near(image, colour) > 20, colour


def test_the_light_theme_is_light(run: ef.Trajectory, tmp_path: Path) -> None:
    image = pixels(film([run], tmp_path / "film.gif", theme="light", **SMALL))
    assert near(image, PALETTES["light"].background) > image.shape[0] * image.shape[1] / 2
    with pytest.raises(InputError, match="theme must be one of 'dark', 'light'; got 'white'"):
        film([run], tmp_path / "film.gif", theme="white")


def test_several_runs_are_side_by_side_and_more_than_three_in_rows(run: ef.Trajectory, tmp_path: Path) -> None:
    shapes = [
        pixels(film([run] * n, tmp_path / f"{n}.mp4", frames_per_second=1, dots_per_inch=50)).shape for n in (1, 2, 4)
    ]
    (_, one, _), (two_height, two, _), (four_height, four, _) = shapes
    assert (one, two, four) == (240, 480, 480)
    assert four_height > two_height + 240


def test_text_has_twelve_pixels_in_a_column_of_text(
    run: ef.Trajectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heights: list[float] = []
    finish = FilmFrame.finish

    def measured(frame: FilmFrame, pictures: object) -> None:
        shown = min(1.0, 840 / frame.layout.width)
        # The figure has 72 dots per inch, so that points are pixels.
        heights.extend(float(text.get_fontsize()) * shown for text in frame.figure.findobj(Text))
        finish(frame, pictures)  # type: ignore[arg-type]

    monkeypatch.setattr(FilmFrame, "finish", measured)
    for panels, dots_per_inch in ((1, 20), (3, 110)):
        film([run] * panels, tmp_path / "film.gif", frames_per_second=1, dots_per_inch=dots_per_inch)
    assert len(heights) > 10
    assert min(heights) >= 12 - 1e-9


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


def test_flocks_of_one_agent_of_many_and_in_space_are_filmed(tmp_path: Path) -> None:
    one = ef.Flock(np.zeros((1, 1, 2)), np.ones((1, 1, 2)))
    starts = {"one": one, "space": ef.random_disk(1, 20, dimensions=3)}
    starts["many"] = ef.random_disk(1, 6000, radius_rule="constant-density")
    for name, start in starts.items():
        run = ef.simulate(start, ef.load("tanner"), duration=0.02)
        image = pixels(film([run], tmp_path / f"{name}.gif", frames_per_second=5, dots_per_inch=60))
        assert (image.max(axis=-1).astype(int) - image.min(axis=-1) > 60).sum() > 20, name  # coloured darts


def test_unknown_suffixes_are_refused(run: ef.Trajectory, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must end in .mp4, .webp or .gif; got 'film.mov'"):
        film([run], tmp_path / "film.mov")


def test_a_film_ends_with_the_last_flight_and_shows_its_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = ef.random_disk(1, 20)
    run = ef.simulate(start, ef.load("tanner"), duration=5.0, ending=lambda times, flock, flying: times >= 0.21)
    shown = []
    draw = FilmFrame.draw

    def noted(frame: FilmFrame, time: float, *more: object) -> None:
        draw(frame, time, *more)  # type: ignore[arg-type]
        shown.append(frame.statuses[0].get_text())

    monkeypatch.setattr(FilmFrame, "draw", noted)
    film([run], tmp_path / "film.gif", frames_per_second=10, speed=0.2)
    assert all("component" in text for text in shown[:11])
    assert shown[11:] == ["ended after 0.21 s"]  # though 0.21 s fall between two frames
