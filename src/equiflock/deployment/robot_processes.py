"""The robot processes of a swarm and the host's link to them: start, send, receive, stall, kill, end."""

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
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from equiflock._runtime.checks import InputError
from equiflock._runtime.imports import require_modules
from equiflock.deployment.frame_authentication import FrameSigner, FrameVerifier, derive_keys
from equiflock.deployment.link_frames import (
    END,
    HELLO,
    REPORT,
    RobotReport,
    declare_publisher,
    open_session,
    pack_frame,
    parse_report,
    unpack_frame,
)

PACKAGE = Path(__file__).parent.parent
ROBOT_CODE = (
    "import os, sys; sys.path.insert(0, os.path.dirname(sys.argv[1])); "
    "from equiflock.deployment.robot import main; main()"
)
"""Python code of a robot process."""
STARTUP_TIMEOUT = 60.0
"""Seconds for the first robot to start; each further robot, which shares the cores, gets one second more."""
POLL_INTERVAL = 0.05
"""Seconds between two checks whether awaited processes are alive."""
REPORT_TIMEOUT = 5.0
"""Seconds to wait for the reports at the end."""


class ReceivedFrame(NamedTuple):
    """A frame from a robot."""

    number: int
    kind: int
    step: int
    content: bytes


class RobotProcesses:
    """The robot processes of a swarm, one per robot. A context manager, so that no process is left after an error.

    Entering starts the processes and waits until all are ready. Leaving collects their reports, except after an
    exception, and ends them. `settings` are those of each robot by number, without those of the link (see
    `swarm.build_robot_settings`), `port` is a port of 127.0.0.1, or 0 for any free one, and timeouts are in seconds.
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
        """Reason by robot whose process has ended."""
        self.late_robots: set[int] = set()
        """Robots that did not answer in time; the host does not wait for them until they do."""
        self.reports: dict[int, RobotReport] = {}
        self.unparsed_reports: set[int] = set()
        """Robots whose report could not be parsed."""
        self._inbox: queue.SimpleQueue[ReceivedFrame] = queue.SimpleQueue()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._stderr_files: dict[int, Any] = {}
        self._key_prefix = f"equiflock/{secrets.token_hex(4)}"
        run_key = secrets.token_bytes(32)
        self._keys = {number: derive_keys(run_key, number) for number in settings}
        self._signers = {number: FrameSigner(keys.to_robot) for number, keys in self._keys.items()}
        self._verifiers = {number: FrameVerifier(keys.to_host) for number, keys in self._keys.items()}
        self._unknown_senders = 0
        self._settings = settings
        self._robots_by_key = {str(number): number for number in settings}
        self._port = port
        self._startup_timeout = STARTUP_TIMEOUT + len(settings) if startup_timeout is None else startup_timeout

    def __enter__(self) -> RobotProcesses:
        try:
            self._open_session()
            for number, settings in self._settings.items():
                self._start_process(number, settings)
            self._wait_for_hello()
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
        """Robots that are not in `lost_robots`."""
        return set(self._processes) - set(self.lost_robots)

    def count_rejected_frames(self) -> Counter[str]:
        """Return the number of frames that host and robots rejected as not authentic or not new, by reason.

        Of the robots those count that sent a valid report.
        """
        rejected = Counter({"unknown sender": self._unknown_senders})
        for verifier in self._verifiers.values():
            rejected.update(verifier.rejected)
        for report in self.reports.values():
            rejected.update(report.rejected)
        return +rejected

    def send(self, frames: Mapping[int, bytes]) -> dict[int, bytes]:
        """Sign and send frames, given by robot, except to lost and late robots. Return the frames that were sent."""
        sent = {n: frame for n, frame in frames.items() if n not in self.lost_robots and n not in self.late_robots}
        for number, frame in sent.items():
            self._publishers[number].put(self._signers[number].sign(frame))
        return sent

    def gather(self, kind: int, step: int, robots: Iterable[int]) -> dict[int, bytes]:
        """Wait for a frame of this kind and step from each of `robots`. Return the contents that arrived, by robot.

        Robots that do not answer within `answer_timeout` become late.
        """
        awaited = set(robots) - self.late_robots
        contents = self._wait_for(kind, step, awaited, self.answer_timeout)
        self.late_robots |= awaited - set(contents) - set(self.lost_robots)
        return contents

    def _wait_for(self, kind: int, step: int | None, robots: set[int], timeout: float) -> dict[int, bytes]:
        """Return the contents of frames of this kind, and of this step or any, by robot; discard other frames.

        Wait for all of `robots` that are not lost, at most `timeout` seconds. A lost robot ends the wait for HELLO.
        """
        contents: dict[int, bytes] = {}
        deadline = time.monotonic() + timeout
        while robots - set(contents) - set(self.lost_robots) and not (kind == HELLO and self.lost_robots):
            frame = self.next_frame(POLL_INTERVAL)
            if frame is None:
                self.poll_processes()
                if time.monotonic() > deadline:
                    break
            elif frame.kind == kind and step in (None, frame.step):
                contents[frame.number] = frame.content
        return contents

    def next_frame(self, seconds: float) -> ReceivedFrame | None:
        """Return the next frame of any robot, which is then no longer late; None if none arrives within `seconds`."""
        try:
            frame = self._inbox.get(timeout=seconds) if seconds > 0 else self._inbox.get_nowait()
        except queue.Empty:
            return None
        self.late_robots.discard(frame.number)
        return frame

    def readmit_late_robots(self) -> None:
        """Discard all waiting frames between two steps in lockstep; late robots that sent one are no longer late.

        If all robots are late, wait until one of them sends a frame, at most `answer_timeout` seconds.
        """
        deadline = time.monotonic() + self.answer_timeout
        while True:
            robots = self.active_robots
            all_late = bool(robots) and robots <= self.late_robots and time.monotonic() < deadline
            if self.next_frame(POLL_INTERVAL if all_late else 0.0) is None and not all_late:
                return
            if all_late:
                self.poll_processes()

    def poll_processes(self) -> None:
        """Add robots whose processes have ended to `lost_robots`, with the signal, or code and last line of stderr."""
        for number in self.active_robots:
            code = self._processes[number].poll()
            if code is not None:
                self.lost_robots[number] = (
                    signal.Signals(-code).name if code < 0 else f"code {code}{self._read_last_error_line(number)}"
                )

    def kill(self, number: int) -> None:
        """Kill a robot's process, wait until it has ended, and add the robot to `lost_robots`."""
        self._processes[number].kill()
        self._processes[number].wait()
        self.lost_robots[number] = signal.Signals.SIGKILL.name

    def stall(self, number: int, seconds: float) -> None:
        """Stop a robot's process and return at once; a thread continues the process after `seconds`."""
        process = self._processes[number]
        process.send_signal(signal.SIGSTOP)
        timer = threading.Timer(seconds, process.send_signal, [signal.SIGCONT])
        timer.daemon = True
        timer.start()

    def _open_session(self) -> None:
        """Open the host's session and a publisher for each robot.

        Raise InputError if zenoh is not installed or the port cannot be used.
        """
        require_modules("deploy", "a swarm", "zenoh")
        import zenoh

        port = _find_free_port(self._port)
        self._endpoint = f"tcp/127.0.0.1:{port}"
        try:
            self._session = open_session("listen", self._endpoint)
        except zenoh.ZError as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"cannot listen on port {port} of 127.0.0.1: {reason}") from None
        self._session.declare_subscriber(f"{self._key_prefix}/from/*", self._on_sample)
        self._publishers = {
            number: declare_publisher(self._session, f"{self._key_prefix}/to/{number}") for number in self._settings
        }

    def _on_sample(self, sample: Any) -> None:
        """Put a robot's frame into the inbox; ignore and count frames that are not authentic.

        zenoh calls this in its own threads.
        """
        # The zenoh key identifies the robot, not the sender in a message.
        number = self._robots_by_key.get(str(sample.key_expr).rpartition("/")[2])
        if number is None:
            self._unknown_senders += 1
        elif (frame := self._verifiers[number].verify(sample.payload.to_bytes())) is not None:
            self._inbox.put(ReceivedFrame(number, *unpack_frame(frame)))

    def _start_process(self, number: int, settings: dict[str, Any]) -> None:
        """Start a robot, and write its settings and keys to its standard input, which stays open, as a line of JSON.

        Unlike arguments and environment variables, other users cannot read them there.
        """
        # By default numerical libraries start a thread per core in every process.
        one_thread = dict.fromkeys((f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")), "1")
        stderr = self._stderr_files[number] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in _close
        process = subprocess.Popen(
            # -P: the user's PYTHONPATH applies, but not the current directory.
            [sys.executable, "-P", "-c", ROBOT_CODE, str(PACKAGE)],
            stdin=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, **one_thread},
        )
        self._processes[number] = process
        link = {
            "number": number,
            "key_prefix": self._key_prefix,
            "endpoint": self._endpoint,
            "key_to_robot": self._keys[number].to_robot.hex(),
            "key_to_host": self._keys[number].to_host.hex(),
        }
        assert process.stdin is not None
        process.stdin.write(json.dumps({**settings, **link}).encode() + b"\n")
        process.stdin.flush()

    def _wait_for_hello(self) -> None:
        """Wait for HELLO from all robots. Raise InputError if a process ends or the startup timeout passes first."""
        robots = set(self._processes)
        missing = robots - set(self._wait_for(HELLO, None, robots, self._startup_timeout))
        for number, reason in self.lost_robots.items():
            raise InputError(f"agent {number} ended before the flight began: {reason}")
        if missing:
            numbers = ", ".join(map(str, sorted(missing)))
            raise InputError(
                f"{len(missing)} of {len(robots)} agents did not answer within {self._startup_timeout:g} s: {numbers}"
            )

    def _collect_reports(self) -> None:
        """Send END to all active robots, late ones included, and wait at most REPORT_TIMEOUT seconds for reports."""
        self.poll_processes()
        self.late_robots.clear()
        self.send({number: pack_frame(END) for number in self.active_robots})
        for number, content in self._wait_for(REPORT, None, self.active_robots, REPORT_TIMEOUT).items():
            report = parse_report(content)
            if report is None:
                self.unparsed_reports.add(number)
            else:
                self.reports[number] = report

    def _close(self) -> None:
        """Close the standard input of all processes, kill those that do not exit within 1 s, and close the session."""
        for process in self._processes.values():
            if process.stdin is not None and not process.stdin.closed:
                # The process may have ended before it read its settings.
                with suppress(BrokenPipeError):
                    process.stdin.close()
        deadline = time.monotonic() + 1.0
        for process in self._processes.values():
            try:
                process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for stderr in self._stderr_files.values():
            stderr.close()
        if hasattr(self, "_session"):
            self._session.close()

    def _read_last_error_line(self, number: int) -> str:
        """Return the last line of a process's stderr, after a comma, or an empty string."""
        self._stderr_files[number].seek(0)
        lines = self._stderr_files[number].read().decode(errors="replace").strip().splitlines()
        return f", {lines[-1]}" if lines else ""


def _find_free_port(port: int) -> int:
    """Return `port`, or a free port of 127.0.0.1 if it is 0. Raise InputError if it is out of range or in use."""
    if not 0 <= port <= 65535:
        raise InputError(f"port must be from 1 to 65535, or 0 for any free port, got {port}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise InputError(
                f"port {port} of 127.0.0.1 is in use: choose another one, or --port 0 for any free port"
            ) from None
        return int(probe.getsockname()[1])
