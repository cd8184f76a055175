"""The tools of the page: steer, add obstacles, remove agents, move the view."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.viewer.pages import Open, look, on_screen, pause, the_session, wait_for
from tests.viewer.servers import Running, wait_until


@pytest.mark.parametrize("how", ["keys", "mouse"])
def test_a_leader_is_steered(server: Running, open_page: Open, how: str) -> None:
    page = open_page(server, "#scenario=leaders&speed=0.1")
    leader = "[...panel.roles].indexOf(1)"
    before = look(page, "view.computeLeaderVelocity()")
    if how == "keys":
        for _ in range(5):
            page.keyboard.press("ArrowUp")
        wait_for(page, f"view.computeLeaderVelocity()[1] > {before[1] + 1.9}")
    else:
        page.keyboard.press("2")
        x, y = on_screen(page, leader)
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 60, y, steps=4)
        page.mouse.move(x + 250, y, steps=4)
        time = look(page, "view.frame.time")
        wait_for(page, f"view.computeLeaderVelocity()[0] > {before[0] + 0.5}")
        wait_for(page, f"view.frame.time > {time + 0.02}")  # time does not stand still while the hand is there
        page.mouse.up()


def test_a_clicked_agent_leads(server: Running, open_page: Open) -> None:
    page = open_page(server)
    pause(page)
    page.get_by_role("button", name="Lead and steer").click()
    page.mouse.click(*on_screen(page, "7"))
    wait_for(page, "panel.roles[7] === 1")
    page.mouse.click(*on_screen(page, "7"))
    wait_for(page, "panel.roles[7] === 0")
    page.keyboard.press("ArrowUp")
    expect(page.locator("#notices")).to_contain_text("No leaders")


def test_a_click_beside_the_flock_makes_no_leader(server: Running, open_page: Open) -> None:
    page = open_page(server)
    pause(page)
    page.keyboard.press("2")
    page.mouse.click(20, 620)
    expect(page.locator("#notices")).to_contain_text("No agent here")
    assert look(page, "Math.max(...panel.roles)") == 0


def test_clicks_draw_no_obstacles_and_all_obstacles_can_be_cleared(server: Running, open_page: Open) -> None:
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
    page.wait_for_function("() => flockView.connection.idle")
    assert look(page, "panel.disks.length") == 6
    page.get_by_role("button", name="Clear obstacles").click()
    wait_for(page, "panel.disks.length === 0")


def test_an_obstacle_is_drawn_moved_removed_and_part_of_the_address(server: Running, open_page: Open) -> None:
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


FAST = "#scenario=leaders&speed=4&controller=tanner"


def fly_fast(page: Page) -> None:
    """Let the leaders fly away, so that the camera follows."""
    page.mouse.move(400, 320)
    page.evaluate("() => flockView.actions.steer([6, 0])")
    time = look(page, "view.frame.time")
    wait_for(page, f"view.frame.time > {time + 2.5}")
    assert look(page, "view.computeLeaderVelocity()[0]") == pytest.approx(6)


def test_an_obstacle_has_the_drawn_size_though_the_flock_moves(server: Running, open_page: Open) -> None:
    page = open_page(server, FAST)
    fly_fast(page)
    page.keyboard.press("3")
    page.mouse.move(300, 560)
    page.mouse.down()
    before = look(page, "[view.screen.cameras[0].x, view.screen.cameras[0].scale, view.frame.time]")
    for x in (310, 320, 330, 340):
        page.mouse.move(x, 560)
        page.wait_for_timeout(100)
    wait_for(page, f"view.frame.time > {before[2] + 0.5}")
    after = look(page, "[view.screen.cameras[0].x, view.screen.cameras[0].scale, view.frame.time]")
    assert after[:2] == before[:2]  # the camera waits for the hand
    page.mouse.up()
    wait_for(page, "panel.disks.length === 3")
    assert look(page, "panel.disks[2]") == pytest.approx(40 / before[1], abs=0.01)
    wait_for(page, f"view.screen.cameras[0].x > {before[0] + 3}")  # and flies after the flock again


@pytest.mark.parametrize("key", ["2", "3", "4"])
def test_the_highlight_stays_under_the_pointer_while_the_camera_moves(
    server: Running, open_page: Open, key: str
) -> None:
    page = open_page(server, FAST)
    fly_fast(page)
    page.keyboard.press(key)
    page.mouse.move(420, 300)
    page.wait_for_timeout(300)
    assert look(page, "[view.tools.highlight.px, view.tools.highlight.py]") == [420, 300]
    assert look(page, "view.tools.highlight.panel") == 0


PRESS_ON = """async ([expression, presses, hold]) => {
  const view = flockView, canvas = document.getElementById("scene"), [camera] = view.screen.cameras;
  const { frame, ahead } = view.screen.picture, [panel] = frame.panels;
  const [viewport] = view.screen.viewports, bounds = canvas.getBoundingClientRect();
  const [x, y] = new Function("panel", "ahead", `return ${expression}`)(panel, ahead);
  const [px, py] = camera.toScreen(panel.origin[0] + x, panel.origin[1] + y, viewport);
  const clientX = bounds.left + viewport.x + px, clientY = bounds.top + viewport.y + py, before = camera.x;
  const send = (kind, timeStamp) => {
    const event = new PointerEvent(kind, { clientX, clientY, pointerId: 1, pointerType: "mouse", bubbles: true });
    Object.defineProperty(event, "timeStamp", { value: timeStamp });
    canvas.dispatchEvent(event);
  };
  const drawn = () => new Promise((then) => requestAnimationFrame(then));
  for (let press = 0; press < presses; press++) {
    if (press) while (camera.x < before + 0.2) await drawn();
    const pressed = view.frame.time;
    send("pointerdown", 200 * press);
    while (view.frame.time < pressed + hold) await drawn();
    send("pointerup", 200 * press + 50);
  }
}"""
"""Press, `presses` times, the place on the screen where something is now, each until the flock has flown for `hold`.

The camera has flown on by 0.2 before the second press. Events carry times of a quick hand, however slow the machine is.
"""

AGENT = """[0, 1].map((k) => {
  const i = 2 * 5 + k, { positions, velocities, accelerations } = panel;
  return positions[i] + velocities[i] * ahead + accelerations[i] * ahead * ahead / 2;
})"""


def test_a_click_selects_the_agent_under_the_pointer_at_press(server: Running, open_page: Open) -> None:
    page = open_page(server, FAST.replace("leaders", "leaders:leaders=1") + "&seed=3")
    wait_for(page, "panel.roles[5] === 0")
    fly_fast(page)
    page.keyboard.press("2")
    page.evaluate(PRESS_ON, [AGENT, 1, 0.3])
    wait_for(page, "panel.roles[5] === 1")
    assert look(page, "[...panel.roles].reduce((sum, role) => sum + role, 0)") == 2


def test_a_double_click_removes_an_obstacle_that_moves_past(server: Running, open_page: Open) -> None:
    page = open_page(server, FAST)
    fly_fast(page)
    page.keyboard.press("3")
    at = look(page, "[panel.origin[0], panel.origin[1] + 2]")
    page.evaluate("([x, y]) => flockView.actions.addDisk({ x, y, radius: 0.2 })", at)
    wait_for(page, "panel.disks.length === 3")
    page.evaluate(PRESS_ON, ["panel.disks.slice(0, 2)", 2, 0.01])
    wait_for(page, "panel.disks.length === 0")


def test_an_obstacle_drawn_across_two_panels_belongs_to_the_first(server: Running, open_page: Open) -> None:
    page = open_page(server, "#compare=tanner-dynamic")
    pause(page)
    page.keyboard.press("3")
    page.mouse.move(300, 500)
    page.mouse.down()
    page.mouse.move(340, 500, steps=4)
    scale = look(page, "view.screen.cameras[0].scale")  # cameras stand still while the pointer is down
    page.mouse.up()
    wait_for(page, "panel.disks.length === 3")
    assert look(page, "panel.disks[2]") == pytest.approx(min(max(40 / scale, 0.15), 3), abs=0.01)


def test_brushed_agents_are_removed(server: Running, open_page: Open) -> None:
    page = open_page(server)
    pause(page)
    page.keyboard.press("4")
    page.mouse.move(*on_screen(page, "0"))
    page.mouse.down()
    page.mouse.move(*on_screen(page, "1"), steps=8)
    page.mouse.up()
    wait_for(page, "panel.agents < 39")
    wait_until(lambda: f"{look(page, 'panel.agents')} agents" in page.locator(".titles").inner_text())


def test_scattering_raises_the_velocity_variance(server: Running, open_page: Open) -> None:
    page = open_page(server, "#speed=4&agents=100")
    wait_for(page, "panel.metricValues[0] < 0.05")
    pause(page)
    page.keyboard.press("s")
    wait_for(page, "panel.metricValues[0] > 3")


def test_the_checkbox_switches_the_orbit_technique(server: Running, open_page: Open) -> None:
    page = open_page(server)
    expect(page.get_by_label("Orbit technique")).to_be_hidden()  # without obstacles
    page.evaluate("() => flockView.actions.addDisk({ x: 9, y: 9, radius: 0.3 })")
    page.get_by_label("Orbit technique").uncheck()
    page.wait_for_function("() => flockView.connection.idle")
    session = the_session(server)
    wait_until(lambda: session.current.flights[0].sensing.orbit is None)
    assert "orbit=0" in page.url


def test_the_camera_pans_zooms_and_resumes_following(server: Running, open_page: Open) -> None:
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
