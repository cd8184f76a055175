"""A log beside its simulation: the log of a simulated flight does not drift from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock.evaluation.summary import RECORDED_METRICS, summarize
from equiflock.simulation.trajectory import load_trajectories


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> ef.Trajectory:
    """The log of a simulated flight over a lossy radio."""
    path = tmp_path_factory.mktemp("logs") / "flight.csv"
    simulate_log().to_csv(path)
    return ef.Trajectory.from_csv(path, comm_radius=1.0)


def simulate_log(**options: object) -> ef.Trajectory:
    start = ef.random_disk(1, 15, seed=1)
    radio = ef.Radio(packet_loss=0.2)
    return ef.simulate(start, ef.load("etdagnn"), duration=0.3, radio=radio, **options)  # type: ignore[arg-type]


def test_the_log_of_a_simulated_flight_has_no_drift_and_the_same_metrics(log: ef.Trajectory) -> None:
    found = ef.compare_with_simulation(log, ef.load("etdagnn"), radio=ef.Radio(packet_loss=0.2))
    assert found.drift.shape == log.times.shape and not found.drift.any()
    assert (found.table.log == found.table.simulation).all()
    # The metrics are those of a run that recorded them.
    expected = {row.name: row.values[0] for row in summarize(simulate_log(record=RECORDED_METRICS))}
    assert found.table.log.to_dict() == expected


def test_another_controller_drifts_by_the_rms_distance(log: ef.Trajectory) -> None:
    found = ef.compare_with_simulation(log, ef.load("tanner"))
    assert found.drift[0] == 0.0 and found.drift[-1] > 1e-3
    squares = np.square(found.log.positions[-1, 0] - found.simulation.positions[-1, 0]).sum(axis=1)
    np.testing.assert_allclose(found.drift[-1], np.sqrt(squares.mean()))
    assert found.table.log["velocity variance, end"] != found.table.simulation["velocity variance, end"]


def test_realised_accelerations_are_compared_with_realised_ones(log: ef.Trajectory) -> None:
    # Bodies with a lag realise less than they are commanded.
    realised = replace(log, config={**log.config, "accelerations": "realised"})
    body = ef.DoubleIntegrator(lag=0.1)
    commanded, found = (ef.compare_with_simulation(each, ef.load("etdagnn"), body=body) for each in (log, realised))
    row = "RMS acceleration, in flight"
    rms = np.sqrt(np.square(np.diff(found.simulation.velocities, axis=0) / 0.01).sum(axis=-1).mean())
    np.testing.assert_allclose(found.table.simulation[row], rms)
    assert found.table.simulation[row] < 0.8 * commanded.table.simulation[row]


def test_both_flights_are_saved_side_by_side(log: ef.Trajectory, tmp_path: Path) -> None:
    found = ef.compare_with_simulation(log, ef.load("tanner"))
    runs = load_trajectories(found.save(tmp_path / "flights"))
    assert [run.config["controller"] for run in runs] == ["flight.csv", "tanner"]
    assert np.array_equal(runs[0].times, runs[1].times)
    with pytest.raises(InputError, match="already exists"):
        found.save(tmp_path / "flights")


def test_wrong_logs_and_options_are_refused(log: ef.Trajectory) -> None:
    law = ef.load("tanner")
    with pytest.raises(InputError, match=r"log must have one flock; got 2: choose one, such as log\[0\]"):
        ef.compare_with_simulation(ef.simulate(ef.random_disk(2, 5), law, duration=0.02), law)
    with pytest.raises(InputError, match="log must have a frame for every step"):
        ef.compare_with_simulation(ef.simulate(ef.random_disk(1, 5), law, duration=0.04, keep_every=2), law)
    with pytest.raises(InputError, match="duration must not be given: it is that of the log"):
        ef.compare_with_simulation(log, law, duration=1.0)
