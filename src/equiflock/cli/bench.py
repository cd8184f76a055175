"""`equiflock bench`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from equiflock.cli.terminal import out, print_table, progress
from equiflock.runtime.checks import check_count
from equiflock.runtime.files import atomic_write, check_writable


@dataclass(frozen=True)
class Bench:
    """Measure how fast this machine flies flocks with ETDAGNN in the loop, in nanoseconds per agent and step."""

    agents: tuple[int, ...] = (100, 1_000, 10_000, 100_000, 1_000_000)
    """Sizes of a single flock, at constant density."""
    repeats: int = 5
    """Report the best of so many."""
    json: Path | None = None
    """Also write the figures here."""
    plot: Path | None = None
    """Also draw them here, as a PNG file."""

    def run(self) -> None:
        """Print the table."""
        from equiflock.experiments.bench import BATCHES, measure_limits, measure_loop

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
        title = f"a step with ETDAGNN in the loop, ns per agent, {timings[0].threads} threads"
        header = "B x N", "sort", "observations", "policy", "integration", "step", "10⁶/s", "of limit", "by"
        rows = []
        for timing in timings:
            least, what = limits.least(timing)
            parts = timing.sort, timing.observations, timing.policy, timing.integration, timing.step
            speed = f"{timing.speed / 1e6:.2f}", f"{least / timing.step:.0%}", what
            rows.append([f"{timing.flocks} x {timing.agents:,}", *(f"{part:.0f}" for part in parts), *speed])
        print_table(title, (header, rows))
        out.print(
            f"copying: {limits.copy_bandwidth / 1e9:.1f} GB/s; float32 multiply-adds: "
            f"{limits.multiply_add_peak / 1e9:.0f} billion/s; for an agent a step moves at least "
            f"{timings[0].bytes_moved:.0f} bytes and takes about {timings[-1].multiply_adds:.0f} multiply-adds",
            highlight=False,
        )
        if self.plot is not None:
            from equiflock.report.bench import draw_bench

            draw_bench(timings, limits, self.plot)
        if self.json is not None:
            figures = {"limits": asdict(limits), "steps": [asdict(timing) for timing in timings]}
            with atomic_write(self.json) as scratch:
                scratch.write_text(json.dumps(figures, indent=2) + "\n")
