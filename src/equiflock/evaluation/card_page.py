"""The page of a report card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from equiflock.evaluation.card import Card


def write_card_page(card: Card, flights: Mapping[tuple[str, str], object], path: Path) -> Path:
    """Write the page of a card, with the flights of rows and controllers."""
    path.write_text(card.profile)
    return path
