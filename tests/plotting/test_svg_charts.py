"""Charts of reports: places of values, gaps, texts, and escaped names."""

from __future__ import annotations

import json
import re
from html import escape
from xml.etree import ElementTree

import numpy as np
import pytest

from equiflock.plotting.curve_panel import CurvePanel
from equiflock.plotting.svg_charts import MAX_POINTS, Bar, BarGroup, draw_bars, draw_curves

HOSTILE = '"><script>alert(1)</script>&'


def parse(html: str) -> ElementTree.Element:
    """Return the figure as a tree, which fails if an element is not closed or a name is not escaped."""
    return ElementTree.fromstring(re.sub(r"(?<=json\">).*(?=</script>)", lambda data: escape(data[0]), html))


def draw(curve: np.ndarray, name: str = "law", **options: object) -> ElementTree.Element:
    x = np.arange(curve.shape[1], dtype=float)
    settings: dict = {"y_scale": "linear", "y_limits": (0.0, 10.0), **options}
    return parse(draw_curves(CurvePanel(x, "time (s)", "value", {name: curve}, **settings), "c", {name: 0}))


def read_points(figure: ElementTree.Element, kind: str) -> list[list[list[float]]]:
    """Return the points of the parts of the first path of a class, in thousandths of the plot."""
    path = next(each for each in figure.iter("path") if each.get("class") == kind).get("d", "")
    parts = [re.split(r"[ L]", part.strip("z")) for part in path.split("M")[1:]]
    return [np.array(part, float).reshape(-1, 2).tolist() for part in parts]


def read_data(figure: ElementTree.Element) -> dict:
    return dict(json.loads(figure.findtext("script") or ""))


def test_a_curve_is_where_its_values_are() -> None:
    figure = draw(np.stack([np.array([0.0, 2.0, 4.0]), np.array([1.0, 5.0, 10.0]), np.array([2.0, 6.0, 10.0])]))
    assert read_points(figure, "line") == [[[0.0, 900.0], [500.0, 500.0], [1000.0, 0.0]]]
    band = read_points(figure, "band")[0]
    assert band[:3] == [[0.0, 800.0], [500.0, 400.0], [1000.0, 0.0]]
    assert band[3:] == [[1000.0, 600.0], [500.0, 800.0], [0.0, 1000.0]]
    data = read_data(figure)
    assert data["labels"] == ["time 0 s", "time 1 s", "time 2 s"]
    assert data["readings"] == [["1 (0, 2)", "5 (2, 6)", "10 (4, 10)"]]


def test_values_that_a_logarithmic_axis_lacks_are_gaps() -> None:
    values = np.array([1.0, 0.0, np.nan, 100.0, 10.0])
    figure = draw(np.stack([values] * 3), y_scale="log", y_limits=None)
    parts = read_points(figure, "line")
    assert [len(part) for part in parts] == [1, 2]
    assert read_data(figure)["readings"][0][2] == "-"


@pytest.mark.parametrize(
    ("least", "most", "ticks"),
    [
        (100.0, 180.0, ["100", "150", "200"]),
        (1.0, 10.0, ["1", "2", "5", "10"]),
        (1e-3, 1e3, ["0.001", "0.01", "0.1", "1", "10", "100", "1000"]),
    ],
)
def test_a_logarithmic_axis_has_three_ticks_or_more(least: float, most: float, ticks: list[str]) -> None:
    figure = draw(np.stack([np.array([least, most])] * 3), y_scale="log", y_limits=None)
    assert [each.text for each in figure.iter("text") if each.get("class") == "y"] == ticks


def test_infinite_values_leave_the_axis_finite() -> None:
    figure = draw(np.stack([np.array([1.0, 2.0, np.inf])] * 3), y_limits=None)
    assert [len(part) for part in read_points(figure, "line")] == [2]
    nothing = draw(np.full((3, 4), np.nan), y_limits=None)
    assert read_points(nothing, "line") == []


def test_long_curves_are_thinned_and_keep_both_ends() -> None:
    values = np.linspace(0.0, 10.0, 5001)
    data = read_data(draw(np.stack([values] * 3)))
    assert len(data["places"]) == MAX_POINTS
    assert (data["places"][0], data["places"][-1]) == (0.0, 100.0)
    assert (data["labels"][0], data["labels"][-1]) == ("time 0 s", "time 5000 s")


def test_a_chart_has_a_title_and_a_description() -> None:
    figure = draw(np.stack([np.array([1.0, 2.0])] * 3), title="Some title")
    svg = next(each for each in figure.iter("svg") if each.get("role") == "img")
    title, description = (each for each in svg if each.tag in ("title", "desc"))
    assert svg.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert title.text == "Some title"
    assert description.text == "value from time 0 s to time 1 s: law from 1 to 2."


@pytest.mark.parametrize("is_logarithmic", [False, True])
@pytest.mark.parametrize("axis", [(1.0, 100.0), (100.0, 1.0)])
def test_bars_grow_from_the_left_end_of_any_axis(axis: tuple[float, float], is_logarithmic: bool) -> None:
    group = BarGroup("x", [], axis, ("a", "b"), is_logarithmic=is_logarithmic)
    assert group.find_place(axis[0]) == 0.0
    assert group.find_place(axis[1]) == 100.0
    assert group.find_place(1e9) in (0.0, 100.0)
    assert group.find_place(10.0) == pytest.approx(
        50.0 if is_logarithmic else 100.0 * (10.0 - axis[0]) / (axis[1] - axis[0])
    )


def test_bars_have_whiskers_marks_and_texts() -> None:
    bars = [Bar("one", 0.3, "30%", 0.2, 0.4), Bar("two", 1.0, "all", series=1, is_open=True)]
    figure = parse(
        draw_bars("Title", [BarGroup("loss", bars, (0.0, 1.0), ("0%", "100%"), 0.5, "best: 50%")], "b", "best")
    )
    one, two = (each for each in figure.iter("svg") if each.get("role") == "img")
    assert [each.get("width") for each in one.iter("rect")] == ["100%", "30.00%"]
    assert [each.get("x1") for each in one.iter("line")][:2] == ["20.00%", "20.00%"]
    assert [each.get("class") for each in two.iter("path")] == ["open-end", "mark"]
    assert one.findtext("title") == "loss, one"
    assert one.findtext("desc") == "30%; best: 50%"
    assert "best" in [each.text for each in figure.iter("span")]


def test_names_are_escaped() -> None:
    curves = {HOSTILE: np.stack([np.array([1.0, 2.0])] * 3)}
    panel = CurvePanel(np.arange(2.0), HOSTILE, HOSTILE, curves, title=HOSTILE)
    bars = [Bar(HOSTILE, 0.3, HOSTILE), Bar("b", 0.3, HOSTILE, series=1)]
    group = BarGroup(HOSTILE, bars, (0.0, 1.0), (HOSTILE, HOSTILE), 0.5, HOSTILE)
    for html in (draw_curves(panel, "c", {HOSTILE: 0}), draw_bars(HOSTILE, [group], "b", HOSTILE)):
        assert "<script>" not in html
        assert HOSTILE in "".join(parse(html).itertext())
