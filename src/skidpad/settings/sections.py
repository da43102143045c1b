"""Suite files merged into sections, and sections put in the order of their inheritance.

`extends` and `inherits` follow one rule (E5): each ancestor once, after all its own parents, a later entry of a list
stronger than an earlier one. Everything here is a pure function over immutable leaves.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from skidpad.errors import SettingsError, nearest
from skidpad.settings.checking import HEADER, MANAGER, STRUCTURE, typed, validated
from skidpad.settings.leaves import Key, Leaf, Leaves, Origin, Problems, dotted, laid_over
from skidpad.settings.scene_paths import expanded
from skidpad.settings.schema import FileSettings, StructureSettings
from skidpad.settings.suite_file import MAX_LEVELS, SuiteFile, read_file, without_tables

SECTION_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
GROUPS = ("env", "vec", "eval")
TRAINING = ("train", "policy")
TOP = (*GROUPS, *TRAINING, "perturbations", "extends")

Node = TypeVar("Node", bound=Hashable)
Item = TypeVar("Item")


@dataclass(frozen=True)
class Section:
    """One child table of `[eval]` as written, without the keys that shape its inheritance.

    leaves  keys relative to the section: ("type",), ("env", "dt"); an evaluator's plain knob stands under "eval"
    tables  the tables it opens
    unset   keys, of leaves or of tables, that it takes away from everything weaker
    """

    name: str
    origin: Origin
    leaves: Leaves
    tables: Mapping[Key, Origin]
    parents: tuple[str, ...]
    inherits: Origin
    is_abstract: bool
    unset: Mapping[Key, Origin]


@dataclass(frozen=True)
class Sections:
    """A suite's files, merged: what stands outside sections by absolute key, profiles and sections by name.

    training  leaves of `[train]` and `[policy]` by absolute key
    trains    whether there is a table `[train]`
    """

    base: Leaves
    base_tables: Mapping[Key, Origin]
    profiles: Mapping[str, Leaves]
    named: Mapping[str, Section]
    training: Leaves
    trains: bool

    def lineage(self, name: str) -> list[Section]:
        """The section after all its ancestors, weakest first. Raises OrderError when no such order exists."""
        return [self.named[one] for one in lineage(name, self._known_parents)]

    def _known_parents(self, name: str) -> list[str]:
        return [parent for parent in self.named[name].parents if parent in self.named]


class OrderError(Exception):
    """Ancestors that have no order; `chain` is the circle, or the node whose list contradicts its ancestry."""

    def __init__(self, chain: Sequence[Any], reason: str) -> None:
        super().__init__(reason)
        self.chain = chain


def lineage(node: Node, parents_of: Callable[[Node], Sequence[Node]]) -> list[Node]:
    """Every ancestor once and the node last: each after its own parents, lists kept in order.

    This is the C3 linearization (Barrett et al. 1996), weakest first. The cycle detector looks at the path that led
    here, not at what was visited, so that diamonds pass (E7).
    """
    done: dict[Node, list[Node]] = {}

    def visit(one: Node, path: tuple[Node, ...]) -> list[Node]:
        if one in path:
            raise OrderError((*path[path.index(one) :], one), "a circle")
        if len(path) > MAX_LEVELS:
            raise OrderError((*path, one), f"more than {MAX_LEVELS} generations")
        if one not in done:
            parents = list(parents_of(one))
            if len(set(parents)) < len(parents):
                raise OrderError((one,), "a list that names a parent twice")
            rows = [visit(parent, (*path, one)) for parent in reversed(parents)]
            done[one] = [*_merged_order(one, [*rows, parents]), one]
        return done[one]

    return visit(node, ())


def _merged_order(node: Node, rows: Sequence[Sequence[Node]]) -> list[Node]:
    """All rows in one, taken from their strong ends; the order within each row is kept."""
    order: list[Node] = []
    left = [list(row) for row in rows if row]
    while left:
        blocked = {one for row in left for one in row[:-1]}
        strongest = next((row[-1] for row in left if row[-1] not in blocked), None)
        if strongest is None:
            tied = ", ".join(sorted({str(row[-1]) for row in left}))
            raise OrderError((node,), f"a list that contradicts the ancestry of {tied}")
        order.append(strongest)
        left = [rest for row in left if (rest := [one for one in row if one != strongest])]
    return order[::-1]


def read_sections(path: pathlib.Path, environ: Mapping[str, str], problems: Problems) -> Sections:
    """The sections of a file and of all files it extends. Raises SettingsError when a file cannot be read or the
    files have no order; what is milder is added to `problems`."""
    leaves, tables = _with_extended(path, environ, problems)
    _refuse_foreign_groups(leaves, tables, problems)
    members, opened = _by_table(leaves), _by_table(tables)
    named = {
        key[1]: _section(key[1], origin, members.get(key, {}), opened.get(key, {}), problems)
        for key, origin in tables.items()
        if len(key) == 2 and key[0] == "eval" and _may_be_section(key[1], origin, problems)
    }
    for section in named.values():
        for parent in section.parents:
            if parent not in named:
                sentence = f"[eval.{section.name}] inherits {parent!r}, which is no section{nearest(parent, named)}"
                problems.add(section.inherits, sentence)
    profiles = {key[1]: members.get(key, {}) for key in tables if len(key) == 2 and key[0] == "perturbations"}
    base = {key: leaf for key, leaf in leaves.items() if key[0] in GROUPS and (key[0] != "eval" or len(key) == 2)}
    base_tables = {key: origin for key, origin in tables.items() if key[0] in ("env", "vec")}
    training = {key: leaf for key, leaf in leaves.items() if key[0] in TRAINING}
    return Sections(base, base_tables, profiles, named, training, ("train",) in tables)


def _with_extended(
    path: pathlib.Path, environ: Mapping[str, str], problems: Problems
) -> tuple[Leaves, Mapping[Key, Origin]]:
    files = {path.resolve(): read_file(path, problems)}

    def bases_of(resolved: pathlib.Path) -> list[pathlib.Path]:
        found = []
        for target, origin in _extended_by(files[resolved], environ):
            if not target.is_file():
                raise SettingsError(f"{origin.where}: extends {str(target)!r}, which is not there")
            if target.resolve() not in files:
                files[target.resolve()] = read_file(target, problems)
            found.append(target.resolve())
        return found

    try:
        order = lineage(path.resolve(), bases_of)
    except OrderError as error:
        chain = " -> ".join(str(files[one].path) for one in error.chain)
        raise SettingsError(f"{files[error.chain[0]].path}: extends makes {error} ({chain})") from None
    leaves: Leaves = {}
    tables: Mapping[Key, Origin] = {}
    for one in order:
        own = _normalised(files[one].leaves, problems)
        leaves = laid_over(without(leaves, _unset_by(own)), own)
        tables = {**tables, **_normal_tables(files[one].tables)}
    return without_tables(leaves, tables, problems), tables


def _extended_by(file: SuiteFile, environ: Mapping[str, str]) -> list[tuple[pathlib.Path, Origin]]:
    leaf = file.leaves.get(("extends",))
    if leaf is None:
        return []
    problems = Problems()
    settings = validated(FileSettings, {("extends",): leaf}, problems, leaf.origin)
    found = []
    for text in as_tuple(settings.extends) if settings else ():
        try:
            found.append((file.path.parent / expanded(text, environ), leaf.origin))
        except ValueError as error:
            problems.add(leaf.origin, f"extends: {error}")
    problems.raise_if_any()
    return found


def as_tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def normal_key(key: Key) -> Key:
    """A key inside a section; an evaluator's plain knob is moved under `eval.`, where it belongs (E4)."""
    return key if key[0] in GROUPS or key[:1] in HEADER or key[:1] in STRUCTURE else ("eval", *key)


def normal(key: Key, leaf: Leaf, problems: Problems) -> tuple[Key, Leaf]:
    """A leaf inside a section under its one key: knobs under `eval.`, `clean` as `perturbations`."""
    if key != ("clean",):
        return normal_key(key), leaf
    switch = validated(StructureSettings, {key: leaf}, problems, leaf.origin)
    is_clean = switch is None or switch.clean in (True, None)
    return ("perturbations",), Leaf("clean" if is_clean else "train", leaf.origin)


def _normalised(leaves: Leaves, problems: Problems) -> dict[Key, Leaf]:
    """One file's leaves, each setting under its one key."""
    result: dict[Key, Leaf] = {}
    for key, leaf in leaves.items():
        if _in_section(key):
            relative, leaf = normal(key[2:], leaf, problems)
            key = (*key[:2], *relative)
        if (other := result.get(key)) and (key[2:] != ("perturbations",) or not _same_text(other, leaf)):
            first, second = sorted((other.origin, leaf.origin), key=lambda origin: origin.line or 0)
            problems.add(
                second, f"{second.written!r} says again what {first.written!r} says in {first.where}; keep one"
            )
        result[key] = leaf
    return result


def _normal_tables(tables: Mapping[Key, Origin]) -> dict[Key, Origin]:
    return {(*key[:2], *normal_key(key[2:])) if _in_section(key) else key: origin for key, origin in tables.items()}


def _in_section(key: Key) -> bool:
    return key[0] == "eval" and len(key) > 2


def _same_text(one: Leaf, other: Leaf) -> bool:
    return bool(typed(one.value, str) == typed(other.value, str))


def without(leaves: Leaves, keys: Iterable[Key]) -> dict[Key, Leaf]:
    """The leaves that neither are one of the keys nor lie in one of their tables."""
    gone = set(keys)
    return {key: leaf for key, leaf in leaves.items() if gone.isdisjoint(key[: n + 1] for n in range(len(key)))}


def _unset_by(leaves: Leaves) -> set[Key]:
    """Absolute keys that a file's own `unset` lists take away from the files it extends."""
    found = set()
    for key, leaf in leaves.items():
        if key[0] == "eval" and key[2:] == ("unset",):
            listed = typed(leaf.value, STRUCTURE[("unset",)])
            texts = listed if isinstance(listed, tuple) else (listed,)
            found |= {(*key[:2], *normal_key(tuple(str(text).split(".")))) for text in texts}
    return found


def _refuse_foreign_groups(leaves: Leaves, tables: Mapping[Key, Origin], problems: Problems) -> None:
    """What stands at the top of the file and is neither a group nor `extends`, and groups that are no tables."""
    for key, origin in [*tables.items(), *((key, leaf.origin) for key, leaf in leaves.items())]:
        is_group = len(key) == 1 or (len(key) == 2 and key[0] == "perturbations")
        if len(key) == 1 and key[0] not in TOP:
            is_header = key in HEADER or key in STRUCTURE
            home = "; it belongs in a section, [eval.<name>]" if is_header else nearest(key[0], TOP)
            problems.add(origin, f"unknown key {key[0]!r} at the top of the file{home}")
        elif key == ("extends",):
            if key in tables:
                problems.add(origin, "'extends' must be a path or a list of paths, not a table")
        elif is_group and key in leaves:
            problems.add(origin, f"{dotted(key)!r} must be a table, not a value")
        elif key[0] == "perturbations" and len(key) == 3 and key in tables:
            problems.add(origin, f"{dotted(key)!r} is a table; a profile holds the perturbations themselves")


def _by_table(items: Mapping[Key, Item]) -> dict[Key, dict[Key, Item]]:
    """What lies in each table of the second level, by keys relative to it."""
    found: dict[Key, dict[Key, Item]] = {}
    for key, item in items.items():
        if len(key) > 2:
            found.setdefault(key[:2], {})[key[2:]] = item
    return found


def _may_be_section(name: str, origin: Origin, problems: Problems) -> bool:
    if not SECTION_NAME.fullmatch(name):
        problems.add(origin, f"section name {name!r}: expected [a-z][a-z0-9_]{{0,63}}, for it becomes a folder's name")
        return False
    if (name,) in MANAGER or name in TOP:
        what = "a setting of the manager" if (name,) in MANAGER else "the name of a group"
        problems.add(origin, f"section name {name!r}: it is {what}; choose another")
        return False
    return True


def _section(name: str, origin: Origin, leaves: Leaves, tables: Mapping[Key, Origin], problems: Problems) -> Section:
    structure = {key: leaf for key, leaf in leaves.items() if key in STRUCTURE}
    settings = validated(StructureSettings, structure, problems, origin) or StructureSettings()
    return Section(
        name=name,
        origin=Origin("section", origin.source, origin.line, section=name),
        leaves={key: leaf for key, leaf in leaves.items() if key not in STRUCTURE},
        tables=tables,
        parents=as_tuple(settings.inherits),
        inherits=structure[("inherits",)].origin if ("inherits",) in structure else origin,
        is_abstract=settings.abstract,
        unset={normal_key(tuple(text.split("."))): structure[("unset",)].origin for text in as_tuple(settings.unset)},
    )
