"""Fill in the templates of exported files: placeholders (`@word@`) and optional parts."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from importlib.resources import files

from equiflock.runtime.checks import InputError


def fill_template(name: str, words: Mapping[str, object], parts: Collection[str], comment: tuple[str, str]) -> str:
    """Return a template with its placeholders filled in and only the given parts.

    More than two empty lines in a row become two.

    Args:
        name: file name in templates/.
        words: value of each placeholder `@word@`.
        parts: optional parts to keep. A part is enclosed by comment lines `[part` and `part]`; parts may be nested.
        comment: start and end of a comment in the template's language.
    """
    opened, closed = map(re.escape, comment)
    begins, ends = re.compile(rf"\s*{opened}\[(\w+){closed}"), re.compile(rf"\s*{opened}(\w+)\]{closed}")
    lines: list[str] = []
    enclosing: list[str] = []
    for line in files(__package__).joinpath("templates", name).read_text().splitlines():
        if begin := begins.fullmatch(line):
            enclosing.append(begin[1])
        elif end := ends.fullmatch(line):
            assert enclosing.pop() == end[1]
        elif all(part in parts for part in enclosing):
            lines.append(line)
    text = re.sub(r"@(\w+)@", lambda match: str(words[match[1]]), "\n".join(lines))
    # Parts that are left out leave too many empty lines.
    return re.sub(r"\n{4,}", "\n\n\n", text) + "\n"


def make_identifier(stem: str) -> str:
    """Return a file stem as a lower-case identifier of C and Python; characters other than letters and digits become _.

    Raise InputError if it does not start with a letter.
    """
    word = re.sub(r"\W", "_", stem, flags=re.ASCII).lower()
    if not re.match(r"[a-z]", word):
        raise InputError(f"the name of an exported file must start with a letter, got {stem!r}")
    return word
