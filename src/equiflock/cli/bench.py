"""`equiflock bench`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

from equiflock.cli.terminal import out, progress
from equiflock.experiments.bench import BATCHES, measure_messages
from equiflock.files import check_writable, written_whole
from equiflock.types import check_count


@dataclass(frozen=True)
class Bench:
    """Measure how fast this machine computes what agents know, in nanoseconds per agent and step."""

    agents: tuple[int, ...] = (100, 1_000, 10_000, 100_000, 1_000_000)
    """Sizes of a single flock, at constant density."""
    repeats: int = 5
    """Report the best of so many."""
    json: Path | None = None
    """Also write the figures here."""

    def run(self) -> None:
        """Print the table."""
        check_count("repeats", self.repeats)
        if self.json is not None:
            check_writable(self.json)
        table = Table(title="messages, K = 3, ns per agent and step", title_justify="left")
        for column in ("flocks x agents", "one thread", "all threads", "mean degree"):
            table.add_column(column, justify="right")
        figures = []
        with progress() as bar:
            sizes = [*BATCHES, *((1, agents) for agents in self.agents)]
            for flocks, agents in bar.track(sizes, description="measuring"):
                timing = measure_messages(flocks, agents, self.repeats)
                figures.append(asdict(timing))
                table.add_row(
                    f"{flocks} x {agents:,}",
                    f"{timing.one_thread:.0f}",
                    f"{timing.all_threads:.0f}",
                    f"{timing.mean_degree:.1f}",
                )
        out.print(table)
        if self.json is not None:
            with written_whole(self.json) as scratch:
                scratch.write_text(json.dumps(figures, indent=2) + "\n")
