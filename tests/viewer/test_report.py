"""Reports in a browser: tables are sorted, charts are read, flights are chosen, and a page prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.viewer.pages import leave
from tests.viewer.reports import build_report

PHONE = {"width": 390, "height": 844}
A4 = {"width": 688, "height": 1000}
"""What the margins leave of a sheet, at 96 pixels per inch."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_report().write(tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture
def page(blank_page: Callable[..., Page], file: Path) -> Iterator[Page]:
    """The report in a browser; errors of scripts, and whatever the policy refuses, fail the test."""
    page = blank_page()
    errors: list[str] = []

    def collect_error(error: Any) -> None:
        errors.append(str(error))

    def collect_message(message: Any) -> None:
        if message.type == "error":
            errors.append(message.text)

    page.on("pageerror", collect_error)
    page.on("console", collect_message)
    page.emulate_media(reduced_motion="reduce")
    page.goto(file.as_uri())
    page.wait_for_function("() => document.querySelector('.equiflock-player').player")
    yield page
    page.remove_listener("pageerror", collect_error)
    page.remove_listener("console", collect_message)
    page.emulate_media(reduced_motion="no-preference", media="screen", color_scheme="no-preference")
    leave(page)
    assert errors == []


def test_a_heading_sorts_a_table_by_click_and_by_enter(page: Page) -> None:
    table = page.locator("table").first

    def read(column: int) -> list[str]:
        return table.locator(f"tbody tr td:nth-child({column})").all_inner_texts()

    heading = table.get_by_role("columnheader", name="value")
    for direction, names in (("ascending", ["c", "b", "a"]), ("descending", ["b", "c", "a"])):
        heading.get_by_role("button").click()
        expect(heading).to_have_attribute("aria-sort", direction)
        assert read(1) == names  # by number, 9.5 before 10, and without a value last
    table.get_by_role("button", name="name").focus()
    page.keyboard.press("Enter")
    assert read(1) == ["a", "b", "c"]
    assert heading.get_attribute("aria-sort") is None
    table.get_by_role("button", name="verdict").click()
    assert read(3) == ["holds", "partly", "fails"]


def test_a_chart_shows_values_by_pointer_and_by_arrow_keys(page: Page) -> None:
    chart = page.locator(".chart.lines").first
    at, value = chart.locator(".at"), chart.locator(".legend output").first
    expect(at).to_have_text("time 2 s")
    last = value.inner_text()
    plot = chart.locator(".plot")
    width = plot.evaluate("(element) => element.clientWidth")
    plot.hover(position={"x": 0.29 * width, "y": 100})
    expect(at).to_have_text("time 0.6 s")
    expect(value).to_have_text("0.549 (0.274, 1.098)")
    expect(plot.locator(".cursor")).to_have_attribute("x1", "30%")
    page.mouse.move(0, 0)
    expect(value).to_have_text(last)
    reader = chart.get_by_role("slider", name="Read value")
    reader.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(at).to_have_text("time 0.2 s")
    assert "time 0.2 s, starling 0.819" in (reader.get_attribute("aria-valuetext") or "")


def test_bars_tell_their_values_at_the_focus(page: Page) -> None:
    bar = page.get_by_role("img", name="packet loss, tanner")
    tip = page.locator(".bar-row", has=bar).locator(".tip")
    expect(tip).to_be_hidden()
    bar.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    expect(tip).to_be_visible()
    expect(tip).to_have_text("tanner: 20% [10%, 30%]; best: 50%")
    assert bar.evaluate("(svg) => document.getElementById(svg.getAttribute('aria-describedby')).textContent") == (
        "20% [10%, 30%]; best: 50%"
    )


def test_an_entry_of_a_menu_loads_its_flights_into_the_player(page: Page) -> None:
    menu = page.locator(".flight-menu")
    host = menu.locator(".equiflock-player")
    expect(host.locator(".titles span")).to_have_text([r"success15 agents", "failure15 agents"])
    menu.get_by_role("radio", name="First").focus()
    page.keyboard.press("ArrowDown")  # the second one, whose flights have other times
    expect(host.locator(".titles span")).to_have_text(["short15 agents", "long15 agents"])
    expect(host.locator(".bar output")).to_have_text("0.00 / 0.30 s")
    host.get_by_role("slider", name="Time", exact=True).focus()
    page.keyboard.press("End")
    page.wait_for_function(
        "() => document.querySelector('.flight-menu .equiflock-player').player.screen.picture.frame?.step"
    )
    assert host.evaluate("(host) => host.player.screen.cameras.length") == 2
    page.get_by_role("link", name="play").last.click()  # in a table below
    expect(menu.get_by_role("radio", name="Third")).to_be_checked()
    expect(menu.get_by_role("radio", name="Third")).to_be_focused()
    expect(host.locator(".titles span")).to_have_count(1)
    expect(host).to_be_in_viewport()
    assert host.get_attribute("aria-label") == "Flight: Tanner, dynamic"
    assert page.locator(".equiflock-player").count() == 3  # a context each, whatever the number of entries


def test_entries_that_are_chosen_at_once_show_the_last_one(page: Page) -> None:
    page.wait_for_function("() => document.querySelector('.equiflock-player').player.screen?.picture.frame")
    page.evaluate("""() => {
        for (const k of [1, 2, 0, 2]) document.querySelectorAll(".flight-list input")[k].click();
    }""")
    page.wait_for_function(
        "() => document.querySelector('.equiflock-player').player.screen.picture.frame?.panels.length === 1"
    )
    expect(page.locator(".equiflock-player").first.locator(".titles span")).to_have_count(1)


def test_page_and_players_have_the_theme_of_the_system_or_of_the_button(page: Page) -> None:
    def read_grounds() -> set[str]:
        hosts = "[...document.querySelectorAll('.equiflock-player')].map((host) => host.player.element)"
        return set(
            page.evaluate(
                f"[...{hosts}.map((each) => getComputedStyle(each).backgroundColor),"
                " getComputedStyle(document.querySelector('.chart')).backgroundColor]"
            )
        )

    for theme, ground in (("dark", "rgb(18, 24, 38)"), ("light", "rgb(255, 255, 255)")):
        page.emulate_media(color_scheme=theme)
        page.wait_for_function(
            "(theme) => document.querySelector('.equiflock-player').dataset.theme === theme", arg=theme
        )
        assert read_grounds() == {ground}
    page.locator(".equiflock-player").first.get_by_role("button", name="theme").click()
    assert read_grounds() == {"rgb(18, 24, 38)"}


def test_nothing_is_wider_than_a_phone(page: Page) -> None:
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    wide = page.locator(".scroll").nth(1)
    assert wide.evaluate("(box) => box.scrollWidth > box.clientWidth")
    assert wide.get_attribute("tabindex") == "0"  # by arrow keys, too


def test_on_paper_nothing_is_cut_and_there_are_no_controls(page: Page) -> None:
    page.wait_for_function("() => document.querySelector('.equiflock-player').player.screen?.picture.frame")
    page.emulate_media(media="print", color_scheme="dark")
    expect(page.locator(".equiflock-player").first).to_have_attribute("data-theme", "dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    # Wide tables are on turned sheets.
    page.set_viewport_size({"width": A4["height"], "height": A4["width"]})
    wide = page.locator(".wide")
    assert wide.count() == 1
    assert wide.evaluate("(box) => box.scrollWidth <= box.clientWidth + 1 && getComputedStyle(box).page") == "wide"
    page.set_viewport_size(A4)
    cut = page.evaluate("""() => [...document.querySelectorAll("main *:not(.wide, .wide *)")]
        .filter((each) => each.getClientRects().length && !each.closest(".visually-hidden, .tip, svg"))
        .filter((each) => each.getBoundingClientRect().right > innerWidth + 1 || each.scrollWidth > each.clientWidth + 1
            && getComputedStyle(each).display !== "inline" && getComputedStyle(each).overflowX !== "visible")
        .map((each) => each.outerHTML.slice(0, 100))""")
    assert cut == []
    host = page.locator(".equiflock-player").first
    for control in (host.locator(".bar"), page.locator(".flight-list"), page.locator(".plot input").first):
        expect(control).to_be_hidden()
    expect(host.locator("canvas.scene").nth(1)).to_be_visible()  # a copy, as WebGL may be blank on paper
    assert host.get_attribute("data-theme") == "light"
    assert page.evaluate("getComputedStyle(document.querySelector('.chart')).backgroundColor") == "rgb(255, 255, 255)"
    expect(page.locator("details.settings pre")).to_be_visible()
    chips = page.locator(".verdict .chip")
    assert set(chips.evaluate_all("(chips) => chips.map((chip) => getComputedStyle(chip).color)")) == {"rgb(0, 0, 0)"}
    borders = chips.evaluate_all("(chips) => chips.map((chip) => getComputedStyle(chip).borderTopStyle)")
    assert len(set(borders)) == 4  # distinguishable without colours
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert host.get_attribute("data-theme") == "dark"
    expect(page.locator("details.settings pre")).to_be_hidden()
