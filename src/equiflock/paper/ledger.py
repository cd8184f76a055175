"""Ledger of the paper's statements: the rule that judges each of them, the measured numbers, and the verdict."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64

from equiflock._runtime.files import atomic_write
from equiflock.plotting.html_report import format_markdown_table

Verdict = Literal["holds", "partly", "does not"]
FEW_HUNDREDTHS = 0.05
"""Upper limit of "a few hundredths", and of the difference of norms that are "approximately the same"."""
MORE_THAN_HALF = float(np.nextafter(0.5, 1.0))
"""Smallest share that counts as "most": the next float above one half."""


@dataclass(frozen=True)
class Check:
    """One comparison of a statement, judged by the medians over training seeds."""

    description: str
    measured: str
    """Median and range over seeds as text."""
    holds: bool
    seeds: tuple[bool, ...]
    """Whether the check holds for each individual seed."""

    @classmethod
    def less(
        cls,
        description: str,
        smaller: Float64[np.ndarray, " S"],
        larger: Float64[np.ndarray, " S"],
        factor: float = 1.0,
    ) -> Check:
        """Check that median(`smaller`) < `factor` x median(`larger`), over seeds; both have one value per seed."""
        seeds: Bool[np.ndarray, " S"] = smaller < factor * larger
        holds = bool(np.median(smaller) < factor * np.median(larger))
        measured = f"{_format_spread(smaller)} against {_format_spread(larger)}"
        return cls(description, measured, holds, tuple(seeds.tolist()))

    @classmethod
    def within(cls, description: str, values: Float64[np.ndarray, " S"], low: float, high: float) -> Check:
        """Check that `low` <= median over seeds <= `high`; `values` has one value per seed."""
        seeds: Bool[np.ndarray, " S"] = (values >= low) & (values <= high)
        return cls(description, _format_spread(values), bool(low <= np.median(values) <= high), tuple(seeds.tolist()))

    @classmethod
    def equal_to(cls, description: str, values: Float64[np.ndarray, " S"], expected: int) -> Check:
        """Check that every value, one per seed, equals the expected number; here all seeds decide, not their median."""
        seeds = tuple((values == expected).tolist())
        return cls(description, ", ".join(f"{count:,.0f}" for count in np.unique(values)), all(seeds), seeds)

    @classmethod
    def close_pairs(
        cls, template: str, values: Mapping[str, Float64[np.ndarray, " S"]], tolerance: float
    ) -> tuple[Check, ...]:
        """Check for each pair of controllers that their values differ by at most `tolerance`.

        `template` is the description with two placeholders, such as "last variance: {} - {}".
        """
        return tuple(
            cls.within(template.format(a, b), values[a] - values[b], -tolerance, tolerance)
            for a, b in combinations(values, 2)
        )


@dataclass(frozen=True)
class Statement:
    """Statement of the paper with its checks; it holds if all of them do, and partly if some do."""

    id: str
    text: str
    rule: str
    checks: tuple[Check, ...]
    remark: str = ""
    """Why the statement does not hold in full; empty if it does."""

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError(f"statement {self.id} needs at least one check")

    @property
    def verdict(self) -> Verdict:
        """Whether all checks hold, some, or none."""
        return "holds" if self.held_count == len(self.checks) else "partly" if self.held_count else "does not"

    @property
    def held_count(self) -> int:
        """Number of checks that hold."""
        return sum(check.holds for check in self.checks)

    @property
    def summary(self) -> str:
        """Numbers of checks that hold, and of seeds for which all checks hold, as text."""
        seeds = np.all([check.seeds for check in self.checks], axis=0)
        return f"{self.held_count} of {len(self.checks)} checks; all of them in {seeds.sum()} of {len(seeds)} seeds"


def _format_spread(values: Float64[np.ndarray, " S"]) -> str:
    """Return the median and the range over seeds as text."""
    return f"{np.median(values):.3g} [{values.min():.3g}, {values.max():.3g}]"


def write_ledger(statements: Sequence[Statement], path: str | os.PathLike[str]) -> Path:
    """Write the ledger atomically as JSON: every statement with its rule, checks and verdict. Return the path."""
    content = [{**asdict(each), "verdict": each.verdict, "summary": each.summary} for each in statements]
    with atomic_write(path) as scratch:
        scratch.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return Path(path)


def read_ledger(path: str | os.PathLike[str]) -> list[Statement]:
    """Read a ledger that `write_ledger` wrote; verdicts are recomputed."""
    statements = []
    for entry in json.loads(Path(path).read_text(encoding="utf-8")):
        checks = tuple(Check(**{**check, "seeds": tuple(check["seeds"])}) for check in entry["checks"])
        statements.append(Statement(entry["id"], entry["text"], entry["rule"], checks, entry["remark"]))
    return statements


def format_ledger_table(statements: Sequence[Statement]) -> str:
    """Return the paper's statements with rules, verdicts and numbers of checks that hold, as a Markdown table."""
    header = ["", "the paper's statement", "our rule", "verdict", "checks that hold"]
    rows = []
    for statement in statements:
        checks = f"{statement.summary}. {statement.remark}" if statement.remark else statement.summary
        rows.append([statement.id, statement.text, statement.rule, f"**{statement.verdict}**", checks])
    return format_markdown_table(header, rows, align_left=True)


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
