"""A Dask scheduler and its workers as separate local processes, as on two machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Cluster:
    """The address of a scheduler, and the processes of its workers."""

    folder: Path
    address: str = ""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start `dask ...` in the folder."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
        with (self.folder / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *command], cwd=self.folder, env=environment, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process

    def add_worker(self, *more: str) -> subprocess.Popen[bytes]:
        """Start a worker without a nanny, so that killing it kills all of it; its two threads run one job at a time."""
        options = "--nthreads", "2", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1"
        return self.start("worker", self.address, *options, *more)


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start a scheduler without workers; kill it and its workers at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    found = Cluster(folder)
    file = folder / "scheduler.json"
    try:
        found.start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
        for _ in range(600):
            if file.exists() and '"address"' in file.read_text():
                break
            time.sleep(0.1)
        else:
            raise RuntimeError((folder / "log.txt").read_text())
        found.address = json.loads(file.read_text())["address"]
        yield found
    finally:
        for process in found.processes:
            process.kill()
            process.wait()
