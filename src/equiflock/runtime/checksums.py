"""Files that carry a checksum: whatever the program writes to read again is believed only as it was written."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from equiflock.runtime.checks import InputError
from equiflock.runtime.files import atomic_write

KEY = "checksum"
LAST_LINE = "# checksum "
"""Begins the last line of a text; readers of CSV take it for a comment."""


PIECE_BYTES = 64 * 2**20


class DamagedError(InputError):
    """A file is not what was written."""


def checksum(*parts: bytes | memoryview) -> str:
    """Of these bytes, one after the other."""
    total = 0
    for part in (memoryview(part).cast("B") for part in parts if len(part)):
        # In pieces, between which Ctrl-C is heard.
        for first in range(0, len(part), PIECE_BYTES):
            total = zlib.crc32(part[first : first + PIECE_BYTES], total)
    return f"{total:08x}"


def file_checksum(path: str | os.PathLike[str]) -> str:
    """Of a file's content."""
    return checksum(Path(path).read_bytes())


def write_text(text: str, path: Path) -> None:
    """Write lines of text and, as the last one, their checksum."""
    content = text.encode()
    with atomic_write(path) as scratch:
        scratch.write_bytes(content + f"{LAST_LINE}{checksum(content)}\n".encode())


def read_text(path: Path) -> str:
    """The lines that `write_text` wrote, without the last.

    Raises:
        DamagedError: if they are not those.
    """
    content, found, last = path.read_bytes().rpartition(LAST_LINE.encode())
    if not found or last != f"{checksum(content)}\n".encode():
        raise DamagedError(f"{path} is damaged: its checksum does not fit")
    return content.decode()


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """Write a JSON object with its checksum as one more entry."""
    with atomic_write(path) as scratch:
        scratch.write_text(json_text(content), encoding="utf-8")


def json_text(content: Mapping[str, Any]) -> str:
    """The text of a JSON object with its checksum as one more entry."""
    return json.dumps({**content, KEY: _checksum_of_json(content)}, indent=2) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """The object that `write_json` wrote, without the checksum.

    Raises:
        DamagedError: if it is not that.
    """
    try:
        content = json.loads(path.read_bytes())
        has_one = isinstance(content, dict) and KEY in content
        fits = has_one and content.pop(KEY) == _checksum_of_json(content)
    except (ValueError, RecursionError):
        has_one, fits = True, False
    if not has_one:
        raise DamagedError(f"{path} is damaged, or of version 0.1: it has no checksum")
    if not fits:
        raise DamagedError(f"{path} is damaged: its checksum does not fit")
    return dict(content)


def _checksum_of_json(content: Mapping[str, Any]) -> str:
    return checksum(json.dumps(content, sort_keys=True).encode())
