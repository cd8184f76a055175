"""Parallel trainings: worker processes that each run one training after another, each in its run directory."""

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

from equiflock._runtime.checks import InputError, check_count
from equiflock._runtime.executors import get_process_context
from equiflock._runtime.files import ignore_sigint_in_children
from equiflock.learning.training_run import TrainingRun

if TYPE_CHECKING:
    from equiflock.learning.dagger import EpochReport

OnEpoch = Callable[[Path, "EpochReport"], object]
OnNotice = Callable[[Path, str], object]

STOP = None
"""Message to a worker instead of a run directory: stop, even during a training."""

POLL_INTERVAL = 0.2
"""Longest time between two calls of `should_stop`, in seconds."""


def train_several(
    folders: Sequence[Path],
    workers: int,
    on_epoch: OnEpoch = lambda folder, report: None,
    on_notice: OnNotice = lambda folder, text: None,
    prepare: Callable[[], object] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Train in run directories that `TrainingRun.create` made, `workers` of them at a time.

    If a training fails, the others continue, and the error is raised at the end.

    Args:
        folders: run directories; finished trainings are skipped.
        workers: number of processes.
        on_epoch: called with the run directory and the report of every epoch.
        on_notice: called with the run directory and a line of text for the user.
        prepare: called first in every process, e.g. to register custom networks; it must be importable.
        should_stop: called several times a second; once it returns True, every process completes its epoch and writes
            a checkpoint.

    Raises:
        InputError: if trainings failed, with the text of each error.
        KeyboardInterrupt: if `should_stop` returned True and none failed, after all checkpoints are written.
    """
    check_count("workers", workers)
    # Do not fork: the children would inherit the locks of torch's threads, but not the threads.
    context = get_process_context()
    waiting = deque(folder for folder in folders if not TrainingRun(folder).is_finished)
    # One pipe per process, so that a dying process cannot corrupt the messages of others.
    running: dict[Connection, tuple[Path, BaseProcess]] = {}
    failures: list[str] = []
    stopped = False
    try:
        while waiting or running:
            # Start processes up to the limit.
            while waiting and len(running) < workers:
                parent_end, child_end = context.Pipe()
                # Daemon processes end with the parent.
                process = context.Process(target=_run_worker, args=(child_end, prepare), daemon=True)
                # Ctrl-C reaches the whole process group; only the parent handles it.
                with ignore_sigint_in_children():
                    process.start()
                # The child has a copy of this end. Close the parent's, so that the child's death closes the pipe.
                child_end.close()
                running[parent_end] = _assign_run(waiting.popleft(), parent_end, process)
            # Forward the messages of the processes.
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
                    # Reuse the process, which has imported torch, for the next training.
                    if waiting:
                        running[ready] = _assign_run(waiting.popleft(), ready, worker)
                    else:
                        _send(ready, STOP)
            # Tell the processes to stop, once.
            if not stopped and should_stop():
                stopped = True
                waiting.clear()
                for pipe in running:
                    _send(pipe, STOP)
    finally:
        for _, worker in running.values():
            worker.kill()  # safe: a killed training can continue from its last checkpoint
            worker.join()
    if failures:
        raise InputError("; ".join(failures))
    if stopped:
        raise KeyboardInterrupt


def _assign_run(folder: Path, pipe: Connection, process: BaseProcess) -> tuple[Path, BaseProcess]:
    """Send a run directory to a process and name the process after it; return both, for `running`."""
    process.name = str(folder)
    _send(pipe, folder)
    return folder, process


def _send(pipe: Connection, content: Path | None) -> None:
    """Send a run directory or STOP to a process; do nothing if it has ended."""
    with suppress(OSError):  # the process may have ended; the parent detects this by EOF on the pipe
        pipe.send(content)


def _run_worker(pipe: Connection, prepare: Callable[[], object] | None) -> None:
    """Main function of a worker process: train in the run directories received through the pipe until STOP.

    Send back ("epoch", report), ("notice", text) and, once per directory, ("failure", text) or ("done", ""). If
    `prepare` fails, so does every training.
    """
    # Ignore Ctrl-C: the parent decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def send_message(kind: str, content: object) -> None:
        try:
            pipe.send((kind, content))
        except OSError:
            sys.exit(1)  # the parent has ended

    prepare_error = _catch_error(prepare) if prepare is not None else ""
    with suppress(EOFError, OSError, KeyboardInterrupt):  # the parent has ended, or sent STOP
        while (folder := pipe.recv()) is not STOP:
            error = prepare_error or _catch_error(
                lambda: TrainingRun(folder).train(
                    lambda report: send_message("epoch", report),
                    lambda text: send_message("notice", text),
                    should_stop=pipe.poll,  # True once the parent sent STOP or ended
                )
            )
            send_message("failure" if error else "done", error)


def _catch_error(work: Callable[[], object]) -> str:
    """Call `work` and return the text of its InputError or OSError, or an empty text; other errors are raised."""
    try:
        work()
    except (InputError, OSError) as error:
        return str(error) or type(error).__name__
    return ""
