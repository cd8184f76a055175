"""What can be exported, under which names, and the errors for what cannot."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock.cli import main
from equiflock.deployment.export.program import read_program
from equiflock.deployment.exported_agents import compile_header, import_agent_class
from equiflock.deployment.wire_format import count_message_bytes
from tests.deployment.exported import compiled
from tests.deployment.lockstep import fly, start_of

SENSES = ef.Senses((("velocity", "mean"), ("inverse-square", "sum")), 1)


@dataclass(frozen=True)
class Windy:
    """A law that is not equivariant, and pushes agents without neighbours."""

    name: str = "windy"
    senses: ef.Senses = SENSES

    def __call__(self, observations: Any) -> Any:
        known = observations[:, :, 0].astype(np.float64)
        return known[:, :, 0] * [-2.0, -3.0] + 0.5 * known[:, :, 1, ::-1] + [0.5, 0.0]


@dataclass(frozen=True)
class Bent(Windy):
    """A law that is not linear."""

    name: str = "bent"

    def __call__(self, observations: Any) -> Any:
        return -np.tanh(observations[:, :, 0, 0])


@dataclass(frozen=True)
class Misshapen(Windy):
    name: str = "misshapen"

    def __call__(self, observations: Any) -> Any:
        return observations[:, :, 0]


def test_a_users_linear_law(tmp_path: Path) -> None:
    program = read_program(Windy())
    assert not program.acts_on_vectors
    assert fly(Windy(), start_of(), compiled(Windy(), tmp_path), 4).worst < 1e-5


def test_a_law_that_turns_with_the_flock_has_one_number_for_each_channel() -> None:
    program = read_program(ef.load("tanner-dynamic"))
    np.testing.assert_array_equal(program.layers[0].weight, [[-1.0, 2.0, -2.0]])
    assert (program.acts_on_vectors, program.clamp, program.clamp_by) == (True, 100.0, "norm")


@pytest.mark.parametrize(
    ("controller", "reason"),
    [
        ("tanner", "tanner is privileged: it needs the state of the whole flock, .* use tanner-dynamic, or a network"),
        ("cucker-smale", "privileged: .* use cucker-smale-local"),
        ("gu-leader", "privileged: .* use a network"),
        (Bent(), r"bent is not a linear function .* to ONNX \(\.onnx\) only, if it is a torch module"),
        (Misshapen(), "misshapen must return accelerations"),
        (lambda observations: observations, "must declare senses"),
        (ef.DoubleIntegrator(), "controller must be a controller, such as"),
        ("etdagn", "did you mean"),
    ],
)
@pytest.mark.parametrize("ending", [".h", ".npz", ".onnx"])
def test_unsupported_controllers_raise_one_line(controller: Any, reason: str, ending: str, tmp_path: Path) -> None:
    with pytest.raises(ef.InputError, match=reason) as caught:
        ef.export(controller, tmp_path / f"agent{ending}")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_hop_means_by_the_senders_degree_cannot_be_exported() -> None:
    from equiflock.controllers.loading import make_network

    with pytest.raises(ef.InputError, match="a sender does not know its receivers"):
        read_program(make_network("etdagnn", hop_mean="sender"))


def test_a_network_whose_layers_do_something_else_is_found(tmp_path: Path) -> None:
    network: Any = ef.load_module("etdagnn")
    network.layers[1].register_forward_hook(lambda module, inputs, output: 2.0 * output)
    with pytest.raises(ef.InputError, match="etdagnn does not compute the same as its chain of layers"):
        ef.export(network, tmp_path / "agent.h")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dimensions": 4}, "dimensions must be 2 or 3, got 4"),
        ({"dimensions": 3}, "tdagnn is built for D = 2, got dimensions = 3"),
        ({"orbit": 0.5}, "orbit must be an Orbit"),
    ],
)
def test_wrong_options_are_an_error(options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ef.InputError, match=re.escape(reason)):
        ef.export("tdagnn", tmp_path / "agent.h", **options)


@pytest.mark.parametrize("ending", [".h", ".onnx"])
def test_obstacles_are_in_the_plane(ending: str, tmp_path: Path) -> None:
    with pytest.raises(ef.InputError, match="orbit requires dimensions = 2"):
        ef.export("etdagnn", tmp_path / f"agent{ending}", dimensions=3, orbit=ef.Orbit())


def test_a_file_of_weights_can_be_named(tmp_path: Path) -> None:
    weights = ef.save(ef.load("etdagnn"), tmp_path / "mine.safetensors")
    header, _ = ef.export(weights, tmp_path / "mine.h")
    assert "mine_begin" in header.read_text()


@pytest.mark.parametrize(
    ("name", "reason"), [("agent.cpp", "must end in one of .h, .onnx"), ("7.h", "start with a letter")]
)
def test_wrong_names_are_an_error(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ef.InputError, match=reason):
        ef.export("etdagnn", tmp_path / name)


def test_the_text_beside_it_says_what_a_message_is(tmp_path: Path) -> None:
    header, readme = ef.export("etdagnn", tmp_path / "my-robot.h")
    text = readme.read_text()
    assert readme.name == "my-robot.README.md"
    assert count_message_bytes(ef.load("etdagnn").senses, 2) == 76
    for part in ("| 28-75 | 12 x float32 |", "A message has 76 bytes", "| 50 | 3,800 | 30.4 |", "`my_robot_begin`"):
        assert part in text
    assert "my_robot_receive" in header.read_text()


def test_files_of_a_name_with_other_letters_can_be_used(tmp_path: Path) -> None:
    ef.export("etdagnn", tmp_path / "my-robot.py")
    assert fly(ef.load("etdagnn"), start_of(), import_agent_class(tmp_path / "my-robot.py"), 2).worst < 1e-5


def test_the_command_writes_the_files_and_names_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["export", "etdagnn:comm_radius=5:time_scale=15", "--out", str(tmp_path / "a.h"), "--orbit"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.README.md", "a.h"]
    assert "a.h" in capsys.readouterr().out
    assert "orbit technique" in (tmp_path / "a.README.md").read_text()
    assert "The controller's unit of length is 5 of the robots' units" in (tmp_path / "a.h").read_text()


@pytest.mark.parametrize("ending", [".h", ".py", ".onnx"])
def test_the_files_name_the_controller_as_it_was_given(ending: str, tmp_path: Path) -> None:
    spec = "etdagnn-robust:comm_radius=3:time_scale=2"
    main(["export", spec, "--out", str(tmp_path / f"a{ending}")])
    assert f"The controller `{spec}` of one agent" in (tmp_path / "a.README.md").read_text()
    if ending != ".onnx":
        assert f"{spec}: 2 dimensions" in (tmp_path / f"a{ending}").read_text()


def test_the_name_of_a_weights_file_cannot_end_a_comment_or_a_string(tmp_path: Path) -> None:
    folder = tmp_path / "*" / '"""; raise SystemExit #'
    folder.mkdir(parents=True)
    ef.save(ef.load_module("etdagnn"), folder / "a.safetensors")
    compiled(folder / "a.safetensors", tmp_path)
    ef.export(folder / "a.safetensors", tmp_path / "a.py")
    import_agent_class(tmp_path / "a.py")(0)


@pytest.mark.parametrize("damage", ["missing", "truncated", "of another export"])
def test_an_agent_with_wrong_weights_says_what_to_do(damage: str, tmp_path: Path) -> None:
    ef.export("etdagnn", tmp_path / "a.npz")
    ef.export("etdagnn:seed=1", tmp_path / "b.npz")
    weights = tmp_path / "a.npz"
    if damage == "missing":
        weights.unlink()
    else:
        weights.write_bytes(weights.read_bytes()[:500] if damage == "truncated" else (tmp_path / "b.npz").read_bytes())
    with pytest.raises(
        RuntimeError, match=r"a\.npz is missing, damaged or of another export: export the controller again$"
    ):
        import_agent_class(tmp_path / "a.py")(0)


def test_the_weights_are_packed_once_and_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    savez, read_bytes, versions = np.savez, Path.read_bytes, itertools.count()

    def save_another_version(file: Any, **arrays: Any) -> None:
        savez(file, **arrays, version=next(versions))

    def read_before_removal(path: Path) -> bytes:
        content = read_bytes(path)
        path.unlink()
        return content

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez", save_another_version)
        ef.export("etdagnn", tmp_path / "a.npz")
    agent_class: Any = import_agent_class(tmp_path / "a.py")
    monkeypatch.setattr(Path, "read_bytes", read_before_removal)
    assert "version" in agent_class(0).weights


@pytest.mark.parametrize("arguments", [["tanner", "--out", "a.h"], ["etdagnn", "--out", "a.txt"]])
def test_the_command_fails_in_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as code:
        main(["export", *arguments])
    assert code.value.code == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_missing_compiler_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ef.export("etdagnn", tmp_path / "a.h")
    monkeypatch.setenv("CC", "no-such-compiler -m32")
    with pytest.raises(ef.InputError, match="CC is no-such-compiler, which was not found"):
        compile_header(tmp_path / "a.h", tmp_path / "a.so")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ef.InputError, match="found no C compiler: install gcc"):
        compile_header(tmp_path / "a.h", tmp_path / "a.so")


def test_a_compiler_may_be_several_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ef.export("reynolds", tmp_path / "a.h")
    monkeypatch.setenv("CC", "env LANG=C cc")
    assert compile_header(tmp_path / "a.h", tmp_path / "a.so").stat().st_size > 0


def test_a_header_that_does_not_compile_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("int x = ;\n")
    with pytest.raises(ef.InputError, match=r"cannot compile a\.h") as caught:
        compile_header(tmp_path / "a.h", tmp_path / "a.so")
    assert "\n" not in str(caught.value)


def test_limits_change_neither_the_name_in_the_readme_nor_the_units_of_messages(tmp_path: Path) -> None:
    options: dict[str, Any] = {"message_bytes": 60, "packets": 1}
    limits = ef.SafetyLimits(max_acceleration=4.0)
    texts = []
    for stem, safety in (("plain", None), ("safe", limits)):
        *_, readme = ef.export("etdagnn:comm_radius=3", tmp_path / f"{stem}.h", safety=safety, **options)
        texts.append(readme.read_text())
    assert ("## Limits" in texts[0], "## Limits" in texts[1]) == (False, True)
    assert all("The controller `etdagnn:comm_radius=3`" in text for text in texts)
    layouts = [re.search(r"\| 9 \| uint8 \| (\d+), a checksum", text) for text in texts]
    assert layouts[0] is not None and layouts[1] is not None and layouts[0][1] == layouts[1][1]
