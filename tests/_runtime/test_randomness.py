"""Streams are named: the same name gives the same numbers, another name others."""

import pytest

from equiflock._runtime.checks import InputError
from equiflock._runtime.randomness import make_rng


def test_streams_depend_on_seed_and_every_name() -> None:
    draws = [make_rng(*key).random() for key in ((0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "a", 1))]
    assert len(set(draws)) == 4
    assert make_rng(0, "a", 1).random() == draws[0]


def test_a_seed_is_a_whole_number() -> None:
    with pytest.raises(InputError, match="seed must be a whole number of at least 0; got -1"):
        make_rng(-1)
