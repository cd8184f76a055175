"""Several trainings at once, each in a process and a folder of its own."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, cast

from equiflock.learning.run import TrainingRun
from equiflock.runtime.checks import InputError, check_count
from equiflock.runtime.files import deaf_children

if TYPE_CHECKING:
    from equiflock.learning.dagger import EpochReport

OnEpoch = Callable[[Path, "EpochReport"], object]
OnNotice = Callable[[Path, str], object]

SECONDS_BETWEEN_LOOKS = 0.2
"""How often `should_stop` is called while no process sends anything."""


def train_several(
    folders: Sequence[Path],
    workers: int,
    on_epoch: OnEpoch = lambda folder, report: None,
    on_notice: OnNotice = lambda folder, text: None,
    prepare: Callable[[], object] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Train what `TrainingRun.create` made in these folders, `workers` of them at a time.

    A training that fails does not stop the others; its error is raised at the end.

    Args:
        folders: of the trainings; finished ones are skipped.
        workers: how many processes.
        on_epoch: called with the folder and the report of every epoch.
        on_notice: called with the folder and a line that a user should see.
        prepare: called in every process first, such as to register one's own networks; it must be importable.
        should_stop: called several times a second; once it returns True, every process ends its epoch and writes a
            checkpoint.

    Raises:
        KeyboardInterrupt: if `should_stop` returned True, after the checkpoints are written.
    """
    check_count("workers", workers)
    context = multiprocessing.get_context("spawn")
    waiting = deque(folder for folder in folders if not TrainingRun(folder).finished)
    # A pipe for each process, so that one that dies cannot break the others'.
    running: dict[Connection, tuple[Path, BaseProcess]] = {}
    failures: list[str] = []
    stopped = False
    try:
        while waiting or running:
            # Start as many processes as there is room for.
            while waiting and len(running) < workers:
                folder = waiting.popleft()
                ours, theirs = context.Pipe()
                arguments = folder, theirs, prepare
                process = context.Process(target=_work, name=str(folder), args=arguments, daemon=True)
                with deaf_children():
                    process.start()
                theirs.close()
                running[ours] = folder, process
            # Pass on what they send.
            for ready in cast(list[Connection], wait(list(running), SECONDS_BETWEEN_LOOKS)):
                folder, worker = running[ready]
                try:
                    kind, content = ready.recv()
                except (EOFError, OSError):  # the process has ended
                    worker.join()
                    del running[ready]
                    if worker.exitcode != 0:
                        failures.append(f"{folder}: its process ended with code {worker.exitcode}")
                    continue
                if kind == "epoch":
                    on_epoch(folder, content)
                elif kind == "notice":
                    on_notice(folder, content)
                else:
                    failures.append(f"{folder}: {content}")
            # Ask them to stop, once.
            if not stopped and should_stop():
                stopped = True
                waiting.clear()
                for pipe in running:
                    with suppress(OSError):  # it may have ended
                        pipe.send("stop")
    finally:
        for _, worker in running.values():
            worker.kill()  # safe: a killed training continues from its last checkpoint
            worker.join()
    if failures:
        raise InputError("; ".join(failures))
    if stopped:
        raise KeyboardInterrupt


def _work(folder: Path, pipe: Connection, prepare: Callable[[], object] | None) -> None:
    # The parent decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def say(kind: str, content: object) -> None:
        try:
            pipe.send((kind, content))
        except OSError:
            sys.exit(1)  # the parent is gone

    try:
        if prepare is not None:
            prepare()
        TrainingRun(folder).train(
            lambda epoch: say("epoch", epoch),
            lambda text: say("notice", text),
            should_stop=pipe.poll,  # the parent sends nothing but "stop"; that it is gone shows as well
        )
    except KeyboardInterrupt:
        pass  # the parent asked for it
    except (InputError, OSError) as error:
        say("failure", str(error))
