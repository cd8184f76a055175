"""Reproduction of the paper: runs all of its experiments and judges its statements."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock._runtime.checks import InputError, check_choice
from equiflock._runtime.checksums import compute_checksum, compute_file_checksum
from equiflock._runtime.executors import run_jobs
from equiflock._runtime.files import remove_path
from equiflock._runtime.jobs import Job, is_done, read_results
from equiflock._runtime.provenance import lock_run_dir, read_package_versions
from equiflock.controllers.trained import PAPER_NETWORKS, PAPER_SEEDS, bundled_validation_path, bundled_weights_path
from equiflock.learning.fast_forward import FastForward
from equiflock.learning.recipe import DAgger
from equiflock.paper.connectivity_experiment import (
    LAW,
    NETWORK,
    build_connectivity_jobs,
    build_connectivity_statements,
    find_contrasting_flocks,
)
from equiflock.paper.flocking_experiment import build_flocking_jobs, build_flocking_statements
from equiflock.paper.generalization_experiment import (
    build_cloning_jobs,
    build_datasets,
    build_generalization_statements,
)
from equiflock.paper.interpretation import Interpretation
from equiflock.paper.leader_experiment import build_leader_jobs, build_leader_statements
from equiflock.paper.ledger import REMARKS, Statement
from equiflock.paper.network_statements import build_architecture_statements
from equiflock.paper.obstacle_experiment import SIDES, build_obstacle_jobs, build_obstacle_statements
from equiflock.paper.policies import TrainedPolicies, build_policy_training_jobs
from equiflock.paper.training_statements import build_training_statements, merge_validation_tables, read_bundled_tables
from equiflock.protocols import Controller
from equiflock.scenarios import Scenario, make_scenario
from equiflock.simulation.flight_jobs import fly, scenario_to_dict
from equiflock.simulation.trajectory import Trajectory

# Profiles (size and interpretation) of a reproduction; jobs, tables and statements of its experiments.


@dataclass(frozen=True)
class Profile:
    """Size of a reproduction (training seeds, flocks, flock sizes, obstacles, data), and the interpretation."""

    name: str
    seeds: tuple[int, ...] = tuple(PAPER_SEEDS)
    flocks: int = 50
    sizes: tuple[int, ...] = (50, 100, 200, 400)
    sides: tuple[int, ...] = SIDES
    fast_forward: FastForward = field(default_factory=FastForward)
    cloning_seeds: tuple[int, ...] = (0, 1, 2)
    recipe: DAgger = field(default_factory=DAgger)
    """Training settings, except those set by the interpretation."""
    split: str | None = None
    """Set of initial conditions of all flights; None for those of the tests."""
    interpretation: Interpretation = field(default_factory=Interpretation)

    @property
    def uses_bundled_weights(self) -> bool:
        """Whether the bundled weights are those that the trainings of this profile would produce."""
        is_default = self.interpretation.restrict_to("training") == Interpretation() and self.recipe == DAgger()
        return is_default and set(self.seeds) <= set(PAPER_SEEDS)

    @property
    def settings(self) -> dict[str, Any]:
        """All fields, JSON-serializable; the recipe as in the run directory of a training."""
        return {**asdict(self), "recipe": self.recipe.settings}

    def has_networks(self, experiments: Container[str]) -> bool:
        """Return whether networks are available: bundled, or trained because "training" is among these experiments."""
        return self.uses_bundled_weights or "training" in experiments

    def build_policies(self, folder: Path) -> TrainedPolicies:
        """Return the source of trained networks; those not bundled are trained in `folder`/trainings when loaded."""
        interpretation = self.interpretation.restrict_to("training")
        return TrainedPolicies(
            interpretation, None if self.uses_bundled_weights else self.recipe, (folder / "trainings").resolve()
        )

    def build_datasets(self, folder: Path) -> dict[Path, FastForward]:
        """Return the settings of the datasets of behaviour cloning by subdirectory of `folder`; none is generated."""
        home = (folder / "fast-forward").resolve()
        return build_datasets(self.cloning_seeds, self.interpretation, self.fast_forward, home)


PROFILES = {
    "paper": Profile("paper"),
    "quick": Profile(
        "quick",
        seeds=(0,),
        flocks=10,
        sizes=(50, 100, 200),
        sides=(3, 12, 48, 96),
        fast_forward=FastForward(train_flocks=6, test_flocks=10),
        cloning_seeds=(0,),
    ),
}

JOB_BUILDERS: dict[str, Callable[[Profile, Path], Sequence[Job]]] = {
    "training": lambda p, folder: (
        [] if p.uses_bundled_weights else build_policy_training_jobs(p.build_policies(folder), p.seeds)
    ),
    "connectivity": lambda p, folder: build_connectivity_jobs(p.seeds, p.flocks, p.build_policies(folder), p.split),
    "flocking": lambda p, folder: build_flocking_jobs(
        p.sizes, p.seeds, p.flocks, p.interpretation, p.build_policies(folder), p.split
    ),
    "leaders": lambda p, folder: build_leader_jobs(
        p.seeds, p.flocks, p.interpretation, p.build_policies(folder), p.split
    ),
    "obstacles": lambda p, folder: build_obstacle_jobs(
        p.sides, p.seeds, p.flocks, p.interpretation, p.build_policies(folder), p.split
    ),
    "generalization": lambda p, folder: build_cloning_jobs(p.interpretation, p.build_datasets(folder)),
}
"""Function that builds the jobs of each experiment from the profile and the run directory."""
EXPERIMENTS = tuple(JOB_BUILDERS)

STATEMENT_BUILDERS: dict[str, Callable[[pd.DataFrame], list[Statement]]] = {
    "training": build_training_statements,
    "connectivity": build_connectivity_statements,
    "flocking": build_flocking_statements,
    "leaders": build_leader_statements,
    "obstacles": build_obstacle_statements,
    "generalization": build_generalization_statements,
}
"""Function that builds the statements of each experiment from its table."""


def build_jobs(experiment: str, profile: Profile, folder: Path = Path()) -> Sequence[Job]:
    """Return the jobs of an experiment; empty if its results are bundled. `folder` is the run directory."""
    return JOB_BUILDERS[check_choice("experiment", experiment, EXPERIMENTS)](profile, folder)


def are_jobs_done(
    experiment: str, profile: Profile, folder: Path, on_damage: Callable[[str], object] = lambda text: None
) -> bool:
    """Return whether the run directory has intact results of all jobs of an experiment; True if it has no jobs.

    `on_damage` is called with a line of text about damaged results, which count as missing, up to the first missing
    one.
    """
    return all(is_done(job, folder / "jobs", on_damage) for job in build_jobs(experiment, profile))


def read_experiment_table(experiment: str, profile: Profile, folder: Path) -> pd.DataFrame:
    """Return the table of an experiment whose jobs are done; for bundled trainings, the bundled table of the seeds."""
    if experiment == "training" and profile.uses_bundled_weights:
        return read_bundled_tables().query("seed in @profile.seeds or controller == 'tanner'")
    table = read_results(build_jobs(experiment, profile), folder / "jobs")
    return merge_validation_tables(table) if experiment == "training" else table


def judge_statements(profile: Profile, folder: Path, tables: Mapping[str, pd.DataFrame]) -> list[Statement]:
    """Return the ledger: all statements that these tables, by experiment, can judge, sorted in the paper's order.

    Statements on the architecture are included if networks are available, which loads them.
    """
    has_networks = profile.has_networks(tables)
    statements = build_architecture_statements(profile.build_policies(folder), profile.seeds) if has_networks else []
    for experiment, table in tables.items():
        statements += STATEMENT_BUILDERS[experiment](table)
    # Architecture, training, flocking, leaders, obstacles, generalization: the first letters of their statements.
    order = {name: number for number, name in enumerate("ATFLOG")}
    return sorted(statements, key=lambda s: (order[s.id[0]], s.id))


# Flights saved for the report: Fig. 1, initial conditions, and films.

FLIGHTS = "flights"
"""Subdirectory of these flights in the run directory."""
DRAWN_SIDES = (12, 48, 96)
"""Numbers of sides of the drawn obstacles."""
CONNECTIVITY_DURATION = 0.6
"""Duration of the flights of Fig. 1, in seconds."""


@dataclass(frozen=True)
class Film:
    """One flock of a scenario under each trained controller, side by side."""

    title: str
    scenario: str
    duration: float
    """Maximal seconds of flight."""
    keep_every: int = 1
    speed: float = 0.5
    """Simulated seconds per second of film."""


FILMS = {
    "flocking": Film("Flocking", "flocking", 2.0),
    "leaders": Film("Leader following", "leaders", 3.0),
    "obstacles": Film("Obstacle avoidance", "obstacles:sides=24", 10.0, keep_every=2, speed=2.0),
}


def load_report_flight(folder: Path, *names: str) -> Trajectory:
    """Load a flight that `save_report_flights` saved in a run directory; parts of its name are joined by hyphens."""
    return Trajectory.load(_get_flight_path(folder, *names))


def save_report_flights(
    folder: Path,
    tables: Mapping[str, pd.DataFrame],
    policies: TrainedPolicies,
    interpretation: Interpretation,
    films: bool,
    on_part: Callable[[str], object] = lambda name: None,
) -> None:
    """Simulate and save the flights of the report that are missing or damaged.

    Args:
        folder: run directory of the reproduction.
        tables: tables of its experiments.
        policies: trained networks.
        interpretation: sets the scenario options.
        films: whether to include the flights of the films.
        on_part: called with the name of each flight before it is simulated.
    """
    for name, make in _build_flights(tables, policies, interpretation, films).items():
        path = _get_flight_path(folder, name)
        try:
            Trajectory.load(path)
        except InputError:  # missing or damaged
            on_part(name)
            remove_path(path)
            make().save(path)


def _get_flight_path(folder: Path, *names: str) -> Path:
    return folder / FLIGHTS / f"{'-'.join(names)}.zarr"


def _build_flights(
    tables: Mapping[str, pd.DataFrame], policies: TrainedPolicies, interpretation: Interpretation, films: bool
) -> dict[str, Callable[[], Trajectory]]:
    """Return a function that simulates each flight of the report, by name; networks are loaded at once.

    Flights of Fig. 1 need the table of "connectivity", those of films `films`; initial conditions are always included.
    """
    flights: dict[str, Callable[[], Trajectory]] = {}
    if "connectivity" in tables:
        flights |= _build_connectivity_flights(tables["connectivity"], policies)
    # Pictures of initial conditions are flights of duration 0, for which any controller will do.
    law = policies.load(interpretation.format_law(LAW), None)
    flights["flocks"] = partial(
        _fly, make_scenario("flocking", flocks=3, **interpretation.get_scenario_options("flocking")), law, 0.0
    )
    for sides in DRAWN_SIDES:
        flights[f"course-{sides}"] = partial(_fly, make_scenario("obstacles", sides=sides), law, 0.0)
    for name, film in FILMS.items() if films else ():
        scenario = make_scenario(film.scenario, split="film", **interpretation.get_scenario_options(film.scenario))
        for network in PAPER_NETWORKS:
            flights[f"{name}-{network}"] = partial(
                _fly, scenario, policies.load(network, 0), film.duration, keep_every=film.keep_every
            )
    return flights


def _build_connectivity_flights(table: pd.DataFrame, policies: TrainedPolicies) -> dict[str, Callable[[], Trajectory]]:
    """Return the flights of Fig. 1: one flock, which the law disconnects and the first seed's network does not.

    If there is no such flock, it is flock 0.
    """
    seed = int(table.seed.dropna().min())
    flock = next(iter(find_contrasting_flocks(table, seed)), 0)
    # Flock b of a set does not depend on the size of the set, so the set may end with it.
    scenario = make_scenario("flocking", flocks=flock + 1, velocities=policies.interpretation.velocities)
    controllers = {
        LAW: policies.load(policies.interpretation.format_law(LAW), None),
        NETWORK: policies.load(NETWORK, seed),
    }
    return {
        f"connectivity-{name}": partial(_fly, scenario, controller, CONNECTIVITY_DURATION, flock=flock)
        for name, controller in controllers.items()
    }


def _fly(
    scenario: Scenario, controller: Controller, duration: float, flock: int | None = None, **simulate_options: Any
) -> Trajectory:
    """Simulate the flocks of a scenario, or only the one with index `flock`, at steps of 0.01 s."""
    start = scenario.draw()
    return fly(
        scenario,
        start if flock is None else start[flock],
        controller,
        0.01,
        duration,
        config=scenario_to_dict(scenario),
        **simulate_options,
    )


KIND = "reproduction"
OUTPUT_PATTERNS = (
    "jobs",
    "flights",
    "fast-forward",
    "trainings",
    "*.csv",
    "*.png",
    "*.mp4",
    "*.html",
    "*.json",
    "*.md",
)
"""Patterns of the files that a reproduction writes beside its config."""


@dataclass(frozen=True)
class Reproduction:
    """Results: a table per experiment, and the ledger."""

    profile: Profile
    tables: dict[str, pd.DataFrame]
    statements: list[Statement]


def reproduce(
    profile: Profile,
    folder: Path,
    workers: int,
    experiments: Sequence[str] = EXPERIMENTS,
    on_done: Callable[[str, Job], object] = lambda experiment, job: None,
    on_data: Callable[[int], object] = lambda step: None,
    scheduler: str | None = None,
    on_notice: Callable[[str], object] = lambda text: None,
    force: bool = False,
    films: bool = True,
    on_flight: Callable[[str], object] = lambda name: None,
) -> Reproduction:
    """Run the jobs whose results in `folder/jobs` are missing or damaged, and judge the paper's statements.

    The flights of the report are saved in `folder/flights`.

    Experiments that were not requested are included if the run directory already has all their results. The data of
    behaviour cloning is generated in `folder/fast-forward`; it is not needed once all cloning jobs are done.

    Args:
        profile: size and interpretation of the reproduction.
        folder: run directory, with jobs, data and flights.
        workers: number of processes.
        experiments: experiments to run.
        on_done: called with an experiment and each of its finished jobs, including those of earlier runs.
        on_data: called with every time index of the data, including those generated earlier.
        scheduler: address of a Dask scheduler whose workers run the jobs instead of local processes.
        on_notice: called with a line of text about every damaged file.
        force: clear the run directory and start again.
        films: whether to simulate the flights of the films.
        on_flight: called with the name of each flight that is simulated for the report.
    """
    # Check all names before running the first experiment.
    for experiment in experiments:
        check_choice("experiment", experiment, EXPERIMENTS)
    tables: dict[str, pd.DataFrame] = {}
    with lock_run_dir(folder, KIND, build_config(profile), OUTPUT_PATTERNS, force):
        for experiment in EXPERIMENTS:
            # A default argument binds the current name.
            def leave_out(text: str, name: str = experiment) -> None:
                on_notice(f"{text}; {name} is left out until it is run again")

            if experiment not in experiments and not are_jobs_done(experiment, profile, folder, leave_out):
                continue
            # Local processes share one copy of the data; workers on other machines generate their own.
            if experiment == "generalization" and scheduler is None and not are_jobs_done(experiment, profile, folder):
                for home, data in profile.build_datasets(folder).items():
                    data.make(home, workers, on_data, on_notice)
            run_jobs(
                build_jobs(experiment, profile, folder),
                folder / "jobs",
                workers,
                partial(on_done, experiment),
                scheduler=scheduler,
                on_notice=on_notice,
            )
            tables[experiment] = read_experiment_table(experiment, profile, folder)
        films = films and profile.has_networks(tables)
        save_report_flights(folder, tables, profile.build_policies(folder), profile.interpretation, films, on_flight)
        statements = judge_statements(profile, folder, tables)
    # The remarks describe the results of the paper profile only.
    if profile == PROFILES["paper"]:
        statements = [replace(s, remark=REMARKS.get(s.id, "")) if s.verdict != "holds" else s for s in statements]
    return Reproduction(profile, tables, statements)


def build_config(profile: Profile) -> dict[str, Any]:
    """Return everything that the results depend on; a run directory with another config is not continued."""
    # Bundled weights may change between versions; other weights follow from their training settings.
    bundled = list(product(PAPER_NETWORKS, profile.seeds)) if profile.uses_bundled_weights else []
    weights = {f"{name}:{seed}": compute_file_checksum(bundled_weights_path(name, seed)) for name, seed in bundled}
    tables = {f"{name}:{seed}": compute_file_checksum(bundled_validation_path(name, seed)) for name, seed in bundled}
    # The repr of a job contains all its settings, so that a changed default is noticed.
    jobs = {name: compute_checksum(repr(build_jobs(name, profile)).encode()) for name in EXPERIMENTS}
    return {
        "profile": profile.settings,
        "jobs": jobs,
        "weights": weights,
        "tables": tables,
        "versions": read_package_versions("torch"),
    }
