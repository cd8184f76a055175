"""The files of the page, and the modules that a browser should load at once."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from equiflock.plotting.player import PLAYER_DIR

PAGE_DIR = Path(__file__).with_name("page")
PLAYER_URL = "player"
"""Path of the files in PLAYER_DIR."""
IMPORT = re.compile(r'^(?:import|export)\b[^"]*? from "(\./[\w./-]+|\.\./[\w./-]+)";$', re.MULTILINE)


def list_modules(first: str = "main.js") -> list[str]:
    """Return the paths of a module of the page and of all that it imports, each before those that it imports."""
    modules: dict[str, None] = {}
    waiting = [first]
    while waiting:
        module = waiting.pop(0)
        if module not in modules:
            modules[module] = None
            code = find_file(module).read_text("utf-8")
            folder = posixpath.dirname(module)
            waiting += [posixpath.normpath(posixpath.join(folder, name)) for name in IMPORT.findall(code)]
    return list(modules)


def find_file(path: str) -> Path:
    """Return the file that has a path on the page."""
    folder, _, name = path.rpartition("/")
    return PLAYER_DIR / name if folder == PLAYER_URL else PAGE_DIR / path


def make_preload_header() -> str:
    """Return the header `Link` of the page: without it, a browser finds a module when it has read the one before."""
    return ", ".join(f"</{module}>; rel=modulepreload" for module in list_modules())
