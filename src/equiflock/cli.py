"""The command line: each command is a frozen dataclass whose fields are its options."""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from equiflock.controllers import load
from equiflock.files import check_new, check_writable, written_whole
from equiflock.flight import count_steps, simulate
from equiflock.initial import RandomDisk
from equiflock.trajectory import Trajectory
from equiflock.types import InputError, Moment, check_count
from equiflock.version import __version__

Disk = Annotated[RandomDisk, tyro.conf.arg(name="")]
PREPARING = "preparing (the first run compiles the kernels)"
Result = TypeVar("Result")
out = Console()
err = Console(stderr=True)


@dataclass(frozen=True)
class Simulate:
    """Fly random flocks under a controller and print what came of it."""

    controller: str = "tanner"
    """A controller's name: tanner, tanner-dynamic, tanner-fixed, or one of your own (see --plugin)."""
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
        from equiflock.experiments.summary import RECORDED, summarize

        _import_plugin(self.plugin)
        if self.save is not None:
            check_new(self.save)
        check_count("keep_every", self.keep_every)
        steps = count_steps(self.duration, self.time_step)
        pilot = load(self.controller)
        with _progress() as bar:
            task = bar.add_task(PREPARING, total=steps)
            start = _interruptible(self.disk.draw)
            run = simulate(
                start,
                pilot,
                time_step=self.time_step,
                duration=self.duration,
                radius=self.disk.comm_radius,
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


@dataclass(frozen=True)
class Animate:
    """Draw a film of saved flights, side by side, or of a new one."""

    flights: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Flights saved by `equiflock simulate --save`; without any, a new flock is flown."""
    out: Path = Path("flock.mp4")
    """The film: .mp4 or .gif."""
    flock: int = 0
    """Which flock of the batch, counted from 0."""
    frames_per_second: int = 30
    """Frames per second of film."""
    speed: float = 0.5
    """Simulated seconds per second of film."""
    dots_per_inch: int = 110
    """Each panel of the film is 4.8 inches wide."""
    controller: str = "tanner"
    """For a new flight: the controller's name."""
    disk: Disk = field(default_factory=RandomDisk)
    time_step: float = 0.01
    """For a new flight: seconds per step."""
    duration: float = 2.0
    """For a new flight: seconds to fly."""
    plugin: str | None = None
    """A Python module or file to import first, such as one that registers your own controller."""

    def run(self) -> None:
        """Write the film and say where it is."""
        from equiflock.report.film import check_film, film

        _import_plugin(self.plugin)
        check_film(self.out, self.speed, self.frames_per_second, self.dots_per_inch)
        fresh = Animate()
        options = ("controller", "disk", "time_step", "duration")
        if self.flights and any(getattr(self, name) != getattr(fresh, name) for name in options):
            raise InputError("options of a new flight do not go with saved flights")
        with _progress() as bar:
            runs = [Trajectory.load(path) for path in self.flights]
            if not runs:
                pilot = load(self.controller)
                task = bar.add_task(PREPARING, total=None)
                run = simulate(
                    _interruptible(self.disk.draw),
                    pilot,
                    time_step=self.time_step,
                    duration=self.duration,
                    radius=self.disk.comm_radius,
                    config={"controller": self.controller, "start": asdict(self.disk)},
                )
                runs = [run]
                bar.remove_task(task)
            task = bar.add_task("drawing frames", total=None)
            path = film(
                runs,
                self.out,
                flock=self.flock,
                frames_per_second=self.frames_per_second,
                speed=self.speed,
                dots_per_inch=self.dots_per_inch,
                on_frame=lambda done, total: bar.update(task, completed=done, total=total),
            )
        out.print(f"film: {path}", highlight=False)


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
        from equiflock.experiments.demo import CONTROLLERS, SECONDS, demonstrate
        from equiflock.report.demo import check_demo_folder, comparison, write_demo

        check_demo_folder(self.out)
        disk = RandomDisk(self.flocks, self.agents, self.seed)
        steps = count_steps(SECONDS, time_step=0.01)
        with _progress() as bar:
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
        from equiflock.experiments.bench import BATCHES, measure_messages

        check_count("repeats", self.repeats)
        if self.json is not None:
            check_writable(self.json)
        table = Table(title="messages, K = 3, ns per agent and step", title_justify="left")
        for column in ("flocks x agents", "one thread", "all threads", "mean degree"):
            table.add_column(column, justify="right")
        figures = []
        with _progress() as bar:
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


COMMANDS: dict[str, Callable[..., Any]] = {"simulate": Simulate, "animate": Animate, "demo": Demo, "bench": Bench}


def main(arguments: list[str] | None = None) -> None:
    """Run a command: exit code 0, 2 for bad input, 130 for Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(f"equiflock {__version__}")
        return
    # A polite request to end is an exception too, so that nothing half-written is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        command = tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="equiflock",
            description="Swarms that fly together with no central computer: simulate, watch and measure them.",
            args=arguments,
        )
        command.run()
    except InputError as error:
        _fail(str(error))
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        _fail(f"{error.filename}: {reason}" if error.filename else reason)
    except MemoryError:
        _fail("not enough memory: fly fewer agents or flocks, or keep fewer frames")
    except KeyboardInterrupt:
        err.print("equiflock: interrupted")
        sys.stdout.flush()
        os._exit(130)  # at once, even if a kernel is at work in another thread


def _fail(message: str) -> None:
    err.print(f"equiflock: {message}", style="bold red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(2)


def _import_plugin(name: str | None) -> None:
    """Import a user's module, by name or as a .py file, so that its `@register` lines take effect."""
    if name is None:
        return
    path = Path(name)
    sys.path.insert(0, str((path.parent if path.suffix == ".py" else Path()).resolve()))
    try:
        importlib.import_module(path.stem if path.suffix == ".py" else name)
    except Exception as error:  # whatever happens while somebody else's module is read
        raise InputError(f"--plugin {name} could not be imported: {type(error).__name__}: {error}") from None


def _interruptible(work: Callable[[], Result]) -> Result:
    """Do in another thread what may take long in one compiled call, so that Ctrl-C is heard meanwhile."""
    future: Future[Result] = Future()

    def fulfil() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=fulfil, daemon=True).start()
    while not future.done():
        wait([future], timeout=0.2)
    return future.result()


@contextmanager
def _progress() -> Iterator[Any]:
    """A progress bar on the terminal, gone when the work is done."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        yield bar


if __name__ == "__main__":
    main()
