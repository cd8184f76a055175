"""The tool "inspect" of the page: an agent is clicked, drawn with its neighbours, described, and followed."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import equiflock as ef
from equiflock.viewer.viewer_config import ViewerConfig
from tests.viewer.pages import Open, look, on_screen, pause, the_session, wait_for
from tests.viewer.servers import Running, running

COUNT_OPAQUE = """(layer) => {
    const { data } = layer.getContext("2d").getImageData(0, 0, layer.width, layer.height);
    let count = 0;
    for (let k = 3; k < data.length; k += 4) count += data[k] > 250;
    return count;
}"""
"""Counts the pixels of the layer that are drawn, not only dimmed."""


def follow(page: Page) -> None:
    page.get_by_role("button", name="Follow", exact=True).click()


def test_an_agent_of_two_live_flights_is_inspected_and_followed(server: Running, open_page: Open) -> None:
    page = open_page(server, "#controller=etdagnn&compare=reynolds&packet_loss=0.2")
    pause(page)
    card, layer = page.locator("#inspection"), page.locator(".inspection-layer")
    expect(card).to_be_hidden()
    assert look(page, "view.inspector.drawing") is None
    page.keyboard.press("5")
    page.mouse.click(*on_screen(page, "7"))
    expect(card.locator("h2")).to_have_text("Agent 7")
    live = the_session(server).current.flights
    # The numbers of the card are those of the flight, while it is paused.
    for panel, (terms, flight) in enumerate(zip((0, 3), live, strict=True)):
        section = card.locator("section").nth(panel)
        total = section.locator("tr.acceleration .value")
        size = float(np.linalg.norm(flight.accelerations[0, 7]))
        assert float(total.inner_text()) == pytest.approx(size, rel=0.01, abs=0.006)
        assert section.locator("table").count() == (2 if terms else 1)
    expect(card).to_contain_text("cohesion")
    expect(card).to_contain_text("remainder")
    expect(layer).to_be_visible()
    drawn = layer.evaluate(COUNT_OPAQUE)
    assert drawn > 500
    # A channel that is switched off has no arrows.
    card.get_by_role("button", name="μ velocity").first.click()
    page.wait_for_function(f"() => ({COUNT_OPAQUE})(document.querySelector('.inspection-layer')) < {drawn}")
    # The view follows the agent, in both panels, until F.
    page.keyboard.press(" ")
    follow(page)
    wait_for(page, "view.screen.cameras.every((camera) => camera.agent === 7)")
    step = look(page, "view.frame.step")
    offset = "[0, 1].map((k) => panel.origin[k] + panel.positions[14 + k] - view.screen.cameras[0]['xy'[k]])"
    wait_for(page, f"view.frame.step > {step + 5} && Math.hypot(...{offset}) < 0.3")
    page.keyboard.press("f")
    wait_for(page, "view.screen.cameras.every((camera) => camera.agent === null)")
    pause(page)
    # While agents are removed, the same agent is shown; once it is removed itself, the card says so.
    for remove, shown in ((2, "Agent 6"), (6, "not in the flock")):
        place = look(page, f"[0, 1].map((k) => panel.origin[k] + panel.positions[{2 * remove} + k])")
        page.evaluate(f"() => flockView.actions.removeAgents([{place}], 0, 0.02)")
        expect(card).to_contain_text(shown)
    page.keyboard.press("Enter")
    expect(card).to_contain_text("the next step shows")  # the flock has changed since the last one
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()
    expect(layer).to_be_hidden()
    page.wait_for_function("() => !flockView.connection.isWaitingFor('watch')")


def test_a_saved_agent_is_inspected_by_touch(open_page: Open) -> None:
    run, other = (
        ef.simulate(ef.random_disk(agents=agents, seed=1), ef.load("etdagnn"), duration=0.4) for agents in (30, 40)
    )
    with running(ViewerConfig(flights=[run, other])) as server:
        page = open_page(server, viewport={"width": 390, "height": 844}, has_touch=True)
        pause(page)
        page.get_by_role("button", name="Inspect an agent").tap()
        page.touchscreen.tap(*on_screen(page, "4"))
        card = page.locator("#inspection")
        expect(card.locator("h2")).to_have_text("Agent 4")
        expect(card.locator("h3")).to_have_text(["ETDAGNN", "ETDAGNN"])
        size = np.linalg.norm(run.accelerations[look(page, "view.frame.step"), 0, 4])
        shown = card.locator("tr.acceleration .value").first.inner_text()
        assert float(shown) == pytest.approx(size, rel=0.01, abs=0.006)
        # The card covers no part of the flock.
        box, scene = card.bounding_box(), page.locator("#scene").bounding_box()
        assert box
        assert scene
        assert box["y"] >= scene["y"] + scene["height"]
        assert card.evaluate("(card) => card.scrollWidth <= card.clientWidth")
        page.locator("#slider").evaluate("(slider) => { slider.value = 30; slider.dispatchEvent(new Event('input')); }")
        wait_for(page, "view.frame.step === 30 && view.inspector.drawing !== null && view.connection.idle")
        # A tap beside the flock ends the inspection.
        page.touchscreen.tap(12, scene["y"] + scene["height"] - 12)
        expect(card).to_be_hidden()
