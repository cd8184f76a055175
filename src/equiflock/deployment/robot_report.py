"""The report that a robot sends to its host at the end. Robot processes import this file, so it has few imports."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class RobotReport:
    """Statistics of a robot's flight."""

    dropped: dict[str, int]
    """Dropped messages by reason."""
    ages: dict[str, int]
    """Used messages by age in steps."""
    seconds: list[float]
    """Computing times of the steps."""
    peak_memory_kib: int
    """Peak memory in KiB."""
    received_sha256: str
    """SHA-256 of all received frames, as hexadecimal digits."""

    def to_json(self) -> bytes:
        """Return the report as JSON."""
        return json.dumps(asdict(self)).encode()


def parse_report(content: bytes) -> RobotReport | None:
    """Return the report that a robot sent, or None if it is not JSON with valid values in exactly these fields."""
    try:
        report = RobotReport(**json.loads(content))
        is_valid = (
            all(_is_count(count) for count in [*report.dropped.values(), *report.ages.values(), report.peak_memory_kib])
            and all(age.isdecimal() for age in report.ages)
            and all(isinstance(each, float) and math.isfinite(each) for each in report.seconds)
            and isinstance(report.received_sha256, str)
        )
    # A broken robot may send invalid UTF-8, invalid JSON, other fields, or values of other types.
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return report if is_valid else None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
