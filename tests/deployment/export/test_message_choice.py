"""Which message format an export has, and the errors for options that fit none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.cli import main
from equiflock.deployment.export.message_accuracy import measure_accuracy_losses
from equiflock.deployment.export.message_choice import MessageOptions, choose_messages
from equiflock.deployment.export.program import read_program
from equiflock.deployment.wire_format import CompactFormat


@pytest.mark.parametrize(
    ("name", "D", "options", "expected"),
    [
        ("etdagnn", 2, {}, (None, 2, 1, 76)),
        ("etdagnn", 2, {"message_bytes": 76}, (None, 2, 1, 76)),
        ("etdagnn", 2, {"message_bytes": 75}, (2, 2, 1, 42)),
        ("etdagnn", 3, {"message_bytes": 60}, (2, 2, 1, 58)),
        ("etdagnn", 2, {"message_bytes": 76, "relayed_hops": 1}, (2, 1, 1, 30)),
        ("etdagnn", 2, {"message_bytes": 40}, (2, 2, 2, 30)),
        ("etdagnn", 2, {"message_bytes": 40, "packets": 1}, (2, 1, 1, 30)),
        ("etdagnn", 2, {"message_bytes": 18, "packets": 1}, (2, 0, 1, 18)),
        ("starling", 2, {"message_bytes": 60}, (2, 2, 2, 50)),
        ("starling", 3, {"message_bytes": 60}, (2, 2, 3, 52)),
        ("starling", 3, {"message_bytes": 22, "packets": 15}, (2, 1, 9, 22)),
        ("tanner-dynamic", 2, {"message_bytes": 27}, (2, 0, 1, 18)),
    ],
)
def test_the_first_format_that_fits_is_chosen(name: str, D: int, options: dict[str, Any], expected: Any) -> None:
    chosen, table = choose_messages(read_program(ef.load(name), D), 1.0, MessageOptions(**options))
    version = None if chosen.compact is None else 2
    assert (version, chosen.relayed_hops, chosen.packets, chosen.packet_bytes) == expected
    assert table.count("chosen") == ("message_bytes" in options)


def test_the_loss_of_accuracy_grows_from_float32_to_fewer_hops() -> None:
    program = read_program(ef.load("etdagnn"))
    compact = [CompactFormat(program.senses, 2, 1.0, hops) for hops in (2, 1)]
    coarse = CompactFormat(program.senses, 2, 30.0, 2)
    losses = measure_accuracy_losses(program, 1.0, [None, *compact, coarse])
    assert losses[0] < 1e-5 < 1e-3 < losses[1] < 0.005 < losses[2]
    # Quanta that are thirty times as large.
    assert losses[3] > 5 * losses[1]


def test_the_loss_of_accuracy_does_not_depend_on_units() -> None:
    programs = [read_program(ef.load(name)) for name in ("etdagnn", "etdagnn:comm_radius=5:time_scale=15")]
    losses = [
        measure_accuracy_losses(program, radius, [CompactFormat(program.senses, 2, radius, 2)])[0]
        for program, radius in zip(programs, (1.0, 5.0), strict=True)
    ]
    assert losses[1] == pytest.approx(losses[0], rel=0.5)


def test_a_flock_that_never_accelerates_has_no_loss() -> None:
    program = read_program(ef.load("tanner-dynamic:clamp=1e-300"))
    assert str(measure_accuracy_losses(program, 1.0, [None])) == "[nan]"


def test_the_table_is_printed_and_written_beside_the_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["export", "starling", "--message-bytes", "60", "--out", str(tmp_path / "agent.h")])
    printed, readme = capsys.readouterr().out, (tmp_path / "agent.README.md").read_text()
    for text in (printed, readme):
        assert "| float32 | 2            | 1       | 156              |" in text
        assert "| compact | 2            | 2       | 50               |" in text
        assert text.count("chosen") == 1
    for text in (
        "| 8 | uint8 | 16 n + 2 for packet n = 0 .. 1;",
        "| 14-49 | 9 x 2 numbers |",
        "1 - (1 - p)^2",
        "nearer than 8",
    ):
        assert text in readme
    assert "#define AGENT_PACKETS 2" in (tmp_path / "agent.h").read_text()


def test_the_text_says_which_hops_are_not_sent(tmp_path: Path) -> None:
    *_, readme = ef.export("etdagnn", tmp_path / "agent.py", message_bytes=60, relayed_hops=1)
    assert "Hops from 2 on are not sent, and zero at the receiver" in readme.read_text()
    assert "A packet has 30 bytes" in readme.read_text()


def test_the_window_is_that_of_the_robots_radius(tmp_path: Path) -> None:
    header, _ = ef.export("etdagnn:comm_radius=5:time_scale=10", tmp_path / "agent.h", message_bytes=60)
    assert "sent modulo 80, velocities modulo 32." in header.read_text()


def test_robots_that_are_too_fast_for_16_bits_are_refused(tmp_path: Path) -> None:
    # Relative velocities of up to 32 R / tau = 8 are told apart: two robots of 4 can reach them.
    for max_speed, fits in ((3.99, True), (4.0, False)):
        safety = ef.SafetyLimits(max_acceleration=4.0, max_speed=max_speed)
        options: dict[str, Any] = {"message_bytes": 60, "safety": safety}
        if fits:
            ef.export("etdagnn:comm_radius=2.5:time_scale=10", tmp_path / "agent.h", **options)
            continue
        with pytest.raises(InputError, match="max_speed must be below 4 with compact messages"):
            ef.export("etdagnn:comm_radius=2.5:time_scale=10", tmp_path / "agent.h", **options)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("etdagnn", {"message_bytes": 17}, "at least 18 for etdagnn with packets = 4, got 17"),
        (
            "etdagnn",
            {"message_bytes": 41, "packets": 1, "relayed_hops": 2},
            "at least 42 for etdagnn with packets = 1, got 41",
        ),
        ("etdagnn", {"message_bytes": 0}, "message_bytes must be"),
        ("etdagnn", {"message_bytes": 60, "packets": 16}, "packets must be at most 15, got 16"),
        ("etdagnn", {"message_bytes": 60, "relayed_hops": 3}, "relayed_hops of etdagnn must be at most 2, got 3"),
        ("etdagnn", {"message_bytes": 60, "relayed_hops": -1}, "relayed_hops must be"),
        ("etdagnn", {"relayed_hops": 1}, "relayed_hops has no effect without message_bytes"),
        ("etdagnn", {"packets": 2}, "packets has no effect without message_bytes"),
    ],
)
def test_options_that_fit_nothing_are_one_line(name: str, options: dict[str, int], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ef.InputError, match=reason) as caught:
        ef.export(name, tmp_path / "agent.h", **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [{"message_bytes": 60}, {"own_frames": True}])
def test_a_graph_has_no_messages(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ef.InputError, match=r"a graph \(.onnx\) has no messages"):
        ef.export("etdagnn", tmp_path / "agent.onnx", **options)
    assert not list(tmp_path.iterdir())
