"""Measures the live page in headless Chromium: frames received from the server and pictures drawn per second.

    python benchmarks/view.py [--seconds 5]

The server is `equiflock view` in a separate process, as for a user. Without a graphics card the browser renders in
software. The page plays at 1x (one simulated second per second).
"""

from __future__ import annotations

import argparse
import time

from playwright.sync_api import Browser
from rich.console import Console
from rich.table import Table

from browser import live_page

TARGET_RATES = {100: 60, 1_000: 30, 10_000: 10}
COUNTER_SCRIPT = (
    "() => [flockView.receivedCount, flockView.screen.pictureCount, performance.now() / 1000, flockView.frame.time]"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=800)
    options = parser.parse_args()
    with live_page(8700) as (browser, address):
        report(browser, address, options)


def report(browser: Browser, address: str, options: argparse.Namespace) -> None:
    table = Table(title=f"{options.width} x {options.height} pixels, per second", title_justify="left")
    for column in ("agents", "trails", "received", "drawn", "target", "simulated s", "first flock"):
        table.add_column(column, justify="right")
    for agents, target in TARGET_RATES.items():
        for trails in (True, False):
            setting = f"{address}#agents={agents}&speed=1&trails={trails:d}"
            received, drawn, simulated, first = measure(browser, setting, options)
            cells = f"{received:.1f}", f"{drawn:.1f}", str(target), f"{simulated:.2f}", f"{first:.2f} s"
            table.add_row(f"{agents:,}", "yes" if trails else "no", *cells)
    Console().print(table)


def measure(browser: Browser, address: str, options: argparse.Namespace) -> tuple[float, float, float, float]:
    """Return frames received, pictures drawn and seconds simulated per second, and seconds until the first flock."""
    context = browser.new_context(viewport={"width": options.width, "height": options.height}, color_scheme="dark")
    page = context.new_page()
    start = time.perf_counter()
    page.goto(address)
    page.wait_for_function("() => globalThis.flockView?.frame && flockView.screen.pictureCount > 0")
    first = time.perf_counter() - start
    page.wait_for_timeout(1500)
    before = page.evaluate(COUNTER_SCRIPT)
    page.wait_for_timeout(options.seconds * 1000)
    after = page.evaluate(COUNTER_SCRIPT)
    context.close()
    received, drawn, seconds, simulated = (b - a for a, b in zip(before, after, strict=True))
    return received / seconds, drawn / seconds, simulated / seconds, first


if __name__ == "__main__":
    main()
