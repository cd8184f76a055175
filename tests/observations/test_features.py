"""Any declared features, summed or averaged, among groups or not, agree with the twin that the paper's agree with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ortho_group

import equiflock as ef
from equiflock import features
from equiflock._runtime import threads
from equiflock._runtime.checks import InputError
from equiflock._runtime.specs import format_spec
from equiflock.controllers.networks.architecture import STARLING_CHANNELS as STARLING
from equiflock.features import Channel, Topology
from equiflock.flock import Flock, Role
from equiflock.observations.aggregation import DelayedAggregation, Obstacles, observe
from equiflock.observations.feature_weights import compile_loop
from equiflock.observations.orbit import Orbit
from tests import twins
from tests.flocks import flocks

OWN = ("spring", "approach", "kin", "strangers", "drag")
TUNED = {"tuned": ["strength", "reach"], "tuned-drag": ["gain"]}
"""Features with options, and the names of these."""


@pytest.fixture(autouse=True, scope="module")
def own_features() -> Iterator[None]:
    """Features of a user's own: of positions and velocities, of <r, v>, and among groups."""
    before = dict(features.FEATURES.parts)

    @ef.feature("spring", vector="position")
    def spring(square: float) -> float:
        return 1.0 - 0.5 * math.sqrt(square)

    @ef.feature("approach", vector="position")
    def approach(square: float, inner: float) -> float:
        return inner / (1.0 + square)

    @ef.feature("kin", vector="velocity", among="same")
    def kin(square: float) -> float:
        return 1.0 / (1.0 + square)

    @ef.feature("strangers", vector="position", among="others")
    def strangers(square: float) -> float:
        return math.exp(-square)

    @ef.feature("drag", vector="velocity")
    def drag(square: float, inner: float) -> float:
        return abs(inner)

    @ef.feature("tuned", vector="position")
    def tuned(square: float, strength: float = 1.0, reach: float = 0.5) -> float:
        return strength * math.exp(-square / reach)

    @ef.feature("tuned-drag", vector="velocity", among="others")
    def tuned_drag(square: float, inner: float, gain: float = 0.5) -> float:
        return gain * inner / (1.0 + square)

    yield
    features.FEATURES.parts.clear()
    features.FEATURES.parts.update(before)


@st.composite
def names(draw: st.DrawFn) -> str:
    """The name of a feature, with some of its options or none, of all, its own group, others or obstacles."""
    name = draw(st.sampled_from([*OWN, *TUNED, *features.PAPER_FEATURES]))
    chosen = draw(st.sets(st.sampled_from(TUNED[name]))) if name in TUNED else set()
    options: dict[str, Any] = {key: draw(st.sampled_from([0.0, 0.3, -2.5])) for key in sorted(chosen - {"reach"})}
    options |= {"reach": draw(st.sampled_from([0.1, 1.0, 7]))} if "reach" in chosen else {}
    among = draw(st.sampled_from([None, "all", "same", "others", "obstacles"]))
    return format_spec(name, **options, **({} if among is None else {"among": among}))


AGGREGATIONS = st.sampled_from(["sum", "mean"])
FREE = st.lists(st.tuples(names(), AGGREGATIONS), min_size=1, max_size=5).map(tuple)
# The paper's channels first, which have a kernel of their own; and both aggregations of a feature, which are one sum.
BEGUN = st.builds(lambda how, rest: features.paper_channels(how) + rest, AGGREGATIONS, FREE)
TWICE = st.builds(lambda name, rest: ((name, "mean"), *rest, (name, "sum")), names(), FREE)
CHANNELS = st.one_of(FREE, BEGUN, TWICE, st.just(STARLING))
ORBIT = st.sampled_from([None, Orbit(), Orbit(gravity_break=0.2, dodge_angle=0.7, near=0.5, slow=2.0)])


def with_groups(flock: Flock, seed: int) -> Flock:
    groups = np.random.default_rng(seed).integers(0, 3, flock.shape[:2])
    return dataclasses.replace(flock, groups=groups, obstacles=flock.obstacles)


@pytest.mark.slow
@given(
    flocks(),
    st.integers(0, 99),
    st.integers(1, 3),
    CHANNELS,
    ORBIT,
    st.sampled_from(["nearest", "all"]),
    st.sampled_from(["dynamic", "fixed"]),
)
def test_channels_match_the_dense_result(
    flock: Flock,
    seed: int,
    hops: int,
    channels: tuple[Channel, ...],
    orbit: Orbit | None,
    obstacles: Obstacles,
    topology: Topology,
) -> None:
    flock = with_groups(flock, seed)
    senses = ef.Senses(channels, hops, topology)
    sensing = DelayedAggregation(senses, orbit=orbit, obstacles=obstacles)
    expected = np.zeros((*flock.shape[:2], hops, len(channels), flock.shape[2]))
    adjacency = [twins.adjacency(flock.positions[b], flock.roles[b], 1.0) for b in range(len(flock))]
    for n in range(3):
        now = dataclasses.replace(flock, positions=flock.positions + 0.1 * n * flock.velocities)
        known = sensing.observe(now)
        assert np.isfinite(known).all()
        for b in range(len(flock)):
            who = adjacency[b] if topology == "fixed" else twins.adjacency(now.positions[b], now.roles[b], 1.0)
            expected[b] = twins.aggregate(now, b, expected[b], who, senses, orbit, obstacles)
            scale = np.abs(expected[b]).max() + 1.0
            np.testing.assert_allclose(known[b], expected[b], rtol=5e-5, atol=1e-5 * scale)


@given(flocks(roles=False), st.sampled_from(["sum", "mean"]))
def test_declared_channels_kernel_matches_the_paper_kernel(flock: Flock, aggregation: features.Aggregation) -> None:
    paper = ef.paper_senses(aggregation, hops=2)
    # One more channel before them sends the same features through the general kernel.
    general = ef.Senses((("position", "sum"), *paper.channels), hops=2)
    one, other = DelayedAggregation(paper), DelayedAggregation(general)
    for _ in range(2):
        known, also = one.observe(flock), other.observe(flock)[:, :, :, 1:]
        scale = np.abs(known).max(initial=1.0)
        np.testing.assert_allclose(also, known, rtol=1e-5, atol=1e-6 * scale)


@given(flocks(roles=False), CHANNELS, st.integers(0, 2**32 - 1))
def test_declared_features_are_equivariant(flock: Flock, channels: tuple[Channel, ...], seed: int) -> None:
    offsets = flock.positions[:, :, None] - flock.positions[:, None]
    distances = np.sqrt(np.square(offsets).sum(axis=-1))
    if np.abs(distances - 1.0).min() < 1e-6 or np.abs(flock.positions).max() > 10:
        return  # rounding may change the graph
    turn = ortho_group.rvs(flock.shape[2], random_state=seed)
    turned = Flock(flock.positions @ turn.T, flock.velocities @ turn.T)
    senses = ef.Senses(channels, hops=1)
    expected = observe(flock, senses) @ turn.T
    np.testing.assert_allclose(observe(turned, senses), expected, rtol=1e-3, atol=1e-4 * (1 + np.abs(expected).max()))


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(2)
    flock = Flock(rng.uniform(-30, 30, (1, 4_000, 2)), rng.normal(size=(1, 4_000, 2)))
    results = []
    for count in (1, 3):
        with threads.use(count):
            results.append(observe(flock, ef.Senses((("spring", "sum"), ("kin", "mean")), hops=2)).tobytes())
    assert results[0] == results[1]


def test_features_among_groups() -> None:
    positions = [[[0.0, 0.0], [0.5, 0.0], [0.0, 0.5], [0.5, 0.5]]]
    flock = Flock(positions, np.zeros((1, 4, 2)), groups=[[0, 0, 1, 2]])
    for among, expected in (("strangers", 2), ("kin", 1)):
        known = observe(
            dataclasses.replace(flock, velocities=np.arange(8.0).reshape(1, 4, 2)), ef.Senses(((among, "sum"),))
        )
        alone = observe(
            dataclasses.replace(flock, velocities=np.arange(8.0).reshape(1, 4, 2), groups=np.arange(4)[None]),
            ef.Senses(((among, "sum"),)),
        )
        assert known[0, 0, 0, 0].any() == bool(expected)
        assert alone[0, 0, 0, 0].any() == (among == "strangers")


def test_feature_options_set_groups_and_gain() -> None:
    positions = [[[0.0, 0.0], [0.5, 0.0], [0.0, 0.5], [0.5, 0.5]]]
    flock = Flock(positions, np.zeros((1, 4, 2)), groups=[[0, 0, 1, 2]])

    def first(name: str) -> list[float]:
        return observe(flock, ef.Senses(((name, "sum"),)))[0, 0, 0, 0].tolist()

    assert first("position:among=same") == [-0.5, 0.0]
    assert first("position:among=others") == [-0.5, -1.0]
    assert first("position:among=all") == first("position") == [-1.0, -1.0]
    assert first("strangers:among=all") == pytest.approx([-0.5 * (math.exp(-0.25) + math.exp(-0.5))] * 2)
    weak, strong = first("tuned"), first("tuned:strength=3")
    assert strong == pytest.approx([3.0 * each for each in weak])
    assert first("tuned:reach=0.1:among=same") == pytest.approx([-0.5 * math.exp(-2.5), 0.0])


def test_obstacle_agents_are_in_no_group() -> None:
    roles = [[Role.FOLLOWER, Role.OBSTACLE]]
    flock = Flock([[[0.0, 0.0], [0.5, 0.0]]], [[[1.0, 0.0], [0.0, 0.0]]], roles)
    for name in ("kin", "strangers"):
        assert not observe(flock, ef.Senses(((name, "sum"),))).any()
    assert observe(flock, ef.Senses((("spring", "sum"),))).any()


def test_nonfinite_weight_is_rejected(own_registry: None) -> None:
    @ef.feature("pole", vector="position")
    def pole(square: float) -> float:
        return 1.0 / (square - 0.25) if square >= 0.25 else 0.0

    @ef.feature("steep", vector="position")
    def steep(square: float) -> float:
        return 1.0 / square**6

    flock = Flock(np.zeros((1, 2, 2)), np.zeros((1, 2, 2)))
    with pytest.raises(InputError, match=r"'steep' must be finite, .* for \|r\| from 1e-08 to 1; got 1e\+96 at"):
        observe(flock, ef.Senses((("steep", "sum"),)))
    observe(flock, ef.Senses((("pole", "sum"),)), comm_radius=0.4)  # finite as far as it is asked for


def test_weight_that_does_not_compile_is_rejected(own_registry: None) -> None:
    @ef.feature("file", vector="position")
    def file(square: float) -> float:
        return float(input()) * square

    with pytest.raises(InputError, match=r"the weight of the feature 'file' cannot be compiled: .*input"):
        observe(Flock(np.zeros((1, 2, 2)), np.zeros((1, 2, 2))), ef.Senses((("file", "sum"),)))


def test_out_of_range_sums_are_rejected() -> None:
    flock = Flock(np.zeros((1, 2, 2)), [[[9e19, 0.0], [-9e19, 0.0]]])
    with pytest.raises(InputError, match="off the scale"):
        observe(Flock([[[0.0, 0.0], [0.5, 0.0]]], flock.velocities), ef.Senses((("drag", "sum"),)))


def test_error_names_the_feature_that_fails_in_flight(own_registry: None) -> None:
    @ef.feature("rooted", vector="velocity")
    def rooted(square: float, inner: float) -> float:
        return math.sqrt(1.0 - inner)

    flock = Flock([[[0.0, 0.0], [0.5, 0.0]]], [[[9.0, 0.0], [-9.0, 0.0]]])
    with pytest.raises(InputError, match=r"one of rooted is off the scale"):
        for sign in (1.0, -1.0):
            observe(dataclasses.replace(flock, velocities=sign * flock.velocities), ef.Senses((("rooted", "sum"),)))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_weight_that_raises_is_rejected(own_registry: None) -> None:
    @ef.feature("raising", vector="position")
    def raising(square: float) -> float:
        if square < 0.5:
            raise ValueError("too near")
        return square

    with pytest.raises(InputError, match="'raising' must be finite"):
        observe(Flock(np.zeros((1, 2, 2)), np.zeros((1, 2, 2))), ef.Senses((("raising", "sum"),)))


def test_threads_compile_a_weight_once(own_registry: None) -> None:
    @ef.feature("shared", vector="position")
    def shared(square: float) -> float:
        return 2.0 * square

    with ThreadPoolExecutor(6) as pool:
        loops = list(pool.map(compile_loop, [features.find_feature("shared")] * 6))
    assert len({loop.address for loop in loops}) == 1
