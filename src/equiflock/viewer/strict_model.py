"""Base class of pydantic models for untrusted input, and formatting of its validation errors."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError


class StrictModel(BaseModel):
    """Frozen model with strict types and finite numbers, without extra fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def format_validation_error(error: ValidationError) -> str:
    """Return the first validation error as one line: field, message and received value, shortened.

    For an InputError that a validator raised, it is that error's message alone.
    """
    first = error.errors()[0]
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])  # a message of equiflock's
    path = [str(part) for part in first["loc"]]
    # Objects are too long to quote.
    received = "" if isinstance(first["input"], dict) else f"; got {first['input']!s:.40}"
    return f"{path[-1].replace('_', ' ')}: {first['msg']}{received}" if path else f"{first['msg']}{received}"
