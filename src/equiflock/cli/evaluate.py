"""`equiflock evaluate`."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.table import Table

from equiflock.cli.terminal import import_plugin, out, progress
from equiflock.controllers import load
from equiflock.types import check_count, check_positive


@dataclass(frozen=True)
class Evaluate:
    """Test a controller beside those of the package: the metrics and figures of the paper's experiments."""

    controller: Annotated[str, tyro.conf.Positional]
    """A file of weights (.safetensors), a name, or one of your own (see --plugin)."""
    scenario: Literal["flocking", "leaders", "obstacles"] = "flocking"
    """Flocking for 2 s, leader following for 3 s, or past an obstacle with the orbit technique."""
    agents: int = 100
    """How many agents in each flock."""
    flocks: int = 50
    """How many flocks."""
    sides: int = 24
    """Of the obstacle."""
    time_step: float | None = None
    """Seconds per step; if left out 0.001, and 0.01 past an obstacle."""
    out: Path | None = None
    """The folder to write to; runs/evaluation/CONTROLLER-SCENARIO if left out. Results of the same settings in it are
    not computed again."""
    workers: int = os.cpu_count() or 1
    """How many processes."""
    scheduler: str | None = None
    """The address of a Dask scheduler whose workers run the cells instead, such as tcp://10.0.0.1:8786."""
    plugin: str | None = None
    """A Python module or file to import first, such as one that registers your own controller."""

    def run(self) -> None:
        """Print the comparison and say where table and figure are."""
        from equiflock.experiments.evaluation import evaluation_cells, evaluation_rows
        from equiflock.experiments.executor import collect, run_cells
        from equiflock.experiments.flocking import VARIANCE
        from equiflock.files import written_whole
        from equiflock.provenance import claim_folder, versions
        from equiflock.report.reproduction import draw_flocking, draw_leaders

        for name in ("agents", "flocks", "sides", "workers"):
            check_count(name, getattr(self, name))
        import_plugin(self.plugin)
        load(self.controller)  # a clear error before anything is flown
        usual = 0.01 if self.scenario == "obstacles" else 0.001
        time_step = usual if self.time_step is None else check_positive("time_step", self.time_step)
        flown = self.controller, self.scenario, self.agents, self.flocks, self.sides, time_step
        cells = evaluation_cells(*flown)
        cells[0].cell.start()  # a clear error, too
        sources = [Path(name) for name in (self.controller, self.plugin) if name is not None]
        checksums = [zlib.crc32(path.read_bytes()) for path in sources if path.is_file()]
        folder = self.out or Path("runs/evaluation") / f"{Path(self.controller).stem}-{self.scenario}"
        claim_folder(folder, "evaluation", {"settings": flown, "checksums": checksums, "versions": versions()})
        with progress() as bar:
            task = bar.add_task(f"{self.scenario}, {self.flocks} x {self.agents} agents", total=len(cells))
            prepare = partial(import_plugin, self.plugin)
            run_cells(cells, folder / "cells", self.workers, lambda cell: bar.advance(task), prepare, self.scheduler)
        table = collect(cells, folder / "cells")
        with written_whole(folder / f"{self.scenario}.csv") as scratch:
            table.to_csv(scratch, index=False)
        files = [folder / f"{self.scenario}.csv"]
        if self.scenario == "flocking":
            files.append(draw_flocking(table, VARIANCE, folder / "flocking.png"))
        elif self.scenario == "leaders":
            files.append(draw_leaders(table, folder / "leaders.png"))
        header, rows = evaluation_rows(table, self.scenario)
        grid = Table(title=f"evaluated: {self.controller}", title_justify="left")
        for number, column in enumerate(header):
            grid.add_column(column, justify="right" if number else "left")
        for row in rows:
            grid.add_row(*row)
        out.print(grid)
        for path in files:
            out.print(f"  {path}", highlight=False)
