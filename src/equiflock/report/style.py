"""Colours and sizes, the same in every film and figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from equiflock.flock import Role
from equiflock.outcomes import Outcome

# Agents as the paper draws them; obstacle agents in purple.
ROLE_COLOURS = {Role.FOLLOWER: "#ee7f0e", Role.LEADER: "#1a9850", Role.OBSTACLE: "#7b3fa0"}
FAILED_COLOUR = "#8c8c8c"
ARROW_COLOUR = "#1f4e9c"
EDGE_COLOUR = "#a9cbe8"
TEXT_COLOUR = "#222222"
GRID_COLOUR = "#ececec"
FAINT_COLOUR = "#999999"

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
USER_CONTROLLER_COLOUR = "#d55e00"
CURVE_COLOURS = {"training loss": "#0072b2", "test loss": "#d55e00", "bound": "#0072b2", "empirical gap": "#d55e00"}
OUTCOME_COLOURS = {
    Outcome.PASSED: "#009e73",
    Outcome.TIME_UP: "#d9d9d9",
    Outcome.DISCONNECTED: "#e69f00",
    Outcome.COLLIDED: "#d55e00",
    Outcome.HIT_OBSTACLE: "#cc79a7",
}
"""Colours of the package's outcomes, from the same palette; others take from SUCCESSES or FAILURES what is free."""
SUCCESS_COLOURS, FAILURE_COLOURS = ("#009e73", "#56b4e9", "#0072b2"), ("#f0e442", "#999999", "#000000")
# Followers of several groups, group by group; the first is the usual follower.
GROUP_COLOURS = (ROLE_COLOURS[Role.FOLLOWER], "#0072b2", "#cc79a7", "#56b4e9", "#000000", "#f0e442")
LINE_STYLES = {"tanner": "--", "tanner-dynamic": "-.", "tanner-fixed": ":", "test loss": "--"}


def get_line_colour(name: str) -> str:
    """The colour of a controller, or of what else a curve shows; a strong one for a controller of one's own."""
    return (CONTROLLER_COLOURS | CURVE_COLOURS).get(name, USER_CONTROLLER_COLOUR)


def get_line_style(name: str) -> str:
    """Dashes for the classical laws, a full line for everything that learned."""
    return LINE_STYLES.get(name, "-")


def assign_outcome_colours(outcomes: Iterable[Outcome], success_outcomes: Sequence[Outcome]) -> dict[Outcome, str]:
    """A colour for each of these outcomes, successes first; those without one get green or blue for a success."""
    found: dict[Outcome, str] = {}
    order = [*OUTCOME_COLOURS, *Outcome.all()]
    for outcome in sorted(outcomes, key=lambda each: (each not in success_outcomes, order.index(each))):
        # An outcome of one's own gets the first free colour of its kind, and grey when all are used.
        spare = [
            colour
            for colour in (SUCCESS_COLOURS if outcome in success_outcomes else FAILURE_COLOURS)
            if colour not in found.values()
        ]
        found[outcome] = OUTCOME_COLOURS.get(outcome) or (spare[0] if spare else FAINT_COLOUR)
    return found


def get_group_colour(group: int) -> str:
    """The colour of the followers of a social group; groups beyond the last colour begin again with the first."""
    return GROUP_COLOURS[group % len(GROUP_COLOURS)]


def choose_text_colour(colour: str) -> str:
    """Black or white, whatever can be read on that colour."""
    # Perceived brightness by the weights of ITU-R BT.601.
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 130 else TEXT_COLOUR
