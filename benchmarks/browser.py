"""The live page as a user sees it: `equiflock view` in a separate process, and Debian's Chromium."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

ARGUMENTS = ["--no-sandbox", "--enable-unsafe-swiftshader", "--disable-background-networking", "--no-first-run"]


@contextmanager
def live_page(port: int) -> Iterator[tuple[Browser, str]]:
    """Start the server and a browser; yield the browser and the address of the page."""
    command = [sys.executable, "-m", "equiflock", "view", "--no-browser", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = re.search(r"http://\S+", server.stdout.readline())
        assert address is not None, "the server did not start"
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
            yield browser, address[0]
            browser.close()
    finally:
        server.terminate()
        server.wait()
