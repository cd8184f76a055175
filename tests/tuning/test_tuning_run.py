"""A tuning improves its measures, and ends with the same bits after any interruption."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock._runtime.checks import InputError
from equiflock._runtime.checksums import compute_file_checksum, read_json
from equiflock.controllers.loading import find_weights_file, make_network, save
from equiflock.controllers.networks.weights import FORMAT, read_tensors
from equiflock.tuning.objective import measure_flight
from equiflock.tuning.tuning_recipe import Tuning
from equiflock.tuning.tuning_run import VALIDATION_SPLIT, TuningRun
from tests.damage import DAMAGES
from tests.tuning.small import COURSE, FLOCKING, SMALL, results, small, tuned


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run directory of an uninterrupted tuning."""
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    tuned(small(folder))
    return folder


@pytest.mark.slow
def test_a_short_tuning_improves_what_it_measures_and_the_file_is_what_was_judged(tmp_path: Path) -> None:
    options = {"tasks": FLOCKING, "measures": "1*variance", "generations": 10, "population": 8, "sigma": 0.2}
    run = small(tmp_path / "run", **options, validate_every=5)
    kept = tuned(run)
    assert kept.cost < 0.85
    assert kept.cost == pytest.approx(kept.measurements[0]["variance"] / kept.initial_measurements[0]["variance"])
    (task,) = run.tasks
    scenario = task.build_scenario(2, 0, VALIDATION_SPLIT)
    found = measure_flight(scenario, scenario.draw(), ef.load(run.weights), None, task, run.recipe.measurement_interval)
    assert found == kept.measurements[0]


@pytest.mark.slow
def test_the_best_on_held_out_flocks_is_written_with_its_origin(undisturbed: Path) -> None:
    metadata = read_tensors(undisturbed / "weights.safetensors", FORMAT)[1]
    rows = [line.split(",") for line in (undisturbed / "validation.csv").read_text().splitlines()[1:]]
    costs = {int(generation): float(cost) for generation, *_, cost in rows}
    assert sorted(costs) == [0, 2, 4, 5]  # the beginning, every second one, and the last
    assert metadata["kept"] == {"generation": min(costs, key=costs.__getitem__), "cost": min(costs.values())}
    assert costs[0] == 1.0
    config = read_json(undisturbed / "config.json")
    assert metadata["from"] == config["from"]
    assert config["from"]["name"] == "start.safetensors"
    assert "cma" in config["versions"]
    assert metadata["command"].startswith("equiflock tune start.safetensors --tasks '1*flocking:agents=20")
    assert metadata["tuning"]["population"] == 4
    network = ef.load(undisturbed / "weights.safetensors")
    orbit = network.orbit  # type: ignore[union-attr]
    assert isinstance(orbit, ef.Orbit)
    assert (orbit != ef.Orbit()) == (metadata["kept"]["generation"] > 0)


def stopping_after(asked: int) -> Callable[[], bool]:
    """Return a function that returns True from call number `asked` + 1 on."""
    left = [asked]

    def stop() -> bool:
        left[0] -= 1
        return left[0] < 0

    return stop


@pytest.mark.slow
@pytest.mark.parametrize("asked", [0, 1, 3, 4, 6])
def test_a_tuning_that_is_stopped_anywhere_goes_on_and_ends_with_the_same_bits(
    undisturbed: Path, tmp_path: Path, asked: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        tuned(small(tmp_path / "run"), should_stop=stopping_after(asked))
    reports: list[bool] = []
    tuned(small(tmp_path / "run"), on_generation=lambda report: reports.append(report.is_replayed))
    assert results(tmp_path / "run") == results(undisturbed)
    assert reports == sorted(reports, reverse=True)  # those of before come first
    assert not reports[-1]


@pytest.mark.slow
def test_another_number_of_workers_gives_the_same_bits(undisturbed: Path, tmp_path: Path) -> None:
    tuned(small(tmp_path / "run"), workers=2)
    assert results(tmp_path / "run") == results(undisturbed)


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_scores_are_computed_again(
    undisturbed: Path, tmp_path: Path, damage: Callable[[Path, random.Random], None]
) -> None:
    run = small(tmp_path / "run")
    shutil.copytree(undisturbed, run.folder)
    for name in ("generation-000002.csv", "validation-000004.csv"):
        damage(run.folder / "scores" / name, random.Random(1))
    run.weights.write_bytes(b"")
    notices: list[str] = []
    tuned(run, on_notice=notices.append)
    assert len(notices) == 2
    assert all("is damaged or misplaced: its checksum does not match; it is computed again" in text for text in notices)
    assert results(run.folder) == results(undisturbed)


def test_foreign_files_among_the_scores_are_ignored(undisturbed: Path, tmp_path: Path) -> None:
    run = small(tmp_path / "run")
    shutil.copytree(undisturbed, run.folder)
    foreign = run.folder / "scores" / "generation-old.csv"
    foreign.write_text("candidate\n1\n")
    notices: list[str] = []
    tuned(run, on_notice=notices.append)
    assert notices == []
    foreign.unlink()
    assert results(run.folder) == results(undisturbed)


def test_scores_of_other_candidates_are_not_taken_for_ones_own(undisturbed: Path, tmp_path: Path) -> None:
    run = small(tmp_path / "run")
    shutil.copytree(undisturbed, run.folder)
    (run.folder / "scores" / "generation-000001.csv").replace(run.folder / "scores" / "generation-000003.csv")
    notices: list[str] = []
    tuned(run, on_notice=notices.append)
    (text,) = notices
    assert text.endswith(
        "generation-000003.csv is damaged or misplaced: its checksum does not match; it is computed again"
    )
    assert results(run.folder) == results(undisturbed)


@pytest.mark.slow
def test_a_prolonged_tuning_is_as_if_that_had_been_asked_for_at_once(undisturbed: Path, tmp_path: Path) -> None:
    tuned(small(tmp_path / "run", generations=3))
    tuned(small(tmp_path / "run"))
    found = results(tmp_path / "run")
    found.pop("scores/validation-000003.csv")  # of its first end
    assert found == results(undisturbed)
    with pytest.raises(InputError, match=r"generations must be at least 5, as .* has that many already; got 4"):
        tuned(small(tmp_path / "run", generations=4))
    assert (tmp_path / "run" / "weights.safetensors").read_bytes() == found["weights.safetensors"]


def test_a_folder_is_one_tunings_own_unless_forced(tmp_path: Path) -> None:
    tuned(small(tmp_path / "run", generations=1))
    with pytest.raises(InputError, match="has results of other settings: settings seed = 0, not 1"):
        tuned(small(tmp_path / "run", seed=1, generations=1))
    tuned(small(tmp_path / "run", seed=1, generations=1), force=True)
    assert read_json(tmp_path / "run" / "config.json")["settings"]["seed"] == 1


def test_orbit_parameters_are_unchanged_if_they_are_not_searched(tmp_path: Path) -> None:
    run = small(tmp_path / "run", orbit=False, generations=1)
    assert run.genome.size == small(tmp_path / "run").genome.size - 3
    tuned(run)
    assert ef.load(run.weights).orbit is None  # type: ignore[union-attr]


def test_tuned_weights_can_be_tuned_again_and_keep_their_unit_of_length(tmp_path: Path) -> None:
    options = {"tasks": COURSE, "generations": 1, "population": 4, "flocks": 1, "validation_flocks": 1}
    start = find_weights_file("etdagnn")
    assert start is not None
    recipe = small(tmp_path / "x", **options).recipe
    run = TuningRun(tmp_path / "run", recipe, start, "etdagnn")
    tuned(run)
    again = TuningRun(tmp_path / "again", recipe, run.weights)
    assert again.genome.orbit == ef.load(run.weights).orbit  # type: ignore[union-attr]
    trained = [read_tensors(path, FORMAT)[1]["recipe"] for path in (start, run.weights)]
    assert trained[0] == trained[1]


def loaded(path: Path) -> Any:
    return ef.load(path)


@pytest.mark.slow
def test_weights_near_obstacles_are_tuned_while_all_others_stay(tmp_path: Path) -> None:
    run = small(
        tmp_path / "run", "starling", near=True, search="gains", tasks=COURSE, initial_orbit="near=0.4:slow=0.1"
    )
    assert run.genome.size == 24 + 16 + 1 + 3
    tuned(run)
    initial, tuned_weights = (loaded(path) for path in (tmp_path / "start.safetensors", run.weights))
    state = tuned_weights.tensors
    assert all(np.array_equal(state[name], tensor) for name, tensor in initial.tensors.items())
    assert any(not np.array_equal(state[f"layers{name}"], state[f"near{name}"]) for name in (".1.weight", ".4.weight"))
    assert tuned_weights.orbit.near != 1.0


def test_weights_near_obstacles_are_unchanged_without_obstacles(tmp_path: Path) -> None:
    weights: Any = ef.load("starling")
    start = save(weights, tmp_path / "start.safetensors")
    run = TuningRun(tmp_path / "run", Tuning(**{**SMALL, "tasks": FLOCKING, "search": "gains"}), start)
    assert run.genome.size == 24 + 16 + 1
    found = run.genome.decode(np.full(run.genome.size, 0.5))
    initial = weights.tensors
    assert all(np.array_equal(found.weights[name], initial[name]) for name in initial if name.startswith("near"))
    assert not np.array_equal(found.weights["layers.1.weight"], initial["layers.1.weight"])
    assert found.orbit == weights.orbit


def test_weights_near_obstacles_may_start_scaled_and_as_those_of_another_network(tmp_path: Path) -> None:
    other = save(make_network("etdagnn", seed=3, aggregation="both"), tmp_path / "other.safetensors")
    run = small(
        tmp_path / "run",
        "starling",
        near=True,
        search="gains",
        tasks=COURSE,
        near_from=str(other),
        last_layer_scale=0.5,
        channel_scales="velocity/mean=0.6+inverse-square/sum=2",
    )
    # Six channels of three hops, and the obstacle channel; the weights of `leaving` are 0.
    assert run.genome.size == 18 + 3 + 16 + 1 + 3
    initial, six = run.genome.decode(run.genome.initial_vector).weights, loaded(other).tensors
    scales = np.array([0.6, 1.0, 1.0, 1.0, 1.0, 2.0], np.float32)
    assert np.array_equal(initial["near.1.weight"][:, :6], six["layers.1.weight"] * scales[:, None])
    assert not initial["near.1.weight"][:, 6:].any()
    assert np.array_equal(initial["near.4.weight"], 0.5 * six["layers.4.weight"])
    assert run.config["from"]["near"] == compute_file_checksum(other)


def test_no_generations_write_the_initial_weights(tmp_path: Path) -> None:
    other = save(make_network("starling", seed=3), tmp_path / "other.safetensors")
    run = small(
        tmp_path / "run", "starling", near=True, tasks=COURSE, near_from=str(other), generations=0, validation_flocks=1
    )
    best = tuned(run)
    assert best.generation == 0 and best.measurements == best.initial_measurements
    weights, (own, near) = (
        loaded(run.weights),
        (loaded(tmp_path / name).tensors for name in ("start.safetensors", other)),
    )
    assert all(np.array_equal(weights.tensors[name], tensor) for name, tensor in own.items())
    assert all(np.array_equal(weights.tensors[name.replace("layers", "near")], tensor) for name, tensor in near.items())


def test_tuned_weights_may_have_another_gain_schedule(tmp_path: Path) -> None:
    run = small(tmp_path / "run", "starling", search="channels", tasks=FLOCKING, gain_period=0.03, largest_gain=4.0)
    tuned(run)
    assert loaded(tmp_path / "start.safetensors").gain_schedule == ef.GainSchedule(0.02, 5.0)
    assert loaded(run.weights).gain_schedule == ef.GainSchedule(0.03, 4.0)


def test_the_orbit_starts_with_the_given_parameters(tmp_path: Path) -> None:
    run = small(tmp_path / "run", initial_orbit="gravity_break=0.6:slow=0.2")
    assert run.genome.decode(run.genome.initial_vector).orbit == ef.Orbit(gravity_break=0.6, slow=0.2)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"near": True}, "etdagnn has no channel among obstacles"),
        (
            {"initial_orbit": "nearness=2"},
            "initial_orbit must set parameters among gravity_break, dodge_angle, near, slow",
        ),
        ({"initial_orbit": "gravity_break=2"}, "gravity_break must be from 0 to 1"),
        ({"near_from": "other.safetensors"}, "near_from, last_layer_scale and channel_scales require near"),
        ({"near": True, "tasks": FLOCKING}, "near requires a task with obstacles, such as 0.5"),
        ({"gain_features": "velocity"}, "gain_features requires search=gains or search=channels; got search"),
        ({"channel_scales": "velocity/mean=0.6"}, "near_from, last_layer_scale and channel_scales require near"),
        ({"channel_scales": "velocity=0.6"}, "channel_scales must be such as velocity/mean=0.6, with factors above 0"),
        ({"channel_scales": "velocity/mean=x"}, "channel_scales must be such as velocity/mean=0.6"),
        ({"last_layer_scale": 0.5}, "near_from, last_layer_scale and channel_scales require near"),
        ({"last_layer_scale": 0.0}, "last_layer_scale must be a finite number above 0; got 0"),
        ({"gain_period": 0.0}, "gain_period must be"),
        ({"generations": -1}, "generations must be"),
        ({"largest_gain": -1.0}, "largest_gain must be"),
        ({"largest_gain": 4.0}, "largest_gain requires a network with a gain schedule; etdagnn has none"),
        ({"gain_period": 0.03}, "gain_period requires a network with a gain schedule; etdagnn has none"),
    ],
)
def test_invalid_searches_are_refused(options: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=text):
        small(tmp_path / "run", **options)
