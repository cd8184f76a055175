"""A saved trajectory loads completely, or raises an error."""

from __future__ import annotations

import copy
import dataclasses
import errno
import pickle
import random
import shutil
import signal
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
import zarr

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.simulation import trajectory as zarr_store
from equiflock.simulation.trajectory import STATIC_ARRAYS
from tests.damage import DAMAGES


@pytest.fixture(scope="module")
def run() -> ef.Trajectory:
    return ef.simulate(
        ef.random_disk(2, 20),
        ef.load("tanner"),
        duration=0.1,
        failures=ef.Failures("silent", agents=3, time=0.05),
        record=[ef.metrics.velocity_variance],
        config={"a": [1]},
    )


def same(back: ef.Trajectory, run: ef.Trajectory) -> None:
    for name in (
        "times",
        "positions",
        "velocities",
        "accelerations",
        "conditions",
        *STATIC_ARRAYS,
        "steps",
        "outcomes",
    ):
        assert (getattr(back, name) == getattr(run, name)).all()
        assert getattr(back, name).dtype == getattr(run, name).dtype
    assert (back.series["velocity_variance"] == run.series["velocity_variance"]).all()
    assert back.config == run.config
    assert (back.comm_radius, back.time_step, back.outcome) == (run.comm_radius, run.time_step, run.outcome)


def test_a_round_trip_keeps_every_bit_and_the_config(run: ef.Trajectory, tmp_path: Path) -> None:
    path = run.save(tmp_path / "deep" / "run.zarr")
    back = ef.Trajectory.load(path)
    same(back, run)
    assert back.config["a"] == [1]
    assert [p.name for p in path.parent.iterdir()] == ["run.zarr"]


def test_any_tool_that_reads_zarr_sees_labelled_axes(run: ef.Trajectory, tmp_path: Path) -> None:
    data = xarray.open_zarr(run.save(tmp_path / "run.zarr"))
    assert data["positions"].dims == ("frame", "flock", "agent", "axis")
    assert data["axis"].values.tolist() == ["x", "y"]
    assert float(data["positions"].sel(axis="y").isel(frame=-1, flock=0, agent=3)) == run.positions[-1, 0, 3, 1]


def test_nothing_is_overwritten(run: ef.Trajectory, tmp_path: Path) -> None:
    run.save(tmp_path / "run.zarr")
    with pytest.raises(InputError, match=r"run.zarr already exists: choose another name"):
        run.save(tmp_path / "run.zarr")


def test_a_full_disk_leaves_nothing_under_the_final_name(
    run: ef.Trajectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zarr, "consolidate_metadata", full)
    with pytest.raises(OSError, match="No space left"):
        run.save(tmp_path / "run.zarr")
    assert list(tmp_path.iterdir()) == []


def damage(path: Path, how: str) -> None:
    chunk = next(p for p in (path / "positions").iterdir() if not p.name.startswith("."))
    match how:
        case "truncated":
            chunk.write_bytes(chunk.read_bytes()[:20])
        case "missing chunk":
            chunk.unlink()
        case "missing variable":
            shutil.rmtree(path / "velocities")
        case "no metadata":
            (path / ".zmetadata").unlink()
        case "foreign":
            zarr.open_group(path, mode="r+").attrs["format"] = "something else"
            zarr.consolidate_metadata(path)
        case "wrong shape":
            shutil.rmtree(path / "roles")
            zarr.open_group(path, mode="r+").create_array("roles", data=np.zeros((1, 2), np.int8)).attrs[
                "_ARRAY_DIMENSIONS"
            ] = ["one", "two"]
            zarr.consolidate_metadata(path)
        case "missing steps":
            (path / "steps" / "0").unlink()
        case "missing series":
            (path / "series_velocity_variance" / "0.0").unlink()
        case "one number":
            zarr.open_group(path, mode="r+")["velocities"][3, 1, 4, 1] = 0.5  # type: ignore[index]
        case "time step":
            zarr.open_group(path, mode="r+").attrs["time_step"] = 0.0
            zarr.consolidate_metadata(path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "how",
    [
        "truncated",
        "missing chunk",
        "missing variable",
        "no metadata",
        "foreign",
        "wrong shape",
        "missing steps",
        "missing series",
        "one number",
        "time step",
    ],
)
def test_a_damaged_or_foreign_store_is_refused_in_one_line(run: ef.Trajectory, tmp_path: Path, how: str) -> None:
    path = run.save(tmp_path / "run.zarr")
    damage(path, how)
    with pytest.raises(InputError, match=r"run.zarr is (not a|a damaged) trajectory") as caught:
        ef.Trajectory.load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", DAMAGES, ids=lambda how: how.__name__)
def test_no_damage_to_any_file_of_a_store_goes_unnoticed(run: ef.Trajectory, tmp_path: Path, how: Any) -> None:
    rng = random.Random(0)
    store = run.save(tmp_path / "run.zarr")
    # Each damage to half of the files, each file with half of the damages: loading the store takes long.
    first = DAMAGES.index(how) % 2
    for path in sorted(path for path in store.rglob("*") if path.is_file())[first::2]:
        whole = path.read_bytes()
        how(path, rng)
        try:
            same(ef.Trajectory.load(store), run)  # metadata is there twice, and only one is read
        except InputError as error:
            assert "\n" not in str(error)
        path.write_bytes(whole)


def test_the_metadata_of_a_store_is_checked_too(run: ef.Trajectory, tmp_path: Path) -> None:
    for name, value in (("time_step", 0.02), ("comm_radius", 2.0), ("config", '{"controller": "other"}')):
        path = run.save(tmp_path / f"{name}.zarr")
        zarr.open_group(path, mode="r+").attrs[name] = value
        zarr.consolidate_metadata(path)
        with pytest.raises(InputError, match="checksum does not match"):
            ef.Trajectory.load(path)
    path = run.save(tmp_path / "time.zarr")
    zarr.open_group(path, mode="r+")["time"][3] = 0.5  # type: ignore[index]
    with pytest.raises(InputError, match="checksum does not match"):
        ef.Trajectory.load(path)


def test_a_trajectory_with_a_checksum_of_version_0_2_loads_unless_it_is_damaged(
    run: ef.Trajectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zarr_store, "compute_checksum", lambda *parts: f"{zlib.crc32(b''.join(parts)):08x}")
    path = run.save(tmp_path / "run.zarr")
    same(ef.Trajectory.load(path), run)
    zarr.open_group(path, mode="r+")["time"][3] = 0.5  # type: ignore[index]
    with pytest.raises(InputError, match="checksum does not match"):
        ef.Trajectory.load(path)


def test_ctrl_c_interrupts_a_save_between_two_chunks(
    run: ef.Trajectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zarr_store, "CHUNK_BYTES", 1000)
    written = []
    put = zarr.Array.__setitem__

    def press_at_the_third(array: Any, place: Any, values: Any) -> None:
        put(array, place, values)
        written.append(place)
        if len(written) == 3:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(zarr.Array, "__setitem__", press_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        run.save(tmp_path / "run.zarr")
    assert len(written) == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore")
def test_a_path_without_a_store_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder"):
        with pytest.raises(InputError, match="is not a trajectory that can be read"):
            ef.Trajectory.load(tmp_path / name)
    with pytest.raises(InputError, match="there is no such file or folder"):
        ef.Trajectory.load(tmp_path / "nothing")


def test_a_trajectory_can_be_copied_and_sent_but_not_changed() -> None:
    run = ef.simulate(ef.random_disk(1, 10), ef.load("tanner"), duration=0.02, record=[ef.metrics.velocity_variance])
    for again in (pickle.loads(pickle.dumps(run)), copy.deepcopy(run)):
        assert np.array_equal(again.series["velocity_variance"], run.series["velocity_variance"])
        with pytest.raises(TypeError, match="read-only"):
            again.series["more"] = np.zeros(3)  # type: ignore[index]
    for array in (run.steps, run.outcomes, run.series["velocity_variance"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e300])
def test_a_file_with_a_frame_off_the_scale_is_refused(run: ef.Trajectory, tmp_path: Path, number: float) -> None:
    positions = run.positions.copy()
    positions[1, 0, 0, 0] = number
    dataclasses.replace(run, positions=positions).save(tmp_path / "far.zarr")
    with pytest.raises(InputError, match="shapes or values do not fit together"):
        ef.Trajectory.load(tmp_path / "far.zarr")
