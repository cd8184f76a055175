"""Colours and sizes, the same in every film and figure."""

from __future__ import annotations

from equiflock.flock import Role
from equiflock.outcomes import Outcome

# Agents as the paper draws them; obstacle agents in purple.
ROLE_COLOURS = {Role.FOLLOWER: "#ee7f0e", Role.LEADER: "#1a9850", Role.OBSTACLE: "#7b3fa0"}
ARROW_COLOUR = "#1f4e9c"
EDGE_COLOUR = "#a9cbe8"
INK = "#222222"
GRID = "#ececec"
FAINT = "#999999"

# Okabe and Ito's palette, told apart by colour-blind readers and in grey.
CONTROLLER_COLOURS = {
    "tanner": "#000000",
    "tanner-dynamic": "#d55e00",
    "tanner-fixed": "#cc79a7",
    "tdagnn": "#e69f00",
    "tdagnn-tf": "#009e73",
    "tdagnn-tf-mean": "#56b4e9",
    "etdagnn": "#0072b2",
}
OWN_COLOUR = "#d55e00"
OTHER_COLOURS = {"training loss": "#0072b2", "test loss": "#d55e00", "bound": "#0072b2", "empirical gap": "#d55e00"}
# Good endings first; the same palette.
OUTCOME_COLOURS = {
    Outcome.PASSED: "#009e73",
    Outcome.TIME_UP: "#d9d9d9",
    Outcome.DISCONNECTED: "#e69f00",
    Outcome.COLLIDED: "#d55e00",
    Outcome.HIT_OBSTACLE: "#cc79a7",
}
LINE_STYLES = {"tanner": "--", "tanner-dynamic": "-.", "tanner-fixed": ":", "test loss": "--"}


def colour(name: str) -> str:
    """The colour of a controller, or of what else a curve shows; a strong one for a controller of one's own."""
    return (CONTROLLER_COLOURS | OTHER_COLOURS).get(name, OWN_COLOUR)


def line_style(name: str) -> str:
    """Dashes for the classical laws, a full line for everything that learned."""
    return LINE_STYLES.get(name, "-")
