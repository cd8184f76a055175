"""The ledger: each statement of the paper, the rule by which it is judged, the measured numbers, and the verdict."""

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
"""The most that "a few hundredths" are, and that norms which are "approximately the same" differ by."""
MORE_THAN_HALF = float(np.nextafter(0.5, 1.0))
"""The smallest share that counts as most: the next number above one half."""


@dataclass(frozen=True)
class Check:
    """One comparison that a statement makes, judged by the medians over training seeds."""

    words: str
    """What is compared, in words."""
    measured: str
    """The measured numbers, as text: median and range over seeds."""
    holds: bool
    """Whether it holds for the medians over seeds."""
    seeds: tuple[bool, ...]
    """Whether it holds for each seed by itself."""

    @classmethod
    def less(
        cls, words: str, smaller: Float64[np.ndarray, " S"], larger: Float64[np.ndarray, " S"], factor: float = 1.0
    ) -> Check:
        """`smaller` < `factor` x `larger`, both given for every seed."""
        seeds: Bool[np.ndarray, " S"] = smaller < factor * larger
        # The verdict goes by the medians; single seeds are counted beside it.
        holds = bool(np.median(smaller) < factor * np.median(larger))
        measured = f"{_format_spread(smaller)} against {_format_spread(larger)}"
        return cls(words, measured, holds, tuple(seeds.tolist()))

    @classmethod
    def within(cls, words: str, values: Float64[np.ndarray, " S"], low: float, high: float) -> Check:
        """`low` <= value <= `high`, given for every seed."""
        seeds: Bool[np.ndarray, " S"] = (values >= low) & (values <= high)
        return cls(words, _format_spread(values), bool(low <= np.median(values) <= high), tuple(seeds.tolist()))

    @classmethod
    def equal_to(cls, words: str, values: Float64[np.ndarray, " S"], expected: int) -> Check:
        """Every value, given for every seed, is the number expected."""
        seeds = tuple((values == expected).tolist())
        return cls(words, ", ".join(f"{count:,.0f}" for count in np.unique(values)), all(seeds), seeds)


@dataclass(frozen=True)
class Statement:
    """A statement of the paper with its checks; it holds if they all do, and partly if some do."""

    id: str
    words: str
    rule: str
    checks: tuple[Check, ...]
    remark: str = ""
    """Why it does not hold in full, if it does not."""

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError(f"statement {self.id} needs at least one check")

    @property
    def verdict(self) -> Verdict:
        """Whether all checks hold, some, or none."""
        held = [check.holds for check in self.checks]
        return "holds" if all(held) else "partly" if any(held) else "does not"

    @property
    def held_count(self) -> int:
        """How many checks hold."""
        return sum(check.holds for check in self.checks)

    @property
    def count(self) -> str:
        """How many checks hold, and in how many seeds all of them do."""
        # Of every seed: whether all checks hold for that seed alone.
        whole = np.all([check.seeds for check in self.checks], axis=0)
        return f"{self.held_count} of {len(self.checks)} checks; all of them in {whole.sum()} of {len(whole)} seeds"


def _format_spread(values: Float64[np.ndarray, " S"]) -> str:
    """The median and the range over seeds."""
    return f"{np.median(values):.3g} [{values.min():.3g}, {values.max():.3g}]"


def write_ledger(statements: Sequence[Statement], path: str | os.PathLike[str]) -> Path:
    """Write the ledger as JSON: every statement with its rule, its checks and the verdict."""
    content = [
        {**asdict(statement), "verdict": statement.verdict, "count": statement.count} for statement in statements
    ]
    with atomic_write(path) as scratch:
        scratch.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return Path(path)


def read_ledger(path: str | os.PathLike[str]) -> list[Statement]:
    """Read the ledger that `write_ledger` wrote; verdicts are computed again."""
    found = []
    for entry in json.loads(Path(path).read_text(encoding="utf-8")):
        checks = tuple(Check(**{**check, "seeds": tuple(check["seeds"])}) for check in entry["checks"])
        found.append(Statement(entry["id"], entry["words"], entry["rule"], checks, entry["remark"]))
    return found
