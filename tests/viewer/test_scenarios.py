"""The page offers every scenario of the server with inputs for its options, and shows groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from playwright.sync_api import expect

import equiflock as ef
from equiflock.scenarios.obstacle_shapes import add_obstacle, ring
from equiflock.viewer.setting import Setting
from equiflock.viewer.viewer_config import ViewerConfig
from tests.viewer.pages import Open, look, pause, pixels, the_session, wait_for
from tests.viewer.servers import Running, running

YELLOW, GREEN = np.array([0xF0, 0xE4, 0x42]) / 255, np.array([0x19, 0xB5, 0x8B]) / 255
"""Colours of the first two groups in the dark theme."""


@dataclass(frozen=True)
class Meeting:
    """Groups in a row, which fly to the right, and rings far ahead."""

    disk: ef.RandomDisk = field(default_factory=lambda: ef.RandomDisk(comm_radius=1.5))
    groups: int = 2
    """How many groups there are."""
    gap: float = 3.0
    """How far apart they are."""
    rings: bool = True
    """Whether anything stands in the way."""

    def draw(self, stop: ef.scenarios.Stop | None = None) -> ef.Flock:
        start = self.disk.draw(stop)
        groups = np.arange(start.shape[1])[None] % self.groups
        positions = start.positions + self.gap * np.stack([np.zeros_like(groups), groups], axis=2)
        flock = ef.Flock(positions, np.full_like(positions, 1.0), groups=groups, comm_radius=start.comm_radius)
        for y in (0.0, 5.0) if self.rings else ():
            flock = add_obstacle(flock, ring((30.0, y), 0.5, sides=12))
        return flock


@pytest.fixture
def meeting(own_registry: None) -> Iterator[Running]:
    ef.scenario("meeting")(Meeting)
    with running(ViewerConfig(Setting(agents=40, controller="tanner"))) as found:
        yield found


def test_scenarios_of_a_plugin_are_in_the_menu_with_inputs_for_their_options(meeting: Running, open_page: Open) -> None:
    page = open_page(meeting)
    names = page.locator("#scenario label").all_inner_texts()
    assert names == [name.capitalize() for name in sorted(ef.scenario_names())]
    page.locator("#scenario").get_by_text("Meeting").click()
    wait_for(page, "view.state.setting.scenario === 'meeting' && panel.disks.length === 6")
    expect(page.locator(".titles")).to_contain_text("Meeting, 40 agents")
    page.get_by_text("More settings").click()
    assert page.locator("#options label").all_inner_texts() == ["Groups", "Gap", "Rings"]
    expect(page.locator("#options .row").first).to_have_attribute("title", "How many groups there are.")
    expect(page.locator("#comm_radius")).to_have_value("1.5")
    page.get_by_label("Gap").fill("2.5")
    page.get_by_label("Gap").press("Enter")
    wait_for(page, "view.state.setting.options.gap === 2.5")
    page.get_by_label("Rings").uncheck()
    wait_for(page, "view.state.setting.options.rings === false && panel.disks.length === 0")
    assert "scenario=meeting:gap=2.5:rings=false&" in page.url
    assert the_session(meeting).current.setting.options == {"gap": 2.5, "rings": False}
    other = open_page(meeting, page.url.removeprefix(meeting.address))
    assert look(other, "view.state") == look(page, "view.state")
    page.locator("#scenario").get_by_text("Flocking").click()
    wait_for(page, "view.state.setting.scenario === 'flocking' && view.frame.step >= 0")
    assert look(page, "view.state.setting.options") == {}
    expect(page.locator("#options")).to_be_empty()


def test_a_refused_option_is_reported_and_changes_nothing(server: Running, open_page: Open) -> None:
    page = open_page(server, "#scenario=obstacles:sides=30")
    page.get_by_text("More settings").click()
    page.get_by_label("Sides").fill("2")
    page.get_by_label("Sides").press("Enter")
    expect(page.locator("#notices")).to_contain_text("sides must be a whole number of at least 3; got 2")
    expect(page.get_by_label("Sides")).to_have_value("30")
    assert "scenario=obstacles:sides=30&" in page.url


def near(image: np.ndarray, colour: np.ndarray) -> int:
    """Count the pixels of about this colour."""
    return int((np.abs(image - colour).max(axis=2) < 0.08).sum())


def test_groups_have_colours_that_the_legend_explains(meeting: Running, open_page: Open) -> None:
    page = open_page(meeting, "#scenario=meeting&trails=0", color_scheme="dark")
    pause(page)
    expect(page.locator(".groups")).to_have_text("group 0group 1")
    expect(page.locator(".compass")).to_be_hidden()
    assert min(near(pixels(page), colour) for colour in (YELLOW, GREEN)) > 100
    page.evaluate("() => { location.hash = '#scenario=meeting:groups=1&trails=0'; }")
    wait_for(page, "view.state.setting.options.groups === 1 && view.connection.idle")
    expect(page.locator(".groups")).to_be_hidden()
    expect(page.locator(".compass")).to_be_visible()


def test_a_reset_restores_cleared_obstacles_of_the_scenario(meeting: Running, open_page: Open) -> None:
    page = open_page(meeting, "#scenario=meeting")
    pause(page)
    page.evaluate("() => flockView.actions.addDisk({ x: 9, y: 9, radius: 0.3 })")
    wait_for(page, "panel.disks.length === 9")
    page.evaluate("() => flockView.actions.moveDisk(2, 8, 8)")
    wait_for(page, "view.state.setting.disks[0].x === 8")
    page.evaluate("() => flockView.actions.removeDisk(0)")
    wait_for(page, "panel.disks.length === 6 && view.actions.scenarioObstacleCount === 1")
    page.get_by_role("button", name="Clear obstacles").click()
    wait_for(page, "panel.disks.length === 0 && view.state.setting.disks.length === 0")
    page.get_by_role("button", name="Reset").click()
    wait_for(page, "panel.disks.length === 6 && view.actions.scenarioObstacleCount === 2")


def test_the_orbit_checkbox_shows_the_scenarios_choice(meeting: Running, open_page: Open) -> None:
    page = open_page(meeting, "#scenario=meeting")
    expect(page.get_by_label("Orbit technique")).not_to_be_checked()
    page.get_by_label("Orbit technique").check()
    wait_for(page, "view.state.setting.orbit === true")
    assert the_session(meeting).current.flights[0].sensing.orbit == ef.Orbit()


def test_a_long_scenario_flies_in_real_time_unless_the_user_chose_a_speed(server: Running, open_page: Open) -> None:
    page = open_page(server)
    speed, choose = page.locator("#speed"), page.locator("#scenario").get_by_text
    expect(speed).to_have_value("0.25")
    choose("Formation").click()
    wait_for(page, "view.state.setting.scenario === 'formation' && view.state.look.speed === 1")
    expect(speed).to_have_value("1")
    page.go_back()
    wait_for(page, "view.state.setting.scenario === 'flocking' && view.state.look.speed === 0.25")
    speed.select_option("2")
    choose("Goal").click()
    wait_for(page, "view.state.setting.scenario === 'goal'")
    expect(speed).to_have_value("2")
    for address, value in (("#scenario=corridor", "1"), ("#scenario=corridor&speed=0.25", "0.25")):
        page.evaluate("(hash) => { location.hash = hash; }", address)
        wait_for(page, "view.state.setting.scenario === 'corridor' && view.connection.idle")
        expect(speed).to_have_value(value)
