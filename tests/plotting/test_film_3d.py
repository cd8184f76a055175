"""Films in space: frames are written and not blank, and drones, trails and links are where they should be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from imageio_ffmpeg import count_frames_and_secs

import equiflock as ef
from equiflock.plotting.film_3d import SpaceScene, film_3d, get_space_positions, rotation_matrices
from tests.plotting.test_film import pixels


@pytest.fixture(scope="module")
def run() -> ef.Trajectory:
    positions = np.array([[[0.0, 0.0, 2.0], [3.0, 0.0, 2.5], [0.0, 3.0, 3.0], [20.0, 0.0, 2.0]]])
    start = ef.Flock(positions, np.full((1, 4, 3), 0.3), comm_radius=5.0)
    controller = ef.load("starling", comm_radius=5.0, time_scale=20.0)
    return ef.simulate(start, controller, body=ef.Quadrotor(), time_step=0.02, duration=0.4)


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_frames_are_written_and_show_the_drones(run: ef.Trajectory, tmp_path: Path, suffix: str) -> None:
    drawn: list[tuple[int, int]] = []
    path = film_3d(
        run,
        tmp_path / f"film{suffix}",
        frames_per_second=10,
        speed=1.0,
        dots_per_inch=120,
        on_frame=lambda *numbers: drawn.append(numbers),
    )
    assert drawn == [(n, 5) for n in range(1, 6)]
    if suffix == ".mp4":
        assert count_frames_and_secs(str(path))[0] == 5
    image = pixels(path)
    vividness = image.max(axis=-1).astype(int) - image.min(axis=-1)
    assert (vividness > 60).sum() > 20  # the drones
    assert len(np.unique(image.reshape(-1, 3), axis=0)) > 20


def test_the_scene_has_links_within_range_crosses_in_their_attitude_and_trails(run: ef.Trajectory) -> None:
    scene = SpaceScene(run, 40)
    scene.draw(0.4, 0.0)
    assert len(scene.edges._segments3d) == 3  # the fourth drone is out of range
    arms = np.asarray(scene.arms._segments3d)
    assert arms.shape == (8, 2, 3)
    middles = np.unique(arms.mean(axis=1).round(6), axis=0)
    np.testing.assert_allclose(middles, np.unique(run.positions[-1, 0].round(6), axis=0), atol=1e-5)
    assert len(scene.trails._segments3d) % 4 == 0
    assert scene.frame.statuses[0].get_text().endswith(", 2 components")
    assert scene.frame.time_note.get_text() == "t = 0.40 s"


def test_the_camera_turns(run: ef.Trajectory) -> None:
    scene = SpaceScene(run, 40)
    images = []
    for azimuth in (0.0, 30.0):
        scene.draw(0.0, azimuth)
        images.append(np.asarray(scene.frame.canvas.buffer_rgba()).copy())
    assert (images[0] != images[1]).any()


def test_rotation_matrices_turn_vectors() -> None:
    half = np.sqrt(0.5)
    turned = rotation_matrices(np.array([[0.0, 0.0, 0.0, 1.0], [half, 0.0, 0.0, half]])) @ [0.0, 0.0, 1.0]
    np.testing.assert_allclose(turned, [[0.0, 0.0, 1.0], [0.0, -1.0, 0.0]], atol=1e-12)


def test_flocks_of_the_plane_need_heights(tmp_path: Path) -> None:
    flat = ef.simulate(ef.random_disk(agents=5), ef.load("reynolds"), duration=0.02)
    with pytest.raises(ef.InputError, match="D = 3, or drones with a height"):
        film_3d(flat, tmp_path / "film.mp4")
    assert not list(tmp_path.iterdir())
    start = ef.Flock(np.array([[[0.0, 0.0], [0.8, 0.0]]]), np.zeros((1, 2, 2)))
    flying = ef.simulate(start, ef.load("reynolds"), body=ef.Quadrotor(height=2.0), duration=0.02)
    np.testing.assert_allclose(get_space_positions(flying)[0, :, 2], 2.0)
