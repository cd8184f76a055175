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

A menu of flights has several of these, of which the player holds one.
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
from equiflock.plotting.player.frames import FLOAT32_BITS, pack_frame
from equiflock.plotting.player.playback import Playback
from equiflock.simulation.body_motion import compute_acceleration_between
from equiflock.simulation.trajectory import FRAME_ARRAYS, Trajectory

MAX_EMBEDDED_FLIGHTS = 4
MAX_FRAMES = 101
"""Maximum number of frames in an element; the player moves agents between them by constant accelerations."""
MAX_FRAME_BYTES = 8 * 2**20
"""Maximum size of all frames of an element before compression."""
MAX_CHOICE_BYTES = 2 * 2**20
"""The same for an entry of a menu, unless it has too few frames then."""
COMPACT_CHOICE_BYTES = 2**18
"""The same in a menu of dozens of entries, whose numbers have COMPACT_BITS."""
COMPACT_BITS = 12
"""Significant bits of positions, velocities and accelerations in such a menu: a tenth of a pixel."""
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
class FlightChoice:
    """An entry of a menu of flights."""

    name: str
    runs: Sequence[Trajectory]
    """One to MAX_EMBEDDED_FLIGHTS flights that play together, of each the first flock; their times may differ."""
    titles: Sequence[str] | None = None
    """One per flight; defaults to the controllers' names."""
    note: str = ""
    """Text below the name."""
    group: str = ""
    """Heading above the first of the adjacent entries with the same group."""
    speed: float = 0.5
    """Simulated seconds per second."""


def embed_flight_menu(
    choices: Sequence[FlightChoice], key: str, *, links: bool = False, compact: bool = False, selected: int = 0
) -> str:
    """Return HTML with one player and a list of flights, which a report's script loads into it; texts are data.

    The menu takes a single WebGL context, of which browsers have few. Its inputs have the ids `key`-0, `key`-1, ..;
    the player has the entry `selected` at first. `links` draws the communication graph at first; `compact` makes the
    entries smaller, without links, for a menu of dozens. Raise InputError if there is no entry or one does not fit.
    """
    if not choices:
        raise InputError("a menu of flights needs at least one entry; got none")
    limit, bits = (COMPACT_CHOICE_BYTES, COMPACT_BITS) if compact else (MAX_CHOICE_BYTES, FLOAT32_BITS)
    contents = [
        _pack_flights(match_times(each.runs), 0, each.titles, each.speed, True, links, "", limit, bits)
        for each in choices
    ]
    labels = []
    for k, choice in enumerate(choices):
        note = f"<small>{escape(choice.note)}</small>" if choice.note else ""
        checked = " checked" if k == selected else ""
        if choice.group and (k == 0 or choice.group != choices[k - 1].group):
            labels.append(f"<p>{escape(choice.group)}</p>")
        labels.append(
            f'<label><input type="radio" name="{key}" id="{key}-{k}" autocomplete="off"{checked}>'
            f"{escape(choice.name)}{note}</label>"
        )
    # The player has the content of the selected one.
    texts = ["" if k == selected else to_script_json(content) for k, content in enumerate(contents)]
    scripts = "".join(f'<script type="application/json">{text}</script>' for text in texts)
    return (
        f'<div class="flight-menu"><fieldset class="flight-list"><legend>Flights</legend><div>{"".join(labels)}</div>'
        f"</fieldset>{_build_element(contents[selected])}{scripts}</div>"
    )


def match_times(runs: Sequence[Trajectory]) -> list[Trajectory]:
    """Return flights with the same times: as they are if they are equal, else at MAX_FRAMES times up to the latest.

    Between two frames, agents have the constant accelerations that lead from one to the next, as in the player. A
    flight that ends before the others keeps its last state. The flights have no series.
    """
    if all(np.array_equal(run.times, runs[0].times) for run in runs):
        return list(runs)
    longest = max(float(run.times[-1]) for run in runs)
    return [_resample(run, np.linspace(0.0, longest, MAX_FRAMES)) for run in runs]


def _resample(run: Trajectory, times: np.ndarray) -> Trajectory:
    """Return a flight at other times, without series and further body state."""
    last = len(run.times) - 1
    # Half a microsecond allows for the rounding of times.
    before = np.clip(np.searchsorted(run.times, times + 5e-7, side="right") - 1, 0, last)
    after = np.minimum(before + 1, last)
    spans = np.where(after > before, run.times[after] - run.times[before], 1.0)
    ahead = np.where(after > before, np.clip(times - run.times[before], 0.0, None), 0.0)[:, None, None, None]
    positions, velocities = run.positions[before], run.velocities[before]
    held = np.stack(
        [
            compute_acceleration_between(positions[k], velocities[k], run.positions[after[k]], float(spans[k]))
            if after[k] > before[k]
            else np.zeros_like(positions[k])
            for k in range(len(times))
        ]
    )
    return replace(
        run,
        times=times,
        positions=positions + ahead * velocities + 0.5 * ahead**2 * held,
        velocities=velocities + ahead * held,
        accelerations=run.accelerations[np.minimum(before[:-1], last - 1)] if last else run.positions[:0],
        conditions=run.conditions[before],
        series={},
        body_state={},
    )


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
    max_bytes: int | None = None,
    significant_bits: int = FLOAT32_BITS,
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
    times, frames, has_links = _pack_frames(playback, max_bytes or MAX_FRAME_BYTES, significant_bits)
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


def _pack_frames(playback: Playback, max_bytes: int, significant_bits: int) -> tuple[list[float], list[bytes], bool]:
    """Return times and contents of evenly chosen frames of up to `max_bytes`, and whether they have links.

    Links are left out if there is no room for MIN_FRAMES frames, or all, with them, or if numbers are rounded to save
    space. If there is no room without them either, there are MIN_FRAMES of up to MAX_FRAME_BYTES. Raise InputError if
    these do not fit.
    """
    attempts = [(True, max_bytes, MAX_FRAMES)] if significant_bits == FLOAT32_BITS else []
    attempts += [(False, max_bytes, MAX_FRAMES), (False, MAX_FRAME_BYTES, MIN_FRAMES)]
    least = min(MIN_FRAMES, playback.frame_count)
    for has_links, room, most in attempts:
        count = min(most, playback.frame_count)
        while count >= least:
            chosen = np.unique(np.linspace(0, playback.frame_count - 1, count).round().astype(int))
            thinned = Playback([_select_frames(run, chosen) for run in playback.runs], 0, MAX_EMBEDDED_FLIGHTS)
            thinned.edges = has_links
            frames = _pack_up_to(thinned, room, significant_bits)
            if len(frames) == len(chosen):
                return thinned.runs[0].times.tolist(), frames, has_links
            count = min(count - 1, len(frames))
    agents = sum(run.roles.shape[1] for run in playback.runs)
    raise InputError(
        f"a player has room for {MAX_FRAME_BYTES // 2**20} MB of frames, but {least} frames of {agents:,} agents need "
        "more: show fewer or smaller flights, or make a film with `equiflock animate`"
    )


def _pack_up_to(playback: Playback, max_bytes: int, significant_bits: int) -> list[bytes]:
    """Return the frames of a playback, from the first to the last that fits into `max_bytes` with those before."""
    frames: list[bytes] = []
    room = max_bytes
    for frame in range(playback.frame_count):
        playback.seek(frame)
        frames.append(pack_frame(frame, playback.time, playback.make_pictures(), significant_bits))
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
