"""Workers elsewhere, one of which dies, give the tables of an undisturbed run here."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import distributed
import pandas as pd
import pytest

from equiflock import cli
from equiflock._runtime import executors as on_a_cluster
from equiflock._runtime.checks import InputError
from equiflock._runtime.executors import run_jobs
from equiflock._runtime.jobs import read_results
from tests._runtime.cluster import Cluster, cluster
from tests._runtime.squares import Square

pytestmark = pytest.mark.slow

GRID = ["sweep", "--controller", "etdagnn,tanner", "--agents", "20,40", "--comm-radius", "1,1.5", "--flocks", "3"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Cluster:  # type: ignore[misc]
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        found.add_worker()
        yield found


def test_a_sweep_on_two_workers_one_of_which_is_killed_halfway_ends_as_one_here(
    small: Cluster, tmp_path: Path, jobs_here: None
) -> None:
    cli.main([*GRID, "--workers", "1", "--out", str(tmp_path / "here")])
    doomed = small.add_worker("--name", "doomed")
    done_when_killed: list[int] = []

    def kill_halfway() -> None:
        """When the worker is at a job, and some are done."""
        with distributed.Client(small.address, set_as_default=False) as client:
            while not done_when_killed:
                held = client.processing()  # address -> keys
                names = client.run(lambda dask_worker: dask_worker.name, on_error="ignore")
                busy = {name for address, name in names.items() if held.get(address)}
                done = len(list((tmp_path / "there" / "jobs").glob("*.csv")))
                if "doomed" in busy and done >= 2:
                    doomed.kill()
                    done_when_killed.append(done)
                time.sleep(0.01)

    with distributed.Client(small.address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
    killer = threading.Thread(target=kill_halfway, daemon=True)
    killer.start()
    cli.main([*GRID, "--scheduler", small.address, "--out", str(tmp_path / "there")])
    killer.join(timeout=10)
    assert done_when_killed
    assert 2 <= done_when_killed[0] < 8
    for table in ("sweep.csv", "summary.csv"):
        assert (tmp_path / "there" / table).read_text() == (tmp_path / "here" / table).read_text()
    names = [sorted(path.name for path in (tmp_path / side / "jobs").iterdir()) for side in ("here", "there")]
    assert names[0] == names[1]
    assert len(names[0]) == 8


def test_a_finished_job_is_not_run_again_on_a_cluster(small: Cluster, tmp_path: Path, jobs_here: None) -> None:
    jobs = [Square(n, tmp_path) for n in (3, 1, 2)]
    run_jobs(jobs[:1], tmp_path / "jobs", 1)
    done: list[str] = []
    run_jobs(jobs, tmp_path / "jobs", 1, lambda job: done.append(job.key), scheduler=small.address)
    assert sorted(done) == ["square-1", "square-2", "square-3"]
    assert read_results(jobs, tmp_path / "jobs").to_dict("list") == {"square": [9, 1, 4], "number": [3, 1, 2]}
    assert {(tmp_path / str(n)).read_text() for n in (1, 2, 3)} == {"x"}


def test_the_error_of_a_failed_job_is_raised_when_the_others_are_done(small: Cluster, tmp_path: Path) -> None:
    jobs = [Square(1, tmp_path, fails=True), Square(2, tmp_path), Square(3, tmp_path)]
    with pytest.raises(InputError, match="no square today"):
        run_jobs(jobs, tmp_path / "jobs", 1, scheduler=small.address)
    assert read_results(jobs[1:], tmp_path / "jobs").square.tolist() == [4, 9]


def test_a_worker_with_another_program_is_refused(
    small: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_a_cluster, "fingerprint_program", lambda: {"equiflock": "0.0.1"})
    with pytest.raises(InputError, match=r"runs another program than the command: .*, not 0\.0\.1"):
        run_jobs([Square(1, tmp_path)], tmp_path / "jobs", 1, scheduler=small.address)


def test_a_worker_that_imported_a_plugin_before_its_change_refuses(
    small: Cluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    own_registry: None,
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "elsewhere_gains.py").write_text("G = 2.0\n")
    (tmp_path / "elsewhere_law.py").write_text(
        "import equiflock as ef\nfrom elsewhere_gains import G\n\n"
        "@ef.controller('elsewhere')\ndef elsewhere(z):\n    return -G * z[:, :, 0, 0]\n"
    )
    sweep = ["sweep", "--controller", "elsewhere", "--plugin", str(tmp_path / "elsewhere_law.py"), "--agents", "20"]
    options = ["--flocks", "2", "--duration", "0.1", "--scheduler", small.address]
    cli.main([*sweep, *options, "--out", str(tmp_path / "before")])
    (tmp_path / "elsewhere_gains.py").write_text("G = 9.0\n")
    with pytest.raises(SystemExit):
        cli.main([*sweep, *options, "--out", str(tmp_path / "after")])
    errors = capsys.readouterr().err
    assert "differs between the command and this worker: elsewhere_gains.py = " in errors
    assert "restart the workers of the cluster" in errors


def test_several_trainings_on_workers_elsewhere(small: Cluster, tmp_path: Path, jobs_here: None) -> None:
    recipe = ["--agents", "20", "--flocks", "3", "--duration", "0.1", "--updates", "5", "--validation-flocks", "2"]
    many = ["train", "--controller", "etdagnn", "--seeds", "0-1", "--epochs", "2", *recipe]
    cli.main([*many, "--scheduler", small.address, "--out", str(tmp_path / "there")])
    cli.main([*many, "--workers", "1", "--out", str(tmp_path / "here")])
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["etdagnn-0", "etdagnn-1"]
    for seed in (0, 1):
        weights = [(tmp_path / side / f"etdagnn-{seed}/weights.safetensors").read_bytes() for side in ("here", "there")]
        assert weights[0] == weights[1]


def test_a_tuning_by_workers_elsewhere_ends_as_one_here(small: Cluster, tmp_path: Path, jobs_here: None) -> None:
    tasks = ["--tasks", "flocking:agents=20:duration=0.2", "--flocks", "2", "--validation-flocks", "2"]
    words = ["tune", "etdagnn", *tasks, "--population", "4", "--generations", "2"]
    cli.main([*words, "--scheduler", small.address, "--out", str(tmp_path / "there")])
    cli.main([*words, "--workers", "1", "--out", str(tmp_path / "here")])
    for name in ("weights.safetensors", "generations.csv", "scores/generation-000002.csv"):
        assert (tmp_path / "there" / name).read_bytes() == (tmp_path / "here" / name).read_bytes(), name


def test_a_scheduler_that_does_not_answer_or_has_no_workers_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_a_cluster, "CONNECT_TIMEOUT", 2)
    with pytest.raises(InputError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        run_jobs([Square(1, tmp_path)], tmp_path / "jobs", 1, scheduler="tcp://127.0.0.1:9")
    with cluster(tmp_path / "cluster") as found, pytest.raises(InputError, match="has no workers"):
        run_jobs([Square(1, tmp_path)], tmp_path / "jobs", 1, scheduler=found.address)


def test_results_of_other_settings_are_other_files(tmp_path: Path, jobs_here: None) -> None:
    here, there = Square(1, tmp_path), Square(1, tmp_path / ".." / tmp_path.name)
    run_jobs([here], tmp_path / "jobs", 1)
    run_jobs([there], tmp_path / "jobs", 1)
    assert len(list((tmp_path / "jobs").iterdir())) == 2
    assert isinstance(read_results([here, there], tmp_path / "jobs"), pd.DataFrame)
