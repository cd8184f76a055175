"""A report with all parts."""

from __future__ import annotations

import numpy as np

import equiflock as ef
from equiflock.plotting.curve_panel import CurvePanel
from equiflock.plotting.html_report import Cell, Chip, HtmlReport
from equiflock.plotting.player.embedding import FlightChoice
from equiflock.plotting.svg_charts import Bar, BarGroup

CONTROLLERS = "starling", "tanner", "a-controller-with-a-very-long-name-of-a-file.safetensors"


def fly(controller: str = "tanner", duration: float = 0.2, time_step: float = 0.01) -> ef.Trajectory:
    start = ef.random_disk(agents=15, seed=1)
    return ef.simulate(start, ef.load(controller), duration=duration, time_step=time_step)


def build_report() -> HtmlReport:
    """Return a report with a menu of three entries, two players of a group, and every other part."""
    one, other, slow = fly(), fly("tanner-dynamic"), fly(duration=0.3, time_step=0.05)
    report = HtmlReport("Report", "All parts.")
    report.add_heading("Flights")
    entries = report.add_flight_menu(
        [
            FlightChoice("First", [one, other], ["success", "failure"], "two flights"),
            FlightChoice("Second", [one, slow], ["short", "long"]),
            FlightChoice("Third", [other]),
        ],
        "Choose one.",
    )
    report.add_player([one, other], "", titles=["one", "two"], group="all")
    report.add_player([slow], "Two players.", group="all")
    chips = [
        Chip("holds", "holds: 3"),
        Chip("partly", "partly: 2"),
        Chip("fails", "fails: 1"),
        Chip("open", "unclear: 0"),
    ]
    report.add_verdict("Three of six hold.", chips)
    x = np.linspace(0.0, 2.0, 11)
    curves = {name: np.exp(-x) * np.array([[0.5], [1.0], [2.0]]) * (k + 1) for k, name in enumerate(CONTROLLERS)}
    report.add_charts(
        [CurvePanel(x, "time (s)", "value", curves), CurvePanel(x, "time (s)", "share", curves, "linear", (0.0, 6.0))],
        "Two charts.",
    )
    bars = [Bar(name, 0.2 * k + 0.2, "20% [10%, 30%]", 0.1, 0.3, k, k == 2) for k, name in enumerate(CONTROLLERS)]
    report.add_bars("Bars", [BarGroup("packet loss", bars, (0.0, 1.0), ("0%", "100%"), 0.5, "best: 50%")], "best")
    report.add_bars("Bars of one", [BarGroup("delay", bars[:1], (0.0, 1.0), ("0%", "100%"), 0.5, "best: 50%")], "best")
    report.add_heading("Tables")
    rows: list[list[str | Chip | Cell]] = [
        ["b", "10 (9, 11)", Chip("fails"), Cell("play", flight=entries[1])],
        ["a", "-", Chip("holds"), ""],
        ["c", "9.5 (9, 10)", Chip("partly"), Cell("play", flight=entries[2])],
    ]
    report.add_table(["name", "value", "verdict", "flight"], rows)
    report.add_table([f"a long heading {k}" for k in range(16)], [["0.123 (0.100, 0.200)"] * 16] * 3)
    report.add_table(["id", "statement"], [["A1", "word " * 60], ["A2", "word " * 20]], align_left=True)
    report.add_settings({"name": "x" * 200})
    return report
