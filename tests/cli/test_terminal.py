"""A table is printed in the first layout that fits the terminal."""

from __future__ import annotations

import pytest

from equiflock.cli import terminal as console
from equiflock.cli.terminal import print_table

HEADER = ["", "IVV", "smallest\nseparation"]
RICH = [["mine/weights.safetensors", "0.214 (0.197, 0.229)", "0.1 (0.09, 0.11)"], ["tanner", "0.2 (0.1, 0.3)", "0.1"]]
POOR = [[row[0], *(text.split()[0] for text in row[1:])] for row in RICH]


def printed(width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(console.out, "width", width)
    print_table("title", (HEADER, RICH), (HEADER, POOR))
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    return text


def test_the_first_layout_that_fits_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "0.214 (0.197, 0.229)" in printed(80, capsys, monkeypatch)
    text = printed(50, capsys, monkeypatch)
    assert "0.214 " in text
    assert "0.197" not in text
    assert "mine/weights.safetensors" in text


def test_long_names_are_broken_if_no_layout_fits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = printed(36, capsys, monkeypatch).split()
    assert {"mine/weights.", "safetensors", "tanner", "separation", "0.214"} <= set(words)
