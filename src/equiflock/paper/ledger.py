"""Ledger of the paper's statements: the rule that judges each of them, the measured numbers, and the verdict."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float64

from equiflock._runtime.files import atomic_write
from equiflock.plotting.html_report import format_markdown_table
from equiflock.statistics import Estimate, summarize_resamples

Verdict = Literal["holds", "partly", "does not"]
Values: TypeAlias = Float64[np.ndarray, "..."]
"""One number per training seed, (S,), or with resamples, (R, S)."""
Interval: TypeAlias = tuple[float, float]
NOISE_MARK = ", within noise"
"""End of a verdict that other flocks could change, as far as the 95% intervals tell."""
FEW_HUNDREDTHS = 0.05
"""Upper limit of "a few hundredths", and of the difference of norms that are "approximately the same"."""
MORE_THAN_HALF = float(np.nextafter(0.5, 1.0))
"""Smallest share that counts as "most": the next float above one half."""


@dataclass(frozen=True)
class Check:
    """One comparison of a statement, judged by the medians over training seeds.

    Values that are checked have the shape (S,), one number per seed, if they are exact, such as counts of weights. What
    is measured on flocks has the shape (R, S): the first row is as measured and decides, the others are resampled.
    """

    description: str
    measured: str
    """Median and range over seeds as text."""
    holds: bool
    seeds: tuple[bool, ...]
    """Whether the check holds for each individual seed."""
    estimate: Estimate | None = None
    """The number that decides, with its 95% interval over flocks; None if it is exact, or was not resampled."""
    limits: tuple[float, float] = (-math.inf, math.inf)
    """Smallest and largest number for which the check holds."""
    excludes_upper_limit: bool = False
    """Whether the check does not hold for the upper limit itself."""
    is_exact: bool = False
    """Whether no flocks were sampled, so that there is no interval."""

    @classmethod
    def less(
        cls,
        description: str,
        smaller: Values,
        larger: Values,
        factor: float = 1.0,
        *,
        flocks: int = 0,
    ) -> Check:
        """Check that median(`smaller`) < `factor` x median(`larger`), over seeds, by the difference of both."""
        one, other = np.atleast_2d(smaller), factor * np.atleast_2d(larger)
        one, other = np.broadcast_arrays(one, other)
        medians = np.median(one, axis=1), np.median(other, axis=1)
        # Two infinite values do not differ.
        difference = np.subtract(*medians, out=np.zeros(len(one)), where=medians[0] != medians[1])
        return cls(
            description,
            f"{_format_spread(one[0])} against {_format_spread(np.atleast_2d(larger)[0])}",
            bool(medians[0][0] < medians[1][0]),
            tuple((one[0] < other[0]).tolist()),
            _summarize(difference, flocks),
            (-math.inf, 0.0),
            excludes_upper_limit=True,
            is_exact=np.ndim(smaller) == 1,
        )

    @classmethod
    def below(
        cls, description: str, values: Values, limit: float, *, flocks: int = 0, least: Interval | None = None
    ) -> Check:
        """Check that median(`values`) < `limit`, over seeds; `least` as for `summarize_resamples`."""
        return cls._judge(description, values, -math.inf, limit, flocks, least, excludes_upper_limit=True)

    @classmethod
    def within(
        cls,
        description: str,
        values: Values,
        low: float,
        high: float,
        *,
        flocks: int = 0,
        least: Interval | None = None,
    ) -> Check:
        """Check that `low` <= median over seeds <= `high`; `least` as for `summarize_resamples`."""
        return cls._judge(description, values, low, high, flocks, least)

    @classmethod
    def equal_to(cls, description: str, values: Float64[np.ndarray, " S"], expected: int) -> Check:
        """Check that every value, one per seed, equals the expected number; here all seeds decide, not their median."""
        seeds = tuple((values == expected).tolist())
        measured = ", ".join(f"{count:,.0f}" for count in np.unique(values))
        return cls(description, measured, all(seeds), seeds, None, (expected, expected), is_exact=True)

    @classmethod
    def close_pairs(
        cls, template: str, values: Mapping[str, Values], tolerance: float, *, flocks: int = 0
    ) -> tuple[Check, ...]:
        """Check for each pair of controllers that their values differ by at most `tolerance`.

        `template` is the description with two placeholders, such as "last variance: {} - {}".
        """
        return tuple(
            cls.within(template.format(a, b), values[a] - values[b], -tolerance, tolerance, flocks=flocks)
            for a, b in combinations(values, 2)
        )

    @classmethod
    def _judge(
        cls,
        description: str,
        values: Values,
        low: float,
        high: float,
        flocks: int,
        least: Interval | None,
        excludes_upper_limit: bool = False,
    ) -> Check:
        """Check the median over seeds by two limits."""
        rows = np.atleast_2d(values)
        medians = np.median(rows, axis=1)

        def is_inside(numbers: Values) -> Bool[np.ndarray, " R"]:
            return (low <= numbers) & ((numbers < high) if excludes_upper_limit else (numbers <= high))

        return cls(
            description,
            _format_spread(rows[0]),
            bool(is_inside(medians)[0]),
            tuple(is_inside(rows[0]).tolist()),
            _summarize(medians, flocks, least),
            (low, high),
            excludes_upper_limit,
            is_exact=np.ndim(values) == 1,
        )

    def __str__(self) -> str:
        """Return what was measured, the number that decides with its interval, and whether that is within noise."""
        decides = "" if self.is_exact or not self.estimate else f"; {self.interval}, must be {self.condition}"
        exact = " (exact)" if self.is_exact else ""
        return f"{self.description}: {self.measured}{exact}{decides}{NOISE_MARK if self.is_within_noise else ''}"

    @property
    def is_within_noise(self) -> bool:
        """Whether the interval has numbers with the other verdict."""
        if self.estimate is None:
            return False
        (low, high), (least, most) = self.estimate[1:3], self.limits
        is_below_top = high < most if self.excludes_upper_limit else high <= most
        is_above_top = low >= most if self.excludes_upper_limit else low > most
        return not (least <= low and is_below_top) and not (high < least or is_above_top)

    @property
    def verdict(self) -> str:
        """Whether it holds, and whether that is within noise."""
        return f"{'holds' if self.holds else 'does not hold'}{NOISE_MARK if self.is_within_noise else ''}"

    @property
    def interval(self) -> str:
        """The number that decides and its interval as text."""
        return "exact" if self.is_exact else "not resampled" if self.estimate is None else str(self.estimate)

    @property
    def condition(self) -> str:
        """For which numbers the check holds, as text."""
        low, high = (f"{limit:,.6g}" for limit in self.limits)
        if low == high:
            return low
        if math.isinf(self.limits[0]):
            return f"{'below' if self.excludes_upper_limit else 'at most'} {high}"
        return f"at least {low}" if math.isinf(self.limits[1]) else f"{low} to {high}"


@dataclass(frozen=True)
class Statement:
    """Statement of the paper with its checks; it holds if all of them do, and partly if some do."""

    id: str
    text: str
    rule: str
    checks: tuple[Check, ...]
    remark: str = ""
    """Why the statement does not hold in full; empty if it does."""
    further_checks: tuple[Check, ...] = ()
    """Checks that are reported beside the others and do not decide the verdict."""

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError(f"statement {self.id} needs at least one check")

    @property
    def verdict(self) -> Verdict:
        """Whether all checks hold, some, or none."""
        return _judge_count(self.held_count, len(self.checks))

    @property
    def is_within_noise(self) -> bool:
        """Whether the verdict would be another if some of the checks that are within noise came out otherwise."""
        held = [check.holds for check in self.checks if check.is_within_noise]
        fewest, most = self.held_count - sum(held), self.held_count + len(held) - sum(held)
        return {_judge_count(count, len(self.checks)) for count in (fewest, most)} != {self.verdict}

    @property
    def has_intervals(self) -> bool:
        """Whether every check is exact or has an interval, unlike those of older ledgers."""
        return all(check.is_exact or check.estimate is not None for check in self.checks)

    @property
    def marked_verdict(self) -> str:
        """The verdict, and whether it is within noise."""
        return f"{self.verdict}{NOISE_MARK if self.is_within_noise else ''}"

    @property
    def held_count(self) -> int:
        """Number of checks that hold."""
        return sum(check.holds for check in self.checks)

    @property
    def summary(self) -> str:
        """Numbers of checks that hold, and of seeds for which all checks hold, as text."""
        seeds = np.all([check.seeds for check in self.checks], axis=0)
        noise = sum(check.is_within_noise for check in self.checks)
        return (
            f"{self.held_count} of {len(self.checks)} checks{f', {noise} within noise' if noise else ''}; "
            f"all of them in {seeds.sum()} of {len(seeds)} seeds"
        )

    @property
    def details(self) -> str:
        """Summary, further checks and remark as sentences."""
        further = [f"{each.description}: {each.interval}, {each.verdict}" for each in self.further_checks]
        noise = "; other flocks could change the verdict" if self.is_within_noise else ""
        noise = noise if self.has_intervals else "; not resampled"
        return ". ".join(filter(None, (self.summary + noise, *further, self.remark)))


def _judge_count(held: int, total: int) -> Verdict:
    """Return the verdict on a statement by the number of its checks that hold."""
    return "holds" if held == total else "partly" if held else "does not"


def _summarize(values: Float64[np.ndarray, " R"], flocks: int, least: Interval | None = None) -> Estimate | None:
    """Return the estimate of a number and its resamples; None if there are no resamples."""
    return summarize_resamples(values, flocks, least) if len(values) > 1 else None


def _format_spread(values: Float64[np.ndarray, " S"]) -> str:
    """Return the median and the range over seeds as text."""
    return f"{np.median(values):.3g} [{values.min():.3g}, {values.max():.3g}]"


def write_ledger(statements: Sequence[Statement], path: str | os.PathLike[str]) -> Path:
    """Write the ledger atomically as JSON: every statement with its rule, checks and verdict. Return the path."""
    content = [
        {
            **asdict(each),
            "checks": [_describe_check(check) for check in each.checks],
            "further_checks": [_describe_check(check) for check in each.further_checks],
            "verdict": each.verdict,
            "is_within_noise": each.is_within_noise,
            "summary": each.summary,
        }
        for each in statements
    ]
    with atomic_write(path) as scratch:
        scratch.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return Path(path)


def _describe_check(check: Check) -> dict[str, Any]:
    """Return the fields of a check for JSON, which has no infinite numbers: they are texts, "inf" and "-inf"."""

    def as_json(number: float) -> float | str:
        return number if math.isfinite(number) else str(number)

    found = check.estimate
    estimate = {name: as_json(number) for name, number in found._asdict().items()} if found else None
    limits = [as_json(limit) for limit in check.limits]
    return {**asdict(check), "estimate": estimate, "limits": limits, "is_within_noise": check.is_within_noise}


def read_ledger(path: str | os.PathLike[str]) -> list[Statement]:
    """Read a ledger that `write_ledger` wrote; verdicts are recomputed. Ledgers of 0.2 have no intervals."""
    statements = []
    for entry in json.loads(Path(path).read_text(encoding="utf-8")):
        checks, further = (tuple(map(_read_check, entry.get(name, ()))) for name in ("checks", "further_checks"))
        statements.append(Statement(entry["id"], entry["text"], entry["rule"], checks, entry["remark"], further))
    return statements


def _read_check(entry: Mapping[str, Any]) -> Check:
    """Return the check that `_describe_check` described."""
    fields = {name: value for name, value in entry.items() if name != "is_within_noise"} | {
        "seeds": tuple(entry["seeds"])
    }
    if "limits" in entry:
        found = entry["estimate"]
        fields["limits"] = tuple(map(float, entry["limits"]))
        if found:
            value, low, high = (float(found[name]) for name in ("value", "low", "high"))
            fields["estimate"] = Estimate(value, low, high, found["n"])
    return Check(**fields)


def format_ledger_table(statements: Sequence[Statement]) -> str:
    """Return the paper's statements with rules, verdicts and numbers of checks that hold, as a Markdown table."""
    header = ["", "the paper's statement", "our rule", "verdict", "checks that hold"]
    rows = []
    for each in statements:
        verdict = f"**{each.verdict}**{NOISE_MARK if each.is_within_noise else ''}"
        rows.append([each.id, each.text, each.rule, verdict, each.details])
    return format_markdown_table(header, rows, align_left=True)


CHECK_COLUMNS = ("", "check", "measured", "decides: value (95% interval)", "holds if", "verdict", "seeds that pass")
"""Columns of `list_checks`."""


def list_checks(statements: Sequence[Statement]) -> list[list[str]]:
    """Return a row of CHECK_COLUMNS for every check."""
    return [
        [
            each.id,
            check.description,
            check.measured,
            check.interval,
            check.condition,
            check.verdict,
            str(sum(check.seeds)),
        ]
        for each in statements
        for check in (*each.checks, *each.further_checks)
    ]


def write_checks(statements: Sequence[Statement], path: Path) -> Path:
    """Write `format_checks_table` as a Markdown file, replacing an existing one. Return its path."""
    with atomic_write(path) as scratch:
        scratch.write_text(f"# All checks\n\n{format_checks_table(statements)}\n", encoding="utf-8")
    return path


def format_checks_table(statements: Sequence[Statement]) -> str:
    """Return all checks with their intervals as a Markdown table."""
    return format_markdown_table(CHECK_COLUMNS, list_checks(statements), align_left=True)


REMARKS = {
    "T1": "ETDAGNN is still learning at epoch 80: its IVV is below the final one of TDAGNN by epoch 120, of TDAGNN-TF "
    "by 160. All the rest holds.",
    "T2": "IVVs are apart; in IMAN the best sum-aggregation controller, TDAGNN-TF, ends near TDAGNN-TF-mean.",
    "T4": "The two meet between epochs 160 and 200, not at 320: TDAGNN's own IMAN rises meanwhile.",
    "T5": "ETDAGNN needs until 160: its IQR then overlaps in all seeds, at 120 in two.",
    "T6": "Larger in every seed, but by 0.001 to 0.008 only.",
    "T7": "True against both sum-aggregation controllers; TDAGNN-TF-mean learns faster still.",
    "T9": "They stay as near to each other, but ETDAGNN's IMAN falls from 3.99 at epoch 80 to 3.81, while "
    "TDAGNN-TF-mean's rises by 0.23.",
    "F2": "At N = 50 TDAGNN-TF-mean is lower than ETDAGNN, at N = 100 level with TDAGNN-TF. All the rest holds.",
    "F3": "TDAGNN-TF-mean is below it for most of the run, ETDAGNN only in the first tenth of a second and from 1.4 s "
    "on, TDAGNN-TF hardly ever.",
    "F4": "It ends a third above the expert, in every seed above.",
    "F5": "Differences are of hundredths, but ETDAGNN's norm is the smallest at every size, and at N = 400 both "
    "mean-aggregation controllers' are below the others'.",
    "F6": "All pairs but one: TDAGNN-TF-mean and ETDAGNN are 0.054 apart at N = 50.",
    "L2": "All pairs but one: TDAGNN is 0.08 above TDAGNN-TF-mean.",
    "O2": "TDAGNN-TF-mean falls short from 12 sides on, TDAGNN at 12 and 24, TDAGNN-TF at 24; ETDAGNN never does.",
    "O3": "TDAGNN-TF and ETDAGNN fail in at most 4% of flights, TDAGNN and TDAGNN-TF-mean in 10 to 20%.",
    "O4": "ETDAGNN is level with both sum-aggregation controllers at 48 sides, 6 points ahead of them at 96, and "
    "ahead of TDAGNN-TF-mean at both; its clear lead is at 24 sides. If followers observed all obstacle agents within "
    "R, it would lead by 24 points and more at 48, but then the sum-aggregation controllers fail near 90%, against O2.",
    "G6": "The gap is as small as chance makes the difference of two samples, some 1e-5, and rises and falls in the "
    "first ten epochs. From epoch 20 on both rise, with a correlation of 0.88 and more in every data set for all but "
    "TDAGNN-TF-mean.",
    "O5": "There are none at all: every failure is a disconnection.",
}
"""Why statements do not hold in full, according to the results of the paper profile, by statement id."""
