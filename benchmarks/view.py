"""Measures the live page in headless Chromium: pictures drawn per second, and what frames and pictures cost.

    python benchmarks/view.py [--seconds 5] [--rounds 3] [--baseline ../other-checkout]

The server is `equiflock view` in a separate process, as for a user. Without a graphics card the browser renders in
software. The page plays at 1x (one simulated second per second). Of several rounds the best counts. On a busy machine
look at the processor time: that of the server for a frame, with the steps before it, and that of the browser for a
picture. With a baseline, another checkout of equiflock is measured in turn, and ratios to it follow the values.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import psutil
from playwright.sync_api import Browser, Page
from rich.console import Console
from rich.table import Table

from browser import live_page, live_server

LOOKS = {"": (0, 0), "links": (1, 0), "trails": (0, 1), "both": (1, 1)}
"""Whether edges and trails are drawn."""
TARGETS = {100: dict.fromkeys(LOOKS, 60), 1_000: dict.fromkeys(LOOKS, 30), 10_000: {"": 15, "links": 15}}
"""Pictures per second in software rendering on two idle cores."""
MAX_FIRST_SECONDS = 2.0
COUNT_BYTES = """globalThis.frameBytes = 0;
globalThis.WebSocket = class extends WebSocket {
  constructor(...given) {
    super(...given);
    this.addEventListener("message", ({ data }) => (frameBytes += data.byteLength ?? 0));
  }
};"""
COUNTERS = """() => [flockView.receivedCount, flockView.screen.pictureCount, performance.now() / 1000,
flockView.frame.time, frameBytes]"""


class Measurement(NamedTuple):
    """What one page needed."""

    drawn: float
    """Pictures per second."""
    simulated: float
    """Simulated seconds per second."""
    kilobytes: float
    """Of a frame."""
    server: float
    """Processor milliseconds of the server per frame, with the steps before it."""
    browser: float
    """Processor milliseconds of the browser per picture."""
    first: float
    """Seconds until the first flock."""


HIGHER_IS_BETTER = Measurement(True, True, False, False, False, False)
FORMATS = Measurement("{:.1f}", "{:.2f}", "{:.1f}", "{:.1f}", "{:.1f}", "{:.2f}")  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement")
    parser.add_argument("--rounds", type=int, default=1, help="measurements of each row")
    parser.add_argument("--agents", type=int, nargs="*", default=list(TARGETS))
    parser.add_argument("--baseline", type=Path, help="another checkout to compare with")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=800)
    options = parser.parse_args()
    with ExitStack() as stack:
        browser, address, server = stack.enter_context(live_page(8700))
        servers = {address: server}
        if options.baseline is not None:
            servers.update([stack.enter_context(live_server(8720, options.baseline / "src"))])
        report(browser, servers, options)


def report(browser: Browser, servers: dict[str, int], options: argparse.Namespace) -> None:
    table = Table(title=f"{options.width} x {options.height} pixels", title_justify="left")
    columns = (
        "agents",
        "drawn with",
        "target",
        "pictures/s",
        "simulated",
        "kB/frame",
        "server ms",
        "browser ms",
        "first",
    )
    for column in columns:
        table.add_column(column, justify="right")
    for agents in options.agents:
        for look, (edges, trails) in LOOKS.items():
            results: dict[str, list[Measurement]] = {address: [] for address in servers}
            for _ in range(options.rounds):
                for address, server in servers.items():
                    setting = f"{address}#agents={agents}&speed=1&edges={edges}&trails={trails}"
                    results[address].append(measure(browser, setting, server, options))
            best = [pick_best(rounds) for rounds in results.values()]
            target = TARGETS.get(agents, {}).get(look, "")
            table.add_row(f"{agents:,}", look, str(target), *format_cells(*best))
    Console(width=120).print(table)


def pick_best(rounds: list[Measurement]) -> Measurement:
    """Return the best value of each field over several measurements."""
    choose: list[Callable[..., float]] = [max if higher else min for higher in HIGHER_IS_BETTER]
    return Measurement(*(pick(values) for pick, values in zip(choose, zip(*rounds, strict=True), strict=True)))


def format_cells(found: Measurement, baseline: Measurement | None = None) -> list[str]:
    """Return the cells of a row, each with its ratio to the baseline in brackets if there is one."""
    cells = [template.format(value) for template, value in zip(FORMATS, found, strict=True)]  # type: ignore[attr-defined]
    if baseline is None:
        return cells
    return [f"{cell} ({a / b:.2f})" if b else cell for cell, a, b in zip(cells, found, baseline, strict=True)]


def measure(browser: Browser, address: str, server: int, options: argparse.Namespace) -> Measurement:
    """Open a page without anything in the browser's cache, let it fly, and return what it needed."""
    context = browser.new_context(viewport={"width": options.width, "height": options.height}, color_scheme="dark")
    context.add_init_script(COUNT_BYTES)
    page = context.new_page()
    start = time.perf_counter()
    page.goto(address)
    page.wait_for_function("() => globalThis.flockView?.frame && flockView.screen.pictureCount > 0")
    first = time.perf_counter() - start
    page.wait_for_timeout(1500)
    before = read_counters(page, server)
    page.wait_for_timeout(options.seconds * 1000)
    after = read_counters(page, server)
    context.close()
    received, drawn, seconds, simulated, size, of_server, of_browser = (
        b - a for a, b in zip(before, after, strict=True)
    )
    costs = size / received / 1e3, 1e3 * of_server / received, 1e3 * of_browser / max(drawn, 1)
    return Measurement(drawn / seconds, simulated / seconds, *costs, first)


def read_counters(page: Page, server: int) -> list[float]:
    """Return the counters of the page, and the processor seconds of the server and of the browser so far."""
    own = psutil.Process()
    of_browser = sum(sum_cpu(child) for child in own.children(recursive=True) if is_browser(child))
    return [*page.evaluate(COUNTERS), sum_cpu(psutil.Process(server)), of_browser]


def is_browser(process: psutil.Process) -> bool:
    """Return whether a process is one of Chromium's."""
    return "chrom" in process.name()


def sum_cpu(process: psutil.Process) -> float:
    """Return the processor seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
