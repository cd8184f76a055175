"""Colours of films: those of the live page. A test compares them with player/web/palettes.js and theme.css."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from equiflock._runtime.checks import check_choice

GREY_BELOW_SPEED = 0.15
"""Slower agents are less vivid, as their heading is uncertain; agents at rest are grey."""


@dataclass(frozen=True)
class Palette:
    """Colours of a theme, "#rrggbb" or "#rrggbbaa"."""

    background: str
    hairline: str
    """Line between panels, and around legends."""
    grid: str
    edge: str
    """Links, fainter than on the page, as films always show them."""
    failed: str
    ink: str
    """Rings and outlines of leaders."""
    disk: str
    """Area of an obstacle."""
    obstacle: str
    groups: tuple[str, ...]
    """Colours of groups, repeated if there are more; a flock of a single group is coloured by heading."""
    lightness: float
    chroma: float
    """Agents without groups have the colour oklch(lightness chroma heading)."""
    trail: float
    """Opacity of a trail at its agent."""
    text: str
    faint: str
    series: tuple[str, str]
    """Curves of the first and the second panel."""

    def list_series(self, count: int) -> tuple[str, ...]:
        """Return the colours of the curves of `count` panels; they repeat if there are more than colours."""
        colours = (*self.series, *(colour for colour in self.groups if colour not in self.series))
        return tuple(colours[k % len(colours)] for k in range(count))

    def group_colour(self, place: int) -> Float64[np.ndarray, " 3"]:
        """Return the colour of a group by its place among the groups of the flock, as RGB."""
        # Reports use palettes without matplotlib, which takes long to import.
        from matplotlib.colors import to_rgb

        return np.array(to_rgb(self.groups[place % len(self.groups)]))


PALETTES = {
    "dark": Palette(
        background="#0b0f17",
        hairline="#2a3344",
        grid="#9fb4d816",
        edge="#a9bfe638",
        failed="#7d8696",
        ink="#ffffff",
        disk="#7c5cf02e",
        obstacle="#a78bfa",
        groups=("#f0e442", "#19b58b", "#cc79a7", "#56b4e9", "#e69f00", "#d55e00", "#4f8fe8", "#c8c8c8"),
        lightness=0.8,
        chroma=0.14,
        trail=0.5,
        text="#e8ecf4",
        faint="#8b97ad",
        series=("#5ab0ff", "#ffb454"),
    ),
    "light": Palette(
        background="#fbfaf7",
        hairline="#d8d4ca",
        grid="#3b332012",
        edge="#3a425533",
        failed="#757a83",
        ink="#14171f",
        disk="#7c5cf024",
        obstacle="#7c4fe0",
        groups=("#4b2e63", "#009e73", "#b8608f", "#b87900", "#2f8fc4", "#d55e00", "#0072b2", "#808080"),
        lightness=0.6,
        chroma=0.15,
        trail=0.36,
        text="#1d2330",
        faint="#5b6478",
        series=("#0072b2", "#b34a00"),
    ),
}
THEMES = tuple(PALETTES)


def get_palette(theme: str) -> Palette:
    """Return the palette of a theme; raise InputError if there is none of that name."""
    check_choice("theme", theme, THEMES)
    return PALETTES[theme]


def oklch_to_rgb(
    lightness: Float64[np.ndarray, " N"] | float,
    chroma: Float64[np.ndarray, " N"] | float,
    hue: Float64[np.ndarray, "N 2"],
) -> Float64[np.ndarray, "N 3"]:
    """Return the sRGB colours of oklch(lightness chroma hue), with the hues as unit vectors, as in shaders.js."""
    ab = np.asarray(chroma)[..., None] * hue
    from_lab = np.array([[0.3963378, -0.1055613, -0.0894842], [0.2158038, -0.0638542, -1.2914855]])
    lms = (np.asarray(lightness)[..., None] + ab @ from_lab) ** 3
    to_linear = np.array(
        [[4.0767417, -1.268438, -0.0041961], [-3.3077116, 2.6097574, -0.7034186], [0.2309699, -0.3413194, 1.7076147]]
    )
    linear = np.clip(lms @ to_linear, 0.0, 1.0)
    return np.asarray(np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055))


def colour_by_heading(
    palette: Palette, velocities: Float64[np.ndarray, "N 2"], lighter: float = 0.0
) -> Float64[np.ndarray, "N 3"]:
    """Return the colour of each direction of flight, lighter by some lightness; greyer for slow agents."""
    speeds = np.hypot(*velocities.T)
    share = np.clip(speeds / GREY_BELOW_SPEED, 0.0, 1.0)
    vividness = palette.chroma * share**2 * (3.0 - 2.0 * share)  # smoothstep
    headings = velocities / np.maximum(speeds, 1e-300)[:, None]
    return oklch_to_rgb(palette.lightness + lighter, vividness, headings)
