"""Forged frames in a running swarm, from another process of this machine that knows everything but the keys.

The attacker joins the swarm's network, reads every frame, and sends six kinds of forgeries for the whole flight. The
flight must end as without them: the same positions to the bit, no agent lost, and the rejected frames in the table.
"""

from __future__ import annotations

import hashlib
import json
import queue
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import psutil

from equiflock.deployment.link_frames import COMMAND, END, HELLO, MESSAGE, RADIO_LAST, REPORT, SENSOR, pack_frame
from tests.attacks import Attempt

AGENTS, STEPS = 4, 30
TIMEOUT = 120.0
"""Seconds for a flight, start included."""
BURST_INTERVAL = 0.005
"""Seconds between two bursts of forged frames."""
FLIGHT = """
import sys, time
from equiflock import cli
from equiflock.deployment import swarm

fly_undisturbed, deploy_undisturbed = swarm.Swarm.fly, swarm.deploy

def fly(self, steps, rate, on_step=None):
    print("link", self.processes._endpoint, self.processes._key_prefix, flush=True)
    sys.stdin.readline()  # until the attacker is ready
    def pause(step):
        time.sleep(0.01)  # so that forged frames arrive at every step
        on_step(step)
    fly_undisturbed(self, steps, rate, pause)

def deploy(*arguments, **options):
    result = deploy_undisturbed(*arguments, **options)
    trajectory = b"".join(positions.tobytes() for positions in result.host.position_history)
    print("trajectory", trajectory.hex(), flush=True)
    print("disturbed", len(result.log.lost_robots) + len(result.log.missed_steps), flush=True)
    return result

swarm.Swarm.fly, swarm.deploy = fly, deploy
cli.main(sys.argv[1:])
"""
"""A command that prints how to reach its swarm, waits for a line, and at the end prints the trajectory."""
ARGUMENTS = ("deploy", "--agents", str(AGENTS), "--duration", str(STEPS / 100), "--answer-timeout", "5")


class Outcome(NamedTuple):
    """How a flight ended."""

    code: int
    trajectory: str
    """SHA-256 of the positions at all steps."""
    lost: int
    """Number of agents that were lost or missed steps."""
    rejected: int
    """Number of rejected frames in the table."""
    error: str
    """What the command printed to stderr."""


class Attacker:
    """A stranger in the swarm's network: sessions as client and as peer, to the host and to whatever else listens."""

    def __init__(self, endpoint: str, key_prefix: str, process: int, rng: random.Random) -> None:
        import zenoh

        self.rng, self.key_prefix = rng, key_prefix
        self.overheard: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self.recorded: list[tuple[str, bytes]] = []
        """Frames of host and robots, with their keys."""
        self.step = 0
        self._stack = ExitStack()
        self._sessions = []
        for mode, endpoints in (("client", [endpoint]), ("peer", [endpoint, *_list_listening(process)])):
            config = {"mode": mode, "connect": {"endpoints": endpoints}, "scouting": {"multicast": {"enabled": False}}}
            opened = zenoh.open(zenoh.Config.from_json5(json.dumps(config)))
            self._sessions.append(self._stack.enter_context(opened))
        # One of the sessions listens, so that each frame is recorded once; frames of the attacker are ignored.
        self._own = set[bytes]()
        self._sessions[0].declare_subscriber(f"{key_prefix}/**", self._on_sample)
        self._wait_for_host()

    def __enter__(self) -> Attacker:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def send(self, key: str, data: bytes) -> None:
        """Send data to a key such as `from/3`, by all sessions."""
        self._own.add(hashlib.sha256(data).digest())
        for session in self._sessions:
            session.put(f"{self.key_prefix}/{key}", data)

    def send_frame(self, key: str, kind: int, step: int, content: bytes = b"") -> None:
        """Send a forged frame, both as it is and with a sequence number and a guessed tag."""
        frame = pack_frame(kind, step, content)
        self.send(key, frame)
        self.send(key, frame + struct.pack("<Q", 10**6 + step) + self.rng.randbytes(16))

    def listen(self) -> None:
        """Record what was overheard, and note the current step."""
        while not self.overheard.empty():
            key, data = self.overheard.get()
            self.recorded.append((key, data))
            if data[:1] == bytes([SENSOR]) and len(data) >= 5:
                self.step = max(self.step, struct.unpack_from("<I", data, 1)[0])

    def _on_sample(self, sample: Any) -> None:
        data = sample.payload.to_bytes()
        if hashlib.sha256(data).digest() not in self._own:
            self.overheard.put((str(sample.key_expr).removeprefix(f"{self.key_prefix}/"), data))

    def _wait_for_host(self) -> None:
        """Wait until the host receives what the sessions send."""
        for session in self._sessions:
            publisher: Any = session.declare_publisher(f"{self.key_prefix}/from/0")
            deadline = time.monotonic() + TIMEOUT
            while not publisher.matching_status.matching:
                assert time.monotonic() < deadline, "the attacker does not reach the host"
                time.sleep(0.01)


def forge_commands(attacker: Attacker) -> None:
    """Command huge accelerations in the name of all agents, now and at the next steps."""
    for number in range(AGENTS):
        for step in range(attacker.step, attacker.step + 3):
            attacker.send_frame(f"from/{number}", COMMAND, step, struct.pack("<2f", 1e3, -1e3))


def forge_measurements(attacker: Attacker) -> None:
    """Send all agents false positions and velocities, and messages of neighbours that are not there."""
    for number in range(AGENTS):
        other = (number + 1) % AGENTS
        message = struct.pack("<2sBBII16f", b"EF", 1, 0, other, attacker.step, *[0.1] * 16)
        attacker.send_frame(f"to/{number}", SENSOR, attacker.step + 1, struct.pack("<4f", 50.0, 50.0, 9.0, 9.0))
        attacker.send_frame(
            f"to/{number}", RADIO_LAST, attacker.step + 1, struct.pack("<II", other, len(message)) + message
        )


def forge_control(attacker: Attacker) -> None:
    """Stop all agents in the host's name, and report and greet in theirs."""
    for number in range(AGENTS):
        attacker.send_frame(f"to/{number}", END, 0)
        attacker.send_frame(f"from/{number}", REPORT, attacker.step, b"{}")
        attacker.send_frame(f"from/{number}", HELLO, 0)


def replay_frames(attacker: Attacker) -> None:
    """Send recorded frames again: the newest, and random older ones."""
    attacker.send(f"to/{attacker.rng.randrange(AGENTS)}", b"")  # before anything is recorded
    frames = attacker.recorded[-AGENTS:] + attacker.rng.sample(attacker.recorded, min(len(attacker.recorded), 10))
    for key, data in frames:
        attacker.send(key, data)


def send_as_others(attacker: Attacker) -> None:
    """Send frames of one agent in the name of another, the host's frames to other agents, and both ways reversed."""
    attacker.send_frame("from/0", MESSAGE, attacker.step, b"")
    for key, data in attacker.recorded[-2 * AGENTS :]:
        direction, _, number = key.partition("/")
        other = (int(number) + attacker.rng.randrange(1, AGENTS)) % AGENTS
        attacker.send(f"{direction}/{other}", data)
        attacker.send(f"{'to' if direction == 'from' else 'from'}/{number}", data)


def send_garbage(attacker: Attacker) -> None:
    """Flood all keys, and some that do not exist, with random bytes and with truncated or bit-flipped frames."""
    rng = attacker.rng
    for key in [f"{direction}/{name}" for direction in ("to", "from") for name in (*range(AGENTS), 999, "one")]:
        attacker.send(key, rng.randbytes(rng.choice([0, 1, 4, 5, 23, 24, 25, 100, 10_000])))
    for key, data in attacker.recorded[-AGENTS:]:
        attacker.send(key, data[: rng.randrange(len(data))])
        flipped = bytearray(data)
        flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        attacker.send(key, bytes(flipped))


FORGERIES: tuple[Callable[[Attacker], None], ...] = (
    forge_commands,
    forge_control,
    replay_frames,
    send_garbage,
    forge_measurements,
    send_as_others,
)


def attack(count: int, seed: int) -> Iterator[Attempt]:
    """Yield one flight under attack after the other, each with the next kind of forgery."""
    rng = random.Random(seed)
    undisturbed = fly(None, rng)
    assert undisturbed.code == 0 and not undisturbed.lost, undisturbed
    for attempt in range(count):
        forge = FORGERIES[attempt % len(FORGERIES)]
        try:
            outcome = fly(forge, rng)
        except subprocess.TimeoutExpired:
            yield Attempt(forge.__name__, "hang")
            continue
        yield Attempt(f"{forge.__name__}: {outcome}", find_fault(outcome, undisturbed))


def find_fault(outcome: Outcome, undisturbed: Outcome) -> str:
    """Return the fault of a flight under attack, or an empty string."""
    if "Traceback" in outcome.error:
        return "traceback"
    # A forged report, for example, makes an agent fail without a change of the trajectory.
    if outcome.code != undisturbed.code or outcome.trajectory != undisturbed.trajectory:
        return "obeyed"
    return "silent" if outcome.lost or not outcome.rejected else ""


def fly(forge: Callable[[Attacker], None] | None, rng: random.Random) -> Outcome:
    """Fly a swarm, under attack from its first step to its end unless `forge` is None."""
    command = [sys.executable, "-c", FLIGHT, *ARGUMENTS]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            word, *link = process.stdout.readline().split()
            assert word == "link"
            if forge is None:
                printed, error = process.communicate("go\n", timeout=TIMEOUT)
            else:
                with Attacker(link[0], link[1], process.pid, rng) as attacker:
                    forge(attacker)
                    process.stdin.write("go\n")
                    process.stdin.flush()
                    deadline = time.monotonic() + TIMEOUT
                    while process.poll() is None and time.monotonic() < deadline:
                        attacker.listen()
                        forge(attacker)
                        time.sleep(BURST_INTERVAL)
                printed, error = process.communicate(timeout=TIMEOUT)
        except BaseException:
            process.kill()
            raise
    return _read_outcome(process.returncode, printed, error)


def _read_outcome(code: int, printed: str, error: str) -> Outcome:
    """Return the outcome from what the command printed."""
    rows = dict(line.strip().partition(" ")[::2] for line in printed.splitlines())
    rejected = rows.get("rejected", "").removeprefix("frames").strip().partition(" ")[0].replace(",", "")
    return Outcome(
        code,
        hashlib.sha256(rows.get("trajectory", "").encode()).hexdigest()[:16],
        int(rows.get("disturbed", "0")),
        int(rejected) if rejected.isdecimal() else 0,
        error.strip()[-300:],
    )


def _list_listening(process: int) -> list[str]:
    """Return the endpoints at which the children of a process listen."""
    connections = [each for child in psutil.Process(process).children() for each in child.net_connections("tcp")]
    return [f"tcp/127.0.0.1:{each.laddr.port}" for each in connections if each.status == psutil.CONN_LISTEN]
