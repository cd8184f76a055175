"""What an audit found: who received what, what was changed, and whether an acceleration changed with it."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from equiflock.report.html_report import HtmlReport, format_markdown_table
from equiflock.runtime.checks import InputError
from equiflock.runtime.files import atomic_write

MAX_LINES = 400
"""So many lines of the record a page shows of each agent; the whole of it is in the file beside the page."""
OWN_MEASUREMENT = -1
"""In place of a sender: what an agent measured itself."""


class ReceivedItem(NamedTuple):
    """A message that an agent used, or what it measured."""

    agent: int
    step: int
    sender: int
    """A number, or `OWN_MEASUREMENT`."""
    size: int
    """Bytes."""
    content: str = ""
    """The bytes as hexadecimal digits, where there were bytes."""


class ChangeEffect(NamedTuple):
    """What became of one agent's accelerations when something that it had not received was changed."""

    agent: int
    change_kind: str
    changed: int
    """How many agents were changed at some step, or added."""
    compared_count: int
    """How many were compared."""
    different_count: int
    """How many of them are not the same to the bit."""
    largest_difference: float
    """The largest difference."""


@dataclass(frozen=True)
class Audit:
    """The record and the verdict of an audit: `passed`, `print(audit)`, `audit.save("audit.html")`."""

    controller: str
    procedure: str
    """One sentence: what was flown and how it was changed."""
    record: tuple[ReceivedItem, ...]
    changes: tuple[ChangeEffect, ...]
    steps: int

    @property
    def passed(self) -> bool:
        """Whether every acceleration stayed the same to the bit."""
        return all(change.different_count == 0 for change in self.changes)

    @property
    def agents(self) -> tuple[int, ...]:
        """The agents that were looked at."""
        return tuple(sorted({change.agent for change in self.changes}))

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        if self.passed:
            return f"{self.controller} used nothing that it did not receive"
        caught = sorted({change.agent for change in self.changes if change.different_count > 0})
        first = next(change for change in self.changes if change.different_count > 0)
        return (
            f"{self.controller} used what it did not receive: accelerations of {len(caught)} of {len(self.agents)} "
            f"agents changed with {first.change_kind}"
        )

    def table(self) -> tuple[tuple[str, ...], list[list[str]]]:
        """The header and the rows, one for each kind of change."""
        header = "what was changed", "agents changed", "accelerations compared", "not the same bits", "largest change"
        rows = []
        for change_kind in dict.fromkeys(change.change_kind for change in self.changes):
            found = [change for change in self.changes if change.change_kind == change_kind]
            counts = sorted(change.changed for change in found)
            compared = sum(change.compared_count for change in found)
            different_count = sum(change.different_count for change in found)
            changed = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
            largest_difference = max(change.largest_difference for change in found)
            rows.append([change_kind, changed, f"{compared:,}", f"{different_count:,}", f"{largest_difference:.3g}"])
        return header, rows

    def __str__(self) -> str:
        return f"{self.verdict}\n{format_markdown_table(*self.table())}"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the verdict as a page of HTML, and the whole record beside it, under the same name, as .csv."""
        page_path = Path(path)
        table = page_path.with_suffix(".csv")
        if table == page_path:
            raise InputError(f"the page of an audit is such as audit.html, with its record beside it; got {path}")
        with atomic_write(table) as scratch, scratch.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("agent", "step", "sender", "bytes", "content"))
            writer.writerows(
                (a, step, _format_sender(sender), size, content) for a, step, sender, size, content in self.record
            )
        page = HtmlReport(
            f"Locality audit of {self.controller}: {'passed' if self.passed else 'failed'}", f"{self.verdict}."
        )
        page.text(self.procedure)
        page.table(*self.table())
        page.add_heading("Agents")
        page.table(*self._build_agent_table())
        page.add_heading("Record: what they received")
        page.text(
            f"All of it is in {table.name}, a line for each message and measurement. Here are at most {MAX_LINES} "
            "lines of each agent."
        )
        for agent, rows in groupby(sorted(self.record), key=lambda row: row.agent):
            page.parts.append(f"<details><summary>agent {agent}</summary>")
            page.table(*_build_record_table(list(rows)), words=True)
            page.parts.append("</details>")
        return page.write(page_path)

    def _build_agent_table(self) -> tuple[tuple[str, ...], list[list[str]]]:
        """A row for each agent: what it received, and what became of its accelerations."""
        heard = [row for row in self.record if row.sender != OWN_MEASUREMENT]
        messages = Counter(row.agent for row in heard)
        sizes: Counter[int] = Counter()
        senders: dict[int, set[int]] = {}
        for row in heard:
            sizes[row.agent] += row.size
            senders.setdefault(row.agent, set()).add(row.sender)
        different_count: Counter[int] = Counter()
        for change in self.changes:
            different_count[change.agent] += change.different_count
        header = "agent", "messages", "their bytes", "senders", "accelerations not the same"
        return header, [
            [str(a), f"{messages[a]:,}", f"{sizes[a]:,}", f"{len(senders.get(a, ()))}", f"{different_count[a]:,}"]
            for a in self.agents
        ]


def _format_sender(sender: int) -> str:
    return "itself" if sender == OWN_MEASUREMENT else str(sender)


def _build_record_table(rows: Sequence[ReceivedItem]) -> tuple[tuple[str, ...], list[list[str]]]:
    """What one agent received: a line for each message if its bytes are known, else a line for each step."""
    if any(row.content for row in rows):
        lines = [[str(row.step), _format_sender(row.sender), str(row.size), row.content] for row in rows]
        header: tuple[str, ...] = "step", "sender", "bytes", "content"
    else:
        header, lines = ("step", "senders", "bytes"), []
        for step, some in groupby(rows, key=lambda row: row.step):
            found = list(some)
            lines.append([str(step), ", ".join(str(row.sender) for row in found), str(sum(row.size for row in found))])
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], [f"and {len(lines) - MAX_LINES:,} more", *[""] * (len(header) - 1)]]
    return header, lines
