"""The command line: each command is a frozen dataclass whose fields are its options."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import shlex
import signal
import sys
from collections.abc import Callable
from typing import Any

import tyro

from equiflock.cli.animate import Animate
from equiflock.cli.atlas import Atlas
from equiflock.cli.bench import Bench
from equiflock.cli.ctrl_c import heard_everywhere
from equiflock.cli.demo import Demo
from equiflock.cli.deploy import Deploy
from equiflock.cli.evaluate import Evaluate
from equiflock.cli.export import Export
from equiflock.cli.fitting import fitted
from equiflock.cli.plugins import in_one_line
from equiflock.cli.reproduce import Reproduce
from equiflock.cli.simulate import Simulate
from equiflock.cli.sweep import Sweep
from equiflock.cli.terminal import err
from equiflock.cli.train import Train
from equiflock.cli.tune import Tune
from equiflock.cli.view import View
from equiflock.runtime.checks import InputError
from equiflock.version import __version__

COMMANDS: dict[str, Callable[..., Any]] = {
    "train": Train,
    "tune": Tune,
    "simulate": Simulate,
    "view": View,
    "animate": Animate,
    "evaluate": Evaluate,
    "export": Export,
    "reproduce": Reproduce,
    "sweep": Sweep,
    "atlas": Atlas,
    "deploy": Deploy,
    "demo": Demo,
    "bench": Bench,
}

GO_ON = ("atlas", "demo", "evaluate", "reproduce", "sweep", "tune")
"""The commands that continue an interrupted run when they are called again."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command: exit code 0, 1 if a deployed swarm fails its checks, 2 for bad input, 130 for Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(f"equiflock {__version__}")
        return
    # On its way out Python looks for garbage among all objects: a third of a second with torch, for nothing.
    atexit.register(gc.freeze)
    # SIGTERM becomes an exception, too, so that half-written files are removed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        # The chosen command gets the options of its scenario and body, which depend on the arguments, before parsing.
        chosen = arguments[0] if arguments else ""
        command = tyro.extras.subcommand_cli_from_dict(
            {name: fitted(each, arguments[1:]) if name == chosen else each for name, each in COMMANDS.items()},
            prog="equiflock",
            description="Swarms that fly together with no central computer: train, simulate, watch and measure them.",
            args=arguments,
        )
        # Mistakes of the user, of a plugin and of the system are one line each; only our own are tracebacks.
        with heard_everywhere(), in_one_line(getattr(command, "plugin", None)):
            command.run()
    except InputError as error:
        _fail(str(error))
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        _fail(f"{error.filename}: {reason}" if error.filename else reason)
    except ModuleNotFoundError as error:
        if error.name not in ("tensorboard", "torch"):
            raise
        _fail(f"{chosen} needs {error.name}: pip install 'equiflock[train]'")
    except MemoryError:
        _fail("not enough memory: fly fewer agents or flocks, or keep fewer frames")
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # another Ctrl-C must not interrupt this
        err.print("equiflock: interrupted")
        # The same command continues, except that --force would begin again.
        if arguments and arguments[0] in GO_ON:
            again = shlex.join(["equiflock", *(word for word in arguments if word != "--force")])
            err.print(f"go on with: {again}", highlight=False, markup=False, soft_wrap=True)
        sys.stdout.flush()
        os._exit(130)  # at once, even if a kernel is at work in another thread


def _fail(message: str) -> None:
    err.print(f"equiflock: {message}", style="bold red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(2)
