"""Unit tests of the page's modules, run in the browser."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest


def test_a_flight_keeps_pace_with_real_time_at_any_frame_rate(run: Callable[..., Any]) -> None:
    for seconds in (1 / 144, 1 / 60, 1 / 20):
        shown = run(
            "player/flight_clock",
            """
            const player = new m.FlightClock(), times = [];
            player.begin(new m.LiveSteps(0.01));
            player.speed = 0.5;
            player.receive({ step: 0, time: 0 });
            let server = 0;
            for (let picture = 0; picture < Math.round(2 / given); picture++) {
              player.advance(given);
              times.push(player.frame.time + player.ahead);
              const { request } = player;
              if (request) {
                server += request.steps;
                player.receive({ step: server, time: server * 0.01 });
              }
            }
            return times;""",
            seconds,
        )
        assert shown == sorted(shown)
        assert shown[-1] == pytest.approx(1.0, abs=0.05)
        later = shown[len(shown) // 2 :]
        strides = [b - a for a, b in pairwise(later)]
        assert max(strides) == pytest.approx(0.5 * seconds, rel=0.05)  # smoothly, not step by step
        assert min(strides) == pytest.approx(0.5 * seconds, rel=0.05)


def test_a_slow_server_slows_time_without_jumps(run: Callable[..., Any]) -> None:
    asked = run(
        "player/flight_clock",
        """
        const player = new m.FlightClock(), asked = [];
        player.begin(new m.LiveSteps(0.01));
        player.receive({ step: 0, time: 0 });
        let server = 0;
        for (let picture = 0; picture < 300; picture++) {
          player.advance(1 / 60);
          if (picture % 30 === 29) {  // two answers a second
            const { steps } = player.request;
            asked.push(steps);
            server += steps;
            player.receive({ step: server, time: server * 0.01 });
          }
        }
        return asked;""",
    )
    assert max(asked) <= 16


def test_frames_are_shown_in_order_and_not_before_their_time(run: Callable[..., Any]) -> None:
    assert run(
        "player/flight_clock",
        """
        const player = new m.FlightClock(), frame = (step) => ({ step, time: step / 100 });
        player.begin(new m.LiveSteps(0.01));
        player.receive(frame(0));
        player.advance(0.001);
        const early = player.receive(frame(5)).length;
        const still = player.frame.step;
        const due = [player.advance(0.03), player.advance(0.03)].map((frames) => frames.map(({ step }) => step));
        player.receive(frame(9));
        const paused = player.play(false).map(({ step }) => step);
        return [early, still, due, paused, player.frame.step, player.request];""",
    ) == [0, 0, [[], [5]], [9], 9, None]


def test_a_saved_flight_ends_at_its_last_frame(run: Callable[..., Any]) -> None:
    assert run(
        "player/flight_clock",
        """
        const player = new m.FlightClock(), times = [0, 0.1, 0.2];
        player.begin(new m.SavedFrames({ times }));
        player.receive({ step: 0, time: 0 });
        const asked = [];
        let farthest = 0;
        for (let picture = 0; picture < 60; picture++) {
          player.advance(1 / 60);
          farthest = Math.max(farthest, player.ahead);
          const { request } = player;
          if (!request) continue;
          asked.push(request.frame);
          player.receive({ step: request.frame, time: times[request.frame] });
        }
        return [asked, player.ended, player.ahead, farthest > 0.08 && farthest <= 0.1];""",
    ) == [[1, 2], True, 0, True]  # agents move up to the next frame, ten time steps on


SETTING: dict[str, Any] = {
    "scenario": "obstacles",
    "options": {"sides": 12, "clear_time": 0.5, "orbit": None, "word": "a b"},
    "controller": "runs/mine & yours/weights.safetensors",
    "compare": None,
    "controller_options": {},
    "compare_options": {},
    "agents": 321,
    "seed": 7,
    "comm_radius": 1.25,
    "time_step": 0.005,
    "radius_rule": "automatic",
    "orbit": False,
    "environment": {
        "packet_loss": 0.25,
        "delay": 2,
        "noise": 0,
        "body": "unicycle",
        "max_acceleration": 5.5,
        "max_turn_rate": None,
        "lag": 0,
    },
    "disks": [{"x": -1.5, "y": 2.25, "radius": 0.5}, {"x": 0, "y": 0, "radius": 3}],
}


def test_an_address_is_read_as_it_was_written(run: Callable[..., Any]) -> None:
    state = {"setting": SETTING, "look": {"speed": 2, "edges": True, "trails": False}, "flock": 0}
    default_body = {"body": "double-integrator", "max_acceleration": None, "max_turn_rate": None}
    environment = dict.fromkeys(SETTING["environment"], 0) | default_body
    usual = {**SETTING, "agents": 100, "compare": "tanner", "disks": [], "environment": environment}
    body = "return m.readAddress(m.writeAddress(given[0], false), given[1]);"
    assert run("address", body, [state, usual]) == state
    undecided = {**state, "setting": {**SETTING, "comm_radius": None, "orbit": None, "options": {}}}
    usual = {**usual, "comm_radius": None, "orbit": None}
    assert run("address", body, [undecided, usual]) == undecided


def test_options_follow_the_name_of_a_law_in_an_address(run: Callable[..., Any]) -> None:
    options = {"beta": 0.25, "clamp": None, "cut_off": False}
    setting = {**SETTING, "controller": "law", "controller_options": options, "compare_options": {}}
    address = run("address", "return m.writeAddress(given, false);", {"setting": setting, "look": {}, "flock": 0})
    assert "controller=law:beta=0.25:clamp=none:cut_off=false&" in address
    # The server takes them apart; those that it began with do not go with another name.
    found = run("address", "return m.readAddress(...given);", [address, setting])["setting"]
    assert (found["controller"], found["controller_options"]) == ("law:beta=0.25:clamp=none:cut_off=false", {})
    kept = run("address", "return m.readAddress(...given);", ["#agents=9", setting])["setting"]
    assert (kept["controller"], kept["controller_options"]) == ("law", options)


@pytest.mark.parametrize(
    ("kind", "usual", "expected"),
    [
        ("number", 0.4, {"low": 0, "high": 1.6, "step": 0.02}),
        ("number", 100.0, {"low": 0, "high": 400, "step": 5}),
        ("number", 0.002, {"low": 0, "high": 0.008, "step": 0.0001}),
        ("number", 0.0, {"low": 0, "high": 1, "step": 0.01}),
        ("number", None, {"low": 0, "high": 1, "step": 0.01}),
        ("number", -2.0, {"low": -8, "high": 0, "step": 0.1}),
        ("integer", 3, {"low": 0, "high": 12, "step": 1}),
        ("integer", 0, {"low": 0, "high": 10, "step": 1}),
    ],
)
def test_the_slider_of_a_number_goes_to_four_times_its_default_in_round_steps(
    run: Callable[..., Any], kind: str, usual: float | None, expected: dict[str, float]
) -> None:
    assert run("law_controls", "return m.computeRange(given);", {"kind": kind, "default": usual}) == pytest.approx(
        expected
    )
    if usual and usual > 0:  # where zero is refused
        above = run(
            "law_controls", "return m.computeRange(given);", {"kind": kind, "default": usual, "must_be_positive": True}
        )
        assert above == pytest.approx({**expected, "low": expected["step"]})


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("etdagnn", "ETDAGNN"),
        ("etdagnn:3", "ETDAGNN, seed 3"),
        ("cucker-smale-singular-local", "Cucker-Smale-Singular, local"),
        ("cucker-smale:beta=1:clamp=none", "Cucker-Smale, beta 1, clamp none"),
        ("tanner-dynamic", "Tanner, dynamic"),
        ("etdagnn-robust:2", "ETDAGNN, robust, seed 2"),
        ("tdagnn-segregation", "TDAGNN, segregation"),
        ("tdagnn-tf-mean", "TDAGNN-TF-mean"),
        ("runs/mine/weights.safetensors", "weights.safetensors"),
    ],
)
def test_controller_names_are_formatted_for_display(run: Callable[..., Any], name: str, title: str) -> None:
    assert run("player/names", "return m.formatControllerName(given);", name) == title


def test_text_in_place_of_a_number_is_sent_for_the_server_to_refuse(run: Callable[..., Any]) -> None:
    address = "#comm_radius=banana&scenario=obstacles:sides=many:orbit=none:leaders=1e1"
    address += "&packet_loss=much&max_acceleration=none"
    setting = run("address", "return m.readAddress(...given);", [address, SETTING])["setting"]
    assert setting["comm_radius"] == "banana"
    assert setting["environment"] == {**SETTING["environment"], "packet_loss": "much", "max_acceleration": None}
    assert setting["options"] == {"sides": "many", "orbit": None, "leaders": 10}


def test_former_keys_of_an_address_are_read(run: Callable[..., Any]) -> None:
    setting = run("address", "return m.readAddress(...given);", ["#loss=0.5&spread=quarter-power", SETTING])["setting"]
    assert setting["radius_rule"] == "quarter-power"
    assert setting["environment"] == {**SETTING["environment"], "packet_loss": 0.5}
    assert "loss" not in setting["environment"]


def test_an_empty_address_gives_the_initial_setting(run: Callable[..., Any]) -> None:
    found = run("address", "return m.readAddress('', given);", SETTING)
    assert found["setting"] == SETTING


def test_vectors_of_a_channel_are_drawn_relative_to_their_recent_maximum(run: Callable[..., Any]) -> None:
    assert run(
        "vector_scales",
        """
        const scales = new m.Scales(), channels = [["velocity:among=same", "mean"], ["velocity", "sum"]];
        const panel = (size) => ({ channels, observations: [[[3 * size, 4 * size], [0, 0]]], commanded: null });
        const lengths = [0, 1000, 2000].map((now, k) => {
          scales.update([null, panel(k === 0 ? 1 : 0.1)], now);
          return scales.get(1, "μ velocity, same");
        });
        return [lengths, scales.get(1, "Σ velocity"), scales.get(0, "acceleration")];""",
    ) == [[5, 2.5, 1.25], 1, 1]
