"""A browser for the tests of the page: Debian's Chromium, which `make browser` installs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, ViewportSize, sync_playwright

from equiflock.viewer.setting import Setting
from equiflock.viewer.viewer_config import ViewerConfig
from tests.viewer import servers
from tests.viewer.pages import leave
from tests.viewer.servers import Running, running

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MISSING = "there is no Chromium, so the live view was NOT tested in a browser: run `make browser`"
# No graphics card, no sandbox for root, and no word to anybody but our own server.
ARGUMENTS = ["--no-sandbox", "--enable-unsafe-swiftshader", "--disable-background-networking", "--no-first-run"]
DESKTOP: ViewportSize = {"width": 1000, "height": 640}
# Pages are drawn 20 times a second instead of 60: without a graphics card drawing takes most of a core.
CALM = """const paint = requestAnimationFrame.bind(window);
window.requestAnimationFrame = (then) => setTimeout(() => paint(then), 35);"""


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def blank_page(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Gives pages with nothing on them, which tests use one after the other: a new one costs a second."""
    pages: list[tuple[dict[str, Any], Page]] = []

    def blank(viewport: ViewportSize = DESKTOP, **options: Any) -> Page:
        for made_with, page in pages:
            if made_with == options and not page.is_closed() and page.url == "about:blank":
                page.set_viewport_size(viewport)
                return page
        # Each in a context of its own: of two in one, only that in front is drawn.
        context = chromium.new_context(viewport=viewport, **options)
        context.add_init_script(CALM)
        pages.append((options, context.new_page()))
        return pages[-1][1]

    yield blank
    for _, page in pages:
        page.context.close()


@pytest.fixture
def open_page(blank_page: Callable[..., Page]) -> Iterator[Callable[..., Page]]:
    """Opens pages of a server, waits until a flock is on the screen, and fails if the console told of any error."""
    complaints: list[str] = []
    pages = []

    def hear(message: ConsoleMessage) -> None:
        if message.type == "error":
            complaints.append(message.text)

    def hear_error(error: Error) -> None:
        complaints.append(str(error))

    def open_one(server: Running, setting: str = "", wait: bool = True, **options: Any) -> Page:
        page = blank_page(**options)
        pages.append(page)
        page.on("console", hear)
        page.on("pageerror", hear_error)
        page.goto(server.address + setting)
        if wait:
            page.wait_for_function("() => globalThis.flockView?.frame && flockView.screen.drawn > 2")
        return page

    yield open_one
    for page in pages:
        if not page.is_closed():
            page.remove_listener("console", hear)
            page.remove_listener("pageerror", hear_error)
            leave(page)
    assert complaints == []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of live flights."""
    with running(ViewerConfig(Setting(agents=40), out=tmp_path_factory.mktemp("out"))) as found:
        yield found


@pytest.fixture
def page(server: Running) -> Iterator[servers.Page]:
    """A page that is a program."""
    with server.page() as found:
        yield found


@pytest.fixture(scope="session")
def run(chromium: Browser) -> Iterator[Callable[..., Any]]:
    """Runs JavaScript with a module of the page, `m`, on a page without scripts of its own."""
    with running() as server:
        bare = chromium.new_page()
        bare.goto(server.address + "icon.svg")

        def evaluate(module: str, body: str, argument: Any = None) -> Any:
            return bare.evaluate(f"async (given) => {{ const m = await import('/{module}.js'); {body} }}", argument)

        yield evaluate
        bare.close()
