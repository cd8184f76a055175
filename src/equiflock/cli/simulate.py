"""`equiflock simulate`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.table import Table

from equiflock.cli.plugins import import_plugin
from equiflock.cli.terminal import PREPARING, Disk, out, progress
from equiflock.controllers import load
from equiflock.experiments.summary import RECORDED, summarize
from equiflock.runtime.checks import check_count
from equiflock.runtime.files import check_new, interruptible
from equiflock.scenarios import RandomDisk
from equiflock.simulation.simulate import count_steps, simulate


@dataclass(frozen=True)
class Simulate:
    """Fly random flocks under a controller and print what came of it."""

    controller: str = "tanner"
    """A law (tanner, tanner-dynamic, tanner-fixed), a trained network (tdagnn, tdagnn-tf, tdagnn-tf-mean, etdagnn;
    etdagnn:3 for training seed 3), a file of weights (.safetensors), or one of your own (see --plugin). Options follow
    the name: tanner:clamp=5, or name:key=value:key=value."""
    disk: Disk = field(default_factory=RandomDisk)
    time_step: float = 0.01
    """Seconds per step."""
    duration: float = 2.0
    """Seconds to fly."""
    save: Path | None = None
    """Keep the flight here, as a zarr store that `equiflock animate` and `equiflock.Trajectory.load` open."""
    keep_every: int = 1
    """With --save: keep every so many-th frame."""
    plugin: str | None = None
    """A Python module or file to import first, such as one that registers your own controller."""

    def run(self) -> None:
        """Print a table of metrics, median and quartiles over flocks."""
        import_plugin(self.plugin)
        if self.save is not None:
            check_new(self.save)
        check_count("keep_every", self.keep_every)
        steps = count_steps(self.duration, self.time_step)
        controller = load(self.controller)
        with progress() as bar:
            task = bar.add_task(PREPARING, total=steps)
            start = interruptible(self.disk.draw)
            run = simulate(
                start,
                controller,
                time_step=self.time_step,
                duration=self.duration,
                keep_every=self.keep_every if self.save is not None else None,
                record=RECORDED,
                on_step=lambda moment: bar.update(
                    task, completed=moment.step, description=f"flying under {self.controller}"
                ),
                config={"controller": self.controller, "start": asdict(self.disk)},
            )
            if self.save is not None:
                bar.update(task, description=f"saving {self.save}", total=None)
                run.save(self.save)
        what = f"{self.disk.flocks:,} x {self.disk.agents:,} agents under {self.controller} for {self.duration:g} s"
        table = Table(title=what, title_justify="left")
        table.add_column("metric")
        table.add_column("median (quartiles) over flocks" if len(start) > 1 else "value", justify="right")
        for row in summarize(run):
            table.add_row(row.name, row.text)
        out.print(table)
        if self.save is not None:
            out.print(f"saved: {self.save}", highlight=False)
