"""Many copies of one shape as a single artist, each with its own place, axes and colour."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float64
from matplotlib.collections import Collection
from matplotlib.path import Path
from matplotlib.transforms import Bbox, IdentityTransform, TransformedBbox

SEGMENT = Path([(0.0, 0.0), (1.0, 0.0)])
"""From the place to the end of the first axis."""
DISC = Path.unit_circle()
# A folded sheet along the first axis, as in shaders.js: nose, wing, notch, wing.
DART = Path([(0.56, 0.0), (-0.44, 0.32), (-0.24, 0.0), (-0.44, -0.32), (0.56, 0.0)], closed=True)
LEFT_HALF = Path([(0.56, 0.0), (-0.44, 0.32), (-0.24, 0.0), (0.56, 0.0)], closed=True)


class Sprites(Collection):
    """Copies of a shape; coordinates are pixels of the figure, from its lower left corner.

    No path is made per copy, which costs far less than a matplotlib collection of lines or polygons.
    """

    def __init__(self, shape: Path, clip: Bbox, zorder: float, width: float = 0.0, edge: Any = "none") -> None:
        """Make an artist without copies; `width` is that of lines, in pixels, and `edge` the colour of outlines."""
        super().__init__(edgecolors=edge, facecolors="none", linewidths=width, zorder=zorder)
        self.set_transform(IdentityTransform())
        self.set_offset_transform(IdentityTransform())
        self.set_paths([shape])
        self.set_clip_box(TransformedBbox(clip, IdentityTransform()))
        self.set_animated(True)
        self.set_joinstyle("miter")
        self.place(np.zeros((0, 2)), np.zeros((0, 2)))

    def set_paths(self, paths: Any) -> None:
        """Set the shape, as the only element of a list."""
        self._paths = paths

    def place(
        self,
        places: Float64[np.ndarray, "N 2"],
        axes: Float64[np.ndarray, "N 2"],
        fills: Any = None,
        lines: Any = None,
    ) -> None:
        """Put copies at places, with their first axis along `axes` and the second perpendicular to it, as long.

        `fills` and `lines` are colours of areas and lines: one for all, or (N, 3 or 4).
        """
        transforms = np.zeros((len(places), 3, 3))
        transforms[:, :2, 0] = axes
        transforms[:, 0, 1], transforms[:, 1, 1] = -axes[:, 1], axes[:, 0]
        transforms[:, 2, 2] = 1.0
        self._transforms = transforms
        self.set_offsets(places)
        self.set_visible(len(places) > 0)
        if fills is not None:
            self.set_facecolor(fills)
        if lines is not None:
            self.set_edgecolor(lines)
