"""`equiflock view`."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from equiflock.cli.terminal import PREPARING, err, import_plugin, out, progress
from equiflock.files import check_writable
from equiflock.trajectory import Trajectory, load_flights
from equiflock.types import InputError

if TYPE_CHECKING:
    from equiflock.viewer.exhibit import Exhibit


@dataclass(frozen=True)
class View:
    """Watch flocks live in a browser and play with them, or play saved flights."""

    flights: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Saved flights to play, one or two side by side: of `equiflock simulate --save`, a folder that the page saved, or
    a cell of `equiflock reproduce` or `evaluate` (cells/*.csv in its folder), which is flown again."""
    controller: str = "etdagnn"
    """The controller to begin with, as for `equiflock simulate`; the page offers them all."""
    compare: str | None = None
    """A second one, side by side."""
    weights: tuple[Path, ...] = ()
    """Files of weights (.safetensors) that the page shall offer, too."""
    scenario: Literal["flocking", "leaders", "obstacles"] = "flocking"
    """What to begin with: flocking, leader following, or an obstacle course."""
    agents: int = 100
    """How many agents to begin with, at most 10,000."""
    seed: int = 0
    """Which flock to begin with."""
    host: str = "127.0.0.1"
    """The address to listen on. Whoever reaches it can fly flocks on this machine, and save them."""
    port: int = 8000
    """The port; if it is in use, the next that is not."""
    out: Path = Path("runs/view")
    """The folder that the page saves flights to."""
    browser: bool = True
    """Whether to open a browser."""
    plugin: str | None = None
    """A Python module or file to import first, such as one that registers your own controller."""

    def run(self) -> None:
        """Say where the page is, and serve it until Ctrl-C."""
        try:
            from equiflock.viewer.server import address, listen, serve
        except ModuleNotFoundError as error:
            raise InputError(
                f"the live view needs {error.name}: install equiflock with its extra, pip install 'equiflock[view]'"
            ) from None
        import_plugin(self.plugin)
        check_writable(self.out / "flight")
        exhibit = self._exhibit()
        listening = listen(self.host, self.port, lambda port: err.print(f"port {port} is in use", highlight=False))
        with progress() as bar:
            bar.add_task(PREPARING, total=None)
            exhibit.warm_up()
        page = address(self.host, listening.getsockname()[1])
        out.print(f"the flock flies at {page} (Ctrl-C ends it)", highlight=False)
        sys.stdout.flush()
        if self.browser:
            webbrowser.open(page)
        with listening, suppress(KeyboardInterrupt):
            serve(exhibit, self.host).run([listening])

    def _exhibit(self) -> Exhibit:
        from pydantic import ValidationError

        from equiflock.viewer.exhibit import Exhibit
        from equiflock.viewer.setting import Setting, one_line

        named = [self.controller, *([] if self.compare is None else [self.compare])]
        files = [Path(name) for name in named if name.endswith(".safetensors")]
        try:
            setting = Setting(
                scenario=self.scenario,
                controller=self.controller,
                compare=self.compare,
                agents=self.agents,
                seed=self.seed,
            )
        except ValidationError as error:
            raise InputError(one_line(error)) from None
        with progress() as bar:
            bar.add_task("reading flights", total=None, visible=bool(self.flights))
            flights = [run for path in self.flights for run in _load(path)]
        return Exhibit(setting, tuple(dict.fromkeys([*self.weights, *files])), flights, self.out)


def _load(path: Path) -> list[Trajectory]:
    """The flights at a path, or that of an experiment's cell."""
    if path.suffix != ".csv":
        return load_flights(path)
    from equiflock.experiments.replay import fly_again

    return [fly_again(path)]
