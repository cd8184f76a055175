"""Options of version 0.1: whoever still gives one is told the new one, in one line."""

from __future__ import annotations

from collections.abc import Sequence

from equiflock.runtime.checks import InputError

OPTIONS = {
    "sweep": {"--radius": "--comm-radius"},
    "train": {"--clamp": "--expert tanner:clamp=NUMBER"},
}
"""Command -> option -> what is given in its place."""


def check_renamed(arguments: Sequence[str]) -> None:
    """Raise a clear error if a command is given an option under the name that it had in version 0.1."""
    if not arguments:
        return
    command, *words = arguments
    for word in words:
        option = word.partition("=")[0]
        if option in OPTIONS.get(command, {}):
            raise InputError(
                f"{command} takes {OPTIONS[command][option]} in place of {option}, which it took in version 0.1"
            )
