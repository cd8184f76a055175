"""Messages to the server of the live page: malformed, extreme and huge ones, and settings at the limits.

A server process receives them one after the other. The answer to nonsense must be a refusal. After every message the
server must run, must have written no traceback, must not have used more than MAX_BYTES, and must answer another page.
"""

from __future__ import annotations

import json
import logging
import math
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, get_args

import psutil
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from equiflock.bodies import body_names
from equiflock.controllers import controller_names
from equiflock.controllers.registry import controller_options
from equiflock.scenarios import make_scenario, scenario_names
from equiflock.scenarios.registry import collect_options
from equiflock.simulation.failures import FailureKind
from equiflock.viewer.protocol import MAX_REQUEST_BYTES
from tests.attacks import Attempt

MAX_BYTES = 1536 * 2**20
"""Largest resident memory of the server."""
ADDRESS_BYTES = 12 * 2**30
"""Address space of the server, which protects the machine from the attack."""
PATIENCE = 20.0
"""Seconds within which another page gets its flight."""
ANSWER_SECONDS = 120.0
"""Seconds within which a message is answered: laws that sum over all pairs of 10,000 agents take seconds."""
SEARCH_SECONDS = 5.0
"""Seconds after which a search for initial conditions, which may take long, is cancelled."""

MANY_DIGITS = "MANY DIGITS"
"""Stands for an integer that Python refuses to convert to text."""
NONSENSE_NUMBERS = (math.nan, math.inf, -math.inf, 1e300, -1e300, 10**30, -(10**30), 10**400, MANY_DIGITS)
"""Numbers that no field allows."""
EXTREME_NUMBERS = (0, 1, -1, 3, 100, 10_000, 0.0, 5e-324, 1e-300, 1e-160, 1e-9, 1e-6, 1e-3, 0.1, 1.0, 3.0, 1e3, 1e6)
"""Numbers, each of which some field allows."""


LAW_OPTIONS = "clamp", "hops", "beta", "spacing", "seed", "hold", "strength"

# Tracebacks of the client are about connections that the server closes.
logging.getLogger("websockets.client").setLevel(logging.CRITICAL + 1)


class Message(NamedTuple):
    """One message to the server."""

    content: str | bytes
    is_nonsense: bool
    """Whether it must be refused."""

    def __str__(self) -> str:
        return f"{self.content!r:.300}"


class Server:
    """A server process with a page that sends the messages."""

    def __init__(self, folder: Path) -> None:
        self.errors: IO[str] = (folder / "errors.txt").open("w+")
        arguments = [sys.executable, "-m", "equiflock", "view", "--port", "0", "--no-browser", "--out", str(folder)]
        self.process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=self.errors, text=True, preexec_fn=_limit_address_space
        )
        assert self.process.stdout is not None
        # "live view at http://127.0.0.1:PORT/ (Ctrl-C to stop)"
        line = self.process.stdout.readline()
        assert "http://" in line, f"the server did not start: {line}"
        self.address = line.split()[3].removeprefix("http://").rstrip("/")
        self._exit_stack = ExitStack()
        self.page = self._exit_stack.enter_context(self.open_page())

    @contextmanager
    def open_page(self) -> Iterator[ClientConnection]:
        """Connect as a page does, and read the welcome message."""
        origin = Origin(f"http://{self.address}")
        with connect(f"ws://{self.address}/flight", origin=origin, max_size=None, compression=None) as page:
            page.recv(timeout=PATIENCE)
            yield page

    def send(self, message: Message) -> str:
        """Send a message and return the fault of the server's reaction, or ""."""
        try:
            answer = self._ask(message)
            self._check_other_page()
        except OSError:  # such as TimeoutError
            return "crash" if self.process.poll() is not None else "hang"
        self.errors.seek(0)
        if "Traceback" in self.errors.read():
            return "traceback"
        if self._read_peak_bytes() > MAX_BYTES:
            return "memory"
        return "silent" if message.is_nonsense and answer not in ("refused", "closed") else ""

    def _ask(self, message: Message) -> str:
        """Return the event of the answer to a message, "frame", or "closed" if the server closes the connection."""
        try:
            self.page.send(message.content)
            try:
                return self._read_answer(SEARCH_SECONDS)
            except TimeoutError:
                self.page.send(json.dumps({"command": "cancel"}))
            answer = self._read_answer(ANSWER_SECONDS)
            self._read_answer(ANSWER_SECONDS)  # of the cancellation
            return answer
        except ConnectionClosed:
            self.page = self._exit_stack.enter_context(self.open_page())
            return "closed"

    def _read_answer(self, timeout: float) -> str:
        """Return the event of the next answer; events without a request are skipped."""
        while True:
            answer = self.page.recv(timeout=timeout)
            event = "frame" if isinstance(answer, bytes) else str(json.loads(answer)["event"])
            if event not in ("compiling", "working", "save_progress", "saved", "save_failed"):
                return event

    def _check_other_page(self) -> None:
        """Raise TimeoutError if another page is not answered."""
        with self.open_page() as page:
            page.send(json.dumps({"command": "start", "setting": {"controller": "tanner", "agents": 10}}))
            while json.loads(page.recv(timeout=PATIENCE))["event"] in ("compiling", "working"):
                pass

    def _read_peak_bytes(self) -> int:
        """Return the largest resident memory so far, or the present one on systems that do not count it."""
        status = Path(f"/proc/{self.process.pid}/status")
        if not status.exists():
            return int(psutil.Process(self.process.pid).memory_info().rss)
        return next(1024 * int(line.split()[1]) for line in status.read_text().splitlines() if "VmHWM" in line)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        self._exit_stack.close()
        self.errors.close()
        assert self.process.stdout is not None
        self.process.stdout.close()


def _limit_address_space() -> None:
    """Let allocations beyond ADDRESS_BYTES fail."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))


def attack(count: int, seed: int) -> Iterator[Attempt]:
    """Send `count` messages; after a fault the next one goes to a new server."""
    rng = random.Random(seed)
    server: Server | None = None
    with tempfile.TemporaryDirectory() as folder:
        try:
            for number in range(count):
                if server is None:
                    (scratch := Path(folder) / str(number)).mkdir()
                    server = Server(scratch)
                message = make_message(rng)
                fault = server.send(message)
                yield Attempt(str(message), fault)
                if fault:
                    server.close()
                    server = None
        finally:
            if server is not None:
                server.close()


def make_message(rng: random.Random) -> Message:
    """Return a random message: nonsense, or a start with on average three changes of the flight after it."""
    if rng.random() < 0.4:
        return Message(rng.choice(NONSENSE)(rng), True)
    return Message(json.dumps(_make_valid(rng)), False)


def make_bomb(rng: random.Random) -> dict[str, Any]:
    """Return a request for a flight in which a number of few digits decides how much memory or time is needed."""
    disk, tiny = {"x": 50.0, "y": 50.0, "radius": 5.0}, 10.0 ** -rng.randrange(3, 13)
    dense = {"disk_radius": rng.choice((0.3, 5e-324)), "min_separation": 0.0}
    settings: list[dict[str, Any]] = [
        {"agents": 10, "disks": [disk] * rng.choice((1, 20)), "options": {"min_separation": tiny}},
        {"agents": 10, "options": {"min_separation": tiny, "disk_radius": 1.0}},
        {"scenario": "goal", "controller": "gu-leader", "controller_options": {"hops": 10 ** rng.randrange(1, 7)}},
        {"agents": 10_000, "controller": rng.choice(("tanner-fixed", "etdagnn", "tdagnn-tf")), "options": dense},
        {"agents": 10_000, "options": dense, "environment": {"noise": 0.1, "delay": rng.choice((0, 10))}},
        {"scenario": "corridor", "options": {"disks": 10_000, "sides": rng.choice((3, 100, 10_000))}},
        {"scenario": "corridor", "agents": 10, "options": {"disks": 9999, "sides": 10_000, "min_separation": tiny}},
        {"scenario": "corridor", "agents": 10_000, "options": {"disks": 10_000, "leaders": 10_000}},
        {"scenario": "obstacles", "options": {"sides": 10_000, "min_separation": tiny}},
    ]
    return {"command": "start", "setting": rng.choice(settings)}


def make_start(rng: random.Random) -> dict[str, Any]:
    """Return a request for a flight with valid names, and numbers that may be at or beyond the limits."""
    scenario, controllers = rng.choice(scenario_names()), rng.choices(controller_names(), k=2)
    law_options = {each.name: each.default for each in controller_options(controllers[0])}
    setting: dict[str, Any] = {
        "scenario": scenario,
        "agents": rng.choice((3, 10, 100, 1000, 10_000)),
        "seed": rng.choice((0, 2**31)),
        "controller": controllers[0],
        "options": _choose_options(rng, collect_options(make_scenario(scenario))),
        "controller_options": _choose_options(rng, law_options),
    }
    if rng.random() < 0.3:
        setting["compare"] = controllers[1]
    if rng.random() < 0.5:
        setting["disks"] = [_make_disk(rng) for _ in range(rng.choice((1, 2, 20)))]
    if rng.random() < 0.5:
        setting["environment"] = _make_environment(rng)
    if rng.random() < 0.5:
        setting["comm_radius"] = rng.choice((0.1, 1.0, 3.0))
        setting["radius_rule"] = rng.choice(("automatic", "quarter-power", "constant-density"))
        setting["time_step"] = rng.choice((1e-4, 0.01, 0.1))
    return {"command": "start", "setting": setting}


def _choose_options(rng: random.Random, defaults: dict[str, Any]) -> dict[str, Any]:
    """Return extreme values for up to two of the options that are numbers or None."""
    fields = "flocks", "agents", "seed", "comm_radius", "radius_rule"
    names = [
        name
        for name, default in defaults.items()
        if name not in fields and isinstance(default, int | float | None) and not isinstance(default, bool)
    ]
    chosen = rng.sample(names, min(rng.randrange(3), len(names)))
    return {
        name: int(value) if isinstance(defaults[name], int) else value
        for name, value in zip(chosen, rng.choices(EXTREME_NUMBERS, k=len(chosen)), strict=True)
    }


def _make_disk(rng: random.Random) -> dict[str, float]:
    x, y = rng.choice((0.0, 5.0, 1e6)), rng.choice((0.0, -5.0, -1e6))
    return {"x": x, "y": y, "radius": rng.choice((0.05, 1.0, 5.0))}


def _make_environment(rng: random.Random) -> dict[str, Any]:
    environment = {
        "packet_loss": rng.choice((0.0, 0.5, 1.0)),
        "delay": rng.choice((0, 1, 10)),
        "noise": rng.choice((0.0, 1.0)),
        "body": rng.choice(body_names()),
        "max_acceleration": rng.choice((0.01, 1.0, 1e6)),
    }
    return {name: environment[name] for name in rng.sample(list(environment), 3)}


def make_action(rng: random.Random) -> dict[str, Any]:
    """Return a valid request that concerns a flight."""
    actions: list[dict[str, Any]] = [
        {"command": "advance", "steps": rng.choice((0, 1, 1000))},
        {"command": "show_edges", "edges": rng.random() < 0.8},
        {"command": "show_edges", "edges": True},
        {"command": "steer", "velocity": [rng.choice((-10.0, 0.0, 10.0)), 0.0]},
        {"command": "toggle_leader", "agent": rng.choice((0, 5, 10**9))},
        {"command": "remove_agents", "positions": [[0.0, 0.0]] * 100, "reach": rng.choice((1e-300, 1.0, 1e6))},
        {"command": "add_disk", "disk": _make_disk(rng)},
        {"command": "add_disk", "disk": _make_disk(rng)},
        {"command": "move_disk", "index": rng.choice((0, 19, 10**9)), "position": [rng.choice((-1e6, 0.0, 1e6)), 0.0]},
        {"command": "remove_disk", "index": rng.choice((0, 10**9))},
        {"command": "set_orbit", "active": rng.random() < 0.5},
        {"command": "change_environment", "environment": _make_environment(rng)},
        {"command": "change_law", "options": {rng.choice(LAW_OPTIONS): rng.choice(EXTREME_NUMBERS)}},
        {"command": "fail_agents", "kind": rng.choice(get_args(FailureKind)), "agents": rng.choice((1, 10_000))},
        {"command": "repair_agents"},
        {"command": "scatter"},
        {"command": "watch", rng.choice(("agent", "id")): rng.choice((0, 5, 9_999, 10**9))},
        {"command": "watch", "agent": rng.randrange(3)},
        {"command": "seek", "frame": 10**9},
        {"command": "play", "flock": 10**9},
        {"command": "cancel"},
    ]
    if rng.random() < 0.02:  # saving takes seconds
        return {"command": "save", "speed": rng.choice((0.01, 10.0))}
    return rng.choice(actions)


def _make_valid(rng: random.Random) -> dict[str, Any]:
    return rng.choice((make_start, make_bomb, *[make_action] * 6))(rng)


def _make_random_text(rng: random.Random) -> str:
    return "".join(chr(rng.randrange(32, 0x3000)) for _ in range(rng.choice((0, 1, 10, 1000))))


def _make_random_bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 100, 10_000)))


def _make_binary_request(rng: random.Random) -> bytes:
    """Return a valid request as a binary message, which the protocol does not allow."""
    return json.dumps(_make_valid(rng)).encode()


def _cut(rng: random.Random) -> str:
    text = json.dumps(_make_valid(rng))
    return text[: rng.randrange(len(text))]


def _replace_value(rng: random.Random) -> str:
    """Return a request with a value of a wrong type, or a number that no field allows."""
    request = _make_valid(rng)
    owner = request
    while True:
        name = rng.choice(list(owner))
        if isinstance(owner[name], dict) and owner[name]:
            owner = owner[name]
            continue
        owner[name] = rng.choice(([[]], [None], {"": [{}]}, *NONSENSE_NUMBERS))
        return json.dumps(request).replace(f'"{MANY_DIGITS}"', "9" * 5000)


def _add_field(rng: random.Random) -> str:
    request = _make_valid(rng)
    rng.choice([request, *(value for value in request.values() if isinstance(value, dict))])["nosuch"] = 1
    return json.dumps(request)


def _misname(rng: random.Random) -> str:
    """Return a request with a name that does not exist, which may be long."""
    names = "nosuch", "", "\0", "../../passwd", "tanner" * 100, "x" * 900, "tanner:clamp=", "a=b:" * 100
    name = rng.choice((*names, "flocking:agents=100000000"))  # fields of the setting are bounded, those in a name not
    field = rng.choice(("command", "scenario", "controller", "compare", "option", "law option"))
    setting: dict[str, Any] = {"agents": 10}
    if field == "command":
        return json.dumps({"command": name})
    if field == "option":
        setting["options"] = {name: 1}
    elif field == "law option":
        setting |= {"controller": "tanner", "controller_options": {name: 1}}
    else:
        setting[field] = name
    return json.dumps({"command": "start", "setting": setting})


def _make_huge_text(rng: random.Random) -> str:
    size = rng.choice((MAX_REQUEST_BYTES - 200, MAX_REQUEST_BYTES, 10**6, 10**7))
    return json.dumps({"command": "start", "setting": {"scenario": "x" * size}})


def _nest(rng: random.Random) -> str:
    depth = rng.choice((10, 1000, 7000))
    inner = rng.choice(("[" * depth + "]" * depth, '{"a":' * (depth // 3) + "1" + "}" * (depth // 3)))
    return rng.choice((inner, f'{{"command": "start", "setting": {{"options": {{"hold": {inner}}}}}}}'))


NONSENSE = (
    _make_random_text,
    _make_random_bytes,
    _make_binary_request,
    _cut,
    _replace_value,
    _replace_value,
    _add_field,
    _misname,
    _make_huge_text,
    _nest,
)
"""Functions that return messages that must be refused."""
