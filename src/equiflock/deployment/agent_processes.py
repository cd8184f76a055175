"""The processes of a swarm's robots, and the world's link to them: to start, to tell, to hear, to stop and to end."""

from __future__ import annotations

import json
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from equiflock.deployment.link_frames import END, HELLO, REPORT, pack_frame, unpack_frame
from equiflock.deployment.robot_report import RobotReport, parse_report
from equiflock.runtime.checks import InputError

PACKAGE = Path(__file__).parent.parent
ROBOT_CODE = (
    "import os, sys; sys.path.insert(0, os.path.dirname(sys.argv[1])); "
    "from equiflock.deployment.robot import main; main()"
)
"""Code of a robot's process."""
STARTUP_TIMEOUT = 60.0
"""Seconds for the first robot to be there, and a second more for each of the others, which share the cores."""
POLL_INTERVAL = 0.05
"""Seconds between two looks at whether processes that are waited for still live."""
REPORT_TIMEOUT = 5.0
"""Seconds for the reports at the end."""


class ReceivedFrame(NamedTuple):
    """What a robot told the world."""

    number: int
    kind: int
    step: int
    content: bytes


class AgentProcesses:
    """The robots of a swarm, each a process of its own; `with` it, so that none is left whatever happens.

    Args:
        settings: of each robot by its number, as `robot` reads them, but for what concerns the link.
        port: at which the world listens, on this machine alone; 0 for any that is free.
        answer_timeout: seconds that a robot may take to answer.
        startup_timeout: seconds for robots to start, in place of the usual time.
    """

    def __init__(
        self,
        settings: Mapping[int, dict[str, Any]],
        port: int,
        answer_timeout: float,
        startup_timeout: float | None = None,
    ) -> None:
        self.answer_timeout = answer_timeout
        self.lost_robots: dict[int, str] = {}
        """Robots that no longer answer, and why."""
        self.late_robots: set[int] = set()
        """Robots that did not answer in time, and that nobody waits for until they do."""
        self.reports: dict[int, RobotReport] = {}
        self.unparsed_reports: set[int] = set()
        """Robots whose reports are none."""
        self._inbox: queue.SimpleQueue[ReceivedFrame] = queue.SimpleQueue()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._stderr_files: dict[int, Any] = {}
        self._key_prefix = f"equiflock/{secrets.token_hex(4)}"
        self._settings = settings
        self._robots_by_key = {str(number): number for number in settings}
        self._port = port
        self._startup_timeout = STARTUP_TIMEOUT + len(settings) if startup_timeout is None else startup_timeout

    def __enter__(self) -> AgentProcesses:
        try:
            self._open_session()
            for number, settings in self._settings.items():
                self._start_process(number, settings)
            self._wait_for_all()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._collect_reports()
        finally:
            self._close()

    @property
    def active_robots(self) -> set[int]:
        """The robots that still answer, or may."""
        return set(self._processes) - set(self.lost_robots)

    def send(self, frames: Mapping[int, bytes]) -> dict[int, bytes]:
        """Send each of these robots a frame, unless it is lost or late; what was sent.

        What a late robot is not told does not wait for it: when it is back, it is told what is new.
        """
        told = {n: data for n, data in frames.items() if n not in self.lost_robots and n not in self.late_robots}
        for number, data in told.items():
            self._publishers[number].put(data)
        return told

    def gather(self, kind: int, step: int, wanted: Iterable[int]) -> dict[int, bytes]:
        """What these robots say of a kind at a step, from all that live and answer in time."""
        found: dict[int, bytes] = {}
        waiting = set(wanted) - set(self.lost_robots) - self.late_robots
        until = time.monotonic() + self.answer_timeout
        while waiting - set(found):
            heard = self.next_frame(POLL_INTERVAL)
            if heard is not None:
                if (heard.kind, heard.step) == (kind, step):
                    found[heard.number] = heard.content
                continue
            self.poll_processes()
            waiting -= set(self.lost_robots)
            if time.monotonic() > until:
                self.late_robots |= waiting - set(found)
                break
        return found

    def next_frame(self, seconds: float) -> ReceivedFrame | None:
        """The next that a robot says; None if nobody says anything so long. Who was late and says something is back."""
        try:
            heard = self._inbox.get(timeout=seconds) if seconds > 0 else self._inbox.get_nowait()
        except queue.Empty:
            return None
        self.late_robots.discard(heard.number)
        return heard

    def receive_late_robots(self) -> None:
        """Between two steps of lockstep, see who is back. If all are late, wait for one as long as for any answer."""
        until = time.monotonic() + self.answer_timeout
        while True:
            all_late = bool(self.active_robots) and self.active_robots <= self.late_robots and time.monotonic() < until
            if self.next_frame(POLL_INTERVAL if all_late else 0.0) is None and not all_late:
                return
            if all_late:
                self.poll_processes()

    def poll_processes(self) -> None:
        """Take note of processes that have ended."""
        for number in self.active_robots:
            code = self._processes[number].poll()
            if code is not None:
                self.lost_robots[number] = (
                    signal.Signals(-code).name if code < 0 else f"code {code}{self._read_last_error_line(number)}"
                )

    def kill(self, number: int) -> None:
        """Kill -9 of a robot's process."""
        self._processes[number].kill()
        self._processes[number].wait()
        self.lost_robots[number] = signal.Signals.SIGKILL.name

    def stall(self, number: int, seconds: float) -> None:
        """Stop a robot's process in the midst of whatever it does, for so long."""
        process = self._processes[number]
        process.send_signal(signal.SIGSTOP)
        going_on = threading.Timer(seconds, process.send_signal, [signal.SIGCONT])
        going_on.daemon = True
        going_on.start()

    def _open_session(self) -> None:
        """Open the world's side of the link, on this machine alone, and look for nobody."""
        try:
            import zenoh
        except ModuleNotFoundError as error:
            raise InputError(
                f"a swarm needs {error.name}: install equiflock with its extra, pip install 'equiflock[deploy]'"
            ) from None
        port = _find_free_port(self._port)
        self._endpoint = f"tcp/127.0.0.1:{port}"
        config = {
            "mode": "peer",
            "listen": {"endpoints": [self._endpoint]},
            "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        }
        try:
            self._session = zenoh.open(zenoh.Config.from_json5(json.dumps(config)))
        except zenoh.ZError as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"the world cannot listen at port {port} of 127.0.0.1: {reason}") from None
        self._session.declare_subscriber(f"{self._key_prefix}/from/*", self._on_sample)
        options: dict[str, Any] = {"congestion_control": zenoh.CongestionControl.BLOCK, "express": True}
        self._publishers = {
            number: self._session.declare_publisher(f"{self._key_prefix}/to/{number}", **options)
            for number in self._settings
        }

    def _on_sample(self, sample: Any) -> None:
        # The number of a link is that of the key, whatever a message says of its sender. Other keys are nobody's.
        number = self._robots_by_key.get(str(sample.key_expr).rpartition("/")[2])
        if number is not None:
            self._inbox.put(ReceivedFrame(number, *unpack_frame(sample.payload.to_bytes())))

    def _start_process(self, number: int, settings: dict[str, Any]) -> None:
        # Numerical libraries start a thread for each core, in every process, unless they are told not to.
        alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
        errors = self._stderr_files[number] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the crew
        process = subprocess.Popen(
            # With the user's paths, but not with the folder that the user is in.
            [sys.executable, "-P", "-c", ROBOT_CODE, str(PACKAGE)],
            stdin=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **alone},
        )
        self._processes[number] = process
        told = {**settings, "number": number, "key_prefix": self._key_prefix, "endpoint": self._endpoint}
        assert process.stdin is not None
        process.stdin.write(json.dumps(told).encode() + b"\n")
        process.stdin.flush()

    def _wait_for_all(self) -> None:
        """Wait until all robots are there; an error that names those that are not."""
        missing, until = set(self._processes), time.monotonic() + self._startup_timeout
        while missing:
            heard = self.next_frame(POLL_INTERVAL)
            if heard is not None and heard.kind == HELLO:
                missing.discard(heard.number)
                continue
            self.poll_processes()
            if self.lost_robots:
                number, reason = next(iter(self.lost_robots.items()))
                raise InputError(f"agent {number} ended before the flight began: {reason}")
            if time.monotonic() > until:
                names = ", ".join(map(str, sorted(missing)))
                raise InputError(
                    f"{len(missing)} of {len(self._processes)} agents did not answer within {self._startup_timeout:g} s: "
                    f"{names}"
                )

    def _collect_reports(self) -> None:
        """Ask all for what they counted."""
        self.poll_processes()
        self.late_robots.clear()
        self.send({number: pack_frame(END) for number in self.active_robots})
        until = time.monotonic() + REPORT_TIMEOUT
        while self.active_robots - set(self.reports) - self.unparsed_reports and time.monotonic() < until:
            heard = self.next_frame(POLL_INTERVAL)
            if heard is not None and heard.kind == REPORT:
                report = parse_report(heard.content)
                if report is None:
                    self.unparsed_reports.add(heard.number)
                else:
                    self.reports[heard.number] = report
            elif heard is None:
                self.poll_processes()

    def _close(self) -> None:
        """End all processes. They end by themselves when their standard input is closed; who does not is killed."""
        for process in self._processes.values():
            if process.stdin is not None and not process.stdin.closed:
                # It may have ended before it read its settings.
                with suppress(BrokenPipeError):
                    process.stdin.close()
        until = time.monotonic() + 1.0
        for process in self._processes.values():
            try:
                process.wait(max(until - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for errors in self._stderr_files.values():
            errors.close()
        if hasattr(self, "_session"):
            self._session.close()  # type: ignore[no-untyped-call]

    def _read_last_error_line(self, number: int) -> str:
        """What a process that failed said last."""
        self._stderr_files[number].seek(0)
        lines = self._stderr_files[number].read().decode(errors="replace").strip().splitlines()
        return f", {lines[-1]}" if lines else ""


def _find_free_port(port: int) -> int:
    """The port, if it is free, or any free one for 0; a clear error if it is in use."""
    if not 0 <= port <= 65535:
        raise InputError(f"port must be from 1 to 65535, or 0 for any that is free; got {port}")
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            raise InputError(
                f"port {port} of 127.0.0.1 is in use: choose another, or --port 0 for any that is free"
            ) from None
        return int(tried.getsockname()[1])
