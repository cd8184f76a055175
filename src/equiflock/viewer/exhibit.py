"""What a server has to show: controllers, a setting to begin with, saved flights, and a folder to save to."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from equiflock.controllers import controller_names, load
from equiflock.controllers.registry import WEIGHTS
from equiflock.controllers.trained import SEEDS, TRAINED
from equiflock.protocols import Controller
from equiflock.runtime.checks import InputError, wrong_choice
from equiflock.runtime.threads import SMALL_FLOCK
from equiflock.scenarios import scenario_names
from equiflock.simulation.trajectory import Trajectory
from equiflock.version import __version__
from equiflock.viewer.frames import pack_frame
from equiflock.viewer.offered import offered_scenarios
from equiflock.viewer.playback import check_playback
from equiflock.viewer.setting import MOST_DISKS, DiskObstacle, Setting
from equiflock.viewer.stage import Stage


@dataclass(frozen=True)
class Exhibit:
    """A page can choose among these, and nothing else: no name of a file ever comes from outside."""

    setting: Setting = field(default_factory=Setting)
    """What a page begins with, if its address does not say."""
    weights: tuple[Path, ...] = ()
    """Files of weights to choose from, beside the controllers that have names."""
    flights: Sequence[Trajectory] = ()
    """Saved flights to play, in place of live ones."""
    out: Path = Path("runs/view")
    """The folder that flights are saved to."""

    def __post_init__(self) -> None:
        if self.flights:
            check_playback(self.flights)
        for name in (*self.setting.controllers, *map(str, self.weights)):
            self.load(name)

    @property
    def controllers(self) -> tuple[str, ...]:
        """The names that a page may choose."""
        trained = (f"{name}:{seed}" for name in TRAINED for seed in SEEDS)
        return (*controller_names(), *trained, *map(str, self.weights), *self.with_options)

    @property
    def with_options(self) -> tuple[str, ...]:
        """Controllers with options, such as tanner:clamp=5, that the page begins with."""
        return tuple(name for name in self.setting.controllers if "=" in name and not name.endswith(WEIGHTS))

    def load(self, name: str) -> Controller:
        """The controller of that name, ready to fly."""
        if name not in self.controllers:
            wrong_choice("controller", name, (*controller_names(), *map(str, self.weights)))
        return load(name)

    def warm_up(self) -> None:
        """Compile or load every kernel that a page may need, so that its first flock flies at once.

        A clear error if there is no flock for the setting that pages begin with.
        """
        away = DiskObstacle(x=1000.0, y=1000.0, radius=0.1)
        for agents in (100, SMALL_FLOCK + 1):
            stage = Stage(Setting(agents=agents, disks=(away,)), [self.load(self.setting.controller), load("tanner")])
            stage.edges = True
            stage.advance(3)
            pack_frame(stage.step, stage.time, stage.pictures())
        for name in scenario_names():
            with suppress(InputError):  # one that needs options flies once a page has chosen them
                Setting(scenario=name).draw()
        Stage(self.setting, [self.load(name) for name in self.setting.controllers]).advance(2)

    def told(self) -> dict[str, Any]:
        """What a page must know before it can ask for anything."""
        return {
            "version": __version__,
            "setting": self.setting.model_dump(mode="json"),
            "scenarios": offered_scenarios(without=self.setting.shared),
            "laws": [*(name for name in controller_names() if name not in TRAINED), *self.with_options],
            "trained": list(TRAINED),
            "seeds": list(SEEDS),
            "weights": [str(path) for path in self.weights],
            "most_disks": MOST_DISKS,
            "flocks": min((len(run.steps) for run in self.flights), default=0),
        }
