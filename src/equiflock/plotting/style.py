"""Colours and line styles of all figures; palettes.py has those of films."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from equiflock.outcomes import Outcome

TEXT_COLOUR = "#222222"
GRID_COLOUR = "#ececec"
FAINT_COLOUR = "#999999"

# Okabe and Ito's palette, which colour-blind readers can distinguish, also in grey.
CONTROLLER_COLOURS = {
    "tanner": "#000000",
    "tanner-dynamic": "#d55e00",
    "tanner-fixed": "#cc79a7",
    "tdagnn": "#e69f00",
    "tdagnn-tf": "#009e73",
    "tdagnn-tf-mean": "#56b4e9",
    "etdagnn": "#0072b2",
    "starling": "#cc79a7",
}
OTHER_LINE_COLOURS = ("#d55e00", *CONTROLLER_COLOURS.values(), "#7b3fa0", "#8c564b", "#999999", "#bcbd22")
"""Colours of other controllers, in order of preference."""
CURVE_COLOURS = {"training loss": "#0072b2", "test loss": "#d55e00", "bound": "#0072b2", "empirical gap": "#d55e00"}
OUTCOME_COLOURS = {
    Outcome.PASSED: "#009e73",
    Outcome.TIME_UP: "#d9d9d9",
    Outcome.DISCONNECTED: "#e69f00",
    Outcome.COLLIDED: "#d55e00",
    Outcome.HIT_OBSTACLE: "#cc79a7",
}
"""Colours of the package's outcomes; registered ones take free colours of SUCCESS_COLOURS or FAILURE_COLOURS."""
SUCCESS_COLOURS, FAILURE_COLOURS = ("#009e73", "#56b4e9", "#0072b2"), ("#f0e442", "#999999", "#000000")
LINE_STYLES = {"tanner": "--", "tanner-dynamic": "-.", "tanner-fixed": ":", "test loss": "--"}


def assign_line_colours(names: Iterable[str]) -> dict[str, str]:
    """Return a colour for each curve by its name.

    Controllers of the package, losses and bounds have fixed colours. Others, and a second curve of the same fixed
    colour, take the first free one; grey if there is none.
    """
    names, fixed = list(names), CONTROLLER_COLOURS | CURVE_COLOURS
    colours: dict[str, str] = {}
    for name in sorted(names, key=lambda name: name not in fixed):
        candidates = [fixed.get(name, OTHER_LINE_COLOURS[0]), *OTHER_LINE_COLOURS]
        colours[name] = next((each for each in candidates if each not in colours.values()), FAINT_COLOUR)
    return {name: colours[name] for name in names}


def get_line_style(name: str) -> str:
    """Return the line style of a curve by its name: dashed for Tanner's laws and the test loss, else solid."""
    return LINE_STYLES.get(name, "-")


def assign_outcome_colours(outcomes: Iterable[Outcome], success_outcomes: Sequence[Outcome]) -> dict[Outcome, str]:
    """Return a colour for each outcome, successes first.

    Outcomes of the package have fixed colours. Registered ones get the first free colour of their kind, or grey.
    """
    colours: dict[Outcome, str] = {}
    order = [*OUTCOME_COLOURS, *Outcome.all()]
    for outcome in sorted(outcomes, key=lambda each: (each not in success_outcomes, order.index(each))):
        candidates = SUCCESS_COLOURS if outcome in success_outcomes else FAILURE_COLOURS
        spare = [colour for colour in candidates if colour not in colours.values()]
        colours[outcome] = OUTCOME_COLOURS.get(outcome) or (spare[0] if spare else FAINT_COLOUR)
    return colours


def choose_text_colour(colour: str) -> str:
    """Return the text colour, dark or white, that is legible on a background colour, #rrggbb."""
    # Luma with the weights of ITU-R BT.601.
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 130 else TEXT_COLOUR
