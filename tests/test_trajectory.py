"""A saved flight comes back whole, or not at all."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
import zarr

import equiflock as ef
from equiflock.types import InputError


@pytest.fixture(scope="module")
def run() -> ef.Trajectory:
    return ef.simulate(
        ef.random_disk(2, 20), ef.load("tanner"), duration=0.1, record=[ef.metrics.velocity_variance], config={"a": [1]}
    )


def test_a_round_trip_keeps_every_bit_and_the_config(run: ef.Trajectory, tmp_path: Path) -> None:
    path = run.save(tmp_path / "deep" / "run.zarr")
    back = ef.Trajectory.load(path)
    for name in ("times", "positions", "velocities", "accelerations", "roles", "steps", "outcomes"):
        assert (getattr(back, name) == getattr(run, name)).all()
        assert getattr(back, name).dtype == getattr(run, name).dtype
    assert (back.series["velocity_variance"] == run.series["velocity_variance"]).all()
    assert back.config == run.config
    assert back.config["a"] == [1]
    assert (back.radius, back.time_step, back.outcome) == (run.radius, run.time_step, run.outcome)
    assert [p.name for p in path.parent.iterdir()] == ["run.zarr"]


def test_any_tool_that_reads_zarr_sees_labelled_axes(run: ef.Trajectory, tmp_path: Path) -> None:
    data = xarray.open_zarr(run.save(tmp_path / "run.zarr"))
    assert data["positions"].dims == ("frame", "flock", "agent", "axis")
    assert data["axis"].values.tolist() == ["x", "y"]
    assert float(data["positions"].sel(axis="y").isel(frame=-1, flock=0, agent=3)) == run.positions[-1, 0, 3, 1]


def test_nothing_is_overwritten(run: ef.Trajectory, tmp_path: Path) -> None:
    run.save(tmp_path / "run.zarr")
    with pytest.raises(InputError, match=r"run.zarr exists already: choose another name"):
        run.save(tmp_path / "run.zarr")


def test_a_full_disk_leaves_nothing_under_the_final_name(
    run: ef.Trajectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, store: Path, **_: Any) -> None:
        Path(store).mkdir(parents=True)
        (Path(store) / "half").write_text("written")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(xarray.Dataset, "to_zarr", full)
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


@pytest.mark.filterwarnings("ignore")
def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("hello")
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder"):
        with pytest.raises(InputError, match="is not a trajectory that can be read"):
            ef.Trajectory.load(tmp_path / name)
    with pytest.raises(InputError, match="there is no such file or folder"):
        ef.Trajectory.load(tmp_path / "nothing")
