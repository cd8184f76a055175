"""Outcomes of flights: those of the package, and those that scenarios and users add."""

from __future__ import annotations

from typing import ClassVar

from equiflock._runtime.checks import InputError, shorten_repr

FIRST_USER_CODE, LAST_CODE = 16, 127
"""First and last code of outcomes that users add; 127 is the largest int8."""


class Outcome(int):
    """State or result of a flight: an int8 code with a name and a message, such as `Outcome.DISCONNECTED.message`.

    `Outcome(2)` returns the outcome of a code; `Outcome.add` registers a new one for a user-defined ending.
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
        """Return the outcome of a code."""
        # One object per code carries the name and the message.
        try:
            return cls._registry[int(code)]
        except KeyError:
            raise ValueError(f"there is no outcome with the code {code}") from None

    @classmethod
    def add(cls, name: str, message: str) -> Outcome:
        """Register an outcome, such as `Outcome.add("ARRIVED", "the flock reached its goal")`; return it if it exists.

        Raise InputError if the name exists with another message, or is not a word in capital letters.
        """
        if not (isinstance(name, str) and name.isidentifier() and name == name.upper()):
            raise InputError(
                f"the name of an outcome must be a word in capital letters, such as ARRIVED; got {shorten_repr(name)}"
            )
        if not (isinstance(message, str) and message):
            raise InputError(f"the message of an outcome must be a non-empty string; got {shorten_repr(message)}")
        # Loading a saved flight adds its outcomes, which may exist already.
        for outcome in cls._registry.values():
            if outcome.name == name:
                if outcome.message != message:
                    raise InputError(f"the outcome {name} already exists, with the message {outcome.message!r}")
                return outcome
        # The package keeps the codes below FIRST_USER_CODE, so that it can add outcomes without changing users' codes.
        code = max(FIRST_USER_CODE - 1, *cls._registry) + 1
        if code > LAST_CODE:
            raise InputError(f"at most {LAST_CODE - FIRST_USER_CODE + 1} outcomes can be added")
        return cls._make(code, name, message)

    @classmethod
    def _make(cls, code: int, name: str, message: str) -> Outcome:
        """Create and register the outcome of a code."""
        outcome = int.__new__(cls, code)
        outcome.name, outcome.message = name, message
        cls._registry[code] = outcome
        return outcome

    @classmethod
    def all(cls) -> tuple[Outcome, ...]:
        """Return all outcomes, in the order of registration."""
        return tuple(cls._registry.values())

    @property
    def is_user_defined(self) -> bool:
        """Whether a user added the outcome."""
        return self >= FIRST_USER_CODE

    def __repr__(self) -> str:
        return f"Outcome.{self.name}"

    def __str__(self) -> str:
        return self.message


Outcome.FLYING = Outcome._make(0, "FLYING", "still flying")
Outcome.TIME_UP = Outcome._make(1, "TIME_UP", "flew for the whole duration")
Outcome.DISCONNECTED = Outcome._make(2, "DISCONNECTED", "the communication graph lost its connectivity")
Outcome.COLLIDED = Outcome._make(3, "COLLIDED", "two agents came too close to each other")
Outcome.HIT_OBSTACLE = Outcome._make(4, "HIT_OBSTACLE", "an agent came too close to the obstacle")
Outcome.PASSED = Outcome._make(5, "PASSED", "the flock passed the obstacle")
Outcome.ENDED = Outcome._make(6, "ENDED", "the ending's condition was met")
