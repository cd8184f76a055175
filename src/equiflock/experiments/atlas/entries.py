"""The entries of the atlas, one for each law, in the order of their history."""

from __future__ import annotations

from dataclasses import dataclass

from equiflock.experiments.atlas.claims import (
    BondLength,
    Claim,
    ClaimJob,
    ConnectedShare,
    EscapeSpeed,
    FinalVelocityVariance,
    HeadOnDistance,
    MeanVelocityDrift,
    OrderPreserved,
    SmallestDistance,
    SuccessRate,
)
from equiflock.scenarios import RandomDisk


@dataclass(frozen=True)
class Entry:
    """A law in the atlas.

    Attributes:
        name: of the law.
        title: authors and year.
        promises: what it promises, in words.
        failure_modes: when it fails, in words.
        claims: what is measured of that.
        panels: the controllers of its film, side by side.
        scenario: of the film, with options.
        seconds: of the film's flight.
        speed: simulated seconds per second of film.
        window: the width of what the film shows; as much as needed if left out.
    """

    name: str
    title: str
    promises: str
    failure_modes: str
    claims: tuple[Claim, ...]
    panels: tuple[str, ...]
    scenario: str = "flocking"
    seconds: float = 6.0
    speed: float = 1.0
    window: float | None = None

    @property
    def film_settings(self) -> dict[str, object]:
        """Everything that its film depends on beside the controllers themselves."""
        names = "panels", "scenario", "seconds", "speed", "window"
        return {name: getattr(self, name) for name in names}


CROWDED = RandomDisk(50, agents=50, disk_radius=1.5)
"""Flocks in which agents would meet soon."""
FAR_AND_FAST = RandomDisk(50, agents=20, disk_radius=20.0, min_degree=0, connected=False, max_speed=10.0)
"""Flocks whose agents are far apart and fly in all directions."""

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "reynolds",
        "Reynolds 1987: boids",
        "Nothing that could be proven: three rules, each for those within R. Fly as your neighbours do, stay among "
        "them, keep apart. They make what everybody recognises as a flock.",
        "Velocities agree slowly, and whoever is out of reach for a moment is lost, which happens in many flights from "
        "the paper's starts.",
        (
            FinalVelocityVariance("reynolds", "velocity variance after 8 s, of that at the start, worst of 50 flocks"),
            ConnectedShare("reynolds", "flocks in one piece after 8 s"),
        ),
        ("reynolds", "reynolds:cohesion=0"),
    ),
    Entry(
        "tanner",
        "Tanner, Jadbabaie, Pappas 2003 and 2007: flocking",
        "Velocities agree, nobody collides, and agents settle at distances that the potential likes. The centralized "
        "law, which the paper's networks learn from, aligns with the whole flock; tanner-dynamic with those within R, "
        "and its theorem asks that the communication graph stays connected.",
        "That it stays so is not promised: from the paper's starts tanner-dynamic loses agents in all these "
        "flights, which is why the paper learns a controller that hears over several hops.",
        (
            ConnectedShare("tanner", "flocks in one piece after 8 s, centralized"),
            ConnectedShare("tanner-dynamic", "flocks in one piece after 8 s, each agent by those within R"),
        ),
        ("tanner", "tanner-dynamic"),
    ),
    Entry(
        "cucker-smale",
        "Cucker, Smale 2007: emergent behaviour in flocks",
        "The mean velocity never changes, so that where the flock will fly is known from the start; and for beta up to "
        "1/2, when influence falls slowly with distance, every flock comes to fly as one, from any start.",
        "For beta above 1/2 agents that fly apart fast enough never agree: two agents keep, for beta = 1, the relative "
        "speed that the equation predicts. Nothing keeps agents apart, or together once the sum is cut off at R.",
        (
            MeanVelocityDrift("cucker-smale", "drift of the mean velocity, in the largest speed", most=1e-12),
            FinalVelocityVariance(
                "cucker-smale:beta=0.5",
                "beta = 1/2, far apart and fast: variance left after 100 s, worst of 50 flocks",
                most=1e-6,
                disk=FAR_AND_FAST,
                seconds=100.0,
            ),
            EscapeSpeed(
                "cucker-smale:beta=1",
                "beta = 1, two agents that fly apart: speed left, in what is predicted",
                least=0.99,
                most=1.01,
            ),
            ConnectedShare("cucker-smale-local", "flocks in one piece after 8 s, cut off at R"),
        ),
        ("cucker-smale", "cucker-smale-local"),
    ),
    Entry(
        "cucker-smale-singular",
        "Carrillo, Choi, Mucha, Peszek 2017: singular influence",
        "The mean velocity never changes, and for alpha from 1 on no two agents ever touch, since whoever comes near "
        "flies as one before they meet. Two agents head-on come to rest at a distance that the equation predicts.",
        "Agents may come as near as they like, and a time step must resolve how they brake: with a coarse one they can "
        "pass through each other.",
        (
            MeanVelocityDrift("cucker-smale-singular:clamp=none", "drift of the mean velocity", most=1e-12),
            HeadOnDistance(
                "cucker-smale-singular",
                "two agents head-on: distance at rest, in what is predicted",
                least=0.99,
                most=1.01,
            ),
            OrderPreserved("cucker-smale-singular", "flocks on a line in which nobody passes anybody", least=1.0),
            OrderPreserved("cucker-smale-singular:alpha=0.5", "the same for alpha = 1/2, for which it is not promised"),
        ),
        ("cucker-smale-singular", "cucker-smale"),
        scenario="flocking:agents=50:disk_radius=1.5",
        seconds=3.0,
        speed=0.5,
    ),
    Entry(
        "cucker-dong",
        "Cucker, Dong 2010: avoiding collisions in flocks",
        "Agents that begin farther apart than the core, 0.05 here, never come within it, and velocities agree as in "
        "Cucker and Smale's law; the push ends when they do.",
        "The push is scaled by the disorder of the whole flock, which no agent can measure by itself: the law has no "
        "local form. As it ends with the disorder, it sets no distance at which agents settle.",
        (
            SmallestDistance(
                "cucker-dong:clamp=none",
                "crowded flocks, steps of 1 ms: smallest distance ever",
                least=0.05,
                disk=CROWDED,
            ),
            SmallestDistance("cucker-dong", "the law as it is loaded, steps of 10 ms", disk=CROWDED, time_step=0.01),
            SmallestDistance("cucker-smale", "the same flocks without the push", disk=CROWDED, time_step=0.01),
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
        "Springs of length 2 R0 and brakes along the line between agents: three agents in the plane, and four in "
        "space, end exactly 2 R0 apart.",
        "More agents cannot all be 2 R0 apart. Over the whole flock the springs of far pairs press it together; cut "
        "off at R, a little more than 2 R0, neighbours settle 2 R0 apart however many there are, in patches of a "
        "lattice.",
        (
            BondLength(
                "bonding",
                "three agents: distance of neighbours, in 2 R0",
                least=0.999,
                most=1.001,
                disk=RandomDisk(50, agents=3, disk_radius=0.8),
            ),
            BondLength(
                "bonding",
                "four agents in space: distance of neighbours, in 2 R0",
                least=0.999,
                most=1.001,
                disk=RandomDisk(50, agents=4, disk_radius=0.8, dimensions=3),
            ),
            BondLength("bonding", "100 agents: distance of neighbours, in 2 R0"),
            BondLength("bonding-local", "100 agents, cut off at R: distance of neighbours, in 2 R0", 0.95, 1.05),
        ),
        ("bonding", "bonding-local"),
        seconds=10.0,
        speed=2.0,
        window=12.0,
    ),
    Entry(
        "formation",
        "Choi, Kalise, Peszek, Peters 2019; with noise Choi, Oh, Tse 2021: formation control",
        "Every agent has a place in a pattern, and is pulled along the difference between where others are and where "
        "they should be: the flock comes to fly as one in the pattern, from every start for beta up to 1.",
        "Who flies where is given, so agents trade places, and may pass each other within thousandths of R. With "
        "strong noise, or along a chain of many agents, it takes too long. The pattern does not turn with the flock.",
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
        scenario="formation",
        seconds=5.0,
        window=7.0,
    ),
    Entry(
        "gu-leader",
        "Gu, Wang 2009: leader-follower flocking",
        "A tenth of the flock knows a goal and steers to it; the others align, keep apart and stay near the middle of "
        "the flock, which they estimate from what their neighbours say, and so all arrive.",
        "With too few informed agents, or when they steer too hard, they leave the others behind; with an estimate "
        "over one hop alone more flocks fall apart.",
        (
            SuccessRate("gu-leader", "flocks that arrive, a tenth informed", least=0.9, scenario="goal"),
            SuccessRate("gu-leader", "flocks that arrive, one in fifty informed", scenario="goal:informed=0.02"),
            SuccessRate("gu-leader:hops=1", "flocks that arrive, the middle estimated over one hop", scenario="goal"),
        ),
        ("gu-leader", "gu-leader:hops=1"),
        scenario="goal",
        seconds=9.0,
        speed=1.5,
    ),
    Entry(
        "segregation",
        "Santos, Pimenta, Chaimowicz 2014; learned as in Omotuyi, Kumar 2022: segregation",
        "Agents of a group like each other nearer than strangers. Nobody collides, velocities agree, and the potential "
        "comes to a minimum; that groups are apart there is a conjecture of its authors, which these flights bear out. "
        "The paper says that its networks learn this from the law, hearing only those within R.",
        "Cut off at R, the law loses whoever is out of reach, and so do the networks, whose flocks also change their "
        "mean velocity. A minimum of the potential need not be the lowest: its authors saw groups of very different "
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
        window=3.5,
    ),
)


def build_claim_jobs(names: tuple[str, ...] = ()) -> list[ClaimJob]:
    """The measurements of all entries, or of those named."""
    claims = [(entry, claim) for entry in ENTRIES for claim in entry.claims]
    return [ClaimJob(n, claim) for n, (entry, claim) in enumerate(claims) if not names or entry.name in names]
