"""`equiflock demo`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from equiflock.cli.console import out
from equiflock.cli.stop_request import StopRequest
from equiflock.cli.terminal import TrainingProgress, print_table, progress
from equiflock.experiments.demo import CONTROLLERS, DURATION, RECIPE, TIME_STEP, demonstrate, resume_or_create_training
from equiflock.protocols import Moment
from equiflock.runtime.extras import require_torch
from equiflock.scenarios import RandomDisk
from equiflock.simulation.simulate import count_steps


@dataclass(frozen=True)
class Demo:
    """Train a network from nothing, fly it on unseen flocks beside others, and write films and a report."""

    out: Path = Path("runs/demo")
    """The folder to write; an earlier demonstration by this version is replaced, and one that was interrupted goes
    on."""
    flocks: int = 50
    """How many flocks."""
    agents: int = 100
    """How many agents in each."""
    seed: int = 0
    """Which flocks, and the seed of the training."""
    epochs: int = RECIPE.epochs
    """How long to train; the weights that come with the package had 400."""

    def run(self) -> None:
        """Print the comparison and say where films and report are."""
        from equiflock.report.demo_report import TRAINING_DIR, check_demo_dir, format_short_comparison, write_demo

        require_torch("demo")
        check_demo_dir(self.out)
        disk = RandomDisk(self.flocks, self.agents, self.seed)
        # A very short training is validated at its end.
        every = min(RECIPE.validate_every, self.epochs)
        recipe = replace(RECIPE, epochs=self.epochs, seed=self.seed, agents=self.agents, validate_every=every)
        steps = count_steps(DURATION, TIME_STEP)
        with progress("loss", "IVV", "IMAN") as bar:
            # All bars are shown from the beginning, so that the user sees what is to come.
            training = TrainingProgress(bar, recipe)
            flying = {name: bar.add_task(f"flying under {name}", total=steps) for name in CONTROLLERS}
            drawing = {name: bar.add_task(f"filming {name}", total=None) for name in CONTROLLERS}

            def on_step(name: str, moment: Moment) -> None:
                bar.update(flying[name], completed=moment.step)

            def on_frame(name: str, done: int, total: int) -> None:
                bar.update(drawing[name], completed=done, total=total)

            # Ctrl-C ends the training with a checkpoint; `demonstrate` finds it finished and only reads its results.
            folder = self.out / TRAINING_DIR
            with StopRequest(
                lambda: training.print_notice(f"{training.stop_message}; the same command goes on")
            ) as stopping:
                resume_or_create_training(folder, recipe).train(
                    training.epoch, training.print_notice, should_stop=stopping
                )
            found = demonstrate(disk, recipe, on_step=on_step, training=folder)
            files = write_demo(found, self.out, on_frame)
        print_table(
            f"{self.flocks} unseen flocks of {self.agents} agents for {DURATION:g} s: integrals of velocity variance "
            "(IVV) and mean acceleration norm (IMAN)",
            *(format_short_comparison(found, quartiles) for quartiles in (True, False)),
        )
        out.print(
            f"In {len(found.contrasting_flocks)} of {self.flocks} flocks the network that was just trained keeps everybody in "
            "touch while the classical decentralized law loses agents for good."
        )
        for path in files:
            out.print(f"  {path}", highlight=False)
