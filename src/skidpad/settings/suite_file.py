"""One file of a suite, TOML or .ini, as leaves with their lines.

Both formats give the same keys; only the values of an .ini file are still text, which the schema types later. What a
key means is none of this module's business.
"""

from __future__ import annotations

import json
import math
import pathlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from skidpad.errors import SettingsError
from skidpad.settings.leaves import Key, Leaf, Leaves, Origin, Problems, Text, dotted
from skidpad.settings.toml_lines import statements

MAX_BYTES = 4 << 20
MAX_LEVELS = 32


@dataclass(frozen=True)
class SuiteFile:
    """The leaves of a file by their absolute keys, and every table they stand in or that is opened empty."""

    path: pathlib.Path
    leaves: Leaves
    tables: Mapping[Key, Origin]


class _Entry(NamedTuple):
    """A written value or, without one, an opened table."""

    key: Key
    line: int
    value: Any = None
    is_table: bool = False


def read_file(path: pathlib.Path, problems: Problems) -> SuiteFile:
    """Read a suite file. Raises SettingsError when it is missing, too large, not UTF-8 or malformed; a key written
    twice or a value no setting can have is added to `problems` and left out."""
    text = _text(path)
    entries = _ini_entries(path, text) if path.suffix == ".ini" else _toml_entries(path, text)
    return _collected(path, entries, problems)


def plain(value: Any) -> Any:
    """A value made immutable. Raises ValueError for what no setting can be."""
    if isinstance(value, (list, tuple)):
        return tuple(plain(item) for item in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a finite number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("an integer beyond 64 bits")
    if not isinstance(value, (bool, int, float, str)):
        raise ValueError(f"a {type(value).__name__} is not a setting; expected text, number, true, false or a list")
    return value


def toml_text(value: Any) -> str:
    """A value as TOML writes it; None, which TOML cannot write, as .ini files do."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return f"[{', '.join(toml_text(item) for item in value)}]"
    return repr(value)


def _text(path: pathlib.Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SettingsError(f"{path}: cannot be read ({reason}). Give the path of a settings file.") from None
    if len(data) > MAX_BYTES:
        raise SettingsError(f"{path}: larger than {MAX_BYTES >> 20} MiB, the limit for a settings file")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SettingsError(f"{path}:{line}: not UTF-8 (byte {data[error.start]:#04x}). Save it as UTF-8.") from None


def read_toml(path: pathlib.Path) -> tuple[dict[str, Any], str]:
    """The tree of a TOML file that is no suite, and its text with LF line ends. Raises SettingsError as `read_file`."""
    text = _text(path)
    return _toml_tree(path, text), text


def _toml_tree(path: pathlib.Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(_toml_complaint(path, text, str(error))) from None
    except RecursionError:
        raise SettingsError(f"{path}: nested deeper than {MAX_LEVELS} levels") from None
    except ValueError as error:  # an integer of thousands of digits
        raise SettingsError(f"{path}: {error}") from None


def _toml_entries(path: pathlib.Path, text: str) -> list[_Entry]:
    tree = _toml_tree(path, text)
    lines: dict[Key, int] = {}
    for statement in statements(text):
        lines.setdefault(statement.key, statement.line)
    entries: list[_Entry] = []
    _walk(path, tree, (), 1, lines, entries)
    return entries


def _walk(
    path: pathlib.Path, table: dict[str, Any], key: Key, line: int, lines: Mapping[Key, int], out: list[_Entry]
) -> None:
    if len(key) > MAX_LEVELS:
        raise SettingsError(f"{path}:{line}: nested deeper than {MAX_LEVELS} levels")
    for name, value in table.items():
        at = lines.get((*key, name), line)
        if isinstance(value, dict):
            if (*key, name) in lines or not value:  # else its leaves open it, each with a line of its own
                out.append(_Entry((*key, name), at, is_table=True))
            _walk(path, value, (*key, name), at, lines, out)
        else:
            out.append(_Entry((*key, name), at, value))


def _toml_complaint(path: pathlib.Path, text: str, message: str) -> str:
    """tomllib's message with the file's name, and with both lines where a key was written twice."""
    place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    lines = text.rstrip("\n").split("\n")
    line = int(place[1]) if place and place[1] else len(lines)
    if message.startswith(("Cannot", "Duplicate")):
        found = list(statements("\n".join(lines[:line])))
        for one in found[:-1]:
            last = found[-1]
            shared = min(len(one.key), len(last.key))
            is_parent_table = one.is_table and len(one.key) < len(last.key)
            if one.key[:shared] == last.key[:shared] and not is_parent_table:
                return f"{path}:{line}: {_twice(min(one.key, last.key, key=len), one.line)}"
    return f"{path}:{line}: {message[: place.start()] if place else message}"


def _twice(key: Key, line: int) -> str:
    return f"{dotted(key)!r} is written twice, first in line {line}; keep one"


_INI_HEADER = re.compile(r"\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_INI_QUOTED = re.compile(r"""("[^"]*"|'[^']*')\s*(?:#.*)?""")


def _ini_entries(path: pathlib.Path, text: str) -> list[_Entry]:
    entries: list[_Entry] = []
    opened: dict[Key, int] = {}
    table: Key = ()
    for line, raw in enumerate(text.split("\n"), start=1):
        written = raw.strip()
        if not written or written[0] == "#":
            continue
        if header := _INI_HEADER.fullmatch(written):
            table = _split(header[1])
            if table in opened:
                raise SettingsError(f"{path}:{line}: {_twice(table, opened[table])}")
            opened[table] = line
            entries.append(_Entry(table, line, is_table=True))
            continue
        name, equals, value = written.partition("=")
        if not equals or not name.strip():
            raise SettingsError(f"{path}:{line}: expected [section], key = value, or # comment; found {written!r}")
        entries.append(_Entry(table + _split(name), line, Text(_without_comment(value.strip()))))
    return entries


def _split(written: str) -> Key:
    return tuple(name.strip() for name in written.split("."))


def _without_comment(value: str) -> str:
    if quoted := _INI_QUOTED.fullmatch(value):
        return quoted[1]
    return re.split(r"(?:^|\s)#", value, maxsplit=1)[0].rstrip()


def _collected(path: pathlib.Path, entries: Iterable[_Entry], problems: Problems) -> SuiteFile:
    leaves: dict[Key, Leaf] = {}
    tables: dict[Key, Origin] = {}
    for entry in entries:
        # TOML takes a quoted "env.dt" for one name; here it is the same key as env.dt.
        key = tuple(part for name in entry.key for part in _parts(name))
        origin = _origin(path, key, entry.line)
        if len(key) > MAX_LEVELS:
            problems.add(origin, f"nested deeper than {MAX_LEVELS} levels")
            continue
        for depth in range(1, len(key) + entry.is_table):
            tables.setdefault(key[:depth], origin)
        if entry.is_table:
            continue
        if key in leaves:
            problems.add(origin, _twice(key, leaves[key].origin.line or 0))
            continue
        try:
            leaves[key] = Leaf(entry.value if isinstance(entry.value, Text) else plain(entry.value), origin)
        except ValueError as error:
            problems.add(origin, f"{dotted(key)}: {error}")
    return SuiteFile(path, without_tables(leaves, tables, problems), tables)


def _parts(name: str) -> list[str]:
    parts = name.split(".")
    return parts if all(parts) else [name]


def _origin(path: pathlib.Path, key: Key, line: int) -> Origin:
    if key[0] == "eval" and len(key) > 2:
        return Origin("section", str(path), line, section=key[1], written=dotted(key[2:]))
    return Origin("profile" if key[0] == "perturbations" else "base", str(path), line, written=dotted(key))


def without_tables(leaves: Leaves, tables: Mapping[Key, Origin], problems: Problems) -> dict[Key, Leaf]:
    """The leaves without those that another line needs as a table; each such pair is a problem, naming both lines."""
    for key in leaves.keys() & tables.keys():
        first, second = sorted((tables[key], leaves[key].origin), key=lambda origin: origin.line or 0)
        problems.add(second, f"{dotted(key)!r} cannot be both a value and a table; see {first.where}")
    return {key: leaf for key, leaf in leaves.items() if key not in tables}
