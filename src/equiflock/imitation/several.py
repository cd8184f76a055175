"""Several trainings at once, each in a process and a folder of its own."""

from __future__ import annotations

import multiprocessing
import queue
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equiflock.imitation.run import TrainingRun
from equiflock.types import InputError, check_count

if TYPE_CHECKING:
    from equiflock.imitation.dagger import EpochReport


def train_several(
    folders: Sequence[Path],
    workers: int,
    on_epoch: Callable[[Path, EpochReport], object] | None = None,
    on_notice: Callable[[Path, str], object] | None = None,
    prepare: Callable[[], object] | None = None,
) -> None:
    """Train what `TrainingRun.create` began in these folders, so many at a time.

    A training that fails does not stop the others; what it said is raised at the end.

    Args:
        folders: of the trainings; those that are finished are passed over.
        workers: how many processes.
        on_epoch: called with the folder and what came of every epoch.
        on_notice: called with the folder and a line that a user should see.
        prepare: called in every process first, such as to register one's own networks; it must be importable.
    """
    check_count("workers", workers)
    context = multiprocessing.get_context("spawn")
    said: Any = context.Queue()
    waiting = deque(folder for folder in folders if not TrainingRun(folder).finished)
    running: dict[Path, BaseProcess] = {}
    failures: list[str] = []
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                folder = waiting.popleft()
                running[folder] = context.Process(target=_work, args=(folder, said, prepare), daemon=True)
                running[folder].start()
            try:
                folder, kind, content = said.get(timeout=0.2)
            except queue.Empty:
                for folder in [folder for folder, process in running.items() if not process.is_alive()]:
                    code = running.pop(folder).exitcode
                    failures.append(f"{folder}: its process ended with code {code}")
                continue
            if kind == "epoch" and on_epoch is not None:
                on_epoch(folder, content)
            elif kind == "notice" and on_notice is not None:
                on_notice(folder, content)
            elif kind == "end":
                running.pop(folder).join()
                if content is not None:
                    failures.append(f"{folder}: {content}")
    finally:
        for process in running.values():
            process.kill()  # as good as any end: a training survives it
    if failures:
        raise InputError("; ".join(failures))


def _work(folder: Path, said: Any, prepare: Callable[[], object] | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    parent = multiprocessing.parent_process()

    def report(kind: str, content: object) -> None:
        if parent is not None and not parent.is_alive():
            sys.exit(1)  # nobody is there any more
        said.put((folder, kind, content))

    try:
        if prepare is not None:
            prepare()
        TrainingRun(folder).train(lambda epoch: report("epoch", epoch), lambda text: report("notice", text))
    except (InputError, OSError) as error:
        report("end", str(error))
    else:
        report("end", None)
