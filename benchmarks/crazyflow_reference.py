"""Flights of crazyflow's Crazyflie under given commands, recorded for tests of `ef.Quadrotor`; needs the extra drones.

python benchmarks/crazyflow_reference.py record     # writes tests/bodies/data/crazyflow_reference.npz
python benchmarks/crazyflow_reference.py compare    # ef.Quadrotor and ef.Crazyflow against the recorded flights
python benchmarks/crazyflow_reference.py speed      # 100 drones under starling at 50 Hz, as a multiple of real time

The recorded arrays, D = 3, all drones at rest at time 0:

    time_step            seconds between commands
    commands             (T, B, N, 3) accelerations in m/s^2, each held for one time step
    every                steps between two records
    positions            (T / every, B, N, 3) in m, relative to the start, after steps every, 2 every, ..
    velocities           (T / every, B, N, 3) in m/s
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import equiflock as ef
from equiflock._runtime.randomness import make_rng
from equiflock.cli.terminal import out, print_table

DATA = Path(__file__).parents[1] / "tests" / "bodies" / "data" / "crazyflow_reference.npz"
TIME_STEP, DURATION, EVERY = 0.02, 5.0, 5
"""Seconds between commands, length of a flight, and steps between two records."""
GROUPS = ("smooth, up to 1 m/s²", "smooth, up to 2 m/s²", "smooth, up to 3 m/s²", "steps of 2 m/s²")
"""The flocks of the recorded flights, by their commands."""
DRONES = 8
"""Drones of each group."""
START_HEIGHT = 100.0
"""Height at the start, in m: no drone reaches the ground."""


def draw_smooth_commands(rng: np.random.Generator, largest: float) -> NDArray[np.float32]:
    """Return commands (T, N, 3), sums of four sines with periods of 1 to 5 s, whose largest norm is `largest`."""
    times = np.arange(round(DURATION / TIME_STEP)) * TIME_STEP
    rates, phases = 2.0 * np.pi / rng.uniform(1.0, 5.0, (4, DRONES, 3)), rng.uniform(0.0, 2.0 * np.pi, (4, DRONES, 3))
    amplitudes = rng.normal(size=(4, DRONES, 3))
    waves = (amplitudes * np.sin(rates * times[:, None, None, None] + phases)).sum(axis=1)
    largest_norms = np.linalg.norm(waves, axis=2).max(axis=0)
    return np.asarray(largest * waves / largest_norms[:, None], np.float32)


def draw_step_commands(rng: np.random.Generator, size: float) -> NDArray[np.float32]:
    """Return commands (T, N, 3) of a norm and a random direction from 0.5 to 1.5 s, and the opposite from 3 to 4 s."""
    times = np.arange(round(DURATION / TIME_STEP)) * TIME_STEP
    directions = rng.normal(size=(DRONES, 3))
    directions *= size / np.linalg.norm(directions, axis=1, keepdims=True)
    signs = ((times >= 0.5) & (times < 1.5)).astype(float) - ((times >= 3.0) & (times < 4.0))
    return np.asarray(signs[:, None, None] * directions, np.float32)


def draw_commands(seed: int = 0) -> NDArray[np.float32]:
    """Return the commands (T, B, N, 3) of all groups."""
    groups = [draw_smooth_commands(make_rng(seed, "smooth", size), float(size)) for size in (1, 2, 3)]
    return np.stack([*groups, draw_step_commands(make_rng(seed, "steps"), 2.0)], axis=1)


def fly_commands(body: Any, commands: NDArray[Any], time_step: float, every: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the positions, relative to the start, and velocities (T / every, B, N, 3) under commands (T, B, N, 3)."""
    start = np.broadcast_to([0.0, 0.0, START_HEIGHT], commands.shape[1:])
    flock = ef.Flock(start.copy(), np.zeros_like(start))
    positions, velocities = flock.positions.copy(), flock.velocities.copy()
    state, active, records = body.init_state(flock), np.arange(len(flock)), []
    for number, accelerations in enumerate(commands.astype(float)):
        body.advance(
            ef.BodyStep(positions, velocities, flock.roles, accelerations, time_step, active, state, number=number)
        )
        if (number + 1) % every == 0:
            records.append((positions - start, velocities.copy()))
    recorded_positions, recorded_velocities = zip(*records, strict=True)
    return np.array(recorded_positions), np.array(recorded_velocities)


def compute_path_lengths(positions: NDArray[Any]) -> NDArray[Any]:
    """Return the distances flown until each record (T / every, B, N)."""
    segments = np.diff(positions, axis=0, prepend=np.zeros_like(positions[:1]))
    lengths: NDArray[Any] = np.linalg.norm(segments, axis=-1).cumsum(axis=0)
    return lengths


def read_recording() -> dict[str, NDArray[Any]]:
    """Return the recorded arrays by name."""
    with np.load(DATA, allow_pickle=False) as file:
        return dict(file)


def record() -> None:
    """Fly crazyflow and write the data file."""
    commands = draw_commands()
    positions, velocities = fly_commands(ef.Crazyflow(), commands, TIME_STEP, EVERY)
    DATA.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        DATA,
        time_step=TIME_STEP,
        every=EVERY,
        commands=commands,
        positions=positions.astype(np.float32),
        velocities=velocities.astype(np.float32),
    )
    out.print(f"{DATA.name}: {DATA.stat().st_size / 1000:.0f} kB")


def compare() -> None:
    """Print the differences of bodies to the recorded flights, by group."""
    data = read_recording()
    flown = compute_path_lengths(data["positions"])
    bodies = {"quadrotor": ef.Quadrotor(), "crazyflow": ef.Crazyflow(), "double-integrator": ef.DoubleIntegrator()}
    rows = []
    for name, body in bodies.items():
        positions, _ = fly_commands(body, data["commands"], float(data["time_step"]), int(data["every"]))
        differences = np.linalg.norm(positions - data["positions"], axis=-1)
        for group, label in enumerate(GROUPS):
            difference, length = differences[:, group], flown[:, group]
            share = 100.0 * difference[-1] / length[-1]
            cells = [
                f"{length[-1].mean():.1f} m",
                f"{100 * difference.max():.1f} cm",
                f"{100 * difference[-1].mean():.1f} cm",
            ]
            rows.append([name, label, *cells, f"{share.mean():.2f}%", f"{share.max():.2f}%"])
    header = ["body", "commands", "flown", "largest difference", "at the end", "of the distance flown", "worst drone"]
    print_table("differences to crazyflow", (header, rows))


def speed(drones: int = 100, rate: float = 50.0, duration: float = 20.0) -> None:
    """Print how much faster than real time a flock of drones flies under starling, after compiling."""
    controller = ef.load("starling", comm_radius=5.0, time_scale=20.0)
    rows = []
    for dimensions in (2, 3):
        start = ef.random_disk(agents=drones, comm_radius=5.0, min_separation=0.5, max_speed=0.5, dimensions=dimensions)
        if dimensions == 3:
            points = start.positions + np.array([0.0, 0.0, START_HEIGHT])
            start = ef.Flock(points, start.velocities, comm_radius=start.comm_radius)
        for name in ("crazyflow", "quadrotor"):
            seconds = []
            for length in (2.0 / rate, duration, duration):
                begin = time.perf_counter()
                ef.simulate(start, controller, time_step=1.0 / rate, duration=length, body=ef.make_body(name))
                seconds.append(time.perf_counter() - begin)
            fastest = min(seconds[1:])
            rows.append([name, f"{dimensions}", f"{seconds[0]:.1f} s", f"{fastest:.2f} s", f"{duration / fastest:.1f}"])
    title = f"{drones} drones under starling, {duration:g} s at {rate:g} Hz"
    print_table(title, (["body", "D", "first steps", "flight", "times real time"], rows))


if __name__ == "__main__":
    commands = {"record": record, "compare": compare, "speed": speed}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        raise SystemExit(__doc__)
    commands[sys.argv[1]]()
