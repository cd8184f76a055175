"""The address of the page holds the setting and restores it; invalid addresses change nothing."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.viewer.pages import Open, look, wait_for
from tests.viewer.servers import Running


def test_a_link_restores_the_setting(server: Running, open_page: Open) -> None:
    page = open_page(server)
    page.get_by_text("Leaders", exact=True).first.click()
    wait_for(page, "view.state.setting.scenario === 'leaders'")
    page.locator("#agents").fill("33")
    page.locator("#agents").press("Enter")
    wait_for(page, "panel.agents === 33")
    page.locator("#compare").select_option("tdagnn")
    wait_for(page, "view.frame.panels.length === 2")
    page.get_by_label("Trails").uncheck()
    page.get_by_label("Communication graph").check()
    page.locator("#speed").select_option("2")
    wait_for(page, "panel.edges.pairs.length > 0")
    other = open_page(server, page.url.removeprefix(server.address))
    assert other.url == page.url
    assert look(other, "view.state") == look(page, "view.state")
    assert other.locator("#agents").input_value() == "33"
    assert other.locator("#compare").input_value() == "tdagnn"


def test_back_and_forward_undo_and_redo_a_setting(server: Running, open_page: Open) -> None:
    page = open_page(server, "#packet_loss=0.5&agents=30")
    page.locator("#agents").fill("33")
    page.locator("#agents").press("Enter")
    wait_for(page, "panel.agents === 33")
    wait_for(page, "view.frame.step > 5 && view.connection.idle")
    for value in ("0.1", "0.2", "0.3"):
        page.locator("#packet_loss").fill(value)
    wait_for(page, "view.state.setting.environment.packet_loss === 0.3 && view.connection.idle")
    assert page.evaluate("history.state.position") == 2  # the ticks of a slider are one entry
    page.get_by_label("Trails").uncheck()
    step = look(page, "view.frame.step")
    page.go_back()
    wait_for(page, f"view.state.setting.environment.packet_loss === 0.5 && view.frame.step > {step}")  # in flight
    expect(page.locator("#packet_loss")).to_have_value("0.5")
    assert "packet_loss=0.5" in page.url
    assert "trails=0" in page.url  # which is no part of what is undone
    page.locator("#scene").focus()
    page.keyboard.press("Control+z")
    wait_for(page, "panel.agents === 30 && view.connection.idle")
    assert "agents=30" in page.url
    page.keyboard.press("Control+z")  # there is nothing to undo: the page stays
    page.go_forward()
    wait_for(page, "panel.agents === 33 && view.connection.idle")
    page.keyboard.press("Control+Shift+z")
    wait_for(page, "view.state.setting.environment.packet_loss === 0.3")
    assert page.evaluate("history.state.position") == 2
    page.evaluate("() => flockView.actions.addDisk({ x: 9, y: 9, radius: 0.3 })")
    wait_for(page, "panel.disks.length === 3 && view.frame.step > 5")
    page.evaluate("() => flockView.actions.moveDisk(0, 8, 8)")
    wait_for(page, "view.state.setting.disks[0].x === 8")
    step = look(page, "view.frame.step")
    for undo, disks in (("Control+z", 3), ("Control+z", 0), ("Control+Shift+z", 3)):  # the obstacle, in flight, too
        page.keyboard.press(undo)
        wait_for(page, f"panel.disks.length === {disks} && view.connection.idle && view.frame.step > {step}")
    assert look(page, "view.state.setting.disks") == [{"x": 9, "y": 9, "radius": 0.3}]


def test_a_refused_setting_changes_nothing(server: Running, open_page: Open) -> None:
    page = open_page(server, "#scenario=leaders")
    before = page.url
    page.get_by_text("More settings").click()
    page.locator("#option-leaders").fill("80")
    page.locator("#option-leaders").press("Enter")
    expect(page.locator("#notices")).to_contain_text("leaders must be fewer than agents")
    expect(page.locator("#option-leaders")).to_have_value("2")
    assert page.url == before
    assert look(page, "view.state.setting.options") == {}
    page.locator("#seed").fill("4")
    page.locator("#seed").press("Enter")
    wait_for(page, "view.state.setting.seed === 4")


def test_an_invalid_address_is_reported_and_the_initial_setting_starts(server: Running, open_page: Open) -> None:
    page = open_page(server, "#agents=999999999&comm_radius=banana")
    expect(page.locator("#notices")).to_contain_text("agents")
    assert look(page, "panel.agents") == 40


def test_a_changed_address_starts_its_flight_and_an_invalid_one_changes_nothing(
    server: Running, open_page: Open
) -> None:
    page = open_page(server)
    page.evaluate("() => { location.hash = '#agents=25&scenario=leaders'; }")
    wait_for(page, "panel.agents === 25")
    before = look(page, "view.state.setting")
    page.evaluate("() => { location.hash = '#agents=25&scenario=leaders:leaders=90'; }")
    expect(page.locator("#notices")).to_contain_text("leaders must be fewer")
    assert look(page, "view.state.setting") == before
    assert "scenario=leaders&" in page.url
    time = look(page, "view.frame.time")
    wait_for(page, f"view.frame.time > {time + 0.05}")
