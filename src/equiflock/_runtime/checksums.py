"""Files with a checksum, so that damage is detected when they are read."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from equiflock._runtime.checks import InputError
from equiflock._runtime.files import atomic_write

CHECKSUM_KEY = "checksum"
CHECKSUM_PREFIX = "# checksum "
"""Prefix of the last line of a text file; CSV readers treat the line as a comment."""
CHUNK_BYTES = 64 * 2**20
"""Bytes per update of a checksum."""


class DamagedError(InputError):
    """A file's content does not match its checksum."""


class VersionMismatchError(InputError):
    """A file or directory has the right kind but the format of another version."""


def compute_checksum(*parts: bytes | memoryview) -> str:
    """Return the CRC-32 of the concatenated parts as eight hexadecimal digits."""
    total = 0
    for part in (memoryview(part).cast("B") for part in parts if len(part)):
        # In chunks, so that Ctrl-C takes effect between two of them.
        for first in range(0, len(part), CHUNK_BYTES):
            total = zlib.crc32(part[first : first + CHUNK_BYTES], total)
    return f"{total:08x}"


def compute_file_checksum(path: str | os.PathLike[str]) -> str:
    """Return the checksum of a file's content."""
    return compute_checksum(Path(path).read_bytes())


def write_text(text: str, path: Path) -> None:
    """Write lines of text, followed by a line with their checksum, by an atomic replacement of `path`."""
    content = text.encode()
    with atomic_write(path) as scratch:
        scratch.write_bytes(content + f"{CHECKSUM_PREFIX}{compute_checksum(content)}\n".encode())


def read_text(path: Path) -> str:
    """Return the text that `write_text` wrote, without the checksum; raise DamagedError if it does not match."""
    # The last such line is the checksum, even if a line of the text looks like one.
    content, prefix, last = path.read_bytes().rpartition(CHECKSUM_PREFIX.encode())
    if not prefix or last != f"{compute_checksum(content)}\n".encode():
        raise DamagedError(f"{path} is damaged: its checksum does not match")
    return content.decode()


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """Write a JSON object with its checksum as an additional entry, by an atomic replacement of `path`."""
    with atomic_write(path) as scratch:
        scratch.write_text(format_json(content), encoding="utf-8")


def format_json(content: Mapping[str, Any]) -> str:
    """Return the text of a JSON object with its checksum as an additional entry."""
    return json.dumps({**content, CHECKSUM_KEY: _compute_json_checksum(content)}, indent=2) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """Return the object that `write_json` wrote, without its checksum.

    Raise DamagedError if the file is not JSON, or its checksum is missing or does not match.
    """
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict) or CHECKSUM_KEY not in content:
            raise DamagedError(f"{path} is damaged: it has no checksum")
        if content.pop(CHECKSUM_KEY) == _compute_json_checksum(content):
            return content
    except DamagedError:
        raise
    except (ValueError, RecursionError):
        pass
    raise DamagedError(f"{path} is damaged: its checksum does not match")


def _compute_json_checksum(content: Mapping[str, Any]) -> str:
    """Return the checksum of the JSON text of an object, which does not depend on the order of its entries."""
    return compute_checksum(json.dumps(content, sort_keys=True).encode())
