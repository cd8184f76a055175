"""What small messages cost a flock: flights of exported C agents under each message format, on the same random flocks.

Agents are compiled and called in this process; they receive from the agents within R, and each packet is lost with a
given probability. The table has medians over flocks of the variance of velocities and of the mean acceleration in the
last half second, and the share of flocks that end disconnected, with 95% intervals.

python benchmarks/messages.py              # all controllers, 24 flocks
python benchmarks/messages.py --quick      # 6 flocks of 12 agents
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import equiflock as ef
from equiflock.controllers.gain_schedule import get_gain_schedule
from equiflock.simulation.metrics import component_count, velocity_variance
from equiflock.statistics import estimate, estimate_flock_share

SEED, SECONDS, LAST_SECONDS = 2026, 2.0, 0.5
PACKET_LOSS = 0.1
FLOCK_SOURCE = """#include "{header}"
size_t agent_size(void) {{ return sizeof(agent_agent); }}
void init(agent_agent *agents, float period)
{{ for (uint32_t i = 0; i < {agents}; i++) {{ (void)period; agent_init(&agents[i], i, 0{period}); }} }}
/* All send, all receive the packets that arrive, all act. */
void step(agent_agent *agents, const float *positions, const float *velocities, const int64_t *starts,
          const int64_t *senders, const uint8_t *arrives, float *accelerations)
{{
    static uint8_t messages[{agents}][{packets} * AGENT_MESSAGE];
    for (int i = 0; i < {agents}; i++)
        agent_begin(&agents[i], positions + i * AGENT_D, velocities + i * AGENT_D, messages[i]);
    for (int i = 0; i < {agents}; i++) {{
        for (int64_t link = starts[i]; link < starts[i + 1]; link++)
            for (int n = 0; n < {packets}; n++)
                if (arrives[link * {packets} + n])
                    agent_receive(&agents[i], messages[senders[link]] + n * AGENT_MESSAGE, AGENT_MESSAGE);
        agent_end(&agents[i], accelerations + i * AGENT_D);
    }}
}}
"""
"""Source of a shared library that flies one flock."""


@dataclass(frozen=True)
class Setting:
    """Flocks of one size under one controller."""

    controller: str
    time_step: float
    agents: int
    dimensions: int = 2


@dataclass(frozen=True)
class Format:
    """A message format and a radio."""

    name: str
    options: Mapping[str, int] = field(default_factory=dict)
    """Options of `equiflock.export`."""
    packet_loss: float = 0.0


SETTINGS = (
    Setting("etdagnn", 0.002, 12),
    Setting("etdagnn", 0.002, 50),
    Setting("starling", 0.02, 12),
    Setting("starling", 0.02, 50),
    Setting("starling", 0.02, 50, dimensions=3),
)


def list_formats(setting: Setting) -> list[Format]:
    """Return the formats to compare: float32, compact, fewer hops, and compact in packets that may be lost."""
    bytes_of_state = 10 + 4 * setting.dimensions
    per_hop = 2 * setting.dimensions * ef.load(setting.controller).senses.width
    whole, half = (
        bytes_of_state + 2 * per_hop,
        10 + 2 * setting.dimensions + -(-(bytes_of_state - 10 + 2 * per_hop) // 2),
    )
    return [
        Format("float32"),
        Format("compact", {"message_bytes": whole}),
        Format("compact, 1 hop relayed", {"message_bytes": whole, "relayed_hops": 1}),
        Format("compact, no hop relayed", {"message_bytes": whole, "relayed_hops": 0}),
        Format("float32, 10% lost", packet_loss=PACKET_LOSS),
        Format("compact, 10% lost", {"message_bytes": whole}, PACKET_LOSS),
        Format("compact in packets, 10% lost", {"message_bytes": min(half, 60)}, PACKET_LOSS),
    ]


class CompiledFlocks:
    """Flocks of exported C agents."""

    def __init__(self, setting: Setting, form: Format, flocks: int, folder: Path) -> None:
        header, library = folder / "agent.h", folder / f"flock-{len([*folder.iterdir()])}.so"
        ef.export(setting.controller, header, dimensions=setting.dimensions, **form.options)  # type: ignore[arg-type]
        text = header.read_text()
        self.packets = int(_read_macro(text, "AGENT_PACKETS") or 1)
        self.packet_bytes = int(_read_macro(text, "AGENT_MESSAGE") or 0)
        period = ", period" if get_gain_schedule(ef.load(setting.controller)) is not None else ""
        source = FLOCK_SOURCE.format(header=header, agents=setting.agents, packets=self.packets, period=period)
        command = ["cc", "-std=c99", "-O2", f"-DAGENT_NEIGHBOURS={setting.agents}", "-shared", "-fPIC", "-x", "c", "-"]
        subprocess.run([*command, "-o", str(library), "-lm"], input=source, text=True, check=True)
        self._library = ctypes.CDLL(str(library))
        self._library.agent_size.restype = ctypes.c_size_t
        self._agents = np.zeros((flocks, setting.agents * self._library.agent_size()), np.uint8)
        for agents in self._agents:
            self._library.init(_point_to(agents), ctypes.c_float(setting.time_step))

    def act(self, flock: ef.Flock, packet_loss: float, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the accelerations (B, N, D) of all flocks at a step."""
        graph = ef.radius_graph(flock)
        N, accelerations = flock.shape[1], np.zeros(flock.shape, np.float32)
        positions, velocities = (array.astype(np.float32) for array in flock.arrays[:2])
        arrives = (rng.random((len(graph.senders), self.packets)) >= packet_loss).astype(np.uint8)
        for b, agents in enumerate(self._agents):
            # Starts of links count from the first flock.
            state = agents, positions[b], velocities[b], graph.starts[b * N : (b + 1) * N + 1], graph.senders, arrives
            self._library.step(*map(_point_to, (*state, accelerations[b])))
        return accelerations.astype(np.float64)


def _read_macro(text: str, name: str) -> str | None:
    """Return the value of a C macro, or None."""
    lines = (line.split() for line in text.splitlines() if line.startswith(f"#define {name} "))
    return next((words[2] for words in lines), None)


def _point_to(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def fly(setting: Setting, form: Format, flocks: int, folder: Path) -> list[str]:
    """Return a row of the table."""
    start = ef.random_disk(flocks, setting.agents, seed=SEED, dimensions=setting.dimensions)
    compiled, rng = CompiledFlocks(setting, form, flocks, folder), np.random.default_rng(SEED)
    flight = ef.flight(start, None, senses=ef.load(setting.controller).senses, time_step=setting.time_step)
    moment, steps, fastest = next(flight), round(SECONDS / setting.time_step), 0.0
    residual = np.zeros(flocks)
    last = round(LAST_SECONDS / setting.time_step)
    for step in range(steps):
        accelerations = compiled.act(moment.flock, form.packet_loss, rng)
        fastest = max(fastest, float(np.ptp(moment.flock.velocities, axis=1).max()))
        if step >= steps - last:
            residual += np.linalg.norm(accelerations, axis=2).mean(axis=1) / last
        moment = flight.step(accelerations)
    disconnected = component_count(moment.flock) > 1
    return [
        f"{setting.controller}, N = {setting.agents}, D = {setting.dimensions}",
        form.name,
        f"{compiled.packets} x {compiled.packet_bytes}",
        str(estimate(velocity_variance(moment.flock))),
        str(estimate(residual)),
        estimate_flock_share(disconnected).percent,
        f"{fastest:.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="6 flocks of 12 agents")
    options = parser.parse_args()
    if shutil.which("cc") is None:
        raise SystemExit("found no C compiler: install gcc")
    flocks = 6 if options.quick else 24
    settings = [each for each in SETTINGS if not options.quick or each.agents == 12]
    header = ["flocks", "messages", "packets x bytes", "final velocity variance", "residual acceleration"]
    header += ["disconnected", "largest velocity difference"]
    print(" | ".join(["", *header, ""]).strip())
    print("|" + "---|" * len(header))
    for setting in settings:
        for form in list_formats(setting):
            with tempfile.TemporaryDirectory() as folder:
                print("| " + " | ".join(fly(setting, form, flocks, Path(folder))) + " |", flush=True)


if __name__ == "__main__":
    main()
