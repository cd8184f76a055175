"""Exported C code under sanitizers: no access out of bounds, no undefined behaviour, whatever messages arrive."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import equiflock as ef
from equiflock.controllers.gain_schedule import get_gain_schedule
from tests.deployment.export.test_starling import starling

PROGRAM = Path(__file__).with_name("sanitized_flight.c")
SANITIZERS = "address,undefined,float-cast-overflow"
CHECKS = f"-fsanitize={SANITIZERS}", "-fno-sanitize-recover=all"
# Not optimised: the compiler takes a fifth of the time, and checks the code as it is written.
FLAGS = "-std=c99", "-O0", "-g", "-Wall", "-Wextra", "-Werror", *CHECKS


def build(program: Path, folder: Path, *flags: str) -> Path:
    """Compile a program under sanitizers; skip the test where the compiler has none, and fail there in CI."""
    binary = folder / "flight"
    command = ["gcc", *FLAGS, *flags, str(program), "-o", str(binary), "-lm"]
    try:
        done = subprocess.run(command, text=True, capture_output=True)
    except FileNotFoundError:
        done = subprocess.CompletedProcess(command, 1, "", "gcc was not found: cannot find -lasan")
    if "cannot find -l" in done.stderr and not os.environ.get("CI"):
        pytest.skip("gcc's sanitizers are missing")
    assert done.returncode == 0, done.stderr
    return binary


def fly(binary: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run([str(binary)], text=True, capture_output=True, timeout=120, env=environment)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "flags"),
    [
        ("etdagnn", {"orbit": ef.Orbit()}, ()),
        ("tdagnn", {}, ("-DAGENT_LAST_KNOWN=2",)),
        ("starling", {"orbit": ef.Orbit()}, ()),
        ("tanner-fixed", {"dimensions": 3}, ()),
        ("etdagnn:comm_radius=5:time_scale=15", {"dimensions": 3}, ("-DAGENT_NEIGHBOURS=3",)),
        ("etdagnn", {"message_bytes": 60}, ("-DAGENT_NEIGHBOURS=3",)),
        (
            "starling",
            {"message_bytes": 60, "dimensions": 3, "own_frames": True},
            ("-DPACKETS=3", "-DOWN_FRAMES", "-DAGENT_LAST_KNOWN=2"),
        ),
        ("etdagnn", {"own_frames": True}, ("-DOWN_FRAMES", "-DAGENT_LAST_KNOWN=2")),
        ("tanner-fixed", {"message_bytes": 20, "own_frames": True}, ("-DOWN_FRAMES", "-DAGENT_NEIGHBOURS=3")),
    ],
)
def test_exported_agents_have_no_undefined_behaviour(
    name: str, options: dict[str, Any], flags: tuple[str, ...], tmp_path: Path
) -> None:
    controller: Any = ef.load(name)
    header = tmp_path / "agent.h"
    ef.export(controller, header, **options)
    names = f'-DHEADER="{header}"', "-DNAME=agent", "-DUPPER=AGENT"
    if get_gain_schedule(controller) is not None:
        flags = *flags, "-DPERIOD=0.02f"
    done = fly(build(PROGRAM, tmp_path, *names, *flags))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("messages received\n")


LIMITS: dict[str, Any] = {"max_acceleration": 4.0, "max_speed": 1.5, "min_separation": 0.5, "max_silence": 0.04}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dimensions", "period"),
    [("etdagnn", 2, "0.02f"), ("starling:comm_radius=3:time_scale=8", 3, "1e-30f"), ("tanner-dynamic", 2, "1e30f")],
)
def test_no_message_moves_an_agent_beyond_its_limits(name: str, dimensions: int, period: str, tmp_path: Path) -> None:
    fence = ((-0.5,) * dimensions, (0.4,) * dimensions)
    header, _ = ef.export(ef.Safe(name, **LIMITS, fence=fence), tmp_path / "agent.h", dimensions=dimensions)
    names = f'-DHEADER="{header}"', "-DNAME=agent", "-DUPPER=AGENT"
    done = fly(build(PROGRAM, tmp_path, *names, f"-DPERIOD={period}", "-DLARGEST=4.0f"))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 10_000


@pytest.mark.slow
def test_an_agent_beyond_its_limits_is_noticed(tmp_path: Path) -> None:
    header, _ = ef.export(ef.Safe("etdagnn", **LIMITS), tmp_path / "agent.h")
    names = f'-DHEADER="{header}"', "-DNAME=agent", "-DUPPER=AGENT"
    assert fly(build(PROGRAM, tmp_path, *names, "-DPERIOD=0.02f", "-DLARGEST=3.9999f")).returncode == 1


@pytest.mark.slow
def test_no_sampling_period_is_undefined_behaviour(tmp_path: Path) -> None:
    header, _ = ef.export(starling(gain_period=0.02), tmp_path / "agent.h")
    names = f'-DHEADER="{header}"', "-DNAME=agent", "-DUPPER=AGENT"
    binary = build(PROGRAM, tmp_path, *names, "-include", "stdlib.h", '-DPERIOD=strtof(getenv("PERIOD"),NULL)')
    for period in ("0.02", "1e-45", "1e38", "0.0", "-1.0", "nan", "inf"):
        done = fly(binary, PERIOD=period)
        assert done.returncode == 0, f"{period}: {done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("volatile char *a = calloc((size_t)argc + 3, 1); return a[argc + 3];", "heap-buffer-overflow"),
        ("return 1 << (31 + argc) > 0;", "shift exponent"),
        ("return (int)(3e9f * (float)argc) > 0;", "outside the range of representable values"),
    ],
)
def test_the_sanitizers_find_faults(statement: str, text: str, tmp_path: Path) -> None:
    program = tmp_path / "faulty.c"
    program.write_text(f"#include <stdlib.h>\nint main(int argc, char **argv) {{ (void)argv; {statement} }}\n")
    done = fly(build(program, tmp_path))
    assert done.returncode != 0
    assert text in done.stderr
