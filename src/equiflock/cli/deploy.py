"""`equiflock deploy`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from equiflock._runtime.checks import InputError, check_positive
from equiflock._runtime.files import check_writable, run_interruptibly
from equiflock.cli.plugins import import_plugin
from equiflock.cli.shared_options import (
    EnvironmentArgument,
    EnvironmentOptions,
    SafetyArgument,
    ScenarioName,
    ScenarioOptions,
    ScenarioOptionsArgument,
    build_scenario,
    parse_safety,
    print_environment,
    report_duration,
    warn_about_flight,
)
from equiflock.cli.terminal import PREPARING_TEXT, err, out, progress
from equiflock.controllers import load
from equiflock.controllers.trained import DEFAULT_CONTROLLER
from equiflock.deployment.exported_agents import AgentKind
from equiflock.scenarios.registry import choose_orbit
from equiflock.simulation.simulate import count_steps

DEFAULT_OPTIONS = {"flocks": 1, "agents": 12}
"""Scenario options with other defaults in this command: one flock, with few agents, as each is a process."""
TIME_STEP = 0.01
AUDIT_PAGE = Path("audit.html")


@dataclass(frozen=True)
class Deploy:
    """Run a swarm as one process per agent, and compare it with the simulator.

    An agent's process has only its own measurements and the messages that it receives.
    """

    controller: str = DEFAULT_CONTROLLER
    """A decentralized controller, as for `equiflock simulate`."""
    scenario: ScenarioName = "flocking"
    options: ScenarioOptionsArgument = field(default_factory=ScenarioOptions)
    environment: EnvironmentArgument = field(default_factory=EnvironmentOptions)
    agent: AgentKind = "numpy"
    """Code that each process runs: the exported NumPy file, the exported C header, or the package."""
    time_step: float | None = None
    """Time step in seconds; by default 0.01 in lockstep and 1 / rate in real time."""
    duration: float | None = None
    """Duration in seconds; by default that of the scenario's test, 2 s for flocking."""
    rate: float | None = None
    """Steps per second in real time; by default agents run in lockstep: all wait for each other at every step."""
    audit: bool = False
    """Check that agents use only what they receive: replay their input while all other agents differ; write a page."""
    audit_page: Path | None = None
    """HTML page of --audit, with all that agents received as .csv beside it; by default audit.html."""
    stall: int = 0
    """Number of processes that stall for half a second in the middle of the flight."""
    garbage: int = 0
    """Number of agents that send garbage from the middle of the flight on. (To kill processes, use --fail.)"""
    message_bytes: int | None = None
    """Most bytes of a message, as for `equiflock export`, in one packet and with all hops; for agents numpy and c."""
    answer_timeout: float | None = None
    """Seconds to wait for an agent in lockstep before continuing without it; by default 10, or 0.1 with --stall."""
    port: int = 0
    """Port of 127.0.0.1 on which the simulated environment listens; 0 for any free port."""
    safety: SafetyArgument = None
    plugin: str | None = None
    """Python module or file to import first, which may register your own controllers and scenarios."""

    @staticmethod
    def get_default_options(kind: type[Any]) -> Mapping[str, Any]:
        """Return the defaults of this command for options of any scenario, those of its disk included."""
        return DEFAULT_OPTIONS

    def run(self) -> None:
        """Print parity, bandwidth, message ages, timings and faults, and write the audit's page.

        Exit with code 1 if the audit fails, an acceleration is out of tolerance, or an agent fails unexpectedly.
        """
        from equiflock.deployment.export.program import check_local
        from equiflock.deployment.swarm import Deployment, deploy
        from equiflock.deployment.swarm_audit import audit_swarm

        import_plugin(self.plugin)
        page = self._check_audit_page()
        time_step = self._choose_time_step()
        scenario, environment, controller = (
            build_scenario(self.scenario, self.options),
            self.environment.build(),
            load(self.controller),
        )
        check_local(controller)
        duration = report_duration(scenario.duration if self.duration is None else self.duration, time_step)
        environment.check_duration(duration)
        if scenario.obstacles != "nearest":
            raise InputError(
                f'deployed agents observe only the nearest obstacle agent: obstacles must be "nearest", '
                f'got "{scenario.obstacles}"'
            )
        warn_about_flight(scenario, self.controller, controller, time_step)
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
            message_bytes=self.message_bytes,
            plugin=self.plugin,
            safety=parse_safety(self.safety),
            environment=environment,
        )
        with progress() as bar:
            task = bar.add_task(PREPARING_TEXT, total=deployment.steps)
            start = run_interruptibly(scenario.draw)
            environment.check_start(start)
            result = deploy(
                self.controller,
                start,
                deployment,
                lambda step: bar.update(task, completed=step, description=f"flying under {self.controller}"),
                keep_record=self.audit,
            )
            audit = None
            if self.audit:
                bar.update(task, description="auditing: replaying inputs while other agents differ", total=None)
                audit = audit_swarm(self.controller, start, deployment, result)
        mode = "in lockstep" if self.rate is None else f"at {self.rate:g} steps a second"
        count = f"{len(result.host.robots)} processes ({self.agent})"
        title = f"{count} under {self.controller} for {duration:g} s {mode}"
        # Values are sentences, which a table would truncate in a narrow terminal.
        out.print(title, highlight=False, markup=False, soft_wrap=True)
        for name, value in result.table:
            out.print(f"  {name:<30}{value}", highlight=False, markup=False, soft_wrap=True)
        print_environment(environment)
        if audit is not None:
            out.print(f"audit: {audit.verdict}", highlight=False, markup=False, soft_wrap=True)
            saved = audit.save(page)
            written = f"page: {saved}, record: {saved.with_suffix('.csv')}"
            out.print(written, highlight=False, markup=False, soft_wrap=True)
        if result.failed_agents:
            failures = ", ".join(f"{number} ({reason})" for number, reason in result.failed_agents.items())
            err.print(f"agents failed unexpectedly: {failures}", highlight=False, markup=False, soft_wrap=True)
        if result.parity.verdict == "no" or result.failed_agents or (audit is not None and not audit.passed):
            sys.exit(1)

    def _check_audit_page(self) -> Path:
        """Return the path of the audit's page. Raise InputError if it is not writable or has no effect."""
        page = AUDIT_PAGE if self.audit_page is None else self.audit_page
        if self.audit_page is not None and not self.audit:
            raise InputError("--audit-page has no effect without --audit: give both")
        if self.audit:
            check_writable(page)
            if self.rate is not None:
                raise InputError("--audit needs lockstep, in which a flight is repeatable: leave out --rate")
        return page

    def _choose_time_step(self) -> float:
        if self.rate is not None:
            check_positive("rate", self.rate)
        default = TIME_STEP if self.rate is None else 1.0 / self.rate
        return default if self.time_step is None else self.time_step
