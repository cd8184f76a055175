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
    """Train a network, test it on unseen flocks beside other controllers, and write films and a report."""

    out: Path = Path("runs/demo")
    """Directory to write; replaces a finished demonstration and resumes an interrupted one."""
    flocks: int = 50
    """Number of test flocks, B."""
    agents: int = 100
    """Number of agents in a flock, N."""
    seed: int = 0
    """Seed of the test flocks and of the training."""
    epochs: int = RECIPE.epochs
    """Training epochs; the package's weights were trained for 400."""

    def run(self) -> None:
        """Train, test, write the demonstration, and print the comparison and the paths of report, weights and films."""
        from equiflock.report.demo_report import TRAINING_DIR, check_demo_dir, format_short_comparison, write_demo

        require_torch("demo")
        check_demo_dir(self.out)
        disk = RandomDisk(self.flocks, self.agents, self.seed)
        # Validate a very short training at its end.
        validate_every = min(RECIPE.validate_every, self.epochs)
        recipe = replace(RECIPE, epochs=self.epochs, seed=self.seed, agents=self.agents, validate_every=validate_every)
        steps = count_steps(DURATION, TIME_STEP)
        with progress("loss", "IVV", "IMAN") as bar:
            # Show all bars from the start, so that the user sees all stages.
            training = TrainingProgress(bar, recipe)
            flight_tasks = {name: bar.add_task(f"flying under {name}", total=steps) for name in CONTROLLERS}
            film_tasks = {name: bar.add_task(f"filming {name}", total=None) for name in CONTROLLERS}

            def on_step(name: str, moment: Moment) -> None:
                bar.update(flight_tasks[name], completed=moment.step)

            def on_frame(name: str, done: int, total: int) -> None:
                bar.update(film_tasks[name], completed=done, total=total)

            # Ctrl-C stops the training at a checkpoint. `demonstrate` only reads the results of the finished training.
            training_dir = self.out / TRAINING_DIR
            with StopRequest(
                lambda: training.print_notice(f"{training.stop_message}; the same command resumes the training")
            ) as stop_request:
                resume_or_create_training(training_dir, recipe).train(
                    training.show_epoch, training.print_notice, should_stop=stop_request
                )
            demonstration = demonstrate(disk, recipe, on_step=on_step, training=training_dir)
            files = write_demo(demonstration, self.out, on_frame)
        print_table(
            f"{self.flocks} unseen flocks of {self.agents} agents for {DURATION:g} s: integrals of velocity variance "
            "(IVV) and mean acceleration norm (IMAN)",
            *(format_short_comparison(demonstration, quartiles) for quartiles in (True, False)),
        )
        out.print(
            f"In {len(demonstration.contrasting_flocks)} of {self.flocks} flocks the trained network keeps the "
            "communication graph connected, while the classical decentralized law ends with a disconnected graph."
        )
        for path in files:
            out.print(f"  {path}", highlight=False)
