"""Films have the colours of the live page."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from importlib.resources import files

import numpy as np
import pytest
from matplotlib.colors import to_hex

from equiflock.plotting.flock_picture import MAX_DART, MIN_DART, MIN_GRID, TRAIL_SECONDS
from equiflock.plotting.palettes import GREY_BELOW_SPEED, PALETTES, THEMES, colour_by_heading

WEB = files("equiflock.plotting") / "player" / "web"


def read_script_palettes() -> dict[str, dict[str, object]]:
    """Return PALETTES of palettes.js, an object of names, texts, numbers and lists."""
    source = (WEB / "palettes.js").read_text().split("PALETTES = ")[1].partition(";\n")[0]
    without_comments = re.sub(r"//[^\n]*", "", source)
    quoted = re.sub(r"([{,]\s*)(\w+):", r'\1"\2":', without_comments)
    return dict(json.loads(re.sub(r",(\s*[}\]])", r"\1", quoted)))


def test_palettes_are_those_of_the_page() -> None:
    scripts = read_script_palettes()
    assert tuple(scripts) == THEMES
    for theme, palette in PALETTES.items():
        ours = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(palette).items()}
        shared = set(ours) & set(scripts[theme])
        assert shared == set(ours) - {"text", "faint", "series"}
        assert ours.pop("edge")[:7] == str(scripts[theme]["edge"])[:7]  # films have another opacity
        assert ours == {name: scripts[theme].get(name, ours[name]) for name in ours}


def test_colours_of_texts_and_curves_are_those_of_the_page() -> None:
    sheet = (WEB / "theme.css").read_text()
    blocks = {"dark": sheet.split(":host {")[1].split("}")[0]}
    blocks["light"] = sheet.split(':host([data-theme="light"]) {')[1].split("}")[0]
    for theme, palette in PALETTES.items():
        colours = dict(re.findall(r"--(\w+): (#\w+);", blocks[theme]))
        assert (palette.text, palette.faint, *palette.series) == tuple(
            colours[name] for name in ("ink", "faint", "first", "second")
        )


def test_sizes_are_those_of_the_page() -> None:
    scene, buffers = ((WEB / name).read_text() for name in ("scene.js", "flock_buffers.js"))
    numbers = {name: float(value) for name, value in re.findall(r"const (\w+) = ([\d.]+);", scene + buffers)}
    assert tuple(numbers[f"{name}_PX"] for name in ("MIN_DART", "MAX_DART", "MIN_GRID")) == (
        MIN_DART,
        MAX_DART,
        MIN_GRID,
    )
    assert numbers["TRAIL_SECONDS"] == TRAIL_SECONDS
    assert f"smoothstep(0.0, {GREY_BELOW_SPEED}, speed)" in (WEB / "shaders.js").read_text()


@pytest.mark.parametrize(
    ("degrees", "colour"),
    # oklch(0.8 0.14 DEGREES) in CSS, as Chromium draws it.
    [(0, "#ff95ba"), (90, "#e1b942"), (180, "#23dbc1"), (270, "#9bb8ff")],
)
def test_agents_have_the_colour_of_their_heading(degrees: float, colour: str) -> None:
    heading = np.array([[np.cos(np.radians(degrees)), np.sin(np.radians(degrees))]])
    drawn = colour_by_heading(PALETTES["dark"], heading)[0]
    assert to_hex(drawn) == colour


def test_agents_at_rest_are_grey() -> None:
    ((red, green, blue),) = colour_by_heading(PALETTES["dark"], np.zeros((1, 2)))
    assert red == pytest.approx(green, abs=1e-3)
    assert green == pytest.approx(blue, abs=1e-3)
