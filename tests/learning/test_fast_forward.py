"""Fast-forward data: independent tuples, which do not depend on workers or storage."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock._runtime.provenance import write_config
from equiflock.features import Aggregation, paper_channels
from equiflock.learning.fast_forward import FastForward, FastForwardData

SMALL = FastForward(train_flocks=2, test_flocks=3, steps=6, agents=20)


@dataclass(frozen=True)
class Listening:
    """The expert, but its observations are those of a student."""

    senses: ef.Senses
    privileged: bool = True

    def __call__(self, flock: ef.Flock, observations: Any) -> Any:
        return ef.load("tanner")(flock, ef.observe(flock, ef.paper_senses("sum", 1)))  # type: ignore[call-arg]


@pytest.mark.parametrize("step", [0, 1, 2, 6])
@pytest.mark.parametrize("name", ["sum", "mean"])
def test_a_tuple_is_what_the_flight_of_one_fresh_flock_shows_at_its_time_index(step: int, name: str) -> None:
    data = SMALL.make()
    for flock in range(SMALL.flocks):
        start = SMALL.build_disk(step).draw()[flock]
        *_, moment = islice(ef.flight(start, Listening(SMALL.senses[name]), time_step=0.01), step + 1)  # type: ignore[arg-type]
        assert np.array_equal(data.arrays[name][step, flock], moment.observations[0])
        assert np.array_equal(data.arrays["targets"][step, flock], moment.accelerations[0].astype(np.float32))


def test_the_papers_set_has_80400_tuples_of_which_30150_are_for_training() -> None:
    paper = FastForward()
    empty = {name: np.broadcast_to(np.float32(0), shape) for name, shape in paper.shapes.items()}
    data = FastForwardData(paper, empty)
    assert (len(data), data.samples, len(data) - data.samples) == (80_400, 30_150, 50_250)


@pytest.mark.slow
def test_no_flock_is_used_twice_nor_in_any_other_set() -> None:
    whole = replace(FastForward(), agents=10, train_flocks=2, test_flocks=2)
    starts = [whole.build_disk(step).draw() for step in range(whole.index_count)]
    starts += [ef.RandomDisk(400, 10, split=split).draw() for split in ("train", "validation", "test")]
    first_agents = np.concatenate([start.positions[:, 0] for start in starts])
    assert len(np.unique(first_agents, axis=0)) == len(first_agents) == 201 * 4 + 1200


def test_the_data_is_the_same_for_any_number_of_workers_in_memory_and_on_disk(tmp_path: Path) -> None:
    one = SMALL.make(workers=1)
    kept = SMALL.make(tmp_path / "data", workers=3)
    for other in (SMALL.make(workers=2), kept, FastForwardData.open(tmp_path / "data")):
        assert other.recipe == SMALL
        for name, array in one.arrays.items():
            assert np.array_equal(array, other.arrays[name])
    assert not np.array_equal(one.arrays["targets"], replace(SMALL, seed=1).make().arrays["targets"])


def test_an_interrupted_set_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class EnoughError(Exception):
        pass

    done: list[int] = []

    def stop_after_three(step: int) -> None:
        done.append(step)
        if len(done) == 3:
            raise EnoughError

    with pytest.raises(EnoughError):
        SMALL.make(tmp_path / "data", workers=1, on_part=stop_after_three)
    with pytest.raises(InputError, match=r"lacks 4 of 7 time indices: call FastForward\.make again to complete it"):
        FastForwardData.open(tmp_path / "data")

    made: list[int] = []
    compute_part = FastForward.compute_part

    def listen(self: FastForward, step: int) -> Any:
        made.append(step)
        return compute_part(self, step)

    monkeypatch.setattr(FastForward, "compute_part", listen)
    seen: list[int] = []
    data = SMALL.make(tmp_path / "data", workers=1, on_part=seen.append)
    assert sorted(made + done) == sorted(seen) == list(range(7))
    for name, array in SMALL.make().arrays.items():
        assert np.array_equal(array, data.arrays[name])


def test_velocities_are_drawn_by_the_rule_of_the_set() -> None:
    disc = replace(SMALL, velocities="disc")
    assert disc.build_disk(2) == replace(SMALL.build_disk(2), velocities="disc")
    assert np.array_equal(disc.build_disk(2).draw().positions, SMALL.build_disk(2).draw().positions)
    object.__setattr__(disc, "velocities", "box")  # past the annotations, which tests enforce
    with pytest.raises(InputError, match="velocities must be one of 'entries', 'disc'; got 'box'"):
        disc.__post_init__()


def test_blocks_and_gathered_tuples_are_the_same_data() -> None:
    data = SMALL.make()
    sums, means = paper_channels("sum"), paper_channels("mean")
    blocks = [data.get_block(step, "train", means) for step in range(7)]
    gathered = data.get_tuples(np.arange(data.samples), means)
    for place in (0, 1):
        assert np.array_equal(np.concatenate([get_block[place] for get_block in blocks]), gathered[place])
    assert len(data.get_block(3, "test", sums)[0]) == 3
    assert np.array_equal(data.get_tuples(np.array([5]), sums)[0][0], data.arrays["sum"][2, 1])


def test_largest_norms() -> None:
    data = SMALL.make()
    aggregations: tuple[Aggregation, ...] = ("sum", "mean")
    for aggregation in aggregations:
        largest = max(np.linalg.norm(z) for z in data.arrays[aggregation].reshape(-1, 18))
        assert data.largest_input(paper_channels(aggregation)) == pytest.approx(largest)
    assert data.largest_target == pytest.approx(max(np.linalg.norm(a) for a in data.arrays["targets"].reshape(-1, 2)))


def test_other_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is not a directory of fast-forward data: there is no config\.json"):
        FastForwardData.open(tmp_path)
    folder = tmp_path / "data"
    SMALL.make(folder)
    with pytest.raises(InputError, match="has results of other settings: fast_forward seed = 0, not 1"):
        replace(SMALL, seed=1).make(folder)
    (folder / "config.json").write_text(json.dumps({"fast_forward": {"seed": "x"}}))
    with pytest.raises(InputError, match=r"config\.json is damaged"):
        FastForwardData.open(folder)
    write_config(folder, "fast-forward data set", {"fast_forward": {"seed": "x"}})
    with pytest.raises(InputError, match="does not hold the settings of fast-forward data"):
        FastForwardData.open(folder)
    arrays = {name: np.zeros(shape, np.float32) for name, shape in SMALL.shapes.items()}
    with pytest.raises(InputError, match=r"targets must be float32 of shape \(7, 5, 20, 2\); got float32 of shape"):
        FastForwardData(SMALL, {**arrays, "targets": arrays["targets"][:, :2]})
    arrays["targets"][3, 1, 4] = np.nan
    with pytest.raises(InputError, match="the data's targets holds NaN or infinity"):
        FastForwardData(SMALL, arrays).largest_input(paper_channels("sum"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "data"
    SMALL.make(folder)
    return folder


def mended(folder: Path, whole: Path) -> list[str]:
    """Make damaged data again and compare it with what it was; returns what was said."""
    said: list[str] = []
    SMALL.make(folder, on_notice=said.append)
    for path in whole.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            assert (folder / path.relative_to(whole)).read_bytes() == path.read_bytes(), path.name
    return said


@pytest.mark.parametrize("name", ["sum", "mean", "targets"])
def test_a_damaged_time_index_is_refused_and_made_again(
    name: str, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(whole, folder)
    np.load(folder / f"{name}.npy", mmap_mode="r+")[3, 4, 19] += 1e-6
    with pytest.raises(InputError, match=r"is damaged at 1 of 7 time indices: call FastForward\.make again to repair"):
        FastForwardData.open(folder)
    made: list[int] = []
    compute_part = FastForward.compute_part

    def listen(self: FastForward, step: int) -> Any:
        made.append(step)
        return compute_part(self, step)

    monkeypatch.setattr(FastForward, "compute_part", listen)
    assert mended(folder, whole) == [f"{folder} is damaged at 1 of 7 time indices; they are recomputed"]
    assert made == [3]


def test_a_damaged_mark_file_or_config_is_made_again(tmp_path: Path, whole: Path) -> None:
    def damaged(name: str, content: bytes) -> list[str]:
        folder = tmp_path / name.replace("/", "-")
        shutil.copytree(whole, folder)
        (folder / name).write_bytes(content)
        with pytest.raises(InputError, match="damaged"):
            FastForwardData.open(folder)
        return [text.replace(str(folder), "DATA") for text in mended(folder, whole)]

    assert damaged("parts/2", b"") == ["DATA is damaged at 1 of 7 time indices; they are recomputed"]
    everything = ["DATA is damaged at all 7 time indices; they are recomputed"]
    content = (whole / "mean.npy").read_bytes()
    assert damaged("mean.npy", b"gone") == everything
    assert damaged("sum.npy", content[:-1]) == everything
    assert damaged("targets.npy", content) == everything  # another array's
    assert damaged("config.json", b"") == [
        "DATA/config.json is damaged: its checksum does not match; all data is recomputed"
    ]


def test_data_of_another_size_is_not_removed_when_its_config_is_damaged(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(whole, folder)
    (folder / "config.json").write_bytes(b"")
    with pytest.raises(InputError, match=r"config\.json is damaged"):
        replace(SMALL, agents=10).make(folder)
    assert (folder / "sum.npy").read_bytes() == (whole / "sum.npy").read_bytes()


def test_data_whose_marks_have_no_checksums_is_made_again(tmp_path: Path, whole: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(whole, folder)
    for mark in (folder / "parts").iterdir():
        mark.write_bytes(b"")
    assert mended(folder, whole) == [f"{folder} is damaged at all 7 time indices; they are recomputed"]


@pytest.mark.parametrize("options", [{"train_flocks": 0}, {"steps": -1}, {"hops": 0}, {"time_step": 0.0}, {"seed": -1}])
def test_numbers_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(options))):
        FastForward(**options)


def test_channels_of_one_s_own_take_the_place_of_the_paper_s() -> None:
    channels = (("velocity", "mean"), ("velocity", "sum"))
    data = FastForward(train_flocks=1, test_flocks=1, steps=1, agents=10, channels=channels).make()
    assert data.arrays["own"].shape == (2, 2, 10, 3, 2, 2)
    assert data.get_tuples(np.array([0]), channels)[0].shape == (1, 10, 3, 2, 2)
    with pytest.raises(InputError, match=r"the data has the channels .* make it with FastForward\(channels=\.\.\.\)"):
        data.largest_input(paper_channels("sum"))


def test_any_expert_makes_the_targets() -> None:
    weak = FastForward(train_flocks=1, test_flocks=1, steps=1, agents=10, expert="tanner:clamp=0.5").make()
    assert weak.largest_target == pytest.approx(0.5, rel=1e-5)
