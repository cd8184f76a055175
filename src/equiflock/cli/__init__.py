"""Command-line interface: each command is a frozen dataclass whose fields are its options.

This module imports only what is fast, so that `main` handles Ctrl-C before the imports that take long.
"""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import os
import signal
import sys

from equiflock.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

COMMANDS = {
    "train": ("Train", "Train a network by imitation learning (DAgger); the defaults are the paper's recipe."),
    "tune": ("Tune", "Improve a trained network on the metrics of its flights, with CMA-ES."),
    "simulate": ("Simulate", "Simulate random flocks under a controller and print metrics."),
    "fly": ("Fly", "Fly a flock of quadrotors in metres and seconds, and print its margins."),
    "view": ("View", "Simulate flocks interactively in a browser, or replay saved flights."),
    "animate": (
        "Animate",
        "Render a film of saved flights, side by side, or of a new flight, or a page that plays them.",
    ),
    "evaluate": ("Evaluate", "Compare controllers, or one with the package's, by the paper's metrics and figures."),
    "judge": (
        "Judge",
        "Write the report card of controllers: how good they are, when they break, and whether differences are real.",
    ),
    "compare": ("Compare", "Compare the log of a real flight with a simulation of the same start."),
    "fit": ("Fit", "Fit a controller to a robot: choose its time scale, and measure the margins that it leaves."),
    "export": ("Export", "Export one agent's controller for a robot, as C, NumPy or ONNX."),
    "reproduce": ("Reproduce", "Run the paper's experiments and check its statements."),
    "sweep": ("Sweep", "Evaluate controllers over a grid of flock sizes, radii, hops, radios, bodies and failures."),
    "deploy": ("Deploy", "Run a swarm as one process per agent, and compare it with the simulator."),
    "ros2": ("Ros2", "Fly one robot of a flock as a ROS 2 node."),
    "mavlink": ("Mavlink", "Fly one vehicle of a flock through its MAVLink autopilot, from its onboard computer."),
    "demo": (
        "Demo",
        "Train a network, test it on unseen flocks beside other controllers, and write films and a report.",
    ),
    "bench": ("Bench", "Measure the speed of simulation and training on this machine."),
}
"""Class and summary of each command. The class is in the module of the command's name, which is imported only if the
command is chosen; the first line of its docstring is the summary."""

RESUMABLE_COMMANDS = ("demo", "evaluate", "judge", "reproduce", "sweep", "tune")
"""Commands that continue an interrupted run when they are called again."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command; `arguments` are those of the process by default.

    Exit codes: 0, 1 if a deployed swarm fails its checks or a fit does not meet its demands, 2 for bad input, 130 for
    Ctrl-C, 143 for SIGTERM.
    """
    # An ignored SIGINT, as in a shell's background job, stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit_on_sigint)
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        if arguments == ["--version"]:
            print(f"equiflock {__version__}")
        else:
            _run_command(arguments)
    finally:
        _remove_exit_on_sigint()


def _exit_on_sigint(signum: int, frame: FrameType | None) -> None:
    """Handle Ctrl-C during imports, where KeyboardInterrupt may be dropped or turned into another error: exit.

    Nothing is written yet.
    """
    os.write(2, b"equiflock: interrupted\n")
    os._exit(130)


def _remove_exit_on_sigint() -> None:
    """Let Ctrl-C raise KeyboardInterrupt, unless it is ignored or has another handler."""
    if signal.getsignal(signal.SIGINT) is _exit_on_sigint:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _run_command(arguments: list[str]) -> None:
    """Parse the arguments and run the command that they choose."""
    import shlex
    import warnings

    import tyro

    from equiflock._runtime.checks import InputError, TimeStepWarning, check_choice
    from equiflock.cli.interrupts import ensure_keyboard_interrupt, raise_system_exit
    from equiflock.cli.plugins import convert_plugin_errors
    from equiflock.cli.terminal import err

    # Commands print this warning themselves, once, as one line.
    warnings.simplefilter("ignore", TimeStepWarning)
    # Skip the garbage collection at exit, which takes 0.3 s with torch.
    atexit.register(gc.freeze)
    # SIGTERM raises an exception too, so that incomplete files are removed.
    signal.signal(signal.SIGTERM, raise_system_exit)
    try:
        chosen = arguments[0] if arguments else ""
        if chosen and not chosen.startswith("-"):
            check_choice("command", chosen, tuple(COMMANDS))
        commands: dict[str, Any] = {name: _make_summary_stub(summary) for name, (_, summary) in COMMANDS.items()}
        if chosen == "ros2":
            from equiflock.cli.ros2 import join_ros_arguments

            arguments = join_ros_arguments(arguments)
        if chosen in COMMANDS:
            commands[chosen] = _load_command(chosen, arguments[1:])
        command = tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="equiflock",
            description="Train, evaluate, visualise and deploy decentralized controllers for robot swarms.",
            args=arguments,
        )
        _remove_exit_on_sigint()
        # Errors of the user, a plugin or the system are one line; only bugs of this package give a traceback.
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
        _exit_with_error("not enough memory: reduce agents or flocks, or keep fewer frames")
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # another Ctrl-C must not interrupt this
        err.print("equiflock: interrupted")
        # The same command resumes the run, without --force, which would restart it.
        if arguments and arguments[0] in RESUMABLE_COMMANDS:
            command_line = shlex.join(["equiflock", *(word for word in arguments if word != "--force")])
            err.print(f"resume with: {command_line}", highlight=False, markup=False, soft_wrap=True)
        sys.stdout.flush()
        os._exit(130)  # immediately, even if a kernel is running in another thread


def _load_command(name: str, arguments: list[str]) -> Any:
    """Import the class of a command and add the options of the scenario and body that its arguments name."""
    from equiflock.cli.shared_options import add_dynamic_options

    return add_dynamic_options(getattr(importlib.import_module(f"equiflock.cli.{name}"), COMMANDS[name][0]), arguments)


def _make_summary_stub(summary: str) -> Callable[[], None]:
    """Return a placeholder for a command that is not chosen, whose docstring `--help` lists."""

    def command() -> None: ...

    command.__doc__ = summary
    return command


def _exit_with_error(message: str) -> None:
    """Print a message on stderr and exit with code 2."""
    from equiflock.cli.terminal import err

    err.print(f"equiflock: {message}", style="bold red", highlight=False, markup=False, soft_wrap=True)
    sys.exit(2)
