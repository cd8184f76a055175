"""`equiflock evaluate`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from equiflock.checks import check_count, check_positive
from equiflock.cli.plugins import import_plugin, in_one_line, plugin_sources
from equiflock.cli.terminal import notice, out, print_table, progress
from equiflock.controllers import load

if TYPE_CHECKING:
    import pandas as pd

    from equiflock.experiments.evaluation import Evaluated

TRIED_STEPS = 3
"""A controller that fails in its first steps shall do so before a folder is taken."""


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
    """The folder to write to; runs/evaluation/CONTROLLER-SCENARIO if left out, with the checksum of a file of weights.
    Results of the same settings in it are not computed again."""
    workers: int = os.cpu_count() or 1
    """How many processes."""
    scheduler: str | None = None
    """The address of a Dask scheduler whose workers run the cells instead, such as tcp://10.0.0.1:8786."""
    plugin: str | None = None
    """A Python module or file to import first, such as one that registers your own controller."""
    force: bool = False
    """Remove what is in the folder, if it is an evaluation, and begin anew."""

    def run(self) -> None:
        """Print the comparison and say where table and figure are."""
        from equiflock.experiments.evaluation import evaluation_cells, evaluation_rows, folder_name
        from equiflock.experiments.executor import collect
        from equiflock.files import written_whole

        for name in ("agents", "flocks", "sides", "workers"):
            check_count(name, getattr(self, name))
        import_plugin(self.plugin)
        load(self.controller)  # a clear error before anything is flown
        settings = self._settings()
        cells = evaluation_cells(**settings)
        self._try(cells[0])
        folder = self.out or Path("runs/evaluation") / folder_name(self.controller, self.scenario)
        self._fly(cells, settings, folder)
        table = collect(cells, folder / "cells")
        with written_whole(folder / f"{self.scenario}.csv") as scratch:
            table.to_csv(scratch, index=False)
        drawn = self._draw(table, folder / f"{self.scenario}.png")
        title = f"{self.scenario}: {self.flocks} flocks of {self.agents} agents"
        print_table(title, *(evaluation_rows(table, self.scenario, quartiles) for quartiles in (True, False)))
        for path in (folder / f"{self.scenario}.csv", drawn):
            out.print(f"  {path}", highlight=False, soft_wrap=True)

    def _settings(self) -> dict[str, Any]:
        """What `evaluation_cells` is called with, and the folder's config keeps."""
        usual = 0.01 if self.scenario == "obstacles" else 0.001
        time_step = usual if self.time_step is None else check_positive("time_step", self.time_step)
        names = "controller", "scenario", "agents", "flocks", "sides"
        return {**{name: getattr(self, name) for name in names}, "time_step": time_step}

    def _try(self, own: Evaluated) -> None:
        """A clear error, before anything is kept, if there are no such flocks, or the controller cannot fly."""
        from equiflock.flight import flight

        with in_one_line(self.plugin):
            list(islice(flight(own.cell.start(), load(self.controller)), TRIED_STEPS))

    def _fly(self, cells: Sequence[Evaluated], settings: dict[str, Any], folder: Path) -> None:
        """Run what is not in the folder yet."""
        from equiflock.experiments.executor import is_done, run_cells
        from equiflock.provenance import claim_folder, remove_results, versions

        sources = plugin_sources(self.plugin)
        weights = {cell.name: cell.checksum for cell in cells if cell.checksum}
        config = {"settings": settings, "sources": sources, "weights": weights, "versions": versions()}
        claim_folder(folder, "evaluation", config, self.force)
        kept = folder / "cells"
        begun = any(is_done(cell, kept) for cell in cells)
        with progress() as bar, in_one_line(self.plugin):
            task = bar.add_task(f"{self.scenario}, {self.flocks} x {self.agents} agents", total=len(cells))
            prepare = partial(import_plugin, self.plugin, sources) if self.plugin else None
            say = partial(notice, bar)
            try:
                run_cells(cells, kept, self.workers, lambda cell: bar.advance(task), prepare, self.scheduler, say)
            except Exception:
                # What the others did meanwhile shall not stand in the way of a plugin that is mended.
                if not begun and not is_done(cells[0], kept) and self.scheduler is None:
                    remove_results(folder)
                raise

    def _draw(self, table: pd.DataFrame, path: Path) -> Path:
        from equiflock.experiments.flocking import VARIANCE
        from equiflock.report.endings import draw_endings
        from equiflock.report.reproduction import draw_flocking, draw_leaders

        if self.scenario == "flocking":
            return draw_flocking(table, VARIANCE, path)
        return draw_leaders(table, path) if self.scenario == "leaders" else draw_endings(table, path)
