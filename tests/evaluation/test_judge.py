"""Report cards: same bytes for the same flocks, rows that survive broken controllers, breakpoints and scores."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import DamagedError
from equiflock.controllers.registry import CONTROLLERS
from equiflock.evaluation.card import Card
from equiflock.evaluation.card_conditions import Condition, Disturbance
from equiflock.evaluation.card_jobs import METRIC_TITLES, BreakpointJob, RowJob
from equiflock.evaluation.card_profiles import LAWS, PROFILES, CardProfile
from equiflock.evaluation.judge import CardRun, judge

SMALL = Condition("small", "Flock size", "20 agents", options=(("agents", 20),), duration=1.0, flocks=6)
SPACE = replace(SMALL, name="space", title="three dimensions", options=(*SMALL.options, ("dimensions", 3)))
LED = replace(SMALL, name="led", group="Tasks", title="2 leaders", scenario="leaders", success="led")
LOSS = Disturbance("packet-loss", "packet loss", "packet_loss", SMALL, 0.0, 0.9, "%", level_count=7)
TINY = CardProfile("quick", (SMALL, SPACE, LED), (LOSS,))


@pytest.fixture(autouse=True)
def tiny_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None, jobs_here: None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PROFILES, "quick", TINY)


def read_files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("card.json", "card.csv", "card.html")}


def test_a_card_is_the_same_to_the_byte_also_if_it_was_interrupted(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    card = judge("etdagnn", against=(), workers=1, out=whole)
    run = CardRun(["etdagnn"], against=())
    stopped, done = tmp_path / "stopped", []

    def stop_after_two(job: object) -> None:
        done.append(job)
        if len(done) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.execute(stopped, 1, on_done=stop_after_two)
    assert not (stopped / "card.json").exists()
    again: list[object] = []
    run.execute(stopped, 1, on_done=again.append)
    assert read_files(stopped) == read_files(whole)
    assert Card.read(whole / "card.json") == card
    assert len(again) == len(run.build_jobs())


def test_a_damaged_result_is_computed_again(tmp_path: Path) -> None:
    judge("etdagnn", against=(), workers=1, out=tmp_path / "card")
    before = read_files(tmp_path / "card")
    victim = next((tmp_path / "card" / "jobs").glob("etdagnn-small*"))
    victim.write_text(victim.read_text().replace("1.0", "0.0", 1))
    notices: list[str] = []
    CardRun(["etdagnn"], against=()).execute(tmp_path / "card", 1, on_notice=notices.append)
    assert len(notices) == 1
    assert read_files(tmp_path / "card") == before


def test_rows_of_a_broken_controller_say_why_and_the_others_go_on(tmp_path: Path) -> None:
    @ef.controller("nan")
    def nan(observations: np.ndarray) -> np.ndarray:
        return np.full_like(observations[:, :, 0, 0], np.nan)

    @ef.controller("plane")
    def plane(observations: np.ndarray) -> np.ndarray:
        if observations.shape[-1] == 3:
            raise ValueError("only\nin the plane")
        return -10.0 * observations[:, :, 0, 0]

    @ef.controller("late")
    class Late:
        senses = ef.Senses(channels=(("velocity", "mean"),), hops=1)
        calls = 0

        def __call__(self, observations: np.ndarray) -> np.ndarray:
            self.calls += 1
            accelerations = -10.0 * observations[:, :, 0, 0]
            return accelerations * np.nan if self.calls > 50 else accelerations

    names = ["nan", "plane", "late", "missing.safetensors", "etdagnn"]
    card = judge(names, against=(), out=tmp_path)
    facts = {each.name: each for each in card.controllers}
    assert "missing.safetensors" in facts["missing.safetensors"].error
    rows = {row.name: row.results for row in card.rows}
    assert rows["space"]["plane"].remark == "ValueError: only in the plane"
    assert not rows["small"]["plane"].remark
    for broken in ("nan", "late"):
        assert not facts[broken].error
        assert all("NaN" in results[broken].remark for results in rows.values())
        assert card.scores[broken].value == 0.0
    assert all(not results["etdagnn"].remark for results in rows.values())
    assert {"etdagnn", "plane"} <= set(card.breakpoints[0].results)
    assert "etdagnn" in card.scores
    assert "missing.safetensors" not in card.scores


def test_success_means_connected_and_settled() -> None:
    start = SMALL.draw_start()
    run = SMALL.fly(ef.load("tanner-bounded"), start)
    assert SMALL.find_successes(start, run).all()
    idle = SMALL.fly(ef.load("tanner:clamp=0.01"), start)
    assert not SMALL.find_successes(start, idle).any()
    # A settled flock of which one agent is out of reach.
    apart = run.positions.copy()
    apart[-1, 0, 0] += 100.0
    assert SMALL.find_successes(start, replace(run, positions=apart)).tolist() == [False, *[True] * (SMALL.flocks - 1)]


def test_metrics_of_a_row_agree_with_those_of_the_whole_trajectory() -> None:
    (job,) = [
        each
        for each in CardRun(["etdagnn"], against=()).build_jobs()
        if isinstance(each, RowJob) and (each.name, each.part) == ("etdagnn", "small")
    ]
    found, run = job.compute(), SMALL.fly(ef.load("etdagnn"), SMALL.draw_start())
    variance = ef.metrics.velocity_variance(run)
    assert found.final_variance.to_numpy() == pytest.approx(variance[-1])
    assert found.smallest_separation.to_numpy() == pytest.approx(ef.metrics.minimum_separation(run).min(axis=0))
    assert found.rms_acceleration.to_numpy() == pytest.approx(ef.metrics.effort(run).rms_acceleration)
    for flock, time in enumerate(found.settling_time):
        settled = variance[:, flock] < 0.01 * variance[0, flock]
        if np.isinf(time):
            assert not settled[-1]
        else:
            first = round(time / run.time_step)
            assert settled[first:].all()
            assert first == 0 or not settled[first - 1]


def test_a_breakpoint_is_where_fewer_flights_succeed() -> None:
    table = BreakpointJob("etdagnn", "etdagnn", "", "", LOSS).compute()
    flown = table[table.level.notna()]
    (found,) = table[table.threshold == 0.5].itertuples()
    rates = dict(zip(flown.level, flown.successes / SMALL.flocks, strict=True))
    assert rates[found.value] >= 0.5
    assert rates[found.value + 1] < 0.5


def test_scores_have_the_expert_at_one_and_the_worst_law_at_zero(tmp_path: Path) -> None:
    card = judge("etdagnn", against=(), workers=1, out=tmp_path)
    scored = [row for row in card.rows if row.results["reynolds"].score is not None]
    assert scored
    for row in scored:
        expert = row.results["tanner-bounded"].score
        assert expert is not None
        assert expert.value == pytest.approx(1.0)
        scores = (row.results[law].score for law in LAWS)
        assert min(score.value for score in scores if score is not None) == pytest.approx(0.0)
    assert card.performance["tanner-bounded"][0][1] == 1.0


def test_a_controller_that_was_defined_again_is_judged_again(tmp_path: Path) -> None:
    rates = []
    for gain in (-20.0, 20.0):
        ef.controller("mine")(lambda observations, gain=gain: gain * observations[:, :, 0, 0])
        rates.append(judge("mine", against=(), out=tmp_path).rows[0].results["mine"].metrics["success"].value)
        del CONTROLLERS.parts["mine"]
    assert rates[0] > rates[1] == 0.0


def test_a_controller_of_this_process_is_not_sent_to_others() -> None:
    ef.controller("mine")(lambda observations: -observations[:, :, 0, 0])
    with pytest.raises(InputError, match="mine was registered in this process"):
        judge("mine", against=(), workers=2)


def test_an_error_that_may_pass_is_raised_and_not_stored(tmp_path: Path) -> None:
    @ef.controller("greedy")
    def greedy(observations: np.ndarray) -> np.ndarray:
        if observations.shape[-1] == 3:
            raise MemoryError
        return -10.0 * observations[:, :, 0, 0]

    with pytest.raises(MemoryError):
        judge("greedy", against=(), out=tmp_path)
    assert not list(tmp_path.glob("jobs/greedy-space*"))


def test_weights_of_the_same_name_have_different_labels(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        ef.save(ef.load_module("etdagnn"), tmp_path / folder / "mine.safetensors")
    run = CardRun([f"{folder}/mine.safetensors" for folder in ("one", "two")], against=())
    assert len({each.label for each in run.controllers}) == len(run.controllers)


def test_shown_flights_are_what_their_titles_say() -> None:
    run = CardRun(["tdagnn"], against=())
    results = pd.concat([job.run().assign(**job.labels) for job in run.build_jobs()])  # type: ignore[attr-defined]
    card = run.build_card(results)
    flights = run.fly_typical_flocks(card)
    assert flights
    for (row, name), shown in flights.items():
        condition = next(each for each in TINY.rows if each.name == row)
        for title, flight in shown:
            start = condition.draw_start()
            same = [b for b in range(len(start)) if np.array_equal(start.positions[b], flight.positions[0, 0])]
            assert bool(condition.find_successes(start[same[0]], flight)[0]) == title.endswith("success"), (row, name)


def test_another_seed_flies_other_flocks() -> None:
    start, other = SMALL.draw_start(), TINY.with_seed(1).rows[0].draw_start()
    assert not np.array_equal(start.positions, other.positions)
    assert TINY.with_seed(0) is TINY


def test_the_directory_of_another_card_is_refused(tmp_path: Path) -> None:
    judge("etdagnn", against=(), workers=1, out=tmp_path)
    with pytest.raises(InputError, match="judged = etdagnn, not tdagnn"):
        judge("tdagnn", against=(), workers=1, out=tmp_path)
    judge("tdagnn", against=(), workers=1, out=tmp_path, force=True)
    assert Card.read(tmp_path / "card.json").judged[0].name == "tdagnn"


@pytest.mark.parametrize(
    ("controllers", "options", "message"),
    [
        ((), {}, "one or more controllers"),
        (("etdagnn", "etdagnn"), {}, "each once"),
        (("etdagnn",), {"profile": "slow"}, "profile"),
        (("etdagnn",), {"against": ("etdagn",)}, "etdagn"),
        (("etdagnn",), {"seed": -1}, "seed"),
    ],
)
def test_mistakes_are_refused_before_any_flight(controllers: tuple[str, ...], options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        judge(controllers, **options)
    assert not list(Path().iterdir())


def test_a_damaged_card_is_refused(tmp_path: Path) -> None:
    judge("etdagnn", against=(), workers=1, out=tmp_path)
    path = tmp_path / "card.json"
    content = json.loads(path.read_text())
    content["seed"] = 7
    path.write_text(json.dumps(content))
    with pytest.raises(DamagedError):
        Card.read(path)


def test_the_table_and_the_marl_eval_layout_have_every_flight(tmp_path: Path) -> None:
    run = CardRun(["etdagnn"], against=())
    card = run.execute(tmp_path, 1, marl_eval=True)
    table = pd.read_csv(tmp_path / "card.csv")
    (row,) = table.query(
        "kind == 'row' and name == 'small' and controller == 'etdagnn' and metric == 'success'"
    ).itertuples()
    assert row.value == pytest.approx(card.rows[0].results["etdagnn"].metrics["success"].value)
    tasks = json.loads((tmp_path / "marl-eval.json").read_text())["equiflock"]
    runs = tasks["small"]["etdagnn"]
    assert len(runs) == SMALL.flocks
    assert set(runs["run_0"]["absolute_metrics"]) <= set(METRIC_TITLES)
    assert np.mean([each["absolute_metrics"]["success"][0] for each in runs.values()]) == pytest.approx(row.value)


@pytest.mark.parametrize("profile", ["quick", "full"])
def test_every_row_and_level_of_the_profiles_can_be_built(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    rows, disturbances = PROFILES[profile].rows, PROFILES[profile].disturbances
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert row.made_environment is not None
        assert row.agents > 1
    for disturbance in disturbances:
        assert len(set(disturbance.levels)) == len(disturbance.levels) > 8
        for level in disturbance.levels:
            assert disturbance.apply(level).made_environment is not None
        assert disturbance.base.flocks >= 73  # else no level is surely held
