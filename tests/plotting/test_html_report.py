"""Reports: one safe file, the same bytes for the same data."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.plotting.curve_panel import CurvePanel
from equiflock.plotting.html_report import Cell, Chip, HtmlReport
from equiflock.plotting.player.embedding import FlightChoice
from equiflock.plotting.svg_charts import Bar, BarGroup

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(1)>&'</style></title>"


def build_report(name: str) -> HtmlReport:
    """Return a report with all parts, in which every text is `name`."""
    run = ef.simulate(ef.random_disk(agents=10), ef.load("tanner"), duration=0.05)
    page = HtmlReport(name, name)
    entries = page.add_flight_menu([FlightChoice(name, [run], [name], name)] * 2, name)
    page.add_player([run], name, titles=[name])
    page.add_heading(name)
    page.add_heading(name, 3)
    page.add_verdict(name, [Chip("partly", name)])
    page.add_table([name, name, name], [[name, Chip("holds", name), Cell(name, 1.0, entries[1])]] * 2)
    curves = {name: np.ones((3, 3)) * [1.0, 2.0, 3.0]}
    page.add_charts([CurvePanel(np.arange(3.0), name, name, curves, title=name)], name)
    page.add_bars(name, [BarGroup(name, [Bar(name, 0.5, name)], (0.0, 1.0), (name, name), 0.2, name)], name, name)
    with page.fold(name):
        page.add_text(name)
    page.add_settings({name: {name: name}})
    return page


def write(page: HtmlReport, tmp_path: Path) -> str:
    return page.write(tmp_path / "report.html").read_text()


def test_texts_of_any_kind_are_escaped(tmp_path: Path) -> None:
    harmless, hostile = (write(build_report(name), tmp_path) for name in ("name", HOSTILE))
    for pattern in (r"<script\b", r"<img\b", r"</style", r"</title", r"<\w+"):
        assert len(re.findall(pattern, hostile)) == len(re.findall(pattern, harmless)), pattern
    assert "onerror=alert" not in re.sub(r"\\u003cimg[^\"]*|&lt;img.*?&gt;", "", hostile)


def test_reports_of_the_same_data_are_equal_byte_for_byte(tmp_path: Path) -> None:
    paths = [build_report("name").write(tmp_path / f"{k}.html") for k in range(2)]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_policy_allows_exactly_the_scripts_of_the_page_and_no_address(tmp_path: Path) -> None:
    html = write(build_report("name"), tmp_path)
    scripts = re.findall(r'<script type="module">(.*?)</script>', html, re.DOTALL)
    digests = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts}
    assert len(scripts) == 2
    assert set(re.findall(r"'sha256-([^']*)'", html)) == digests
    assert "default-src 'none'" in html
    assert re.findall(r'(?:src|href)="(?!data:|#)|@import|url\(', html) == []


def test_ids_are_unique_and_references_lead_to_one(tmp_path: Path) -> None:
    html = write(build_report("name"), tmp_path)
    ids = re.findall(r'\bid="([^"]*)"', html)
    assert len(ids) == len(set(ids)) > 5
    references = re.findall(r'aria-(?:labelledby|describedby)="([^"]*)"|href="#([^"]*)"', html)
    assert {each for pair in references for text in pair for each in text.split()} <= set(ids)


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1,234 (1,000, 2,000)", "-5.5", "1e-3 s"], ["1234.0", "-5.5", "0.001"]),
        (["12% (3%, 20%)", "-", "inf"], ["12.0", "Infinity"]),
        (["T1", "2", "3"], []),
        ([Chip("fails"), Chip("holds"), Chip("open")], ["2.0", "0.0", "3.0"]),
        ([Cell("many", 3.0), "2", Cell("none", float("nan"))], []),
        ([Cell("many", 3.0), "2", ""], ["3.0", "2"]),
    ],
)
def test_columns_of_numbers_have_values_to_sort_by(cells: list, values: list[str], tmp_path: Path) -> None:
    page = HtmlReport("Report", "")
    page.add_table(["name", "value"], [[f"row {k}", cell] for k, cell in enumerate(cells)])
    found = re.findall(r'data-value="([^"]*)"', write(page, tmp_path).partition("<main>")[2].partition("<script")[0])
    assert [float(value) for value in found] == [float(value) for value in values]


def test_a_name_keeps_its_colour_on_the_page(tmp_path: Path) -> None:
    page = HtmlReport("Report", "")
    page.assign_series(["starling"])
    for names in (("law", "starling"), ("starling", "law")):
        page.add_charts([CurvePanel(np.arange(2.0), "x", "y", {name: np.ones((3, 2)) for name in names})])
    found = re.findall(r'<li class="(s\d)">.*?<span>(\w+)</span>', write(page, tmp_path))
    assert sorted(set(found)) == [("s0", "starling"), ("s1", "law")]


def test_settings_are_folded() -> None:
    page = HtmlReport("Report", "")
    page.add_settings({"radio": {"delay": 1}, "seed": 0})
    assert page.parts[-3:] == [
        '<details class="settings"><summary>Settings</summary>',
        '<pre tabindex="0">radio:\n    delay: 1\nseed: 0</pre>',
        "</details>",
    ]


def test_a_menu_without_flights_is_refused() -> None:
    with pytest.raises(InputError, match="at least one entry"):
        HtmlReport("Report", "").add_flight_menu([], "")
