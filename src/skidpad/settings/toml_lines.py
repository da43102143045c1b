"""Where the keys of a TOML document stand.

tomllib gives values and no positions. This scanner gives positions and no values: it steps over values without
reading them, so the two cannot disagree about what a file says. It expects what tomllib accepts; on anything else it
stops early.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

from skidpad.settings.leaves import Key

_GAP = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_NAME = re.compile(r"""[ \t]*("(?:\\.|[^"\\\n])*"|'[^'\n]*'|[A-Za-z0-9_-]+)[ \t]*""")
# A multi-line string may end in up to five quotes, of which two are text.
_VALUE_PIECE = re.compile(
    r'''"""(?:\\.|[^\\])*?"""(?:"{0,2})'''
    r"""|\'\'\'.*?\'\'\'(?:\'{0,2})"""
    r"""|"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\#[^\n]*|(?P<open>[\[{])|(?P<close>[\]}])|(?P<newline>\n)|[^"'\#\[\]{}\n]+""",
    re.DOTALL,
)


class Statement(NamedTuple):
    """A table header, or a key with its value; `key` is absolute and has quoted names unquoted but not split."""

    key: Key
    line: int
    is_table: bool


def statements(text: str) -> Iterator[Statement]:
    """The statements of a document with LF line ends, in order. Keys inside inline tables are not listed."""
    table: Key = ()
    position, line = 0, 1
    while True:
        start = _end(_GAP, text, position)
        line += text.count("\n", position, start)
        if start == len(text):
            return
        is_table = text[start] == "["
        names_start = start + (text.startswith("[[", start) + 1 if is_table else 0)
        names, position = _names(text, names_start)
        if not names:
            return
        if is_table:
            table = names
            position = _end(re.compile(r"[^\n]*"), text, position)
        yield Statement(table if is_table else table + names, line, is_table)
        if not is_table:
            position = _after_value(text, position)
        line += text.count("\n", start, position)


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match else position


def _names(text: str, position: int) -> tuple[Key, int]:
    """A dotted key and the position behind it."""
    names: list[str] = []
    while match := _NAME.match(text, position):
        names.append(_unquoted(match[1]))
        position = match.end()
        if not text.startswith(".", position):
            break
        position += 1
    return tuple(names), position


def _unquoted(name: str) -> str:
    if name[0] not in "\"'":
        return name
    try:
        return next(iter(tomllib.loads(f"{name} = 0")))
    except tomllib.TOMLDecodeError:
        return name


def _after_value(text: str, position: int) -> int:
    """The position of the line end that closes the value, or the end of the text."""
    depth = 0
    while match := _VALUE_PIECE.match(text, position):
        if match["newline"] and depth == 0:
            return position
        depth += bool(match["open"]) - bool(match["close"])
        position = match.end()
    return len(text)
