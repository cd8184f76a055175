"""Flights as HTML: limits, escaping, and content that gives the frames back."""

from __future__ import annotations

import base64
import gzip
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.plotting.player import embedding
from equiflock.plotting.player.bundle import bundle_player
from equiflock.plotting.player.embedding import FlightChoice, embed_flight_menu, embed_flights, match_times
from tests.plotting.player.frame_reader import ReadFrame, read_frame


def fly(agents: int = 12, duration: float = 0.2, **options: Any) -> ef.Trajectory:
    start = ef.random_disk(agents=agents, flocks=2, seed=1, **options)
    return ef.simulate(start, ef.load("tanner"), duration=duration)


def unpack(html: str) -> tuple[dict[str, Any], list[ReadFrame]]:
    """Return the content of an element and its frames."""
    (text,) = re.findall(r'<script type="application/json">(.*?)</script>', html)
    content = json.loads(text)
    frames = gzip.decompress(base64.b64decode(content["frames"]))
    ends = np.cumsum([0, *content["sizes"]]).tolist()
    assert ends[-1] == len(frames)
    return content, [read_frame(frames[start:end]) for start, end in pairwise(ends)]


def test_an_element_has_every_frame_of_a_short_flight() -> None:
    run = fly()
    content, frames = unpack(embed_flights([run, run], flock=1, titles=["one", "two"]))
    assert [flight["title"] for flight in content["flights"]] == ["one", "two"]
    assert content["times"] == run.times.tolist()
    for frame, positions in zip(frames, run.positions, strict=True):
        assert np.allclose(frame.panels[1].positions, positions[1], atol=1e-5)
    assert len(frames[0].panels[0].edges) > 0


def test_a_long_flight_is_thinned_evenly_and_agents_reach_the_next_frame() -> None:
    run = fly(duration=4.0)
    content, frames = unpack(embed_flights([run]))
    assert len(frames) == embedding.MAX_FRAMES
    assert content["times"][-1] == run.times[-1]
    for one, two in pairwise(frames):
        panel, seconds = one.panels[0], two.time - one.time
        reached = panel.positions + (panel.velocities + panel.accelerations * seconds / 2) * seconds
        assert np.allclose(reached, two.panels[0].positions, atol=1e-4)
    assert len(content["curves"]["times"]) > embedding.MAX_FRAMES  # curves have a point for more frames


def test_large_flights_lose_frames_then_links_then_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    run = fly(agents=60, duration=0.5)
    for limit, fewest, links in ((10**6, 51, True), (70_000, 20, True), (40_000, 20, False)):
        monkeypatch.setattr(embedding, "MAX_FRAME_BYTES", limit)
        content, frames = unpack(embed_flights([run]))
        assert fewest <= len(frames) <= 51
        assert sum(content["sizes"]) <= limit
        assert content["links"] == links == any(len(frame.panels[0].edges) for frame in frames)
        assert (frames[0].time, frames[-1].time) == (0.0, run.times[-1])
    monkeypatch.setattr(embedding, "MAX_FRAME_BYTES", 30_000)
    with pytest.raises(InputError, match="20 frames of 60 agents need more"):
        embed_flights([run])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"flock": 2}, "flock must be from 0 to 1; got 2"),
        ({"flock": -1}, "flock"),
        ({"titles": ["one", "two"]}, "titles must be 1, one per flight"),
        ({"titles": "x"}, "titles must be 1"),
        ({"speed": 0.0}, "speed"),
        ({"height": 10}, "height"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ef.show(fly(duration=0.02), **options)


def test_no_flight_or_too_many_are_refused() -> None:
    for runs in ([], [fly(duration=0.02)] * 5):
        with pytest.raises(InputError, match="up to 4 side by side"):
            ef.show(*runs)


def test_a_page_is_one_file_and_titles_cannot_leave_their_script(tmp_path: Path) -> None:
    title = "</script><script>alert(1)</script><!--"
    shown = ef.show(fly(duration=0.02), titles=[title])
    html = shown.save(tmp_path / "flight.html").read_text()
    assert html.count("<script") == html.count("</script>") == 2
    assert unpack(html)[0]["flights"][0]["title"] == title
    assert re.findall(r'(?:src|href)=["\']|@import|\bimport\b *[{(]', html) == []
    frame = shown._repr_html_()
    assert frame.isascii()
    assert frame.count("<") == 2  # the frame's own: the page is an escaped attribute


def test_the_bundle_has_each_module_after_its_imports() -> None:
    script = bundle_player()
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    defined: set[str] = set()
    for line in script.splitlines():
        defined.update(re.findall(r"^modules\.(\w+) = ", line))
        assert set(re.findall(r"^const \{.*\} = modules\.(\w+);$", line)) <= defined
    assert "player" in defined


def unpack_menu(html: str) -> list[tuple[dict[str, Any], list[ReadFrame]]]:
    """Return the contents of a menu's entries and their frames; that of the selected one is in the player."""
    player, *entries = re.findall(r'<script type="application/json">.*?</script>', html)
    return [unpack(player if "></" in entry else entry) for entry in entries]


def test_a_menu_has_every_entry_and_its_player_the_first() -> None:
    run, other = fly(), fly(duration=0.3)
    choices = [FlightChoice("one", [run[0], run[1]], ["a", "b"], group="x"), FlightChoice("two", [other[0]], group="x")]
    html = embed_flight_menu(choices, "menu")
    first, second = unpack_menu(html)
    assert [flight["title"] for flight in first[0]["flights"]] == ["a", "b"]
    assert np.allclose(first[1][5].panels[1].positions, run.positions[5, 1], atol=1e-5)
    assert second[0]["times"][-1] == other.times[-1]
    assert html.count("<p>x</p>") == 1
    assert re.findall(r'id="([^"]*)"', html) == ["menu-0", "menu-1"]


def test_flights_of_an_entry_may_have_other_times() -> None:
    start = ef.random_disk(agents=12, seed=1)
    fine = ef.simulate(start, ef.load("tanner"), duration=0.3, time_step=0.01)
    coarse = ef.simulate(start, ef.load("tanner"), duration=0.5, time_step=0.05)
    ((content, frames),) = unpack_menu(embed_flight_menu([FlightChoice("dt", [fine, coarse])], "menu"))
    assert content["times"][-1] == coarse.times[-1]
    for frame in frames[:: len(frames) // 10]:  # every 0.05 s, at which both have a frame
        for panel, run in zip(frame.panels, (fine, coarse), strict=True):
            nearest = int(np.argmin(np.abs(run.times - frame.time)))
            assert np.allclose(panel.positions, run.positions[nearest, 0], atol=1e-5)
            assert np.allclose(panel.velocities, run.velocities[nearest, 0], atol=0.02)
    assert [panel.has_ended for panel in frames[-1].panels] == [True, True]
    same = match_times([fine, fine])
    assert same[0] is fine


def test_a_compact_menu_is_smaller_and_off_by_less_than_a_pixel() -> None:
    run = fly(agents=100, duration=1.0)
    sizes = {}
    for compact in (False, True):
        html = embed_flight_menu([FlightChoice("one", [run[0], run[1]])], "menu", compact=compact)
        ((content, frames),) = unpack_menu(html)
        sizes[compact] = len(html)
        times = np.array(content["times"])
        steps = np.argmin(np.abs(run.times[None] - times[:, None]), axis=1)
        for frame, step in zip(frames, steps.tolist(), strict=True):
            width = np.ptp(run.positions[step, 1])
            assert np.abs(frame.panels[1].positions - run.positions[step, 1]).max() < width / 2000
    assert sum(content["sizes"]) <= embedding.COMPACT_CHOICE_BYTES
    assert sizes[True] < 0.5 * sizes[False]


def test_large_flocks_of_a_compact_menu_have_few_frames_rather_than_none() -> None:
    run = fly(agents=400, duration=0.5)
    ((_, frames),) = unpack_menu(embed_flight_menu([FlightChoice("one", [run[0], run[1]])], "menu", compact=True))
    assert len(frames) == embedding.MIN_FRAMES
