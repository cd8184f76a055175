"""Results of a locality audit: the record of received messages, the changes made, and their effect on accelerations."""

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
"""Lines of the record that the page shows per agent; the .csv file has the whole record."""
OWN_MEASUREMENT = -1
"""Sender of an agent's own measurements."""


class ReceivedItem(NamedTuple):
    """A message that an agent used, or its own measurement."""

    agent: int
    step: int
    sender: int
    """Number of the sender, or `OWN_MEASUREMENT`."""
    size: int
    """Bytes."""
    content: str = ""
    """The bytes as hexadecimal digits; empty in the simulator, which sends no bytes."""


class ChangeEffect(NamedTuple):
    """Effect of a change, to states that one agent did not receive, on its accelerations."""

    agent: int
    change_kind: str
    changed_agents: int
    """Number of agents that were changed at some step, or added."""
    compared_count: int
    """Number of compared accelerations, one per step."""
    different_count: int
    """Number of accelerations, or a swarm's messages with them, that are not bit-identical."""
    largest_difference: float
    """Largest difference of a component of an acceleration; infinite if one is missing."""


@dataclass(frozen=True)
class Audit:
    """Result of an audit: `audit.passed`, `print(audit)`, `audit.save("audit.html")`."""

    controller: str
    procedure: str
    """Description of the flight and the changes."""
    record: tuple[ReceivedItem, ...]
    changes: tuple[ChangeEffect, ...]
    steps: int

    @property
    def passed(self) -> bool:
        """Whether no change had an effect: all compared accelerations, and a swarm's messages, are bit-identical."""
        return all(change.different_count == 0 for change in self.changes)

    @property
    def agents(self) -> tuple[int, ...]:
        """Numbers of the audited agents."""
        return tuple(sorted({change.agent for change in self.changes}))

    @property
    def verdict(self) -> str:
        """Verdict in one sentence; if the audit failed, it names the first kind of change that had an effect."""
        if self.passed:
            return f"{self.controller} used nothing that it did not receive"
        failed = sorted({change.agent for change in self.changes if change.different_count > 0})
        first = next(change for change in self.changes if change.different_count > 0)
        return (
            f"{self.controller} used what it did not receive: accelerations of {len(failed)} of {len(self.agents)} "
            f"agents changed with {first.change_kind}"
        )

    def build_table(self) -> tuple[tuple[str, ...], list[list[str]]]:
        """Return the header and a row for each kind of change: counts are sums over the audited agents.

        "agents changed" is the smallest and the largest number.
        """
        header = "change", "agents changed", "accelerations compared", "not bit-identical", "largest difference"
        rows = []
        for change_kind in dict.fromkeys(change.change_kind for change in self.changes):
            changes = [change for change in self.changes if change.change_kind == change_kind]
            counts = sorted(change.changed_agents for change in changes)
            compared = sum(change.compared_count for change in changes)
            different_count = sum(change.different_count for change in changes)
            changed = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
            largest_difference = max(change.largest_difference for change in changes)
            rows.append([change_kind, changed, f"{compared:,}", f"{different_count:,}", f"{largest_difference:.3g}"])
        return header, rows

    def __str__(self) -> str:
        return f"{self.verdict}\n{format_markdown_table(*self.build_table())}"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the verdict as an HTML page, and the whole record to a .csv file of the same stem. Return the page.

        Existing files are replaced. Raise InputError if `path` ends in .csv.
        """
        page_path = Path(path)
        table = page_path.with_suffix(".csv")
        if table == page_path:
            raise InputError(
                f"path must not end in .csv, which is the record's file: use a name such as audit.html, got {path}"
            )
        with atomic_write(table) as scratch, scratch.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("agent", "step", "sender", "bytes", "content"))
            writer.writerows(
                (a, step, _format_sender(sender), size, content) for a, step, sender, size, content in self.record
            )
        page = HtmlReport(
            f"Locality audit of {self.controller}: {'passed' if self.passed else 'failed'}", f"{self.verdict}."
        )
        page.add_text(self.procedure)
        page.add_table(*self.build_table())
        page.add_heading("Agents")
        page.add_table(*self._build_agent_table())
        page.add_heading("Record of received messages")
        page.add_text(
            f"{table.name} has the whole record, a line per message or measurement. This page shows at most "
            f"{MAX_LINES} lines per agent."
        )
        for agent, rows in groupby(sorted(self.record), key=lambda row: row.agent):
            page.parts.append(f"<details><summary>agent {agent}</summary>")
            page.add_table(*_build_record_table(list(rows)), align_left=True)
            page.parts.append("</details>")
        return page.write(page_path)

    def _build_agent_table(self) -> tuple[tuple[str, ...], list[list[str]]]:
        """Return the header and a row per audited agent: its messages and its different accelerations.

        Its own measurements do not count as messages.
        """
        messages = [row for row in self.record if row.sender != OWN_MEASUREMENT]
        counts = Counter(row.agent for row in messages)
        sizes: Counter[int] = Counter()
        senders: dict[int, set[int]] = {}
        for row in messages:
            sizes[row.agent] += row.size
            senders.setdefault(row.agent, set()).add(row.sender)
        different_count: Counter[int] = Counter()
        for change in self.changes:
            different_count[change.agent] += change.different_count
        header = "agent", "messages", "bytes", "senders", "accelerations not bit-identical"
        return header, [
            [str(a), f"{counts[a]:,}", f"{sizes[a]:,}", f"{len(senders.get(a, ()))}", f"{different_count[a]:,}"]
            for a in self.agents
        ]


def _format_sender(sender: int) -> str:
    return "itself" if sender == OWN_MEASUREMENT else str(sender)


def _build_record_table(rows: Sequence[ReceivedItem]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return the record of one agent: a line per message if it has contents, else a line per step.

    At most MAX_LINES lines, then one that gives the number of the others.
    """
    if any(row.content for row in rows):
        lines = [[str(row.step), _format_sender(row.sender), str(row.size), row.content] for row in rows]
        header: tuple[str, ...] = "step", "sender", "bytes", "content"
    else:
        header, lines = ("step", "senders", "bytes"), []
        for step, group in groupby(rows, key=lambda row: row.step):
            items = list(group)
            lines.append([str(step), ", ".join(str(row.sender) for row in items), str(sum(row.size for row in items))])
    if len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], [f"and {len(lines) - MAX_LINES:,} more", *[""] * (len(header) - 1)]]
    return header, lines
