"""Charts as inline SVG for HTML reports: curves with bands, and bars with intervals. report/report.css styles them.

Lines are drawn in a plot that stretches with the page while its texts keep their size, so that a chart is legible on a
phone and on paper. report/report.js shows the values at a place that the reader points at, or chooses by arrow keys;
without it, the legend has the values at the end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from jaxtyping import Float64

from equiflock.plotting.curve_panel import CurvePanel
from equiflock.plotting.player.bundle import to_script_json
from equiflock.statistics import format_numbers

MAX_POINTS = 201
"""Maximum number of points of a curve, chosen evenly."""
SERIES_COUNT = 8
"""Number of series that report.css can distinguish; further ones repeat their colours."""
SIZE = 1000
"""Width and height of a plot in its own units, which stretch."""
MARKER_POINTS = 12
"""Curves with at most this many points have a marker at each."""
LABELLED_TICKS = 5


@dataclass(frozen=True)
class Bar:
    """A number with an interval, drawn as a horizontal bar with a whisker."""

    name: str
    """What the bar belongs to, such as a controller."""
    value: float | None
    """None for no bar, only the text."""
    text: str
    """The value in words, shown beside the bar."""
    low: float | None = None
    high: float | None = None
    """Ends of the interval; None for none."""
    series: int = 0
    """Number of the colour."""
    is_open: bool = False
    """Whether the number is at least the value, so that the bar has no end."""


@dataclass(frozen=True)
class BarGroup:
    """Bars with a common axis."""

    label: str
    bars: Sequence[Bar]
    axis: tuple[float, float]
    """Numbers at the left and the right end, of which either may be larger."""
    ends: tuple[str, str]
    """Their texts."""
    reference: float | None = None
    """Number that a mark shows on all bars, such as that of a baseline."""
    reference_text: str = ""
    is_logarithmic: bool = False

    def find_place(self, value: float) -> float:
        """Return the place of a number on the axis, in percent, from 0 to 100."""
        numbers = (value, *self.axis)
        at, first, last = (math.log(number) for number in numbers) if self.is_logarithmic else numbers
        return 100.0 * min(max((at - first) / (last - first), 0.0), 1.0)


def draw_curves(panel: CurvePanel, key: str, series: Mapping[str, int]) -> str:
    """Return a figure of the curves of a panel, with bands; `key` makes its ids unique in the page.

    `series` maps the names of the curves to the numbers of their colours and dashes.
    On a logarithmic axis, values that are not positive are gaps. A panel that `shows_range_at_end` has no bands.
    """
    chosen = np.unique(np.linspace(0, len(panel.x) - 1, MAX_POINTS).round().astype(int))
    x = np.asarray(panel.x, np.float64)[chosen]
    curves = {name: np.asarray(curve, np.float64)[:, chosen] for name, curve in panel.curves.items()}
    has_log_x, has_log_y = bool(panel.x_ticks), panel.y_scale == "log"
    x_axis = _Axis.around(x, has_log_x, fills=True)
    values = np.concatenate([curve.ravel() for curve in curves.values()])
    y_axis = _Axis.around(values, has_log_y) if panel.y_limits is None else _Axis(*panel.y_limits, has_log_y)
    x_label, y_label = _strip_mathtext(panel.x_label), _strip_mathtext(panel.y_label)
    title = _strip_mathtext(panel.title) if panel.title else y_label
    ticks = _draw_ticks(x_axis, y_axis, panel.x_ticks)
    lines = "".join(
        _draw_curve(x_axis.place(x), y_axis, curve, series[name], has_band=not panel.shows_range_at_end)
        for name, curve in curves.items()
    )
    markers = ""
    if len(x) <= MARKER_POINTS:
        markers = "".join(
            f'<circle class="s{series[name] % SERIES_COUNT}" cx="{at:.2f}%" cy="{100 - high:.2f}%" r="3.5"/>'
            for name, curve in curves.items()
            for at, high in zip(x_axis.place(x), y_axis.place(curve[1]), strict=True)
            if math.isfinite(high)
        )
    labels = _format_places(x, x_label)
    readings = [[_format_reading(*column) for column in curve.T.tolist()] for curve in curves.values()]
    legend = "".join(
        f'<li class="s{series[name] % SERIES_COUNT}">{KEY}<span>{escape(name)}</span> '
        f"<output>{escape(reading[-1])}</output></li>"
        for name, reading in zip(curves, readings, strict=True)
    )
    data = {"places": [round(at, 2) for at in x_axis.place(x).tolist()], "labels": labels, "readings": readings}
    text = _describe_curves(y_label, labels, curves)
    return (
        f'<figure class="chart lines"><figcaption><b>{escape(title)}</b>'
        + (f" <span>{escape(y_label)}</span>" if panel.title else "")
        + f' <output class="at">{escape(labels[-1])}</output></figcaption><ul class="legend">{legend}</ul>'
        f'<div class="plot"><svg role="img" aria-labelledby="{key}-title {key}-text">'
        f'<title id="{key}-title">{escape(title)}</title><desc id="{key}-text">{escape(text)}</desc>{ticks}'
        f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" width="100%" height="100%">{lines}</svg>{markers}'
        '<line class="cursor" x1="100%" x2="100%" y1="0" y2="100%"/></svg></div>'
        f'<p class="axis-label">{escape(x_label)}</p>'
        f'<script type="application/json">{to_script_json(data)}</script></figure>'
    )


def draw_bars(title: str, groups: Sequence[BarGroup], key: str, reference_name: str = "") -> str:
    """Return a figure of bars with intervals; `reference_name` explains the reference marks."""
    names = list(dict.fromkeys((bar.series, bar.name) for group in groups for bar in group.bars))
    has_references = any(group.reference is not None for group in groups)
    legend = [
        f'<li class="s{series % SERIES_COUNT}">{SWATCH}<span>{escape(name)}</span></li>' for series, name in names
    ]
    if len(groups) == 1 and not has_references:
        legend = []  # the names are beside the bars
    if has_references:
        legend.append(f"<li>{MARK_KEY}<span>{escape(reference_name or 'reference')}</span></li>")
    body = "".join(_draw_group(group, f"{key}-{k}", len(names) > 1, len(groups) > 1) for k, group in enumerate(groups))
    return (
        f'<figure class="chart bars"><figcaption><b>{escape(title)}</b></figcaption>'
        + (f'<ul class="legend">{"".join(legend)}</ul>' if len(legend) > 1 else "")
        + f"{body}</figure>"
    )


KEY = '<svg class="key" aria-hidden="true"><line x1="0" x2="100%" y1="50%" y2="50%"/></svg>'
SWATCH = '<svg class="swatch" aria-hidden="true"><rect width="100%" height="100%" rx="2"/></svg>'
MARK = '<path class="mark" d="M0-10V10M-5.5 0L0-6.5L5.5 0L0 6.5z"/>'
MARK_KEY = f'<svg class="key" aria-hidden="true" viewBox="-11 -11 22 22">{MARK}</svg>'


def _draw_group(group: BarGroup, key: str, shows_names: bool, shows_label: bool) -> str:
    """Return the bars of a group, each with its text, and their axis."""
    rows = "".join(_draw_bar(group, bar, f"{key}-{k}", shows_names) for k, bar in enumerate(group.bars))
    label = f'<p class="bar-label">{escape(group.label)}</p>' if shows_names and shows_label else ""
    spans = "".join(f"<span>{escape(end)}</span>" for end in group.ends)
    has_bars = any(bar.value is not None for bar in group.bars)
    ends = f'<p class="bar-ends" aria-hidden="true">{spans}</p>' if has_bars else ""
    return f'<div class="bar-group">{label}{rows}{ends}</div>'


def _draw_bar(group: BarGroup, bar: Bar, key: str, shows_name: bool) -> str:
    """Return one bar with whisker, reference mark and text, which has the focus by Tab and shows all in a tooltip."""
    kind, name = ("name", bar.name) if shows_name else ("name label", group.label)
    texts = f'<span class="{kind}">{escape(name)}</span><span class="value">{escape(bar.text)}</span>'
    row = f'<div class="bar-row s{bar.series % SERIES_COUNT}">{texts}'
    if bar.value is None:
        return f"{row}</div>"
    end = group.find_place(bar.value)
    shapes = [
        f'<rect class="track" width="100%" height="100%" rx="3"/><rect class="bar" width="{end:.2f}%" '
        'height="100%" rx="3"/>'
    ]
    if bar.is_open:
        shapes.append(
            f'<svg x="{end:.2f}%" y="50%" overflow="visible"><path class="open-end" d="M-12-5L-6 0L-12 5"/></svg>'
        )
    if bar.low is not None and bar.high is not None:
        low, high = sorted((group.find_place(bar.low), group.find_place(bar.high)))
        lines = f'<line x1="{low:.2f}%" x2="{high:.2f}%" y1="50%" y2="50%"/>' + "".join(
            f'<line x1="{at:.2f}%" x2="{at:.2f}%" y1="22%" y2="78%"/>' for at in (low, high)
        )
        # Twice: a wide line in the colour of the sheet sets the whisker off from its bar.
        shapes.append(f'<g class="halo">{lines}</g><g class="whisker">{lines}</g>')
    if group.reference is not None:
        place = group.find_place(group.reference)
        shapes.append(f'<svg x="{place:.2f}%" y="50%" overflow="visible">{MARK}</svg>')
    text = f"{bar.text}; {group.reference_text}" if group.reference_text else bar.text
    return (
        f'{row}<svg role="img" tabindex="0" aria-labelledby="{key}-title" aria-describedby="{key}-text">'
        f'<title id="{key}-title">{escape(f"{group.label}, {bar.name}")}</title>'
        f'<desc id="{key}-text">{escape(text)}</desc>{"".join(shapes)}</svg>'
        f'<span class="tip" aria-hidden="true">{escape(f"{bar.name}: {text}")}</span></div>'
    )


@dataclass(frozen=True)
class _Axis:
    """Range of an axis."""

    low: float
    high: float
    is_logarithmic: bool

    @classmethod
    def around(cls, values: Float64[np.ndarray, "*any"], is_logarithmic: bool, fills: bool = False) -> _Axis:
        """Return an axis with room for all finite values, without a margin with `fills`."""
        shown = values[np.isfinite(values) & ((values > 0) | (not is_logarithmic))]
        if not len(shown):
            return cls(*((0.1, 1.0) if is_logarithmic else (0.0, 1.0)), is_logarithmic)
        low, high = float(shown.min()), float(shown.max())
        if is_logarithmic:
            margin = 1.0 if fills and low < high else 1.15
            return cls(low / margin, high * margin, True)
        if low == high:
            room = 0.5 * abs(low) or 0.5
            return cls(low - room, high + room, False)
        room = 0.0 if fills else 0.05 * (high - low)
        # An axis of positive numbers starts at 0 unless they are far from it.
        is_near_zero = not fills and 0.0 <= low < 0.5 * high
        return cls(0.0 if is_near_zero else low - room, high + room, False)

    def place(self, values: Float64[np.ndarray, " X"]) -> Float64[np.ndarray, " X"]:
        """Return the places of numbers in percent; NaN for those that have none."""
        low, high = self.low, self.high
        if self.is_logarithmic:
            values = np.log(np.where(values > 0, values, np.nan))
            low, high = math.log(low), math.log(high)
        return np.asarray(100.0 * (values - low) / (high - low))

    @property
    def ticks(self) -> list[float]:
        """Round numbers within the axis."""
        if self.is_logarithmic:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            factors = (1, 2, 5) if self.high < 50 * self.low else (1,)
            found = [factor * 10.0**decade for decade in decades for factor in factors]
            found = [tick for tick in found if self.low <= tick <= self.high]
            if len(found) > 2:
                return found[:: -(-len(found) // (LABELLED_TICKS + 2))]
            # Within a narrow range, even steps are round numbers.
        step = (self.high - self.low) / LABELLED_TICKS
        size = 10.0 ** math.floor(math.log10(step))
        step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= step * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(count * step, 12) for count in range(first, last + 1)]


def _draw_ticks(x_axis: _Axis, y_axis: _Axis, x_ticks: tuple[int, ...] | None) -> str:
    """Return grid lines and labels of both axes."""
    parts = []
    y_ticks = np.array(y_axis.ticks)
    for tick, at in zip(y_ticks.tolist(), y_axis.place(y_ticks), strict=True):
        y = f"{100 - at:.2f}%"
        parts.append(f'<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="y" x="0" y="{y}" dx="-8" dy="4">{tick:.6g}</text>')
    chosen = np.array(
        [tick for tick in x_ticks if x_axis.low <= tick <= x_axis.high] if x_ticks else x_axis.ticks, float
    )
    for tick, at in zip(chosen.tolist(), x_axis.place(chosen), strict=True):
        parts.append(f'<text class="x" x="{at:.2f}%" y="100%" dy="18">{tick:.6g}</text>')
        parts.append(f'<line class="tick" x1="{at:.2f}%" x2="{at:.2f}%" y1="100%" y2="100%"/>')
    return f'<g aria-hidden="true">{"".join(parts)}</g>'


def _draw_curve(
    x: Float64[np.ndarray, " X"], y_axis: _Axis, curve: Float64[np.ndarray, "3 X"], series: int, has_band: bool
) -> str:
    """Return the band and the line of a curve, both without the places where it has no value."""
    low, middle, high = (SIZE - SIZE / 100 * y_axis.place(values) for values in curve)
    low = np.where(np.isnan(low), SIZE, low)  # down to the edge
    across = SIZE / 100 * x
    bands, lines = [], []
    for part in _find_runs(np.isfinite(middle) & np.isfinite(high)):
        upper = _join_points(across[part], np.clip(high[part], -SIZE, 2 * SIZE))
        lower = _join_points(across[part][::-1], np.clip(low[part][::-1], -SIZE, 2 * SIZE))
        bands.append(f"M{upper}L{lower}z")
    lines = [f"M{_join_points(across[part], middle[part])}" for part in _find_runs(np.isfinite(middle))]
    band = f'<path class="band" d="{"".join(bands)}"/>' if has_band and (curve[0] != curve[2]).any() else ""
    return f'<g class="s{series % SERIES_COUNT}">{band}<path class="line" d="{"".join(lines)}"/></g>'


def _join_points(x: Float64[np.ndarray, " X"], y: Float64[np.ndarray, " X"]) -> str:
    """Return points as the numbers of a path."""
    return " ".join(f"{across:.1f} {down:.1f}" for across, down in zip(x.tolist(), y.tolist(), strict=True))


def _find_runs(mask: np.ndarray) -> Iterator[slice]:
    """Yield the ranges in which a mask is true without a gap."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        yield slice(first, last)


def _format_places(x: Float64[np.ndarray, " X"], label: str) -> list[str]:
    """Return the text of each place, such as "time 0.52 s" for the label "time (s)"."""
    name, _, unit = label.partition(" (")
    return [f"{name} {value:.4g} {unit.removesuffix(')')}".strip() for value in x.tolist()]


def _format_reading(low: float, middle: float, high: float) -> str:
    """Return a value with its band, "-" for none."""
    if math.isnan(middle):
        return "-"
    value, *ends = format_numbers((middle, low, high))
    return value if low == high or math.isnan(low) or math.isnan(high) else f"{value} ({ends[0]}, {ends[1]})"


def _describe_curves(label: str, places: Sequence[str], curves: Mapping[str, Float64[np.ndarray, "3 X"]]) -> str:
    """Return the first and the last value of each curve as a sentence."""
    ends = [
        f"{name} from {_format_reading(*curve[:, 0].tolist())} to {_format_reading(*curve[:, -1].tolist())}"
        for name, curve in curves.items()
    ]
    return f"{label} from {places[0]} to {places[-1]}: {'; '.join(ends)}."


def _strip_mathtext(text: str) -> str:
    """Return a label without matplotlib's marks of formulas, such as "R min" for "$R_{min}$"."""
    return re.sub(r"\$([^$]*)\$", lambda formula: re.sub(r"[{}\\]", "", formula[1].replace("_", " ")), text)
