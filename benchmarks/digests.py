"""Write SHA-256 digests of the package's results, and compare those of two versions.

An entry hashes the type, shape and bytes of arrays, never text: trajectories, metrics, observations, trained
and bundled weights, exported agents, frames of the viewer, and tables of the reproduction. Digests compare on the same
machine only, as compilers and math libraries differ. A combination that raises InputError has the entry "refused".

python benchmarks/digests.py write before.json
python benchmarks/digests.py write after.json
python benchmarks/digests.py compare before.json after.json

Both take --only PREFIX, such as trajectory/etdagnn; with a compiled cache, all entries take about three minutes of CPU.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import torch
import tyro
from numpy.typing import NDArray
from safetensors.numpy import load_file
from torch import nn

import equiflock as ef

# Internals. Everything else is public, so only these imports follow modules that move.
from equiflock.controllers.gain_schedule import get_gain_schedule
from equiflock.deployment.exported_agents import CompiledAgent, compile_header, import_agent_class
from equiflock.deployment.microcontroller import record_agent
from equiflock.learning.cloning import clone
from equiflock.learning.recipe import Cloning
from equiflock.plotting.player.frames import pack_frame
from equiflock.plotting.player.playback import Playback
from equiflock.viewer.live_simulation import LiveSimulation
from equiflock.viewer.setting import Setting

Entry = tuple[str, Callable[[], Any]]
"""A name, and a function that computes arrays: one, or mappings, sequences, tables and trajectories of them."""

PACKAGE = Path(ef.__file__).parent
CONTROLLERS, SCENARIOS, FEATURES = ef.controller_names(), ef.scenario_names(), ef.feature_names()
NETWORKS = tuple(sorted({path.stem.rpartition("-")[0] for path in PACKAGE.rglob("*.safetensors")}))
load_module: Callable[[str], Any] = getattr(ef, "load_module", ef.load)

FLOCKS, AGENTS, STEPS, TIME_STEP = 2, 16, 20, 0.02
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "ideal": {},
    "few frames": {"keep_every": 7, "record": (), "ending": None},
    "loss": {"radio": ef.Radio(packet_loss=0.3)},
    "radio": {"radio": ef.Radio(packet_loss=0.2, delay=1, jitter=1, noise=0.01, quantization=16, last_known=2, seed=3)},
    "bursts": {"radio": ef.Radio(packet_loss=0.3, burst=3.0, send_interval=2, last_known=3)},
    "limit": {"body": ef.DoubleIntegrator(max_acceleration=5.0)},
    "body": {"body": ef.DoubleIntegrator(max_acceleration=9.0, max_speed=2.0, drag=0.2, lag=0.05, gust=0.5)},
    "unicycle": {"body": ef.Unicycle(max_turn_rate=4.0, max_acceleration=5.0, max_speed=3.0)},
    "stopped": {"failures": ef.Failures("stopped", agents=3, time=0.1, rate=0.5)},
    "silent": {"failures": ef.Failures("silent", agents=3, time=0.1)},
    "drifting": {"failures": ef.Failures("drifting", agents=3, time=0.1)},
}
VARIANTS = (
    "tanner:clamp=5",
    "tanner:attraction=0.75:aim=leaders:hold=450",
    *(f"{name}:comm_radius=5:time_scale=4" for name in CONTROLLERS),
)
INTEGRALS = ("ivv", "iman")
"""Metrics of whole trajectories, which moments do not have."""
EXPORTED = ("etdagnn", "tdagnn", "starling", "etdagnn-segregation", "tanner-dynamic", "etdagnn:comm_radius=5")
LARGE_FLOCKS: dict[str, dict[str, Any]] = {
    "one flock": {"flocks": 1, "agents": 4000},
    "batch": {"flocks": 4, "agents": 1000},
    "far in memory": {"flocks": 1, "agents": 25_000},
}
SMALL_RECIPE: dict[str, Any] = {
    "agents": 16,
    "flocks": 5,
    "duration": 0.2,
    "updates": 10,
    "capacity": 100,
    "epochs": 3,
    "validation_flocks": 3,
    "validate_every": 2,
}
SEGREGATION = {"expert": "segregation", "scenario": "segregation"}
RECIPES: dict[str, dict[str, Any]] = {
    **{name: {"controller": name} for name in ("tdagnn", "tdagnn-tf", "tdagnn-tf-mean", "etdagnn", "starling")},
    "both aggregations": {"controller": "etdagnn:aggregation=both"},
    "groups": {"controller": "etdagnn:groups=true", **SEGREGATION},
    "groups of tdagnn": {"controller": "tdagnn:groups=true", **SEGREGATION},
    "biases": {"controller": "tdagnn:biases=uniform"},
    "hop mean": {"controller": "etdagnn:hop_mean=sender", "hops": 4},
    "one hop": {"controller": "tdagnn-tf-mean", "hops": 1},
    "three dimensions": {"controller": "etdagnn", "dimensions": 3},
    "ranges": {"agents": "12-20", "packet_loss": "0-0.3", "delay": "0-2", "max_acceleration": "3-100", "lag": "0-0.1"},
    "mixture": {
        "controller": "starling",
        "expert": "tanner:attraction=0.75:aim=leaders:hold=450",
        "scenario": "0.5*flocking+0.5*leaders",
        "disk_scale": "0.6-1.1",
    },
    "schedule": {"schedule": "cosine", "final_learning_rate": 0.05, "warm_up": 1, "average": 0.95},
    "own module": {"controller": "digests-module"},
}
TUNINGS = {
    "etdagnn": "etdagnn --tasks 1*flocking:agents=16:duration=0.3+0.5*obstacles:sides=6:agents=16:duration=1",
    "starling": "starling --search gains --near --tasks 1*obstacles:sides=12:agents=16:duration=1",
}
SEARCH = "--generations 2 --population 4 --flocks 2 --validation-flocks 2 --validate-every 1 --workers 1"
VIEWER_SETTINGS: dict[str, dict[str, Any]] = {
    "flocking": {"controller": "tanner", "compare": "etdagnn"},
    "leaders": {
        "scenario": "leaders",
        "controller": "starling",
        "environment": {"packet_loss": 0.3, "delay": 1, "noise": 0.01},
    },
    "obstacles": {"scenario": "obstacles", "disks": ({"x": 2.0, "y": 1.0, "radius": 0.4},)},
    "segregation": {"scenario": "segregation", "controller": "segregation-local", "environment": {"body": "unicycle"}},
}


# User-defined parts, which take other code paths than those of the package.


@ef.feature("digests-pull", vector="position")
def pull(square: float, along: float, strength: float = 1.5) -> float:
    """Return a weight that depends on |r|^2 and <r, v>."""
    return strength / (1.0 + square) + 0.1 * along


ALL_CHANNELS: Any = tuple((name, kind) for name in (*FEATURES, "digests-pull") for kind in ("sum", "mean"))


@ef.controller("digests-law", senses=ef.Senses((("digests-pull", "mean"), ("velocity", "sum")), hops=5))
def law(observations: Any, gain: float = 0.5) -> Any:
    """Oppose the sum of all observations."""
    return -gain * observations.sum(axis=(2, 3))


@ef.controller("digests-everything", senses=ef.Senses(ALL_CHANNELS, hops=3))
def everything(observations: Any) -> Any:
    """Oppose the mean velocity relative to the neighbours; observe all features."""
    return -observations[:, :, 0, 1]


@ef.controller("digests-fixed", senses=ef.Senses((("velocity", "mean"),), hops=2, topology="fixed"))
def fixed(observations: Any) -> Any:
    """Oppose velocities relative to the neighbours at t = 0."""
    return -observations.sum(axis=(2, 3))


@ef.controller("digests-module")
class OwnModule(nn.Module):
    """A linear layer of two hops."""

    senses = ef.paper_senses("mean", hops=2)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 1, bias=False)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.layer(observations.flatten(2, 3).transpose(2, 3)).squeeze(3)  # type: ignore[no-any-return]


OWN_LAWS = ("digests-law", "digests-everything", "digests-fixed")


# The groups of entries. Names are known before anything is computed, so that --only can choose among them.


def trajectories() -> Iterator[Entry]:
    """Every controller in every scenario and environment, on one thread and on two."""
    for name in (*CONTROLLERS, *OWN_LAWS, *VARIANTS):
        for scenario in SCENARIOS:
            # Scaled controllers differ from the others in units alone.
            chosen = ("ideal", "radio", "body", "stopped") if name in VARIANTS else ENVIRONMENTS
            for environment in chosen:
                for threads in (1, 2):
                    title = f"trajectory/{name}/{scenario}/{environment}/threads={threads}"
                    yield title, partial(fly, name, scenario, threads, environment)


def spatial_trajectories() -> Iterator[Entry]:
    """Flights in three dimensions."""
    for name in (*CONTROLLERS, "digests-law"):
        for scenario in ("flocking", "leaders"):
            for environment in ("ideal", "radio", "body", "stopped"):
                title = f"three dimensions/{name}/{scenario}/{environment}"
                yield title, partial(fly, name, scenario, 1, environment, dimensions=3)


def large_trajectories() -> Iterator[Entry]:
    """Flocks large enough to use several threads, and to be reordered in memory."""
    for size, options in LARGE_FLOCKS.items():
        for name in (*CONTROLLERS, *OWN_LAWS):
            if size == "far in memory" and getattr(ef.load(name), "privileged", False):
                continue  # the sums over all pairs of a large flock take minutes
            for environment in ("few frames", "radio") if size == "one flock" else ("few frames",):
                for threads in (1, 2):
                    title = f"large/{size}/{name}/{environment}/threads={threads}"
                    more = {**options, "radius_rule": "constant-density"}
                    yield title, partial(fly, name, "flocking", threads, environment, steps=3, **more)


def seeds() -> Iterator[Entry]:
    """All bundled weights: the tensors, and a flight of each file."""
    for path in sorted(PACKAGE.rglob("*.safetensors")):
        name, _, seed = path.stem.rpartition("-")
        yield f"bundled/{path.stem}/tensors", partial(read_tensors, path)
        yield f"bundled/{path.stem}/flight", partial(fly, f"{name}:seed={seed}", "leaders", 1, "ideal")


def modules() -> Iterator[Entry]:
    """Torch modules of the bundled weights on random observations."""
    for name in NETWORKS:
        yield f"module/{name}", partial(call_module, name)


def metrics() -> Iterator[Entry]:
    """Every metric of trajectories and of moments."""
    for name in filter(is_metric, dir(ef.metrics)):
        for scenario in SCENARIOS:
            for environment in ("ideal", "stopped"):
                title = f"metrics/{name}/{scenario}/{environment}"
                yield f"{title}/trajectory", partial(measure, name, scenario, environment)
                if name not in INTEGRALS:
                    yield f"{title}/moments", partial(measure_moments, name, scenario, environment)


def observations() -> Iterator[Entry]:
    """Observations of all features, step by step, and communication graphs."""
    for scenario in SCENARIOS:
        yield f"observations/no past/{scenario}", partial(observe_once, scenario)
        yield f"observations/by sender/{scenario}", partial(observe, scenario, "ideal", "sender")
        for environment in ENVIRONMENTS:
            yield f"observations/by receiver/{scenario}/{environment}", partial(observe, scenario, environment)


def trainings() -> Iterator[Entry]:
    """Weights, losses and validations of short trainings, and a flight with the saved weights."""
    for name, options in RECIPES.items():
        yield f"training/{name}", partial(train, **options)
    yield "training/further", partial(train, initial_weights="etdagnn", controller="etdagnn")
    for name in ("etdagnn", "tdagnn-tf-mean", "tdagnn"):
        yield f"cloning/{name}", partial(clone_expert, name)
    for name, command in TUNINGS.items():
        yield f"tuning/{name}", partial(run_command, f"tune {command} {SEARCH}")


def exports() -> Iterator[Entry]:
    """Exported agents on recorded messages."""
    for name in EXPORTED:
        for kind in ("c", "numpy", "onnx"):
            for orbit in (None, ef.Orbit()):
                if orbit is None or kind != "onnx":  # its graph takes observations, which already include the orbit
                    title = f"export/{name}/{kind}/{'orbit' if orbit else 'plain'}"
                    yield title, partial(run_export, name, kind, orbit)


def frames() -> Iterator[Entry]:
    """Frames of live flights and of a playback."""
    for name, options in VIEWER_SETTINGS.items():
        yield f"viewer/live/{name}", partial(live_frames, **options)
    for scenario in SCENARIOS:
        yield f"viewer/playback/{scenario}", partial(playback_frames, scenario)


def tables(whole: bool) -> Iterator[Entry]:
    """Tables of the quick reproduction: all, or two that take seconds."""
    chosen = "training connectivity leaders flocking obstacles generalization" if whole else "training connectivity"
    for experiment in chosen.split():
        command = f"reproduce --profile quick --no-films --workers 2 --only {experiment}"
        yield f"reproduction/{experiment}", partial(run_command, command)


# Computations of the entries.


@cache
def draw(scenario: str, **options: Any) -> tuple[Any, ef.Flock]:
    """Return a scenario and its flocks, without options that it does not have."""
    result = ef.make_scenario(scenario, defaults={"flocks": FLOCKS, "agents": AGENTS, **options})
    return result, result.draw()


def prepare_flight(name: str, scenario: str, environment: str, **options: Any) -> tuple[ef.Flock, Any, dict[str, Any]]:
    """Return the start, the controller and the options of a flight."""
    controller: Any = ef.load(name)
    scale = 5.0 if ":comm_radius=5" in name else 1.0
    units = {"comm_radius": scale, "min_separation": 0.1 * scale} if scale > 1.0 else {}
    built, start = draw(scenario, **units, **options)
    # As in all commands: weights tuned with an orbit technique bring it along.
    own = getattr(controller, "orbit", None)
    orbit = own if own is not None and built.orbit == ef.Orbit() else built.orbit
    rules = {"ending": built.ending(), "orbit": orbit, "obstacles": built.obstacles, "time_step": TIME_STEP}
    recorded = [getattr(ef.metrics, each) if isinstance(each, str) else each for each in built.measures]
    return start, controller, {**rules, "record": recorded, **ENVIRONMENTS[environment]}


def fly(name: str, scenario: str, threads: int, environment: str, steps: int = STEPS, **options: Any) -> ef.Trajectory:
    start, controller, rules = prepare_flight(name, scenario, environment, **options)
    with ef.threads.use(threads):
        return ef.simulate(start, controller, duration=steps * TIME_STEP, **rules)


def read_tensors(path: Path) -> dict[str, NDArray[Any]]:
    return dict(sorted(load_file(path).items()))


def call_module(name: str) -> NDArray[Any]:
    module = load_module(name)
    shape = 2, 50, module.senses.hops, module.senses.width, 2
    numbers = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    with torch.inference_mode():
        return np.asarray(module(torch.from_numpy(numbers)).numpy())


def is_metric(name: str) -> bool:
    """Return whether this is the name of a metric: those of the registry, and integrals over a trajectory."""
    return name in ("ivv", "iman", *ef.metric_names())


def measure(name: str, scenario: str, environment: str) -> Any:
    return getattr(ef.metrics, name)(fly("etdagnn", scenario, 1, environment))


def measure_moments(name: str, scenario: str, environment: str) -> Any:
    start, controller, rules = prepare_flight("etdagnn", scenario, environment)
    rules["record"] = [getattr(ef.metrics, name)]
    return ef.simulate(start, controller, duration=STEPS * TIME_STEP, **rules).series


def observe_once(scenario: str) -> list[Any]:
    start = draw(scenario)[1]
    graph = ef.radius_graph(start)
    senses = [ef.Senses(ALL_CHANNELS, hops=2), ef.paper_senses("sum", hops=1), ef.Senses((("position", "mean"),), 3)]
    scaled = ef.Senses(ALL_CHANNELS, length_scale=2.0, time_scale=3.0)
    return [ef.observe(start, each) for each in (*senses, scaled)] + [graph.degrees, graph.edges(0), graph.edges(1)]


def observe(scenario: str, environment: str, hop_mean: Any = "receiver") -> list[Any]:
    """Return observations and message graphs of the first steps."""
    start, _, rules = prepare_flight("digests-law", scenario, environment)
    controller = ChannelController(ef.Senses(ALL_CHANNELS, hops=4, hop_mean=hop_mean))
    options = {key: value for key, value in rules.items() if key not in ("record", "keep_every")}
    results: list[Any] = []
    for moment, _ in zip(ef.flight(start, controller, **options), range(8), strict=False):
        results.append(moment.observations.copy())
        if moment.compute_message_graph is not None and moment.flying.all():
            graph = moment.compute_message_graph()
            results += [graph.degrees, graph.edges(0)]
    return results


@dataclass(frozen=True)
class ChannelController:
    """Opposes the second channel; its senses are chosen by the caller."""

    senses: ef.Senses

    def __call__(self, observations: NDArray[Any], /) -> NDArray[Any]:
        return -observations[:, :, 0, 1]


def train(initial_weights: str | None = None, **options: Any) -> list[Any]:
    recipe = ef.DAgger(**{**SMALL_RECIPE, **options})
    reports: list[Any] = []
    network: Any = ef.train(recipe, None if initial_weights is None else load_module(initial_weights), reports.append)
    validations = [each.validation for each in reports if each.validation is not None]
    results = [[each.loss, each.expert_share] for each in reports], [[each.ivv, each.iman] for each in validations]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        ef.save(network, path)
        scenario = recipe.scenario.rpartition("*")[2]
        flight = fly(str(path), scenario, 1, "ideal", dimensions=recipe.dimensions)
        return [*results, read_tensors(path), flight]


@cache
def expert_data() -> Any:
    return ef.FastForward(train_flocks=3, test_flocks=2, steps=20, agents=AGENTS).make()


def clone_expert(name: str) -> list[Any]:
    data, reports = expert_data(), []
    recipe = Cloning(controller=name, epochs=3, learning_rate=1e-3, loss_scale=200.0)
    network: Any = clone(
        recipe, data, None, lambda cloner, report: reports.append([report.train_loss, report.test_loss])
    )
    bound = ef.theory.generalization_bound(network, data)
    weights = {key: tensor.numpy() for key, tensor in sorted(network.state_dict().items())}
    return [weights, reports, bound.value, bound.norms, data.get_block(20, "train", network.senses.channels)]


def run_command(command: str) -> list[Any]:
    """Return the weights and tables that a command writes to its run directory."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
        arguments = [sys.executable, "-m", "equiflock", *command.split(), "--out", f"{folder}/run"]
        subprocess.run(arguments, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        run = Path(folder) / "run"
        results = [*map(pd.read_csv, sorted(run.glob("*.csv"))), *map(read_tensors, sorted(run.glob("*.safetensors")))]
        if not results:
            raise FileNotFoundError(f"{command} wrote no tables")
        return results


def run_export(name: str, kind: str, orbit: ef.Orbit | None) -> list[Any]:
    """Return messages and accelerations of an exported agent, given recorded messages."""
    controller: Any = ef.load(name)
    scenario, options = ("obstacles", {"sides": 12}) if orbit else ("flocking", {})
    start = prepare_flight(name, scenario, "ideal", flocks=1, agents=60, **options)[0]
    agent = int(ef.radius_graph(start).degrees[0, :58].argmax())
    if orbit:  # the follower nearest to the obstacle
        distances = np.linalg.norm(start.positions[0, :60, None] - start.positions[0, None, 60:], axis=-1).min(axis=1)
        agent = int(np.where(start.roles[0, :60] == ef.Role.FOLLOWER, distances, np.inf).argmin())
    recording = record_agent(controller, start, agent, STEPS, orbit=orbit)
    period = {} if get_gain_schedule(controller) is None else {"period": recording.time_step}
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        if kind == "onnx":
            ef.export(name, folder / "agent.onnx")
            settings = onnxruntime.SessionOptions()
            settings.intra_op_num_threads = 1
            session = onnxruntime.InferenceSession(folder / "agent.onnx", settings)
            inputs = {"observations": np.ascontiguousarray(recording.observations[:, None])}
            inputs |= {key: np.array(value, np.float32) for key, value in period.items()}
            return list(session.run(None, inputs))
        ef.export(name, folder / ("agent.h" if kind == "c" else "agent.npz"), orbit=orbit)
        if kind == "c":
            library = compile_header(folder / "agent.h", folder / "agent.so", neighbours=100)
            exported: Any = CompiledAgent(library, recording.number, recording.group, **period)
        else:
            exported = import_agent_class(folder / "agent.py")(recording.number, recording.group, **period)
        results = []
        for position, velocity, messages in zip(
            recording.positions, recording.velocities, recording.messages, strict=True
        ):
            results.append(np.frombuffer(exported.begin(position, velocity), np.uint8))
            for message in messages:
                exported.receive(message)
            results.append(np.asarray(exported.end()))
        return results


def live_frames(**options: Any) -> list[Any]:
    live_simulation = LiveSimulation(Setting(agents=30, **options), lambda name, more: ef.load(name, **more))
    live_simulation.edges = True
    results = []
    for step in range(1, 31):
        while live_simulation.step < step:  # an advance may stop early on a slow machine
            live_simulation.advance(1)
        if step == 10:
            live_simulation.scatter()
        if step == 20:
            live_simulation.toggle_leader(0)
        results.append(
            read_frame(pack_frame(live_simulation.step, live_simulation.time, live_simulation.make_pictures()))
        )
    return results


def playback_frames(scenario: str) -> list[Any]:
    playback = Playback([fly("etdagnn", scenario, 1, "ideal")], flock=1)
    playback.edges = True
    results = []
    for frame in range(playback.frame_count):
        playback.seek(frame)
        results.append(read_frame(pack_frame(playback.step, playback.time, playback.make_pictures())))
    return results


def read_frame(content: bytes) -> list[NDArray[Any]]:
    """Return the arrays of a frame, by the layout that the viewer documents."""
    kind, panels, *moment = struct.unpack_from("<IIdd", content)
    results, at = [np.array([kind, panels]), np.array(moment)], 24
    for _ in range(panels):
        header = struct.unpack_from("<10I10d", content, at)
        at += struct.calcsize("<10I10d")
        agents, disks, _, marks = header[:4]
        results += [np.array(header[:10]), np.array(header[10:])]
        vectors = [("<f4", agents, 2)] * 3 + [("<f4", disks, 3), ("<f4", marks, 4), ("u1", marks, 4)]
        edges = [("<u2" if agents <= 65_535 else "<u4", count, 2) for count in header[4:8]]
        for type_, rows, columns in [*vectors, *edges, *[("u1", agents, 1)] * 3]:
            array: NDArray[Any] = np.frombuffer(content, type_, rows * columns, at).reshape(rows, columns)
            results.append(array)
            at += -(-array.nbytes // 8) * 8
    if at != len(content):
        raise ValueError(f"expected a frame of {at} bytes, got {len(content)}: adapt read_frame to the viewer's layout")
    return results


# Digests, files and commands.


def digest(value: Any) -> str:
    sha = hashlib.sha256()
    for array in arrays_in(value):
        sha.update(f"{array.dtype.str} {array.shape} ".encode())
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


def arrays_in(value: Any) -> Iterator[NDArray[Any]]:
    """Yield all arrays and numbers in a value, in order, without their names."""
    if isinstance(value, ef.Trajectory):
        kept = value.times, value.positions, value.velocities, value.accelerations, value.conditions, value.roles
        ends = value.obstacles, value.groups, value.steps, value.outcomes, value.time_step, value.comm_radius
        yield from arrays_in([*kept, *ends, value.series, value.body_state])
    elif isinstance(value, pd.DataFrame):
        # Text becomes numbers in order of first appearance.
        for column in map(value.get, value.columns):
            yield column.to_numpy() if column.dtype.kind in "biuf" else pd.factorize(column)[0]
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from arrays_in(each)
    else:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError(f"expected numbers, got {type(value).__name__}")
        yield array


def compute(entry: Callable[[], Any]) -> str:
    try:
        return digest(entry())
    except ef.InputError:
        return "refused"


@dataclass(frozen=True)
class Write:
    """Write the digests of the package that Python imports."""

    out: tyro.conf.Positional[Path]
    """The JSON file to write."""
    only: str = ""
    """Compute only entries whose names begin with this."""
    reproduction: bool = False
    """Include all tables of the quick reproduction, which takes minutes, instead of two."""

    def run(self) -> int:
        groups = [trajectories, spatial_trajectories, large_trajectories, seeds, modules, metrics, observations]
        groups += [trainings, exports, frames, partial(tables, self.reproduction)]
        results: dict[str, str] = {}
        for number, group in enumerate(groups, 1):
            entries = {name: entry for name, entry in group() if name.startswith(self.only)}
            for done, (name, entry) in enumerate(entries.items(), 1):
                # A terminal's line is rewritten; elsewhere each group is one line.
                if sys.stderr.isatty() or done == len(entries):
                    line = f"group {number} of {len(groups)}: {done} of {len(entries)}"
                    print(f"\r{line}", end="\n" if done == len(entries) else "", file=sys.stderr)
                results[name] = compute(entry)
        self.out.write_text(json.dumps(results, indent=1) + "\n")
        refused = sum(value == "refused" for value in results.values())
        print(f"{self.out}: {len(results):,} digests, {refused:,} of them refused")
        return 0


@dataclass(frozen=True)
class Compare:
    """Compare two files of digests; the exit code is 1 if they differ."""

    before: tyro.conf.Positional[Path]
    after: tyro.conf.Positional[Path]
    only: str = ""
    """Compare only entries whose names begin with this."""

    def run(self) -> int:
        before, after = (
            {name: value for name, value in json.loads(path.read_text()).items() if name.startswith(self.only)}
            for path in (self.before, self.after)
        )
        differences = {
            "differs": [name for name in before if name in after and before[name] != after[name]],
            f"only in {self.before}": [name for name in before if name not in after],
            f"only in {self.after}": [name for name in after if name not in before],
        }
        for reason, names in differences.items():
            for name in names:
                print(f"{reason}: {name}")
        counts = ", ".join(f"{reason}: {len(names):,}" for reason, names in differences.items())
        print(f"{len(before.keys() & after.keys()):,} names in both; {counts}")
        return int(any(differences.values()))


if __name__ == "__main__":
    torch.set_num_threads(1)
    raise SystemExit(tyro.extras.subcommand_cli_from_dict({"write": Write, "compare": Compare}).run())
