"""Trainings that are killed again and again, at random times, end with the bits of one that never was.

Each is resumed after every kill until it is done. Prints how many kills hit, and how many of the three files of results
are not the same, byte for byte.

    python -m tests.kills [kills] [seed]
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from equiflock.learning.recipe import DAgger
from equiflock.learning.training_run import TrainingRun

RECIPE = DAgger(
    agents=20,
    flocks=5,
    duration=0.2,
    updates=20,
    capacity=500,
    validation_flocks=3,
    epochs=203,
    validate_every=20,
    checkpoint_every=3,
)
"""A second or two, most of which goes into checkpoints, so that kills hit those too."""
RESULTS = "weights.safetensors", "metrics.csv", "validation.csv"
RESUME = "import sys, pathlib; from equiflock.learning.training_run import TrainingRun\n"
RESUME += "run = TrainingRun(pathlib.Path(sys.argv[1])); print('ready', flush=True)\n"
RESUME += "run.train(on_notice=lambda text: print('notice:', text, flush=True))"


def kill_until_done(folder: Path, rng: random.Random, longest: float, most_kills: int = 1000) -> tuple[int, list[str]]:
    """Train in the folder, killed after random times up to `longest` seconds; returns kills, and notices."""
    kills, notices = 0, []
    while True:
        process = subprocess.Popen([sys.executable, "-c", RESUME, str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            if kills < most_kills:
                process.wait(timeout=rng.uniform(0.0, longest))
            process.wait()
        except subprocess.TimeoutExpired:
            process.kill()
            kills += 1
        notices += process.communicate()[0].splitlines()
        if process.returncode == 0:
            return kills, notices
        assert process.returncode == -9, process.returncode


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    with tempfile.TemporaryDirectory() as scratch:
        undisturbed = Path(scratch) / "undisturbed"
        for _ in range(2):  # the first may have to compile the kernels
            TrainingRun.create(undisturbed, RECIPE, force=True)
            start = time.perf_counter()
            kill_until_done(undisturbed, rng, 0.0, most_kills=0)
            alone = time.perf_counter() - start
        print(f"undisturbed: {alone:.1f} s, {RECIPE.epochs} epochs", flush=True)
        trainings = kills = wrong = 0
        while kills < wanted:
            folder = Path(scratch) / str(trainings)
            TrainingRun.create(folder, RECIPE)
            more, notices = kill_until_done(folder, rng, alone)
            differ = [name for name in RESULTS if (folder / name).read_bytes() != (undisturbed / name).read_bytes()]
            print(f"training {trainings}: {more} kills, {len(differ)} files differ", *notices, flush=True)
            trainings, kills, wrong = trainings + 1, kills + more, wrong + len(differ)
            shutil.rmtree(folder)
    print(f"{trainings} trainings, {kills} kills: {wrong} of {3 * trainings} files differ")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
