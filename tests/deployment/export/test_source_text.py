"""Weights of features as source: the same numbers in Python and in C, or a clear error."""

from __future__ import annotations

import ctypes
import math
import subprocess
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import equiflock as ef
from equiflock.deployment.export.source_text import Formula, build_formulas, format_c_float
from equiflock.features import Feature, find_feature

GAIN = 1.5
SQUARES = np.geomspace(1e-4, 4.0, 25)


def _plain(square: float) -> float:
    return GAIN * exp(-square) + np.sqrt(square)


def _branches(square: float, inner: float, double: float = 0.7) -> float:
    """Statements of all kinds; an argument that is a word of C."""
    far = square > 1.0 and not inner < 0.0
    total: float = 0.0
    if 0.1 < square <= 1.0 or far:
        total += double * square**2
    elif abs(inner) > 0.05:
        total = -(square**0.5)
    else:
        pass
    return max(total, 0.25, min(inner, 0.3)) if square < 2.0 else math.log(1.0 + square, 3.0) * math.pi


def _helped(square: float) -> float:
    return _plain(square)


def _looping(square: float) -> float:
    while square > 1.0:
        square = square / 2.0
    return square


def _either(square: float) -> float:
    return max(square - 1.0, 0.0) or 0.5


def as_feature(weight: Any, *options: float) -> Feature:
    return Feature("own", "position", "all", weight, options)


def in_python(formula: Formula, *known: float) -> float:
    space: dict[str, Any] = {"math": math}
    exec(formula.to_python("weigh"), space)
    return float(space["weigh"](*known))


def in_c(formula: Formula, folder: Path) -> Any:
    source = "#include <math.h>\n" + formula.to_c("weigh").replace("static inline ", "", 1)
    library = folder / f"{len([*folder.iterdir()])}.so"
    command = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-shared", "-fPIC", "-x", "c", "-"]
    subprocess.run([*command, "-o", library, "-lm"], input=source, text=True, check=True)
    call = ctypes.CDLL(str(library)).weigh
    call.argtypes, call.restype = [ctypes.c_float] * len(formula.arguments), ctypes.c_float
    return call


@pytest.mark.parametrize("weight", [as_feature(_plain), as_feature(_branches, 0.7)])
def test_arithmetic_branches_and_functions_are_the_same_in_both(weight: Feature, tmp_path: Path) -> None:
    formula = Formula(weight)
    call = in_c(formula, tmp_path)
    for square in SQUARES:
        for inner in (-0.3, 0.01, 0.2):
            known = float(square), *([inner] if weight.uses_velocity else []), *weight.options
            wanted = weight.weight(*known)
            assert in_python(formula, *known) == pytest.approx(wanted, rel=1e-12)
            assert call(*known) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("name", ef.feature_names())
def test_every_feature_of_the_package_has_a_form_in_c(name: str, tmp_path: Path) -> None:
    feature = find_feature(name)
    if not feature.weight.__module__.startswith("equiflock."):
        pytest.skip("registered by another test, not a feature of the package")
    call = in_c(Formula(feature), tmp_path)
    for square in SQUARES[5:]:
        known = float(square), *([0.1] if feature.uses_velocity else []), *feature.options
        wanted = feature.weight(*known)
        assert call(*known) == pytest.approx(wanted, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    ("weight", "reason"),
    [
        (_helped, "_plain"),
        (_either, " or "),
        (_looping, "while"),
        (lambda square: square, "def"),
        (eval("lambda square: 1.0"), "source|def"),
    ],
)
def test_unsupported_weights_are_an_error_with_feature_and_reason(weight: Any, reason: str) -> None:
    with pytest.raises(ef.InputError, match=f"'own' cannot be exported: .*({reason})"):
        Formula(as_feature(weight)).to_c("weigh")


def test_features_with_the_same_identifier_get_different_functions() -> None:
    one, other = (Feature(name, "position", "all", weight) for name, weight in (("a-b", _plain), ("a_b", _looping)))
    first, second = (word for word, _ in build_formulas([one, other, one]).values())
    assert first != second


@pytest.mark.parametrize("number", [1.0, -0.1, 1e-30, 3.4e38, 16777217.0, 123456789.0, 1 / 3])
def test_numbers_are_exact_in_float32(number: float) -> None:
    assert np.float32(format_c_float(number).removesuffix("f")) == np.float32(number)
    assert set(format_c_float(number)) & set(".e")


@pytest.mark.parametrize("number", [1e300, -3.5e38, 10**400])
def test_numbers_beyond_float32_are_refused(number: float) -> None:
    with pytest.raises(ef.InputError, match=r"at most 3.4e\+38, the largest float in C"):
        format_c_float(number)
    assert format_c_float(-math.inf) == "(-INFINITY)"


@pytest.mark.parametrize("number", [math.nan, np.float32("nan")])
def test_nan_is_refused(number: float) -> None:
    with pytest.raises(ef.InputError, match="constants of an exported controller must be numbers, got nan"):
        format_c_float(number)
