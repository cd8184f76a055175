"""The atlas of classical laws: measure the claims about each law and film it; docs/atlas has the result.

python benchmarks/atlas.py --out runs/atlas                          # about three minutes on two cores
python benchmarks/atlas.py --out runs/atlas --only tanner --no-films # one law

Writes atlas.md, atlas.csv and NAME.webp of each law. Measured claims are kept in OUT/jobs: an interrupted run continues
there, and the page shows all laws measured so far. `--force` measures again.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from atlas_claims import (
    BondLength,
    Claim,
    ConnectedShare,
    EscapeSpeed,
    FinalVelocityVariance,
    HeadOnDistance,
    MeanVelocityDrift,
    OrderPreserved,
    SmallestDistance,
    SuccessRate,
)
from equiflock._runtime.executors import run_jobs
from equiflock._runtime.files import remove_path
from equiflock._runtime.jobs import is_done, read_results
from equiflock.controllers import load
from equiflock.evaluation.job_weights import compute_weights_checksum
from equiflock.flock import Flock
from equiflock.plotting.film import film
from equiflock.plotting.html_report import format_markdown_table
from equiflock.scenarios import RandomDisk, make_scenario
from equiflock.simulation.flight_jobs import scenario_to_dict
from equiflock.simulation.simulate import simulate

FRAMES_PER_SECOND = 10
DOTS_PER_INCH = 58
"""Resolution of the films; low, as the page has one film per law."""
FILM_SUFFIX = ".webp"
INTRODUCTION = """\
# An atlas of laws

The classical flocking laws. Each is a controller of the package: `ef.load("NAME")` in Python, `--controller NAME` on \
the command line, and an entry in the menu of the live page, where its parameters are sliders. Laws whose names end in \
`-local` are truncated at R, so that agents can compute them from their neighbours. The \
[guide](../guide.md#controllers) gives the number of agents that each law is meant for.

`python benchmarks/atlas.py` makes the films and the tables. A claim is a measured number with a limit; a number \
without a limit is reported, not claimed.
"""


@dataclass(frozen=True)
class Entry:
    """A law in the atlas."""

    name: str
    title: str
    """Authors and year."""
    promises: str
    failure_modes: str
    claims: tuple[Claim, ...]
    panels: tuple[str, ...]
    """Controllers of the film, side by side."""
    scenario: str = "flocking"
    """Scenario of the film, with options."""
    seconds: float = 6.0
    """Simulated seconds of the film."""
    speed: float = 1.0
    """Simulated seconds per second of film."""
    time_step: float = 0.01
    """Time step of the film's flights, in seconds."""
    start: Callable[[], Flock] | None = None
    """Makes the start of the film's flights; by default that of the scenario."""
    caption: str = ""
    """What to see in the film."""


def make_rows_head_on() -> Flock:
    """Return two rows of four agents that fly at each other, one agent at each, while both drift upwards."""
    lanes = 1.2 * (np.arange(4) - 1.5)
    sides = np.repeat([-1.0, 1.0], 4)
    positions = np.column_stack([sides, np.tile(lanes, 2)])
    velocities = np.column_stack([-7.0 * sides, np.full(8, 2.0)])
    return Flock(positions[None], velocities[None], groups=np.repeat([0, 1], 4)[None])


CROWDED = RandomDisk(50, agents=50, disk_radius=1.5)
"""Dense flocks, whose agents would soon collide."""
FAR_AND_FAST = RandomDisk(50, agents=20, disk_radius=20.0, min_degree=0, connected=False, max_speed=10.0)
"""Sparse flocks, whose agents fly fast in all directions."""

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "reynolds",
        "Reynolds 1987: boids",
        "Nothing that could be proven: three rules over the neighbours within R (alignment, cohesion, separation) "
        "produce recognisable flocking.",
        "Velocities agree slowly, and an agent that is out of range for a moment is lost, which happens in many "
        "flights from the paper's initial conditions.",
        (
            FinalVelocityVariance("reynolds", "velocity variance after 8 s, relative to the start, worst of 50 flocks"),
            ConnectedShare("reynolds", "flocks connected after 8 s"),
        ),
        ("reynolds", "reynolds:cohesion=0"),
    ),
    Entry(
        "tanner",
        "Tanner, Jadbabaie, Pappas 2003 and 2007: flocking",
        "Velocities agree, no agents collide, and agents settle at distances that minimise the potential. The "
        "centralized law, the expert of the paper's networks, aligns with the whole flock; tanner-dynamic aligns with "
        "the neighbours within R, and its theorem requires that the communication graph stays connected.",
        "Connectivity is not guaranteed: from the paper's initial conditions tanner-dynamic loses agents in all these "
        "flights, which is why the paper learns a controller with observations over several hops.",
        (
            ConnectedShare("tanner", "flocks connected after 8 s, centralized"),
            ConnectedShare("tanner-dynamic", "flocks connected after 8 s, neighbours within R"),
        ),
        ("tanner", "tanner-dynamic"),
    ),
    Entry(
        "cucker-smale",
        "Cucker, Smale 2007: emergent behaviour in flocks",
        "The mean velocity is constant, so that the flock's final velocity is known from the start; and for beta up "
        "to 1/2, when influence decays slowly with distance, velocities agree from any initial condition.",
        "For beta above 1/2 agents that separate fast enough never agree: for beta = 1 two agents keep the relative "
        "speed that the equation predicts. The law neither prevents collisions nor, once the sum is cut off at R, "
        "keeps the flock connected.",
        (
            MeanVelocityDrift("cucker-smale", "drift of the mean velocity, relative to the largest speed", most=1e-12),
            FinalVelocityVariance(
                "cucker-smale:beta=0.5",
                "beta = 1/2, far apart and fast: relative variance after 100 s, worst of 50 flocks",
                most=1e-6,
                disk=FAR_AND_FAST,
                seconds=100.0,
            ),
            EscapeSpeed(
                "cucker-smale:beta=1",
                "beta = 1, two separating agents: final relative speed / prediction",
                least=0.99,
                most=1.01,
            ),
            ConnectedShare("cucker-smale-local", "flocks connected after 8 s, cut off at R"),
        ),
        ("cucker-smale", "cucker-smale-local"),
    ),
    Entry(
        "cucker-smale-singular",
        "Carrillo, Choi, Mucha, Peszek 2017: singular influence",
        "The mean velocity is constant, and for alpha >= 1 no two agents ever touch, since their velocities agree "
        "before they meet. Two agents that meet head-on come to rest at a distance that the equation predicts.",
        "Agents may come arbitrarily close, and the time step must resolve how they brake: with a coarse one they can "
        "pass through each other.",
        (
            MeanVelocityDrift("cucker-smale-singular:clamp=none", "drift of the mean velocity", most=1e-12),
            HeadOnDistance(
                "cucker-smale-singular",
                "two agents head-on: distance at rest / prediction",
                least=0.99,
                most=1.01,
            ),
            OrderPreserved("cucker-smale-singular", "flocks on a line in which no agent passes another", least=1.0),
            OrderPreserved("cucker-smale-singular:alpha=0.5", "the same for alpha = 1/2, without a guarantee"),
        ),
        ("cucker-smale-singular", "cucker-smale"),
        seconds=1.5,
        speed=0.25,
        time_step=1e-3,
        start=make_rows_head_on,
        caption="Two rows fly at each other, each agent at one of the other row. Under the singular law the agents of "
        "a pair brake before they meet, and fly on beside each other; under Cucker and Smale's law they pass through "
        "each other.",
    ),
    Entry(
        "cucker-dong",
        "Cucker, Dong 2010: avoiding collisions in flocks",
        "Agents that start farther apart than the core distance, here 0.05, never come closer, and velocities agree as "
        "in Cucker and Smale's law; the repulsion vanishes when they agree.",
        "The repulsion is scaled by the disorder of the whole flock, which no single agent can measure: the law has no "
        "local form. As it vanishes with the disorder, it sets no distance at which agents settle.",
        (
            SmallestDistance(
                "cucker-dong:clamp=none",
                "dense flocks, steps of 1 ms: smallest distance in flight",
                least=0.05,
                disk=CROWDED,
            ),
            SmallestDistance("cucker-dong", "the law with its defaults, steps of 10 ms", disk=CROWDED, time_step=0.01),
            SmallestDistance("cucker-smale", "the same flocks without the repulsion", disk=CROWDED, time_step=0.01),
            FinalVelocityVariance("cucker-dong", "velocity variance after 8 s, worst of 50 flocks", most=1e-6),
        ),
        ("cucker-dong", "cucker-smale"),
        scenario="flocking:agents=50:disk_radius=1.5",
        seconds=3.0,
        speed=0.5,
    ),
    Entry(
        "bonding",
        "Park, Kim, Ha 2010: inter-particle bonding forces",
        "Springs of length 2 R0 and dampers along the line between agents: three agents in the plane, and four in "
        "space, end exactly 2 R0 apart.",
        "More agents cannot all be 2 R0 apart. Without a cutoff the springs of distant pairs compress the flock; cut "
        "off at R, a little more than 2 R0, neighbours settle 2 R0 apart for any number of agents, in patches of a "
        "lattice.",
        (
            BondLength(
                "bonding",
                "three agents: distance between neighbours / 2 R0",
                least=0.999,
                most=1.001,
                disk=RandomDisk(50, agents=3, disk_radius=0.8),
            ),
            BondLength(
                "bonding",
                "four agents in space: distance between neighbours / 2 R0",
                least=0.999,
                most=1.001,
                disk=RandomDisk(50, agents=4, disk_radius=0.8, dimensions=3),
            ),
            BondLength("bonding", "100 agents: distance between neighbours / 2 R0"),
            BondLength("bonding-local", "100 agents, cut off at R: distance between neighbours / 2 R0", 0.95, 1.05),
        ),
        ("bonding", "bonding-local"),
        seconds=10.0,
        speed=2.0,
    ),
    Entry(
        "formation",
        "Choi, Kalise, Peszek, Peters 2019; with noise Choi, Oh, Tse 2021: formation control",
        "Every agent has a place in a pattern, and accelerates by the difference between actual and desired relative "
        "positions: for beta up to 1 velocities agree and the pattern forms from every initial condition.",
        "Places are assigned in advance, so agents trade positions, and may pass each other within thousandths of R. "
        "With strong noise, or along a chain of many agents, convergence takes too long. The pattern does not rotate "
        "with the flock.",
        (
            *(
                SuccessRate(
                    f"formation:pattern={pattern}",
                    f"{pattern}: flocks of 30 whose error is below 5% of the pattern's size",
                    least=0.9,
                    scenario=f"formation:pattern={pattern}",
                )
                for pattern in ("vee", "circle", "EQ")
            ),
            SuccessRate(
                "formation:noise=0.5",
                "vee, with noise: flocks whose error is below 5%",
                least=0.9,
                scenario="formation",
            ),
            SuccessRate("formation:alpha=0", "vee, without the singular influence", scenario="formation"),
        ),
        ("formation", "formation:pattern=EQ"),
        scenario="formation:agents=60",
        seconds=5.0,
    ),
    Entry(
        "gu-leader",
        "Gu, Wang 2009: leader-follower flocking",
        "A tenth of the flock knows a goal and steers to it; the others align, keep their distance and stay near the "
        "centre of the flock, which they estimate from their neighbours' messages, so that all agents arrive.",
        "Informed agents that are too few or steer too hard leave the others behind; with an estimate over one hop "
        "more flocks become disconnected.",
        (
            SuccessRate("gu-leader", "flocks that arrive, a tenth informed", least=0.9, scenario="goal"),
            SuccessRate("gu-leader", "flocks that arrive, one in fifty informed", scenario="goal:informed=0.02"),
            SuccessRate("gu-leader:hops=1", "flocks that arrive, the centre estimated over one hop", scenario="goal"),
        ),
        ("gu-leader", "gu-leader:hops=1"),
        scenario="goal",
        seconds=9.0,
        speed=1.5,
    ),
    Entry(
        "segregation",
        "Santos, Pimenta, Chaimowicz 2014; learned as in Omotuyi, Kumar 2022: segregation",
        "Agents keep a smaller distance to agents of their group than to others. No agents collide, velocities agree, "
        "and the potential reaches a minimum; that groups are separated there is a conjecture of the authors, which "
        "these flights support. According to the paper, networks learn this from the law with messages from within R.",
        "Cut off at R, the law loses agents that are out of range, and so do the networks, whose flocks also change "
        "their mean velocity. A minimum of the potential need not be global: the authors saw groups of very different "
        "sizes stay mixed.",
        (
            *(
                SuccessRate(
                    "segregation",
                    f"{groups} groups: flocks that segregate",
                    least=0.9,
                    scenario=f"segregation:groups={groups}",
                )
                for groups in (2, 3, 4, 5)
            ),
            SuccessRate("segregation-local", "3 groups, cut off at R", scenario="segregation"),
            SuccessRate("etdagnn-segregation", "3 groups, learned by ETDAGNN", least=0.7, scenario="segregation"),
            SuccessRate("tdagnn-segregation", "3 groups, learned by TDAGNN", least=0.7, scenario="segregation"),
        ),
        ("segregation", "etdagnn-segregation"),
        scenario="segregation",
        seconds=6.0,
    ),
)


@dataclass(frozen=True)
class ClaimJob:
    """Measurement of one claim."""

    number: int
    """Index among the claims of all entries."""
    claim: Claim
    parameters: str = ""
    """Parameters of the law, or the checksum of its weights: if they change, the claim is measured again."""

    @property
    def key(self) -> str:
        return f"{self.number:02d}-{self.claim.law.partition(':')[0]}"

    @property
    def labels(self) -> dict[str, Any]:
        claim = self.claim
        return {"claim": self.number, "law": claim.law, "description": claim.description, "rule": claim.rule}

    def run(self) -> pd.DataFrame:
        value = self.claim.measure()
        return pd.DataFrame({"value": [value], "verdict": [self.claim.judge(value)]})


def build_claim_jobs(names: Sequence[str] = ()) -> list[ClaimJob]:
    """Return a job per claim of all entries, or of those named."""
    claims = [(entry, claim) for entry in ENTRIES for claim in entry.claims]
    return [
        ClaimJob(number, claim, compute_weights_checksum(claim.law) or repr(load(claim.law)))
        for number, (entry, claim) in enumerate(claims)
        if not names or entry.name in names
    ]


def draw_film(entry: Entry, path: Path) -> None:
    """Film the controllers of an entry side by side, from the same start and for the same time."""
    scenario = make_scenario(entry.scenario, flocks=1)
    start = entry.start() if entry.start else scenario.draw()
    flight: dict[str, Any] = {
        "time_step": entry.time_step,
        "duration": entry.seconds,
        "config": scenario_to_dict(scenario),
    }
    flights = [simulate(start, load(name), **flight) for name in entry.panels]
    film(
        flights,
        path,
        titles=entry.panels,
        frames_per_second=FRAMES_PER_SECOND,
        dots_per_inch=DOTS_PER_INCH,
        speed=entry.speed,
    )


def format_page(results: pd.DataFrame, folder: Path) -> str:
    """Return the page: for each law in the results its film, if `folder` has one, a description and its claims."""
    parts = [INTRODUCTION]
    for entry in ENTRIES:
        jobs = [job for job in build_claim_jobs([entry.name]) if job.number in results.claim.values]
        if not jobs:
            continue
        parts.append(f"## {entry.title}\n")
        if (folder / f"{entry.name}{FILM_SUFFIX}").exists():
            parts.append(f"![{' beside '.join(entry.panels)}]({entry.name}{FILM_SUFFIX})\n")
            parts += [f"*{entry.caption}*\n"] if entry.caption else []
        parts += [f"**Claims.** {entry.promises}\n", f"**Fails.** {entry.failure_modes}\n"]
        parts.append(format_claims(jobs, results) + "\n")
    return "\n".join(parts)


def format_claims(jobs: Sequence[ClaimJob], results: pd.DataFrame) -> str:
    """Return the Markdown table of the measured claims beside their limits."""
    values = results.set_index("claim").value
    rows = []
    for job in jobs:
        claim, value = job.claim, values[job.number]
        text = f"{value:{claim.value_format}}"
        rows.append([claim.description, f"`{claim.law}`", text, claim.rule, claim.judge(value)])
    return format_markdown_table(["measured", "controller", "number", "claimed", "verdict"], rows, align_left=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Measure the claims about the classical laws, and film each law.")
    parser.add_argument("--out", type=Path, default=Path("runs/atlas"))
    parser.add_argument("--only", nargs="+", default=(), choices=[entry.name for entry in ENTRIES], metavar="NAME")
    parser.add_argument("--no-films", action="store_true")
    parser.add_argument("--force", action="store_true", help="measure again what was measured before")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    folder: Path = options.out
    if options.force:
        remove_path(folder / "jobs")
    jobs = build_claim_jobs(options.only)
    run_jobs(jobs, folder / "jobs", options.workers, lambda job: print(f"measured {job.key}", flush=True))
    for entry in ENTRIES:
        if not options.no_films and (not options.only or entry.name in options.only):
            draw_film(entry, folder / f"{entry.name}{FILM_SUFFIX}")
            print(f"filmed {entry.name}", flush=True)
    results = read_results([job for job in build_claim_jobs() if is_done(job, folder / "jobs")], folder / "jobs")
    results.to_csv(folder / "atlas.csv", index=False)
    (folder / "atlas.md").write_text(format_page(results, folder), encoding="utf-8")
    print(f"\n{format_claims(jobs, results)}\n\n{folder / 'atlas.md'}")


if __name__ == "__main__":
    main()
