"""On phones and desktops no elements overlap, and what should be in sight is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import pytest
from playwright.sync_api import Page

import equiflock as ef
from equiflock.viewer.setting import Setting
from equiflock.viewer.viewer_config import ViewerConfig
from tests.viewer.pages import Open, leave
from tests.viewer.servers import Running, running

SIZES = [(320, 568), (390, 844), (568, 320), (844, 390)]
LONG = "Saved, from 1.20 s on, when agents, obstacles or bodies last changed: somewhere/runs/view/2026-01-02-030405"

# What a person reads or presses, each with the numbers of those that it is part of. What is seen of those in the
# sidebar and its settings is what these have not scrolled away, nor the curves cover.
BOXES = """() => {
  const kinds = "button, select, input, output, label, summary, figure, h1, .titles span, .legend, #notices p,"
    + " .unseen p, #tools, #transport, #sidebar, #picture, #sidebar header, footer";
  const seen = (element) => {
    const style = getComputedStyle(element), { width, height } = element.getBoundingClientRect();
    return element.checkVisibility() && style.opacity !== "0" && width > 1 && height > 1
      && !element.closest(".visually-hidden, dialog");
  };
  const elements = [...document.querySelectorAll(kinds)].filter(seen);
  const clips = ["settings", "sidebar"].map((id) => document.getElementById(id));
  const dock = document.getElementById("plots"), covered = dock.getBoundingClientRect();
  const isAbove = getComputedStyle(dock).position === "sticky";
  return elements.map((element) => {
    let { left, top, right, bottom } = element.getBoundingClientRect();
    for (const clip of clips.filter((clip) => clip.contains(element) && clip !== element)) {
      const edge = clip.getBoundingClientRect();
      [top, bottom] = [Math.max(top, edge.top), Math.min(bottom, edge.bottom)];
    }
    if (isAbove && clips[1].contains(element) && clips[1] !== element && !dock.contains(element))
      top = Math.max(top, covered.bottom);
    const within = elements.flatMap((other, i) => (other !== element && other.contains(element) ? [i] : []));
    return { name: element.id || `${element.tagName} ${element.textContent.trim().slice(0, 20)}`,
             left, top, right, bottom, within };
  });
}"""

# Names, widths and heights of what is pressed; a label belongs to its input.
TARGETS = """(all) => all.map((element) => {
  const { width, height } = (element.closest("label") ?? element).getBoundingClientRect();
  return [element.id || element.outerHTML.slice(0, 60), width, height];
})"""


def visible(page: Page) -> list[dict[str, Any]]:
    return [{**box, "number": i} for i, box in enumerate(page.evaluate(BOXES))]


def check(page: Page, width: int, height: int) -> None:
    boxes = visible(page)
    shown = [box for box in boxes if box["bottom"] - box["top"] > 0.5]
    assert len(shown) > 10
    for box in shown:
        assert box["left"] >= -0.5, box
        assert box["top"] >= -0.5, box
        assert box["right"] <= width + 0.5, box
        assert box["bottom"] <= height + 0.5, box
    for one, other in combinations(shown, 2):
        if one["number"] in other["within"] or other["number"] in one["within"]:
            continue
        across = min(one["right"], other["right"]) - max(one["left"], other["left"])
        down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
        assert min(across, down) < 1, (one["name"], other["name"])
    for element in ("html", "#sidebar", "#tools", "#transport", ".titles span"):
        for hidden in page.locator(element).evaluate_all("(all) => all.map((e) => e.scrollWidth - e.clientWidth)"):
            assert hidden <= 1, element
    for element in ("#tools", "#transport"):
        assert page.locator(element).evaluate("(e) => e.scrollHeight - e.clientHeight") <= 1, element
    if page.evaluate("() => matchMedia('(pointer: coarse)').matches"):  # then targets have the size of a finger
        for name, target, height in page.locator("button:visible, select:visible, summary:visible").evaluate_all(
            TARGETS
        ):
            assert min(target, height) >= 40, name
        for name, _, height in page.locator("input:visible:not([type=radio]), .segments span:visible").evaluate_all(
            TARGETS
        ):
            assert height >= 40, name


@contextmanager
def servers_of(kind: str, server: Running) -> Iterator[tuple[Running, str]]:
    if kind == "playback":
        run = ef.simulate(ef.random_disk(flocks=2, agents=15), ef.load("tanner"), duration=0.5)
        with running(ViewerConfig(flights=[run])) as found:
            yield found, ""
    else:
        yield server, {"live": "", "compare": "#compare=tanner-dynamic&scenario=obstacles"}[kind]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(ViewerConfig(Setting(agents=40))) as found:
        yield found


@pytest.mark.parametrize("kind", ["live", "compare", "playback"])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_no_elements_overlap(server: Running, open_page: Open, kind: str, width: int, height: int) -> None:
    phone = {"viewport": {"width": width, "height": height}, "has_touch": True, "is_mobile": True}
    with servers_of(kind, server) as (found, address):
        page = open_page(found, address, **phone)
        page.evaluate("() => flockView.play(false)")
        page.wait_for_timeout(200)
        check(page, width, height)
        page.evaluate("(text) => flockView.notices.show(text, { sticky: true })", LONG)
        check(page, width, height)
        page.evaluate(
            "() => { flockView.notices.dismissExcept(); document.getElementById('sidebar').scrollTop = 1e6; }"
        )
        page.evaluate("() => { for (const camera of flockView.screen.cameras) camera.pan(1e5, 0); }")
        page.evaluate("() => flockView.screen.requestRedraw()")
        page.wait_for_function("() => document.querySelector('.unseen p').checkVisibility()")
        page.evaluate("() => flockView.notices.show('Searching for a start …', { action: { text: 'Cancel' } })")
        check(page, width, height)
        leave(page)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_sliders_and_legend_do_not_overlap_other_elements(
    server: Running, open_page: Open, width: int, height: int
) -> None:
    page = open_page(server, "#packet_loss=0.3&edges=1&body=unicycle", viewport={"width": width, "height": height})
    page.evaluate("() => { for (const kind of ['silent', 'stopped', 'drifting']) flockView.actions.fail(kind, 5); }")
    page.wait_for_function("() => flockView.frame.panels[0].conditions.some(Boolean)")
    page.evaluate("() => flockView.play(false)")
    page.wait_for_timeout(300)
    check(page, width, height)
    page.locator("#repair").scroll_into_view_if_needed()
    check(page, width, height)


def test_a_rotated_phone_shows_the_flock_as_large_as_possible(server: Running, open_page: Open) -> None:
    page = open_page(server, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    for width, height in ((390, 844), (844, 390)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(300)
        check(page, width, height)
        bounds = page.locator("#scene").bounding_box()
        assert bounds is not None
        assert bounds["width"] * bounds["height"] > 0.3 * width * height
        inside = page.locator("#scene").evaluate("(canvas) => [canvas.width, canvas.height]")
        assert inside == pytest.approx([bounds["width"], bounds["height"]], abs=1)


def test_curves_stay_in_sight_show_their_values_and_enlarge(server: Running, open_page: Open) -> None:
    page = open_page(server, "#controller=cucker-smale&compare=tanner-dynamic&speed=1")
    page.locator("#environment-more summary").click()
    curve = page.get_by_role("slider", name="RMS acceleration")
    for width, height in ((1440, 900), (1024, 768), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(200)
        for canvas in page.locator(".plot canvas").all():
            box = canvas.bounding_box()
            assert box is not None
            assert box["height"] > 30
            assert box["y"] + box["height"] < height
        inside = curve.evaluate("(canvas) => [canvas.width, canvas.height, canvas.clientWidth, canvas.clientHeight]")
        assert inside[:2] == pytest.approx(inside[2:], abs=1)
    page.set_viewport_size({"width": 1024, "height": 768})
    page.wait_for_function("() => flockView.frame.time > 0.3")
    page.evaluate("() => flockView.play(false)")
    page.wait_for_timeout(300)  # the values of the last picture
    values = page.locator(".plot output b")
    before = values.all_inner_texts()
    curve.hover()
    page.wait_for_function("(before) => document.querySelector('.plot output b').textContent !== before", arg=before[0])
    assert " at " in str(curve.get_attribute("aria-valuetext"))
    page.mouse.move(0, 0)
    assert values.all_inner_texts() == before
    curve.focus()
    page.keyboard.press("Home")
    assert str(curve.get_attribute("aria-valuetext")).endswith("at 0.00 s")
    page.keyboard.press("Enter")
    assert curve.evaluate("(canvas) => canvas.clientHeight") > 200
    page.keyboard.press("Escape")
    assert curve.evaluate("(canvas) => canvas.clientHeight") < 100
