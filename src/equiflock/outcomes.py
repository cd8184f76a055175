"""How a flight stands or ended: the outcomes of the package, and those that a scenario names itself."""

from __future__ import annotations

from typing import ClassVar

from equiflock.runtime.checks import InputError, shorten_repr

FIRST_USER_CODE, LAST_CODE = 16, 127
"""The first and the last code for outcomes that users add; 127 is the largest that an int8 holds."""


class Outcome(int):
    """A code with a name and a text, which is the message to a reader: `Outcome.DISCONNECTED.message`.

    `Outcome(2)` is the outcome of that code, and `Outcome.add` names a new one, for an ending of one's own.
    """

    name: str
    message: str
    _registry: ClassVar[dict[int, Outcome]] = {}

    FLYING: ClassVar[Outcome]
    TIME_UP: ClassVar[Outcome]
    DISCONNECTED: ClassVar[Outcome]
    COLLIDED: ClassVar[Outcome]
    HIT_OBSTACLE: ClassVar[Outcome]
    PASSED: ClassVar[Outcome]
    ENDED: ClassVar[Outcome]

    def __new__(cls, code: int) -> Outcome:
        """The outcome that is known by that code."""
        # There is one object per code, which carries the name and the text.
        try:
            return cls._registry[int(code)]
        except KeyError:
            raise ValueError(f"there is no outcome with the code {code}") from None

    @classmethod
    def add(cls, name: str, message: str) -> Outcome:
        """Name an outcome, such as `Outcome.add("ARRIVED", "the flock reached its goal")`; adding it again finds it.

        Args:
            name: in tables and figures; capital letters, digits and underscores.
            message: what a reader is told.
        """
        if not (isinstance(name, str) and name.isidentifier() and name == name.upper()):
            raise InputError(
                f"an outcome's name must be a word in capital letters, such as ARRIVED; got {shorten_repr(name)}"
            )
        if not (isinstance(message, str) and message):
            raise InputError(f"an outcome's message must be a text; got {shorten_repr(message)}")
        # A saved flight adds the outcomes that it names, which may be here already: same words, same outcome.
        for outcome in cls._registry.values():
            if outcome.name == name:
                if outcome.message != message:
                    raise InputError(f"the outcome {name} exists already, with the message {outcome.message!r}")
                return outcome
        # Codes of the package stay below FIRST_OWN, so that it may get more without changing those of users.
        code = max(FIRST_USER_CODE - 1, *cls._registry) + 1
        if code > LAST_CODE:
            raise InputError(f"there may be {LAST_CODE - FIRST_USER_CODE + 1} outcomes of your own at most")
        return cls._make(code, name, message)

    @classmethod
    def _make(cls, code: int, name: str, message: str) -> Outcome:
        """Make the one outcome of a code."""
        outcome = int.__new__(cls, code)
        outcome.name, outcome.message = name, message
        cls._registry[code] = outcome
        return outcome

    @classmethod
    def all(cls) -> tuple[Outcome, ...]:
        """Every outcome that there is, by their codes."""
        return tuple(cls._registry.values())

    @property
    def is_user_defined(self) -> bool:
        """Whether it was added to those of the package."""
        return self >= FIRST_USER_CODE

    def __repr__(self) -> str:
        return f"Outcome.{self.name}"

    def __str__(self) -> str:
        return self.message


Outcome.FLYING = Outcome._make(0, "FLYING", "still flying")
Outcome.TIME_UP = Outcome._make(1, "TIME_UP", "flew for the whole duration")
Outcome.DISCONNECTED = Outcome._make(2, "DISCONNECTED", "the communication graph lost its connectivity")
Outcome.COLLIDED = Outcome._make(3, "COLLIDED", "two agents came too near each other")
Outcome.HIT_OBSTACLE = Outcome._make(4, "HIT_OBSTACLE", "an agent came too near the obstacle")
Outcome.PASSED = Outcome._make(5, "PASSED", "the flock passed the obstacle")
Outcome.ENDED = Outcome._make(6, "ENDED", "the ending's condition was met")
