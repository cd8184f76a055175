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

from equiflock.report.page import Page, markdown_table
from equiflock.runtime.checks import InputError
from equiflock.runtime.files import atomic_write

MOST_LINES = 400
"""So many lines of the record a page shows of each agent; the whole of it is in the file beside the page."""
ITSELF = -1
"""In place of a sender: what an agent measured itself."""


class Received(NamedTuple):
    """A message that an agent used, or what it measured."""

    agent: int
    step: int
    sender: int
    """A number, or `ITSELF`."""
    size: int
    """Bytes."""
    content: str = ""
    """The bytes as hexadecimal digits, where there were bytes."""


class Change(NamedTuple):
    """What became of one agent's accelerations when something that it had not received was changed."""

    agent: int
    what: str
    changed: int
    """How many agents were changed at some step, or added."""
    accelerations: int
    """How many were compared."""
    different: int
    """How many of them are not the same to the bit."""
    largest: float
    """The largest difference."""


@dataclass(frozen=True)
class Audit:
    """The record and the verdict of an audit: `passed`, `print(audit)`, `audit.save("audit.html")`."""

    controller: str
    how: str
    """One sentence: what was flown and how it was changed."""
    record: tuple[Received, ...]
    changes: tuple[Change, ...]
    steps: int

    @property
    def passed(self) -> bool:
        """Whether every acceleration stayed the same to the bit."""
        return all(change.different == 0 for change in self.changes)

    @property
    def agents(self) -> tuple[int, ...]:
        """The agents that were looked at."""
        return tuple(sorted({change.agent for change in self.changes}))

    @property
    def verdict(self) -> str:
        """The verdict in one sentence."""
        if self.passed:
            return f"{self.controller} used nothing that it did not receive"
        caught = sorted({change.agent for change in self.changes if change.different > 0})
        first = next(change for change in self.changes if change.different > 0)
        return (
            f"{self.controller} used what it did not receive: accelerations of {len(caught)} of {len(self.agents)} "
            f"agents changed with {first.what}"
        )

    def table(self) -> tuple[tuple[str, ...], list[list[str]]]:
        """The header and the rows, one for each kind of change."""
        header = "what was changed", "agents changed", "accelerations compared", "not the same bits", "largest change"
        rows = []
        for what in dict.fromkeys(change.what for change in self.changes):
            found = [change for change in self.changes if change.what == what]
            counts = sorted(change.changed for change in found)
            compared = sum(change.accelerations for change in found)
            different = sum(change.different for change in found)
            changed = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
            largest = max(change.largest for change in found)
            rows.append([what, changed, f"{compared:,}", f"{different:,}", f"{largest:.3g}"])
        return header, rows

    def __str__(self) -> str:
        return f"{self.verdict}\n{markdown_table(*self.table())}"

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the verdict as a page of HTML, and the whole record beside it, under the same name, as .csv."""
        page_path = Path(path)
        table = page_path.with_suffix(".csv")
        if table == page_path:
            raise InputError(f"the page of an audit is such as audit.html, with its record beside it; got {path}")
        with atomic_write(table) as scratch, scratch.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("agent", "step", "sender", "bytes", "content"))
            writer.writerows((a, step, _name(sender), size, content) for a, step, sender, size, content in self.record)
        page = Page(f"Locality audit of {self.controller}: {'passed' if self.passed else 'failed'}", f"{self.verdict}.")
        page.text(self.how)
        page.table(*self.table())
        page.heading("Agents")
        page.table(*self._agents())
        page.heading("Record: what they received")
        page.text(
            f"All of it is in {table.name}, a line for each message and measurement. Here are at most {MOST_LINES} "
            "lines of each agent."
        )
        for agent, rows in groupby(sorted(self.record), key=lambda row: row.agent):
            page.parts.append(f"<details><summary>agent {agent}</summary>")
            page.table(*_lines(list(rows)), words=True)
            page.parts.append("</details>")
        return page.write(page_path)

    def _agents(self) -> tuple[tuple[str, ...], list[list[str]]]:
        """A row for each agent: what it received, and what became of its accelerations."""
        heard = [row for row in self.record if row.sender != ITSELF]
        messages = Counter(row.agent for row in heard)
        sizes: Counter[int] = Counter()
        senders: dict[int, set[int]] = {}
        for row in heard:
            sizes[row.agent] += row.size
            senders.setdefault(row.agent, set()).add(row.sender)
        different: Counter[int] = Counter()
        for change in self.changes:
            different[change.agent] += change.different
        header = "agent", "messages", "their bytes", "senders", "accelerations not the same"
        return header, [
            [str(a), f"{messages[a]:,}", f"{sizes[a]:,}", f"{len(senders.get(a, ()))}", f"{different[a]:,}"]
            for a in self.agents
        ]


def _name(sender: int) -> str:
    return "itself" if sender == ITSELF else str(sender)


def _lines(rows: Sequence[Received]) -> tuple[tuple[str, ...], list[list[str]]]:
    """What one agent received: a line for each message if its bytes are known, else a line for each step."""
    if any(row.content for row in rows):
        lines = [[str(row.step), _name(row.sender), str(row.size), row.content] for row in rows]
        header: tuple[str, ...] = "step", "sender", "bytes", "content"
    else:
        header, lines = ("step", "senders", "bytes"), []
        for step, some in groupby(rows, key=lambda row: row.step):
            found = list(some)
            lines.append([str(step), ", ".join(str(row.sender) for row in found), str(sum(row.size for row in found))])
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], [f"and {len(lines) - MOST_LINES:,} more", *[""] * (len(header) - 1)]]
    return header, lines
