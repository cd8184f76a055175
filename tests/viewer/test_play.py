"""What a hand does to the flock on the page: steer, hinder, remove, look around."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.viewer.pages import Open, look, on_screen, pause, the_session, wait_for
from tests.viewer.servers import Running, wait_until


@pytest.mark.parametrize("how", ["keys", "mouse"])
def test_a_leader_is_steered(server: Running, open_page: Open, how: str) -> None:
    page = open_page(server, "#scenario=leaders&speed=0.1")
    leader = "[...panel.roles].indexOf(1)"
    before = look(page, "view.leaderVelocity()")
    if how == "keys":
        for _ in range(5):
            page.keyboard.press("ArrowUp")
        wait_for(page, f"view.leaderVelocity()[1] > {before[1] + 1.9}")
    else:
        page.keyboard.press("2")
        x, y = on_screen(page, leader)
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 60, y, steps=4)
        page.mouse.move(x + 250, y, steps=4)
        time = look(page, "view.frame.time")
        wait_for(page, f"view.leaderVelocity()[0] > {before[0] + 0.5}")
        wait_for(page, f"view.frame.time > {time + 0.02}")  # time does not stand still while the hand is there
        page.mouse.up()


def test_an_agent_that_is_clicked_leads(server: Running, open_page: Open) -> None:
    page = open_page(server)
    pause(page)
    page.get_by_role("button", name="Lead and steer").click()
    page.mouse.click(*on_screen(page, "7"))
    wait_for(page, "panel.roles[7] === 1")
    page.mouse.click(*on_screen(page, "7"))
    wait_for(page, "panel.roles[7] === 0")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#notices")).to_contain_text("Nobody leads")


def test_where_no_agent_is_nobody_leads(server: Running, open_page: Open) -> None:
    page = open_page(server)
    pause(page)
    page.keyboard.press("2")
    page.mouse.click(20, 620)
    expect(page.locator("#notices")).to_contain_text("no agent is there")
    assert look(page, "Math.max(...panel.roles)") == 0


def test_clicks_beside_obstacles_draw_none_and_all_can_be_cleared(server: Running, open_page: Open) -> None:
    page = open_page(server)
    pause(page)
    page.keyboard.press("3")
    for x in (200, 500):
        page.mouse.move(x, 540)
        page.mouse.down()
        page.mouse.move(x + 30, 540, steps=3)
        page.mouse.up()
    wait_for(page, "panel.disks.length === 6")
    page.mouse.dblclick(350, 140)
    expect(page.locator("#notices")).to_contain_text("Drag to draw an obstacle")
    page.mouse.click(200, 540, button="right")
    page.wait_for_function("() => flockView.link.idle")
    assert look(page, "panel.disks.length") == 6
    page.get_by_role("button", name="Clear obstacles").click()
    wait_for(page, "panel.disks.length === 0")


def test_an_obstacle_is_drawn_moved_and_removed_and_stands_in_the_address(server: Running, open_page: Open) -> None:
    page = open_page(server)
    pause(page)
    page.get_by_role("button", name="Obstacles").click()
    page.mouse.move(300, 500)
    page.mouse.down()
    page.mouse.move(340, 500, steps=5)
    page.mouse.up()
    wait_for(page, "panel.disks.length === 3")
    radius = 40 / look(page, "view.screen.cameras[0].scale")
    assert look(page, "panel.disks[2]") == pytest.approx(radius, rel=0.1)
    assert "disks=" in page.url
    before = look(page, "panel.disks[0] + panel.origin[0]")
    page.mouse.move(300, 500)
    page.mouse.down()
    page.mouse.move(400, 480, steps=5)
    page.mouse.up()
    wait_for(page, f"panel.disks[0] + panel.origin[0] > {before} + 90 / view.screen.cameras[0].scale")
    page.mouse.dblclick(400, 480)
    wait_for(page, "panel.disks.length === 0")
    assert "disks=" not in page.url


def test_agents_that_are_brushed_over_are_gone(server: Running, open_page: Open) -> None:
    page = open_page(server)
    pause(page)
    page.keyboard.press("4")
    page.mouse.move(*on_screen(page, "0"))
    page.mouse.down()
    page.mouse.move(*on_screen(page, "1"), steps=8)
    page.mouse.up()
    wait_for(page, "panel.agents < 39")
    wait_until(lambda: f"{look(page, 'panel.agents')} agents" in page.locator("#titles").inner_text())


def test_a_scattered_flock_agrees_no_more(server: Running, open_page: Open) -> None:
    page = open_page(server, "#speed=4&agents=100")
    wait_for(page, "panel.numbers[0] < 0.05")
    pause(page)
    page.keyboard.press("s")
    wait_for(page, "panel.numbers[0] > 3")


def test_the_orbit_technique_is_switched_by_its_box(server: Running, open_page: Open) -> None:
    page = open_page(server, "#scenario=obstacles")
    page.get_by_label("Orbit technique").uncheck()
    page.wait_for_function("() => flockView.link.idle")
    session = the_session(server)
    wait_until(lambda: session.shown.flights[0].flight.orbit is None)
    assert "orbit=0" in page.url


def test_the_camera_pans_zooms_and_follows_again(server: Running, open_page: Open) -> None:
    page = open_page(server)
    assert look(page, "view.screen.cameras[0].following")
    scale = look(page, "view.screen.cameras[0].scale")
    page.mouse.move(300, 300)
    page.mouse.wheel(0, -400)
    wait_for(page, f"view.screen.cameras[0].scale > {scale} * 1.3")
    page.mouse.down()
    page.mouse.move(500, 350, steps=4)
    page.mouse.up()
    wait_for(page, "!view.screen.cameras[0].following")
    page.keyboard.press("f")
    wait_for(page, "view.screen.cameras[0].following")
