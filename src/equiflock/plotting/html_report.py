"""Self-contained HTML report, with images, films and players embedded in the file, and Markdown tables."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from equiflock._runtime.files import atomic_write
from equiflock.plotting.player.bundle import bundle_player, make_security_policy
from equiflock.plotting.player.embedding import embed_flights
from equiflock.simulation.trajectory import Trajectory

MEDIA_TYPES = {".png": "image/png", ".gif": "image/gif", ".mp4": "video/mp4"}

STYLESHEET = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --soft: #667; --line: #ddd; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8ea; --paper: #16181d; --soft: #9aa; --line: #333; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 62rem; margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2.4rem; }
.lead { color: var(--soft); margin-top: 0; }
main > * { overflow-wrap: break-word; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .7rem; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; }
.left th, .left td { text-align: left; vertical-align: top; }
img, video { max-width: 100%; border-radius: 6px; background: #fff; }
.row { display: flex; flex-wrap: wrap; gap: 1rem; } .row > * { flex: 1 1 min(24rem, 100%); min-width: 0; }
.equiflock-player { margin: 1rem 0; min-height: 24rem; }
pre { overflow-x: auto; padding: .8rem 1rem; border: 1px solid var(--line); border-radius: 6px; font-size: .85rem; }
"""


class HtmlReport:
    """HTML page built from top to bottom by `add_*` methods and saved by `write`."""

    def __init__(self, title: str, lead: str) -> None:
        self.title = title
        self.has_players = False
        self.parts = [f"<h1>{escape(title)}</h1>", f'<p class="lead">{escape(lead)}</p>']

    def add_heading(self, text: str) -> None:
        """Start a section."""
        self.parts.append(f"<h2>{escape(text)}</h2>")

    def add_text(self, text: str) -> None:
        """Add a paragraph; HTML in the text is escaped."""
        self.parts.append(f"<p>{escape(text)}</p>")

    def add_table(self, header: Sequence[str], rows: Sequence[Sequence[str]], align_left: bool = False) -> None:
        """Add a table. The first column is aligned left; the others right, or also left with `align_left`."""
        head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        kind = ' class="left"' if align_left else ""
        table = f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        self.parts.append(f'<div class="scroll" tabindex="0" role="region" aria-label="Table">{table}</div>')

    def add_media(self, paths: Sequence[Path], caption: str) -> None:
        """Embed .png, .gif or .mp4 files in the page, side by side if there is room, with a caption below."""
        self.parts.append('<div class="row">' + "".join(_embed_media(path, caption) for path in paths) + "</div>")
        self.add_text(caption)

    def add_player(
        self,
        runs: Sequence[Trajectory],
        caption: str,
        *,
        flock: int = 0,
        titles: Sequence[str] | None = None,
        speed: float = 0.5,
        links: bool = False,
        group: str = "",
    ) -> None:
        """Embed a player of one flock of one to four runs with the same times, with a caption below.

        Players of the page with the same `group` play together. `titles` default to the controllers' names; `speed` is
        in simulated seconds per second; `links` draws the communication graph at first. Raise InputError if the flocks
        are too large (see `embed_flights`).
        """
        self.parts.append(embed_flights(runs, flock=flock, titles=titles, speed=speed, links=links, group=group))
        self.add_text(caption)
        self.has_players = True

    def add_settings(self, settings: Mapping[str, object]) -> None:
        """Add a list of names and values; a value that is a mapping becomes an indented list (one level only)."""
        lines = []
        for name, value in settings.items():
            if isinstance(value, Mapping):
                lines += [f"{name}:", *(f"    {inner}: {each}" for inner, each in value.items())]
            else:
                lines.append(f"{name}: {value}")
        self.parts.append(f'<pre tabindex="0">{escape(chr(10).join(lines))}</pre>')

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page atomically, replacing an existing file."""
        html = (
            f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f"{make_security_policy()}\n"
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self.title)}</title>\n<style>{STYLESHEET}</style>\n</head>\n<body>\n<main>\n"
            + "\n".join(self.parts)
            + "\n</main>"
            + (f"\n{bundle_player()}" if self.has_players else "")
            + "\n</body>\n</html>\n"
        )
        with atomic_write(path) as scratch:
            scratch.write_text(html, encoding="utf-8")
        return Path(path)


def format_markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], align_left: bool = False) -> str:
    """Return a table in Markdown, aligned as by `HtmlReport.add_table`. Cells are not escaped."""
    rule = "|---|" + ("---|" if align_left else "--:|") * (len(header) - 1)
    first, *others = ("|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|" for row in (header, *rows))
    return "\n".join([first, rule, *others])


def _embed_media(path: Path, caption: str) -> str:
    """Return the HTML of an image or a film, with the whole file as a data URL, in base64."""
    kind = MEDIA_TYPES[path.suffix]
    source = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    if kind.startswith("video"):
        return f'<video src="{source}" controls loop muted autoplay playsinline></video>'
    return f'<img src="{source}" alt="{escape(caption, quote=True)}">'
