"""Bodies are found by their names, with options, and bad ones are refused in one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import equiflock as ef


@dataclass(frozen=True)
class Sledge:
    friction: float = 0.1

    def advance(self, step: ef.BodyStep) -> None:
        step.velocities[:] *= 1.0 - self.friction


def test_the_bodies_of_the_package_have_names() -> None:
    assert {"double-integrator", "unicycle"} <= set(ef.body_names())
    assert ef.make_body("double-integrator") == ef.DoubleIntegrator()


def test_options_in_the_name_or_as_arguments() -> None:
    assert ef.make_body("unicycle:max_turn_rate=2", max_speed=1.5) == ef.Unicycle(max_turn_rate=2, max_speed=1.5)
    assert ef.make_body("double-integrator:max_acceleration=none:lag=0.1") == ef.DoubleIntegrator(lag=0.1)
    assert ef.make_body("unicycle:max_speed=2", max_speed=2) == ef.Unicycle(max_speed=2)


@pytest.mark.usefixtures("own_registry")
def test_custom_body_is_one_decorated_class() -> None:
    assert ef.body("sledge")(Sledge) is Sledge
    assert "sledge" in ef.body_names()
    body = ef.make_body("sledge:friction=0.5")
    run = ef.simulate(ef.random_disk(agents=10), ef.load("tanner"), body=body, duration=0.02)
    assert run.config["body"] == {"kind": "Sledge", "friction": 0.5}
    assert run.velocities[1] == pytest.approx(0.5 * run.velocities[0])
    with pytest.raises(ef.InputError, match="a body named 'sledge' is already registered"):
        ef.body("sledge")(Sledge)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("unicicle", {}, r"body must be one of .* got 'unicicle'; did you mean 'unicycle'\?"),
        (3, {}, "a name must be a string; got 3"),
        ("unicycle:wheels=3", {}, "body 'unicycle' has no option 'wheels'; it has max_turn_rate, max_acceleration, ma"),
        ("unicycle:max_speed=0", {}, "max_speed must be a finite number above 0; got 0"),
        ("unicycle:max_speed=1", {"max_speed": 2}, "option 'max_speed' is given twice, as 1 in .* and as 2"),
        ("double-integrator:lag=-1", {}, "lag must be a finite number of at least 0; got -1"),
        ("double-integrator:gust=windy", {}, "gust must be a finite number of at least 0; got 'windy'"),
        ("double-integrator:7:8", {}, "options must have the form key=value"),
    ],
)
def test_wrong_names_and_options_raise_one_line(name: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ef.InputError, match=f"^{text}") as caught:
        ef.make_body(name, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("own_registry")
def test_invalid_bodies_cannot_be_registered() -> None:
    class Melting:
        def advance(self) -> None: ...

    @dataclass(frozen=True)
    class Demanding:
        weight: float

        def advance(self) -> None: ...

    with pytest.raises(ef.InputError, match=r"the body 'snow' must be a frozen dataclass with advance\(\); got"):
        ef.body("snow")(Melting)
    with pytest.raises(ef.InputError, match="the body 'snow' must have a default for its field 'weight'"):
        ef.body("snow")(Demanding)
    with pytest.raises(ef.InputError, match="the name of a body must be a non-empty string without a colon; got 'a:b'"):
        ef.body("a:b")
