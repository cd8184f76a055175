"""The live page as a user sees it: `equiflock view` in a separate process, and Debian's Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ARGUMENTS = ["--no-sandbox", "--enable-unsafe-swiftshader", "--disable-background-networking", "--no-first-run"]


@contextmanager
def live_server(port: int, source: Path | None = None) -> Iterator[tuple[str, int]]:
    """Start a server, of the package in another folder if `source` is given; yield the page's address and its pid."""
    command = [sys.executable, "-m", "equiflock", "view", "--no-browser", "--port", str(port)]
    environment = os.environ if source is None else {**os.environ, "PYTHONPATH": str(source)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stdout is not None
        address = re.search(r"http://\S+", server.stdout.readline())
        assert address is not None, "the server did not start"
        yield address[0], server.pid
    finally:
        server.terminate()
        server.wait()


@contextmanager
def live_page(port: int) -> Iterator[tuple[Browser, str, int]]:
    """Start the server and a browser; yield the browser, the address of the page and the server's pid."""
    with live_server(port) as (address, server), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        yield browser, address, server
        browser.close()
