"""What a server offers its pages: controllers, a setting to begin with, saved flights, and a folder to save to."""

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
    """Everything that a page can choose from; the name of a file never comes from a page."""

    setting: Setting = field(default_factory=Setting)
    """The setting that a page begins with, unless its address holds another."""
    weights: tuple[Path, ...] = ()
    """Files of weights to choose from, beside the controllers that have names."""
    flights: Sequence[Trajectory] = ()
    """Saved flights to play; without any, pages fly live ones."""
    out: Path = Path("runs/view")
    """The folder that flights are saved to."""

    def __post_init__(self) -> None:
        # Mistakes of whoever starts the server are found now, not when the first page opens.
        if self.flights:
            check_playback(self.flights)
        for name, options in (*self.setting.controller_specs, *((str(path), {}) for path in self.weights)):
            self.load(name, options)

    @property
    def controllers(self) -> tuple[str, ...]:
        """The names that a page may choose."""
        # Each trained network is also offered by training seed, as name:seed.
        trained = (f"{name}:{seed}" for name in bundled_names() for seed in bundled_seeds(name))
        return (*controller_names(), *trained, *map(str, self.weights), *self.controllers_with_units)

    @property
    def controllers_with_units(self) -> tuple[str, ...]:
        """Controllers in units of robots, such as tanner:time_scale=2, that the page begins with."""
        return tuple(name for name in self.setting.controllers if "=" in name and not name.endswith(WEIGHTS_SUFFIX))

    def load(self, name: str, options: dict[str, Any]) -> Controller:
        """The controller of that name with these options, ready to fly."""
        if name not in self.controllers:
            raise_wrong_choice("controller", name, (*controller_names(), *map(str, self.weights)))
        self._check_text_options(name, options)
        try:
            return load(name, **options)
        except InputError:
            raise
        except Exception as error:  # whatever the class of a plugin may raise
            raise InputError(f"controller {name!r} cannot be made: {type(error).__name__}: {error}") from None

    def _check_text_options(self, name: str, options: dict[str, Any]) -> None:
        """Refuse words of a page's own, which might be anything, such as a file's name, but those that are offered."""
        begun = [own for controller, own in self.setting.controller_specs if controller == name]
        for option in controller_options(name.partition(":")[0]):
            word = options.get(option.name)
            known = option.default, *(own.get(option.name) for own in begun)
            if not isinstance(word, str) or word in known or option.is_safe(word):
                continue
            if option.choices:
                more = f", or a word such as {option.safe_pattern}" if option.safe_pattern else ""
                raise_wrong_choice(f"{option.name} of {name}", word[:40], option.choices, more)
            raise InputError(f"{option.name} of {name} is chosen when the server is started; got {word!r:.40}")

    def check_start(self) -> None:
        """Raise a clear error if there is no flock for the setting that pages begin with."""
        self.setting.draw()

    def compile_kernels(self) -> None:
        """Compile or load every kernel that a page may need, beginning with those of its first flock."""
        LiveSimulation(self.setting, self.load).advance(2)
        # A small flock and a large one use different kernels; a far obstacle brings in those of obstacles.
        away = DiskObstacle(x=1000.0, y=1000.0, radius=0.1)
        for agents in (100, MAX_SMALL_FLOCK + 1):
            setting = Setting(controller=self.setting.controller, compare="tanner", agents=agents, disks=(away,))
            live_simulation = LiveSimulation(setting, self.load)
            live_simulation.edges = True
            live_simulation.advance(3)
            pack_frame(live_simulation.step, live_simulation.time, live_simulation.make_pictures())
            # Sliders and failures bring in those of radios and bodies, but for controllers that need perfect ones.
            for world in (WorldSetting(packet_loss=0.1, delay=1, max_acceleration=5.0), WorldSetting(body="unicycle")):
                with suppress(InputError):
                    live_simulation.change_world(world)
                    live_simulation.fail_agents("silent", 1)
                    live_simulation.advance(3)
                    pack_frame(live_simulation.step, live_simulation.time, live_simulation.make_pictures())
        # Laws sum over the whole flock, or over those heard at t = 0. The weights of a law's own features are compiled
        # when it is chosen, which takes a fraction of a second.
        flock = Setting().draw()
        sum_over_all_pairs(flock, (("velocity", "mean"),))
        observe(flock, paper_senses("sum", topology="fixed"))
        # Drawing a start of each scenario compiles the kernels of its search.
        for name in scenario_names():
            with suppress(InputError):  # one that needs options flies once a page has chosen them
                Setting(scenario=name).draw()

    def to_dict(self) -> dict[str, Any]:
        """What a page is sent first: all names, scenarios and limits that it needs to build its controls."""
        return {
            "version": __version__,
            "setting": self.setting.model_dump(mode="json"),
            "scenarios": list_scenarios(excluded_fields=self.setting.shared_fields),
            "laws": list_laws((*controller_names(), *self.controllers_with_units)),
            "trained": {name: list(bundled_seeds(name)) for name in bundled_names()},
            "weights": [str(path) for path in self.weights],
            "most_disks": MAX_DISKS,
            "bodies": list_bodies(),
            "flocks": min((len(run.steps) for run in self.flights), default=0),
        }
