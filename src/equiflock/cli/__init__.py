"""The command line: each command is a frozen dataclass whose fields are its options."""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import os
import shlex
import signal
import sys
from collections.abc import Callable
from typing import Any

import tyro

from equiflock.cli.console import err
from equiflock.cli.ctrl_c import ensure_keyboard_interrupt
from equiflock.cli.plugins import convert_plugin_errors
from equiflock.runtime.checks import InputError
from equiflock.version import __version__

COMMANDS = {
    "train": ("Train", "Train a network by DAgger; the defaults are the paper's recipe."),
    "tune": ("Tune", "Improve a trained network directly on the measures of its flights, by CMA-ES."),
    "simulate": ("Simulate", "Fly random flocks under a controller and print metrics."),
    "view": ("View", "Fly flocks live in a browser, or play saved flights."),
    "animate": ("Animate", "Draw a film of saved flights, side by side, or of a new one."),
    "evaluate": ("Evaluate", "Compare a controller with those of the package, in the paper's metrics and figures."),
    "export": ("Export", "Write one agent's controller for a robot: C, NumPy or ONNX."),
    "reproduce": ("Reproduce", "Run the paper's experiments and judge its statements."),
    "sweep": ("Sweep", "Evaluate controllers over a grid of flock sizes, radii, hops, radios, bodies and failures."),
    "atlas": ("Atlas", "Measure what the classical laws promise, and film each of them."),
    "deploy": ("Deploy", "Fly a swarm of processes, one per agent, beside the simulator."),
    "demo": ("Demo", "Train a network, fly it on unseen flocks beside others, and write films and a report."),
    "bench": ("Bench", "Measure how fast this machine flies flocks."),
}
"""The class of each command, in the module of its name, which is imported when it is chosen, and its summary."""

RESUMABLE_COMMANDS = ("atlas", "demo", "evaluate", "reproduce", "sweep", "tune")
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
        chosen = arguments[0] if arguments else ""
        command = tyro.extras.subcommand_cli_from_dict(
            {
                name: _load_command(name, arguments[1:]) if name == chosen else _make_summary_stub(name)
                for name in COMMANDS
            },
            prog="equiflock",
            description="Swarms that fly together with no central computer: train, simulate, watch and measure them.",
            args=arguments,
        )
        # Mistakes of the user, of a plugin and of the system are one line each; only our own are tracebacks.
        with ensure_keyboard_interrupt(), convert_plugin_errors(getattr(command, "plugin", None)):
            command.run()
    except InputError as error:
        _exit_with_error(str(error))
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        _exit_with_error(f"{error.filename}: {reason}" if error.filename else reason)
    except ModuleNotFoundError as error:
        if error.name not in ("tensorboard", "torch"):
            raise
        _exit_with_error(f"{chosen} needs {error.name}: pip install 'equiflock[train]'")
    except MemoryError:
        _exit_with_error("not enough memory: fly fewer agents or flocks, or keep fewer frames")
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # another Ctrl-C must not interrupt this
        err.print("equiflock: interrupted")
        # The same command continues, except that --force would begin again.
        if arguments and arguments[0] in RESUMABLE_COMMANDS:
            again = shlex.join(["equiflock", *(word for word in arguments if word != "--force")])
            err.print(f"go on with: {again}", highlight=False, markup=False, soft_wrap=True)
        sys.stdout.flush()
        os._exit(130)  # at once, even if a kernel is at work in another thread


def _load_command(name: str, arguments: list[str]) -> Any:
    """Import a command, with the options of the scenario and body that its arguments name."""
    from equiflock.cli.dynamic_options import add_dynamic_options

    return add_dynamic_options(getattr(importlib.import_module(f"equiflock.cli.{name}"), COMMANDS[name][0]), arguments)


def _make_summary_stub(name: str) -> Callable[[], None]:
    """Return a stand-in for a command that is not chosen, with the text that help lists."""

    def command() -> None:
        raise AssertionError(f"{name} was not chosen")

    command.__doc__ = COMMANDS[name][1]
    return command


def _exit_with_error(message: str) -> None:
    err.print(f"equiflock: {message}", style="bold red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(2)
