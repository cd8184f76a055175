"""Tables are printed in the first layout that fits the terminal; lists of numbers are parsed."""

from __future__ import annotations

import pytest

from equiflock._runtime.checks import InputError
from equiflock.cli import terminal as console
from equiflock.cli.terminal import parse_integers, print_table

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


@pytest.mark.parametrize("text", ["", "x", "4-2", "7,4-2", "1,,2"])
def test_a_list_of_integers_without_a_value_in_each_part_is_refused(text: str) -> None:
    assert parse_integers("seeds", "0-2,7") == [0, 1, 2, 7]
    with pytest.raises(InputError, match="seeds must be a list of integers such as 0-4 or 0,3,7"):
        parse_integers("seeds", text)
