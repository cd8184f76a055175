"""Options of version 0.1 tell the new ones: one line, exit code 2."""

from __future__ import annotations

import pytest

from equiflock import cli
from equiflock.cli.renamed import OPTIONS


@pytest.mark.parametrize(("command", "old"), [(command, old) for command in OPTIONS for old in OPTIONS[command]])
@pytest.mark.parametrize("value", [" 50", "=50"])
def test_an_old_option_tells_the_new_one(
    command: str, old: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, *f"{old}{value}".split()])
    assert ended.value.code == 2
    new = OPTIONS[command][old]
    assert capsys.readouterr().err == (
        f"equiflock: {command} takes {new} in place of {old}, which it took in version 0.1\n"
    )
