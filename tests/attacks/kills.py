"""Kill commands that run processes with SIGKILL at random times: no process may outlive them, and no result may change.

A command is killed up to three times and then resumed. Its results must be those of an undisturbed run, byte for byte.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.attacks import Attempt

MARKER = "EQUIFLOCK_TEST_RUN"
"""Environment variable that identifies the processes of a command."""
ORPHAN_TIMEOUT = 2.0
"""Seconds within which all processes of a killed command must end."""
MOST_KILLS = 3
"""Largest number of kills before a command is resumed."""


class Target(NamedTuple):
    """A command to kill."""

    words: tuple[str, ...]
    """Its words without the run directory."""
    resume: tuple[str, ...] = ()
    """Words that resume it, followed by the run directory, if the same words do not."""
    results: str = ""
    """Pattern of the files in the run directory that a resumed run must reproduce; "" if it has no run directory."""
    compile_time: float = 0.0
    """Longest time until a kill in seconds, if it is killed while its processes compile the kernels; else 0."""


FLOCKS = "--agents", "20", "--flocks", "5", "--duration", "0.2"
TASKS = "1*flocking:agents=20:duration=0.3+1*obstacles:sides=6:agents=20:duration=1"
TRAINING = Target(
    (
        *("train", "--seeds", "0-1", "--workers", "2", *FLOCKS, "--updates", "20", "--capacity", "500"),
        *("--validation-flocks", "3", "--epochs", "103", "--validate-every", "20", "--checkpoint-every", "3"),
    ),
    resume=("train", "--workers", "2", "--resume"),
    results="*/[wmv]*.[sc]*",  # weights.safetensors, metrics.csv, validation.csv
)
TARGETS = (
    Target(
        (
            *("sweep", "--workers", "2", "--controller", "etdagnn,tanner", "--agents", "20,40,60"),
            *("--flocks", "10", "--duration", "3"),
        ),
        results="s*.csv",  # sweep.csv, summary.csv
    ),
    TRAINING,
    TRAINING._replace(compile_time=15.0),
    Target(
        (
            *("tune", "etdagnn", "--workers", "2", "--tasks", TASKS, "--population", "4", "--flocks", "2"),
            *("--validation-flocks", "2", "--validate-every", "2", "--generations", "20"),
        ),
        results="[wgv]*.[sc]*",  # weights.safetensors, generations.csv, validation.csv
    ),
    Target(("deploy", "--agents", "4", "--duration", "2")),
)


def attack(count: int, seed: int) -> Iterator[Attempt]:
    """Kill the targets in turn, `count` times in all, and compare their results with undisturbed runs."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        durations: dict[str, float] = {}
        kills = runs = 0
        while kills < count:
            target = TARGETS[runs % len(TARGETS)]
            name = target.words[0]
            undisturbed = Path(scratch) / f"undisturbed-{name}"
            if name not in durations:
                begin = time.monotonic()
                run_to_the_end(target, undisturbed)
                durations[name] = time.monotonic() - begin
                assert bool(read_results(target, undisturbed)) == bool(target.results)
            longest = target.compile_time or durations[name]
            for attempt in kill_and_resume(target, Path(scratch) / str(runs), undisturbed, longest, rng, count - kills):
                kills += 1
                yield attempt
            runs += 1


def kill_and_resume(
    target: Target, folder: Path, undisturbed: Path, longest: float, rng: random.Random, most_kills: int
) -> Iterator[Attempt]:
    """Kill a command up to three times, after random times up to `longest`, then resume it and compare its results."""
    kills = rng.randint(1, min(MOST_KILLS, most_kills))
    for number in range(kills):
        delay = rng.uniform(0.0, longest)
        orphans, printed = kill(target, folder, delay)
        action = f"{target.words[0]} killed after {delay:.2f} s of {longest:.2f}"
        if orphans:
            yield Attempt(f"{action}: {', '.join(orphans)}", "orphan")
        elif "Traceback" in printed:
            yield Attempt(f"{action}: {printed.strip().splitlines()[-1]}", "traceback")
        elif number < kills - 1:
            yield Attempt(action)
        else:
            printed = run_to_the_end(target, folder)
            same = read_results(target, folder) == read_results(target, undisturbed)
            yield Attempt(f"{action} and resumed", "traceback" if "Traceback" in printed else "" if same else "silent")


def run_to_the_end(target: Target, folder: Path) -> str:
    """Start or resume a command, wait for its end, and return what it printed."""
    process, output, _ = start(target, folder)
    if process.wait(timeout=600) != 0:
        raise RuntimeError(f"{' '.join(target.words)} failed: {output.read_text()}")
    return output.read_text()


def kill(target: Target, folder: Path, delay: float) -> tuple[list[str], str]:
    """Start or resume a command and kill it after `delay` seconds.

    Return the names of its processes that are alive ORPHAN_TIMEOUT later, which are killed then, and what was printed.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        process, output, marker = start(target, folder, cache if target.compile_time else None)
        time.sleep(delay)
        process.kill()
        process.wait()
        deadline = time.monotonic() + ORPHAN_TIMEOUT
        while (orphans := find_processes(marker)) and time.monotonic() < deadline:
            time.sleep(0.05)
        names = []
        for orphan in orphans:
            try:
                names.append(" ".join(orphan.cmdline())[:80])
                orphan.kill()
            except psutil.NoSuchProcess:
                names.append("ended late")
    return names, output.read_text()


def start(target: Target, folder: Path, cache: str | None = None) -> tuple[subprocess.Popen[bytes], Path, str]:
    """Start a command, or resume it if its run directory exists; return it, its output file and its marker.

    `cache` is the directory of the kernel cache, by default the user's.
    """
    marker = uuid.uuid4().hex
    words = target.words
    if target.results:
        words = (*target.resume, str(folder)) if target.resume and folder.exists() else (*words, "--out", str(folder))
    output = folder.with_suffix(".txt")
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "equiflock", *words],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={**os.environ, MARKER: marker, **({"EQUIFLOCK_CACHE_DIR": cache} if cache else {})},
            start_new_session=True,
        )
    return process, output, marker


def find_processes(marker: str) -> list[psutil.Process]:
    """Return the processes that carry a marker and are not waiting to be reaped."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARKER) == marker and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def read_results(target: Target, folder: Path) -> dict[str, bytes]:
    """Return the results of a command by their paths in its run directory."""
    if not target.results:
        return {}
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob(target.results))}
