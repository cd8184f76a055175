"""`judge`: the report card of controllers, how good they are, when they break, and whether differences are real."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd

from equiflock._runtime.checks import InputError, TimeStepWarning, check_choice, check_count
from equiflock._runtime.executors import run_jobs
from equiflock._runtime.files import atomic_write
from equiflock._runtime.jobs import Job, read_results
from equiflock._runtime.provenance import collect_versions, lock_run_dir
from equiflock._runtime.threads import use_one_thread
from equiflock.controllers import load
from equiflock.controllers.networks.compiled import CompiledNetwork
from equiflock.controllers.registry import find_factory, is_bundled, parse_controller_name
from equiflock.evaluation.card import Card, ControllerFacts, Role
from equiflock.evaluation.card_conditions import Condition
from equiflock.evaluation.card_facts import collect_facts
from equiflock.evaluation.card_jobs import LARGER_IS_BETTER, METRIC_TITLES, BreakpointJob, RowJob
from equiflock.evaluation.card_page import write_card_page
from equiflock.evaluation.card_profiles import DEFAULT_BASELINES, EXPERT, LAWS, PROFILES, CardProfile
from equiflock.evaluation.card_results import (
    CardTable,
    build_breakpoint,
    build_row,
    build_scores,
    to_marl_eval,
)
from equiflock.evaluation.evaluate import format_labels, format_run_dir_name
from equiflock.simulation.trajectory import Trajectory

KIND = "report card"
ROLES: tuple[Role, ...] = ("judged", "baseline", "reference")
OUTPUT_PATTERNS = ("jobs", "*.html", "*.csv", "*.json")
"""Patterns of the files that a card writes beside its config."""
MAX_SHOWN_AGENTS = 500
"""Largest flocks whose flights the page plays."""
SHOWN_FRAMES = 60
"""Frames of a flight that the page plays, about."""


def judge(
    controllers: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    profile: str = "quick",
    *,
    against: Sequence[str | os.PathLike[str]] | str = DEFAULT_BASELINES,
    seed: int = 0,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    force: bool = False,
) -> Card:
    """Judge controllers, write their report card, and return it.

        card = ef.judge(["starling", "mine.safetensors"], profile="quick")
        card.scores["starling"].value  # expert 1, worst law 0

    All fly the same random flocks under every condition of the profile: sizes, densities, time steps, tasks, radios,
    bodies and failures. For every disturbance the level is found at which flights begin to fail. `card.html`,
    `card.csv` and `card.json` in the run directory have the results; a second call continues where the first stopped.

    Args:
        controllers: names of controllers or weights files, as for `load`.
        profile: "quick", about two minutes for one controller on two cores, or "full", about half an hour.
        against: baselines that fly the same flocks.
        seed: random seed of flocks, radios and failures.
        out: run directory; by default runs/cards/CONTROLLERS-PROFILE.
        workers: number of processes; by default one per core, or this process alone if a controller was registered in
            it, which other processes do not know; such a controller is always flown again.
        force: delete an earlier card in the run directory and start again.
    """
    run = CardRun(_list_names(controllers), profile, _list_names(against), seed)
    folder = run.default_folder if out is None else Path(out)
    only_here = [each.name for each in run.controllers if not each.error and _is_registered_here(each.name)]
    if only_here:
        if (workers or 1) > 1:
            raise InputError(
                f"{only_here[0]} was registered in this process, and others do not know it: leave out workers, or use "
                "`equiflock judge --plugin`"
            )
        # Its code may have changed since an earlier card, which nothing here can tell.
        run.session = uuid4().hex
        workers = 1
    return run.execute(folder, workers or os.cpu_count() or 1, here=bool(only_here), force=force)


def _list_names(names: Sequence[str | os.PathLike[str]] | str | os.PathLike[str]) -> list[str]:
    """Return names or paths, or a single one, as a list of texts."""
    return [os.fspath(name) for name in ([names] if isinstance(names, (str, os.PathLike)) else names)]


def _is_registered_here(name: str) -> bool:
    """Return whether a controller, its network or a feature was registered in this process, not by the package."""
    if find_factory(parse_controller_name(name).name) is not None:
        return not is_bundled(name)
    controller = load(name)
    features = (feature.weight.__module__ for feature in controller.senses.features)
    own = getattr(controller, "controller", controller)
    return not isinstance(own, CompiledNetwork) or any(not module.startswith("equiflock.") for module in features)


class CardRun:
    """A report card before and while it is computed. Raise InputError if controllers, profile or seed are invalid."""

    def __init__(
        self,
        controllers: Sequence[str],
        profile: str = "quick",
        against: Sequence[str] = DEFAULT_BASELINES,
        seed: int = 0,
        plugin: str = "",
    ) -> None:
        if not controllers or len(set(controllers)) < len(controllers):
            raise InputError(f"expected one or more controllers, each once; got {' '.join(controllers) or 'none'}")
        check_count("seed", seed, least=0)
        self.profile: CardProfile = PROFILES[check_choice("profile", profile, tuple(PROFILES))].with_seed(seed)
        self.seed, self.plugin = seed, plugin
        self.session = ""
        """Text that keeps results of this run apart from those of others; empty to share them."""
        baselines = [name for name in dict.fromkeys(against) if name not in controllers]
        references = [name for name in (EXPERT, *LAWS) if name not in (*controllers, *baselines)]
        roles: dict[str, Role] = {
            **dict.fromkeys(controllers, "judged"),
            **dict.fromkeys(baselines, "baseline"),
            **dict.fromkeys(references, "reference"),
        }
        labels = format_labels(tuple(roles))
        self.controllers = tuple(
            collect_facts(name, role, label) for (name, role), label in zip(roles.items(), labels, strict=True)
        )
        # A baseline that cannot be loaded is a mistake in the command, and so is a card of nothing.
        judged = [each for each in self.controllers if each.role == "judged"]
        mistakes = [each for each in self.controllers if each.role == "baseline" and each.error]
        if mistakes or all(each.error for each in judged):
            raise InputError((mistakes or judged)[0].error)

    @property
    def default_folder(self) -> Path:
        """Run directory if none is given."""
        judged = [each.name for each in self.controllers if each.role == "judged"]
        seed = f"-seed-{self.seed}" if self.seed else ""
        return Path("runs") / "cards" / f"{format_run_dir_name(judged, self.profile.name)}{seed}"

    @property
    def config(self) -> dict[str, Any]:
        """Everything that the card depends on."""
        return {
            "profile": self.profile.name,
            "seed": self.seed,
            **{role: ", ".join(each.name for each in self.controllers if each.role == role) for role in ROLES},
            "weights": {each.name: each.checksum for each in self.controllers if each.checksum},
            "plugin": self.plugin,
            "versions": collect_versions("torch"),
        }

    def build_jobs(self) -> list[Job]:
        """Return the jobs: breakpoints of judged controllers and baselines, and rows of all, the longest first."""
        flown = [each for each in self.controllers if not each.error]
        jobs: list[Job] = [
            BreakpointJob(*self._make_controller_fields(each), disturbance)
            for each in flown
            for disturbance in self.profile.disturbances
            if each.role != "reference"
        ]
        rows = sorted(self.profile.rows, key=lambda row: -row.flocks * row.agents * row.duration / row.time_step)
        return jobs + [
            RowJob(*self._make_controller_fields(each, row.expert_options), row) for row in rows for each in flown
        ]

    def _make_controller_fields(self, facts: ControllerFacts, expert_options: str = "") -> tuple[str, str, str, str]:
        """Return the fields that all jobs of a controller share; only the expert takes the `expert_options`."""
        loaded = f"{facts.name}{expert_options}" if facts.name == EXPERT else facts.name
        return facts.name, loaded, facts.checksum, "" if is_bundled(facts.name) else self.plugin + self.session

    def execute(
        self,
        folder: Path,
        workers: int,
        *,
        on_done: Callable[[Job], object] = lambda job: None,
        prepare: Callable[[], object] | None = None,
        scheduler: str | None = None,
        on_notice: Callable[[str], object] = lambda text: None,
        here: bool = False,
        force: bool = False,
        marl_eval: bool = False,
        flights: bool = True,
    ) -> Card:
        """Run the jobs whose results are missing or damaged, write the card's files, and return the card.

        `flights` embeds typical flights in the page, `marl_eval` writes marl-eval.json; other arguments are those of
        `run_jobs`.
        """
        with lock_run_dir(folder, KIND, self.config, OUTPUT_PATTERNS, force):
            jobs = self.build_jobs()
            run_jobs(jobs, folder / "jobs", workers, on_done, prepare, scheduler, on_notice, here)
            results = read_results(jobs, folder / "jobs")
            card = self.build_card(results)
            card.write(folder / "card.json")
            with atomic_write(folder / "card.csv") as scratch:
                card.to_table().to_csv(scratch, index=False, lineterminator="\n")
            if marl_eval:
                with atomic_write(folder / "marl-eval.json") as scratch:
                    scratch.write_text(json.dumps(to_marl_eval(results, self.profile.rows)) + "\n", encoding="utf-8")
            write_card_page(card, self.fly_typical_flocks(card) if flights else {}, folder / "card.html")
        return card

    def build_card(self, results: pd.DataFrame) -> Card:
        """Return the card from the results of all jobs."""
        table = CardTable(results)
        scores, performance = build_scores(self.profile.rows, table, self.controllers)
        return Card(
            profile=self.profile.name,
            seed=self.seed,
            controllers=self.controllers,
            rows=tuple(build_row(each, table, self.controllers) for each in self.profile.rows),
            breakpoints=tuple(build_breakpoint(each, table, self.controllers) for each in self.profile.disturbances),
            metric_titles=METRIC_TITLES,
            larger_is_better=LARGER_IS_BETTER,
            scores=scores,
            performance=performance,
            settings=self.config,
        )

    def fly_typical_flocks(self, card: Card) -> dict[tuple[str, str], list[tuple[str, Trajectory]]]:
        """Fly a typical success and a typical failure of each judged controller in each row again, for the page.

        Return the flights with their titles, by the names of row and controller. Flock b of a batch does not depend on
        the flocks after it, so only the first ones fly.
        """
        flights = {}
        for condition, row in zip(self.profile.rows, card.rows, strict=True):
            for facts in card.judged:
                result = row.results[facts.name]
                chosen = {"success": result.success_flight, "failure": result.failure_flight}
                wanted = {title: index for title, index in chosen.items() if index is not None}
                if wanted and condition.agents <= MAX_SHOWN_AGENTS:
                    flights[row.name, facts.name] = self._fly_flocks(condition, facts, wanted)
        return flights

    def _fly_flocks(
        self, condition: Condition, facts: ControllerFacts, wanted: Mapping[str, int]
    ) -> list[tuple[str, Trajectory]]:
        """Return the flights of these flocks, by title, with SHOWN_FRAMES frames."""
        start = condition.draw_start()[: max(wanted.values()) + 1]
        controller = load(self._make_controller_fields(facts, condition.expert_options)[1], **condition.units)
        interval = max(round(condition.duration / condition.time_step / SHOWN_FRAMES), 1)
        with warnings.catch_warnings(), use_one_thread():
            warnings.simplefilter("ignore", TimeStepWarning)
            run = condition.fly(
                controller, start, keep_every=interval, config={"scenario": condition.made_scenario.name}
            )
        # A torch module may round another batch otherwise.
        succeeded = condition.find_successes(start, run)
        return [
            (f"{facts.label}: {title}{'' if succeeded[index] else condition.explain_failure(run[index])}", run[index])
            for title, index in wanted.items()
            if succeeded[index] == (title == "success")
        ]
