"""Enforce annotated types and shapes while tests run; the import hook must precede the import of equiflock."""

import gc
import importlib
import inspect
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests import annotations

# Excluded: modules with kernels, since Numba must see the plain functions, and types, flight and the registry, which
# check their input explicitly and are tested for it.
annotations.install(
    [
        "equiflock.simulation.trajectory",
        *(f"equiflock.controllers.{name}" for name in ("torch_bridge", "trained")),
        *(f"equiflock.controllers.networks.{name}" for name in ("architecture", "models", "weights")),
        *(f"equiflock.learning.{name}" for name in ("cloning", "fast_forward", "mixture", "replay", "validation")),
        "equiflock._runtime.partitioned_arrays",
        "equiflock.theory.mlp",
        *(f"equiflock.{name}" for name in ("tuning", "plotting", "evaluation", "paper")),
        *(f"equiflock.viewer.{name}" for name in ("live_flight", "live_simulation", "setting")),
    ]
)

# Kernels compile at their first call, so a single example may take seconds.
settings.register_profile("equiflock", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("equiflock")

_find_source = inspect.findsource
_found_sources: dict[tuple[str, str], Any] = {}


def find_source_once(thing: Any) -> Any:
    """Return the source of a class of the package without parsing its file again: every command asks for many."""
    if not inspect.isclass(thing) or not thing.__module__.startswith("equiflock."):
        return _find_source(thing)
    name = thing.__module__, thing.__qualname__
    if name not in _found_sources:
        _found_sources[name] = _find_source(thing)
    return _found_sources[name]


inspect.findsource = find_source_once  # type: ignore[assignment]

# Background jobs ignore Ctrl-C, and every process that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

HERE = Path(__file__).parent
COMPILING = [
    HERE / "observations/test_aggregation.py",
    HERE / "learning/test_learner.py",
    HERE / "simulation/test_metrics.py",
    HERE / "observations/test_degrees.py",
    HERE / "simulation/test_flight_builder.py",
    HERE / "learning/test_dagger.py",
    HERE / "observations/test_radio.py",
    HERE / "learning/test_fused_mixture.py",
]
"""Files whose tests compile most kernels; adjacent entries need different ones, as two workers run them at once."""
LONGEST = [
    HERE / "viewer/test_play.py",  # and with it all tests in the browser
    HERE / "test_hostile.py",
    HERE / "deployment/test_swarm.py",
    HERE / "test_docs.py",
    HERE / "paper/test_reproduction_report.py",
    HERE / "cli/test_evaluate.py",
    HERE / "deployment/test_ros2.py",
    HERE / "deployment/test_mavlink.py",
    HERE / "_runtime/test_dask_cluster.py",
    HERE / "cli/test_train.py",
    HERE / "cli/test_without_torch.py",
    HERE / "deployment/export/test_agents.py",
    HERE / "paper/test_interpretation_search.py",
    HERE / "test_extending.py",
    HERE / "learning/test_parallel_training.py",
    HERE / "learning/test_training_run.py",
    HERE / "cli/test_environment_options.py",
    HERE / "cli/test_demo.py",
    HERE / "cli/test_deploy.py",
    HERE / "deployment/export/test_onnx.py",
    HERE / "viewer/test_flight_archive.py",
    HERE / "tuning/test_tuning_run.py",
    HERE / "evaluation/test_sweep.py",
    HERE / "test_cli.py",
]
"""Files that take long; they start early, so that both workers finish at about the same time."""
FIRST = [*COMPILING, *LONGEST]
BROWSER = [
    HERE / "viewer/test_play.py",
    HERE / "viewer/test_accessibility.py",
    HERE / "viewer/test_address.py",
    HERE / "viewer/test_drawing.py",
    HERE / "viewer/test_environment_page.py",
    HERE / "viewer/test_inspection_page.py",
    HERE / "viewer/test_laws_page.py",
    HERE / "viewer/test_layout.py",
    HERE / "viewer/test_modules.py",
    HERE / "viewer/test_page.py",
    HERE / "viewer/test_player.py",
    HERE / "viewer/test_report.py",
    HERE / "viewer/test_scenarios.py",
]
"""Files with tests in a browser, which share one: a second browser would double the cost."""


class FileScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Gives whole files to workers, and all files of BROWSER to the same one.

    Groups by the mark `xdist_group` would do, but pytest 9.2 ignores the names that pytest-xdist 3.8 gives to tests.
    """

    def _split_scope(self, nodeid: str) -> str:
        """Return the name of the group of a test: all tests of a group run in one worker."""
        file = nodeid.split("::")[0]
        return "browser" if HERE.parent / file in BROWSER else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FileScheduling:
    """Return the scheduler of `pytest --numprocesses`."""
    return FileScheduling(config, log)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests in a browser as slow, to be repeated once if they fail."""
    if "chromium" in getattr(item, "fixturenames", ()):
        assert item.path in BROWSER, f"{item.path} has a test in a browser: add it to BROWSER in {__file__}"
        item.add_marker(pytest.mark.slow)
        # A busy machine may delay the browser, without a graphics card, by many seconds.
        item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run first the tests that compile most kernels: otherwise every process that a test starts would compile them."""
    assert all(path.exists() for path in FIRST)
    items.sort(key=lambda item: FIRST.index(item.path) if item.path in FIRST else len(FIRST))


def pytest_collection_finish() -> None:
    """Collect garbage less often, and skip what collection has made: modules and tests, more than a million objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_runtest_setup() -> None:
    """Check the types and shapes of the first calls in every test."""
    annotations.begin_test()


@pytest.fixture(autouse=True)
def silent_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide compile progress, so that the output of a command does not depend on the kernel cache."""
    monkeypatch.setattr("equiflock._runtime.compile_progress.DISPLAY_DELAY", float("inf"))


@pytest.fixture
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let impossible searches for a start give up after a tenth of the attempts."""
    module = importlib.import_module("equiflock.scenarios.random_disk")  # the package has a function of the same name
    monkeypatch.setattr(module, "MAX_PLACEMENTS_PER_FLOCK", 1_000_000)


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the plugins of other tests."""
    from equiflock._runtime import provenance

    monkeypatch.setattr(provenance, "_plugin_checksums", {})


@pytest.fixture
def jobs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run jobs of a single worker in this process, as starting one takes seconds; several workers stay processes."""
    from tests._runtime.here import work_here

    work_here(monkeypatch)


@pytest.fixture
def compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the header of a swarm's agents only if no test has compiled the same before."""
    from tests.deployment.exported import compile_header_once

    monkeypatch.setattr("equiflock.deployment.swarm.compile_header", compile_header_once)


@pytest.fixture
def no_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write empty figures of curves and reports without flights, as these take longer than the flights of a test."""

    def write_empty(panels: object, path: Path) -> Path:
        path.write_bytes(b"")
        return path

    monkeypatch.setattr("equiflock.plotting.figures.draw_panels", write_empty)
    monkeypatch.setattr("equiflock.evaluation.evaluation_report.save_shown_flights", lambda *_: [])


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what the test registers."""
    from equiflock.bodies.registry import BODIES
    from equiflock.controllers.registry import CONTROLLERS
    from equiflock.features import FEATURES
    from equiflock.outcomes import Outcome
    from equiflock.rl.rewards import REWARDS
    from equiflock.scenarios.registry import SCENARIOS
    from equiflock.simulation.metrics import METRICS

    for registry in (BODIES, CONTROLLERS, FEATURES, METRICS, REWARDS, SCENARIOS):
        monkeypatch.setattr(registry, "parts", dict(registry.parts))
    monkeypatch.setattr(Outcome, "_registry", dict(Outcome._registry))
