"""`equiflock demo`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from equiflock.cli.terminal import PREPARING, out, progress
from equiflock.experiments.demo import CONTROLLERS, SECONDS, TIME_STEP, demonstrate
from equiflock.initial import RandomDisk
from equiflock.simulation import count_steps
from equiflock.types import Moment


@dataclass(frozen=True)
class Demo:
    """Fly the same flocks with and without a centre, and write films and a report."""

    out: Path = Path("runs/demo")
    """The folder to write; an earlier demonstration in it is replaced."""
    flocks: int = 50
    """How many flocks."""
    agents: int = 100
    """How many agents in each."""
    seed: int = 0
    """Which flocks."""

    def run(self) -> None:
        """Print the comparison and say where films and report are."""
        from equiflock.report.demo import check_demo_folder, comparison, write_demo

        check_demo_folder(self.out)
        disk = RandomDisk(self.flocks, self.agents, self.seed)
        steps = count_steps(SECONDS, TIME_STEP)
        with progress() as bar:
            flying = {name: bar.add_task(PREPARING, total=None) for name in CONTROLLERS}
            drawing = {name: bar.add_task(f"filming {name}", total=None, visible=False) for name in CONTROLLERS}

            def on_step(name: str, moment: Moment) -> None:
                bar.update(flying[name], completed=moment.step, total=steps, description=f"flying under {name}")

            def on_frame(name: str, done: int, total: int) -> None:
                bar.update(drawing[name], completed=done, total=total, visible=True)

            found = demonstrate(disk, on_step=on_step)
            files = write_demo(found, self.out, on_frame)
        header, rows = comparison(found)
        table = Table(title=f"{self.flocks} x {self.agents} agents for {SECONDS:g} s", title_justify="left")
        for number, column in enumerate(header):
            table.add_column(column, justify="right" if number else "left")
        for row in rows:
            table.add_row(*row)
        out.print(table)
        out.print(
            f"In {len(found.telling)} of {self.flocks} flocks the centralized law keeps everybody in touch while the "
            "decentralized one loses agents for good."
        )
        for path in files:
            out.print(f"  {path}", highlight=False)
