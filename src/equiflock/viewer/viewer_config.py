"""Configuration of the server: controllers, the initial setting, saved flights, and the output directory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from equiflock.controllers import controller_names, load
from equiflock.controllers.controller_options import controller_options
from equiflock.controllers.registry import WEIGHTS_SUFFIX
from equiflock.controllers.trained import bundled_names, bundled_seeds
from equiflock.features import paper_senses
from equiflock.pairs.all_pairs import sum_over_all_pairs
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError, raise_wrong_choice
from equiflock.runtime.threads import MAX_SMALL_FLOCK
from equiflock.scenarios import scenario_names
from equiflock.senses.aggregation import observe
from equiflock.simulation.trajectory import Trajectory
from equiflock.version import __version__
from equiflock.viewer.catalogue import list_laws, list_scenarios
from equiflock.viewer.frames import pack_frame
from equiflock.viewer.live_simulation import LiveSimulation
from equiflock.viewer.playback import check_playback
from equiflock.viewer.setting import MAX_DISKS, DiskObstacle, Setting
from equiflock.viewer.world import WorldSetting, list_bodies


@dataclass(frozen=True)
class ViewerConfig:
    """What pages may choose from. A page never sends a file name."""

    setting: Setting = field(default_factory=Setting)
    """Initial setting of a page, unless its address holds another."""
    weights: tuple[Path, ...] = ()
    """Weights files offered in addition to the registered controllers."""
    flights: Sequence[Trajectory] = ()
    """Saved flights to play; if empty, pages show live flights."""
    out: Path = Path("runs/view")
    """Directory in which flights are saved."""

    def __post_init__(self) -> None:
        # Raise errors in the server's arguments now, not when the first page opens.
        if self.flights:
            check_playback(self.flights)
        for name, options in (*self.setting.controller_specs, *((str(path), {}) for path in self.weights)):
            self.load(name, options)

    @property
    def controllers(self) -> tuple[str, ...]:
        """Controller names that a page may choose."""
        # Each trained network is also offered for each training seed, as name:seed.
        trained = (f"{name}:{seed}" for name in bundled_names() for seed in bundled_seeds(name))
        return (*controller_names(), *trained, *map(str, self.weights), *self.controllers_with_units)

    @property
    def controllers_with_units(self) -> tuple[str, ...]:
        """Controllers of the initial setting that are scaled to robots, such as tanner:time_scale=2."""
        return tuple(name for name in self.setting.controllers if "=" in name and not name.endswith(WEIGHTS_SUFFIX))

    def load(self, name: str, options: dict[str, Any]) -> Controller:
        """Build a controller; raise InputError if it or a text option is not offered, or if it cannot be built.

        Args:
            name: one of `controllers`.
            options: options of a law that differ from their defaults.
        """
        if name not in self.controllers:
            raise_wrong_choice("controller", name, (*controller_names(), *map(str, self.weights)))
        self._check_text_options(name, options)
        try:
            return load(name, **options)
        except InputError:
            raise
        except Exception as error:  # a plugin may raise anything
            raise InputError(f"controller {name!r} cannot be made: {type(error).__name__}: {error}") from None

    def _check_text_options(self, name: str, options: dict[str, Any]) -> None:
        """Raise InputError for text values that are not offered: text from a page could be anything, such as a path.

        Offered are the option's default, its choices, words that its safe pattern matches, and the values that the
        initial setting has for this controller. Values other than text pass.
        """
        initial_options = [options for controller, options in self.setting.controller_specs if controller == name]
        for option in controller_options(name.partition(":")[0]):
            value = options.get(option.name)
            allowed = option.default, *(initial.get(option.name) for initial in initial_options)
            if not isinstance(value, str) or value in allowed or option.is_safe(value):
                continue
            if option.choices:
                more = f", or a word that matches {option.safe_pattern}" if option.safe_pattern else ""
                raise_wrong_choice(f"{option.name} of {name}", value[:40], option.choices, more)
            raise InputError(f"{option.name} of {name} can only be set when the server is started; got {value!r:.40}")

    def check_start(self) -> None:
        """Raise InputError if no initial conditions are found for the initial setting; the search may take long."""
        self.setting.draw()

    def compile_kernels(self) -> None:
        """Compile the kernels that pages need, or load them from the cache, by simulating a few steps of some settings.

        The initial setting comes first. Weight functions of laws are not included.
        """
        LiveSimulation(self.setting, self.load).advance(2)
        # Small and large flocks use different kernels; a distant obstacle adds the obstacle kernels.
        distant = DiskObstacle(x=1000.0, y=1000.0, radius=0.1)
        for agents in (100, MAX_SMALL_FLOCK + 1):
            setting = Setting(controller=self.setting.controller, compare="tanner", agents=agents, disks=(distant,))
            live_simulation = LiveSimulation(setting, self.load)
            live_simulation.edges = True
            live_simulation.advance(3)
            pack_frame(live_simulation.step, live_simulation.time, live_simulation.make_pictures())
            # Sliders and failures add the kernels of radios and bodies; some controllers require an ideal radio.
            for world in (WorldSetting(packet_loss=0.1, delay=1, max_acceleration=5.0), WorldSetting(body="unicycle")):
                with suppress(InputError):
                    live_simulation.change_world(world)
                    live_simulation.fail_agents("silent", 1)
                    live_simulation.advance(3)
                    pack_frame(live_simulation.step, live_simulation.time, live_simulation.make_pictures())
        # Laws sum over the whole flock or over the neighbours at t = 0. A law's weight functions are compiled when a
        # page chooses it, which takes a fraction of a second.
        flock = Setting().draw()
        sum_over_all_pairs(flock, (("velocity", "mean"),))
        observe(flock, paper_senses("sum", topology="fixed"))
        # Drawing initial conditions of each scenario compiles the kernels of its search.
        for name in scenario_names():
            with suppress(InputError):  # a scenario may require options
                Setting(scenario=name).draw()

    def to_dict(self) -> dict[str, Any]:
        """Return the welcome message: the names, scenarios and limits from which a page builds its controls."""
        return {
            "version": __version__,
            "setting": self.setting.model_dump(mode="json"),
            "scenarios": list_scenarios(excluded_fields=self.setting.shared_fields),
            "laws": list_laws((*controller_names(), *self.controllers_with_units)),
            "trained": {name: list(bundled_seeds(name)) for name in bundled_names()},
            "weights": [str(path) for path in self.weights],
            "max_disks": MAX_DISKS,
            "bodies": list_bodies(),
            "flocks": min((len(run.steps) for run in self.flights), default=0),
        }
