"""`equiflock view`."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from equiflock.cli.console import err, out
from equiflock.cli.plugins import compute_plugin_checksum, import_plugin
from equiflock.cli.terminal import PREPARING_TEXT, progress
from equiflock.controllers.registry import WEIGHTS_SUFFIX
from equiflock.runtime.checks import InputError
from equiflock.runtime.files import check_writable
from equiflock.runtime.options import parse_options
from equiflock.simulation.trajectory import Trajectory, load_trajectories

if TYPE_CHECKING:
    from equiflock.viewer.viewer_config import ViewerConfig


@dataclass(frozen=True)
class View:
    """Watch flocks live in a browser and play with them, or play saved flights."""

    flights: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """Saved flights to play, one or two side by side: of `equiflock simulate --save`, a folder that the page saved, or
    a job of `equiflock reproduce` or `evaluate` (jobs/*.csv in its folder), which is flown again."""
    controller: str = "etdagnn"
    """The controller to begin with, as for `equiflock simulate`; the page offers them all."""
    compare: str | None = None
    """A second controller, flown side by side with the first."""
    weights: tuple[Path, ...] = ()
    """Files of weights (.safetensors) that the page shall offer, too."""
    scenario: str = "flocking"
    """The scenario to begin with, such as flocking, leaders or obstacles, or one of your own (see --plugin); options
    follow the name: obstacles:sides=48. The page offers them all."""
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
    """Whether to open a browser, where there is a screen."""
    plugin: str | None = None
    """A Python module or file to import first, such as one that registers your own controller or scenario."""

    def run(self) -> None:
        """Say where the page is, and serve it until Ctrl-C."""
        try:
            from equiflock.viewer.server import address, make_server, open_listening_socket
        except ModuleNotFoundError as error:
            raise InputError(
                f"the live view needs {error.name}: install equiflock with its extra, pip install 'equiflock[view]'"
            ) from None
        import_plugin(self.plugin)
        check_writable(self.out / "flight")
        # Mistakes in options and a port in use are known before kernels are compiled.
        viewer_config = self._make_viewer_config()
        listening = open_listening_socket(
            self.host, self.port, lambda port: err.print(f"port {port} is in use", highlight=False)
        )
        with progress() as bar:
            bar.add_task(PREPARING_TEXT, total=None)
            viewer_config.check_start()
        page = address(self.host, listening.getsockname()[1])
        out.print(f"the flock flies at {page} (Ctrl-C ends it)", highlight=False)
        sys.stdout.flush()
        if self.browser and _has_screen():
            webbrowser.open(page)
        # Pages are served while the kernels that they may need are compiled, and show how far that is.
        warming = threading.Thread(target=_compile_kernels, args=[viewer_config], daemon=True)
        warming.start()
        # Ctrl-C is the usual end of a server, and no error.
        with listening, suppress(KeyboardInterrupt):
            make_server(viewer_config, self.host).run([listening])
        # The compiler cannot be interrupted, but a second Ctrl-C ends the program.
        if warming.is_alive():
            err.print("waiting for the compiler (Ctrl-C ends it at once)", highlight=False)
            warming.join()

    def _make_viewer_config(self) -> ViewerConfig:
        """What the server offers, by the options of this command."""
        from pydantic import ValidationError

        from equiflock.viewer.setting import Setting
        from equiflock.viewer.strict_model import format_validation_error
        from equiflock.viewer.viewer_config import ViewerConfig

        # An option that would have no effect is an error: the user expects something of it.
        fresh = View()
        live = ("controller", "compare", "weights", "scenario", "agents", "seed")
        if self.flights and any(getattr(self, name) != getattr(fresh, name) for name in live):
            raise InputError("options of live flights do not go with saved flights")
        wrong = [str(path) for path in self.weights if path.suffix != WEIGHTS_SUFFIX]
        if wrong:
            raise InputError(f"{wrong[0]} is not a file of weights: its name must end in {WEIGHTS_SUFFIX}")
        # Options that the page has fields for go there, all others to the scenario.
        scenario, colon, told = self.scenario.partition(":")
        options = parse_options(told) if colon else {}
        numbers: dict[str, Any] = {"agents": self.agents, "seed": self.seed}
        numbers |= {name: options.pop(name) for name in ("agents", "seed", "comm_radius") if name in options}
        named = [_normalize_controller_name(name) for name in (self.controller, self.compare) if name is not None]
        try:
            setting = Setting(
                scenario=scenario,
                options=options,
                controller=named[0],
                compare=named[1] if len(named) > 1 else None,
                **numbers,
            )
        except ValidationError as error:
            raise InputError(format_validation_error(error)) from None
        files = [*self.weights, *(Path(name) for name in named if name.endswith(WEIGHTS_SUFFIX))]
        with progress() as bar:
            bar.add_task("reading flights", total=None, visible=bool(self.flights))
            flights = [
                run for path in self.flights for run in _load_flights(path, compute_plugin_checksum(self.plugin))
            ]
        return ViewerConfig(setting, tuple(dict.fromkeys(files)), flights, self.out)


def _compile_kernels(viewer_config: ViewerConfig) -> None:
    # A flight that raises an error tells the page that asks for it.
    with suppress(Exception):
        viewer_config.compile_kernels()


def _has_screen() -> bool:
    """Whether a browser could open a window; a browser in the terminal would take over the terminal."""
    return sys.platform in ("darwin", "win32") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())


def _normalize_controller_name(name: str) -> str:
    """A controller's name as the page lists it: paths of files without a needless `./`."""
    return str(Path(name)) if name.endswith(WEIGHTS_SUFFIX) else name


def _load_flights(path: Path, plugin: str) -> list[Trajectory]:
    """The flights at a path, or that of an experiment's job, flown again."""
    jobs = sorted((path / "jobs").glob("*.csv"))
    if jobs:
        raise InputError(f"{path} is the folder of an experiment: name one of its jobs, such as {jobs[0]}")
    if path.suffix != ".csv":
        return load_trajectories(path)
    # The result of a job is a table; its flight is computed again.
    from equiflock.experiments.rerun_job import rerun_flight

    return [rerun_flight(path, plugin)]
