"""The flight behind the result of an experiment's job, simulated again to be watched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import DamagedError, VersionMismatchError
from equiflock._runtime.jobs import Job, get_result_path
from equiflock._runtime.provenance import read_config
from equiflock.simulation.flight_jobs import FlightJob
from equiflock.simulation.trajectory import Trajectory

MAX_FRAME_BYTES = 256 * 2**20
"""Memory limit for the frames of a rerun flight."""
FRAME_INTERVAL = 0.01
"""Simulated seconds between two frames of a rerun flight if they fit into that memory."""


def find_job(path: Path, plugin: str = "") -> FlightJob:
    """Return the job that wrote a result file, DIR/jobs/NAME.csv in a run directory of `reproduce` or `evaluate`.

    `plugin` is the checksum of the imported plugin, if any. Raise InputError if there is no such job, for example
    because versions, weights or plugin differ, or if it is a training.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    path = path.resolve()
    if path.parent.name != "jobs":
        raise InputError(f"{path} is not the result of a job: expected a file jobs/*.csv in a run directory")
    # File names derive from the jobs' settings: rebuild all jobs of the experiment and compare names.
    for job in _rebuild_jobs(path.parent.parent, plugin):
        if get_result_path(job, path.parent) == path:
            if not isinstance(job, FlightJob):
                raise InputError(f"{path} is the result of a training, which has no flight to watch")
            return job
    raise InputError(
        f"{path} is not the result of a job of the experiment in {path.parent.parent}, or stems from another version, "
        "other weights or another plugin (pass it with --plugin)"
    )


def rerun_flight(path: Path, plugin: str = "") -> Trajectory:
    """Simulate the flight behind a job's result again, as jobs store tables, not flights.

    It has a frame every FRAME_INTERVAL, or fewer to fit MAX_FRAME_BYTES; `find_job` describes the arguments.
    """
    job = find_job(path, plugin)
    start = job.draw_start()
    # Every frame holds positions, velocities and accelerations.
    steps_per_frame = max(round(FRAME_INTERVAL / job.time_step), 1)
    total_bytes = 3 * start.positions.nbytes * job.duration / job.time_step
    return job.fly(start, keep_every=max(steps_per_frame, math.ceil(total_bytes / MAX_FRAME_BYTES)))


def _rebuild_jobs(folder: Path, plugin: str) -> Sequence[Job]:
    """Build all jobs of the experiment in a run directory from its config; raise InputError if it has none."""
    from equiflock.evaluation.evaluate import build_evaluation_jobs
    from equiflock.paper.interpretation import Interpretation
    from equiflock.paper.profile import PROFILES
    from equiflock.paper.reproduction import EXPERIMENTS, build_jobs

    try:
        config = read_config(folder)
        if "profile" in config:
            interpretation = Interpretation(**config["profile"]["interpretation"])
            profile = replace(PROFILES[config["profile"]["name"]], interpretation=interpretation)
            return [job for name in EXPERIMENTS for job in build_jobs(name, profile, folder)]
        return build_evaluation_jobs(**config["settings"], plugin=plugin)
    except (DamagedError, VersionMismatchError):
        raise
    except (OSError, ValueError, TypeError, KeyError):
        raise InputError(
            f"{folder} is not a run directory of equiflock reproduce or evaluate: only their jobs can be rerun"
        ) from None
