"""`equiflock atlas`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from equiflock.cli.console import out
from equiflock.cli.terminal import print_notice, print_text_table, progress
from equiflock.runtime.checks import check_choice, check_count

OUTPUT_PATTERNS = ("jobs", "*.gif", "*.csv", "*.md")
"""Glob patterns of the files that an atlas writes beside its config."""


@dataclass(frozen=True)
class Atlas:
    """Measure the claims of the classical flocking laws, and film each law.

    Writes atlas.md, atlas.csv and a film for each law. Existing results in the run directory are kept, so the same
    command resumes an interrupted run. The whole atlas takes about five minutes on two cores.
    """

    out: Path = Path("runs/atlas")
    """Run directory to write."""
    only: tuple[str, ...] = ()
    """Laws to measure, such as cucker-smale; by default all."""
    films: bool = True
    """Whether to render films."""
    workers: int = os.cpu_count() or 1
    """Number of worker processes."""
    scheduler: str | None = None
    """Address of a Dask scheduler to run the jobs on instead, such as tcp://10.0.0.1:8786."""
    force: bool = False
    """Delete an earlier atlas in the run directory and start again."""

    def run(self) -> None:
        """Measure claims and draw films that are missing, write atlas.csv and atlas.md, and print the claims.

        The files have all laws measured so far; the printed table has those of --only.
        """
        from equiflock.experiments.atlas.entries import ENTRIES, build_claim_jobs
        from equiflock.experiments.runner.jobs import is_done, read_results
        from equiflock.experiments.runner.run_jobs import run_jobs
        from equiflock.report.atlas_page import draw_films, write_atlas
        from equiflock.runtime.files import atomic_write
        from equiflock.runtime.provenance import lock_run_dir

        check_count("workers", self.workers)
        for name in self.only:
            check_choice("law", name, tuple(entry.name for entry in ENTRIES))
        entries = [entry for entry in ENTRIES if not self.only or entry.name in self.only]
        jobs, results_dir = build_claim_jobs(self.only), self.out / "jobs"
        with lock_run_dir(self.out, "atlas", self._collect_settings(), OUTPUT_PATTERNS, self.force), progress() as bar:
            measuring = bar.add_task("measuring", total=len(jobs))
            run_jobs(
                jobs,
                results_dir,
                self.workers,
                lambda job: bar.advance(measuring),
                scheduler=self.scheduler,
                on_notice=partial(print_notice, bar),
            )
            # The page shows all laws measured so far, including those of earlier calls.
            results = read_results([job for job in build_claim_jobs() if is_done(job, results_dir)], results_dir)
            with atomic_write(self.out / "atlas.csv") as scratch:
                results.to_csv(scratch, index=False)
            if self.films:
                filming = bar.add_task("filming", total=len(entries))
                draw_films(entries, self.out, lambda name: bar.advance(filming))
            page = write_atlas(results, self.out)
        table = results[results.claim.isin([job.number for job in jobs])]
        claims = {job.number: job.claim for job in jobs}
        rows = [
            [
                row.law,
                row.description,
                f"{row.value:{claims[row.claim].value_format}}",
                claims[row.claim].rule,
                row.verdict,
            ]
            for row in table.fillna("").itertuples()
        ]
        print_text_table("claims of the laws", ("law", "measured", "number", "claimed", "verdict"), rows)
        out.print(f"  {page}", highlight=False)

    def _collect_settings(self) -> dict[str, Any]:
        """Return everything that the results depend on: claims, films, parameters or weights of laws, and versions."""
        from equiflock.controllers.loading import find_weights_file, load
        from equiflock.experiments.atlas.entries import ENTRIES, build_claim_jobs
        from equiflock.runtime.checksums import compute_checksum, compute_file_checksum
        from equiflock.runtime.provenance import read_package_versions

        films = {entry.name: entry.film_settings for entry in ENTRIES}
        names = [job.claim.law for job in build_claim_jobs()] + [name for entry in ENTRIES for name in entry.panels]
        files = {name: find_weights_file(name) for name in names}
        laws = {name: repr(load(name)) if path is None else compute_file_checksum(path) for name, path in files.items()}
        claims = compute_checksum(repr(build_claim_jobs()).encode())
        return {"claims": claims, "films": films, "laws": laws, "versions": read_package_versions()}
