"""Data from outside, checked field by field, and what is wrong with it in one line."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError


class StrictModel(BaseModel):
    """Data from outside: types exact, numbers finite and in range, nothing beyond the fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def format_validation_error(error: ValidationError) -> str:
    """The first error in data from outside, and in which field it is, in one line."""
    first = error.errors()[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])  # our own words
    # A whole object is too long to be quoted.
    where = [str(part) for part in first["loc"]]
    came = "" if isinstance(first["input"], dict) else f"; got {first['input']!s:.40}"
    return f"{where[-1].replace('_', ' ')}: {first['msg']}{came}" if where else f"{first['msg']}{came}"
