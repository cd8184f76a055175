"""Types and shapes in annotations are enforced while tests run: this must come before equiflock is imported."""

import importlib
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
from hypothesis import settings

import tests.annotations

# Left out: modules with kernels, as Numba must see functions as they are, and types, flight and the registry, which
# check their input themselves and are tested for it.
jaxtyping.install_import_hook(
    [
        "equiflock.runtime.randomness",
        "equiflock.simulation.trajectory",
        *(f"equiflock.controllers.{name}" for name in ("bridge", "trained")),
        *(
            f"equiflock.controllers.networks.{name}"
            for name in ("architecture", "layers", "models", "tolstaya", "weights")
        ),
        "equiflock.learning.cloning",
        "equiflock.learning.fast_forward",
        "equiflock.learning.mixture",
        "equiflock.learning.partitioned_arrays",
        "equiflock.learning.replay",
        "equiflock.learning.validation",
        "equiflock.theory.mlp",
        "equiflock.experiments",
        "equiflock.report",
        *(f"equiflock.viewer.{name}" for name in ("choosing", "frames", "recording", "playback", "setting", "stage")),
    ],
    f"{tests.annotations.__name__}.checked",
)

# Kernels compile at their first call, so a single example may take seconds.
settings.register_profile("equiflock", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("equiflock")

# Where tests run in the background, Ctrl-C is ignored, and every process that they start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

HERE = Path(__file__).parent
COMPILING = [
    HERE / "senses/test_aggregation.py",
    HERE / "learning/test_learner.py",
    HERE / "simulation/test_metrics.py",
    HERE / "senses/test_degrees.py",
    HERE / "simulation/test_flight_builder.py",
    HERE / "learning/test_dagger.py",
]
"""The tests of these files need most of the kernels, those of two neighbours in the list different ones."""
LONGEST = [
    HERE / "viewer/test_play.py",  # and with it all tests in the browser
    HERE / "report/test_reproduction_report.py",
    HERE / "deployment/test_swarm.py",
    HERE / "deployment/export/test_onnx.py",
    HERE / "test_docs.py",
    HERE / "test_cli.py",
    HERE / "cli/test_train.py",
    HERE / "experiments/runner/test_dask_cluster.py",
    HERE / "experiments/paper/test_interpretation_search.py",
    HERE / "experiments/tuning/test_tuning_run.py",
    HERE / "cli/test_evaluate.py",
]
"""Each takes a process for longer than ten seconds; a process that got one of them last would let the other wait."""
FIRST = [*COMPILING, *LONGEST]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests in order, mark those in a browser as slow, and group them for pytest-xdist.

    Kernels are compiled first: where none is in the cache, every process that other tests start would compile it. The
    tests of a file run in one process, those in a browser all in the same: a second browser would cost as much again.
    """
    assert all(path.exists() for path in FIRST)
    items.sort(key=lambda item: FIRST.index(item.path) if item.path in FIRST else len(FIRST))
    for item in items:
        in_browser = "chromium" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("browser" if in_browser else str(item.path)))
        if in_browser:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def silent_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command writes does not depend on whether its kernels are in the cache."""
    monkeypatch.setattr("equiflock.runtime.compile_progress.DISPLAY_DELAY", float("inf"))


@pytest.fixture
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches for flocks that cannot be found give up after a tenth of the attempts."""
    module = importlib.import_module("equiflock.scenarios.random_disk")  # the package has a function of the same name
    monkeypatch.setattr(module, "MAX_PLACEMENTS_PER_FLOCK", 1_000_000)


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """What plugins a test imports has no say in the results of others."""
    from equiflock.runtime import provenance

    monkeypatch.setattr(provenance, "_plugin_checksums", {})


@pytest.fixture
def jobs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single worker is this process: one of its own takes seconds to begin. Several are processes, as ever."""
    from tests.experiments.runner.here import work_here

    work_here(monkeypatch)


@pytest.fixture
def trainings_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `jobs_here`, for several trainings by one command."""
    from equiflock.cli import train
    from equiflock.learning.parallel_training import train_several
    from equiflock.learning.training_run import TrainingRun
    from equiflock.runtime.checks import InputError

    def work(folders: Sequence[Path], workers: int, **how: Any) -> None:
        if workers > 1:
            train_several(folders, workers, **how)
            return
        failures = []
        for folder in folders:
            calls = partial(how["on_epoch"], folder), partial(how["on_notice"], folder)
            try:
                TrainingRun(folder).train(*calls, should_stop=how["should_stop"])
            except InputError as error:
                failures.append(f"{folder}: {error}")
        if failures:
            raise InputError("; ".join(failures))

    monkeypatch.setattr(train, "train_several", work)


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registries of the test's own: what it registers is forgotten."""
    from equiflock import features
    from equiflock.bodies import registry as bodies
    from equiflock.controllers import registry
    from equiflock.outcomes import Outcome
    from equiflock.scenarios import registry as scenarios

    monkeypatch.setattr(registry, "_factories", dict(registry._factories))
    monkeypatch.setattr(bodies, "_bodies", dict(bodies._bodies))
    monkeypatch.setattr(scenarios, "_scenarios", dict(scenarios._scenarios))
    monkeypatch.setattr(features, "_features", dict(features._features))
    monkeypatch.setattr(Outcome, "_registry", dict(Outcome._registry))
