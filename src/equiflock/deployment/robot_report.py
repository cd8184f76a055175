"""What a robot counted, as it tells the world at the end. Robots import this file, so it imports little."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class RobotReport:
    """What a robot counted in a flight."""

    dropped: dict[str, int]
    """How many messages it dropped, by reason."""
    ages: dict[str, int]
    """How many messages it used, by their age in steps."""
    seconds: list[float]
    """Of each step, how long the controller computed."""
    peak_memory_kib: int
    """The most memory that it took, in KiB."""
    received_sha256: str
    """The SHA-256 of all frames that reached it, as hexadecimal digits."""

    def to_json(self) -> bytes:
        """The report as JSON."""
        return json.dumps(asdict(self)).encode()


def parse_report(content: bytes) -> RobotReport | None:
    """The report that a robot sent; None if it is none."""
    try:
        report = RobotReport(**json.loads(content))
        fits = (
            all(_is_count(count) for count in [*report.dropped.values(), *report.ages.values(), report.peak_memory_kib])
            and all(age.isdecimal() for age in report.ages)
            and all(isinstance(each, float) and math.isfinite(each) for each in report.seconds)
            and isinstance(report.received_sha256, str)
        )
    # Whatever a broken robot sends: no text, no JSON, other names, or other kinds of values.
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return report if fits else None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
