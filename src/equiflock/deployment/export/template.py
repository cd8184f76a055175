"""Filling in the files that exported ones are made of: words between @, and parts that only some of them have."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from importlib.resources import files

from equiflock.runtime.checks import InputError


def fill_template(name: str, words: Mapping[str, object], parts: Collection[str], comment: tuple[str, str]) -> str:
    """A template with its words filled in, and without the parts that are not among `parts`.

    Args:
        name: of the file in templates/.
        words: what stands in place of @word@.
        parts: which of the parts between [part and part], each on a line of its own, are kept.
        comment: how a comment begins and ends, in which these marks are.
    """
    opened, closed = map(re.escape, comment)
    begins, ends = re.compile(rf"\s*{opened}\[(\w+){closed}"), re.compile(rf"\s*{opened}(\w+)\]{closed}")
    kept: list[str] = []
    within: list[str] = []
    for line in files(__package__).joinpath("templates", name).read_text().splitlines():
        if begin := begins.fullmatch(line):
            within.append(begin[1])
        elif end := ends.fullmatch(line):
            assert within.pop() == end[1]
        elif all(part in parts for part in within):
            kept.append(line)
    text = re.sub(r"@(\w+)@", lambda found: str(words[found[1]]), "\n".join(kept))
    # Where parts are left out, too many empty lines remain.
    return re.sub(r"\n{4,}", "\n\n\n", text) + "\n"


def make_identifier(stem: str) -> str:
    """The name of a file as a word of C and Python; a clear error if it cannot be one."""
    word = re.sub(r"\W", "_", stem, flags=re.ASCII).lower()
    if not re.match(r"[a-z]", word):
        raise InputError(f"the name of an exported file must begin with a letter; got {stem!r}")
    return word
