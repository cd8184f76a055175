"""Pictures of flocks: darts along headings in the page's colours, failed agents, and a camera that fits all agents."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

import equiflock as ef
from equiflock.flock import Condition, Role
from equiflock.plotting.film_camera import compute_window_width, fit_windows
from equiflock.plotting.flock_picture import FlockPicture, View
from equiflock.plotting.palettes import PALETTES, colour_by_heading
from equiflock.scenarios.obstacle_shapes import add_obstacle

PALETTE = PALETTES["dark"]
BOX = Bbox.from_extents(0, 0, 200, 200)


def draw(run: ef.Trajectory, time: float = 0.0) -> FlockPicture:
    picture = FlockPicture(Figure(dpi=72), BOX, run, PALETTE)
    centres, widths = fit_windows([run], np.array([time]))
    picture.update(time, View(centres[0, 0], 160 / widths[0]))
    return picture


def test_darts_point_along_the_heading_in_its_colour() -> None:
    angles = np.array([0.0, 1.0, 2.5, -2.0])
    velocities = np.column_stack([np.cos(angles), np.sin(angles)])
    start = ef.Flock(np.random.default_rng(0).uniform(0, 2, (1, 4, 2)), velocities[None])
    picture = draw(ef.simulate(start, ef.load("tanner"), duration=0.01))
    axes = picture.followers._transforms[:, :2, 0]
    np.testing.assert_allclose(axes, picture.size * velocities, atol=1e-9)
    np.testing.assert_allclose(
        np.asarray(picture.followers.get_facecolor())[:, :3], colour_by_heading(PALETTE, velocities, -0.04)
    )


def test_leaders_have_rings_and_obstacles_discs() -> None:
    start = ef.make_scenario("obstacles", leaders=3).draw()
    picture = draw(ef.simulate(start, ef.load("tanner"), duration=0.01))
    assert len(picture.rings.get_offsets()) == len(picture.leaders.get_offsets()) == 3
    assert len(picture.disks.get_offsets()) == 1
    assert len(picture.posts.get_offsets()) == (start.roles[0] == Role.OBSTACLE).sum()


@pytest.mark.parametrize("kind", ["stopped", "silent", "drifting"])
def test_failed_agents_are_grey_from_their_failure_on(kind: str) -> None:
    start = ef.random_disk(1, 12, seed=3)
    failures = ef.Failures(agents=9, time=0.1, kind=kind)
    run = ef.simulate(start, ef.load("tanner"), duration=0.2, failures=failures)
    failed = run.flock(-1).conditions[0] != Condition.WORKING
    assert failed.sum() == 9
    before, after = draw(run, 0.09), draw(run, 0.1)
    assert len(before.followers.get_offsets()) == 12
    grey = np.array(to_rgb(PALETTE.failed))
    if kind == "drifting":
        colours = np.asarray(after.followers.get_facecolor())[:, :3]
        np.testing.assert_allclose(colours[failed], np.tile(grey - 0.04, (9, 1)))
    else:
        artist = after.stopped if kind == "stopped" else after.silent
        drawn = artist.get_facecolor() if kind == "stopped" else artist.get_edgecolor()
        np.testing.assert_allclose(np.asarray(drawn)[0, :3], grey)
        assert (len(artist.get_offsets()), len(after.followers.get_offsets())) == (9, 3)


def test_groups_have_their_own_colours() -> None:
    start = ef.make_scenario("merging", agents=30).draw()
    picture = draw(ef.simulate(start, ef.load("tanner"), duration=0.01))
    colours = np.unique(np.asarray(picture.followers.get_facecolor())[:, :3].round(6), axis=0)
    expected = np.array([PALETTE.group_colour(place) - 0.04 for place in range(len(np.unique(start.groups)))])
    np.testing.assert_allclose(colours, np.unique(np.clip(expected, 0, 1).round(6), axis=0))


def test_between_saved_frames_agents_move_along_a_line_and_trails_end_at_them() -> None:
    start = ef.random_disk(1, 10, seed=1)
    run = ef.simulate(start, ef.load("tanner"), duration=0.4, keep_every=20)
    picture = draw(run, 0.3)
    places = picture.to_pixels((run.positions[1, 0] + run.positions[2, 0]) / 2)
    np.testing.assert_allclose(picture.followers.get_offsets(), places, atol=1e-6)
    ends = np.asarray(picture.trails.get_offsets())[-10:] + picture.trails._transforms[-10:, :2, 0]
    np.testing.assert_allclose(ends, places, atol=1e-6)
    opacities = np.asarray(picture.trails.get_edgecolor())[::10, 3]
    assert (np.diff(opacities) > 0).all()
    assert opacities[-1] == pytest.approx(PALETTE.trail)


def test_the_window_fits_all_agents_of_all_panels_at_every_time() -> None:
    start = ef.random_disk(1, 50, seed=2)
    runs = [ef.simulate(start, ef.load(name), duration=1.0) for name in ("tanner", "tanner-dynamic")]
    times = np.arange(0.0, 1.0, 0.033)
    for smoothing in (0, 8):
        centres, widths = fit_windows(runs, times, smoothing)
        for run, centre in zip(runs, centres, strict=True):
            for coordinate in (0, 1):
                paths = run.positions[:, 0, :, coordinate]
                places = np.array([np.interp(times, run.times, path) for path in paths.T])
                assert (np.abs(places - centre[:, coordinate]) <= widths / 2 + 1e-9).all()
    assert compute_window_width(runs) >= fit_windows(runs, run.times)[1].max() - 1e-9


def test_the_window_ignores_obstacles_that_are_far_away() -> None:
    start = ef.random_disk(1, 20, seed=2)
    widths = {}
    for distance in (6.0, 60.0):
        posts = np.array([[0.2, 0.0], [0.0, 0.2], [-0.2, 0.0]]) + np.array([distance, 0.0])
        run = ef.simulate(add_obstacle(start, posts), ef.load("tanner"), duration=0.01)
        widths[distance] = fit_windows([run], run.times)[1][0]
    alone = ef.simulate(start, ef.load("tanner"), duration=0.01)
    assert widths[6.0] > widths[60.0] == fit_windows([alone], alone.times)[1][0]
