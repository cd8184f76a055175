"""The paper's experiments, all of them: what is run, at which size, and what is stated about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from equiflock.checks import check_choice
from equiflock.checksums import checksum, file_checksum
from equiflock.controllers.trained import SEEDS, TRAINED, trained_validation, trained_weights
from equiflock.experiments.architecture import architecture_statements
from equiflock.experiments.connectivity import connectivity_cells, connectivity_statements
from equiflock.experiments.executor import Cell, collect, is_done, run_cells
from equiflock.experiments.flocking import flocking_cells, flocking_statements
from equiflock.experiments.generalization import cloning_cells, generalization_statements
from equiflock.experiments.leader_following import leader_cells, leader_statements
from equiflock.experiments.ledger import Statement
from equiflock.experiments.obstacle_avoidance import SIDES, obstacle_cells, obstacle_statements
from equiflock.experiments.remarks import REMARKS
from equiflock.experiments.training import trained_tables, training_statements
from equiflock.imitation.fast_forward import FastForward
from equiflock.provenance import claimed, versions

RUN_IN_CELLS = ("connectivity", "flocking", "leaders", "obstacles", "generalization")
EXPERIMENTS = ("training", *RUN_IN_CELLS)
KIND = "reproduction"
OURS = ("cells", "fast-forward", "*.csv", "*.png", "*.mp4", "*.html", "*.json", "*.md")
"""What a reproduction writes beside its config."""


@dataclass(frozen=True)
class Profile:
    """How much of the paper's experiments is run."""

    name: str
    seeds: tuple[int, ...] = tuple(SEEDS)
    flocks: int = 50
    sizes: tuple[int, ...] = (50, 100, 200, 400)
    sides: tuple[int, ...] = SIDES
    fast_forward: FastForward = field(default_factory=FastForward)
    cloning_seeds: tuple[int, ...] = (0, 1, 2)
    cloning_epochs: int = 50


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

STATEMENTS: dict[str, Callable[[pd.DataFrame], list[Statement]]] = {
    "training": training_statements,
    "connectivity": connectivity_statements,
    "flocking": flocking_statements,
    "leaders": leader_statements,
    "obstacles": obstacle_statements,
    "generalization": generalization_statements,
}


def cells_of(experiment: str, profile: Profile, data: Path = Path()) -> Sequence[Cell]:
    """The cells of an experiment; `data` is the folder of its data, if it has any."""
    check_choice("experiment", experiment, RUN_IN_CELLS)
    seeds, flocks = profile.seeds, profile.flocks
    if experiment == "connectivity":
        return connectivity_cells(seeds, flocks)
    if experiment == "flocking":
        return flocking_cells(profile.sizes, seeds, flocks)
    if experiment == "leaders":
        return leader_cells(seeds, flocks)
    if experiment == "obstacles":
        return obstacle_cells(profile.sides, seeds, flocks)
    return cloning_cells(profile.cloning_seeds, profile.cloning_epochs, profile.fast_forward, data)


@dataclass(frozen=True)
class Reproduction:
    """What was found: a table for every experiment, and the ledger."""

    profile: Profile
    tables: dict[str, pd.DataFrame]
    statements: list[Statement]


def reproduce(
    profile: Profile,
    folder: Path,
    workers: int,
    experiments: Sequence[str] = EXPERIMENTS,
    on_done: Callable[[str, Cell], object] = lambda experiment, cell: None,
    on_data: Callable[[int], object] = lambda step: None,
    scheduler: str | None = None,
    on_notice: Callable[[str], object] = lambda text: None,
    force: bool = False,
) -> Reproduction:
    """Run what is not in `folder/cells` yet, or is damaged, and judge the paper's statements.

    Experiments that were not asked for take part if all their cells are in the folder already. The data that
    controllers clone from is made in `folder/fast-forward`, and not needed once all those cells are done.

    Args:
        profile: how much of the paper.
        folder: of cells and data.
        workers: how many processes.
        experiments: those to run.
        on_done: called with an experiment and a cell of it that is done, or was before.
        on_data: called with every time index of the data that is made, or was before.
        scheduler: the address of a Dask scheduler whose workers run the cells, in place of processes here.
        on_notice: called with a line of text about whatever is damaged.
        force: remove what is in the folder and begin anew.
    """
    for experiment in experiments:
        check_choice("experiment", experiment, EXPERIMENTS)
    tables: dict[str, pd.DataFrame] = {}
    with claimed(folder, KIND, settings(profile), OURS, force):
        for experiment in EXPERIMENTS:

            def leave_out(text: str, name: str = experiment) -> None:
                on_notice(f"{text}; {name} takes no part until it is run again")

            if experiment not in experiments and not _is_done(experiment, profile, folder, leave_out):
                continue
            if experiment == "training":
                tables[experiment] = trained_tables().query("seed in @profile.seeds or controller == 'tanner'")
            else:
                cells = cells_of(experiment, profile, (folder / "fast-forward").resolve())
                if experiment == "generalization" and scheduler is None and not _is_done(experiment, profile, folder):
                    profile.fast_forward.make(folder / "fast-forward", workers, on_data, on_notice)

                def note(cell: Cell, name: str = experiment) -> None:
                    on_done(name, cell)

                run_cells(cells, folder / "cells", workers, note, scheduler=scheduler, on_notice=on_notice)
                tables[experiment] = collect(cells, folder / "cells")
    statements = architecture_statements(profile.seeds)
    for experiment, table in tables.items():
        statements += STATEMENTS[experiment](table)
    if profile == PROFILES["paper"]:
        statements = [replace(s, remark=REMARKS.get(s.id, "")) if s.verdict != "holds" else s for s in statements]
    order = {name: number for number, name in enumerate("ATFLOG")}
    return Reproduction(profile, tables, sorted(statements, key=lambda s: (order[s.id[0]], s.id)))


def settings(profile: Profile) -> dict[str, Any]:
    """Everything that has a say in the results."""
    weights = {
        f"{name}:{seed}": file_checksum(trained_weights(name, seed)) for name in TRAINED for seed in profile.seeds
    }
    tables = {
        f"{name}:{seed}": file_checksum(trained_validation(name, seed)) for name in TRAINED for seed in profile.seeds
    }
    cells = {name: checksum(repr(cells_of(name, profile)).encode()) for name in RUN_IN_CELLS}
    return {"profile": asdict(profile), "cells": cells, "weights": weights, "tables": tables, "versions": versions()}


def _is_done(
    experiment: str, profile: Profile, folder: Path, on_damage: Callable[[str], object] = lambda text: None
) -> bool:
    if experiment == "training":
        return True
    return all(is_done(cell, folder / "cells", on_damage) for cell in cells_of(experiment, profile))
