"""Laws on the page: sliders change their options in flight."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

import equiflock as ef
from equiflock._runtime.checks import is_finite
from equiflock.controllers.registry import controller_options
from equiflock.controllers.trained import DESCRIPTIONS
from equiflock.viewer.setting import Setting
from equiflock.viewer.viewer_config import ViewerConfig
from tests.viewer.pages import Open, leave, look, pause, the_session, wait_for
from tests.viewer.servers import Running, running, wait_until


def options_of(server: Running, panel: int = 0) -> Any:
    """Return the options of a panel's law."""
    return the_session(server).current.setting.controller_specs[panel][1]


def test_a_slider_changes_the_law_in_flight_and_a_reset_keeps_it(server: Running, open_page: Open) -> None:
    page = open_page(server)
    expect(page.locator("#controller-law")).to_be_hidden()  # a network has no numbers to play with
    expect(page.locator("#controller-help")).to_have_text(DESCRIPTIONS["starling"])
    page.locator("#controller").select_option("cucker-smale-local")
    wait_for(page, "view.state.setting.controller === 'cucker-smale-local' && view.connection.idle")
    expect(page.locator("#controller-law")).to_be_visible()
    expect(page.locator("#controller-help")).to_contain_text("a flock that splits stays split")
    pause(page)
    step = look(page, "view.frame.step")
    page.locator("#controller-slider-beta").fill("1.2")
    expect(page.locator("#controller-option-beta")).to_have_value("1.2")
    wait_for(page, "view.connection.idle")
    assert options_of(server) == {"beta": 1.2}
    assert the_session(server).current.flights[0].sensing.senses == ef.load("cucker-smale-local", beta=1.2).senses
    assert look(page, "view.frame.step") == step  # it goes on where it was
    assert "controller=cucker-smale-local:beta=1.2&" in page.url
    page.get_by_role("button", name="Reset").click()
    wait_for(page, "view.frame.step === 0 && view.connection.idle")
    assert options_of(server) == {"beta": 1.2}
    other = open_page(server, page.url.removeprefix(server.address))
    expect(other.locator("#controller-slider-beta")).to_have_value("1.2")
    assert look(other, "view.state.setting.controller_options") == {"beta": 1.2}
    page.locator("#controller-defaults").click()
    wait_for(page, "view.connection.idle")
    expect(page.locator("#controller-option-beta")).to_have_value("0.4")
    expect(page.locator("#controller-defaults")).to_be_hidden()
    assert "beta" not in page.url


def test_boxes_menus_and_checkboxes_change_a_law(server: Running, open_page: Open) -> None:
    page = open_page(server, "#controller=tanner")
    box, slider = page.locator("#controller-option-clamp"), page.locator("#controller-slider-clamp")
    box.fill("1000")  # beyond the end of the slider
    box.press("Enter")
    wait_until(lambda: options_of(server) == {"clamp": 1000})
    expect(slider).to_have_value("1000")
    box.fill("")
    box.press("Enter")
    wait_until(lambda: options_of(server) == {"clamp": None})
    expect(box).to_have_value("")
    page.locator("#controller-option-clamp_by").select_option("entry")
    page.locator("#controller-option-cut_off").uncheck()
    wait_until(lambda: options_of(server) == {"clamp": None, "clamp_by": "entry", "cut_off": False})
    assert "controller=tanner:clamp=none:clamp_by=entry:cut_off=false&" in page.url
    # Another law has other options.
    page.locator("#controller").select_option("reynolds")
    wait_for(page, "view.state.setting.controller === 'reynolds' && view.connection.idle")
    expect(page.locator("#controller-option-cut_off")).to_have_count(0)
    assert options_of(server) == {}


def test_the_second_law_has_separate_sliders(server: Running, open_page: Open) -> None:
    page = open_page(server, "#controller=reynolds&compare=reynolds:cohesion=8")
    expect(page.locator("#compare-slider-cohesion")).to_have_value("8")
    # At once, as two hands would: neither takes the place of the other.
    page.evaluate(
        """() => {
          for (const [id, value] of [["controller", 2], ["compare", 3], ["controller", 1]]) {
            const slider = document.getElementById(`${id}-slider-cohesion`);
            slider.value = value;
            slider.dispatchEvent(new Event("input"));
          }
        }"""
    )
    wait_for(page, "view.connection.idle")
    wait_until(lambda: (options_of(server, 0), options_of(server, 1)) == ({"cohesion": 1}, {"cohesion": 3}))
    assert look(page, "view.state.setting.compare_options") == {"cohesion": 3}
    page.locator("#compare").select_option("")
    wait_for(page, "view.frame.panels.length === 1")
    expect(page.locator("#compare-law")).to_be_hidden()
    assert "compare=&" in page.url


def test_a_refused_number_is_reset_to_its_previous_value(server: Running, open_page: Open) -> None:
    page = open_page(server, "#controller=reynolds:cohesion=8")
    box = page.locator("#controller-option-cohesion")
    box.fill("-3")
    box.press("Enter")
    expect(page.locator("#notices")).to_contain_text("cohesion must be a finite number of at least 0; got -3")
    expect(box).to_have_value("8")
    assert "reynolds:cohesion=8&" in page.url
    time = look(page, "view.frame.time")
    wait_for(page, f"view.frame.time > {time + 0.05}")


def test_an_invalid_law_in_the_address_is_reported_and_the_initial_setting_starts(
    server: Running, open_page: Open
) -> None:
    page = open_page(server, "#controller=reynolds:cohesoin=8")
    expect(page.locator("#notices")).to_contain_text("its options are clamp, alignment, cohesion")
    assert look(page, "view.state.setting.controller") == "starling"


def test_a_law_of_the_command_line_is_shown_with_its_options(open_page: Open) -> None:
    with running(ViewerConfig(Setting(agents=20, controller="cucker-smale:beta=1"))) as server:
        page = open_page(server)
        assert page.locator("#controller").input_value() == "cucker-smale"
        expect(page.locator("#controller-option-beta")).to_have_value("1")
        leave(page)


def test_a_point_of_the_command_line_is_kept_while_other_options_change(open_page: Open) -> None:
    with running(ViewerConfig(Setting(agents=20, scenario="goal", controller="gu-leader:goal=8,0"))) as server:
        page = open_page(server)
        expect(page.locator("#controller-option-goal")).to_have_count(0)
        page.locator("#controller-slider-cohesion").fill("30")
        wait_until(lambda: options_of(server) == {"goal": "8,0", "cohesion": 30})
        wait_for(page, "view.connection.idle")
        assert "gu-leader:goal=8,0:cohesion=30&" in page.url
        leave(page)


def test_a_word_in_place_of_a_number_is_the_placeholder_of_its_box(own_registry: None, open_page: Open) -> None:
    @ef.controller("calm")
    def calm(observations: Any, gain: float | str = 2.0, damping: float = 1.0) -> Any:
        return -damping * (1.0 if gain == "auto" else float(gain)) * observations[:, :, 0, 0]

    with running(ViewerConfig(Setting(agents=20, controller="calm:gain=auto"))) as server:
        page = open_page(server)
        box, slider = page.locator("#controller-option-gain"), page.locator("#controller-slider-gain")
        expect(box).to_have_value("")
        expect(box).to_have_attribute("placeholder", "auto")
        assert (slider.get_attribute("min"), slider.get_attribute("max")) == ("0", "8")
        page.locator("#controller-slider-damping").fill("2")
        wait_until(lambda: options_of(server) == {"gain": "auto", "damping": 2})
        slider.fill("3")
        wait_until(lambda: options_of(server) == {"gain": 3, "damping": 2})
        expect(box).to_have_value("3")
        leave(page)


def test_a_scenario_brings_a_law_that_suits_it_and_one_box_sets_the_pattern_of_both(
    server: Running, open_page: Open
) -> None:
    page = open_page(server, "#scenario=flocking&agents=20")
    assert look(page, "view.state.setting.controller") == "starling"
    page.locator("#scenario").get_by_text("Formation").click()
    wait_for(page, "view.state.setting.controller === 'formation' && view.connection.idle")
    expect(page.locator("#controller optgroup").first).to_have_attribute("label", "For formation")
    # The law's menu sets the pattern of the scenario, too, in flight; the scenario has no menu of its own.
    expect(page.locator("#option-pattern")).to_be_hidden()
    page.locator("#controller-option-pattern").select_option("circle")
    wait_for(page, "view.state.setting.options.pattern === 'circle' && view.connection.idle")
    assert "scenario=formation:pattern=circle&controller=formation:pattern=circle&" in page.url
    page.locator("#controller-option-pattern").select_option("word …")
    box = page.locator("#controller-option-pattern-word")
    box.press_sequentially("eq1")
    assert box.evaluate("(box) => box.validity.valid") is False
    box.press("Backspace")
    box.press("Enter")
    wait_for(page, "view.state.setting.options.pattern === 'EQ' && view.connection.idle")
    assert the_session(server).current.flights[0].options == {"pattern": "EQ"}
    assert look(page, "view.frame.step") > 0
    # A controller that the user chose stays, with an offer beside the menu.
    page.locator("#controller").select_option("etdagnn")
    offer = page.locator("#controller-offer")
    expect(offer).to_contain_text("Formation needs a controller that knows the pattern.")
    page.locator("#scenario").get_by_text("Goal").click()
    expect(offer).to_contain_text("Goal needs a controller that knows the goal.")
    assert look(page, "view.state.setting.controller") == "etdagnn"
    offer.get_by_role("button").click()
    wait_for(page, "view.state.setting.controller === 'gu-leader' && view.connection.idle")
    expect(offer).to_be_hidden()
    # Nobody chose gu-leader, so it does not stay.
    page.locator("#scenario").get_by_text("Flocking").click()
    wait_for(page, "view.state.setting.controller === 'starling' && view.connection.idle")


def test_every_law_is_in_the_menu_with_a_slider_for_every_number(server: Running, open_page: Open) -> None:
    page = open_page(server)
    groups = page.locator("#controller optgroup")
    assert [group.get_attribute("label") for group in groups.all()] == ["Trained", "Laws"]
    offered = page.locator("#controller optgroup[label=Laws] option").evaluate_all("(all) => all.map((o) => o.value)")
    assert {"reynolds", "cucker-smale", "bonding-local", "tanner-fixed"} <= set(offered)
    for name in offered:
        numbers = {option.name: option.default for option in controller_options(name) if is_finite(option.default)}
        page.evaluate("(name) => flockView.updateSetting({ controller: name })", name)
        for number, usual in numbers.items():
            slider = page.locator(f"#controller-slider-{number}")
            expect(slider).to_be_visible()
            # There is room on both sides of the default.
            low, high, step = (float(slider.get_attribute(each) or 0) for each in ("min", "max", "step"))
            assert float(slider.input_value()) == pytest.approx(usual, abs=step), (name, number)
            assert low <= usual <= 0.25 * high, (name, number)
            assert 0 <= low <= step


@pytest.mark.parametrize("size", [(1280, 800), (390, 844), (640, 360)])
def test_law_controls_fit_into_the_sidebar(server: Running, open_page: Open, size: tuple[int, int]) -> None:
    page: Page = open_page(
        server, "#controller=bonding&compare=tanner:clamp=none", viewport={"width": size[0], "height": size[1]}
    )
    wide = page.evaluate(
        "() => { const bar = document.getElementById('sidebar'); return bar.scrollWidth - bar.clientWidth; }"
    )
    assert wide <= 0
