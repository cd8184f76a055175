"""Helpers to inspect a page in the browser and wait for it."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.image import imread
from playwright.sync_api import Page

from tests.viewer.servers import Running, wait_until

Open = Callable[..., Page]


def look(page: Page, expression: str) -> Any:
    """Evaluate an expression on the page; `view` is its View, `panel` the first panel of its frame."""
    return page.evaluate(f"() => {{ const view = flockView, panel = view.frame?.panels[0]; return {expression}; }}")


def wait_for(page: Page, expression: str) -> None:
    page.wait_for_function(
        f"() => {{ const view = flockView, panel = view.frame?.panels[0]; return panel && ({expression}); }}"
    )


def pixels(page: Page) -> np.ndarray:
    """Return the pixels of the canvas, without elements above it: (height, width, 3), from 0 to 1."""
    content = page.locator("#scene").evaluate("(canvas) => canvas.toDataURL().split(',')[1]")
    return imread(io.BytesIO(base64.b64decode(content)), format="png")[:, :, :3]


def on_screen(page: Page, agent: str) -> tuple[float, float]:
    """Return the window coordinates of an agent of the first panel; `agent` is an expression for its index."""
    place = look(
        page,
        f"""(() => {{
            const i = {agent}, viewport = view.screen.viewports[0], canvas = document.getElementById("scene");
            const x = panel.origin[0] + panel.positions[2 * i], y = panel.origin[1] + panel.positions[2 * i + 1];
            const at = view.screen.cameras[0].toScreen(x, y, viewport), bounds = canvas.getBoundingClientRect();
            return [bounds.left + viewport.x + at[0], bounds.top + viewport.y + at[1]];
        }})()""",
    )
    return place[0], place[1]


def the_session(server: Running) -> Any:
    """Return the session of the only page, once sessions of earlier tests have ended."""
    wait_until(lambda: len(server.sessions) == 1)
    return next(iter(server.sessions))


def pause(page: Page) -> None:
    page.get_by_role("button", name="Pause").click()
    wait_for(page, "!view.playing && view.connection.idle")


def leave(page: Page) -> None:
    """Leave the server and clear the page for reuse."""
    if page.url != "about:blank":
        page.evaluate("() => localStorage.clear()")
        page.mouse.up()
        page.mouse.move(0, 0)
        page.goto("about:blank")
