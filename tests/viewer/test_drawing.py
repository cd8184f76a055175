"""Unit tests of the page's camera and plots, run in the browser."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

import equiflock as ef
from equiflock.plotting.player.frames import FlockPicture, Links, build_links, pack_frame

# Four agents in the corners of a square, the last a leader: rows of edges are receiver and sender.
SQUARE = ef.Flock([[[-1, 1], [1, 1], [1, -1], [-1, -1]]], np.zeros((1, 4, 2)), [[0, 0, 0, ef.Role.LEADER]])
USED, LOST = [[0, 1], [1, 0], [1, 2], [0, 3]], [[2, 1], [2, 3]]


@pytest.mark.parametrize("by", ["WebGL", "processor"])
def test_half_a_line_is_drawn_where_messages_arrive_in_one_direction(run: Callable[..., Any], by: str) -> None:
    links = Links(*(np.array(edges)[np.argsort(np.array(edges)[:, 0], kind="stable")] for edges in (USED, LOST)))
    frame = pack_frame(0, 0.0, [FlockPicture(SQUARE, None, np.empty((0, 3)), links)])
    seen = run(
        "player/scene",
        """
        const { readFrame } = await import("/player/frames.js");
        const frame = readFrame(Uint8Array.from(atob(given[0]), (c) => c.charCodeAt(0)).buffer);
        const canvas = document.createElement("canvas");
        canvas.style = "position:fixed; inset:0; width:300px; height:300px";
        document.body.append(canvas);
        const scene = new m.Scene(canvas, { minSoftwareLines: given[1] === "WebGL" ? Infinity : 0 });
        const gl = canvas.getContext("webgl2");
        scene.draw(frame, 0, [{ x: 0, y: 0, scale: 100 }], { edges: true, trails: false, commRadius: 64 });
        const colour = (x, y) => {
          const pixels = new Uint8Array(4 * 25);
          gl.readPixels(150 + 100 * x - 2, 150 + 100 * y - 2, 5, 5, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
          const back = pixels.slice(0, 3);
          let [red, blue] = [0, 0];
          for (let k = 0; k < 25; k++) {
            red = Math.max(red, pixels[4 * k] - pixels[4 * k + 2]);
            blue = Math.max(blue, pixels[4 * k + 2] - back[2]);
          }
          return red > 20 ? "lost" : blue > 20 ? "used" : "none";
        };
        const spots = [[-0.5, 1], [0.5, 1], [1, 0.5], [1, -0.5], [0.5, -1], [-0.5, -1], [-1, -0.5], [-1, 0.5]];
        const found = spots.map(([x, y]) => colour(x, y));
        canvas.remove();
        return found;""",
        [base64.b64encode(frame).decode(), by],
    )
    top, right, bottom, left = seen[:2], seen[2:4], seen[4:6], seen[6:]
    assert top == ["used", "used"]  # both receive
    assert right == ["used", "lost"]  # agent 1 receives, agent 2 lost the message
    assert bottom == ["lost", "lost"]  # a leader cannot receive, so its line has one colour
    assert left == ["used", "used"]


def test_the_processor_draws_lines_as_webgl_does(run: Callable[..., Any]) -> None:
    """Compare images of blocks of 10 x 10 pixels: lines of both may pass through neighbouring pixels."""
    flock, groups = ef.random_disk(agents=60, seed=1), np.arange(60)[None] % 2
    pictures = []
    for step in range(6):
        moved = replace(flock, positions=flock.positions + 0.2 * step * flock.velocities, groups=groups)
        pictures.append(pack_frame(step, 0.2 * step, [FlockPicture(moved, None, np.empty((0, 3)), build_links(moved))]))
    images = run(
        "player/scene",
        """
        const { readFrame } = await import("/player/frames.js");
        const frames = given.map((frame) => readFrame(Uint8Array.from(atob(frame), (c) => c.charCodeAt(0)).buffer));
        const draw = (minSoftwareLines) => {
          const canvas = document.createElement("canvas");
          canvas.style = "position:fixed; inset:0; width:400px; height:300px";
          document.body.append(canvas);
          const scene = new m.Scene(canvas, { isSoftware: true, minSoftwareLines });
          // Not all of the flock is in the picture.
          const cameras = [{ x: 0.5, y: 0.3, scale: 60 }];
          for (const frame of frames) scene.draw(frame, 0, cameras, { edges: true, trails: true, commRadius: 64 });
          canvas.remove();
          return canvas.toDataURL().split(",")[1];
        };
        return [draw(Infinity), draw(0)];""",
        [base64.b64encode(frame).decode() for frame in pictures],
    )
    by_webgl, by_processor = (
        imread(io.BytesIO(base64.b64decode(image)), format="png").reshape(30, 10, 40, 10, -1).mean(axis=(1, 3))
        for image in images
    )
    assert np.ptp(by_webgl[..., :3]) > 0.25
    assert np.abs(by_webgl - by_processor).mean() < 0.005
    assert np.abs(by_webgl - by_processor).max() < 0.05


def test_lines_outside_of_an_image_leave_no_pixels(run: Callable[..., Any]) -> None:
    """Draw random lines into an image, and into one with a margin, whose inside must be the same."""
    differences, opaque = run(
        "player/line_image",
        """
        const [size, margin] = [40, 100], paint = m.premultiply(1, 0.5, 0.25, 0.4);
        const draw = (size, shift) => {
          const image = new m.LineImage();
          image.begin(size, size);
          let seed = 1;
          const next = () => ((seed = (seed * 16807) % 2147483647) / 2147483647) * 160 - 60;
          for (let k = 0; k < 500; k++) image.drawLine(...[0, 1, 2, 3].map(() => next() + shift), paint);
          for (const bad of [NaN, Infinity]) image.drawLine(bad, 10 + shift, 20 + shift, 20 + shift, paint);
          return image.bytes;
        };
        const [cut, whole] = [draw(size, 0), draw(size + 2 * margin, margin)];
        let differences = 0;
        for (let y = 0; y < size; y++)
          for (let k = 0; k < 4 * size; k++)
            differences += cut[4 * size * y + k] !== whole[4 * (size + 2 * margin) * (y + margin) + 4 * margin + k];
        // Many layers of a colour give this colour.
        const image = new m.LineImage();
        image.begin(9, 1);
        for (let k = 0; k < 50; k++) image.drawLine(0, 0.5, 9, 0.5, paint);
        return [differences, [...image.bytes.slice(16, 20)]];""",
    )
    assert differences < 20  # rounding may move a line that begins elsewhere
    assert opaque == pytest.approx([255, 128, 64, 255], abs=2)


def test_the_camera_does_not_lag_behind_a_flock_at_constant_velocity(run: Callable[..., Any]) -> None:
    lag = run(
        "player/camera",
        """
        const camera = new m.Camera(1), viewport = { width: 800, height: 600 };
        const panel = (time) => ({
          origin: [5 * time, -3 * time],
          roles: new Uint8Array(9), conditions: new Uint8Array(9),
          positions: new Float32Array(18).map((_, i) => (i * 7) % 5),
          velocities: new Float32Array(18), accelerations: new Float32Array(18), disks: new Float32Array(0),
        });
        const places = [];
        for (let n = 0; n <= 120; n++) {
          camera.trackFlock(panel(n / 60), 0);
          camera.easeToFlock(1 / 60, viewport);
          places.push([camera.x - 5 * n / 60, camera.y + 3 * n / 60]);
        }
        return places.map(([x, y]) => Math.hypot(x - places[0][0], y - places[0][1]));""",
    )
    assert max(lag) < 1e-4


def test_a_held_camera_stands_still_and_then_follows_the_flock(run: Callable[..., Any]) -> None:
    held, later = run(
        "player/camera",
        """
        const camera = new m.Camera(1), viewport = { width: 800, height: 600 };
        const panel = (time) => ({
          origin: [5 * time, 0], roles: new Uint8Array(9), conditions: new Uint8Array(9),
          positions: new Float32Array(18).map((_, i) => (i * 7) % 5),
          velocities: new Float32Array(18), accelerations: new Float32Array(18), disks: new Float32Array(0),
        });
        const fly = (from, to) => {
          for (let n = from; n <= to; n++) {
            camera.trackFlock(panel(n / 60), 0);
            camera.easeToFlock(1 / 60, viewport);
          }
          return camera.x - 5 * to / 60;
        };
        const before = fly(0, 30);
        camera.isHeld = true;
        const held = fly(31, 90) + 5;
        camera.isHeld = false;
        return [held - before, fly(91, 400) - before];""",
    )
    assert held == pytest.approx(0, abs=1e-4)
    assert later == pytest.approx(0, abs=0.01)


def test_a_camera_detects_that_no_agent_is_visible_and_can_show_all(run: Callable[..., Any]) -> None:
    seen = run(
        "player/camera",
        """
        const camera = new m.Camera(1), viewport = { width: 800, height: 600 };
        // A flock that has burst: no agent is near its centre, and one is far away.
        const places = Array.from({ length: 12 }, (_, i) => [300 * Math.cos(i), 300 * Math.sin(i)]);
        places.push([9000, -50]);
        const panel = {
          origin: [7, -3], positions: new Float32Array(places.flat()),
          roles: new Uint8Array(13), conditions: new Uint8Array(13),
          velocities: new Float32Array(26), accelerations: new Float32Array(26), disks: new Float32Array(0),
        };
        const small = { ...panel, positions: panel.positions.map((p) => p / 300) };
        camera.trackFlock(small, 0);
        camera.easeToFlock(1, viewport);
        const first = camera.isFlockVisible(small, viewport);
        for (let n = 0; n < 300; n++) { camera.trackFlock(panel, 0); camera.easeToFlock(1 / 60, viewport); }
        const burst = camera.isFlockVisible(panel, viewport);
        camera.showAll();
        for (let n = 0; n < 600; n++) { camera.trackFlock(panel, 0); camera.easeToFlock(1 / 60, viewport); }
        const inside = places.every(([x, y]) => {
          const [px, py] = camera.toScreen(7 + x, y - 3, viewport);
          return px >= 0 && px <= 800 && py >= 0 && py <= 600;
        });
        return [first, burst, camera.isFlockVisible(panel, viewport), inside];""",
    )
    assert seen == [True, False, True, True]


def test_the_camera_shows_a_tight_flock_and_what_is_near_or_ahead_of_it(run: Callable[..., Any]) -> None:
    sizes = run(
        "player/camera",
        """
        const viewport = { width: 800, height: 600 };
        // Return whether a disk, relative to a flock of nine agents that flies to the right, is in view, and the scale.
        const show = (radius, disks, landmarks = []) => {
          const camera = new m.Camera(1), velocities = new Float32Array(18).map((_, i) => 1 - (i % 2));
          const positions = new Float32Array(18).map((_, i) => radius * (i % 2 ? Math.sin : Math.cos)(i >> 1));
          const panel = {
            origin: [50, 70], positions, velocities, accelerations: new Float32Array(18),
            disks: new Float32Array(disks), roles: new Uint8Array(9), conditions: new Uint8Array(9),
          };
          camera.trackFlock(panel, 0, landmarks);
          camera.easeToFlock(1, viewport);
          const inside = ([x, y]) => x >= 0 && x <= 800 && y >= 0 && y <= 600;
          const agents = Array.from({ length: 9 }, (_, i) => [50 + positions[2 * i], 70 + positions[2 * i + 1]]);
          const places = agents.map((place) => camera.toScreen(...place, viewport));
          return [places.every(inside), inside(camera.toScreen(50 + disks[0], 70 + disks[1], viewport)), camera.scale];
        };
        const alone = show(3, [])[2];
        return [
          show(3, [5, 0, 0.5]), show(3, [-7, 0, 0.5]), show(3, [40, 0, 0.5]), show(0.1, []), show(0.1, [1.5, 0, 0.2]),
          show(3, [0, 0, 100]), show(3, [6, 0, 0], [{ x: 56, y: 70, radius: 0.2 }]),
        ].map(([all, disk, scale]) => [all, disk, scale / alone]);""",
    )
    ahead, behind, far, tight, tight_ahead, huge, given = sizes
    assert all(each[0] for each in sizes)  # the flock is always in view
    assert ahead[1]
    assert 0.6 < ahead[2] <= 1
    assert behind[1:] == [False, 1]
    assert far[1:] == [False, 1]
    assert tight[2] > 5  # closer than 2 R from the centre
    assert tight_ahead[1]
    assert huge[2] > 0.39  # a huge obstacle does not make the flock tiny
    assert given[1]


def test_the_camera_follows_a_flock_that_spreads_to_its_places(run: Callable[..., Any]) -> None:
    body = """
        const viewport = { width: 800, height: 600 }, camera = new m.Camera(1);
        const circle = (radius) => new Float32Array(18).map((_, i) => radius * (i % 2 ? Math.sin : Math.cos)(i >> 1));
        const panel = (radius) => ({
          origin: [0, 0], positions: circle(radius), velocities: new Float32Array(18), disks: new Float32Array(0),
          accelerations: new Float32Array(18), roles: new Uint8Array(9), conditions: new Uint8Array(9),
        });
        for (const radius of [1, 20]) {
          camera.trackFlock(panel(radius), 0, [{ x: given, y: 0, radius: 0, moves: true }]);
          camera.easeToFlock(radius === 1 ? 0 : 60, viewport);
        }
        return camera.scale;"""
    assert run("player/camera", body, 20) == pytest.approx(600 / 2 / (1.25 * 20), rel=0.2)
    assert run("player/camera", body, 0) > 2 * 600 / 2 / (1.25 * 20)  # it bursts


def test_the_first_view_has_a_distant_goal_all_places_and_stragglers_between_title_and_buttons(
    run: Callable[..., Any],
) -> None:
    body = """
        const viewport = { width: 800, height: 600 }, camera = new m.Camera(1);
        const turn = (i) => [Math.cos(i), Math.sin(i)];
        const places = [...Array.from({ length: 24 }, (_, i) => turn(i)), [0, given.straggler]];
        const zeros = new Float32Array(50), codes = new Uint8Array(25);
        camera.trackFlock({
          origin: [9, 9], positions: new Float32Array(places.flat()), velocities: zeros, accelerations: zeros,
          disks: new Float32Array(0), roles: codes, conditions: codes,
        }, 0, given.marks.map((mark) => ({ moves: false, isAim: false, ...mark, x: mark.x + 9, y: mark.y + 9 })));
        camera.easeToFlock(1, viewport, [100, 20]);
        const [x, y] = given.target;
        return camera.toScreen(9 + x, 9 + y, viewport);"""

    def locate(target: tuple[float, float], *marks: dict[str, Any], straggler: float = 1.0) -> bool:
        x, y = run("player/camera", body, {"target": target, "marks": marks, "straggler": straggler})
        return bool(0 <= x <= 800 and 100 <= y <= 580)

    rock = {"x": 5, "y": 0, "radius": 1}
    assert not locate((6, 0), rock)
    assert locate((6, 0), rock | {"isAim": True})
    assert not locate((60, 0), rock | {"x": 59, "isAim": True})
    assert locate((0, 12), {"x": 0, "y": 12, "radius": 0, "moves": True})
    assert locate((0, 1.5), straggler=1.5)
    assert not locate((0, 9), straggler=9)


BOX = {"left": 0, "right": 100, "top": 0, "bottom": 50}


def test_a_curve_leaves_a_logarithmic_plot_below_its_axis(run: Callable[..., Any]) -> None:
    heights = run(
        "player/plot_axes",
        """
        const values = [100, 10, 1, 0.1, 1e-9, 1e-12, 0, null, NaN];
        const { y } = m.makeScale(values, { log: true }, given);
        return values.map((value) => y(value)).map((height) => (Number.isFinite(height) ? height : null));""",
        BOX,
    )
    shown, gone = heights[:6], heights[6:]
    assert shown == sorted(shown)
    assert len(set(shown)) == 6  # no two at the same height
    assert shown[0] >= BOX["top"]
    assert shown[3] < BOX["bottom"] < shown[4]
    assert gone == [None, None, None]


def test_a_curve_is_split_at_missing_values(run: Callable[..., Any]) -> None:
    segments = run(
        "player/plot_axes",
        "return m.splitCurve([[0, 1], [1, 2], [2, NaN], [3, NaN], [4, 5], [5, NaN], [6, 7], [7, 8]]);",
    )
    assert segments == [[[0, 1], [1, 2]], [[4, 5]], [[6, 7], [7, 8]]]
    assert run("player/plot_axes", "return m.splitCurve(given);", [[0, None]]) == []


def test_an_axis_without_values_has_ticks(run: Callable[..., Any]) -> None:
    body = "return [{}, { log: true }, { integer: true }].map((metric) => m.makeScale([0, NaN], metric, given).ticks);"
    assert all(len(ticks) > 1 for ticks in run("player/plot_axes", body, BOX))


def test_zooming_keeps_the_point_under_the_pointer(run: Callable[..., Any]) -> None:
    before, after = run(
        "player/camera",
        """
        const camera = new m.Camera(1), viewport = { width: 800, height: 600 };
        const before = camera.toWorld(100, 50, viewport);
        camera.zoom(1.7, 100, 50, viewport);
        return [before, camera.toWorld(100, 50, viewport)];""",
    )
    assert after == pytest.approx(before)
