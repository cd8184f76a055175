"""Ledger of the paper's statements: the rule that judges each of them, the measured numbers, and the verdict."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64

from equiflock.runtime.files import atomic_write

Verdict = Literal["holds", "partly", "does not"]
FEW_HUNDREDTHS = 0.05
"""Upper limit of "a few hundredths", and of the difference of norms that are "approximately the same"."""
MORE_THAN_HALF = float(np.nextafter(0.5, 1.0))
"""Smallest share that counts as "most": the next float above one half."""


@dataclass(frozen=True)
class Check:
    """One comparison of a statement, judged by the medians over training seeds."""

    description: str
    """What is compared."""
    measured: str
    """Measured numbers as text: median and range over seeds."""
    holds: bool
    """Whether the check holds for the medians over seeds."""
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
        # The medians decide; individual seeds are only counted.
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
        results = [check.holds for check in self.checks]
        return "holds" if all(results) else "partly" if any(results) else "does not"

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
    content = [
        {**asdict(statement), "verdict": statement.verdict, "summary": statement.summary} for statement in statements
    ]
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
