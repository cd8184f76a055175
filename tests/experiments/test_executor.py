"""Cells run once each, whatever happens, and results of different settings never mix."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from equiflock.experiments.executor import collect, run_cells
from equiflock.types import InputError


@dataclass(frozen=True)
class Square:
    """Squares its number, counts its runs in a file, and may fail."""

    number: int
    runs: Path
    fails: bool = False

    @property
    def key(self) -> str:
        return f"square-{self.number}"

    @property
    def labels(self) -> dict[str, Any]:
        return {"number": self.number}

    def run(self) -> pd.DataFrame:
        with (self.runs / f"{self.number}").open("a") as file:
            file.write("x")
        if self.fails:
            raise InputError("no square today")
        return pd.DataFrame({"square": [self.number**2]})


@pytest.mark.parametrize("workers", [1, 2])
def test_cells_run_in_parallel_and_are_collected_in_order(tmp_path: Path, workers: int) -> None:
    cells = [Square(n, tmp_path) for n in (3, 1, 2)]
    done: list[str] = []
    run_cells(cells, tmp_path / "cells", workers, lambda cell: done.append(cell.key))
    assert sorted(done) == ["square-1", "square-2", "square-3"]
    assert collect(cells, tmp_path / "cells").to_dict("list") == {"square": [9, 1, 4], "number": [3, 1, 2]}


def test_a_finished_cell_is_never_run_again_and_one_that_failed_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no square today"):
        run_cells([Square(1, tmp_path), Square(2, tmp_path, fails=True)], tmp_path / "cells", 1)
    assert [path.name.rsplit("-", 1)[0] for path in (tmp_path / "cells").iterdir()] == ["square-1"]
    run_cells([Square(1, tmp_path), Square(2, tmp_path)], tmp_path / "cells", 1)
    assert (tmp_path / "1").read_text() == "x"
    assert (tmp_path / "2").read_text() == "xx"


@dataclass(frozen=True)
class Fragile(Square):
    """Its process dies at the first try, or at every one."""

    always: bool = False

    def run(self) -> pd.DataFrame:
        first = not (self.runs / f"{self.number}").exists()
        table = super().run()
        if first or self.always:
            os.kill(os.getpid(), signal.SIGKILL)
        return table


def test_a_process_that_dies_has_its_cells_run_again(tmp_path: Path) -> None:
    cells = [Fragile(1, tmp_path), Square(2, tmp_path)]
    run_cells(cells, tmp_path / "cells", 2)
    assert collect(cells, tmp_path / "cells").square.tolist() == [1, 4]
    with pytest.raises(InputError, match="processes died 3 times, perhaps for want of memory; not done: square-3"):
        run_cells([Fragile(3, tmp_path, always=True)], tmp_path / "cells", 1)
