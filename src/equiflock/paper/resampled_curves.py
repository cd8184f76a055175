"""Curves of quantiles over flocks, as measured and on bootstrap samples of the flocks."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float64

from equiflock.evaluation.curves import QUARTILES, Curves, unpack_values
from equiflock.statistics import RESAMPLES, count_resamples, resample_quantile


class ResampledCurves:
    """Reader of a table like `Curves`, whose quantities have a leading axis: first as measured, then of each resample.

    All controllers and trainings are resampled jointly. Resamples need the column `flocks`, the values of all flocks at
    the times or epochs that statements use (`pack_values`); without it there are none.
    """

    def __init__(self, table: pd.DataFrame, over: Literal["time", "epoch"] = "time", resamples: int = RESAMPLES):
        self.curves = Curves(table, over)
        self.x = self.curves.x
        """Times or epochs, (X,)."""
        texts = table.flocks.dropna() if "flocks" in table else pd.Series(dtype=object)
        self.flocks = len(unpack_values(texts.iloc[0])) if len(texts) else 0
        """Number of flocks."""
        self.resamples = resamples if self.flocks else 0
        self._counts = count_resamples(self.flocks, self.resamples) if self.flocks else np.ones((1, 0), np.int64)
        self._quantities: dict[tuple[object, ...], Any] = {}

    def at(self, x: float | int, quantity: str, controller: str, **filters: Any) -> Float64[np.ndarray, "R S"]:
        """Return a quartile at one time or epoch, per seed."""
        key = x, quantity, controller, *sorted(filters.items())
        if key not in self._quantities:
            values = self.curves.at(x, quantity, controller, **filters)[None]
            if self.resamples:
                texts = self.curves.get_texts("flocks", controller, **filters)[x]
                values = np.concatenate([values, self._resample(texts, quantity)])
            self._quantities[key] = values
        return np.asarray(self._quantities[key])

    def last(self, quantity: str, controller: str, **filters: Any) -> Float64[np.ndarray, "R S"]:
        """Return a quartile at the controller's last time or epoch, per seed."""
        return self.at(self.curves.find_last(quantity, controller, **filters), quantity, controller, **filters)

    def get_curve(self, quantity: str, controller: str, **filters: Any) -> Float64[np.ndarray, "R S X"]:
        """Return a quartile along the curve, per seed; resamples are as measured where the values are not recorded."""
        measured = self.curves.get_curve(quantity, controller, **filters)
        result = np.repeat(measured[None], 1 + self.resamples, axis=0)
        if self.resamples:
            texts = self.curves.get_texts("flocks", controller, **filters)
            for s, row in enumerate(texts.to_numpy(object)):
                for i in np.flatnonzero(pd.notna(row)):
                    result[1:, s, i] = self._resample([row[i]], quantity)[:, 0]
        return result

    def _resample(self, texts: Any, quantity: str) -> Float64[np.ndarray, "R S"]:
        """Return a quartile of the values of all flocks on each resample."""
        values = np.stack([unpack_values(text) for text in texts])
        return resample_quantile(values, self._counts[1:], QUARTILES[quantity])
