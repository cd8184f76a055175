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
"""Patterns of the files that an atlas writes beside its config."""


@dataclass(frozen=True)
class Atlas:
    """Measure what the classical laws promise, and film each of them.

    Writes atlas.md, a film for each law, and atlas.csv, the numbers. What is in the folder already is not run again, so
    an interrupted atlas goes on where it was. All of it takes some five minutes on two cores.
    """

    out: Path = Path("runs/atlas")
    """The folder to write to."""
    only: tuple[str, ...] = ()
    """Some of the laws, such as cucker-smale; all if left out."""
    films: bool = True
    """Whether to draw films, too."""
    workers: int = os.cpu_count() or 1
    """How many processes."""
    scheduler: str | None = None
    """The address of a Dask scheduler whose workers run the jobs instead, such as tcp://10.0.0.1:8786."""
    force: bool = False
    """Remove what is in the folder, if it is an atlas, and begin anew."""

    def run(self) -> None:
        """Print what was measured and say where the page is."""
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
        jobs, kept = build_claim_jobs(self.only), self.out / "jobs"
        with lock_run_dir(self.out, "atlas", self._collect_settings(), OUTPUT_PATTERNS, self.force), progress() as bar:
            measuring = bar.add_task("measuring", total=len(jobs))
            run_jobs(
                jobs,
                kept,
                self.workers,
                lambda job: bar.advance(measuring),
                scheduler=self.scheduler,
                on_notice=partial(print_notice, bar),
            )
            # The page is of all laws that were measured, by earlier calls too.
            found = read_results([job for job in build_claim_jobs() if is_done(job, kept)], kept)
            with atomic_write(self.out / "atlas.csv") as scratch:
                found.to_csv(scratch, index=False)
            if self.films:
                filming = bar.add_task("filming", total=len(entries))
                draw_films(entries, self.out, lambda name: bar.advance(filming))
            page = write_atlas(found, self.out)
        table = found[found.claim.isin([job.number for job in jobs])]
        value_format = {job.number: job.claim for job in jobs}
        rows = [
            [
                row.law,
                row.description,
                f"{row.value:{value_format[row.claim].value_format}}",
                value_format[row.claim].rule,
                row.verdict,
            ]
            for row in table.fillna("").itertuples()
        ]
        print_text_table("what the laws promise", ("law", "measured", "number", "promised", ""), rows)
        out.print(f"  {page}", highlight=False)

    def _collect_settings(self) -> dict[str, Any]:
        """Everything that the results depend on: claims, films, the numbers or the weights of laws, and versions."""
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
