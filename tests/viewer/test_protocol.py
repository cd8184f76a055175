"""Actions of the page fit the methods that they call."""

from __future__ import annotations

import inspect
import json
import re
from typing import get_args

import pytest

from equiflock._runtime.checks import InputError
from equiflock.viewer.live_simulation import LiveSimulation
from equiflock.viewer.page_files import PAGE_DIR
from equiflock.viewer.protocol import Action, Request, parse_request

COMMANDS = {get_args(kind.model_fields["command"].annotation)[0]: kind for kind in get_args(Request)}


@pytest.mark.parametrize("command", [name for name, kind in COMMANDS.items() if issubclass(kind, Action)])
def test_an_action_has_the_arguments_of_its_method_as_fields(command: str) -> None:
    method = inspect.signature(getattr(LiveSimulation, command))
    assert {*method.parameters} - {"self"} == {*COMMANDS[command].model_fields} - {"command"}


def test_every_request_is_sent_by_the_page() -> None:
    scripts = "\n".join(path.read_text() for path in PAGE_DIR.glob("*.js"))
    assert {name for name in COMMANDS if not re.search(rf'"{name}"', scripts)} == set()


@pytest.mark.parametrize(
    "request_fields",
    [
        {"command": "nosuch"},
        {"command": "x" * 9000},
        {"command": "start", "setting": {"x" * 9000: 1}},
        {"command": "start", "setting": {"options": {"nosuch": 1}}},
        {"command": "start", "setting": {"scenario": "nosuch"}},
        {"command": "start", "setting": {"controller_options": {"x" * 3000: 1}}},
    ],
    ids=lambda fields: json.dumps(fields)[:50],
)
def test_errors_fit_into_a_notice_of_the_page(request_fields: dict[str, object]) -> None:
    with pytest.raises(InputError) as error:
        parse_request(json.dumps(request_fields))
    assert len(str(error.value)) < 220
