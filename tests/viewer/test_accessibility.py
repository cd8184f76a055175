"""The page can be used by everybody: axe-core finds no serious violation, and colours have the contrast of WCAG AA."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock.plotting.player import PLAYER_DIR
from equiflock.viewer.viewer_config import ViewerConfig
from tests.viewer.pages import Open, leave, wait_for
from tests.viewer.reports import build_report
from tests.viewer.servers import Running, running

AXE = Path(__file__).parent / "axe/node_modules/axe-core/axe.min.js"
MISSING = "there is no axe-core, so the accessibility of the live view was NOT tested: run `make browser`"
DESKTOPS = [(1440, 900), (1024, 768)]
PHONE = (390, 844)
# Rules of WCAG 2.2 AA and axe-core's own; of both only those with serious consequences count.
RUN = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations.filter(({ impact }) => ["serious", "critical"].includes(impact))
    .flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`));
}"""
OPEN_ALL = """() => {
  for (const details of document.querySelectorAll("details")) details.open = true;
  flockView.actions.fail("stopped", 3);
  flockView.inspector.inspect(4);
  flockView.notices.show("No agent here", { isError: true, sticky: true, action: { text: "OK" } });
}"""

# Parts of a palette that only separate or fill, and numbers.
FAINT = ["background", "hairline", "grid", "disk", "lightness", "chroma", "trail"]


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which `make browser` installs."""
    if not AXE.exists():
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return AXE.read_text()


def check(page: Any, axe: str, sizes: list[tuple[int, int]]) -> None:
    """Check the page as it is, in both themes and at all sizes."""
    page.evaluate("() => flockView.play(false)")
    page.evaluate(axe)  # by the debugger, as the page loads no foreign script
    for (width, height), theme in product(sizes, ("dark", "light")):
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=theme)
        page.wait_for_function("(theme) => document.documentElement.dataset.theme === theme", arg=theme)
        assert page.evaluate(RUN) == [], (width, height, theme)


@pytest.mark.parametrize("sizes", [DESKTOPS, [PHONE]], ids=["desktop", "phone"])
def test_axe_finds_no_serious_violation(
    server: Running, open_page: Open, axe: str, sizes: list[tuple[int, int]]
) -> None:
    viewport = {"width": sizes[0][0], "height": sizes[0][1]}
    options = {"viewport": viewport, **({"has_touch": True, "is_mobile": True} if sizes == [PHONE] else {})}
    page = open_page(server, **options)
    check(page, axe, sizes)
    page.locator("#help").click()
    check(page, axe, sizes)
    page.get_by_role("button", name="Close", exact=True).click()
    page.evaluate("location.hash = 'controller=cucker-smale&compare=tanner&packet_loss=0.3&scenario=obstacles&edges=1'")
    wait_for(page, "view.frame.panels.length === 2")
    page.evaluate(OPEN_ALL)
    wait_for(page, "panel.conditions.some(Boolean) && view.inspector.drawing")
    check(page, axe, sizes)
    leave(page)
    run = ef.simulate(ef.random_disk(flocks=2, agents=15), ef.load("tanner"), duration=0.1)
    with running(ViewerConfig(flights=[run])) as saved:
        page = open_page(saved, **options)
        check(page, axe, sizes)
        leave(page)


def test_axe_finds_no_serious_violation_in_a_report(blank_page: Callable[..., Any], axe: str, tmp_path: Path) -> None:
    page = blank_page()
    page.goto(build_report().write(tmp_path / "report.html").as_uri())
    page.evaluate(axe)
    page.wait_for_function("() => document.querySelector('.equiflock-player').player.screen?.pictureCount > 2")
    page.evaluate("() => { for (const details of document.querySelectorAll('details')) details.open = true; }")
    for (width, height), theme in product([DESKTOPS[0], PHONE], ("dark", "light")):
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=theme)
        page.wait_for_function(
            "(theme) => document.querySelector('.equiflock-player').dataset.theme === theme", arg=theme
        )
        assert page.evaluate(RUN) == [], (width, height, theme)
    page.emulate_media(color_scheme="no-preference")
    leave(page)


def parse_colour(text: str) -> tuple[Any, float]:
    """Return the red, green and blue of #rrggbb or #rrggbbaa, and its opacity, from 0 to 1."""
    numbers = [int(text[k : k + 2], 16) / 255 for k in range(1, len(text), 2)]
    return np.array(numbers[:3]), numbers[3] if len(numbers) > 3 else 1.0


def compute_contrast(colour: str, background: str) -> float:
    """Return the contrast ratio of WCAG, from 1 to 21."""
    ground, _ = parse_colour(background)
    paint, opacity = parse_colour(colour)
    luminances = []
    for mixed in (opacity * paint + (1 - opacity) * ground, ground):
        linear = np.where(mixed <= 0.04045, mixed / 12.92, ((mixed + 0.055) / 1.055) ** 2.4)
        luminances.append(float(linear @ [0.2126, 0.7152, 0.0722]) + 0.05)
    return max(luminances) / min(luminances)


def test_colours_have_the_contrast_of_wcag_aa(run: Callable[..., Any]) -> None:
    rules = re.findall(r":root[^{]*\{([^}]*)\}", (PLAYER_DIR / "theme.css").read_text())
    dark, light = (dict(re.findall(r"--([\w-]+): (#\w+);", rule)) for rule in rules[:2])
    palettes = run("player/palettes", "return m.PALETTES;")
    for theme, colours in (("dark", dark), ("light", light)):
        for background in ("ground", "sheet", "raised"):
            texts = ["ink", "faint", "accent", "first", "second", "bad"]
            texts += ["third", "fourth", "good"] if background != "raised" else []
            for text in texts:
                assert compute_contrast(colours[text], colours[background]) >= 4.5, (theme, text, background)
            assert compute_contrast(colours["border"], colours[background]) >= 3, (theme, background)
        assert compute_contrast(colours["on-accent"], colours["accent"]) >= 4.5
        graphics = {name: value for name, value in palettes[theme].items() if name not in FAINT}
        for name in ("groups", "channels"):
            graphics |= {f"{name} {k}": colour for k, colour in enumerate(graphics.pop(name))}
        for name, colour in graphics.items():
            assert compute_contrast(colour, palettes[theme]["background"]) >= 3, (theme, name)
