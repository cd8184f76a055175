"""Sweep over a grid of controllers, flock sizes, radii, hops and environments; each point is a job that may train."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, PercentFormatter

from equiflock._runtime.checks import InputError, check_count
from equiflock.controllers.loading import has_open_seed
from equiflock.controllers.registry import is_bundled
from equiflock.evaluation.flight_statistics import (
    DISCONNECTED,
    check_user_metrics,
    format_estimate,
    is_share,
    summarize_flights,
)
from equiflock.evaluation.job_weights import check_weights, compute_weights_checksum, load_with_seed
from equiflock.flock import check_comm_radius
from equiflock.graph.radius_graph import components
from equiflock.learning.recipe import DAgger
from equiflock.plotting.figures import write_png
from equiflock.plotting.style import TEXT_COLOUR
from equiflock.protocols import Controller
from equiflock.scenarios import RandomDisk
from equiflock.simulation import metrics
from equiflock.simulation.environment import DEFAULT_ENVIRONMENT, Environment
from equiflock.simulation.metrics import METRICS, format_title, get_metric, list_user_metrics
from equiflock.simulation.simulate import count_steps, simulate

REALISED = "iman_realised"
"""Metric that differs from the IMAN only if the body is not ideal."""
METRIC_TITLES = {
    "ivv": "integral of the velocity variance",
    "iman": "integral of the mean acceleration norm",
    REALISED: "integral of the mean realised acceleration norm",
    "final_velocity_variance": "velocity variance at the end",
    "rms_acceleration": "RMS acceleration",
    "peak_acceleration": "largest acceleration of an agent",
    "residual_acceleration": "mean acceleration norm in the last half second",
    "jerk": "RMS jerk",
    DISCONNECTED: "share of flocks disconnected at the end",
}
"""Titles of the metrics of every sweep; users' metrics follow."""
AXES = {"agents": "agents", "comm_radius": "communication radius", "hops": "hops"}
"""Axes of every sweep; environment options with several values are further axes."""
LABEL_COLUMNS = ("controller", "seed", "flock", "remark")
"""Columns of a sweep's table that are neither axes nor metrics."""
AXIS_DIGITS = 12
"""Digits of values of axes: enough to tell them apart."""
MISSING_COLOUR = "#d9d9d9"
MAX_COLUMNS, MAX_PANELS = 2, 24
"""Panels of a figure in a row, and in all."""


@dataclass(frozen=True)
class SweepJob:
    """One point of the grid: test flocks under one controller, which may be trained for that point first."""

    controller: str
    seed: int
    agents: int
    comm_radius: float
    hops: int | None
    """K of a network that is trained for this point; None for controllers that are not trained here."""
    epochs: int = 0
    """Epochs of a training with these agents, radius and hops; 0 for no training."""
    flocks: int = 20
    time_step: float = 0.01
    duration: float = 2.0
    checksum: str = ""
    """Checksum of the weights file; not verified if empty."""
    plugin: str = ""
    """Checksum of the plugin that defines controller, body or metrics; empty if the package defines all."""
    environment: Environment = DEFAULT_ENVIRONMENT
    """Radio, body and failures of the test flights; trainings use the paper's."""
    metrics: tuple[str, ...] = ()
    """Names of users' metrics, columns of the result."""
    result_version: int = 2
    """Version of the columns of the result: results of another version are computed again."""
    axes: tuple[tuple[str, Any], ...] = field(default=(), repr=False)
    """Environment options that the sweep varies: columns of the table, not part of the stored result."""

    def __post_init__(self) -> None:
        # Checked when jobs are built, before any of them runs.
        for name in ("agents", "flocks"):
            check_count(name, getattr(self, name))
        check_comm_radius(self.comm_radius)
        count_steps(self.duration, self.time_step)
        check_count("epochs", self.epochs, least=0)
        self.environment.check_duration(self.duration)
        self.environment.check_followers(self.agents)

    @property
    def key(self) -> str:
        """Name of the job."""
        name = self.controller.replace("/", "_")
        point = f"sweep-{name}-{self.seed}-{self.agents}-{self.comm_radius:g}-{self.hops}"
        return f"{point}-{self.environment.file_suffix}".removesuffix("-")

    @property
    def labels(self) -> dict[str, Any]:
        """Columns that identify the job's rows in the experiment's table."""
        names = "controller", "seed", "agents", "comm_radius", "hops"
        return {name: getattr(self, name) for name in names} | dict(self.axes)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings, JSON-serializable."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "axes"}
        return {**values, "environment": self.environment.settings}

    @property
    def disk_options(self) -> dict[str, Any]:
        """R, and the radius of the initial disk, which is that of R = 1 in the controller's unit of length.

        All radii of a sweep have the same disk, so that a larger R gives each agent more neighbours.
        """
        unit = 1.0 if self.epochs else load_with_seed(self.controller, self.seed).senses.length_scale
        disk = RandomDisk(agents=self.agents, min_degree=0)
        return {"comm_radius": self.comm_radius, "disk_radius": unit * disk.radius}

    def run(self) -> pd.DataFrame:
        """Return a row per flock with its metrics; `remark` is empty.

        If no initial conditions exist for this point, return one row of NaN with the reason as `remark`.
        """
        options = self.disk_options
        # With a small radius no connected flock may exist, which is a result of the sweep.
        try:
            start = RandomDisk(self.flocks, self.agents, split="test", **options).draw()
        except InputError as error:
            missing = dict.fromkeys((*METRIC_TITLES, *self.metrics), np.nan)
            return pd.DataFrame([{"flock": 0, **missing, "remark": str(error).split(":")[0]}])
        controller = self.make_controller()
        names = ["velocity_variance", *(measure.__name__ for measure in metrics.EFFORT_METRICS), *self.metrics]
        if not self.environment.has_ideal_body:
            names.append("mean_realised_acceleration_norm")
        recorded = {name: get_metric(name) for name in names}
        run = simulate(
            start,
            controller,
            time_step=self.time_step,
            duration=self.duration,
            environment=self.environment,
            keep_every=None,
            record=recorded,
        )
        return pd.DataFrame(
            {
                "flock": np.arange(self.flocks),
                "ivv": metrics.ivv(run),
                "iman": metrics.iman(run),
                REALISED: metrics.iman(run) if self.environment.has_ideal_body else metrics.iman_realised(run),
                "final_velocity_variance": run.series["velocity_variance"][-1],
                **metrics.effort(run)._asdict(),
                DISCONNECTED: (components(run.flock()).max(axis=1) > 0).astype(float),
                **{name: recorded[name].summarize(run) for name in self.metrics},
                "remark": "",
            }
        )

    def make_controller(self) -> Controller:
        """Load the controller or, if the job has epochs, train it in this process, without a run directory."""
        if self.epochs == 0:
            check_weights(self.controller, self.seed, self.checksum, "sweep")
            return load_with_seed(self.controller, self.seed)
        from equiflock.learning.training import train

        # Only the final weights are used, so validate as little as possible.
        recipe = DAgger(
            controller=self.controller,
            epochs=self.epochs,
            seed=self.seed,
            agents=self.agents,
            hops=self.hops or DAgger.hops,
            **self.disk_options,
            validation_flocks=1,
            validate_every=self.epochs,
        )
        return cast(Controller, train(recipe))


def build_sweep_jobs(
    controllers: Sequence[str],
    seeds: Sequence[int],
    agents: Sequence[int],
    radii: Sequence[float],
    hops: Sequence[int | None],
    plugin: str = "",
    environments: Sequence[tuple[Mapping[str, Any], Environment]] = (({}, DEFAULT_ENVIRONMENT),),
    **options: Any,
) -> list[SweepJob]:
    """Return the jobs of all combinations, the largest flocks first, so that workers finish at similar times.

    Controllers without training seeds have jobs for the first seed only, unless they are trained. `options` are further
    fields of `SweepJob`, such as `epochs`.

    `plugin` is the checksum of the imported plugin, if any; jobs that depend on it have it in their names.
    Each of `environments` comes with the options that identify it in the table.
    """
    grid = product(sorted(agents, reverse=True), controllers, radii, hops, environments)
    varied = {name for axes, _ in environments for name in axes}
    user_metrics = check_user_metrics({*LABEL_COLUMNS, *METRIC_TITLES, *AXES, *varied})

    # Read each weights file once; networks that the jobs train have no file.
    @cache
    def get_checksum(name: str, seed: int) -> str:
        return "" if options.get("epochs") else compute_weights_checksum(name, seed)

    return [
        SweepJob(
            name,
            seed,
            n,
            comm_radius,
            K,
            checksum=get_checksum(name, seed),
            plugin="" if is_bundled(name) and environment.is_bundled and not user_metrics else plugin,
            environment=environment,
            metrics=user_metrics,
            axes=tuple(axes.items()),
            **options,
        )
        for n, name, comm_radius, K, (axes, environment) in grid
        # Seeds belong to trained weights or to trainings; all other controllers have one job.
        for seed in (seeds if has_open_seed(name) or options.get("epochs") else seeds[:1])
    ]


def list_metrics() -> dict[str, str]:
    """Return the titles of a sweep's metrics by name, with those of users."""
    return METRIC_TITLES | {metric.name: format_title(metric.name) for metric in list_user_metrics()}


def list_axes(table: pd.DataFrame) -> list[str]:
    """Return the axes of a sweep's table: agents, comm_radius and hops, then the environment options that vary."""
    others = {*LABEL_COLUMNS, *list_metrics(), *AXES}
    return [*AXES, *(column for column in table.columns if column not in others)]


def summarize_sweep(
    table: pd.DataFrame, axes: Sequence[str] | None = None, names: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return a row per point of `axes` (default: all) and metric in `names` (default: all), as `summarize_flights`.

    Seeds and the values of the remaining axes count as trainings.
    """
    by = ["controller", *(list_axes(table) if axes is None else axes)]
    names = [name for name in list_metrics() if name in table] if names is None else names
    trainings = ["seed", *(axis for axis in list_axes(table) if axis not in by)]
    # Controllers that are not trained here have NaN hops, which are sorted last.
    return summarize_flights(table.sort_values(by, kind="stable"), by, names, trainings)


def draw_sweep(table: pd.DataFrame, metric: str, path: str | os.PathLike[str]) -> Path:
    """Draw a metric, with 95% intervals, over the two axes with the most values; cells without flocks are grey.

    Each combination of values of the other axes has a panel, up to `MAX_PANELS`; if there were more, medians are also
    taken over the axes with the fewest values.
    """
    (x_axis, y_axis, *rest), left_out = _choose_axes(table)
    summary = summarize_sweep(table, [x_axis, y_axis, *rest], [metric])
    summary["value"] = summary["share" if is_share(metric) else "median"]
    panels = list(summary.groupby(["controller", *rest], dropna=False, sort=False))
    columns = min(len(panels), MAX_COLUMNS)
    rows = -(-len(panels) // columns)
    width = 1.3 + 0.8 * summary[x_axis].nunique(dropna=False)
    height = 1.3 + 0.5 * summary[y_axis].nunique(dropna=False)
    figure = Figure(figsize=(max(width, 3.6) * columns, max(height, 2.4) * rows), dpi=130, layout="constrained")
    # One colour scale for all panels, so that controllers are comparable.
    norm = _make_colour_norm(summary.value)
    grid = figure.subplots(rows, columns, squeeze=False)
    image = None
    for axes, ((controller, *values), panel_table) in zip(grid.flat, panels, strict=False):
        image = _draw_panel(axes, panel_table, x_axis, y_axis, norm)
        fixed = ", ".join(
            f"{_format_axis_name(axis)} {_format_axis_value(axis, value)}"
            for axis, value in zip(rest, values, strict=True)
        )
        # Several values go on a second line, as a panel is too narrow for them beside the controller's name.
        separator = "" if not rest else ", " if len(rest) == 1 else "\n"
        axes.set_title(f"{controller}{separator}{fixed}", fontsize="medium", color=TEXT_COLOUR)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    assert image is not None
    bar = figure.colorbar(image, ax=grid, shrink=0.9, format=PercentFormatter(1.0) if is_share(metric) else "{x:g}")
    interval = " (95% interval)" if any(" (" in format_estimate(row) for row in summary.itertuples()) else ""
    bar.set_label(f"{'share of' if is_share(metric) else 'median over'} flocks{interval}")
    suffix = f", median over {', '.join(map(_format_axis_name, left_out))}" if left_out else ""
    figure.suptitle(f"{list_metrics()[metric]}{suffix}{_format_direction(metric)}", color=TEXT_COLOUR)
    if isinstance(norm, LogNorm):
        bar.ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        bar.ax.yaxis.set_minor_formatter(NullFormatter())
    return write_png(figure, path)


def _draw_panel(axes: Any, panel_table: pd.DataFrame, x_axis: str, y_axis: str, norm: Normalize) -> Any:
    """Draw one heat map on `axes`, with the number and its interval in every cell, and return its image."""
    cells = panel_table.assign(text=[format_estimate(row) for row in panel_table.itertuples()])
    values, texts = (cells.pivot(index=y_axis, columns=x_axis, values=name) for name in ("value", "text"))
    # "No limit" is a missing value; sort it after the largest.
    order = values.index.isna().argsort(kind="stable"), values.columns.isna().argsort(kind="stable")
    values, texts = values.iloc[order], texts.iloc[order]
    numbers = values.to_numpy(np.float64)
    image = axes.imshow(np.ma.masked_invalid(numbers), norm=norm, cmap="viridis", aspect="auto", origin="lower")
    axes.set_facecolor(MISSING_COLOUR)
    axes.set_xticks(range(values.shape[1]), [_format_axis_value(x_axis, x) for x in values.columns])
    axes.set_yticks(range(values.shape[0]), [_format_axis_value(y_axis, y) for y in values.index])
    axes.set(xlabel=_format_axis_name(x_axis), ylabel=_format_axis_name(y_axis))
    # Write each number, with its interval in a second line, in a colour that is legible on its cell.
    for (y, x), number in np.ndenumerate(numbers):
        is_dark = bool(np.isfinite(number)) and norm(number) < 0.6
        style: dict[str, Any] = {"ha": "center", "color": "white" if is_dark else TEXT_COLOUR}
        text, _, interval = ("" if np.isnan(number) else texts.iat[y, x]).partition(" ")
        axes.text(x, y, text, va="bottom" if interval else "center", fontsize=8, **style)
        if interval:
            axes.text(x, y - 0.04, interval, va="top", fontsize=6, **style)
    return image


def _choose_axes(table: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Return the axes to draw, in descending order of their numbers of values, and the axes to take medians over.

    The first two are x and y of the maps, even if they have a single value; other axes with a single value are in
    neither list. Each further axis multiplies the panels, one per controller, while MAX_PANELS suffice.
    """
    counts = {axis: table[axis].nunique(dropna=False) for axis in list_axes(table)}
    ordered = sorted(counts, key=lambda axis: -counts[axis])
    # An axis with a single value is drawn only if the map needs it.
    rest = [axis for axis in ordered[2:] if counts[axis] > 1]
    panels = table.controller.nunique()
    panel_axes = []
    for axis in rest:
        panels *= counts[axis]
        if panels > MAX_PANELS:
            break
        panel_axes.append(axis)
    return [*ordered[:2], *panel_axes], rest[len(panel_axes) :]


def _make_colour_norm(values: pd.Series) -> Normalize:
    """Return the colour scale, logarithmic if all values are positive and the largest is over 5 times the smallest."""
    low, high = values.min(), values.max()
    if not np.isfinite(low):  # all values are missing
        return Normalize(0.0, 1.0)
    return LogNorm(low, high) if 0.0 < 5 * low < high else Normalize(low, high if high > low else low + 1.0)


def _format_direction(metric: str) -> str:
    """Return ": lower is better" or ": higher is better"; the package's own metrics are errors or efforts."""
    larger_is_better = metric in METRICS.parts and METRICS.parts[metric].larger_is_better
    return f": {'higher' if larger_is_better else 'lower'} is better"


def _format_axis_name(axis: str) -> str:
    return AXES.get(axis, axis.replace("_", " "))


def _format_axis_value(axis: str, value: Any) -> str:
    """Return the label of a value on an axis; missing values are "as built" for hops, else "none"."""
    if isinstance(value, str):
        return value
    if value is None or np.isnan(value):
        return "as built" if axis == "hops" else "none"
    return f"{value:.{AXIS_DIGITS}g}"
