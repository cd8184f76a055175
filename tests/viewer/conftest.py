"""Fixtures: a browser (Debian's Chromium, which `make browser` installs), servers and pages."""

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
# Software rendering, no sandbox as root, no background connections.
ARGUMENTS = ["--no-sandbox", "--enable-unsafe-swiftshader", "--disable-background-networking", "--no-first-run"]
DESKTOP: ViewportSize = {"width": 1000, "height": 640}
# Draw 20 pictures per second instead of 60: software rendering takes most of a core.
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
    """Return a function that returns blank pages, which tests reuse: creating one takes a second."""
    pages: list[tuple[dict[str, Any], Page]] = []

    def blank(viewport: ViewportSize = DESKTOP, **options: Any) -> Page:
        for made_with, page in pages:
            if made_with == options and not page.is_closed() and page.url == "about:blank":
                page.set_viewport_size(viewport)
                return page
        # One context per page: of two pages in a context only the front one is drawn.
        context = chromium.new_context(viewport=viewport, **options)
        context.add_init_script(CALM)
        pages.append((options, context.new_page()))
        return pages[-1][1]

    yield blank
    for _, page in pages:
        page.context.close()


@pytest.fixture
def open_page(blank_page: Callable[..., Page]) -> Iterator[Callable[..., Page]]:
    """Return a function that opens a page and waits for the first pictures; fail the test on console errors."""
    errors: list[str] = []
    pages = []

    def collect_error(message: ConsoleMessage) -> None:
        if message.type == "error":
            errors.append(message.text)

    def collect_exception(error: Error) -> None:
        errors.append(str(error))

    def open_one(server: Running, setting: str = "", wait: bool = True, **options: Any) -> Page:
        page = blank_page(**options)
        pages.append(page)
        page.on("console", collect_error)
        page.on("pageerror", collect_exception)
        page.goto(server.address + setting)
        if wait:
            page.wait_for_function("() => globalThis.flockView?.frame && flockView.screen.pictureCount > 2")
        return page

    yield open_one
    for page in pages:
        if not page.is_closed():
            page.remove_listener("console", collect_error)
            page.remove_listener("pageerror", collect_exception)
            leave(page)
    assert errors == []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of live flights."""
    with running(ViewerConfig(Setting(agents=40), out=tmp_path_factory.mktemp("out"))) as found:
        yield found


@pytest.fixture
def page(server: Running) -> Iterator[servers.Page]:
    """A client that stands in for a page."""
    with server.page() as found:
        yield found


@pytest.fixture(scope="session")
def run(chromium: Browser) -> Iterator[Callable[..., Any]]:
    """Return a function that runs JavaScript with a module of the page as `m` and an argument as `given`."""
    with running() as server:
        bare = chromium.new_page()
        bare.route("**/bare", lambda route: route.fulfill(content_type="text/html", body="<!doctype html>"))
        bare.goto(server.address + "bare")

        def evaluate(module: str, body: str, argument: Any = None) -> Any:
            return bare.evaluate(f"async (given) => {{ const m = await import('/{module}.js'); {body} }}", argument)

        yield evaluate
        bare.close()
