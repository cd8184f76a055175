"""`equiflock bench`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from equiflock._runtime.checks import check_count
from equiflock._runtime.files import atomic_write, check_writable
from equiflock._runtime.imports import require_torch
from equiflock.cli.terminal import out, print_table, progress

if TYPE_CHECKING:
    from equiflock.evaluation.benchmark import EpochTiming, LoopTiming, MachineLimits


@dataclass(frozen=True)
class Bench:
    """Measure the speed of simulation and training on this machine.

    A simulation step runs ETDAGNN on every agent; its time is in nanoseconds per agent.
    """

    agents: tuple[int, ...] = (100, 1_000, 10_000, 100_000, 1_000_000)
    """Flock sizes, at constant density."""
    training: bool = True
    """Whether to measure an epoch of training."""
    repeats: int = 5
    """Repetitions of each measurement, of which the best is reported."""
    json: Path | None = None
    """JSON file to write the results to."""
    plot: Path | None = None
    """PNG file to draw the results to."""

    def run(self) -> None:
        """Print the timings; also write them to the files of --json and --plot."""
        from equiflock.controllers.trained import PAPER_NETWORKS
        from equiflock.evaluation.benchmark import BATCHES, draw_bench, measure_epoch, measure_limits, measure_loop

        if self.training:
            require_torch("an epoch of training (leave it out with --no-training)")
        # Measuring takes minutes, so check all options first.
        check_count("repeats", self.repeats)
        for agents in self.agents:
            check_count("agents", agents, least=3)
        for path in (self.json, self.plot):
            if path is not None:
                check_writable(path)
        with progress() as bar:
            sizes = [*BATCHES, *((1, agents) for agents in self.agents)]
            timings = [measure_loop(*size, self.repeats) for size in bar.track(sizes, description="measuring")]
            limits = measure_limits(self.repeats)
            names = PAPER_NETWORKS if self.training else ()
            epochs = [measure_epoch(name, self.repeats) for name in bar.track(names, description="training")]
        _print_steps(timings, limits)
        _print_parts(timings[-1], limits)
        if epochs:
            _print_epochs(epochs, limits, timings[-1].threads)
        if self.plot is not None:
            draw_bench(timings, [limits.compute_lower_bound(timing)[0] for timing in timings], self.plot)
        if self.json is not None:
            results = {
                "limits": asdict(limits),
                "steps": [asdict(timing) for timing in timings],
                "epochs": [asdict(epoch) for epoch in epochs],
            }
            with atomic_write(self.json) as scratch:
                scratch.write_text(json.dumps(results, indent=2) + "\n")


def _print_steps(timings: list[LoopTiming], limits: MachineLimits) -> None:
    """Print a row per flock size: the parts of a step, its speed, and the share of the machine's limit."""
    title = f"a step with ETDAGNN in the loop, ns per agent, {timings[0].threads} threads"
    header = "B x N", "sort", "observations", "policy", "integration", "step", "10⁶/s", "of limit", "by"
    rows = []
    for timing in timings:
        least, limit = limits.compute_lower_bound(timing)
        parts = timing.sort, timing.observations, timing.policy, timing.integration, timing.step
        speed = f"{timing.speed / 1e6:.2f}", f"{least / timing.step:.0%}", limit
        rows.append([f"{timing.flocks} x {timing.agents:,}", *(f"{part:.0f}" for part in parts), *speed])
    print_table(title, (header, rows))
    out.print(
        f"copy bandwidth: {limits.copy_bandwidth / 1e9:.1f} GB/s; float32 multiply-adds: "
        f"{limits.multiply_add_peak / 1e9:.0f} billion/s; per agent, a step moves at least "
        f"{timings[0].costs['step'].bytes_moved:.0f} bytes and takes about "
        f"{timings[-1].costs['step'].multiply_adds:.0f} multiply-adds",
        highlight=False,
    )


def _print_parts(timing: LoopTiming, limits: MachineLimits) -> None:
    """Print the parts of one step, each beside the machine's lower bound, in ns per agent."""
    title = f"parts of a step of {timing.flocks} x {timing.agents:,}, per agent"
    header = "part", "ns", "bytes", "multiply-adds", "least ns", "of limit", "by"
    rows = []
    for part, cost in timing.costs.items():
        (least, limit), elapsed = limits.compute_lower_bound(timing, part), getattr(timing, part)
        share = f"{least / elapsed:.0%}" if elapsed > 0 else ""
        work = f"{cost.bytes_moved:.0f}", f"{cost.multiply_adds:.0f}"
        rows.append([part, f"{elapsed:.1f}", *work, f"{least:.1f}", share, limit])
    print_table(title, (header, rows))


def _print_epochs(epochs: list[EpochTiming], limits: MachineLimits, threads: int) -> None:
    """Print the time in ms of a training epoch of each network, and the lower bound of its updates on one thread.

    `limits` are of `threads` threads.
    """
    header = "controller", "flight", "200 updates", "validation", "epoch", "least updates", "of limit"
    rows = []
    for epoch in epochs:
        least = epoch.multiply_adds / (limits.multiply_add_peak / threads) * 1e3
        parts = epoch.flight, epoch.updates, epoch.validation, epoch.epoch, least
        rows.append([epoch.controller, *(f"{part:.1f}" for part in parts), f"{least / epoch.updates:.0%}"])
    print_table("an epoch of training, ms, one thread (validation runs every 40 epochs)", (header, rows))
