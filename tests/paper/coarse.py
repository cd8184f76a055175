"""A profile whose flights have a tenth of the usual steps: tests need the tables of experiments, not their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from equiflock.paper.profile import Profile


class CoarseProfile(Profile):
    def build_flight_options(self, folder: Path, experiment: str) -> dict[str, Any]:
        return {**super().build_flight_options(folder, experiment), "time_step": 0.01}
