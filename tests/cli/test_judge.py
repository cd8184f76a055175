"""`equiflock judge`: tables on the terminal, files in the run directory, plugins, and one-line errors."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from equiflock.evaluation.card import Card
from equiflock.evaluation.card_conditions import Condition, Disturbance
from equiflock.evaluation.card_profiles import PROFILES, CardProfile
from tests.cli.commands import failure, forgetting_plugins, run

SMALL = Condition("small", "Flock size", "12 agents", options=(("agents", 12),), duration=0.5, flocks=4)
LAW = """
import equiflock as ef

@ef.controller("soft")
def soft(observations):
    return -5.0 * observations[:, :, 0, 0]
"""


@pytest.fixture(autouse=True)
def tiny_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None, jobs_here: None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    delay = Disturbance("delay", "delay", "delay", replace(SMALL, flocks=4), 0, 4, "steps", is_whole=True)
    monkeypatch.setitem(PROFILES, "quick", CardProfile("quick", (SMALL,), (delay,)))


def test_scores_breakpoints_and_success_rates_are_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "laws.py").write_text(LAW)
    with forgetting_plugins(tmp_path):
        run("judge", "soft", "--plugin", "laws.py", "--workers", "1", "--out", "card", "--marl-eval")
    printed = capsys.readouterr().out
    for text in ("score: expert 1, worst law 0", "at least 95% of flights succeed", "12 agents", "soft", "etdagnn"):
        assert text in printed
    for name in ("card.html", "card.csv", "card.json", "marl-eval.json"):
        assert (tmp_path / "card" / name).stat().st_size > 100
        assert name in printed
    card = Card.read(tmp_path / "card" / "card.json")
    assert [each.role for each in card.controllers[:2]] == ["judged", "baseline"]


def test_a_controller_that_cannot_be_loaded_is_named_and_the_others_are_judged(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("judge", "missing.safetensors", "reynolds", "--against", "--workers", "1", "--out", "card")
    printed = capsys.readouterr().out
    assert "missing.safetensors" in printed
    assert Card.read(Path("card/card.json")).rows[0].results["reynolds"].metrics


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "one or more controllers"),
        (("etdagnn", "etdagnn"), "each once"),
        (("etdagnn", "--against", "etdagn"), "etdagn"),
        (("etdagnn", "--seed", "-1"), "seed must be"),
        (("etdagnn", "--workers", "0"), "workers must be"),
        (("etdagnn", "--plugin", "nowhere.py"), "nowhere.py"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    errors = failure(capsys, "judge", *arguments)
    assert message in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir())
