"""Several trainings at once, each in a folder of its own, in processes that train one after the other."""

from __future__ import annotations

import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, cast

from equiflock.learning.training_run import TrainingRun
from equiflock.runtime.checks import InputError, check_count
from equiflock.runtime.files import ignore_sigint_in_children
from equiflock.runtime.processes import get_process_context

if TYPE_CHECKING:
    from equiflock.learning.dagger import EpochReport

OnEpoch = Callable[[Path, "EpochReport"], object]
OnNotice = Callable[[Path, str], object]

STOP = None
"""Sent to a process in place of a folder: it stops, in the middle of a training too."""

POLL_INTERVAL = 0.2
"""`should_stop` is called at least this often, in seconds, while no process sends anything."""


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
        folders: the folders of the trainings; finished ones are skipped.
        workers: how many processes run at once.
        on_epoch: called with the folder and the report of every epoch.
        on_notice: called with the folder and a line that a user should see.
        prepare: called in every process first, such as to register one's own networks; it must be importable.
        should_stop: called several times a second; once it returns True, every process ends its epoch and writes a
            checkpoint.

    Raises:
        KeyboardInterrupt: if `should_stop` returned True, after the checkpoints are written.
    """
    check_count("workers", workers)
    # Not forked from this process: they would inherit locks of torch's threads, but not the threads.
    context = get_process_context()
    waiting = deque(folder for folder in folders if not TrainingRun(folder).is_finished)
    # A pipe for each process, so that a process that dies cannot damage what others send.
    running: dict[Connection, tuple[Path, BaseProcess]] = {}
    failures: list[str] = []
    stopped = False
    try:
        while waiting or running:
            # Start as many processes as there is room for.
            while waiting and len(running) < workers:
                ours, theirs = context.Pipe()
                # Daemons: they end with the parent.
                process = context.Process(target=_run_worker, args=(theirs, prepare), daemon=True)
                # Ctrl-C goes to the whole group of processes; only the parent shall act on it.
                with ignore_sigint_in_children():
                    process.start()
                # The child has its own copy of this end; closing ours lets its death be seen as the end of the pipe.
                theirs.close()
                running[ours] = _assign_run(waiting.popleft(), ours, process)
            # Pass on what the processes send.
            for ready in cast(list[Connection], wait(list(running), POLL_INTERVAL)):
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
                    if kind == "failure":
                        failures.append(f"{folder}: {content}")
                    # The process is there, with torch imported: it takes the next training.
                    if waiting:
                        running[ready] = _assign_run(waiting.popleft(), ready, worker)
                    else:
                        _send(ready, STOP)
            # Ask the processes to stop, once.
            if not stopped and should_stop():
                stopped = True
                waiting.clear()
                for pipe in running:
                    _send(pipe, STOP)
    finally:
        for _, worker in running.values():
            worker.kill()  # safe: a killed training continues from its last checkpoint
            worker.join()
    if failures:
        raise InputError("; ".join(failures))
    if stopped:
        raise KeyboardInterrupt


def _assign_run(folder: Path, pipe: Connection, process: BaseProcess) -> tuple[Path, BaseProcess]:
    """Let a process train in a folder."""
    process.name = str(folder)
    _send(pipe, folder)
    return folder, process


def _send(pipe: Connection, content: Path | None) -> None:
    with suppress(OSError):  # the process may have ended, which the parent learns from the end of the pipe
        pipe.send(content)


def _run_worker(pipe: Connection, prepare: Callable[[], object] | None) -> None:
    """Train in the folders that come through the pipe, and send reports, notices and failures back."""
    # The parent decides when to stop, so Ctrl-C is ignored here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def say(kind: str, content: object) -> None:
        try:
            pipe.send((kind, content))
        except OSError:
            sys.exit(1)  # the parent is gone

    failure = _catch_error(prepare) if prepare is not None else ""
    with suppress(EOFError, OSError, KeyboardInterrupt):  # the parent is gone, or asked for it
        while (folder := pipe.recv()) is not STOP:
            failed = failure or _catch_error(
                lambda: TrainingRun(folder).train(
                    lambda epoch: say("epoch", epoch),
                    lambda text: say("notice", text),
                    should_stop=pipe.poll,  # true once the parent sent STOP, or has ended: no folder comes meanwhile
                )
            )
            say("failure" if failed else "done", failed)


def _catch_error(work: Callable[[], object]) -> str:
    """Do some work; returns the text of its error, which is empty if there was none."""
    try:
        work()
    except (InputError, OSError) as error:
        return str(error) or type(error).__name__
    return ""
