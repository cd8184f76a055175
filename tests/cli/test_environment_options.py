"""Radio, bodies and failures on the command line: they affect the flight, are saved with it, and are printed."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pandas as pd
import pytest
import tyro

import equiflock as ef
from equiflock import cli
from equiflock._runtime.checksums import read_json
from equiflock.cli.shared_options import ENVIRONMENT_OPTIONS
from equiflock.scenarios.registry import scenario_class
from equiflock.simulation.simulate import describe_part
from tests.cli.commands import failure, run

SMALL = ("--agents", "12", "--flocks", "2")


def test_simulate_uses_saves_and_prints_the_environment(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    radio = (
        "--packet-loss",
        "0.2",
        "--burst",
        "2",
        "--delay",
        "1",
        "--noise",
        "0.01",
        "--send-interval",
        "2",
        "--radio-seed",
        "3",
    )
    body = "--max-acceleration", "5", "--top-speed", "4", "--lag", "0.1"
    failures = "--fail", "2", "--fail-kind", "silent", "--fail-time", "0.05"
    save = "--duration", "0.1", "--save", str(tmp_path / "run.zarr")
    run("simulate", *SMALL, *radio, *body, *failures, *save)
    config = ef.Trajectory.load(tmp_path / "run.zarr").config
    assert config["radio"] == describe_part(
        ef.Radio(packet_loss=0.2, burst=2.0, delay=1, noise=0.01, send_interval=2, seed=3)
    )
    assert config["body"] == describe_part(ef.DoubleIntegrator(max_acceleration=5.0, max_speed=4.0, lag=0.1))
    assert config["failures"] == describe_part(ef.Failures("silent", agents=2, time=0.05))
    printed = capsys.readouterr().out
    radio_text = "20% packet loss, in bursts of 2 steps, 1 step of delay, noise of 0.01, a message every 2 steps"
    assert f"environment: {radio_text}; " in printed
    assert "; 2 agents fall silent at 0.05 s\n" in printed


@pytest.mark.parametrize("command", ["simulate", "evaluate tanner", "sweep", "deploy"])
def test_a_command_with_options_of_a_radio_builds_one_environment(command: str) -> None:
    name, *words = f"{command} --packet-loss 0.2 --delay 1 --max-acceleration 5 --fail 2 --fail-time 0.5".split()
    built = tyro.cli(cli._load_command(name, words), args=words).environment.build()
    radio, body = ef.Radio(packet_loss=0.2, delay=1), ef.DoubleIntegrator(max_acceleration=5.0)
    expected = ef.Environment(radio, body, ef.Failures(agents=2, time=0.5))
    # A sweep has one for each combination of its lists.
    assert expected == (built[0][1] if name == "sweep" else built)


def test_the_default_environment_is_neither_printed_nor_saved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run("simulate", *SMALL, "--duration", "0.1", "--save", str(tmp_path / "run.zarr"))
    config = ef.Trajectory.load(tmp_path / "run.zarr").config
    assert (config["radio"], config["failures"]) == (None, None)
    assert config["body"] == describe_part(ef.DoubleIntegrator())
    assert "environment:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("--body", "unicycle:max_turn_rate=2", "--top-speed", "4"),
        ("--body=unicycle", "--max-turn-rate", "2", "--top-speed", "4"),
        ("--body", "unicycle:max_turn_rate=2:max_speed=4"),
    ],
)
def test_options_of_a_body_are_options_of_the_command_or_follow_its_name(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    run("simulate", *SMALL, "--duration", "0.05", *words, "--save", str(tmp_path / "run.zarr"))
    config = ef.Trajectory.load(tmp_path / "run.zarr").config
    assert config["body"] == describe_part(ef.Unicycle(max_turn_rate=2, max_speed=4))


@pytest.mark.parametrize("command", ["simulate", "evaluate", "sweep"])
def test_help_lists_the_options_of_the_named_body_with_defaults_and_docstrings(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    def help_of(*words: str) -> str:
        with pytest.raises(SystemExit):
            run(command, *words, "--help")
        return " ".join(capsys.readouterr().out.replace("│", "").split())

    usual, unicycle = help_of(), help_of("--body", "unicycle:max_turn_rate=2")
    for name in (*ENVIRONMENT_OPTIONS, "max_acceleration", "top_speed", "drag", "lag", "gust"):
        assert f"--{name.replace('_', '-')} " in usual
    assert "--max-turn-rate" not in usual
    assert "--drag" not in unicycle
    assert "in radians per second. None: no limit. (default: 2)" in unicycle
    assert "fail at --fail-time. (default: 0)" in usual
    assert "(--max-speed bounds the initial velocities.)" in usual
    if command != "sweep":
        assert "--top-speed limits the body" in usual


def test_no_scenario_of_the_package_has_an_option_of_the_environment() -> None:
    bodies = {"max_acceleration", "top_speed", "drag", "lag", "gust", "body_seed", "max_turn_rate"}
    of_disks = {each.name for each in fields(ef.RandomDisk)}
    for name in ef.scenario_names():
        options = of_disks | {each.name for each in fields(scenario_class(name))}
        assert not options & {*ENVIRONMENT_OPTIONS, *bodies}, name


OWN = """
from dataclasses import dataclass, field
import equiflock as ef

@ef.scenario("windy")
@dataclass(frozen=True)
class Windy:
    disk: ef.RandomDisk = field(default_factory=lambda: ef.RandomDisk(agents=12))
    noise: float = 4.0
    lag: float = 5.0

    def draw(self, stop=None):
        return self.disk.draw(stop)
"""


def test_scenario_options_that_clash_with_the_environment_follow_the_scenario_name(
    tmp_path: Path, own_registry: None
) -> None:
    (tmp_path / "windy_day.py").write_text(OWN)
    windy = "--plugin", str(tmp_path / "windy_day.py"), "--duration", "0.05", "--save", str(tmp_path / "run.zarr")
    run("simulate", *windy, "--scenario", "windy:noise=2", "--noise", "0.5", "--lag", "3")
    config = ef.Trajectory.load(tmp_path / "run.zarr").config
    assert (config["start"]["noise"], config["radio"]["noise"]) == (2, 0.5)
    # A scenario goes before a body, whose options follow its name, too.
    assert (config["start"]["lag"], config["body"]["lag"]) == (3.0, 0.0)


@pytest.mark.slow
@pytest.mark.usefixtures("no_curves")
def test_an_evaluation_uses_one_environment_and_its_run_directory_names_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs_here: None
) -> None:
    monkeypatch.chdir(tmp_path)
    small = *SMALL, "--time-step", "0.02", "--duration", "0.1", "--workers", "1"
    run("evaluate", "etdagnn", *small)
    run("evaluate", "etdagnn", *small, "--packet-loss", "0.2", "--max-acceleration", "50")
    folders = sorted(path.name for path in Path("runs/evaluation").iterdir())
    other = "etdagnn-flocking-packet_loss=0.2-body=double-integrator-max_acceleration=50"
    assert folders == ["etdagnn-flocking", other]
    assert "environment: 20% packet loss; at most 50 of acceleration" in capsys.readouterr().out
    settings = [read_json(Path("runs/evaluation", name, "config.json"))["settings"] for name in folders]
    assert settings[0]["environment"] == {}
    assert settings[1]["environment"] == {"packet_loss": 0.2, "body": "double-integrator:max_acceleration=50"}
    errors = failure(capsys, "evaluate", "etdagnn", *small, "--packet-loss", "0.3", "--out", f"runs/evaluation/{other}")
    assert "settings environment packet_loss = 0.2, not 0.3, settings environment body" in errors


@pytest.mark.slow
@pytest.mark.usefixtures("no_curves")
def test_a_rerun_evaluation_job_uses_the_same_environment(tmp_path: Path, jobs_here: None) -> None:
    from equiflock.viewer.job_reruns import rerun_flight

    small = *SMALL, "--time-step", "0.02", "--duration", "0.1", "--workers", "1"
    run("evaluate", "tanner", *small, "--packet-loss", "0.2", "--fail", "3", "--out", str(tmp_path / "mine"))
    again = rerun_flight(next((tmp_path / "mine" / "jobs").glob("etdagnn-*.csv")))
    assert again.config["radio"] == describe_part(ef.Radio(packet_loss=0.2))
    assert again.config["failures"] == describe_part(ef.Failures(agents=3))


@pytest.mark.slow
def test_a_sweep_has_a_column_for_each_given_axis_and_separates_results_by_environment(
    tmp_path: Path, jobs_here: None
) -> None:
    def sweep(*words: str) -> pd.DataFrame:
        small = "--controller", "tanner", "--agents", "12", "--flocks", "2", "--duration", "0.1", "--workers", "1"
        run("sweep", *small, *words, "--out", str(tmp_path))
        return pd.read_csv(tmp_path / "sweep.csv")

    assert not {"packet_loss", "delay"} & set(sweep().columns)
    before = {path.name for path in (tmp_path / "jobs").iterdir()}
    table = sweep(
        "--packet-loss", "0,0.25", "--delay", "0-1", "--lag", "0.1,0", "--noise", "0", "--max-acceleration", "5,none"
    )
    assert list(table.columns[-5:]) == ["packet_loss", "delay", "noise", "max_acceleration", "lag"]
    assert len(table) == 2 * 16
    assert len(table.drop_duplicates(["packet_loss", "delay", "noise", "max_acceleration", "lag"])) == 16
    after = {path.name for path in (tmp_path / "jobs").iterdir()}
    assert before < after  # the point where all is perfect was flown before
    assert len(after) == 16
    assert len(pd.read_csv(tmp_path / "summary.csv").query("metric == 'ivv'")) == 16


def test_values_of_an_axis_that_differ_in_the_seventh_digit_have_a_row_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], jobs_here: None
) -> None:
    small = "--controller", "tanner", "--agents", "12", "--flocks", "2", "--duration", "0.1", "--workers", "1"
    run("sweep", *small, "--max-acceleration", "1000000,1000001,none", "--out", str(tmp_path))
    rows = [words for words in map(str.split, capsys.readouterr().out.splitlines()) if words[:1] == ["tanner"]]
    # The table is wider than the terminal, so its columns are in several blocks.
    assert [words[1] for words in rows[:3]] == ["1000000", "1000001", "-"]


def test_bodies_and_failure_kinds_are_axes(tmp_path: Path, capsys: pytest.CaptureFixture[str], jobs_here: None) -> None:
    small = "--controller", "tanner", "--agents", "12", "--flocks", "2", "--duration", "0.1", "--workers", "1"
    bodies = "--body", "double-integrator,unicycle:max_turn_rate=2", "--max-acceleration", "5"
    run("sweep", *small, *bodies, "--fail", "0,2", "--fail-kind", "stopped,silent", "--out", str(tmp_path))
    table = pd.read_csv(tmp_path / "summary.csv").query("metric == 'ivv'")
    assert set(table.body) == {"double-integrator", "unicycle:max_turn_rate=2"}
    assert len(table) == 2 * 2 * 2
    assert "…" not in capsys.readouterr().out


BAD = [
    ("--packet-loss 1.5", "packet_loss must be a share from 0 to 1; got 1.5"),
    ("--delay -1", "delay must be"),
    ("--delay 0.5", "delay must be"),
    ("--noise 2", "noise must be from 0 to 1 communication radius; got 2.0"),
    ("--packet-loss 0.9 --burst 2", "burst must be from 9 to 1,000 steps with packet_loss = 0.9; got 2.0"),
    ("--quantization 4", "quantization must be from 10 to 32 bits per number; got 4"),
    ("--send-interval 0", "send_interval must be a whole number of at least 1; got 0"),
    ("--max-acceleration 0", "max_acceleration must be a finite number above 0; got 0.0"),
    ("--top-speed 0", "top_speed must be a finite number above 0; got 0.0"),
    ("--lag -1", "lag must be a finite number of at least 0; got -1.0"),
    ("--body unicycl", "did you mean 'unicycle'?"),
    ("--body unicycle --drag 0.1", "body 'unicycle' has no option 'drag'"),
    ("--body unicycle:drag=1", "body 'unicycle' has no option 'drag'"),
    ("--max-turn-rate 2", "body 'double-integrator' has no option 'max_turn_rate'"),
    (
        "--body double-integrator:lag=0.1 --lag 0.2",
        "option 'lag' is given twice, as 0.1 in 'double-integrator:lag=0.1'",
    ),
    ("--fail 13", "fail must be at most the number of followers, 12; got 13"),
    ("--fail 2 --fail-time 1.5", "fail_time must be at most the duration, 1 s; got 1.5"),
    ("--fail-rate -1", "fail_rate must be a finite number of at least 0; got -1.0"),
    ("--fail-time 1", "--fail-time has no effect without --fail"),
    ("--fail-kind silent", "--fail-kind has no effect without --fail or --fail-rate"),
    ("--burst 2", "--burst has no effect without --packet-loss"),
]


@pytest.mark.parametrize("command", ["simulate", "evaluate tanner", "sweep --controller tanner"])
@pytest.mark.parametrize(("words", "text"), BAD)
def test_an_invalid_environment_is_a_one_line_error_and_writes_nothing(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    words: str,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = failure(capsys, *command.split(), *SMALL, "--duration", "1", *words.split())
    assert text in printed
    assert printed.startswith("equiflock: ")
    assert printed.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--packet-loss 0,0", "packet_loss must list each value once; got '0,0'"),
        ("--packet-loss 0-0.5", "packet_loss must be a list of numbers such as 0.8,1,1.5; got '0-0.5'"),
        ("--delay 0,x", "delay must be a list of integers such as 0-4 or 0,3,7; got '0,x'"),
        ("--max-acceleration none,none", "max_acceleration must list each value once; got 'none,none'"),
        ("--packet-loss 0.1,2", "packet_loss must be a share from 0 to 1; got 2.0"),
        ("--fail 1 --fail-kind stopped,sleepy", "fail_kind must be one of 'silent', 'stopped', 'drifting'; got"),
        ("--body double-integrator,unicycle --drag 1", "body 'unicycle' has no option 'drag'"),
        ("--body unicycle,unicycle", "body must list each value once"),
    ],
)
def test_invalid_axes_are_a_one_line_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = failure(capsys, "sweep", "--controller", "tanner", *SMALL, *words.split())
    assert text in printed
    assert printed.count("\n") == 1
    assert not list(tmp_path.iterdir())
