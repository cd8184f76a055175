"""The command line: results of commands, and a one-line error with exit code 2 for bad input."""

from __future__ import annotations

import errno
import importlib
import inspect
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import equiflock as ef
from equiflock import cli
from equiflock._runtime.checksums import write_json
from equiflock.controllers.trained import DEFAULT_CONTROLLER, PAPER_NETWORKS
from equiflock.scenarios.registry import choose_controller
from equiflock.viewer.setting import Setting
from tests.cli.commands import failure, run, start


def test_simulate_prints_metrics_and_saves_the_flight(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "run.zarr"
    run("simulate", "--controller", "tanner-dynamic", "--agents", "20", "--flocks", "3", "--duration", "0.1")
    run("simulate", "--agents", "20", "--seed", "5", "--duration", "0.1", "--save", str(path), "--keep-every", "5")
    printed = capsys.readouterr().out
    for word in ("IVV", "IMAN", "components", "smallest separation", "saved:"):
        assert word in printed
    saved = ef.Trajectory.load(path)
    assert len(saved.times) == 3
    assert (saved.config["controller"], saved.config["start"]["seed"]) == ("starling", 5)
    assert (saved.positions[0] == ef.random_disk(1, 20, seed=5).positions[0]).all()


def test_simulate_scales_a_controller_to_the_units_of_a_robot(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    name = "etdagnn:seed=3:comm_radius=4:time_scale=16"
    metres = "--comm-radius", "4", "--disk-radius", "8.4", "--min-separation", "0.4", "--max-speed", "0.75"
    times = "--time-step", "0.16", "--duration", "1.6", "--agents", "20", "--save", str(tmp_path / "run.zarr")
    run("simulate", "--controller", name, *metres, *times)
    assert name in capsys.readouterr().out
    saved = ef.Trajectory.load(tmp_path / "run.zarr")
    own = ef.simulate(ef.random_disk(1, 20, disk_radius=2.1), ef.load("etdagnn", seed=3), duration=0.1)
    assert saved.config["controller"] == name
    np.testing.assert_allclose(saved.positions, own.positions * 4.0, rtol=1e-4)


@pytest.mark.parametrize(
    ("controller", "scaled"),
    [
        ("starling", "starling:comm_radius=3:time_scale=.."),
        ("tanner:clamp=50:time_scale=2", "tanner:clamp=50:comm_radius=3:time_scale=.."),
        ("etdagnn:seed=1:comm_radius=3", ""),
    ],
)
def test_a_controller_for_another_radius_is_flown_with_a_notice(
    capsys: pytest.CaptureFixture[str], controller: str, scaled: str
) -> None:
    run("simulate", "--controller", controller, "--comm-radius", "3", "--agents", "10", "--duration", "0.02")
    printed = capsys.readouterr().err
    expected = f"{controller} is for comm_radius = 1 and is not scaled to 3: to scale it, use {scaled} "
    assert printed == (f"{expected}(equiflock fit chooses the time scale)\n" if scaled else "")


def test_animate_films_a_saved_flight_and_a_new_one_and_writes_pages(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run("simulate", "--agents", "20", "--duration", "0.1", "--save", str(tmp_path / "run.zarr"))
    small = "--dots-per-inch", "40", "--frames-per-second", "10"
    run("animate", str(tmp_path / "run.zarr"), "--out", str(tmp_path / "saved.gif"), *small)
    run("animate", "--agents", "12", "--duration", "0.1", "--out", str(tmp_path / "new.mp4"), *small)
    run("animate", *[str(tmp_path / "run.zarr")] * 2, "--out", str(tmp_path / "page.html"))
    assert (tmp_path / "saved.gif").read_bytes()[:4] == b"GIF8"
    assert 'class="equiflock-player' in (tmp_path / "page.html").read_text()
    assert b"ftyp" in (tmp_path / "new.mp4").read_bytes()[:16]
    assert str(tmp_path / "new.mp4") in capsys.readouterr().out.replace("\n", "")


@pytest.mark.slow
def test_bench_prints_a_table_and_writes_its_figures(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "equiflock.controllers.trained.PAPER_NETWORKS", PAPER_NETWORKS[:1]
    )  # others train at the same speed
    run(
        "bench",
        "--agents",
        "100",
        "--repeats",
        "1",
        "--json",
        str(tmp_path / "bench.json"),
        "--plot",
        str(tmp_path / "bench.png"),
    )
    assert (tmp_path / "bench.png").read_bytes()[:4] == b"\x89PNG"
    assert "50 x 400" in capsys.readouterr().out
    assert "copy_bandwidth" in (tmp_path / "bench.json").read_text()


@pytest.mark.usefixtures("own_registry")
def test_a_plugin_registers_controllers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = "import equiflock as ef\n\n@ef.controller('coast')\ndef coast(z):\n    return 0 * z[:, :, 0, 0]\n"
    (tmp_path / "my_laws.py").write_text(law)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    run("simulate", "--plugin", "my_laws", "--controller", "coast", "--agents", "10", "--duration", "0.05")
    assert "coast" in capsys.readouterr().out
    run("simulate", "--plugin", str(tmp_path / "my_laws.py"), "--controller", "coast", "--agents", "10")
    assert "could not be imported" in failure(capsys, "simulate", "--plugin", "no_such_module")
    (tmp_path / "broken.py").write_text("def")
    assert "broken could not be imported: SyntaxError" in failure(capsys, "simulate", "--plugin", "broken")


SMALL_TRAINING = (
    *("--agents", "20", "--flocks", "5", "--duration", "0.2", "--updates", "5", "--epochs", "4"),
    *("--validation-flocks", "3", "--validate-every", "2", "--checkpoint-every", "2"),
)


def test_train_writes_a_run_directory_and_its_weights_fly(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("train", "--controller", "tdagnn", "--seed", "7", *SMALL_TRAINING)
    printed = capsys.readouterr().out
    assert "tdagnn, seed 7: epoch 2: IVV" in printed
    assert "weights: runs/tdagnn-7/weights.safetensors" in printed
    run("simulate", "--controller", "runs/tdagnn-7/weights.safetensors", "--agents", "20", "--duration", "0.05")
    assert "exists already" in failure(capsys, "train", "--controller", "tdagnn", "--seed", "7")
    run("train", "--resume", "runs/tdagnn-7")
    assert "all 4 epochs are done" in capsys.readouterr().out


def test_train_runs_and_resumes_several_controllers_and_seeds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, jobs_here: None
) -> None:
    folder = tmp_path / "several"
    run("train", "--controller", "all", "--seeds", "3", "--workers", "1", "--out", str(folder), *SMALL_TRAINING)
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"{name}-3" for name in sorted(PAPER_NETWORKS)]
    before = (folder / "tdagnn-3" / "weights.safetensors").read_bytes()
    (folder / "tdagnn-3" / "weights.safetensors").unlink()
    capsys.readouterr()
    run("train", "--resume", str(folder))
    printed = capsys.readouterr().out.replace("\n", "")
    assert printed.count("all 4 epochs are done") == 3
    assert printed.count("weights: ") == 1
    assert (folder / "tdagnn-3" / "weights.safetensors").read_bytes() == before


@pytest.mark.slow
def test_train_takes_a_network_of_a_plugin(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None
) -> None:
    (tmp_path / "network_of_a_plugin.py").write_text(
        "import torch, equiflock as ef\n\n"
        "@ef.controller('mixer')\nclass Mixer(torch.nn.Module):\n    senses = ef.paper_senses('mean', hops=1)\n\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.mix = torch.nn.Linear(3, 1, bias=False)\n\n"
        "    def forward(self, observations):\n"
        "        return self.mix(observations[:, :, 0].transpose(2, 3)).squeeze(-1)\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    plugin = "--plugin", str(tmp_path / "network_of_a_plugin.py")
    run("train", *plugin, "--controller", "mixer", *SMALL_TRAINING, "--out", str(tmp_path / "one"))
    several = "--seeds", "0-1", "--workers", "1", "--out", str(tmp_path / "two")
    run("train", *plugin, "--controller", "mixer", *SMALL_TRAINING, *several)
    weights = tmp_path / "two" / "mixer-0" / "weights.safetensors"
    assert weights.read_bytes() == (tmp_path / "one" / "weights.safetensors").read_bytes()
    run("simulate", *plugin, "--controller", str(weights), "--agents", "20", "--duration", "0.05")


@pytest.mark.usefixtures("short_searches")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("train", "--controller", "etdagn"), "did you mean 'etdagnn'?"),
        (("train", "--controller", "tanner"), "tanner has no weights to train: choose a network"),
        (("train", "--seeds", "4-"), "seeds must be a list of integers such as 0-4 or 0,3,7; got '4-'"),
        (("train", "--seeds", "1,1"), "seeds must list each value once; got '1,1'"),
        (("train", "--seed", "3", "--seeds", "0-1"), "--seed and --seeds exclude each other"),
        (("train", "--agents", "1"), "agents must be more than min_degree = 2"),
        (("train", "--plugin", "nowhere.py"), "--plugin nowhere.py: there is no such file"),
        (("simulate", "--controller", "."), ". is a directory: name the weights file in it"),
        (("simulate", "--controller", "tanner:time_scale=0"), "time_scale must be a finite number above 0; got 0"),
        (
            ("simulate", "--controller", "etdagnn:comm_radius=nan"),
            "comm_radius must be a finite number above 0; got nan",
        ),
        (("train", "--controller", "etdagnn:time_scale=2"), "a new network cannot be scaled: omit time_scale"),
        (("simulate", "--controller", "etdagnn:7"), "seed of the bundled etdagnn must be 0 to 4; got 7"),
        (("train", "--workers", "0"), "workers must be a whole number of at least 1"),
        (("train", "--epochs", "-3"), "epochs must be a whole number of at least 1; got -3"),
        (("train", "--resume", "nowhere"), "nowhere is not the run directory of a training: it does not exist"),
        (("train", "--resume", "nowhere", "--agents", "30"), "--resume continues the recipe of the run directory"),
        (("demo", "--epochs", "0"), "epochs must be a whole number of at least 1; got 0"),
        (("simulate", "--controller", "taner"), "did you mean 'tanner'?"),
        (("simulate", "--time-step", "0"), "time_step must be a finite number above 0; got 0.0"),
        (("simulate", "--comm-radius", "-1"), "comm_radius must be a finite number above 0"),
        (("simulate", "--agents", "0"), "agents must be a whole number of at least 1"),
        (("simulate", "--duration", "-2"), "duration must be a finite number above 0"),
        (("simulate", "--duration", "nan"), "duration must be a finite number above 0"),
        (("simulate", "--duration", "1e300"), "duration / time_step must be at most"),
        (("simulate", "--duration", "0.001"), "duration must be at least one time step (0.01 s); got 0.001"),
        (("simulate", "--time-step", "5"), "duration must be at least one time step (5 s); got 2"),
        (("animate", "--time-step", "5"), "duration must be at least one time step (5 s); got 2"),
        (("deploy", "--duration", "0.009"), "duration must be at least one time step (0.01 s); got 0.009"),
        (("evaluate", "tanner", "--flocks", "1", "--time-step", "5"), "duration must be at least one time step (5 s)"),
        (("sweep", "--controller", "tanner", "--time-step", "5"), "duration must be at least one time step (5 s)"),
        (("train", "--duration", "0.001"), "duration must be at least one time step (0.01 s); got 0.001"),
        (("tune", "etdagnn", "--tasks", "flocking:duration=0.001"), "duration must be at least one time step (0.01 s)"),
        (("simulate", "--comm-radius", "1e160", "--disk-radius", "1"), "comm_radius must be from 1e-12 to 1e+12; got"),
        (("simulate", "--comm-radius", "1e-200"), "comm_radius must be from 1e-12 to 1e+12; got 1e-200"),
        (("simulate", "--scenario", "goal", "--distance", "1e186"), "goal must have entries of at most 1e+20"),
        (("simulate", "--keep-every", "0"), "keep_every must be a whole number of at least 1"),
        (("simulate", "--agents", "1000000000"), "flocks x agents must be at most"),
        (("simulate", "--save", "/dev/null/run.zarr"), "/dev/null/run.zarr cannot be written"),
        (("simulate", "--agents", "400", "--disk-radius", "20"), "lower min_degree or disk_radius"),
        (("animate", "--dots-per-inch", "0"), "dots_per_inch must be from 20 to 600; got 0"),
        (("animate", "--out", "page.html", "--theme", "light"), "options of a film have no effect on a page"),
        (("animate", "some.zarr", "--agents", "5"), "options of a new flight have no effect on saved flights"),
        (("animate", "some.zarr", "--scenario", "merging"), "options of a new flight have no effect on saved flights"),
        (("simulate", "--scenario", "flock"), "did you mean 'flocking'?"),
        (("simulate", "--scenario", "merging", "--sides", "3"), "scenario 'merging' has no option 'sides'; it has "),
        (("simulate", "--scenario", "merging:agents=5"), "agents must be more than min_degree = 2"),
        (("simulate", "--scenario", "leaders", "--leaders", "100"), "leaders must be fewer than agents = 100; got 100"),
        (("bench", "--repeats", "0"), "repeats must be a whole number of at least 1"),
        (("animate", "nowhere.zarr"), "there is no such file or folder"),
        (
            ("animate", "--agents", "5", "--duration", "0.01", "--out", "film.avi"),
            "must end in .mp4, .webp, .gif or .html",
        ),
        (("animate", "--agents", "5", "--duration", "0.01", "--flock", "1"), "flock must be from 0 to 0; got 1"),
        (("view", "nowhere.zarr"), "there is no such file or folder"),
        (("view", "nowhere.csv"), "nowhere.csv: there is no such file"),
        (("view", "--agents", "20000"), "agents: Input should be less than or equal to 10000; got 20000"),
        (("view", "--controller", "taner"), "did you mean 'tanner'?"),
        (("view", "--weights", "README.md"), "README.md is not a weights file: its name must end in .safetensors"),
        (("view", "some.zarr", "--agents", "50"), "options of live flights have no effect on saved flights"),
        (("view", "--weights", "nowhere.safetensors"), "nowhere.safetensors: there is no such file"),
        (("view", "--port", "70000"), "port must be from 0 to 65535; got 70000"),
        (("view", "--host", "0.0.0.0"), "must be a single address"),
        (("view", "--host", "::ffff:0.0.0.0"), "must be a single address"),
        (("view", "--host", "192.0.2.1"), "192.0.2.1 is not an address of this machine"),
        (("view", "--out", "/dev/null/flights"), "cannot be written"),
        (("simulat",), "got 'simulat'; did you mean 'simulate'?"),
        (("hover",), "command must be one of 'train', "),
    ],
)
def test_bad_input_is_a_one_line_error_with_exit_code_two(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], text: str
) -> None:
    printed = failure(capsys, *arguments)
    assert text in printed
    assert printed.startswith("equiflock: ")
    assert printed.count("\n") == 1


@pytest.mark.parametrize("arguments", [(), ("simulate", "--agents", "many"), ("simulate", "--wings", "2")])
def test_unknown_options_are_exit_code_two(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    failure(capsys, *arguments)


def test_an_existing_file_is_refused_before_the_simulation(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "run.zarr").mkdir()
    assert "already exists" in failure(capsys, "simulate", "--agents", "10", "--save", str(tmp_path / "run.zarr"))


def test_directories_are_not_overwritten(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("equiflock.evaluation.benchmark.BATCHES", ())
    folder = tmp_path / "precious.mp4"
    folder.mkdir()
    (folder / "report.html").write_text("somebody's")
    (folder / "thesis.txt").write_text("years of work")
    small = "--agents", "5", "--duration", "0.01", "--dots-per-inch", "20"
    assert "is a folder" in failure(capsys, "animate", *small, "--out", str(folder))
    quick = "--agents", "100", "--repeats", "1", "--no-training"
    assert "is a folder" in failure(capsys, "bench", *quick, "--json", str(folder))
    assert "contains other files" in failure(capsys, "demo", "--out", str(folder))
    assert len(list(folder.iterdir())) == 2


def test_run_directories_of_version_0_2_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small = "--flocks", "1", "--agents", "5"
    commands = {
        "training": ("train", "--resume"),
        "tuning": ("tune", "etdagnn", "--tasks", "flocking:agents=20:duration=0.2", "--workers", "1", "--out"),
        "evaluation": ("evaluate", "tanner", *small, "--out"),
        "sweep": ("sweep", "--controller", "tanner", *small, "--out"),
        "reproduction": ("reproduce", "--only", "flocking", "--out"),
    }
    for kind, command in commands.items():
        folder = tmp_path / kind
        folder.mkdir()
        write_json({"kind": kind, "versions": {"equiflock": "0.2.0"}}, folder / "config.json")
        errors = failure(capsys, *command, str(folder))
        assert f"{folder} was written by equiflock 0.2.0 and cannot be continued by {ef.__version__}" in errors
        assert errors.count("\n") == 1
    (tmp_path / "demo").mkdir()
    (tmp_path / "training").rename(tmp_path / "demo" / "demo-training")
    assert "was written by equiflock 0.2.0" in failure(capsys, "demo", "--out", str(tmp_path / "demo"))


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    run("--version")
    assert capsys.readouterr().out == f"equiflock {ef.__version__}\n"


@pytest.mark.parametrize("command", [("simulate",), ("animate", "--dots-per-inch", "20", "--out", "film.gif")])
def test_a_duration_between_two_steps_is_announced(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(*command, "--agents", "10", "--time-step", "0.03", "--duration", "0.1")
    printed = capsys.readouterr()
    assert printed.err == "flying 3 steps of 0.03 s: 0.09 s, not 0.1 s\n"
    if command == ("simulate",):
        assert "under starling for 0.09 s" in printed.out


def test_a_full_disk_is_a_one_line_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "run.zarr")

    monkeypatch.setattr(ef.Trajectory, "save", full)
    printed = failure(capsys, "simulate", "--agents", "10", "--duration", "0.01", "--save", str(tmp_path / "run.zarr"))
    assert printed == "equiflock: run.zarr: the disk is full\n"


FLYING = """
from pathlib import Path

import equiflock as ef


@ef.controller("flying")
def flying(observations):
    Path("flying").touch()
    return 0.0 * observations[:, :, 0, 0]
"""


@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "law.py").write_text(FLYING)
    saved = tmp_path / "saved"
    saved.mkdir()
    arguments = ("--duration", "1e6", "--keep-every", "1000000", "--save", str(saved / "run.zarr"))
    process = start("simulate", "--plugin", "law.py", "--controller", "flying", *arguments, folder=tmp_path)
    try:
        while process.poll() is None and not (tmp_path / "flying").exists():
            time.sleep(0.02)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert errors == "equiflock: interrupted\n"
    assert list(saved.iterdir()) == []


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_summary_of_a_command_is_the_first_line_of_its_docstring(name: str) -> None:
    class_name, summary = cli.COMMANDS[name]
    command = getattr(importlib.import_module(f"equiflock.cli.{name}"), class_name)
    assert (inspect.getdoc(command) or "").partition("\n")[0] == summary


def test_an_unknown_controller_without_a_close_name_gets_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean" not in failure(capsys, "simulate", "--controller", "nosuch")


def test_errors_on_unknown_names_are_short(capsys: pytest.CaptureFixture[str]) -> None:
    text = failure(capsys, "simulate", "--controller", "nosuch")
    assert "and 19 more (equiflock.controller_names() lists all), or a controller that you registered" in text
    assert "has no option 'nosuch'; it has agents, " in failure(capsys, "simulate", "--scenario", "flocking:nosuch=1")
    for name in ("x" * 5000, "\0"):
        assert len(failure(capsys, "simulate", "--controller", name)) < 400


def test_commands_that_fly_have_the_same_default_controller() -> None:
    defaults = {"view page": Setting().controller}
    for name in ("simulate", "view", "animate", "deploy", "sweep"):
        command = getattr(importlib.import_module(f"equiflock.cli.{name}"), cli.COMMANDS[name][0])
        defaults[name] = command().controller or choose_controller(Setting().scenario, DEFAULT_CONTROLLER)  # view
    assert set(defaults.values()) == {"starling"}


def test_help_lists_every_command_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (("--help",), ("train", "simulate", "animate", "evaluate", "reproduce", "sweep", "demo", "bench", "view")),
        (("train", "--help"), ("--controller", "--learning-rate", "--resume", "--seeds", "--workers")),
        (("simulate", "--help"), ("--controller", "--radius-rule", "--save", "--keep-every")),
    ):
        with pytest.raises(SystemExit) as caught:
            run(*arguments)
        assert caught.value.code == 0
        printed = capsys.readouterr().out
        assert all(word in printed for word in words)
