"""Saved pages play in a browser, without a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import equiflock as ef
from equiflock.plotting.html_report import HtmlReport

TITLE = "</script><b>bold</b>"
PHONE = {"width": 390, "height": 844}


@pytest.fixture
def page(blank_page: Callable[..., Page]) -> Iterator[Page]:
    """A page that fails the test on errors."""
    page = blank_page()
    errors: list[str] = []

    def collect(error: Any) -> None:
        errors.append(str(error))

    page.on("pageerror", collect)
    yield page
    page.remove_listener("pageerror", collect)
    page.goto("about:blank")
    assert errors == []


def fly(controller: str = "tanner", dimensions: int = 2) -> ef.Trajectory:
    return ef.simulate(ef.random_disk(agents=20, dimensions=dimensions, seed=1), ef.load(controller), duration=1.0)


def look(page: Page, expression: str) -> Any:
    """Evaluate an expression; `players` are those of the page."""
    text = "() => { const players = [...document.querySelectorAll('.equiflock-player')].map((host) => host.player);"
    return page.evaluate(f"{text} return {expression}; }}")


def wait_for(page: Page, expression: str) -> None:
    text = "() => { const players = [...document.querySelectorAll('.equiflock-player')].map((host) => host.player);"
    page.wait_for_function(f"{text} return {expression}; }}")


def test_players_of_a_report_play_together_scrub_and_show_values(page: Page, tmp_path: Path) -> None:
    report = HtmlReport("Report", "Two players.")
    report.add_table(["a long header " * 3] * 9, [["1"] * 9])
    report.add_player([fly(), fly("tanner-dynamic")], "Two flights.", titles=[TITLE, "law"], group="all")
    report.add_player([fly("etdagnn")], "One flight.", group="all")
    page.goto(report.write(tmp_path / "report.html").as_uri())
    first = page.locator(".equiflock-player").first
    expect(first.locator(".titles")).to_contain_text(TITLE)
    assert page.locator("b", has_text="bold").count() == 0
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), { text: 'evil = 1' }))")
    assert page.evaluate("typeof evil") == "undefined"  # only the player's script runs
    wait_for(page, "players[0].timeline.time > 0.1")  # it plays when it is seen
    first.get_by_role("button", name="Pause").click()
    first.get_by_role("slider", name="Time", exact=True).focus()
    for key, time in (("Home", 0.0), ("ArrowRight", 0.01), ("End", 1.0)):
        page.keyboard.press(key)
        assert look(page, "players.map((player) => player.timeline.time)") == pytest.approx([time, time])
    wait_for(page, "players[0].screen.picture.frame.step === 100")
    values = first.locator(".plot output b")
    before = values.all_inner_texts()
    assert len(before) == 12
    curve = first.get_by_role("slider", name="Velocity variance")
    curve.hover(position={"x": 35, "y": 30})
    assert values.all_inner_texts() != before
    curve.click()
    assert curve.evaluate("(canvas) => canvas.clientHeight") > 150
    page.keyboard.press("Escape")
    first.get_by_role("button", name="Links").click()
    assert look(page, "players.map((player) => player.look.edges)") == [True, False]
    first.get_by_role("button", name="theme").click()
    assert look(page, "new Set(players.map((player) => player.screen?.theme ?? 'light')).size") == 1
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_only_players_near_the_window_have_a_context(page: Page, tmp_path: Path) -> None:
    report = HtmlReport("Report", "Many players.")
    for _ in range(12):
        report.add_player([fly()], "A flight.")
    page.goto(report.write(tmp_path / "report.html").as_uri())
    wait_for(page, "players[0].isLive && players[0].screen.pictureCount > 2")
    for last in (11, 0):
        page.locator(".equiflock-player").nth(last).scroll_into_view_if_needed()
        wait_for(page, f"players[{last}].isLive && !players[{11 - last}].isLive")
        count = look(page, f"players[{last}].screen.pictureCount")
        wait_for(page, f"players[{last}].screen.pictureCount > {count}")
    assert look(page, "players.filter((player) => player.isLive).length") <= 6


def test_a_notebook_shows_still_pictures_in_frames_if_motion_is_reduced(page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    frame = ef.show(fly(dimensions=3))._repr_html_()
    page.set_content(f'{frame}<div style="height: 3000px"></div>{frame}')
    first = page.frame_locator("iframe").first
    expect(first.locator(".picture.waiting")).to_be_visible()
    expect(first.locator(".notes")).to_have_text("Seen from above.")
    first.get_by_role("button", name="Play").focus()
    page.keyboard.press("Enter")
    expect(first.locator(".bar output")).not_to_have_text("0.00 / 1.00 s")
    page.locator("iframe").last.scroll_into_view_if_needed()  # frames out of sight give their context back
    expect(page.frame_locator("iframe").last.locator(".picture.waiting")).to_be_visible()
    expect(first.locator("canvas.scene[hidden]")).to_have_count(0)
    page.emulate_media(reduced_motion="no-preference")
