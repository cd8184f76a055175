"""Figures of curves: legends, shared axes, ranges that hide no line, and a title that says which way is better."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from equiflock.plotting import figures
from equiflock.plotting.curve_panel import CurvePanel
from equiflock.plotting.figures import draw_panels


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are written."""
    written: list[Figure] = []

    def keep(figure: Figure, path: Path) -> Path:
        written.append(figure)
        return path

    monkeypatch.setattr(figures, "write_png", keep)
    return written


def make_panels(count: int, **options: object) -> list[CurvePanel]:
    x = np.arange(1, 51)
    curves = {name: np.stack([0.5 * y, y, 3.0 * y]) for name, y in (("a", 1.0 / x), ("b", 2.0 / x))}
    return [CurvePanel(x, "epoch", "loss", curves, title=f"{n}", **options) for n in range(count)]  # type: ignore[arg-type]


def test_panels_of_one_quantity_share_the_axis_and_one_legend(drawn: list[Figure], tmp_path: Path) -> None:
    draw_panels(make_panels(4), tmp_path / "figure.png")
    (figure,) = drawn
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]
    assert all(axes.get_legend() is None for axes in figure.axes)
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "", "loss", ""]  # two rows of two


def test_a_single_panel_has_its_legend_inside(drawn: list[Figure], tmp_path: Path) -> None:
    draw_panels(make_panels(1), tmp_path / "figure.png")
    (figure,) = drawn
    assert figure.legends == []
    assert figure.axes[0].get_legend() is not None


def test_ranges_at_the_end_leave_lines_visible_and_have_no_ticks(drawn: list[Figure], tmp_path: Path) -> None:
    draw_panels(make_panels(2, shows_range_at_end=True), tmp_path / "figure.png")
    axes = drawn[0].axes[0]
    bands = [each for each in axes.collections if len(each.get_paths()) and len(each.get_paths()[0].vertices) > 4]
    assert bands == []
    assert axes.get_xlim()[1] > 50
    assert max(axes.get_xticks()) <= 50
