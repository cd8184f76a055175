"""A job of an experiment flown again, to be watched: jobs keep their numbers, not their flights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from equiflock.experiments.evaluation import evaluation_jobs
from equiflock.experiments.flights import FlightJob
from equiflock.experiments.paper.reproduction import PROFILES, RUN_IN_JOBS, jobs_of
from equiflock.experiments.runner.jobs import Job, path_of
from equiflock.runtime.checks import InputError
from equiflock.runtime.checksums import DamagedError, read_json
from equiflock.runtime.provenance import CONFIG
from equiflock.simulation.trajectory import Trajectory

MOST_BYTES = 256 * 2**20
FRAME_SECONDS = 0.01


def find_job(path: Path, plugin: str = "") -> FlightJob:
    """The job whose result a file is: FOLDER/jobs/NAME.csv in a folder of `equiflock reproduce` or `evaluate`.

    `plugin` is the checksum of the plugin that was imported, if any.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    path = path.resolve()
    if path.parent.name != "jobs":
        raise InputError(f"{path} is not a job of an experiment: those are in its folder, as jobs/*.csv")
    for job in _jobs_of_folder(path.parent.parent, plugin):
        if path_of(job, path.parent) == path:
            if not isinstance(job, FlightJob):
                raise InputError(f"{path} is the result of a training, which has no flight to watch")
            return job
    raise InputError(
        f"{path} is not a job of the experiment in {path.parent.parent}, or one of another version, other weights or "
        "another plugin (name it with --plugin)"
    )


def fly_again(path: Path, plugin: str = "") -> Trajectory:
    """The flight that a job's result was taken from, with as many frames as fit into some memory."""
    job = find_job(path, plugin)
    start = job.start()
    wanted = max(round(FRAME_SECONDS / job.time_step), 1)
    bytes_in_all = 3 * start.positions.nbytes * job.duration / job.time_step
    return job.fly(start, keep_every=max(wanted, math.ceil(bytes_in_all / MOST_BYTES)))


def _jobs_of_folder(folder: Path, plugin: str) -> Sequence[Job]:
    """All jobs of the experiments that a folder is for, as its config tells."""
    try:
        config = read_json(folder / CONFIG)
        if "profile" in config:
            profile = PROFILES[config["profile"]["name"]]
            data = (folder / "fast-forward").resolve()
            return [job for name in RUN_IN_JOBS for job in jobs_of(name, profile, data)]
        return evaluation_jobs(**config["settings"], plugin=plugin)
    except DamagedError:
        raise
    except (OSError, ValueError, TypeError, KeyError):
        raise InputError(
            f"{folder} is not a folder of equiflock reproduce or evaluate: their jobs can be flown again"
        ) from None
