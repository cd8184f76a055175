"""The process of one robot. Its only inputs are its own measurements and the messages that it receives.

It reads its settings, a line of JSON with the keys of its link, from standard input, and exits when standard input is
closed: a robot does not outlive its host. It rejects frames that its host did not sign. It imports no kernels unless
the agent kind is "package".
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import os
import queue
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from equiflock.deployment.exported_agents import Agent, build_agent_factory, restart_agent
from equiflock.deployment.frame_authentication import FrameSigner, FrameVerifier
from equiflock.deployment.link_frames import (
    COMMAND,
    COMPACT_VERSION,
    END,
    HELLO,
    MESSAGE,
    MESSAGE_HEADER,
    RADIO,
    RADIO_LAST,
    REPORT,
    SENSOR,
    RobotReport,
    declare_publisher,
    open_session,
    pack_floats,
    pack_frame,
    read_sender,
    unpack_floats,
    unpack_frame,
    unpack_messages,
)

HELLO_INTERVAL = 0.1
"""Seconds between two HELLO frames, until the host answers."""
PR_SET_PDEATHSIG = 1
"""Option of Linux's prctl: the signal that a process gets when its parent ends."""


class Inbox:
    """Messages that a robot has received; it uses them for `last_known` steps after their arrival."""

    def __init__(self, last_known: int) -> None:
        self.last_known = last_known
        self.dropped: Counter[str] = Counter()
        self.ages: Counter[int] = Counter()
        self._messages: dict[int, list[tuple[int, int, bytes]]] = {}

    def add(self, link: int, message: bytes, step: int) -> None:
        """Store a message that arrived at `step` on a link; drop and count it if the link is not its sender's number.

        Messages that are too short are stored; the agent drops them.
        """
        sender, sent = read_sender(message, step) or (link, step)
        if sender != link:
            self.dropped["sender does not match the link"] += 1
            return
        self._messages.setdefault(link, []).append((sent, step, message))

    def deliver(self, agent: Agent, step: int) -> None:
        """Pass the agent, for each sender, the newest message that it accepts.

        Remove messages that are too old, and those that the agent drops, which are counted by reason.
        """
        for link, messages in list(self._messages.items()):
            fresh = sorted((each for each in messages if step - each[1] <= self.last_known), reverse=True)
            while fresh and (reason := agent.receive(fresh[0][2])) is not None:
                self.dropped[reason] += 1
                fresh.pop(0)
            if fresh:
                self.ages[step - fresh[0][0]] += 1
            self._messages[link] = fresh


class Robot:
    """A robot: its agent, its inbox and its link to the host."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings, self.number = settings, settings["number"]
        self.make_agent = build_agent_factory(settings["kind"], settings["program"], settings["agent"])
        self.agent, self.inbox = self.make_agent(), Inbox(settings["last_known"])
        self.step = -1
        self.is_step_open = False
        """Whether a step has begun and not ended."""
        self.seconds: list[float] = []
        """Computing time of each step."""
        self.received_sha256 = hashlib.sha256()
        """Of all accepted frames except END."""
        self.signer = FrameSigner(bytes.fromhex(settings["key_to_host"]))
        self.verifier = FrameVerifier(bytes.fromhex(settings["key_to_robot"]))
        self.frame_queue: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def run(self) -> None:
        """Send HELLO until the host answers, fly until it sends END, and wait to be ended. Never returns."""
        key_prefix = self.settings["key_prefix"]
        with open_session("connect", self.settings["endpoint"]) as session:
            self.publisher = declare_publisher(session, f"{key_prefix}/from/{self.number}")
            session.declare_subscriber(f"{key_prefix}/to/{self.number}", self.on_sample)
            data = None
            while data is None:
                self.send(pack_frame(HELLO))
                with suppress(queue.Empty):
                    data = self.frame_queue.get(timeout=HELLO_INTERVAL)
            flying = self.handle_frame(data)
            while flying and ((data := self.next_frame()) is None or self.handle_frame(data)):
                # In real time the robot's clock ends a step.
                if data is None:
                    self.end()
            # The host closes standard input, which ends this process, when it has the report.
            threading.Event().wait()

    def on_sample(self, sample: Any) -> None:
        """Put a frame of the host into the queue. zenoh calls this in its own threads."""
        frame = self.verifier.verify(sample.payload.to_bytes())
        if frame is not None:
            self.frame_queue.put(frame)

    def send(self, frame: bytes) -> None:
        """Sign a frame and send it to the host."""
        self.publisher.put(self.signer.sign(frame))

    def handle_frame(self, data: bytes) -> bool:
        """Process a frame. Return False for END, which is answered with the report, else True.

        A SENSOR frame begins a step, and ends the one before if it is open; RADIO_LAST ends the step.
        """
        kind, step, content = unpack_frame(data)
        if kind != END:
            self.received_sha256.update(data)
        if kind == SENSOR:
            if self.is_step_open:
                self.end()
            self.begin(step, unpack_floats(content))
        elif kind in (RADIO, RADIO_LAST):
            for link, message in unpack_messages(content):
                self.inbox.add(link, message, self.step if self.is_step_open else self.step + 1)
            if kind == RADIO_LAST and self.is_step_open:
                self.end()
        elif kind == END:
            self.send(pack_frame(REPORT, max(self.step, 0), self.make_report().to_json()))
            return False
        return True

    def begin(self, step: int, measured: Any) -> None:
        """Begin a step: pass the agent its measured position and velocity (2 D numbers), and send its message."""
        began = time.perf_counter()
        # After a gap the observations are too old.
        if step != self.step + 1:
            self.agent = restart_agent(self.agent, self.make_agent, step)
        self.step = self.agent.step = step
        half = len(measured) // 2
        message = self.agent.begin(measured[:half], measured[half:])
        self.deadline, self.is_step_open = began + self.settings["listen_seconds"], True
        self.seconds.append(time.perf_counter() - began)
        if 0 <= self.settings["garbage_start_step"] <= step:
            message = corrupt_message(message, step)
        self.send(pack_frame(MESSAGE, step, message))

    def end(self) -> None:
        """End the step: pass the agent its messages, and send its acceleration."""
        began = time.perf_counter()
        self.inbox.deliver(self.agent, self.step)
        acceleration = self.agent.end()
        self.is_step_open = False
        self.seconds[-1] += time.perf_counter() - began
        self.send(pack_frame(COMMAND, self.step, pack_floats(acceleration)))

    def make_report(self) -> RobotReport:
        """Return the statistics of the flight."""
        return RobotReport(
            dropped=dict(self.inbox.dropped),
            rejected=dict(self.verifier.rejected),
            ages={str(age): count for age, count in self.inbox.ages.items()},
            seconds=sorted(self.seconds),
            peak_memory_kib=_read_peak_memory_kib(),
            received_sha256=self.received_sha256.hexdigest(),
        )

    def next_frame(self) -> bytes | None:
        """Return the next frame, or None if the deadline of a step in real time passes first."""
        wait = None
        if self.is_step_open and self.settings["listen_seconds"]:
            wait = max(self.deadline - time.perf_counter(), 0.0)
        try:
            return self.frame_queue.get(timeout=wait)
        except queue.Empty:
            return None


def _read_peak_memory_kib() -> int:
    """Return the peak memory of this process; 0 if the system does not report it."""
    # Not with getrusage, whose peak includes the process that this one was forked from.
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def corrupt_message(message: bytes, step: int) -> bytes:
    """Return what a broken robot sends: by turns half of the bytes, NaN values, or the next robot's number."""
    if step % 3 == 0:
        return message[: len(message) // 2]
    # A compact message has a byte after its 16-bit sender and step that is valid in some messages only.
    kept, end = (8, 6) if message[2] == COMPACT_VERSION else (MESSAGE_HEADER.size, 8)
    if step % 3 == 1:
        return message[:kept] + b"\xff" * (len(message) - kept)
    sender = int.from_bytes(message[4:end], "little") + 1
    return message[:4] + sender.to_bytes(end - 4, "little") + message[end:]


def _end_with_parent() -> None:
    """Exit when standard input is closed; on Linux also when the host is killed, even while stopped by SIGSTOP."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        # Not with sys.stdin, whose lock the interpreter needs at exit.
        while os.read(0, 1):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Run a robot with the settings in the first line of standard input."""
    # Ctrl-C in a terminal reaches all processes; the host handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = json.loads(sys.stdin.buffer.readline())
    _end_with_parent()
    if settings.get("plugin"):
        _import_plugin(settings["plugin"])
    Robot(settings).run()


def _import_plugin(plugin: str) -> None:
    """Import the user's module or .py file that registers a controller; its directory is put first in `sys.path`."""
    path = Path(plugin)
    sys.path.insert(0, str((path.parent if path.suffix == ".py" else Path()).resolve()))
    importlib.import_module(path.stem if path.suffix == ".py" else plugin)
