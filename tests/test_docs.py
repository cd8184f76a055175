"""The pages are true: every block of Python runs, and so does every command of the README."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import equiflock as ef
from atlas import ENTRIES, FILM_SUFFIX, build_claim_jobs, format_page
from equiflock import cli
from equiflock._runtime.checks import InputError
from equiflock.deployment.mavlink_vehicle import check_mavlink
from equiflock.deployment.ros2_node import check_ros2
from equiflock.evaluation import robot_fit
from equiflock.evaluation.card_profiles import PROFILES, CardProfile
from equiflock.paper.generalization_experiment import format_bound_table, format_split_table
from equiflock.paper.interpretation import Interpretation
from equiflock.paper.interpretation_search import (
    format_choices_table,
    format_combinations_table,
    format_ledger_comparison,
    format_single_choice_tables,
)
from equiflock.paper.ledger import REMARKS, format_checks_table, format_ledger_table, read_ledger
from equiflock.paper.reproduction import EXPERIMENTS, STATEMENT_BUILDERS
from equiflock.paper.training_experiment import build_training_statements, format_metrics_table, read_bundled_tables
from equiflock.statistics import RESAMPLES

ROOT = Path(__file__).parent.parent
SHORTENED = {
    r"--epochs 400": "--epochs 1 --flocks 2 --validation-flocks 2",
    r"--profile quick": "--profile quick --only training --no-films",
    r"--flocks \d+": "--flocks 2",
    r"--drones 100": "--drones 6 --duration 0.4 --time-scale 18.5",
    r"--agents 100000": "--agents 5000",
    r"bench --agents 100 1000 10000": "bench --repeats 1 --no-training --agents 100 1000",
    r"^equiflock animate --controller": "equiflock animate --duration 0.3 --controller",
    r"^equiflock animate flight.zarr": "equiflock animate flight.zarr --dots-per-inch 40 --frames-per-second 10",
    r"^equiflock evaluate": "equiflock evaluate --duration 1",
    r"^equiflock (evaluate|judge|reproduce|sweep)": r"equiflock \1 --workers 1",
}
"""What takes minutes is run as far as seconds go: patterns, and what stands in their place."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def shorten_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `fit_robot` make few flights."""
    for name, few in {"CANDIDATES": 3, "FINALISTS": 1, "SEARCH_FLOCKS": 2, "BISECTIONS": 1, "LONG_FACTOR": 2}.items():
        monkeypatch.setattr(robot_fit, name, few)


def shorten_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a report card have two rows and two breakpoints, of few small flocks."""
    profile = PROFILES["quick"]
    small = {"flocks": 3, "duration": 0.3, "options": (("agents", 12),)}
    rows = tuple(replace(row, **small) for row in profile.rows[:2])
    disturbances = tuple(replace(each, base=replace(each.base, **small)) for each in profile.disturbances[:2])
    monkeypatch.setitem(PROFILES, "quick", CardProfile("quick", rows, disturbances))


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # as for a script, which finds modules that are beside it


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_fits(monkeypatch)
    shorten_cards(monkeypatch)
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        exec(compile(block, page.name, "exec"), names)


@pytest.mark.slow
def test_the_commands_of_the_readme_run(monkeypatch: pytest.MonkeyPatch, jobs_here: None, no_curves: None) -> None:
    shorten_cards(monkeypatch)
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)  # it would serve for ever
    monkeypatch.setattr("webbrowser.open", lambda address: None)
    lines = [line for block in blocks(PAGES[0], "sh") for line in block.splitlines() if line.startswith("equiflock ")]
    assert len(lines) >= 5
    for long in SHORTENED:
        assert any(re.search(long, line) for line in lines), f"no command has {long}"
    for line in lines:
        for long, short in SHORTENED.items():
            line = re.sub(long, short, line)
        cli.main(shlex.split(line, comments=True)[1:])


def list_commands(page: Path) -> list[list[str]]:
    """Return the words of the commands of equiflock on a page, without the name of the program."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("equiflock ")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


DEPLOY_PAGE = ROOT / "docs" / "deploy.md"
ONBOARD_ENDS = {
    "ros2": "equiflock.deployment.ros2_node.Ros2Node.run",
    "mavlink": "equiflock.deployment.mavlink_robot.MavlinkRobot.wait",
}
"""Where a robot waits for its measurements, by command."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:module 'sre_:DeprecationWarning")  # of lark, which ROS 2 imports
def test_the_commands_of_the_deploying_page_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], jobs_here: None
) -> None:
    shorten_fits(monkeypatch)
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: None)
    monkeypatch.setattr("webbrowser.open", lambda address: None)
    controller = ef.load("starling", comm_radius=3.0, time_scale=12.9)
    start = ef.random_disk(agents=12, seed=0, comm_radius=3.0, max_speed=0.5)
    ef.simulate(start, controller, time_step=0.05, duration=1.0).to_csv("flight.csv")
    ended: list[str] = []
    for name, place in ONBOARD_ENDS.items():

        def end(*_: object, name: str = name) -> None:
            ended.append(name)
            raise KeyboardInterrupt

        monkeypatch.setattr(place, end)
    for words in list_commands(DEPLOY_PAGE):
        if words[0] in ONBOARD_ENDS and not has_extra(words[0]):
            continue
        words = [word.replace("10.0.0.", "127.0.0.") for word in words]
        words += ["--duration", "0.3"] if words[0] == "deploy" else []
        cli.main(words)
    printed = " ".join(capsys.readouterr().out.split())
    assert "export it: equiflock export starling:comm_radius=3:time_scale=" in printed
    assert "parity yes" in printed and "chosen" in printed
    assert ended == [name for name in ONBOARD_ENDS if has_extra(name)]


def has_extra(command: str) -> bool:
    """Return whether the extra of a command is installed, as it must be in CI."""
    check = {"ros2": check_ros2, "mavlink": check_mavlink}[command]
    try:
        check()
    except InputError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        return False
    return True


FIRMWARE_STUBS = """
static float position[ROBOT_D], velocity[ROBOT_D];
static void radio_send(const uint8_t *bytes, size_t size) { (void)bytes; (void)size; }
static int radio_receive(uint8_t *bytes, size_t size, size_t *length)
{ memset(bytes, 0, size); *length = size; return 1; }
static int half_of_the_period_is_over(void) { static int calls; return ++calls % 2 == 0; }
static uint32_t clock_microseconds(void) { static uint32_t now; return now += 50000u; }
static void warn_pilot(int state) { (void)state; }
static float largest;
static void apply(const float *a) { largest = fmaxf(largest, sqrtf(a[0] * a[0] + a[1] * a[1] + a[2] * a[2])); }
"""
"""What the firmware of the deploying page takes from the robot."""
FIRMWARE_MAIN = """
int main(void)
{
    int n;
    velocity[0] = 1.0f;
    start();
    for (n = 0; n < 30; n++)
        every_step();
    return agent.state == ROBOT_STALE && largest > 0.0f && largest <= 4.0f ? 0 : 1;
}
"""
"""A second alone, after which the agent brakes."""


@pytest.mark.slow
def test_the_firmware_of_the_deploying_page_compiles_and_brakes_alone() -> None:
    if shutil.which("cc") is None:
        message = "found no C compiler: the firmware of the page was not compiled"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    words = next(words for words in list_commands(DEPLOY_PAGE) if words[0] == "export")
    cli.main(words)
    (text,) = blocks(DEPLOY_PAGE, "c")
    include, _, code = text.partition("\n")
    Path("robot.c").write_text("\n".join(["#include <string.h>", include, FIRMWARE_STUBS, code, FIRMWARE_MAIN]))
    subprocess.run(shlex.split("cc -std=c99 -O2 -Wall -Wextra -Werror robot.c -lm -o robot"), check=True)
    assert subprocess.run("./robot").returncode == 0


def test_the_tables_of_the_training_page_are_what_the_weights_did() -> None:
    page = (ROOT / "docs" / "training.md").read_text()
    table = read_bundled_tables()
    assert format_metrics_table(table) in page
    assert format_ledger_table(build_training_statements(table)) in page


def test_the_table_of_robust_weights_is_that_of_the_sweep_beside_it() -> None:
    page, table = (ROOT / "docs" / "training.md").read_text(), pd.read_csv(ROOT / "docs" / "media" / "robust.csv")
    found = table.set_index(["max_acceleration", "lag", "packet_loss", "delay", "controller"])
    for limit, lag in {(row.max_acceleration, row.lag) for row in table.itertuples()}:
        cells = []
        for environment in ((0.0, 0), (0.3, 0), (0.0, 2), (0.3, 2)):
            one, two = (found.loc[(limit, lag, *environment, name)] for name in ("etdagnn", "etdagnn-robust"))
            cells.append(f"{one.ivv:.2f} / {two.ivv:.2f} ({one.disconnected:.0%} / {two.disconnected:.0%})")
        assert f"| {limit:g}, {lag:g} s | {' | '.join(cells)} |\n" in page
    better = found.ivv.xs("etdagnn-robust", level="controller") < found.ivv.xs("etdagnn", level="controller")
    assert f"It is better in {better.sum()} of the {len(better)} environments" in page


@pytest.mark.slow
def test_the_ledger_of_the_reproduction_page_is_the_one_beside_it_and_follows_from_the_tables_beside_it() -> None:
    folder = ROOT / "docs" / "reproduction"
    ledger = read_ledger(folder / "ledger.json")
    assert format_ledger_table(ledger) in (ROOT / "docs" / "reproduction.md").read_text()
    assert format_checks_table(ledger) in (folder / "checks.md").read_text()
    written = {statement.id: (statement.verdict, statement.summary) for statement in ledger}
    for name in EXPERIMENTS[1:]:
        for statement in STATEMENT_BUILDERS[name](pd.read_csv(folder / f"{name}.csv"), RESAMPLES):
            assert written[statement.id] == (statement.verdict, statement.summary), statement.id
    for statement in ledger:
        assert statement.remark == (REMARKS[statement.id] if statement.verdict != "holds" else "")


def test_the_tables_of_the_interpretations_page_match_the_search_and_both_ledgers() -> None:
    page, folder = (ROOT / "docs" / "readings.md").read_text(), ROOT / "docs" / "reproduction"
    table = pd.read_csv(folder / "readings" / "readings.csv")
    usual, other = read_ledger(folder / "ledger.json"), read_ledger(folder / "readings" / "ledger.json")
    best = re.findall(r"--interpretation (\S+)\n", page)[0]
    for text in (format_choices_table(), format_single_choice_tables(table), format_combinations_table(table)):
        assert text in page
    assert format_ledger_comparison(usual, other, Interpretation.from_text(best)) in page


def test_the_tables_of_the_theory_page_follow_from_the_experiments_tables() -> None:
    page, folder = (ROOT / "docs" / "theory.md").read_text(), ROOT / "docs" / "reproduction"
    assert format_bound_table(pd.read_csv(folder / "generalization.csv")) in page
    assert format_split_table(pd.read_csv(folder / "splits.csv")) in page


def test_extras_that_pages_and_errors_name_exist() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    texts = [page.read_text() for page in (*PAGES, *(ROOT / "src").rglob("*.py"))]
    named = {
        name
        for text in texts
        for group in re.findall(r"(?:equiflock|\.)\[([\w,]+)\]'", text)
        for name in group.split(",")
    }
    assert {"view", "cluster"} <= named <= extras


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nothing_is_left_to_be_filled_in(page: Path) -> None:
    assert not re.search(r"@@|@[A-Z_]+@", page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_atlas_has_a_film_of_every_law_and_every_claim_as_it_is_made_now() -> None:
    folder = ROOT / "docs" / "atlas"
    table = pd.read_csv(folder / "atlas.csv")
    assert format_page(table, folder) == (folder / "atlas.md").read_text()
    for entry in ENTRIES:
        assert (folder / f"{entry.name}{FILM_SUFFIX}").stat().st_size > 10_000
    for job, row in zip(build_claim_jobs(), table.itertuples(), strict=True):
        assert (row.claim, row.law, row.description) == (job.number, job.claim.law, job.claim.description)
        assert job.claim.judge(row.value) in ("", "holds")
