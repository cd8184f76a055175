"""`equiflock judge`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from equiflock._runtime.checks import check_count
from equiflock.cli.jobs import WorkerOptions
from equiflock.cli.plugins import compute_plugin_checksum, import_plugin
from equiflock.cli.shared_options import PluginName
from equiflock.cli.terminal import print_column_blocks, print_line, print_notice, print_paths, progress

if TYPE_CHECKING:
    from equiflock.evaluation.card import Card
    from equiflock.statistics import Estimate


@dataclass(frozen=True)
class Judge(WorkerOptions):
    """Write the report card of controllers: how good they are, when they break, and whether differences are real.

    Flies the same random flocks under many conditions: sizes, densities, time steps, leaders, obstacles, radios, bodies
    and failures. For every disturbance it finds the level at which flights begin to fail. Prints scores and
    breakpoints with 95% intervals, and writes card.html, card.csv and card.json. The same command continues an
    interrupted card. `evaluate` answers one question in seconds; this gives the whole picture in minutes.
    """

    controllers: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Weights files (.safetensors) or names of controllers, as for `equiflock simulate`."""
    profile: Literal["quick", "full"] = "quick"
    """quick: about two minutes for one controller on two cores; full: about half an hour."""
    against: tuple[str, ...] = ("etdagnn",)
    """Baselines that fly the same flocks; none: --against with no name."""
    seed: int = 0
    """Random seed of flocks, radios and failures."""
    out: Path | None = None
    """Run directory, whose results are reused; by default runs/cards/CONTROLLERS-PROFILE."""
    flights: bool = True
    """Whether card.html plays a typical success and a typical failure of every row; they make it several megabytes."""
    marl_eval: bool = False
    """Whether to write marl-eval.json, too, in the layout of the package marl-eval."""
    plugin: PluginName = None
    force: bool = False
    """Delete an earlier card in the run directory and start again."""

    def run(self) -> None:
        """Run the flights that are missing, write the card, and print scores and breakpoints."""
        from equiflock.evaluation.judge import CardRun

        check_count("workers", self.workers)
        import_plugin(self.plugin)
        run = CardRun(self.controllers, self.profile, self.against, self.seed, compute_plugin_checksum(self.plugin))
        folder = self.out or run.default_folder
        with progress() as bar:
            task = bar.add_task("judging", total=len(run.build_jobs()))
            card = run.execute(
                folder,
                self.workers,
                on_done=lambda job: bar.advance(task),
                prepare=self.prepare_worker,
                scheduler=self.scheduler,
                on_notice=partial(print_notice, bar),
                force=self.force,
                marl_eval=self.marl_eval,
                flights=self.flights,
            )
        print_card(card)
        files = ("card.html", "card.csv", "card.json", *(["marl-eval.json"] if self.marl_eval else []))
        print_paths(folder / name for name in files)


def print_card(card: Card) -> None:
    """Print the scores, the breakpoints and the success rates of a card."""
    labels = {each.name: each.label for each in card.controllers}
    for facts in card.controllers:
        if facts.error:
            print_line(f"{facts.label}: {facts.error}")
    scored = [name for name in labels if name in card.scores]
    print_column_blocks(
        "score: expert 1, worst law 0, with 95% interval",
        ["", *(labels[name] for name in scored)],
        [["all rows", *(str(card.scores[name]) for name in scored)]],
    )
    flown = [name for name in labels if any(name in point.results for point in card.breakpoints)]
    if flown:
        rows = [
            [point.title, *(point.results[name]["95"].text if name in point.results else "-" for name in flown)]
            for point in card.breakpoints
        ]
        print_column_blocks(
            "at least 95% of flights succeed up to [95% interval]", ["", *(labels[name] for name in flown)], rows
        )
    shown = [each.name for each in card.controllers if each.role != "reference"]
    rows = [
        [f"{row.group}: {row.title}", *(_format_success(row.results[name].metrics.get("success")) for name in shown)]
        for row in card.rows
    ]
    print_column_blocks("flights that succeed, with 95% interval", ["", *(labels[name] for name in shown)], rows)
    broken = {each.name for each in card.controllers if each.error}
    for row in card.rows:
        for name, result in row.results.items():
            if result.remark and name not in broken:
                print_line(f"{row.group}, {row.title}: {labels[name]}: {result.remark}")


def _format_success(found: Estimate | None) -> str:
    """Return the success rate in percent; "-" without flights."""
    return "-" if found is None else found.percent
