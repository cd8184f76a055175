"""What stands around the pictures of a film: titles, the curve of the velocity variance with the time, and a legend."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.transforms import Bbox, IdentityTransform

from equiflock.flock import Condition, Role
from equiflock.outcomes import Outcome
from equiflock.plotting.flock_picture import list_groups
from equiflock.plotting.palettes import Palette, colour_by_heading
from equiflock.plotting.sprites import DART, DISC, LEFT_HALF, SEGMENT, Sprites
from equiflock.scenarios.registry import SCENARIOS
from equiflock.simulation.metrics import component_count, velocity_variance
from equiflock.simulation.trajectory import Trajectory

DISPLAY_WIDTH = 840
"""Width in pixels of a column of text, to which a page shrinks a wider film: text keeps 12 pixels there."""
TEXT, TITLE = 12, 14
"""Heights of text, in units of the layout; a unit is at least a pixel."""
HEAD, PLOT, LEGEND_ROW, MARGIN = 40, 100, 22, 8
"""Heights of a panel's title, of the curves and of a row of the legend, and the margin, in units."""
AXIS_WIDTH = 40
"""Room for the labels of the curves' axis, in units."""
MAX_COLUMNS = 3
"""Most panels side by side; more are in several rows."""
MAX_DECADES = 6
"""Most decades of the curves' axis, as on the page."""
WHEEL_SPOKES = 48
NOISE = 1e-15
"""Smaller variances come from rounding and are shown as 0."""


@dataclass(frozen=True)
class Layout:
    """Places of a film's parts, in pixels from the lower left corner of a figure of 72 dots per inch."""

    unit: float
    width: int
    height: int
    pictures: tuple[Bbox, ...]
    plot: Bbox
    legend: Bbox

    def make_figure(self, palette: Palette) -> Figure:
        """Return an empty figure of this size with a canvas."""
        # The addition keeps rounding from taking a pixel off.
        figure = Figure(figsize=((self.width + 1e-4) / 72, (self.height + 1e-4) / 72), dpi=72)
        figure.set_facecolor(palette.background)
        FigureCanvasAgg(figure)
        return figure


def count_columns(panels: int) -> int:
    """Return the number of panels side by side, so that the rows are about equally full."""
    return math.ceil(panels / math.ceil(panels / MAX_COLUMNS))


def get_unit(columns: int, panel_width: int) -> float:
    """Return the pixels of a unit: text of 12 units has 12 pixels in a column of DISPLAY_WIDTH."""
    return max(1.0, columns * panel_width / DISPLAY_WIDTH)


def make_layout(panels: int, panel_width: int, panel_height: int, legend_rows: int) -> Layout:
    """Return the layout of a film of some panels of a size in pixels."""
    columns = count_columns(panels)
    rows = math.ceil(panels / columns)
    unit = get_unit(columns, panel_width)
    head, plot, row, margin = (round(size * unit) for size in (HEAD, PLOT, LEGEND_ROW, MARGIN))
    foot = legend_rows * row + margin // 2
    # The codec requires even numbers of pixels.
    width = columns * panel_width // 2 * 2
    height = -(-(rows * (panel_height + head) + plot + foot) // 2) * 2
    pictures = []
    for place in range(panels):
        down, across = divmod(place, columns)
        top = height - head - down * (panel_height + head)
        pictures.append(Bbox.from_extents(across * panel_width, top - panel_height, (across + 1) * panel_width, top))
    return Layout(
        unit,
        width,
        height,
        tuple(pictures),
        plot=Bbox.from_extents(margin, foot, width - margin, foot + plot),
        legend=Bbox.from_extents(margin, margin // 2, width - margin, foot),
    )


class FilmFrame:
    """Draws titles, curves and legend around pictures; the pictures' artists are drawn above a stored background.

    `draw` draws one image of the film. The canvas is `canvas`.
    """

    def __init__(
        self, figure: Figure, layout: Layout, runs: Sequence[Trajectory], titles: Sequence[str], palette: Palette
    ) -> None:
        """Draw everything that does not move; add the artists of the pictures and call `finish` then."""
        self.figure, self.layout, self.runs, self.palette = figure, layout, runs, palette
        self.canvas: Any = figure.canvas
        self.series = palette.list_series(len(runs))
        self.variances = [velocity_variance(run)[:, 0] for run in runs]
        self.component_counts = [component_count(run)[:, 0].astype(int) for run in runs]
        self.moving: list[Artist] = []
        unit = layout.unit
        self.statuses = []
        for box, title, colour in zip(layout.pictures, titles, self.series, strict=True):
            left, top = box.x0 + MARGIN * unit, box.y1 + HEAD * unit
            if len(runs) > 1:  # the colour of the panel's curve
                mark = Rectangle((left, top - 15.5 * unit), 12 * unit, 3 * unit, color=colour, linewidth=0)
                self._add(mark)
                left += 18 * unit
            room = box.x1 - left - MARGIN * unit
            self._write(left, top - 7 * unit, self._shorten(title, TITLE, room), palette.text, TITLE, va="top")
            status = self._write(box.x0 + MARGIN * unit, top - 24 * unit, "", palette.faint, va="top", moving=True)
            self.statuses.append(status)
        self._draw_panel_borders()
        self._draw_plot()
        note_y = layout.legend.y0 + 0.25 * LEGEND_ROW * unit
        self.scale_note = self._write(layout.legend.x1, note_y, "", palette.faint, ha="right", moving=True)
        draw_legend(self, layout.legend, runs)

    def finish(self, pictures: Sequence[Artist]) -> None:
        """Store everything that does not move as the background of the animated artists."""
        self.pictures = pictures
        self.canvas.draw()
        self.background = self.canvas.copy_from_bbox(self.figure.bbox)

    def draw(self, time: float, frames: Sequence[int], scale_note: str) -> None:
        """Draw the image at a time, in seconds; `frames` are the saved frames that the panels show."""
        self._update_texts(time, frames, scale_note)
        self.canvas.restore_region(self.background)
        renderer = self.canvas.get_renderer()
        for artist in (*self.pictures, *self.moving):
            artist.draw(renderer)

    def _update_texts(self, time: float, frames: Sequence[int], scale_note: str) -> None:
        for status, run, variance, counts, frame, box in zip(
            self.statuses, self.runs, self.variances, self.component_counts, frames, self.layout.pictures, strict=True
        ):
            count = int(counts[frame])
            # Allow half a step for rounding of times.
            ended = time >= (int(run.steps[0]) - 0.5) * run.time_step
            outcome = f"{run.outcome[0].name.lower().replace('_', ' ')} after {run.steps[0] * run.time_step:.2f} s"
            is_over = ended and run.outcome[0] not in (Outcome.TIME_UP, Outcome.FLYING)
            components = f"{count} component{'s' * (count != 1)}"
            text = outcome if is_over else f"variance {format_value(variance[frame])}, {components}"
            status.set_text(self._shorten(text, TEXT, box.width - 2 * MARGIN * self.layout.unit))
        self.scale_note.set_text(scale_note)
        self.time_note.set_text(f"t = {time:.2f} s")
        x = self.to_plot(np.array([time]), np.array([1.0]))[0, 0]
        self.time_line.set_xdata([x, x])
        for dot, run, variance, frame in zip(self.dots, self.runs, self.variances, frames, strict=True):
            flown = min(time, float(run.steps[0]) * run.time_step)  # the dot stays where the flight has ended
            dot.set_data(*np.maximum(self.to_plot(np.array([flown]), variance[[frame]]), self.plot.min).T)

    def _draw_panel_borders(self) -> None:
        """Draw the lines above and below each panel, and those between panels."""
        style: dict[str, Any] = {"color": self.palette.hairline, "linewidth": self.layout.unit}
        for box in self.layout.pictures:
            for y in (box.y0, box.y1):
                self._add(Line2D([box.x0, box.x1], [y, y], **style))
            if box.x0 > 0:
                self._add(Line2D([box.x0, box.x0], [box.y0, box.y1], **style))

    def _draw_plot(self) -> None:
        """Draw the curves of the velocity variance on one logarithmic axis, and the mark of the time."""
        unit, palette, box = self.layout.unit, self.palette, self.layout.plot
        self.plot = Bbox.from_extents(
            box.x0 + AXIS_WIDTH * unit, box.y0 + 20 * unit, box.x1 - 6 * unit, box.y1 - 31 * unit
        )
        positive = np.concatenate([values[np.isfinite(values) & (values > 0)] for values in self.variances])
        high = float(positive.max()) if len(positive) else 1.0
        # A flock that starts with equal velocities does not set the axis.
        low = max(float(np.quantile(positive, 0.02)) if len(positive) else 0.1, high / 10**MAX_DECADES)
        low, high = (low, high) if high > 2 * low else (high / 10, high)
        self.log_limits = math.log10(low), math.log10(high)
        self.first, self.last = float(self.runs[0].times[0]), compute_film_end(self.runs)

        self._write(box.x0, box.y1 - 7 * unit, "Velocity variance", palette.text, va="top")
        self.time_note = self._write(box.x1, box.y1 - 7 * unit, "", palette.text, ha="right", va="top", moving=True)
        for exponent in list_decades(*self.log_limits):
            y = self.to_plot(np.array([self.first]), np.array([10.0**exponent]))[0, 1]
            self._add(Line2D([self.plot.x0, self.plot.x1], [y, y], color=palette.hairline, linewidth=unit))
            self._write(self.plot.x0 - 5 * unit, y, format_power(exponent), palette.faint, ha="right", va="center")
        for x, time, align in ((self.plot.x0, self.first, "left"), (self.plot.x1, self.last, "right")):
            self._write(x, self.plot.y0 - 5 * unit, f"{time:g} s", palette.faint, ha=align, va="top")
        for run, variance, colour in zip(self.runs, self.variances, self.series, strict=True):
            # A flight that has ended has no curve any more.
            shown = run.times <= (run.steps[0] + 0.5) * run.time_step
            x, y = self.to_plot(run.times[shown], variance[shown]).T
            curve = Line2D(x, y, color=colour, linewidth=1.8 * unit, solid_joinstyle="round")
            self._add(curve)
            curve.set_clip_box(self.plot.padded(2 * unit))
        self.time_line = Line2D([0, 0], [self.plot.y0, self.plot.y1], color=palette.faint, linewidth=unit)
        self._add(self.time_line, moving=True)
        self.dots = []
        for colour in self.series:
            dot = Line2D([], [], color=colour, marker="o", markersize=6 * unit, markeredgewidth=0)
            self._add(dot, moving=True)
            self.dots.append(dot)

    def to_plot(
        self, times: Float64[np.ndarray, " T"], values: Float64[np.ndarray, " T"]
    ) -> Float64[np.ndarray, "T 2"]:
        """Return the pixels of values at times; values below the axis are below the plot, which clips them."""
        low, high = self.log_limits
        with np.errstate(divide="ignore", invalid="ignore"):
            heights = np.maximum((np.log10(values) - low) / (high - low), -1.0)
        shares = (times - self.first) / max(self.last - self.first, 1e-12)
        return np.column_stack([self.plot.x0 + shares * self.plot.width, self.plot.y0 + heights * self.plot.height])

    def _add(self, artist: Any, moving: bool = False) -> None:
        """Add an artist in pixels of the figure, above the background if it moves."""
        artist.set_transform(IdentityTransform())
        artist.set_animated(moving)
        self.figure.add_artist(artist)
        if moving:
            self.moving.append(artist)

    def _write(
        self, x: float, y: float, text: str, colour: str, size: float = TEXT, moving: bool = False, **align: str
    ) -> Text:
        """Add a text at a place in pixels; `size` is in units."""
        note = Text(x, y, text, color=colour, fontsize=size * self.layout.unit, **align)  # type: ignore[arg-type]
        self._add(note, moving)
        return note

    def measure(self, text: str, size: float = TEXT) -> float:
        """Return the width of a text, in pixels."""
        note = Text(0, 0, text, fontsize=size * self.layout.unit)
        note.set_figure(self.figure)
        return float(note.get_window_extent(self.canvas.get_renderer()).width)

    def _shorten(self, text: str, size: float, room: float) -> str:
        """Return a text cut so that it fits into a width in pixels."""
        while len(text) > 2 and self.measure(text, size) > room:
            text = text[:-2].rstrip() + "…"
        return text


def compute_film_end(runs: Sequence[Trajectory]) -> float:
    """Return the time at which the last flight has ended, in seconds; films stop there."""
    return min(float(runs[0].times[-1]), max(int(run.steps[0]) * run.time_step for run in runs))


def format_value(value: float) -> str:
    """Return a value with three digits, or as 1.2·10⁻⁵ if it is small, as the page does; – if not finite."""
    if not math.isfinite(value):
        return "–"
    if value < NOISE:
        return "0"
    if value >= 0.001:
        return f"{value:#.3g}".rstrip(".")
    exponent = math.floor(math.log10(value))
    return f"{value / 10.0**exponent:.1f}·{format_power(exponent)}"


def format_power(exponent: int) -> str:
    """Return a power of ten in digits if it is short, such as 0.01, else with an exponent, such as 10⁻⁵."""
    if -2 <= exponent <= 3:
        return f"{10.0**exponent:g}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def list_decades(low: float, high: float) -> list[int]:
    """Return the exponents of at most four evenly spaced powers of ten between two logarithms."""
    exponents = list(range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1))
    return exponents[:: max(math.ceil(len(exponents) / 3), 1)]


def list_legend(runs: Sequence[Trajectory], unit: float, palette: Palette) -> list[tuple[str, Callable[..., None]]]:
    """Return the entries of the legend that the runs need: a text and a function that draws its mark."""

    def dart(colour: Any, size: float = 15.0, **style: Any) -> Callable[..., None]:
        def draw(add: Callable[..., Sprites], place: Any) -> None:
            axes = np.array([[size * unit, 0.0]])
            add(DART, **style).place(place, axes, [colour])
            if colour != palette.background:
                add(LEFT_HALF).place(place, axes, [np.clip(np.array(to_rgba(colour)) + 0.08, 0, 1)])

        return draw

    def disc(colour: str, radius: float) -> Callable[..., None]:
        def draw(add: Callable[..., Sprites], place: Any) -> None:
            add(DISC).place(place, np.array([[radius * unit, 0.0]]), to_rgba(colour))

        return draw

    def wheel(add: Callable[..., Sprites], place: Any) -> None:
        angles = np.linspace(0, 2 * np.pi, WHEEL_SPOKES, endpoint=False)
        rays = np.column_stack([np.cos(angles), np.sin(angles)])
        spokes = add(SEGMENT, width=1.6 * unit)
        spokes.place(place + 4.5 * unit * rays, 4 * unit * rays, lines=colour_by_heading(palette, rays))

    def leader(add: Callable[..., Sprites], place: Any) -> None:
        add(DISC, width=1.25 * unit, edge=to_rgba(palette.ink)).place(place, np.array([[8.0 * unit, 0.0]]))
        dart(palette.failed, 11.0, width=1.5 * unit, edge=to_rgba(palette.ink))(add, place)

    groups = sorted({group for run in runs for group in list_groups(run)})
    roles = {int(role) for run in runs for role in run.roles[0]}
    conditions = {int(condition) for run in runs for condition in np.unique(run.conditions)}
    entries: list[tuple[str, Callable[..., None]]] = []
    if all(len(list_groups(run)) < 2 for run in runs):
        entries.append(("heading", wheel))
    else:
        names = get_group_names(runs[0])
        for place, group in enumerate(groups):
            name = names[group] if 0 <= group < len(names) else f"group {group}"
            entries.append((name, dart(palette.groups[place % len(palette.groups)])))
    if Role.LEADER in roles:
        entries.append(("leader", leader))
    if Role.OBSTACLE in roles:
        entries.append(("obstacle", disc(palette.obstacle, 5.0)))
    hollow = dart(palette.background, width=1.5 * unit, edge=to_rgba(palette.failed))
    failures = {
        Condition.SILENT: hollow,
        Condition.STOPPED: disc(palette.failed, 5.0),
        Condition.DRIFTING: dart(palette.failed),
    }
    entries += [(kind.name.lower(), mark) for kind, mark in failures.items() if kind in conditions]
    return entries


def get_group_names(run: Trajectory) -> tuple[str, ...]:
    """Return the names that the scenario of a flight gives its groups, by number; none if it has none."""
    names = getattr(SCENARIOS.parts.get(str(run.config.get("scenario"))), "group_names", ())
    return names if isinstance(names, tuple) else ()


def count_legend_rows(frame_width: float, entries: int) -> int:
    """Return the rows of a legend of some entries in a frame of a width, in units, with room for the note of scale."""
    return max(1, math.ceil((entries * 82 + 120) / max(frame_width, 1.0)))


def draw_legend(frame: FilmFrame, box: Bbox, runs: Sequence[Trajectory]) -> None:
    """Draw the legend into a box, row by row from the top; its last row keeps room for the note of the scale."""
    unit = frame.layout.unit

    def add(shape: Any, width: float = 0.0, edge: Any = "none") -> Sprites:
        artist = Sprites(shape, box.padded(MARGIN * unit), 5, width, edge)
        artist.set_animated(False)
        frame.figure.add_artist(artist)
        return artist

    x, y = box.x0, box.y1 - 0.75 * LEGEND_ROW * unit
    for text, mark in list_legend(runs, unit, frame.palette):
        width = 22 * unit + frame.measure(text)
        if x + width > box.x1 and x > box.x0:
            x, y = box.x0, y - LEGEND_ROW * unit
        mark(add, np.array([[x + 9 * unit, y + 4.5 * unit]]))
        frame._write(x + 22 * unit, y, text, frame.palette.faint)
        x += width + 14 * unit
