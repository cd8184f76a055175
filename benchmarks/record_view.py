"""Records docs/media/view.png, inspect.png and view.webp: the live page in use, picture by picture.

    python benchmarks/record_view.py

Requires Chromium (`make browser`). The flight is paused, and a fixed number of steps is made for each picture, so the
result does not depend on the speed of the machine.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from imageio_ffmpeg import get_ffmpeg_exe
from playwright.sync_api import Browser, Page, ViewportSize

from atlas import FILM_SUFFIX
from browser import live_page
from equiflock.plotting.film_file import CODECS

FOLDER = Path(__file__).parent.parent / "docs" / "media"
SIZE = ViewportSize(width=1120, height=760)
RATE = 12


class Film:
    """Saves screenshots of a page in a directory."""

    def __init__(self, page: Page, folder: Path) -> None:
        self.page, self.folder, self.count = page, folder, 0

    def take_pictures(
        self, pictures: int, steps: int = 2, between: Callable[[int], object] = lambda number: None
    ) -> None:
        """Take pictures `steps` steps apart; call `between` with the index of each before it is taken."""
        for number in range(pictures):
            between(number)
            self.page.evaluate("(steps) => flockView.connection.ask({ command: 'advance', steps })", steps)
            self.page.wait_for_function("() => flockView.connection.idle && flockView.frame")
            self.page.wait_for_timeout(60)
            self.page.evaluate("() => document.getElementById('play').classList.add('playing')")  # looks as if playing
            self.page.screenshot(path=self.folder / f"{self.count:04}.png")
            self.count += 1


def open_setting(page: Page, setting: str) -> None:
    """Open a setting, paused at its start."""
    page.evaluate("(hash) => { flockView.play(false); location.hash = hash; }", setting)
    page.wait_for_timeout(100)
    page.wait_for_function("() => flockView.connection.idle && flockView.frame?.step === 0")
    page.wait_for_timeout(300)


def record_scenes(page: Page, film: Film) -> None:
    """Record the scenes: consensus, an obstacle, leaders, an inspected agent, and a comparison."""
    open_setting(page, "scenario=flocking&agents=100&seed=3")
    film.take_pictures(20, 1)

    page.keyboard.press("3")
    heading_x, heading_y = page.evaluate("""() => {
        const { velocities } = flockView.frame.panels[0], size = Math.hypot(velocities[0], velocities[1]);
        return [velocities[0] / size, -velocities[1] / size];
    }""")
    x, y = 400 + 300 * heading_x, 370 + 300 * heading_y
    page.mouse.move(x, y)
    page.mouse.down()
    film.take_pictures(5, 1, lambda number: page.mouse.move(x + 9 * number, y))
    page.mouse.up()
    page.mouse.move(SIZE["width"] - 10, SIZE["height"] // 2)  # away from the flock
    film.take_pictures(28, 3)

    page.keyboard.press("1")
    open_setting(page, "scenario=leaders&agents=120&seed=2")
    film.take_pictures(10, 2)
    film.take_pictures(
        28, 3, lambda number: page.keyboard.press("ArrowRight") if number < 20 and number % 2 == 0 else None
    )

    open_setting(page, "scenario=flocking&controller=etdagnn&agents=60&seed=3")
    film.take_pictures(10, 1)
    inspect_middle(page)
    film.take_pictures(20, 1)
    page.keyboard.press("Escape")
    page.keyboard.press("1")

    open_setting(page, "scenario=flocking&agents=100&seed=1&compare=tanner-dynamic")
    film.take_pictures(28, 2)


def inspect_middle(page: Page) -> None:
    """Inspect the agent that is nearest to the flock's centre."""
    page.keyboard.press("5")
    page.evaluate("""() => {
        const { positions } = flockView.frame.panels[0];  // relative to the flock's centre
        const measure = (_, i) => Math.hypot(positions[2 * i], positions[2 * i + 1]);
        const distances = Array.from({ length: positions.length / 2 }, measure);
        flockView.inspector.inspect(distances.indexOf(Math.min(...distances)));
    }""")
    page.wait_for_function("() => flockView.inspector.drawing && flockView.connection.idle")


def record_inspection(film: Film, target: Path) -> None:
    """Record one picture of an inspected agent."""
    open_setting(film.page, "scenario=flocking&controller=etdagnn&agents=60&seed=3")
    film.take_pictures(20, 1)
    inspect_middle(film.page)
    film.take_pictures(1, 1)
    film.page.wait_for_function("() => flockView.connection.idle")
    write_media(film.folder / f"{film.count - 1:04}.png", "scale=1120:-1:flags=area", target)


def record(folder: Path) -> None:
    """Record view.webp, view.png and inspect.png into a folder."""
    with live_page(8720) as (browser, address, _), tempfile.TemporaryDirectory() as scratch:
        film = Film(open_page(browser, address, "dark"), Path(scratch))
        record_scenes(film.page, film)
        write_media(film.folder / "%04d.png", "scale=760:-1:flags=area", folder / f"view{FILM_SUFFIX}")
        single = Film(open_page(browser, address, "light"), Path(scratch))
        open_setting(single.page, "scenario=obstacles:sides=40&agents=120&seed=4&edges=1")
        single.take_pictures(65, 5)
        write_media(single.folder / f"{single.count - 1:04}.png", "scale=1120:-1:flags=area", folder / "view.png")
        record_inspection(Film(open_page(browser, address, "dark"), Path(scratch)), folder / "inspect.png")


def open_page(browser: Browser, address: str, theme: Literal["dark", "light"]) -> Page:
    # Render at twice the resolution and scale down: antialiasing without a graphics card.
    page = browser.new_page(viewport=SIZE, device_scale_factor=2, color_scheme=theme)
    page.goto(address)
    page.wait_for_function("() => globalThis.flockView?.frame")
    # The frame rate would be that of the recording, and the ring of the focus that of its key presses.
    page.evaluate("""() => {
        document.getElementById("rate").hidden = true;
        document.getElementById("scene").style.outline = "none";
    }""")
    return page


def write_media(pictures: Path, how: str, target: Path) -> None:
    source = ["-r", str(RATE), "-i", str(pictures)]
    codec = [*CODECS[target.suffix], "-quality", "60"] if target.suffix in CODECS else []
    subprocess.run([get_ffmpeg_exe(), "-v", "error", "-y", *source, "-vf", how, *codec, str(target)], check=True)


if __name__ == "__main__":
    record(FOLDER)
