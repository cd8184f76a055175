"""The page of a report card: what it says follows from the card, for any names and any missing results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

import equiflock as ef
from equiflock.evaluation.card import BreakpointResult, Card, CardBreakpoint, CardRow, ControllerFacts, RowResult
from equiflock.evaluation.card_page import choose_speed, classify, write_card_page
from equiflock.evaluation.card_results import describe_breakpoint
from equiflock.statistics import Estimate

HOSTILE = "\"><script>alert(1)</script><img src=x>&'</style>"
BROKEN = "the law has raised an error"


def make_result(rate: float) -> RowResult:
    metrics = {"success": Estimate(rate, rate - 0.1, rate, 24), "jerk": Estimate(float("inf"), 2.0, float("inf"), 24)}
    return RowResult(metrics, Estimate(rate, rate - 0.1, rate + 0.1, 24), success_flight=0, failure_flight=1)


def make_row(name: str, rates: Mapping[str, float | None], group: str = "Radio") -> CardRow:
    results = {each: RowResult(remark=BROKEN) if rate is None else make_result(rate) for each, rate in rates.items()}
    return CardRow(name, group, f"title of {name}", "it settles", "settings", 24, results, f"Verdict on {name}.")


def make_breakpoint(values: Mapping[str, float], title: str = "packet loss") -> CardBreakpoint:
    def make(value: float) -> BreakpointResult:
        return BreakpointResult("found", value, value - 0.1, value + 0.1, f"{value:.0%} [{value - 0.1:.0%}, 90%]")

    results = {name: {"95": make(value), "50": make(value + 0.05)} for name, value in values.items()}
    curves = dict.fromkeys(values, ((0.0, 1.0), (0.9, 0.0)))
    return CardBreakpoint("loss", title, 0.0, 0.96, False, "0%", "96%", 80, "settings", results, curves)


def make_card(mine: str = "mine", label: str = "mine", **changes: object) -> Card:
    """Return a card of one judged controller, two baselines and a law."""
    roles = {mine: "judged", "etdagnn": "baseline", "tdagnn": "baseline", "reynolds": "reference"}
    facts = tuple(ControllerFacts(name, label if name == mine else name, role) for name, role in roles.items())  # type: ignore[arg-type]
    rows = (
        make_row("good", {mine: 1.0, "etdagnn": 0.9, "tdagnn": 0.2, "reynolds": 0.0}),
        make_row("fair", {mine: 0.5, "etdagnn": 0.9, "tdagnn": 0.2, "reynolds": 0.0}, "Body"),
        make_row("none", {mine: None, "etdagnn": 0.3, "tdagnn": 0.2, "reynolds": 0.0}, "Body"),
    )
    profile = ((0.0, 1.0, 1.0, 1.0), (0.5, 0.6, 0.5, 0.7), (1.0, 0.3, 0.1, 0.4))
    settings: dict = {
        "profile": "quick",
        "seed": 0,
        "controllers": facts,
        "rows": rows,
        "breakpoints": (make_breakpoint({mine: 0.34, "etdagnn": 0.2, "tdagnn": 0.5}),),
        "metric_titles": {"success": "success rate", "jerk": "RMS jerk", "mlvd": "distance to leaders"},
        "larger_is_better": {"success": True, "jerk": False, "mlvd": None},
        "scores": {name: Estimate(0.8 - 0.3 * k, 0.7 - 0.3 * k, 0.9 - 0.3 * k, 3) for k, name in enumerate(roles)},
        "performance": {mine: profile, "reynolds": profile},
        "settings": {"versions": {"equiflock": "x"}},
    }
    return Card(**{**settings, **changes})


@pytest.fixture(scope="module")
def run() -> ef.Trajectory:
    return ef.simulate(ef.random_disk(agents=8, flocks=2), ef.load("tanner"), duration=0.1)


def write(card: Card, tmp_path: Path, flights: Mapping = {}) -> str:
    return write_card_page(card, flights, tmp_path / "card.html").read_text().partition("</style>")[2]


def read_text(html: str) -> str:
    """Return the text of a page, without scripts."""
    return unescape(re.sub(r"<[^>]*>", " ", re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)))


def test_score_and_breakpoints_are_on_top_then_flights_then_sections(tmp_path: Path, run: ef.Trajectory) -> None:
    html = write(make_card(), tmp_path, {("good", "mine"): [("mine: success", run[0]), ("mine: failure", run[1])]})
    order = ["mine scores", "Overall score", "Breakpoints: up", 'class="flight-menu"', "Performance profile"]
    order += ["<h2>Radio", "<h2>Body", "<h2>Controllers", "<summary>Settings"]
    places = [html.index(text) for text in order]
    assert places == sorted(places)
    text = " ".join(read_text(html).split())
    assert "mine scores 0.80 (0.70, 0.90) and holds in 1 of 3 rows. The best baseline, etdagnn, scores 0.50" in text
    assert "holds: 1 partly: 1 no result: 1" in text
    assert "holds to 34% [24%, 90%]; best baseline, tdagnn: holds to 50%" in text  # the best at this disturbance
    for name in ("good", "fair", "none"):
        assert f"Verdict on {name}." in text
    assert "Title of good holds: 100% succeed Watch" in text
    assert text.count("Watch") == 1
    assert "success rate ↑ RMS jerk ↓" in text
    assert "distance to leaders" not in text  # no row has a value


def test_the_bar_of_a_breakpoint_is_as_long_as_its_level_and_marks_the_best_baseline(tmp_path: Path) -> None:
    html = write(make_card(), tmp_path)
    bar = html.partition("Packet loss, mine")[2].partition("</div>")[0]
    assert f'<rect class="bar" width="{100 * 0.34 / 0.96:.2f}%"' in bar
    assert f'<svg x="{100 * 0.5 / 0.96:.2f}%" y="50%" overflow="visible"><path class="mark"' in bar


def test_rows_without_result_say_why(tmp_path: Path) -> None:
    html = write(make_card(), tmp_path)
    cells = re.findall(r"<tr><td[^>]*>title of none</td><td[^>]*>mine</td>(.*?)</tr>", html)
    assert len(cells) == 1
    assert BROKEN in cells[0]
    assert "no result" in cells[0]


def test_two_pages_of_the_same_card_are_equal_byte_for_byte(tmp_path: Path, run: ef.Trajectory) -> None:
    flights = {("good", "mine"): [("mine: success", run[0])]}
    assert write(make_card(), tmp_path, flights) == write(Card.from_dict(make_card().to_dict()), tmp_path, flights)


def test_hostile_names_stay_text(tmp_path: Path, run: ef.Trajectory) -> None:
    pages = []
    for name in ("harmless", HOSTILE):
        card = make_card(name, name)
        rows = tuple(replace(row, title=name, group=name, verdict=name, settings=name) for row in card.rows)
        point = replace(make_breakpoint({name: 0.3}, name), remarks={"etdagnn": name}, verdict=name, hard_text=name)
        titles = dict.fromkeys(card.metric_titles, name)
        card = replace(card, rows=rows, breakpoints=(point,), metric_titles=titles, settings={name: name}, profile=name)
        flights = {(row.name, name): [(f"{name}: success", run[0])] for row in rows}
        pages.append(write(card, tmp_path, flights))
    for pattern in (r"<script\b", r"<img\b", r"</style", r"<\w+"):
        assert len(re.findall(pattern, pages[0])) == len(re.findall(pattern, pages[1])), pattern
    assert HOSTILE in read_text(pages[1])


def test_several_controllers_share_an_entry_while_there_is_room(tmp_path: Path, run: ef.Trajectory) -> None:
    card = make_card()
    judged = tuple(ControllerFacts(f"c{k}", f"c{k}", "judged") for k in range(3))
    rows = (make_row("good", {"c0": 1.0, "c1": 0.4, "c2": 0.9}),)
    card = replace(card, controllers=judged, rows=rows, breakpoints=(), scores={}, performance={})
    flights = {("good", f"c{k}"): [(f"c{k}: success", run[0]), (f"c{k}: failure", run[1])] for k in range(3)}
    html = write(card, tmp_path, flights)
    assert re.findall(r"<label>.*?>([^<]*)<small>([^<]*)</small>", html) == [
        ("title of good (1 of 2)", "success, failure"),
        ("title of good (2 of 2)", "success, failure"),
    ]
    text = " ".join(read_text(html).split())
    assert "c0 holds: 100% succeed c1 fails: 40% succeed c2 partly: 90% succeed" in text
    assert "c0 has no score and holds in 1 of 1 rows." in text


def test_a_card_of_a_controller_that_does_not_load_is_a_page(tmp_path: Path) -> None:
    facts = (ControllerFacts("mine", "mine", "judged", error="no such file"),)
    card = replace(make_card(), controllers=facts, rows=(), breakpoints=(), scores={}, performance={})
    assert "mine could not be judged: no such file" in read_text(write(card, tmp_path))


def test_verdicts_follow_from_success_rates() -> None:
    rates = {1.0: "holds", 0.95: "holds", 0.94: "partly", 0.5: "partly", 0.49: "fails", 0.0: "fails"}
    assert {rate: classify(make_result(rate)) for rate in rates} == rates
    assert classify(None) == classify(RowResult(remark=BROKEN)) == classify(RowResult()) == "open"


@pytest.mark.parametrize(
    ("status", "text", "sentence"),
    [
        ("found", "34% [31%, 37%]", "holds to 34% [31%, 37%]"),
        ("holds", "20 ms or more", "holds to 20 ms or more"),
        ("fails", "not even at 2 ms [2 ms, 4 ms]", "fails even at 2 ms [2 ms, 4 ms]"),
    ],
)
def test_breakpoints_are_sentences(status: str, text: str, sentence: str) -> None:
    assert describe_breakpoint(BreakpointResult(status, 0.3, 0.2, 0.4, text)) == sentence  # type: ignore[arg-type]


def test_flights_play_within_eight_seconds_if_a_speed_allows_it() -> None:
    assert [choose_speed(duration) for duration in (0.5, 2.0, 3.0, 8.0, 20.0, 60.0)] == [0.25, 0.25, 0.5, 1.0, 4.0, 4.0]
