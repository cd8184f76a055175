"""`equiflock deploy`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from equiflock.cli.console import out
from equiflock.cli.environment_options import EnvironmentArgument, EnvironmentOptions, print_environment
from equiflock.cli.plugins import import_plugin
from equiflock.cli.scenario_options import (
    ScenarioName,
    ScenarioOptions,
    ScenarioOptionsArgument,
    build_scenario,
    warn_about_disagreement,
)
from equiflock.cli.terminal import PREPARING_TEXT, progress
from equiflock.controllers import load
from equiflock.deployment.agent import AgentKind
from equiflock.runtime.checks import InputError, check_positive
from equiflock.runtime.files import check_writable, run_interruptibly
from equiflock.scenarios.registry import choose_orbit
from equiflock.simulation.simulate import count_steps

DEFAULT_OPTIONS = {"flocks": 1, "agents": 12}
"""Options of scenarios that are others here: a process for each agent."""
TIME_STEP = 0.01
AUDIT_PAGE = Path("audit.html")


@dataclass(frozen=True)
class Deploy:
    """Fly a swarm of processes, one for each agent, which know only what they measure and what reaches them."""

    controller: str = "etdagnn"
    """A controller that each agent can run by itself, as for `equiflock simulate`."""
    scenario: ScenarioName = "flocking"
    options: ScenarioOptionsArgument = field(default_factory=ScenarioOptions)
    world: EnvironmentArgument = field(default_factory=EnvironmentOptions)
    agent: AgentKind = "numpy"
    """Code that an agent's process runs: the exported NumPy file, the exported C header, or the package itself."""
    time_step: float | None = None
    """Seconds of flight per step; 0.01 in lockstep, and 1 / rate in real time, if left out."""
    duration: float | None = None
    """Seconds to fly; as long as the scenario's test if left out: 2 s for flocking."""
    rate: float | None = None
    """Steps per second of real time; in lockstep, where everybody waits for everybody, if left out."""
    audit: bool = False
    """Fly again with everything changed that agents did not receive, and write the verdict as a page, with the whole
    record beside it (.csv)."""
    audit_page: Path | None = None
    """The page of --audit; audit.html if left out."""
    stall: int = 0
    """So many processes stall for half a second in the middle of the flight."""
    garbage: int = 0
    """So many agents send garbage from the middle of the flight on. With --fail, processes are killed."""
    answer_timeout: float | None = None
    """Seconds for which the others wait for an agent in lockstep, before they fly on without it; 10 if left out, and
    0.1 with --stall."""
    port: int = 0
    """The port of 127.0.0.1 at which the world listens; 0 for any that is free."""
    plugin: str | None = None
    """A Python module or file to import first, such as one that registers your own controller or scenario."""

    @staticmethod
    def default_options(kind: type[Any]) -> Mapping[str, Any]:
        """One flock, of few agents."""
        return {
            name: value for name, value in DEFAULT_OPTIONS.items() if name in getattr(kind, "__dataclass_fields__", {})
        }

    def run(self) -> None:
        """Print a table of parity, bandwidth, ages, times and faults; exit code 1 if parity or audit fails."""
        from equiflock.deployment.deploy_swarm import Deployment, deploy
        from equiflock.deployment.export.export_checks import check_local
        from equiflock.deployment.swarm_audit import audit_swarm

        import_plugin(self.plugin)
        page = AUDIT_PAGE if self.audit_page is None else self.audit_page
        if self.audit_page is not None and not self.audit:
            raise InputError("--audit-page says where --audit writes its page: give both")
        if self.audit:
            check_writable(page)
            if self.rate is not None:
                raise InputError("--audit is for lockstep, in which a flight can be flown again: leave --rate out")
        if self.rate is not None:
            check_positive("rate", self.rate)
        usual = TIME_STEP if self.rate is None else 1.0 / self.rate
        time_step = usual if self.time_step is None else self.time_step
        scenario, world, controller = (
            build_scenario(self.scenario, self.options),
            self.world.world,
            load(self.controller),
        )
        check_local(controller)
        duration = scenario.duration if self.duration is None else self.duration
        world.check_duration(duration)
        if scenario.obstacles != "nearest":
            raise InputError(f'an agent hears the nearest obstacle agent alone; got obstacles = "{scenario.obstacles}"')
        warn_about_disagreement(scenario, controller)
        deployment = Deployment(
            agent=self.agent,
            time_step=time_step,
            steps=count_steps(duration, time_step),
            orbit=choose_orbit(scenario, controller),
            rate=self.rate,
            port=self.port,
            answer_timeout=self.answer_timeout,
            stall=self.stall,
            garbage=self.garbage,
            plugin=self.plugin,
            **world.flight_options,
        )
        with progress() as bar:
            task = bar.add_task(PREPARING_TEXT, total=deployment.steps)
            start = run_interruptibly(scenario.draw)
            world.check_start(start)
            flown = deploy(
                self.controller,
                start,
                deployment,
                lambda step: bar.update(task, completed=step, description=f"flying under {self.controller}"),
                keep_record=self.audit,
            )
            found = None
            if self.audit:
                bar.update(task, description="flying again, with everything changed that was not received", total=None)
                found = audit_swarm(self.controller, start, deployment, flown)
        how = "in lockstep" if self.rate is None else f"at {self.rate:g} steps a second"
        count = f"{len(flown.host.robots)} processes ({self.agent})"
        title = f"{count} under {self.controller} for {duration:g} s {how}"
        # Values are sentences, which a table would cut short in a narrow terminal.
        out.print(title, highlight=False, markup=False, soft_wrap=True)
        for name, value in flown.table:
            out.print(f"  {name:<30}{value}", highlight=False, markup=False, soft_wrap=True)
        print_environment(world)
        if found is not None:
            out.print(f"audit: {found.verdict}", highlight=False, markup=False, soft_wrap=True)
            saved = found.save(page)
            record = saved.with_suffix(".csv")
            out.print(f"page: {saved}, record: {record}", highlight=False, markup=False, soft_wrap=True)
        # What a script asks: did robots do what the simulator does, and use what they received alone?
        if flown.parity.different_count or (found is not None and not found.passed):
            sys.exit(1)
