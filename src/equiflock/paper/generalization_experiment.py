"""The generalization gap and its bound during cloning of the expert (section 5, "Generalization gap").

Numbers of a controller are those at the last epoch, one per training seed, unless a rule states otherwise. Bounds are
the proven ones, not the printed ones. Bands in figures are ranges over training seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pandas as pd
from jaxtyping import Float64

from equiflock._runtime.checksums import compute_checksum
from equiflock._runtime.specs import parse_spec
from equiflock._runtime.user_cache import KEY_DIGITS, open_cache_dir
from equiflock.controllers.trained import PAPER_NETWORKS
from equiflock.evaluation.curves import Curves, pack_values, unpack_values
from equiflock.learning.fast_forward import FastForward, Split
from equiflock.learning.recipe import Cloning
from equiflock.paper.gap_splits import SPLITS, redraw_gaps, resample_gaps
from equiflock.paper.ledger import Check, Statement
from equiflock.paper.profile import Profile
from equiflock.plotting.curve_panel import CurvePanel
from equiflock.plotting.html_report import format_markdown_table
from equiflock.protocols import LocalController
from equiflock.statistics import RESAMPLES

if TYPE_CHECKING:
    from torch import nn

    from equiflock.learning.cloning import Cloner, CloningReport

LARGEST_DIMENSIONS = {"tdagnn": 33, "tdagnn-tf": 33, "tdagnn-tf-mean": 33, "etdagnn": 16}
"""Largest dimension of each controller's weight matrices, according to the paper."""
BOUND_TERMS = ("data_bound", "lipschitz", "largest_dimension", "coefficient", "root", "norm_sum")
"""Attributes of `generalization_bound` that are columns of the table."""
LEAST_CORRELATION = 0.95
"""Correlation of bound and gap that the paper reports at least."""
GAP_LABELS = {"bound": "generalization bound", "gap": "empirical gap"}
TERM_LABELS = {
    "data_bound": r"data bound $\beta$",
    "coefficient": r"coefficient $48 D / \sqrt{m}$",
    "norm_sum": r"$\sum_l \ln \max\{1, |W_l|_F\}$",
    "root": r"square root $\sqrt{S}$",
}


@dataclass(frozen=True)
class CloningJob:
    """Behaviour cloning of the expert by one controller, from the data in a directory."""

    recipe: Cloning
    data: FastForward
    folder: Path = field(default=Path(), repr=False, compare=False)
    """Directory of the data, which is generated if missing; the result does not depend on it."""
    splits: int = SPLITS
    """Number of other splits of the same tuples for which the correlation of bound and gap is computed."""

    @property
    def key(self) -> str:
        """Name of the job."""
        return f"generalization-{self.labels['controller']}-{self.recipe.seed}"

    @property
    def labels(self) -> dict[str, Any]:
        """Columns that identify the job's rows in the experiment's table."""
        return {"controller": parse_spec(self.recipe.controller).name, "seed": self.recipe.seed}

    def run(self) -> pd.DataFrame:
        """Clone, and return a row per measured epoch, epoch 0 first: losses, gap, and the bound with its terms.

        The last row also has the largest |gap| and the correlations of bound and gap over epochs, from 1, on bootstrap
        samples of the tuples, and the correlations on other splits: `pack_values` of the draws.
        """
        from equiflock.learning.cloning import clone
        from equiflock.theory import generalization_bound

        folder = self.folder
        if not folder.parent.parent.is_dir():
            # A worker on another machine may not have the directory; it generates the data once, in its cache.
            folder = open_cache_dir("fast-forward", compute_checksum(repr(self.data).encode())[:KEY_DIGITS])
        data = self.data.make(folder)
        rows: list[dict[str, Any]] = []
        losses: dict[Split, list[Any]] = {"train": [], "test": []}

        def add_row(cloner: Cloner, report: CloningReport) -> None:
            """Add the row of an epoch, with the bound of the current weights."""
            student = cast(LocalController, cloner.network)
            bound = generalization_bound(student, data, loss_scale=self.recipe.loss_scale)
            for split, measured in cloner.tuple_losses.items():
                losses[split].append(measured)
            rows.append(
                {
                    **asdict(report),
                    "gap": report.gap,
                    "bound": bound.value,
                    "bound_as_printed": replace(bound, variant="printed").value,
                    **{name: getattr(bound, name) for name in BOUND_TERMS},
                    "mean_weight": compute_mean_weight(cloner.network),
                    **{f"norm_{number}": norm for number, norm in enumerate(bound.norms, start=1)},
                    "train_tuples": data.samples,
                    "test_tuples": len(data) - data.samples,
                }
            )

        clone(self.recipe, data, on_epoch=add_row)
        tuples = np.stack(losses["train"]), np.stack(losses["test"])
        bounds = np.array([[row["bound"] for row in rows[1:]]])
        resampled = resample_gaps(*tuples, self.recipe.seed)
        redrawn = redraw_gaps(*tuples, self.recipe.seed, self.splits)
        draws = {
            "resampled_largest_gap": np.abs(resampled).max(axis=1),
            "resampled_correlation": correlate(bounds, resampled[:, 1:]),
            "split_correlation": correlate(bounds, redrawn[:, 1:]),
        }
        rows[-1] |= {name: pack_values(values, digits=4) for name, values in draws.items()}
        return pd.DataFrame(rows)


def build_cloning_jobs(profile: Profile, folder: Path) -> list[CloningJob]:
    """Return the jobs of the experiment: every controller on every dataset."""
    # At most a hundred epochs are measured: measuring an epoch takes as long as training it.
    epochs = profile.interpretation.cloning_epochs
    every = max(epochs // 100, 1)
    networks = [profile.interpretation.format_network(name) for name in PAPER_NETWORKS]
    return [
        CloningJob(Cloning(network, data.seed, epochs, measure_every=every), data, home)
        for home, data in profile.build_datasets(folder).items()
        for network in networks
    ]


def compute_mean_weight(network: nn.Module) -> float:
    """Return the mean absolute value of a network's trainable weights."""
    weights = [weight.detach().double().abs() for weight in network.parameters() if weight.requires_grad]
    return float(sum(weight.sum() for weight in weights)) / sum(weight.numel() for weight in weights)


def compute_correlation(curves: Curves, controller: str, first: int = 1) -> Float64[np.ndarray, " S"]:
    """Return Pearson's correlation of bound and gap over the epochs from `first`, per seed; 0 if one is constant."""
    late = curves.x >= first
    bound, gap = (curves.get_curve(name, controller)[:, late] for name in ("bound", "gap"))
    return correlate(bound, gap)


def correlate(first: Float64[np.ndarray, "S X"], second: Float64[np.ndarray, "R X"]) -> Float64[np.ndarray, " R"]:
    """Return Pearson's correlation of each pair of rows, or of one row with each; 0 if one is constant."""
    return np.asarray((standardize(first) * standardize(second)).mean(axis=1))


def standardize(values: Float64[np.ndarray, "S X"]) -> Float64[np.ndarray, "S X"]:
    """Subtract each seed's mean over epochs and divide by its standard deviation; a constant row becomes zeros."""
    centred = values - values.mean(axis=1, keepdims=True)
    deviation = centred.std(axis=1, keepdims=True)
    return np.asarray(np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0))


def build_generalization_statements(table: pd.DataFrame, resamples: int = RESAMPLES) -> list[Statement]:
    """Return G1 to G7; G1 only for data of the paper's size: a smaller profile has fewer tuples by choice.

    Only gaps are means over tuples and have intervals: counts, bounds and weights are exact. With `resamples` = 0 there
    are no intervals.
    """
    curves = Curves(table, over="epoch")
    paper = FastForward()
    is_full_size = curves.last("train_tuples", "etdagnn").min() >= paper.steps * paper.train_flocks
    sizes = [_judge_dataset_sizes(curves)] if is_full_size else []
    return [
        *sizes,
        _judge_empirical_gap(curves, resamples),
        _judge_order_of_bounds(curves),
        _judge_largest_dimension(curves),
        _judge_data_bound(curves),
        _judge_correlation_of_bound_and_gap(curves, resamples),
        _judge_weight_sizes(curves),
    ]


def _judge_dataset_sizes(curves: Curves) -> Statement:
    """Judge statement G1."""
    train, test = (curves.last(f"{split}_tuples", "etdagnn") for split in ("train", "test"))
    return Statement(
        "G1",
        "The data sets have 80,400 tuples, 30,150 for training and 50,250 for testing.",
        "Counted.",
        (
            Check.equal_to("tuples", train + test, 80_400),
            Check.equal_to("tuples for training", train, 30_150),
            Check.equal_to("tuples for testing", test, 50_250),
        ),
    )


def _add_resamples(
    measured: Float64[np.ndarray, " S"], curves: Curves, column: str, controller: str, resamples: int
) -> Float64[np.ndarray, "R S"]:
    """Return a number per seed as measured, and below it, if there are any, the draws of a column of the job."""
    if not resamples or column not in curves.table:
        return measured[None]
    texts = curves.get_texts(column, controller).iloc[:, -1]
    return np.vstack([measured, np.transpose([unpack_values(text) for text in texts])])


def _count_tuples(curves: Curves) -> int:
    """Return the number of tuples of a data set."""
    return int(sum(curves.last(f"{split}_tuples", "etdagnn")[0] for split in ("train", "test")))


def _judge_empirical_gap(curves: Curves, resamples: int) -> Statement:
    """Judge statement G2."""
    gaps = {}
    for name in PAPER_NETWORKS:
        largest = np.abs(curves.get_curve("gap", name)).max(axis=1)
        gaps[name] = _add_resamples(largest, curves, "resampled_largest_gap", name, resamples)
    return Statement(
        "G2",
        "The empirical generalization gap is near zero for all controllers.",
        "At every epoch that is measured at most 0.01, where a loss is from 0 to 1.",
        tuple(
            Check.within(f"largest |gap|: {name}", gap, 0.0, 0.01, flocks=_count_tuples(curves))
            for name, gap in gaps.items()
        ),
    )


def _judge_order_of_bounds(curves: Curves) -> Statement:
    """Judge statement G3."""
    bounds = {name: curves.last("bound", name) for name in PAPER_NETWORKS}
    ratio = bounds["etdagnn"] / bounds["tdagnn-tf-mean"]
    return Statement(
        "G3",
        "The bound falls from TDAGNN to TDAGNN-TF to TDAGNN-TF-mean to ETDAGNN, whose bound is about half of that of "
        "TDAGNN-TF-mean.",
        "Each below the one before at the last epoch; the ratio of the last two from 0.4 to 0.6.",
        (
            *(Check.less(f"bound: {b} below {a}", bounds[b], bounds[a]) for a, b in pairwise(PAPER_NETWORKS)),
            Check.within("bound: etdagnn / tdagnn-tf-mean", ratio, 0.4, 0.6),
        ),
    )


def _judge_largest_dimension(curves: Curves) -> Statement:
    """Judge statement G4."""
    return Statement(
        "G4",
        "The largest dimension of a weight matrix is 33 for each TDAGNN and 16 for ETDAGNN.",
        "Counted on the controllers' MLP forms.",
        tuple(
            Check.equal_to(f"largest dimension: {name}", curves.last("largest_dimension", name), size)
            for name, size in LARGEST_DIMENSIONS.items()
        ),
    )


def _judge_data_bound(curves: Curves) -> Statement:
    """Judge statement G5."""
    # TF and TF-mean differ only in the aggregation, so they show its effect on the bound.
    data = curves.last("data_bound", "tdagnn-tf") / curves.last("data_bound", "tdagnn-tf-mean")
    points = curves.last("bound", "tdagnn-tf") - curves.last("bound", "tdagnn-tf-mean")
    sums = {name: curves.last("norm_sum", name) for name in PAPER_NETWORKS}
    return Statement(
        "G5",
        "The data bound is an order of magnitude smaller for mean aggregation, which makes only about 10 points of "
        "bound between TDAGNN-TF and TDAGNN-TF-mean; the sums over Frobenius norms are similar for all.",
        "Medians over data sets: ratio of the data bounds from 3 to 30; difference of the bounds from 5 to 15; sums "
        "within a factor of 1.25 of each other, pair by pair.",
        (
            Check.within("data bound: sum / mean", data, 3.0, 30.0),
            Check.within("bound: tdagnn-tf - tdagnn-tf-mean", points, 5.0, 15.0),
            *(
                Check.within(f"sum over norms: {a} / {b}", sums[a] / sums[b], 0.8, 1.25)
                for a, b in combinations(PAPER_NETWORKS, 2)
            ),
        ),
    )


def _judge_correlation_of_bound_and_gap(curves: Curves, resamples: int) -> Statement:
    """Judge statement G6."""
    correlations = {
        name: _add_resamples(compute_correlation(curves, name), curves, "resampled_correlation", name, resamples)
        for name in PAPER_NETWORKS
    }
    return Statement(
        "G6",
        "Over epochs, bound and empirical gap have a correlation of at least 0.95.",
        "Pearson's, over all epochs that are measured, from 1, for every controller.",
        tuple(
            Check.within(f"correlation: {name}", correlation, LEAST_CORRELATION, 1.001, flocks=_count_tuples(curves))
            for name, correlation in correlations.items()
        ),
    )


def _judge_weight_sizes(curves: Curves) -> Statement:
    """Judge statement G7."""
    size = {name: curves.last("mean_weight", name) for name in PAPER_NETWORKS}
    return Statement(
        "G7",
        "ETDAGNN has about 75% fewer weights, so its weights tend to be larger than those of the non-equivariant "
        "controllers.",
        "The mean absolute value of its trainable weights at the last epoch above that of each other controller.",
        tuple(
            Check.less(f"mean |weight|: {name} below etdagnn", size[name], size["etdagnn"])
            for name in PAPER_NETWORKS
            if name != "etdagnn"
        ),
    )


def build_loss_panels(table: pd.DataFrame) -> list[CurvePanel]:
    """Return panels of the training loss by epoch, and of the difference of the test loss from it, for each network."""
    curves = Curves(table, over="epoch")
    training, difference = {}, {}
    for name in PAPER_NETWORKS:
        train, test = (curves.get_curve(quantity, name) for quantity in ("train_loss", "test_loss"))
        training[name], difference[name] = _compute_range(train), _compute_range(100.0 * (test - train) / train)
    label = "test loss above training loss, %"
    return [
        CurvePanel(curves.x, "epoch", "training loss", training),
        CurvePanel(curves.x, "epoch", label, difference, "linear", shows_range_at_end=True),
    ]


def build_bound_panels(table: pd.DataFrame) -> list[CurvePanel]:
    """Return panels of the generalization bound and the empirical gap (test loss - training loss) by epoch."""
    return _build_network_panels(table, GAP_LABELS)


def build_term_panels(table: pd.DataFrame) -> list[CurvePanel]:
    """Return panels of the four terms of the generalization bound in which the networks differ, by epoch."""
    return _build_network_panels(table, TERM_LABELS)


def build_correlation_panels(table: pd.DataFrame) -> list[CurvePanel]:
    """Return panels of the standardized bound and gap (mean 0, standard deviation 1) by epoch, one for each network.

    Epoch 0 is left out. Titles give the correlation of bound and gap, median and range over training seeds.
    """
    curves = Curves(table, over="epoch")
    panels = []
    for name in PAPER_NETWORKS:
        lines = {
            label: _compute_range(standardize(curves.get_curve(quantity, name)[:, 1:]))
            for quantity, label in {"bound": "bound", "gap": "empirical gap"}.items()
        }
        correlation = compute_correlation(curves, name)
        title = f"{name}: ρ = {np.median(correlation):.2f} [{correlation.min():.2f}, {correlation.max():.2f}]"
        panels.append(CurvePanel(curves.x[1:], "epoch", "standard deviations", lines, "linear", title=title))
    return panels


def _build_network_panels(table: pd.DataFrame, labels: Mapping[str, str]) -> list[CurvePanel]:
    """Return a panel for each quantity in `labels` by epoch, with a curve for each of the paper's networks."""
    curves = Curves(table, over="epoch")
    panels = []
    for quantity, label in labels.items():
        lines = {name: _compute_range(curves.get_curve(quantity, name)) for name in PAPER_NETWORKS}
        # Data bounds of sum and mean aggregation differ by orders of magnitude; other lines may coincide.
        scale: Literal["linear", "log"] = "log" if quantity == "data_bound" else "linear"
        overlaps = quantity in ("bound", "data_bound", "coefficient")
        panels.append(
            CurvePanel(curves.x, "epoch", label, lines, scale, shows_range_at_end=True, has_overlapping_lines=overlaps)
        )
    return panels


def _compute_range(values: Float64[np.ndarray, "S X"]) -> Float64[np.ndarray, "3 X"]:
    """Return minimum, median and maximum over seeds."""
    return np.stack([values.min(axis=0), np.median(values, axis=0), values.max(axis=0)])


def format_split_table(table: pd.DataFrame) -> str:
    """Return a Markdown table of the correlations of bound and gap on other splits of the same tuples.

    It has a row per data set and network: the correlation as measured, the median over splits, their 2.5% and 97.5%
    quantiles, and the share of splits in which it is at least 0.95. The last rows tell in how many splits all are.
    """
    curves = Curves(table, over="epoch")
    header = ["data set", "controller", "as measured", "median over splits", "95% of splits", "0.95 or more"]
    draws = {
        name: np.stack([unpack_values(text) for text in curves.get_texts("split_correlation", name).iloc[:, -1]])
        for name in PAPER_NETWORKS
    }
    rows = []
    for place, seed in enumerate(sorted(table.seed.unique())):
        for name, values in draws.items():
            measured, (low, high) = compute_correlation(curves, name)[place], np.quantile(values[place], [0.025, 0.975])
            numbers = f"{measured:.2f}", f"{np.median(values[place]):.2f}", f"{low:.2f} to {high:.2f}"
            share = (values[place] >= LEAST_CORRELATION).mean()
            rows.append([str(seed), f"`{name}`", *numbers, f"{share:.1%}"])
        # All networks of a data set have the same splits.
        common = np.all([values[place] >= LEAST_CORRELATION for values in draws.values()], axis=0).mean()
        rows.append([str(seed), "all four at once", "", "", "", f"{common:.1%}"])
    return format_markdown_table(header, rows)


def format_bound_rows(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the generalization bound and its terms, a row per network.

    Values are medians over training seeds at the last epoch.
    """
    curves = Curves(table, over="epoch")
    columns = {
        "bound": ("bound, as proven", ".1f"),
        "bound_as_printed": ("as printed", ".1f"),
        "gap": ("empirical gap", ".1e"),
        "train_loss": ("training loss", ".4f"),
        "data_bound": ("β", ",.0f"),
        "lipschitz": ("C", ".4f"),
        "largest_dimension": ("D", ".0f"),
        "coefficient": ("48 D / √m", ".2f"),
        "norm_sum": ("Σ ln max(1, ‖W‖)", ".2f"),
        "root": ("√S", ".2f"),
    }
    rows = []
    for name in PAPER_NETWORKS:
        medians = {column: np.median(curves.last(column, name)) for column in columns}
        rows.append([name, *(f"{medians[column]:{number}}" for column, (_, number) in columns.items())])
    return ["controller", *(label for label, _ in columns.values())], rows


def format_bound_table(table: pd.DataFrame) -> str:
    """Return the table of `format_bound_rows` in Markdown."""
    header, rows = format_bound_rows(table)
    return format_markdown_table(header, [[f"`{row[0]}`", *row[1:]] for row in rows])


PANELS: dict[str, Callable[[pd.DataFrame], list[CurvePanel]]] = {
    "generalization-losses.png": build_loss_panels,
    "generalization-bound.png": build_bound_panels,
    "generalization-terms.png": build_term_panels,
    "generalization-correlation.png": build_correlation_panels,
}
