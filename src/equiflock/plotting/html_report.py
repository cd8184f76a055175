"""Self-contained HTML report with verdicts, players, charts and tables in one file, and Markdown tables.

report/report.css and report/report.js are its style and its script; svg_charts.py draws its charts.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Literal

from equiflock._runtime.files import atomic_write
from equiflock.plotting.curve_panel import CurvePanel
from equiflock.plotting.palettes import PALETTES
from equiflock.plotting.player import PLAYER_DIR
from equiflock.plotting.player.bundle import bundle_player, make_security_policy
from equiflock.plotting.player.embedding import FlightChoice, embed_flight_menu, embed_flights
from equiflock.plotting.svg_charts import SERIES_COUNT, BarGroup, draw_bars, draw_curves
from equiflock.simulation.trajectory import Trajectory

MEDIA_TYPES = {".png": "image/png", ".gif": "image/gif", ".mp4": "video/mp4"}
REPORT_DIR = Path(__file__).parent / "report"
Kind = Literal["holds", "partly", "fails", "open"]
PRINTED_CHARACTERS, WIDE_CHARACTERS = 95, 140
"""Characters of a table's row that fit a sheet of A4, upright and turned; the text of wider tables is smaller."""
PRINTED_POINTS, LEAST_POINTS = 8.5, 5.0
"""Usual and least size of the text of printed tables."""
OTHER_SERIES = 0, 5, 7, 3
"""Places in `Palette.groups` of the colours of the series from the fifth on; theme.css has the first four."""
SIGNS = {
    "holds": '<path class="sign" d="M4.5 8.3L7 10.8L11.5 5.6"/>',
    "partly": '<path class="half" d="M8 3A5 5 0 0 1 8 13z"/>',
    "fails": '<path class="sign" d="M5.3 5.3L10.7 10.7M10.7 5.3L5.3 10.7"/>',
    "open": '<path class="sign" d="M4.5 8H11.5"/>',
}
"""Shapes of the kinds of verdicts, on a disk."""
NUMBER = re.compile(r"\s*([-+−]?(?:[\d,]*\.?\d+(?:e[-+]?\d+)?|inf|∞))", re.IGNORECASE)
"""A number at the start of a cell."""
EMPTY_CELLS = "", "-", "–"


@dataclass(frozen=True)
class Chip:
    """A verdict as a coloured chip: `kind` gives its colour and shape, `text` is by default the kind."""

    kind: Kind
    text: str = ""

    def __str__(self) -> str:
        return self.text or self.kind


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than its text."""

    text: str
    value: float | None = None
    """Number by which the column is sorted; by default the number at the start of the text."""
    flight: str = ""
    """Id of an entry of a flight menu, as `HtmlReport.add_flight_menu` returns it, to which the text is a link."""


class HtmlReport:
    """HTML page built from top to bottom by `add_*` methods and saved by `write`.

    Films and players come first, then the verdict, charts, tables, and the settings. Texts are escaped.
    """

    def __init__(self, title: str, lead: str) -> None:
        self.title = title
        self.has_players = False
        self.parts = [f"<h1>{escape(title)}</h1>", f'<p class="lead">{escape(lead)}</p>']
        self._heading = title
        self._key_count = self._table_count = 0
        self._series: dict[str, int] = {}

    def assign_series(self, names: Iterable[str]) -> dict[str, int]:
        """Return the numbers of the colours of curves or bars by their names, which keep them on the whole page.

        The first four are those of the flights of a player in their order. Names are numbered as they are first used.
        """
        return {name: self._series.setdefault(name, len(self._series)) for name in names}

    def add_heading(self, text: str, level: Literal[2, 3] = 2) -> None:
        """Start a section, or with level 3 a part of one."""
        self._heading = text
        self.parts.append(f"<h{level}>{escape(text)}</h{level}>")

    def add_text(self, text: str) -> None:
        """Add a paragraph."""
        self.parts.append(f"<p>{escape(text)}</p>")

    def add_caption(self, text: str) -> None:
        """Add a paragraph that explains what is above it; nothing for ""."""
        if not text:
            return
        self.parts.append(f'<p class="caption">{escape(text)}</p>')

    def add_verdict(self, text: str, chips: Sequence[Chip] = ()) -> None:
        """Add the answer in one or two sentences, with chips below, such as totals of verdicts."""
        items = "".join(f"<li>{_draw_chip(chip)}</li>" for chip in chips)
        below = f'<ul class="chips">{items}</ul>' if chips else ""
        self.parts.append(f'<div class="verdict"><p>{escape(text)}</p>{below}</div>')

    def add_note(self, title: str, text: str, chips: Sequence[Chip] = (), flight: str = "") -> None:
        """Add a sentence below a title and chips; `flight` is an entry of a flight menu, to which a link leads."""
        link = f' <a href="#{escape(flight, quote=True)}">Watch</a>' if flight else ""
        head = f"<b>{escape(title)}</b>{''.join(map(_draw_chip, chips))}{link}"
        self.parts.append(f'<div class="note"><p class="note-head">{head}</p><p>{escape(text)}</p></div>')

    def add_table(
        self, header: Sequence[str], rows: Sequence[Sequence[str | Chip | Cell]], align_left: bool = False
    ) -> None:
        """Add a table, which a click on a heading sorts.

        Numbers are aligned right, texts left, and with `align_left` all cells left, as of sentences. A column is sorted
        by numbers if all its cells start with one; empty cells come last.
        """
        kind = ' class="left"' if align_left else ""
        is_numeric = [
            all(_read_value(cell) is not None or str(_get_text(cell)) in EMPTY_CELLS for cell in column)
            for column in zip(*rows, strict=True)
        ]
        kinds = [_describe_column(column) for column in zip(*rows, strict=True)] or [""] * len(header)
        head = "".join(f'<th scope="col"{kind}>{escape(text)}</th>' for text, kind in zip(header, kinds, strict=True))
        body = "".join(
            f"<tr>{''.join(_format_cell(*each) for each in zip(row, is_numeric, kinds, strict=True))}</tr>"
            for row in rows
        )
        table = f"<table{kind}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        print_layout = _choose_print_layout([header, *([_get_text(cell) for cell in row] for row in rows)])
        self._table_count += 1
        label = escape(f"Table {self._table_count}: {self._heading}", quote=True)
        self.parts.append(f'<div {print_layout} tabindex="0" role="region" aria-label="{label}">{table}</div>')

    def add_charts(self, panels: Sequence[CurvePanel], caption: str = "") -> None:
        """Add charts of curves with bands, side by side if there is room, with a caption below."""
        charts = "".join(
            draw_curves(panel, self._make_key("chart"), self.assign_series(panel.curves)) for panel in panels
        )
        self.parts.append(f'<div class="charts">{charts}</div>')
        self.add_caption(caption)

    def add_bars(self, title: str, groups: Sequence[BarGroup], reference_name: str = "", caption: str = "") -> None:
        """Add horizontal bars with intervals and, as marks, references such as the values of a baseline."""
        chart = draw_bars(title, groups, self._make_key("bars"), reference_name)
        self.parts.append(f'<div class="charts">{chart}</div>')
        self.add_caption(caption)

    def add_media(self, paths: Sequence[Path], caption: str) -> None:
        """Embed .png, .gif or .mp4 files in the page, side by side if there is room, with a caption below."""
        self.parts.append('<div class="row">' + "".join(_embed_media(path, caption) for path in paths) + "</div>")
        self.add_caption(caption)

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
        self.add_caption(caption)
        self.has_players = True

    def add_flight_menu(
        self,
        choices: Sequence[FlightChoice],
        caption: str,
        *,
        links: bool = False,
        compact: bool = False,
        selected: int = 0,
    ) -> list[str]:
        """Embed one player and a list of flights to choose from, with a caption below; return the ids of the entries.

        The flights of an entry, such as a success and a failure, play together. A `Cell` with the id of an entry leads
        to it. The player has the entry `selected` at first. `compact` makes the entries smaller, without links, for a
        menu of dozens. Raise InputError if there is no entry, or the flocks are too large.
        """
        key = self._make_key("flights")
        self.parts.append(embed_flight_menu(choices, key, links=links, compact=compact, selected=selected))
        self.add_caption(caption)
        self.has_players = True
        return [f"{key}-{k}" for k in range(len(choices))]

    @contextmanager
    def fold(self, summary: str, kind: str = "") -> Iterator[None]:
        """Fold what is added inside the context: only the summary is shown until the reader opens it."""
        attribute = f' class="{escape(kind, quote=True)}"' if kind else ""
        self.parts.append(f"<details{attribute}><summary>{escape(summary)}</summary>")
        yield
        self.parts.append("</details>")

    def add_settings(self, settings: Mapping[str, object]) -> None:
        """Add a folded list of names and values; a value that is a mapping becomes an indented list (one level)."""
        lines = []
        for name, value in settings.items():
            if isinstance(value, Mapping):
                lines += [f"{name}:", *(f"    {inner}: {each}" for inner, each in value.items())]
            else:
                lines.append(f"{name}: {value}")
        with self.fold("Settings", "settings"):
            self.parts.append(f'<pre tabindex="0">{escape(chr(10).join(lines))}</pre>')

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the page atomically, replacing an existing file. Pages of the same parts are equal byte for byte."""
        script = (REPORT_DIR / "report.js").read_text("utf-8")
        html = (
            f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f"{make_security_policy(script)}\n"
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self.title)}</title>\n<style>\n{_build_stylesheet()}</style>\n</head>\n<body>\n<main>\n"
            + "\n".join(self.parts)
            + f'\n</main>\n<script type="module">{script}</script>'
            + (f"\n{bundle_player()}" if self.has_players else "")
            + "\n</body>\n</html>\n"
        )
        with atomic_write(path) as scratch:
            scratch.write_text(html, encoding="utf-8")
        return Path(path)

    def _make_key(self, kind: str) -> str:
        """Return an id that is unique in the page."""
        self._key_count += 1
        return f"{kind}-{self._key_count}"


def format_markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], align_left: bool = False) -> str:
    """Return a table in Markdown, aligned as by `HtmlReport.add_table`. Cells are not escaped."""
    rule = "|---|" + ("---|" if align_left else "--:|") * (len(header) - 1)
    first, *others = ("|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|" for row in (header, *rows))
    return "\n".join([first, rule, *others])


@cache
def _build_stylesheet() -> str:
    """Return report.css below the colours of both themes: dark if the system asks for it, light on paper."""
    theme = (PLAYER_DIR / "theme.css").read_text("utf-8")
    dark, light = (rules.strip() for rules in re.findall(r"^:root[^{]*\{([^}]*)\}", theme, re.MULTILINE)[:2])
    colours = {}
    for name in ("dark", "light"):
        chosen = zip(range(SERIES_COUNT - len(OTHER_SERIES), SERIES_COUNT), OTHER_SERIES, strict=True)
        colours[name] = "\n".join(f"--s{k}: {PALETTES[name].groups[place]};" for k, place in chosen)
    dark, light = f"{dark}\n{colours['dark']}", f"{light}\n{colours['light']}"
    themes = (
        f":root {{\n{light}\n}}\n"
        f'@media screen and (prefers-color-scheme: dark) {{\n:root:not([data-theme="light"]) {{\n{dark}\n}}\n}}\n'
        f'@media screen {{\n:root[data-theme="dark"] {{\n{dark}\n}}\n}}\n'
    )
    return themes + (REPORT_DIR / "report.css").read_text("utf-8")


def _draw_chip(chip: Chip) -> str:
    """Return the HTML of a chip."""
    sign = f'<circle class="ground" cx="8" cy="8" r="7.5"/>{SIGNS[chip.kind]}'
    icon = f'<svg viewBox="0 0 16 16" aria-hidden="true">{sign}</svg>'
    return f'<span class="chip {chip.kind}">{icon}{escape(str(chip))}</span>'


def _get_text(cell: str | Chip | Cell) -> str:
    return cell.text if isinstance(cell, Cell) else str(cell)


def _read_value(cell: str | Chip | Cell) -> float | None:
    """Return the number by which a cell is sorted, None for none; chips are sorted from good to bad."""
    if isinstance(cell, Chip):
        return float(list(SIGNS).index(cell.kind))
    if isinstance(cell, Cell) and cell.value is not None:
        return None if cell.value != cell.value else cell.value
    number = NUMBER.match(_get_text(cell))
    return float(number[1].replace(",", "").replace("−", "-").replace("∞", "inf")) if number else None


def _describe_column(cells: Sequence[str | Chip | Cell]) -> str:
    """Return the class attribute of the cells of a column, "" for one of numbers."""
    is_text = any(
        isinstance(cell, Chip) or (_read_value(cell) is None and _get_text(cell) not in EMPTY_CELLS) for cell in cells
    )
    return ' class="text"' if is_text else ""


def _format_cell(cell: str | Chip | Cell, is_numeric: bool, kind: str) -> str:
    """Return the HTML of a cell, with the class attribute of its column."""
    value = _read_value(cell) if is_numeric else None
    # JavaScript has another name for infinity.
    attribute = "" if value is None else f' data-value="{value!r}"'.replace("inf", "Infinity")
    content = _draw_chip(cell) if isinstance(cell, Chip) else escape(_get_text(cell)).replace("\n", "<br>")
    if isinstance(cell, Cell) and cell.flight:
        content = f'<a href="#{escape(cell.flight, quote=True)}">{content}</a>'
    return f"<td{kind}{attribute}>{content}</td>"


def _choose_print_layout(rows: Sequence[Sequence[str]]) -> str:
    """Return class and style of a table's box: if it is wide, it is printed on turned sheets and in smaller letters.

    Where these would be too small, words are broken.
    """
    widths = [
        max(len(word) for cell in column for word in (cell.split() or [""])) for column in zip(*rows, strict=True)
    ]
    characters = sum(widths) + 2 * len(widths)
    is_wide = characters > 1.2 * PRINTED_CHARACTERS
    room = WIDE_CHARACTERS if is_wide else PRINTED_CHARACTERS
    points = PRINTED_POINTS * min(room / characters, 1.0)
    kinds = "scroll" + " wide" * is_wide + " crowded" * (points < LEAST_POINTS)
    style = "" if points == PRINTED_POINTS else f' style="--print-size: {max(points, LEAST_POINTS):.1f}pt"'
    return f'class="{kinds}"{style}'


def _embed_media(path: Path, caption: str) -> str:
    """Return the HTML of an image or a film, with the whole file as a data URL, in base64."""
    kind = MEDIA_TYPES[path.suffix]
    source = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    if kind.startswith("video"):
        return f'<video src="{source}" controls loop muted autoplay playsinline></video>'
    return f'<img src="{source}" alt="{escape(caption, quote=True)}">'
