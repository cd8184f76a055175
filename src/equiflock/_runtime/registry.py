"""Registries: parts of the package and of its users, such as bodies and features, found by their names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Generic, NoReturn, TypeVar

from equiflock._runtime.checks import (
    MAX_LISTED_NAMES,
    InputError,
    format_names,
    format_suggestion,
    raise_wrong_choice,
    shorten_repr,
)
from equiflock._runtime.specs import Spec, format_spec

Part = TypeVar("Part")


class Registry(Generic[Part]):
    """The parts of one kind.

    Attributes:
        kind: the noun in errors, such as "body".
        parts: the registered parts by name.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.parts: dict[str, Part] = {}

    def names(self) -> tuple[str, ...]:
        """Return the names of all parts, in the order of registration."""
        return tuple(self.parts)

    def check_new_name(self, name: object, taken: Collection[str] = ()) -> None:
        """Raise InputError if a part cannot have this name; `taken` are names that others than the parts have."""
        if not isinstance(name, str) or not name or ":" in name:
            raise InputError(
                f"the name of a {self.kind} must be a non-empty string without a colon; got {shorten_repr(name)}"
            )
        if name in self.parts or name in taken:
            raise InputError(f"a {self.kind} named {name!r} is already registered")

    @property
    def plugin_hint(self) -> str:
        """Continuation of a list of names in an error."""
        return f", or a {self.kind} that you registered first (on the command line with --plugin)"

    def find(self, name: str, label: str = "") -> Part:
        """Return the part of that name without options; raise InputError, which calls it `label`, if there is none."""
        if name not in self.names():
            self.raise_unknown(name, self.names(), label)
        return self.parts[name]

    def raise_unknown(self, name: object, names: tuple[str, ...], label: str = "") -> NoReturn:
        """Raise InputError for a name that is not among `names`."""
        listing = f" (equiflock.{self.kind}_names() lists all)" if len(names) > MAX_LISTED_NAMES else ""
        raise_wrong_choice(label or self.kind, name, names, listing + self.plugin_hint)

    def check_class(self, name: str, definition: Any, method: str) -> None:
        """Raise InputError if it is not a frozen dataclass with this method and a default for every field."""
        frozen = is_dataclass(definition) and definition.__dataclass_params__.frozen  # type: ignore[union-attr]
        if not (isinstance(definition, type) and frozen and callable(getattr(definition, method, None))):
            raise InputError(
                f"the {self.kind} {name!r} must be a frozen dataclass with {method}(); got {shorten_repr(definition)}"
            )
        for field in fields(definition):
            if field.init and field.default is MISSING and field.default_factory is MISSING:
                raise InputError(f"the {self.kind} {name!r} must have a default for its field {field.name!r}")

    def merge_options(self, spec: Spec, options: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
        """Return the options of a spec and further ones; raise InputError if one is unknown or has two values."""
        for key in spec.options.keys() & options.keys():
            if spec.options[key] != options[key]:
                given = f"{spec.options[key]!r} in {format_spec(spec.name, **spec.options)!r} and as {options[key]!r}"
                raise InputError(f"option {key!r} is given twice, as {given}")
        merged = {**options, **spec.options}
        if unknown := sorted(merged.keys() - set(known)):
            raise InputError(
                f"{self.kind} {spec.name!r} has no option {shorten_repr(unknown[0])}; it has "
                f"{format_names(known) or 'none'}"
                f"{format_suggestion(unknown[0], known)}"
            )
        return merged

    def construct(self, name: str, make: Callable[..., Any], options: Mapping[str, Any]) -> Any:
        """Return make(**options); raise InputError with any error of a user's class in one line."""
        try:
            return make(**options)
        except InputError:
            raise
        except Exception as error:  # a user's class may raise anything
            raise InputError(f"{self.kind} {name!r} cannot be made: {type(error).__name__}: {error}") from None
