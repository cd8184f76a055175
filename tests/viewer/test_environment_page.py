"""Radio, bodies and failures on the page: sliders change the flight, and the effect is visible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import equiflock as ef
from equiflock.viewer.viewer_config import ViewerConfig
from tests.viewer.pages import Open, leave, look, on_screen, pause, pixels, the_session, wait_for
from tests.viewer.servers import Running, running, wait_until

FAILED = {"dark": np.array([0x7D, 0x86, 0x96]) / 255, "light": np.array([0x75, 0x7A, 0x83]) / 255}

LOST = "[...panel.lostEdges.pairs, ...panel.lostEdges.singles]"


def open_environment(page: Page) -> None:
    page.get_by_text("Radio, bodies, failures", exact=True).click()


def slide(page: Page, name: str, value: str) -> None:
    page.locator(f"#{name}").fill(value)


def reds(page: Page) -> int:
    """Count the pixels that are redder than anything drawn without packet loss."""
    red, green, blue = np.moveaxis(pixels(page), 2, 0)
    return int(((red - green > 0.15) & (red - blue > 0.12)).sum())


@pytest.mark.parametrize(
    ("name", "position", "text", "radio", "body"),
    [
        ("packet_loss", "0.3", "30%", {"packet_loss": 0.3}, {}),
        ("delay", "4", "4 steps", {"delay": 4}, {}),
        ("noise", "0.05", "0.05 R", {"noise": 0.05}, {}),
        ("max_acceleration", "0", "≤ 1", {}, {"max_acceleration": 1.0}),
        ("max_acceleration", "0.98", "≤ 300", {}, {"max_acceleration": 300.0}),
        ("lag", "0.2", "0.2 s", {}, {"lag": 0.2}),
    ],
)
def test_a_slider_changes_the_current_flight(
    server: Running, open_page: Open, name: str, position: str, text: str, radio: dict[str, Any], body: dict[str, Any]
) -> None:
    page = open_page(server)
    open_environment(page)
    pause(page)
    step = look(page, "view.frame.step")
    slide(page, name, position)
    expect(page.locator(f"#{name}-value")).to_have_text(text)
    wait_for(page, "view.connection.idle")
    (live,) = the_session(server).current.flights
    assert (live.sensing.radio, live.flight.body) == (ef.Radio(**radio), ef.DoubleIntegrator(**body))
    assert look(page, "view.frame.step") == step  # it goes on where it was
    page.keyboard.press(".")
    wait_for(page, f"view.frame.step === {step + 1}")
    assert f"{name}=" in page.url


def test_a_body_has_sliders_for_its_parameters(server: Running, open_page: Open) -> None:
    page = open_page(server, "#lag=0.2&max_acceleration=30")
    expect(page.locator("#lag")).to_be_visible()  # what is out of the ordinary is not hidden
    page.locator("#body").select_option("unicycle")
    expect(page.locator("#lag")).to_be_hidden()
    slide(page, "max_turn_rate", "0")
    expect(page.locator("#max_turn_rate-value")).to_have_text("≤ 0.5/s")
    body = ef.Unicycle(max_acceleration=30.0, max_turn_rate=0.5)
    wait_until(lambda: the_session(server).current.flights[0].flight.body == body)
    slide(page, "max_acceleration", "1")
    expect(page.locator("#max_acceleration-value")).to_have_text("no limit")
    body = ef.Unicycle(max_turn_rate=0.5)
    wait_until(lambda: the_session(server).current.flights[0].flight.body == body)
    page.locator("#body").select_option("double-integrator")
    expect(page.locator("#max_turn_rate")).to_be_hidden()
    wait_until(lambda: the_session(server).current.flights[0].flight.body == ef.DoubleIntegrator())


def test_a_link_and_a_reset_restore_the_environment(server: Running, open_page: Open) -> None:
    page = open_page(server)
    open_environment(page)
    slide(page, "packet_loss", "0.25")
    slide(page, "delay", "2")
    page.locator("#body").select_option("unicycle")
    wait_for(page, "view.connection.idle && view.state.setting.environment.body === 'unicycle'")
    page.get_by_role("button", name="Reset").click()
    wait_for(page, "view.connection.idle && view.frame.step < 20")
    other = open_page(server, page.url.removeprefix(server.address))
    for each in (page, other):
        environment = look(each, "view.state.setting.environment")
        assert (environment["packet_loss"], environment["delay"], environment["body"]) == (0.25, 2, "unicycle")
        assert each.locator("#packet_loss").input_value() == "0.25"


def test_an_invalid_environment_in_the_address_is_reported_and_the_default_starts(
    server: Running, open_page: Open
) -> None:
    page = open_page(server, "#packet_loss=1.5")
    expect(page.locator("#notices")).to_contain_text("packet loss: Input should be less than or equal to 1; got 1.5")
    assert look(page, "view.state.setting.environment.packet_loss") == 0
    assert "packet_loss" not in page.url


def test_a_refused_slider_returns_to_its_previous_value(server: Running, open_page: Open) -> None:
    page = open_page(server, "#lag=0.2")
    page.evaluate("() => flockView.actions.changeEnvironment({ body: 'unicycle' })")
    expect(page.locator("#notices")).to_contain_text("body 'unicycle' has no option 'lag'")
    expect(page.locator("#body")).to_have_value("double-integrator")
    assert "unicycle" not in page.url


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_lost_messages_are_red_and_change_at_every_step(server: Running, open_page: Open, theme: str) -> None:
    page = open_page(server, "#trails=0&scenario=leaders", color_scheme=theme)
    open_environment(page)
    pause(page)
    # The flock itself may have red darts, too.
    page.get_by_label("Communication graph").check()
    wait_for(page, "panel.edges.pairs.length > 0 && view.connection.idle")
    page.wait_for_timeout(200)
    assert look(page, LOST) == []
    before = reds(page)
    page.get_by_label("Communication graph").uncheck()
    slide(page, "packet_loss", "0.5")
    expect(page.get_by_label("Communication graph")).to_be_checked()  # to see what it does
    expect(page.locator(".lost")).to_be_visible()
    page.keyboard.press(".")
    wait_for(page, "panel.lostEdges.singles.length > 50 && view.connection.idle")
    wait_until(lambda: reds(page) > before + 200)
    first = look(page, LOST)
    page.keyboard.press(".")
    wait_for(page, "view.connection.idle")
    assert look(page, LOST) != first
    slide(page, "packet_loss", "0")
    page.keyboard.press(".")
    wait_for(page, "!panel.lostEdges.pairs.length && !panel.lostEdges.singles.length && view.connection.idle")
    expect(page.locator(".lost")).to_be_hidden()


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_agents_that_fail_are_grey_until_they_are_repaired(server: Running, open_page: Open, theme: str) -> None:
    page = open_page(server, "#trails=0&speed=1", color_scheme=theme)
    wait_for(page, "view.frame.time > 0.5")
    pause(page)
    open_environment(page)
    for kind in ("silent", "stopped", "drifting"):
        page.locator("#fail-kind").select_option(kind)
        page.get_by_role("button", name="Fail 5").click()
    page.locator("#scene").focus()
    page.keyboard.press("x")
    wait_for(page, "[...panel.conditions].filter(Boolean).length === 16")
    expect(page.locator(".failed")).to_have_text("5 silent5 stopped6 drifting")
    expect(page.locator(".titles")).to_contain_text("40 agents, 16 failed")
    page.wait_for_timeout(300)
    image = pixels(page)
    grey = np.abs(image - FAILED[theme]).max(axis=2) < 0.05
    for condition in (1, 2, 3):
        x, y = on_screen(page, f"[...panel.conditions].indexOf({condition})")
        near = grey[int(y) - 12 : int(y) + 13, int(x) - 12 : int(x) + 13]
        assert near.sum() > 15, condition
    works = on_screen(page, "[...panel.conditions].indexOf(0)")
    assert not grey[int(works[1]), int(works[0])]
    page.get_by_role("button", name="Repair all").click()
    wait_for(page, "!panel.conditions.some(Boolean)")
    expect(page.locator(".failed")).to_be_hidden()
    page.wait_for_timeout(300)
    assert (np.abs(pixels(page) - FAILED[theme]).max(axis=2) < 0.05).sum() < 0.2 * grey.sum()


def test_the_camera_ignores_stopped_agents(server: Running, open_page: Open) -> None:
    page = open_page(server, "#scenario=leaders&speed=4&controller=tanner")
    page.evaluate("() => { flockView.actions.fail('stopped', 15); flockView.actions.steer([6, 0]); }")
    wait_for(page, "view.frame.time > 3")
    middle = look(
        page,
        """(() => {
          const xs = [...panel.conditions.keys()].filter((i) => !panel.conditions[i])
            .map((i) => panel.origin[0] + panel.positions[2 * i]).sort((a, b) => a - b);
          return xs[xs.length >> 1] - view.screen.cameras[0].x;
        })()""",
    )
    assert abs(middle) < 1.5


def test_failed_agents_of_a_saved_flight_are_grey_from_when_they_failed(open_page: Open) -> None:
    failures = ef.Failures(kind="stopped", agents=4, time=0.2)
    run = ef.simulate(ef.random_disk(agents=15), ef.load("tanner"), duration=0.5, failures=failures)
    with running(ViewerConfig(flights=[run])) as server:
        page = open_page(server, "#speed=0.1")
        assert not page.locator("#environment").is_visible()
        for frame, failed in ((19, 0), (20, 4)):
            page.locator("#slider").fill(str(frame))
            wait_for(page, f"view.frame.step === {frame}")
            assert look(page, "[...panel.conditions].filter(Boolean).length") == failed
        expect(page.locator(".failed")).to_have_text("4 stopped")
        leave(page)
