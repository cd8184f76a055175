"""Files that carry a checksum, so that a damaged file is noticed when the program reads it again."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from equiflock.runtime.checks import InputError
from equiflock.runtime.files import atomic_write

CHECKSUM_KEY = "checksum"
CHECKSUM_PREFIX = "# checksum "
"""Begins the last line of a text; readers of CSV take it for a comment."""
CHUNK_BYTES = 64 * 2**20
"""How much is added to a checksum at once."""


class DamagedError(InputError):
    """A file's content does not match its checksum."""


class VersionMismatchError(InputError):
    """A file or folder is of the right kind, but in the format of another version."""


def compute_checksum(*parts: bytes | memoryview) -> str:
    """CRC-32 of these bytes, one part after the other, as eight hexadecimal digits."""
    total = 0
    for part in (memoryview(part).cast("B") for part in parts if len(part)):
        # In pieces, so that Ctrl-C takes effect between two of them.
        for first in range(0, len(part), CHUNK_BYTES):
            total = zlib.crc32(part[first : first + CHUNK_BYTES], total)
    return f"{total:08x}"


def compute_file_checksum(path: str | os.PathLike[str]) -> str:
    """The checksum of a file's content."""
    return compute_checksum(Path(path).read_bytes())


def write_text(text: str, path: Path) -> None:
    """Write lines of text and, as the last one, their checksum."""
    content = text.encode()
    with atomic_write(path) as scratch:
        scratch.write_bytes(content + f"{CHECKSUM_PREFIX}{compute_checksum(content)}\n".encode())


def read_text(path: Path) -> str:
    """The lines that `write_text` wrote, without that of the checksum.

    Raises:
        DamagedError: if they do not match it.
    """
    # The last line of that kind is the checksum, even if a line of the text looks like one.
    content, found, last = path.read_bytes().rpartition(CHECKSUM_PREFIX.encode())
    if not found or last != f"{compute_checksum(content)}\n".encode():
        raise DamagedError(f"{path} is damaged: its checksum does not fit")
    return content.decode()


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """Write a JSON object with its checksum as one more entry."""
    with atomic_write(path) as scratch:
        scratch.write_text(format_json(content), encoding="utf-8")


def format_json(content: Mapping[str, Any]) -> str:
    """The text of a JSON object with its checksum as one more entry."""
    return json.dumps({**content, CHECKSUM_KEY: _compute_json_checksum(content)}, indent=2) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """The object that `write_json` wrote, without its checksum.

    Raises:
        DamagedError: if it does not match it.
    """
    try:
        content = json.loads(path.read_bytes())
        has_one = isinstance(content, dict) and CHECKSUM_KEY in content
        fits = has_one and content.pop(CHECKSUM_KEY) == _compute_json_checksum(content)
    except (ValueError, RecursionError):
        has_one, fits = True, False
    if not has_one:
        raise DamagedError(f"{path} is damaged: it has no checksum")
    if not fits:
        raise DamagedError(f"{path} is damaged: its checksum does not fit")
    return dict(content)


def _compute_json_checksum(content: Mapping[str, Any]) -> str:
    # Sorted, so that it does not depend on the order of entries in the file.
    return compute_checksum(json.dumps(content, sort_keys=True).encode())
