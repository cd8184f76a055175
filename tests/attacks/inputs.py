"""Extreme inputs: commands and Python calls with absurd numbers, masks and texts, each in a separate process."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import equiflock
from tests.attacks import Attempt

SOURCE = Path(equiflock.__file__).parents[1]
TIMEOUT = 120.0
"""Seconds until a process counts as one that does not end; each takes a few, and a minute if it compiles kernels."""
MAX_MEMORY = 2 * 2**30
"""Bytes that a process may use; the flocks here have few agents."""
MAX_ADDRESS_SPACE = 16 * 2**30
"""Bytes that a process can allocate, so that an attack does not harm the machine."""
REFUSED = 2
"""Exit code of a command that refuses its input, and of a call that raises InputError."""
MEANINGLESS = 3
"""Exit code of a call that returns no steps, or numbers that are not finite."""

CONTROLLERS = "tanner", "tanner-dynamic", "tanner-fixed", "etdagnn", "tdagnn", "starling", "reynolds", "cucker-smale"
NOT_NUMBERS = "nan", "inf", "-inf", "-1", "0", "1e400"
SMALL = "--agents", "10", "--flocks", "1"
BRIEF = "--duration", "0.05"

PYTHON_CALL = """
import sys

import numpy as np

import equiflock as ef

rng = np.random.default_rng({seed})


def draw(scale, shape=(2, 10, {dimensions})):
    return rng.uniform(-1.0, 1.0, shape) * scale


try:
{body}
except ef.InputError as error:
    assert str(error) and "\\n" not in str(error)
    sys.exit({refused})
sys.exit(0 if all(np.size(each) and np.isfinite(each).all() for each in found) else {meaningless})
"""
"""Script that evaluates `body`, which sets `found` to a list of arrays."""


class Trial(NamedTuple):
    """One command or script."""

    action: str
    """The command or the body of the script, in one line."""
    arguments: list[str]
    """Arguments of Python."""
    is_valid: bool = True
    """Whether the input may be accepted; accepting invalid input is a fault."""


def attack(count: int, seed: int) -> Iterator[Attempt]:
    """Yield the results of `count` trials of all kinds, one after the other."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for make in islice(cycle(TRIALS), count):
            trial = make(rng)
            yield Attempt(trial.action, run_trial(trial, Path(folder)))


def run_trial(trial: Trial, folder: Path) -> str:
    """Run a trial in a new process, in `folder`, and return its fault, "" for none."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "COLUMNS": "200"}
    with (folder / "out.txt").open("w") as out, (folder / "err.txt").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, *trial.arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=folder,
            env=environment,
            start_new_session=True,
            preexec_fn=_limit_memory,
        )
    signal.setitimer(signal.ITIMER_REAL, TIMEOUT)
    previous = signal.signal(signal.SIGALRM, lambda *_: os.killpg(process.pid, signal.SIGKILL))
    try:
        _, status, usage = os.wait4(process.pid, 0)
        has_ended = signal.getitimer(signal.ITIMER_REAL)[0] > 0.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, previous)
    process.returncode = os.waitstatus_to_exitcode(status)
    if not has_ended:
        return "hang"
    if process.returncode < 0:
        return "crash"
    printed, errors = (folder / "out.txt").read_text(), (folder / "err.txt").read_text()
    # A lack of memory is refused by a check of sizes, and raises MemoryError only if there is none.
    if usage.ru_maxrss * 1024 > MAX_MEMORY or "MemoryError" in errors:
        return "memory"
    if "Traceback" in errors or process.returncode not in (0, REFUSED, MEANINGLESS):
        return "traceback"
    if process.returncode == REFUSED:
        return ""
    words = printed.replace("(", " ").replace(")", " ").replace(",", " ").split()
    is_meaningless = process.returncode == MEANINGLESS or {"nan", "inf", "-inf"} & set(words)
    return "silent" if is_meaningless or not trial.is_valid else ""


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE, MAX_ADDRESS_SPACE))


# Choices of input.


def draw_power(rng: random.Random, low: int = -320, high: int = 308) -> str:
    """Return a number of any magnitude that float64 has, as text."""
    return f"{rng.randint(1, 9)}e{rng.randint(low, high)}"


def draw_number(rng: random.Random) -> str:
    """Return a number of any magnitude or, one time in four, none that is valid as a length or a time."""
    return rng.choice(NOT_NUMBERS) if rng.random() < 0.25 else draw_power(rng)


def is_positive(text: str) -> bool:
    """Return whether a text is a finite number above 0."""
    return 0.0 < float(text) < float("inf")


def make_command(*words: str, is_valid: bool = True) -> Trial:
    """Return the trial of a command."""
    return Trial(f"equiflock {' '.join(words)}", ["-m", "equiflock", *words], is_valid)


def make_call(rng: random.Random, *lines: str, is_valid: bool = True) -> Trial:
    """Return the trial of a script, whose lines may use `draw`, `rng`, `np` and `ef`."""
    seed, dimensions = rng.randint(0, 9), rng.choice((2, 3))
    body = "\n".join(f"    {line}" for line in lines)
    codes = {"refused": REFUSED, "meaningless": MEANINGLESS}
    script = PYTHON_CALL.format(seed=seed, dimensions=dimensions, body=body, **codes)
    return Trial(f"D = {dimensions}, seed {seed}: {'; '.join(lines)}", ["-c", script], is_valid)


# Commands.


def try_radii(rng: random.Random) -> Trial:
    """Any R in any disk, under any controller."""
    radius, disk = draw_number(rng), draw_power(rng, -9, 9) if rng.random() < 0.5 else "1"
    words = "--controller", rng.choice(CONTROLLERS), f"--comm-radius={radius}", f"--disk-radius={disk}"
    free = ("--min-degree", "0", "--no-connected", "--min-separation", "0") if rng.random() < 0.5 else ()
    space = "--dimensions", rng.choice("23")
    return make_command("simulate", *words, *space, *free, *SMALL, *BRIEF, is_valid=is_positive(radius))


def try_large_radius(rng: random.Random) -> Trial:
    """A radius whose square overflows."""
    words = "--controller", rng.choice(CONTROLLERS), f"--comm-radius={draw_power(rng, 155, 308)}", "--disk-radius", "1"
    return make_command("simulate", *words, *SMALL, *BRIEF, is_valid=False)


def try_units(rng: random.Random) -> Trial:
    """A controller in absurd units."""
    length, time = draw_number(rng), draw_number(rng)
    name = f"{rng.choice(CONTROLLERS)}:comm_radius={length}:time_scale={time}"
    words = ("--controller", name, f"--comm-radius={length}", "--min-separation", "0")
    valid = is_positive(length) and is_positive(time)
    return make_command("simulate", *words, *SMALL, *BRIEF, is_valid=valid)


def try_times(rng: random.Random) -> Trial:
    """Any time step and duration; there may be less than one step."""
    step, duration = draw_power(rng, -9, 9), draw_power(rng, -9, 3)
    if rng.random() < 0.3:
        step = draw_number(rng)
    valid = is_positive(step) and float(duration) >= float(step)
    # Few steps take long only if they are many.
    if is_positive(step) and float(duration) / float(step) > 1e4:
        duration = f"{float(step) * 3.4:g}"
    times = f"--time-step={step}", f"--duration={duration}"
    return make_command("simulate", *times, *SMALL, is_valid=valid)


def try_short_duration(rng: random.Random) -> Trial:
    """A duration below one step, in any command that flies."""
    short = f"--duration={rng.choice(('0', '0.001', '1e-9', '0.009'))}", "--time-step", "0.01"
    command = rng.choice(
        (
            ("simulate", *SMALL, *short),
            ("animate", "--out", "film.gif", *SMALL, *short),
            ("evaluate", "tanner", "--workers", "1", "--out", "evaluation", *SMALL, *short),
            ("sweep", "--controller", "tanner", "--workers", "1", "--out", "sweep", *SMALL, *short),
            ("train", "--epochs", "1", "--updates", "1", "--out", "training", *SMALL, *short),
            ("deploy", "--agent", "package", "--agents", "3", *short),
            ("tune", "etdagnn", "--tasks", f"flocking:duration={short[0][11:]}", "--workers", "1", "--out", "tuning"),
        )
    )
    return make_command(*command, is_valid=False)


def try_disk(rng: random.Random) -> Trial:
    """Any option of the initial disk."""
    name = rng.choice(("disk-radius", "disk-scale", "min-separation", "max-speed", "density"))
    value = draw_number(rng)
    rule = ("--radius-rule", "constant-density") if name == "density" else ()
    free = ("--min-degree", "0", "--no-connected") if rng.random() < 0.5 else ()
    space = "--dimensions", rng.choice("23")
    may_be_zero = value == "0" and name in ("min-separation", "max-speed")
    valid = is_positive(value) or may_be_zero
    return make_command("simulate", f"--{name}={value}", *rule, *free, *space, *SMALL, *BRIEF, is_valid=valid)


def try_counts(rng: random.Random) -> Trial:
    """Any number of agents, flocks, hops or neighbours."""
    name = rng.choice(("agents", "flocks", "min-degree", "seed", "keep-every"))
    value = rng.choice(("0", "-1", "1", "1.5", "nan", str(10**9), str(10**18), str(10**30), "ten", ""))
    others = [word for key, word in (("agents", "--agents=10"), ("flocks", "--flocks=1")) if key != name]
    valid = value == "1" or (name in ("seed", "keep-every") and value.isdigit())
    valid |= name == "min-degree" and value == "0"
    return make_command("simulate", f"--{name}={value}", *others, *BRIEF, is_valid=valid)


def try_environment(rng: random.Random) -> Trial:
    """Any radio and body."""
    names = rng.sample(("packet-loss", "burst", "delay", "noise", "max-acceleration", "lag", "drag", "gust"), 2)
    words = [f"--{name}={draw_number(rng)}" for name in names]
    return make_command("simulate", "--controller", rng.choice(CONTROLLERS), *words, *SMALL, *BRIEF)


def try_scenario(rng: random.Random) -> Trial:
    """Any option of a scenario."""
    value = draw_number(rng)
    name, option = rng.choice(
        (
            ("obstacles", "sides"),
            ("obstacles", "clear-time"),
            ("obstacles", "min-separation"),
            ("corridor", "sides"),
            ("merging", "gap"),
            ("merging", "approach-speed"),
            ("goal", "distance"),
            ("formation", "mean-speed"),
            ("leaders", "leaders"),
        )
    )
    if option in ("sides", "leaders") and is_positive(value):
        value = str(int(min(float(value), 1e40)))
    agents = "--agents", "30", "--flocks", "1"
    return make_command("simulate", "--scenario", name, f"--{option}={value}", *agents, *BRIEF)


# Python calls.


def try_flock(rng: random.Random) -> Trial:
    """Any positions, velocities and R, flown, observed and measured."""
    r, v, R = (rng.choice((draw_power(rng), draw_power(rng, -20, 25), "1.0")) for _ in range(3))
    return make_call(
        rng,
        f"flock = ef.Flock(draw({r}), draw({v}), comm_radius={R})",
        f"loop = ef.flight(flock, ef.load({rng.choice(CONTROLLERS)!r}))",
        "found = [value for _, m in zip(range(3), loop) for value in (m.flock.positions, m.accelerations)]",
        "found += [ef.metrics.diameter(flock), ef.metrics.minimum_separation(flock), ef.components(flock)]",
    )


def try_many_agents(rng: random.Random) -> Trial:
    """Positions of any magnitude in a flock that is large enough for the searches in boxes and cells."""
    scale, R = draw_power(rng, -30, 40), draw_power(rng, -12, 12)
    return make_call(
        rng,
        f"flock = ef.Flock(draw({scale}, (1, 400, 2)), draw(1.0, (1, 400, 2)), comm_radius={R})",
        "found = [ef.metrics.diameter(flock), ef.metrics.minimum_separation(flock), ef.components(flock)]",
        "found += [next(ef.flight(flock, ef.load('etdagnn'))).observations]",
    )


def try_bad_arrays(rng: random.Random) -> Trial:
    """Arrays that are no plain finite numbers."""
    bad = rng.choice(
        (
            "np.ma.masked_greater(draw(1.0), 0.0)",
            "[np.ma.masked_greater(row, 0.0) for row in draw(1.0)]",
            "draw(1.0).astype(str)",
            "draw(1.0).astype(str).astype(object)",
            "draw(1.0).astype('S20')",
            "draw(np.nan)",
            "draw(np.inf)",
            "draw(1.0) + 1j",
            "np.array('text')",
            "[[[0.0], [1.0, 2.0]]]",
            "[[[None, None]]]",
            "[[[10**400, 0]]]",
            "{1: 2}",
            "np.zeros((2, 10, 3), 'datetime64[s]')",
        )
    )
    order = rng.choice((f"{bad}, draw(1.0)", f"draw(1.0), {bad}"))
    return make_call(rng, f"found = [ef.Flock({order}).positions]", is_valid=False)


def try_bad_codes(rng: random.Random) -> Trial:
    """Roles, groups and conditions that are none."""
    name = rng.choice(("roles", "groups", "conditions", "obstacles"))
    bad = rng.choice(
        (
            "np.ma.masked_less(np.zeros((2, 10), int), 1)",
            "np.full((2, 10), '0')",
            "np.full((2, 10), np.nan)",
            "np.full((2, 10), 2**40)",
            "np.zeros((10, 2), int)",
        )
    )
    return make_call(rng, f"found = [ef.Flock(draw(1.0), draw(1.0), {name}={bad}).positions]", is_valid=False)


def try_radius_arguments(rng: random.Random) -> Trial:
    """Any R in functions that take one in place of the flock's."""
    R = draw_number(rng).replace("nan", "np.nan").replace("inf", "np.inf")
    call = rng.choice(
        (
            f"ef.radius_graph(flock, {R}).starts",
            f"ef.components(flock, {R})",
            f"ef.observe(flock, ef.paper_senses(), comm_radius={R})",
            f"next(ef.flight(flock, ef.load('etdagnn'), comm_radius={R})).observations",
            f"ef.simulate(flock, ef.load('tanner'), duration=0.05, comm_radius={R}).positions",
            f"ef.UntilDisconnected({R})(np.zeros(len(flock)), flock, np.ones(2, bool))",
            f"next(ef.flight(flock, ef.load('etdagnn', comm_radius={R}))).observations",
            f"ef.random_disk(2, 10, comm_radius={R}, min_separation=0.0).positions",
        )
    )
    valid = R not in ("np.nan", "np.inf", "-np.inf", "-1", "0", "1e400")
    return make_call(rng, "flock = ef.Flock(draw(1.0), draw(1.0))", f"found = [{call}]", is_valid=valid)


def try_durations(rng: random.Random) -> Trial:
    """Less than one step, or times that are no numbers."""
    times = rng.choice(
        (
            "duration=0",
            "duration=0.004",
            "time_step=5.0",
            "time_step=1e308",
            "duration=float('nan')",
            "duration='1'",
            "duration=1e300",
            "time_step=1e-320",
            "time_step=0",
            "duration=None",
        )
    )
    return make_call(
        rng, f"found = [ef.simulate(ef.random_disk(1, 10), ef.load('tanner'), {times}).steps]", is_valid=False
    )


def try_accelerations(rng: random.Random) -> Trial:
    """Accelerations of any magnitude for `Flight.step`, or of a wrong shape."""
    given, valid = rng.choice(
        (
            (f"draw({draw_power(rng)})", True),
            (f"draw({draw_power(rng)})", True),
            ("draw(1.0)[0]", False),
            ("draw(np.nan)", False),
            ("None", False),
            ("draw(1.0).astype(str)", False),
        )
    )
    return make_call(
        rng,
        "loop = ef.flight(ef.Flock(draw(1.0), draw(1.0)), ef.load('etdagnn'))",
        "next(loop)",
        f"moments = [loop.step({given}) for _ in range(3)]",
        "found = [moments[-1].flock.positions, moments[-1].observations]",
        is_valid=valid,
    )


def try_records(rng: random.Random) -> Trial:
    """Measures that are none."""
    given = rng.choice(("['nonsense']", "'velocity_variance'", "[1]", "[lambda moment: None]", "5"))
    call = f"ef.simulate(ef.random_disk(1, 10), ef.load('tanner'), duration=0.02, record={given})"
    return make_call(rng, f"found = [{call}.positions]", is_valid=False)


TRIALS: tuple[Callable[[random.Random], Trial], ...] = (
    try_radii,
    try_flock,
    try_units,
    try_times,
    try_disk,
    try_radius_arguments,
    try_short_duration,
    try_bad_arrays,
    try_environment,
    try_durations,
    try_scenario,
    try_many_agents,
    try_large_radius,
    try_accelerations,
    try_counts,
    try_bad_codes,
    try_records,
)
