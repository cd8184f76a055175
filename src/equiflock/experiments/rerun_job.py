"""Flies a job of an experiment again, to be watched, since jobs keep tables and no flights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from equiflock.experiments.evaluation import build_evaluation_jobs
from equiflock.experiments.flight_jobs import FlightJob
from equiflock.experiments.paper.interpretation import Interpretation
from equiflock.experiments.paper.profiles import EXPERIMENTS, PROFILES, build_jobs
from equiflock.experiments.runner.jobs import Job, get_result_path
from equiflock.runtime.checks import InputError
from equiflock.runtime.checksums import DamagedError, VersionMismatchError
from equiflock.runtime.provenance import read_config
from equiflock.simulation.trajectory import Trajectory

MAX_FRAME_BYTES = 256 * 2**20
"""Memory for the frames of a flight that is flown again."""
FRAME_INTERVAL = 0.01
"""Simulated seconds between two frames, if they fit into that memory."""


def find_job(path: Path, plugin: str = "") -> FlightJob:
    """The job whose result a file is: FOLDER/jobs/NAME.csv in a folder of `equiflock reproduce` or `evaluate`.

    `plugin` is the checksum of the plugin that was imported, if any.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    path = path.resolve()
    if path.parent.name != "jobs":
        raise InputError(f"{path} is not a job of an experiment: those are in its folder, as jobs/*.csv")
    # The file's name is made of the job's settings, so the job is found by making all names of the experiment.
    for job in _rebuild_jobs(path.parent.parent, plugin):
        if get_result_path(job, path.parent) == path:
            if not isinstance(job, FlightJob):
                raise InputError(f"{path} is the result of a training, which has no flight to watch")
            return job
    raise InputError(
        f"{path} is not a job of the experiment in {path.parent.parent}, or one of another version, other weights or "
        "another plugin (name it with --plugin)"
    )


def rerun_flight(path: Path, plugin: str = "") -> Trajectory:
    """The flight that a job's result was taken from, with as many frames as fit into some memory."""
    job = find_job(path, plugin)
    start = job.start()
    # Positions, velocities and accelerations of every step; fewer frames if these are too many bytes.
    wanted = max(round(FRAME_INTERVAL / job.time_step), 1)
    bytes_in_all = 3 * start.positions.nbytes * job.duration / job.time_step
    return job.fly(start, keep_every=max(wanted, math.ceil(bytes_in_all / MAX_FRAME_BYTES)))


def _rebuild_jobs(folder: Path, plugin: str) -> Sequence[Job]:
    """All jobs of the experiment in a folder, made again from its config."""
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
            f"{folder} is not a folder of equiflock reproduce or evaluate: their jobs can be flown again"
        ) from None
