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

from equiflock._runtime.checks import InputError
from equiflock._runtime.files import check_writable
from equiflock._runtime.specs import parse_spec
from equiflock.cli.plugins import compute_plugin_checksum, import_plugin
from equiflock.cli.shared_options import check_radius_has_effect, load_flights
from equiflock.cli.terminal import PREPARING_TEXT, SECOND_CTRL_C_HINT, err, out, progress
from equiflock.controllers.registry import WEIGHTS_SUFFIX
from equiflock.controllers.trained import DEFAULT_CONTROLLER
from equiflock.scenarios.registry import choose_controller
from equiflock.simulation.trajectory import Trajectory

if TYPE_CHECKING:
    from equiflock.viewer.viewer_config import ViewerConfig


@dataclass(frozen=True)
class View:
    """Simulate flocks interactively in a browser, or replay saved flights."""

    flights: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """One or two saved flights to replay: from `equiflock simulate --save`, saved from the page, a flight log (.csv,
    with --comm-radius), or a job of `equiflock reproduce` or `evaluate` (jobs/*.csv in its run directory), which is
    simulated again."""
    controller: str | None = None
    """Initial controller, as for `equiflock simulate`; the page can switch to any other. By default starling, or the
    scenario's first suitable controller if that is not one."""
    compare: str | None = None
    """Second controller, simulated side by side with the first."""
    weights: tuple[Path, ...] = ()
    """Weights files (.safetensors) to add to the page's controllers."""
    scenario: str = "flocking"
    """Initial scenario, such as flocking or obstacles:sides=48, or your own (see --plugin)."""
    agents: int = 100
    """Initial number of agents, at most 10,000."""
    seed: int = 0
    """Seed of the initial flock."""
    comm_radius: float | None = None
    """Communication radius of flight logs, or of the initial flock."""
    host: str = "127.0.0.1"
    """Address to listen on. Anyone who can reach it can run simulations on this machine, and save flights."""
    port: int = 8000
    """Port to listen on; if it is in use, the next free one."""
    out: Path = Path("runs/view")
    """Directory that the page saves flights to."""
    browser: bool = True
    """Whether to open a browser, if there is a display."""
    plugin: str | None = None
    """Python module or file to import first, which may register your own controllers and scenarios."""

    def run(self) -> None:
        """Print the address of the page and serve it until Ctrl-C."""
        try:
            from equiflock.viewer.server import address, make_server, open_listening_socket
        except ModuleNotFoundError as error:
            raise InputError(f"view needs {error.name}: pip install 'equiflock[view]'") from None
        import_plugin(self.plugin)
        check_writable(self.out / "flight")
        # Report wrong options and a used port before kernels are compiled.
        viewer_config = self._make_viewer_config()
        listening = open_listening_socket(
            self.host, self.port, lambda port: err.print(f"port {port} is in use", highlight=False)
        )
        with progress() as bar:
            bar.add_task(PREPARING_TEXT, total=None)
            viewer_config.setting.draw()
        page = address(self.host, listening.getsockname()[1])
        out.print(f"live view at {page} (Ctrl-C to stop)", highlight=False)
        sys.stdout.flush()
        if self.browser and _has_screen():
            webbrowser.open(page)
        # Compile kernels while pages are served; pages show the progress.
        compile_thread = threading.Thread(target=_prepare_pages, args=[viewer_config], daemon=True)
        compile_thread.start()
        # Ctrl-C is the normal way to stop a server, not an error.
        with listening, suppress(KeyboardInterrupt):
            make_server(viewer_config, self.host).run([listening])
        # The compiler cannot be interrupted, but a second Ctrl-C ends the program.
        if compile_thread.is_alive():
            err.print(f"waiting for the compiler ({SECOND_CTRL_C_HINT})", highlight=False)
            compile_thread.join()

    def _make_viewer_config(self) -> ViewerConfig:
        """Return the server's configuration, with saved flights loaded; raise InputError for invalid options."""
        from pydantic import ValidationError

        from equiflock.viewer.setting import Setting, format_validation_error
        from equiflock.viewer.viewer_config import ViewerConfig

        # Refuse options that would have no effect.
        default = View()
        live_options = ("controller", "compare", "weights", "scenario", "agents", "seed")
        if self.flights and any(getattr(self, name) != getattr(default, name) for name in live_options):
            raise InputError("options of live flights have no effect on saved flights: leave them out")
        check_radius_has_effect(self.flights, self.comm_radius)
        wrong = [str(path) for path in self.weights if path.suffix != WEIGHTS_SUFFIX]
        if wrong:
            raise InputError(f"{wrong[0]} is not a weights file: its name must end in {WEIGHTS_SUFFIX}")
        # Agents, seed and radius are fields of the page; all other options belong to the scenario.
        scenario, options = parse_spec(self.scenario)
        page_fields: dict[str, Any] = {"agents": self.agents, "seed": self.seed}
        page_fields |= {name: options.pop(name) for name in ("agents", "seed", "comm_radius") if name in options}
        if self.comm_radius is not None and not self.flights:
            page_fields["comm_radius"] = self.comm_radius
        files = list(self.weights)
        initial = choose_controller(scenario, DEFAULT_CONTROLLER) if self.controller is None else self.controller
        for name, controller in (("controller", initial), ("compare", self.compare)):
            page_fields[name] = controller
            if controller is not None and controller.endswith(WEIGHTS_SUFFIX):
                files.append(Path(controller))
                page_fields[name] = str(files[-1])  # as the page lists it, without a leading `./`
        try:
            setting = Setting(scenario=scenario, options=options, **page_fields)
        except ValidationError as error:
            raise InputError(format_validation_error(error)) from None
        with progress() as bar:
            bar.add_task("reading flights", total=None, visible=bool(self.flights))
            plugin = compute_plugin_checksum(self.plugin)
            flights = [run for path in self.flights for run in _load_flights(path, self.comm_radius, plugin)]
        return ViewerConfig(setting, tuple(dict.fromkeys(files)), flights, self.out)


def _prepare_pages(viewer_config: ViewerConfig) -> None:
    """Build what pages need first, then compile kernels; ignore errors, which a page that needs these reports."""
    with suppress(Exception):
        _ = viewer_config.welcome  # is kept
        viewer_config.compile_kernels()


def _has_screen() -> bool:
    """Return whether a browser can open a window; a text browser would take over the terminal."""
    return sys.platform in ("darwin", "win32") or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())


def _load_flights(path: Path, comm_radius: float | None, plugin: str) -> list[Trajectory]:
    """Return the flights saved at a path, that of a flight log, or that of an experiment's job, simulated again.

    `plugin` is the plugin's checksum. Raise InputError for the run directory of an experiment.
    """
    jobs = sorted((path / "jobs").glob("*.csv"))
    if jobs:
        raise InputError(f"{path} is the run directory of an experiment: name one of its jobs, such as {jobs[0]}")
    if path.suffix != ".csv" or path.resolve().parent.name != "jobs":
        return load_flights(path, comm_radius)
    from equiflock.viewer.job_reruns import rerun_flight

    return [rerun_flight(path, plugin)]
