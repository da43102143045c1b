"""One written setting and where it came from.

A file is flattened into leaves: a key (a path of names), an immutable value, an origin. Nothing nested and mutable
exists below the suite, so no two sections can share a table (E8). Problems collect here too, to be raised together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from skidpad.errors import SettingsError

Key = tuple[str, ...]
MAX_PROBLEMS = 20


class Text(str):
    """A value written without a type, in an .ini file or on the command line: the schema decides what it is."""

    __slots__ = ()


@dataclass(frozen=True)
class Origin:
    """Where a value came from.

    layer     base, architecture, baseline, profile, section, override or default, weakest first but for the last
    source    the file, or what stands in its place: "command line", "checkpoint", "type human_replay"
    line      line in that file, or None
    section   the section it was written in, or None
    written   the key as it was written there
    replaced  the weaker leaf it won over, or None
    """

    layer: str
    source: str
    line: int | None = None
    section: str | None = None
    written: str = ""
    replaced: Leaf | None = field(default=None, compare=False)

    @property
    def where(self) -> str:
        """`file:line`, or the name of the layer's source."""
        return f"{self.source}:{self.line}" if self.line is not None else self.source


@dataclass(frozen=True)
class Leaf:
    """A value (None, bool, int, float, str, Text, or a tuple of such) and its origin."""

    value: Any
    origin: Origin


Leaves = Mapping[Key, Leaf]


def dotted(key: Iterable[str]) -> str:
    return ".".join(key)


def laid_over(weak: Leaves, strong: Leaves) -> dict[Key, Leaf]:
    """Both together, the strong leaf winning and remembering the one it replaced."""
    result = dict(weak)
    for key, leaf in strong.items():
        below = result.get(key)
        origin = leaf.origin if below is None else replace(leaf.origin, replaced=below)
        result[key] = Leaf(leaf.value, origin)
    return result


def nested(leaves: Mapping[Key, Any]) -> dict[str, Any]:
    """A fresh tree of tables from values by key; no key may run through another's value."""
    tree: dict[str, Any] = {}
    for key, value in leaves.items():
        table = tree
        for name in key[:-1]:
            table = table.setdefault(name, {})
        table[key[-1]] = value
    return tree


class Problems:
    """Everything wrong with a suite, reported in one message."""

    def __init__(self) -> None:
        self._messages: dict[str, tuple[bool, str, int]] = {}

    def add(self, origin: Origin, message: str) -> None:
        """One problem. The same line inherited by several sections is one problem."""
        self._messages.setdefault(f"{origin.where}: {message}", (origin.line is None, origin.source, origin.line or 0))

    def raise_if_any(self) -> None:
        """Raises SettingsError with at most 20 problems, in order of file and line, then those of no file."""
        if not self._messages:
            return
        lines = sorted(self._messages, key=lambda message: self._messages[message])
        rest = len(lines) - MAX_PROBLEMS
        if rest > 0:
            lines[MAX_PROBLEMS:] = [f"... and {rest} more problems"]
        raise SettingsError("\n".join(lines))
