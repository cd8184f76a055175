"""Files with a checksum, so that damage is detected when they are read.

A checksum is a SHA-256, 64 hexadecimal digits. Weights, trajectories and configs of version 0.2 have a CRC-32, eight
digits, and are still recognized.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from equiflock._runtime.checks import InputError
from equiflock._runtime.files import atomic_write

CHECKSUM_KEY = "checksum"
CHECKSUM_PREFIX = "# checksum "
"""Prefix of the last line of a text file; CSV readers treat the line as a comment."""
CHUNK_BYTES = 64 * 2**20
"""Bytes per update of a checksum."""
SHORT_DIGITS = 12
"""Digits of a checksum in names of files and in messages."""
OLD_DIGITS = 8
"""Digits of the checksums of version 0.2."""


class DamagedError(InputError):
    """A file's content does not match its checksum."""


class VersionMismatchError(InputError):
    """A file or directory has the right kind but the format of another version."""


def compute_checksum(*parts: bytes | memoryview) -> str:
    """Return the SHA-256 of the concatenated parts as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for chunk in _split_into_chunks(*parts):
        digest.update(chunk)
    return digest.hexdigest()


def matches_checksum(checksum: object, *parts: bytes | memoryview) -> bool:
    """Return whether this is the checksum of the concatenated parts, a SHA-256 or, as in version 0.2, a CRC-32."""
    if not isinstance(checksum, str) or len(checksum) != OLD_DIGITS:
        return checksum == compute_checksum(*parts)
    total = 0
    for chunk in _split_into_chunks(*parts):
        total = zlib.crc32(chunk, total)
    return checksum == f"{total:0{OLD_DIGITS}x}"


def _split_into_chunks(*parts: bytes | memoryview) -> Iterator[memoryview]:
    """Yield the bytes of all parts in chunks, so that Ctrl-C takes effect between two of them."""
    for part in (memoryview(part).cast("B") for part in parts if len(part)):
        for first in range(0, len(part), CHUNK_BYTES):
            yield part[first : first + CHUNK_BYTES]


def compute_file_checksum(path: str | os.PathLike[str]) -> str:
    """Return the checksum of a file's content."""
    return compute_checksum(Path(path).read_bytes())


def write_text(text: str, path: Path, key: str) -> None:
    """Write lines of text, followed by a line with the checksum of key and text, by an atomic replacement of `path`.

    The key identifies the content, such as the settings of a job, so that a copy of another file is detected.
    """
    content = text.encode()
    with atomic_write(path) as scratch:
        scratch.write_bytes(content + _format_last_line(content, key))


def read_text(path: Path, key: str) -> str:
    """Return the text that `write_text` wrote, without the last line.

    Raise DamagedError if its checksum does not match, because the text is damaged or was written with another key.
    """
    # The last such line is the checksum, even if a line of the text looks like one.
    content, prefix, last = path.read_bytes().rpartition(CHECKSUM_PREFIX.encode())
    if prefix + last != _format_last_line(content, key):
        raise DamagedError(f"{path} is damaged or misplaced: its checksum does not match")
    return content.decode()


def _format_last_line(content: bytes, key: str) -> bytes:
    """Return the line with the checksum of key and content."""
    # The key's checksum has a fixed length, so that no other key and content give the same bytes.
    checksum = compute_checksum(compute_checksum(key.encode()).encode(), content)
    return f"{CHECKSUM_PREFIX}{checksum}\n".encode()


def write_json(content: Mapping[str, Any], path: Path) -> None:
    """Write a JSON object with its checksum as an additional entry, by an atomic replacement of `path`."""
    with atomic_write(path) as scratch:
        scratch.write_text(format_json(content), encoding="utf-8")


def format_json(content: Mapping[str, Any]) -> str:
    """Return the text of a JSON object with its checksum as an additional entry."""
    return json.dumps({**content, CHECKSUM_KEY: compute_checksum(_encode_json(content))}, indent=2) + "\n"


def read_json(path: Path) -> dict[str, Any]:
    """Return the object that `write_json` wrote, without its checksum.

    Raise DamagedError if the file is not JSON, or its checksum is missing or does not match.
    """
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict) or CHECKSUM_KEY not in content:
            raise DamagedError(f"{path} is damaged: it has no checksum")
        if matches_checksum(content.pop(CHECKSUM_KEY), _encode_json(content)):
            return content
    except DamagedError:
        raise
    except (ValueError, RecursionError):
        pass
    raise DamagedError(f"{path} is damaged: its checksum does not match")


def _encode_json(content: Mapping[str, Any]) -> bytes:
    """Return the JSON text of an object, which does not depend on the order of its entries."""
    return json.dumps(content, sort_keys=True).encode()
