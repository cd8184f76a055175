"""The page in a real browser, as a user would use it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

import equiflock as ef
from equiflock.viewer.session import Session
from equiflock.viewer.setting import Setting
from equiflock.viewer.viewer_config import ViewerConfig
from tests.viewer.pages import Open, leave, look, on_screen, pause, pixels, the_session, wait_for
from tests.viewer.servers import Running, running, wait_until

PHONE = {"viewport": {"width": 390, "height": 780}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}


def test_a_flock_is_drawn_in_many_colours(server: Running, open_page: Open) -> None:
    page = open_page(server)
    image = pixels(page)
    background = image[5, 500]
    drawn = np.abs(image - background).max(axis=2) > 0.25
    assert 300 < drawn.sum() < 0.2 * drawn.size
    shown = image[drawn]
    assert shown.std(axis=0).min() > 0.03  # a flock that does not agree yet has every hue


def test_the_flock_plays_pauses_and_advances_by_single_steps(server: Running, open_page: Open) -> None:
    page = open_page(server)
    wait_for(page, "view.frame.time > 0.2")
    pause(page)
    step = look(page, "view.frame.step")
    page.wait_for_timeout(200)
    assert look(page, "view.frame.step") == step
    page.get_by_role("button", name="Single step").click()
    wait_for(page, f"view.frame.step === {step + 1}")
    page.keyboard.press(".")
    wait_for(page, f"view.frame.step === {step + 2}")
    page.keyboard.press("Space")
    wait_for(page, f"view.frame.step > {step + 10}")
    page.get_by_role("button", name="Reset").click()
    wait_for(page, f"view.frame.step < {step}")


def test_plots_show_the_metrics_as_the_flock_reaches_consensus(server: Running, open_page: Open) -> None:
    page = open_page(server, "#speed=4&agents=100")
    wait_for(page, "panel.metricValues[0] < 0.1")
    names = page.locator("figcaption").all_inner_texts()
    words = (
        "Velocity variance",
        "Components",
        "Min. separation",
        *(f"{kind} acceleration" for kind in ("Mean", "RMS", "Peak")),
    )
    for name, word in zip(names, words, strict=True):
        assert word in name
        assert any(digit in name for digit in "0123456789")


def test_another_controller_starts_the_same_flock_again(server: Running, open_page: Open) -> None:
    page = open_page(server)
    pause(page)
    page.get_by_role("button", name="Reset").click()
    wait_for(page, "view.frame.step === 0")
    before = look(page, "[...panel.positions]")
    page.keyboard.press(".")
    wait_for(page, "view.frame.step === 1")
    page.locator("#controller").select_option("tanner-dynamic")
    wait_for(page, "view.frame.step === 0")
    assert look(page, "view.state.setting.controller") == "tanner-dynamic"
    assert look(page, "[...panel.positions]") == before
    expect(page.locator(".titles")).to_contain_text("Tanner, dynamic")
    page.locator("#controller").select_option("tdagnn")
    page.locator("#controller-seed").select_option("3")
    wait_for(page, "view.state.setting.controller === 'tdagnn:3'")
    session = the_session(server)
    assert session.current.setting.controller == "tdagnn:3"


def test_agents_seed_and_time_step_can_be_chosen(server: Running, open_page: Open) -> None:
    page = open_page(server)
    page.locator("#agents").fill("75")
    page.locator("#agents").press("Enter")
    wait_for(page, "panel.agents === 75")
    expect(page.locator(".titles")).to_contain_text("75 agents")
    page.get_by_role("button", name="Next", exact=True).click()
    wait_for(page, "view.state.setting.seed === 1")
    session = the_session(server)
    assert (session.current.setting.seed, session.current.setting.agents) == (1, 75)
    page.get_by_text("More settings").click()
    page.locator("#time_step").fill("0.005")
    page.locator("#time_step").press("Enter")
    wait_for(page, "view.state.setting.time_step === 0.005 && view.frame.time > 0.05")


def test_two_controllers_fly_in_lockstep_from_the_same_start(server: Running, open_page: Open) -> None:
    page = open_page(server)
    pause(page)
    page.locator("#compare").select_option("tanner-dynamic")
    wait_for(page, "view.frame.panels.length === 2 && view.frame.step === 0")
    assert look(page, "[...panel.positions]") == look(page, "[...view.frame.panels[1].positions]")
    page.keyboard.press("Space")
    wait_for(page, "view.frame.step > 30")
    pause(page)
    session = the_session(server)
    first, second = session.current.flights
    assert first.step == second.step == look(page, "view.frame.step")
    assert look(page, "[...panel.positions]") != look(page, "[...view.frame.panels[1].positions]")
    assert len(page.locator("figcaption").first.locator("b").all()) == 2
    image = pixels(page)
    half = image.shape[1] // 2
    for side in (image[:, :half], image[:, half:]):
        assert (np.abs(side - image[5, half - 20]).max(axis=2) > 0.25).sum() > 200


def test_a_panel_without_visible_agents_offers_to_show_all(server: Running, open_page: Open) -> None:
    page = open_page(server, "#compare=tanner-dynamic")
    text = page.get_by_text("All are out of view")
    page.wait_for_timeout(200)
    expect(text).to_have_count(2)
    for i in (0, 1):
        expect(text.nth(i)).to_be_hidden()
    page.evaluate("() => { flockView.screen.cameras[1].pan(1e5, 0); }")
    expect(text.nth(1)).to_be_visible()
    expect(text.nth(0)).to_be_hidden()
    page.get_by_role("button", name="Show all").click()
    expect(text.nth(1)).to_be_hidden()
    in_sight = """[...view.frame.panels[1].roles.keys()].every((i) => {
      const { origin, positions } = view.frame.panels[1], viewport = view.screen.viewports[1];
      const at = [0, 1].map((k) => origin[k] + positions[2 * i + k]);
      const [x, y] = view.screen.cameras[1].toScreen(...at, viewport);
      return x > 0 && y > 0 && x < viewport.width && y < viewport.height;
    })"""
    wait_for(page, in_sight)


def test_a_long_search_is_announced_and_can_be_cancelled(server: Running, open_page: Open) -> None:
    page = open_page(server)
    pause(page)
    page.get_by_text("More settings").click()
    expect(page.locator("#notices")).to_be_empty()
    page.locator("#agents").fill("3")
    page.locator("#agents").press("Enter")
    wait_for(page, "panel.agents === 3 && view.connection.idle")
    before = page.url
    page.locator("#comm_radius").fill("0.1")
    page.locator("#comm_radius").press("Enter")
    expect(page.locator("#notices")).to_contain_text("Searching for a start")
    flying = "A start with these settings is searched for. Still flying: Starling, Flocking, 3 agents."
    expect(page.locator("#searching")).to_have_text(flying)
    page.locator("#controller").select_option("reynolds")
    expect(page.locator("#controller-law")).to_have_attribute("inert", "")  # its sliders would act on what flies
    expect(page.locator("#searching")).to_have_text(flying)
    page.locator("#notices").get_by_role("button", name="Cancel").click()
    expect(page.locator("#notices")).to_have_text("Cancelled.")
    wait_for(page, "view.connection.idle")
    expect(page.locator("#comm_radius")).to_have_value("1")
    expect(page.locator("#controller")).to_have_value("starling")
    expect(page.locator("#searching")).to_be_hidden()
    expect(page.locator("#controller-law")).to_be_hidden()
    assert page.url == before
    page.keyboard.press(".")
    wait_for(page, "view.frame.step === 1")


def test_the_page_shows_the_progress_of_the_compiler(
    server: Running, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_page(server)
    expect(page.locator("#compiling")).to_be_hidden()
    monkeypatch.setattr("equiflock._runtime.compile_progress.format_progress", lambda: "compiling kernels: 3 of 5")
    page.evaluate("flockView.restartWith({ agents: 3, comm_radius: 0.1 })")  # there is no such start
    expect(page.locator("#compiling")).to_have_text("compiling kernels: 3 of 5")
    page.locator("#notices").get_by_role("button", name="Cancel").click()
    expect(page.locator("#compiling")).to_be_hidden()


def test_another_choice_cancels_a_search(server: Running, open_page: Open) -> None:
    page = open_page(server, "#agents=3&controller=tanner")
    page.get_by_text("More settings").click()
    page.locator("#comm_radius").fill("0.1")
    page.locator("#comm_radius").press("Enter")
    expect(page.locator("#notices")).to_contain_text("Searching for a start")
    page.locator("#comm_radius").fill("1.5")
    page.locator("#comm_radius").press("Enter")
    wait_for(page, "view.state.setting.comm_radius === 1.5 && view.frame.step < 40")
    expect(page.locator("#notices")).to_be_empty()


def test_enter_in_a_box_returns_the_focus_to_the_flock(server: Running, open_page: Open) -> None:
    page = open_page(server)
    page.locator("#agents").fill("20")
    page.locator("#agents").press("Enter")
    wait_for(page, "panel.agents === 20")
    page.keyboard.press("3")
    assert look(page, "view.tools.tool") == "obstacle"
    page.locator("#scene").click()
    expect(page.locator("#notices")).to_have_text("Drag to draw an obstacle.")
    page.keyboard.press("4")
    expect(page.locator("#notices")).to_be_empty()  # it was about the other tool
    expect(page.locator("#agents")).to_have_value("20")
    page.locator("#agents").fill("77")
    page.locator("#agents").press("Escape")
    expect(page.locator("#agents")).to_have_value("20")
    page.keyboard.press("1")
    assert look(page, "view.tools.tool") == "pan"
    assert look(page, "panel.agents") == 20


def test_the_theme_is_that_of_the_system_until_the_user_chooses(server: Running, open_page: Open) -> None:
    page = open_page(server, color_scheme="light", reduced_motion="reduce")
    assert pixels(page)[5, 500].mean() > 0.9
    page.emulate_media(color_scheme="dark")
    wait_until(lambda: pixels(page)[5, 500].mean() < 0.15)
    page.get_by_role("button", name="Switch to light theme").click()
    wait_until(lambda: pixels(page)[5, 500].mean() > 0.9)
    expect(page.get_by_role("button", name="Switch to dark theme")).to_be_visible()
    page.emulate_media(color_scheme="light")
    # The system asked for less motion, too: the flight waits, and the camera jumps.
    assert not look(page, "view.playing")
    expect(page.locator("#notices")).to_contain_text("Paused, as your system asks for less motion.")
    page.keyboard.press("-")
    before = look(page, "view.screen.cameras[0].scale")
    count = look(page, "view.screen.pictureCount")
    page.keyboard.press("f")
    wait_for(page, f"view.screen.pictureCount > {count}")
    assert look(page, "view.screen.cameras[0].scale") == pytest.approx(before / 0.8)
    page.locator("#notices").get_by_role("button", name="Play").click()
    wait_for(page, "view.frame.step > 2")
    expect(page.locator("#notices")).to_be_empty()


def test_the_label_of_the_grid_follows_the_camera(server: Running, open_page: Open) -> None:
    page = open_page(server)
    pause(page)
    label = page.locator(".scale")
    before = label.inner_text()
    for _ in range(8):
        page.keyboard.press("-")
    expect(label).not_to_have_text(before)
    page.keyboard.press("f")
    expect(label).to_have_text(before)  # long after the last metrics


def test_the_page_can_be_used_on_a_phone(server: Running, open_page: Open) -> None:
    page = open_page(server, **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Pause").tap()
    wait_for(page, "!view.playing")
    page.get_by_role("button", name="Help").tap()
    words = page.get_by_role("dialog").inner_text()
    assert "tap an agent" in words
    for word in ("wheel", "arrow", "click"):
        assert word not in words
    page.get_by_role("button", name="Close", exact=True).tap()
    page.get_by_role("button", name="Remove agents").tap()
    page.touchscreen.tap(*on_screen(page, "0"))
    wait_for(page, "panel.agents < 40")
    page.locator("#save").scroll_into_view_if_needed()
    expect(page.locator("#save")).to_be_in_viewport()


def test_a_flight_is_saved_by_its_button(server: Running, open_page: Open) -> None:
    page = open_page(server, "#controller=tanner")
    pause(page)
    page.get_by_role("button", name="Save flight").click()
    expect(page.locator("#notices")).to_contain_text("Saved:", timeout=60_000)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download the film").click()
    assert download.value.path().read_bytes()[4:8] == b"ftyp"


def test_a_failed_flight_is_reported_and_reset_starts_it_again(own_registry: None, open_page: Open) -> None:
    class Late:
        senses = ef.paper_senses("mean", hops=1)
        born = 0

        def __init__(self) -> None:
            Late.born += 1
            self.left = 20 if Late.born < 3 else 10**9

        def __call__(self, observations: np.ndarray) -> np.ndarray:
            self.left -= 1
            return np.full((*observations.shape[:2], 2), 0.0 if self.left >= 0 else np.nan)

    ef.controller("late")(Late)
    with running(ViewerConfig(Setting(controller="late"))) as server:
        page = open_page(server)
        expect(page.locator("#notices")).to_contain_text("The flight failed: the controller returned NaN")
        page.locator("#notices").get_by_role("button", name="Reset").click()
        wait_for(page, "view.frame.step > 40")
        expect(page.locator("#notices")).to_be_empty()
        leave(page)


def test_a_lost_connection_is_reported_and_restored(open_page: Open, chromium: Any) -> None:
    context = chromium.new_context()
    page = context.new_page()  # its console tells of the lost connection, as it should
    with running(ViewerConfig(Setting(agents=20))) as server:
        page.goto(server.address + "#seed=5")
        page.wait_for_function("() => globalThis.flockView?.frame")
        port = server.port
    expect(page.locator("#notices")).to_contain_text("Connection lost")
    with running(ViewerConfig(Setting(agents=20)), port) as server:
        assert server.port == port
        page.wait_for_function("() => flockView.frame", timeout=20_000)
        expect(page.locator("#notices")).to_contain_text("Reconnected")
        assert look(page, "view.state.setting.seed") == 5
        context.close()


def test_a_frozen_server_is_reported_until_it_answers(
    server: Running, open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_page(server)
    awake, receive = threading.Event(), Session._receive
    # Requests are received in the server's event loop, which then stands still.
    monkeypatch.setattr(Session, "_receive", lambda *given: (awake.wait(20), receive(*given))[1])
    expect(page.locator("#notices")).to_contain_text("The server has stopped answering", timeout=15_000)
    step = look(page, "view.frame.step")
    awake.set()
    expect(page.locator("#notices")).to_be_empty()
    wait_for(page, f"view.frame.step > {step}")


def test_a_saved_flight_is_played_with_a_slider(open_page: Open) -> None:
    run = ef.simulate(ef.random_disk(flocks=2, agents=15), ef.load("tanner"), duration=0.5)
    with running(ViewerConfig(flights=[run])) as server:
        page = open_page(server, "#speed=4")
        assert not page.locator("#setting").is_visible()
        wait_for(page, "view.frame.step === 50 && !view.playing")  # pauses at the last frame
        page.locator("#slider").fill("20")
        wait_for(page, "view.frame.step === 20")
        shown = np.array(look(page, "[...panel.positions].map((p, i) => p + panel.origin[i % 2])")).reshape(-1, 2)
        assert np.allclose(shown, run.positions[20, 0], atol=1e-5)
        page.locator("#scene").focus()
        page.keyboard.press("ArrowRight")
        wait_for(page, "view.frame.step === 21")
        page.locator("#flock").fill("1")
        page.locator("#flock").press("Enter")
        wait_for(page, "view.state.flock === 1")
        assert "flock=1" in page.url
        wait_for(page, "view.connection.idle && view.frame.step === 0")
        shown = np.array(look(page, "[...panel.positions].map((p, i) => p + panel.origin[i % 2])")).reshape(-1, 2)
        assert np.allclose(shown, run.positions[0, 1], atol=1e-5)
        other = open_page(server, "#flock=7")
        expect(other.locator("#notices")).to_contain_text("flock must be below 2")
        assert look(other, "view.state.flock") == 0
        for each in (page, other):
            leave(each)


def test_help_shows_the_keys(server: Running, open_page: Open) -> None:
    page = open_page(server)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("brush over agents")
    page.get_by_role("button", name="Close", exact=True).click()
    expect(page.get_by_role("dialog")).to_be_hidden()
