"""Flights as HTML elements that play them: the player and its data, without a server or other files.

An element holds JSON; `web/player.js` reads it:

    flights     title, if given, controller, scenario, agents and ending of each flight
    times       of the frames, in seconds; `sizes`: their sizes in bytes
    frames      all frames in the format of frames.py, compressed by gzip, in base64
    curves      times and metric_values[time][flight][metric], null for infinity and NaN
    links       whether the frames have links; `show_links`, `trails`: whether to draw them at first
    speed       simulated seconds per second at first
    group       players with the same text play together; "" for none
    comm_radius, dimensions
"""

from __future__ import annotations

import base64
import gzip
import os
import tempfile
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from equiflock._runtime.checks import InputError, check_count, check_positive, shorten_repr
from equiflock._runtime.files import atomic_write
from equiflock.plotting.player.bundle import bundle_player, make_security_policy, to_script_json
from equiflock.plotting.player.frames import pack_frame
from equiflock.plotting.player.playback import Playback
from equiflock.simulation.trajectory import FRAME_ARRAYS, Trajectory

MAX_EMBEDDED_FLIGHTS = 4
MAX_FRAMES = 101
"""Maximum number of frames in an element; the player moves agents between them by constant accelerations."""
MAX_FRAME_BYTES = 8 * 2**20
"""Maximum size of all frames of an element before compression."""
MIN_FRAMES = 20
"""Minimum number of frames, unless the flights have fewer: larger flocks are refused."""
SIGNIFICANT_DIGITS = 4
"""Precision of the curves."""


def embed_flights(
    runs: Sequence[Trajectory],
    *,
    flock: int = 0,
    titles: Sequence[str] | None = None,
    speed: float = 0.5,
    trails: bool = True,
    links: bool = False,
    group: str = "",
) -> str:
    """Return an HTML element with one flock of each run; a page needs `bundle_player()` once, below its elements.

    The frames are thinned evenly to MAX_FRAMES and MAX_FRAME_BYTES, first without links. Texts are data, never HTML.

    Args:
        runs: one to MAX_EMBEDDED_FLIGHTS trajectories with the same times.
        flock: index of the flock in the batch.
        titles: one per run; defaults to the controllers' names.
        speed: simulated seconds per second.
        trails: whether the recent paths are drawn at first.
        links: whether the communication graph is drawn at first.
        group: players of a page with the same group share time, speed, play and pause.
    """
    return _build_element(_pack_flights(runs, flock, titles, speed, trails, links, group))


@dataclass(frozen=True)
class FlightPlayer:
    """A page that plays flights, in one file; notebooks display it in a frame of its own."""

    html: str
    """The whole page."""
    height: int
    """Height in a notebook, in pixels."""

    def _repr_html_(self) -> str:
        """Return the page inside an iframe, which isolates it from the notebook; in ASCII, for any encoding."""
        page = escape(self.html, quote=True).encode("ascii", "xmlcharrefreplace").decode()
        return (
            f'<iframe srcdoc="{page}" sandbox="allow-scripts" title="Flight" '
            f'style="width: 100%; height: {self.height}px; border: 0; border-radius: 10px;"></iframe>'
        )

    def __repr__(self) -> str:
        return f"FlightPlayer({len(self.html) / 2**20:.1f} MB): .save(path) writes it, .open() shows it in a browser"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page, which needs no other file, replacing an existing one; return the path."""
        with atomic_write(path) as scratch:
            scratch.write_text(self.html, encoding="utf-8")
        return Path(path)

    def open(self) -> Path:
        """Show the page in the default browser, from a file among the temporary ones; return its path."""
        path = self.save(Path(tempfile.mkdtemp(prefix="equiflock-")) / "flight.html")
        webbrowser.open(path.as_uri())
        return path


def show(
    *runs: Trajectory,
    flock: int = 0,
    titles: Sequence[str] | None = None,
    speed: float = 0.5,
    trails: bool = True,
    links: bool = False,
    height: int = 640,
) -> FlightPlayer:
    """Return a player of one flock of each run, side by side, with its curves.

        start = ef.random_disk(agents=100)
        ours = ef.simulate(start, ef.load("starling"), duration=2.0)
        law = ef.simulate(start, ef.load("tanner-dynamic"), duration=2.0)
        ef.show(ours, law, titles=["starling", "Tanner's law"])

    As the last line of a notebook's cell it is displayed there; elsewhere `ef.show(run).open()` opens a browser, and
    `ef.show(run).save("flight.html")` writes one file that works without a server or network. Flocks in three
    dimensions are seen from above. Long flights and large flocks are thinned to up to 101 frames and 8 MB before
    compression; InputError if that leaves fewer than 20 frames (about 15,000 agents in all).

    Args:
        runs: one to four trajectories with the same times.
        flock: index of the flock in the batch.
        titles: one per run; defaults to the controllers' names.
        speed: simulated seconds per second; the player can change it.
        trails: whether the recent paths are drawn at first.
        links: whether the communication graph is drawn at first.
        height: height in a notebook, in pixels.
    """
    check_count("height", height, least=200)
    content = _pack_flights(runs, flock, titles, speed, trails, links, "")
    names = ", ".join(flight.get("title", flight["controller"]) for flight in content["flights"])
    html = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"{make_security_policy()}\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(names)}</title>\n<style>html, body, main {{ height: 100%; margin: 0; }}</style>\n</head>\n"
        f"<body>\n<main>{_build_element(content, fills_page=True)}</main>\n{bundle_player()}\n</body>\n</html>\n"
    )
    return FlightPlayer(html, height)


def _build_element(content: dict[str, Any], fills_page: bool = False) -> str:
    """Return the element with the content of a player, which fills the page or has a height of its own."""
    kind = "equiflock-player fill" if fills_page else "equiflock-player"
    return f'<div class="{kind}"><script type="application/json">{to_script_json(content)}</script></div>'


def _pack_flights(
    runs: Sequence[Trajectory],
    flock: int,
    titles: Sequence[str] | None,
    speed: float,
    trails: bool,
    links: bool,
    group: str,
) -> dict[str, Any]:
    """Return the content of a player; raise InputError if an argument is invalid or the flocks are too large."""
    for run in runs:
        if not isinstance(run, Trajectory):
            raise InputError(f"a flight to show must be a Trajectory, as ef.simulate returns; got {shorten_repr(run)}")
        if check_count("flock", flock, least=0) >= len(run.steps):
            raise InputError(f"flock must be from 0 to {len(run.steps) - 1}; got {flock}")
    check_positive("speed", speed)
    playback = Playback(runs, flock, MAX_EMBEDDED_FLIGHTS)
    if titles is not None and (isinstance(titles, str) or len(titles) != len(runs)):
        raise InputError(f"titles must be {len(runs)}, one per flight; got {shorten_repr(titles)}")
    description = playback.to_dict()
    times, frames, has_links = _pack_frames(playback)
    flights = description["flights"]
    for flight, title in zip(flights, titles or (), strict=bool(titles)):
        flight["title"] = str(title)
    return {
        "flights": flights,
        "times": times,
        "sizes": [len(frame) for frame in frames],
        "frames": base64.b64encode(gzip.compress(b"".join(frames), mtime=0)).decode(),
        "curves": _round_curves(description["curves"]),
        "links": has_links,
        "show_links": links,
        "trails": trails,
        "speed": speed,
        "group": group,
        "comm_radius": description["comm_radius"],
        "dimensions": description["dimensions"],
    }


def _pack_frames(playback: Playback) -> tuple[list[float], list[bytes], bool]:
    """Return times and contents of evenly chosen frames that fit the limits, and whether they have links.

    Links are left out if there is no room for MIN_FRAMES frames, or all, with them. Raise InputError if there is none
    without them.
    """
    for has_links in (True, False):
        count = min(MAX_FRAMES, playback.frame_count)
        least = min(MIN_FRAMES, playback.frame_count)
        while count >= least:
            chosen = np.unique(np.linspace(0, playback.frame_count - 1, count).round().astype(int))
            thinned = Playback([_select_frames(run, chosen) for run in playback.runs], 0, MAX_EMBEDDED_FLIGHTS)
            thinned.edges = has_links
            frames = _pack_up_to(thinned, MAX_FRAME_BYTES)
            if len(frames) == len(chosen):
                return thinned.runs[0].times.tolist(), frames, has_links
            count = min(count - 1, len(frames))
    agents = sum(run.roles.shape[1] for run in playback.runs)
    raise InputError(
        f"a player has room for {MAX_FRAME_BYTES // 2**20} MB of frames, but {least} frames of {agents:,} agents need "
        "more: show fewer or smaller flights, or make a film with `equiflock animate`"
    )


def _pack_up_to(playback: Playback, max_bytes: int) -> list[bytes]:
    """Return the frames of a playback, from the first to the last that fits into `max_bytes` with those before."""
    frames: list[bytes] = []
    room = max_bytes
    for frame in range(playback.frame_count):
        playback.seek(frame)
        frames.append(pack_frame(frame, playback.time, playback.make_pictures()))
        room -= len(frames[-1])
        if room < 0:
            return frames[:-1]
    return frames


def _select_frames(run: Trajectory, frames: np.ndarray) -> Trajectory:
    """Return a trajectory with some of the frames, without series and further body state."""
    arrays = {name: getattr(run, name)[frames[:-1] if name == "accelerations" else frames] for name in FRAME_ARRAYS}
    return replace(run, times=run.times[frames], **arrays, series={}, body_state={})


def _round_curves(curves: dict[str, Any]) -> dict[str, Any]:
    """Return curves with SIGNIFICANT_DIGITS, which take a third of the space."""

    def shorten(value: float | None) -> float | None:
        return None if value is None else float(f"{value:.{SIGNIFICANT_DIGITS}g}")

    rows = [[[shorten(value) for value in panel] for panel in row] for row in curves["metric_values"]]
    return {"times": [round(time, 6) for time in curves["times"]], "metric_values": rows}
