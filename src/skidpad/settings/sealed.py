"""Sections of type `sealed_stream`: which mapper, which episodes, which arms.

They stand in suites of their own, with the inheritance, overrides and lines of every suite; `env` and `vec` mean
nothing to them. Values are handed on as they were written, each with its place: the evaluation checks them in its own
order, the same for both of its doors.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skidpad.errors import SettingsError, listed, nearest
from skidpad.settings.checking import HEADER, typed, unknown_key
from skidpad.settings.leaves import Key, Leaf, Leaves, Problems, laid_over
from skidpad.settings.overrides import Overrides, read_overrides
from skidpad.settings.scene_paths import expanded
from skidpad.settings.sections import OrderError, Sections, read_sections, without

SEALED = "sealed_stream"
PATHS = ("index", "checkpoint", "writer")
# Every key of such a section but its type and schedule, with the type that text of the command line is read as.
KEYS: Mapping[str, Any] = {
    "index": str,
    "checkpoint": str,
    "writer": str | None,
    "policies": tuple[str, ...],
    "controls": tuple[str, ...],
    "max_episodes": int | None,
    "residual_threshold": float,
    "render_samples": int,
    "ray_chunk": int,
    "warmup": int,
    "stream": int,
    "queries": int,
    "max_units": float,
    "device": str,
    "split": str,
    "release": str,
    "parent": str | None,
    "minimum_effect": float,
    "workers": int | None,
    "keep_states": bool,
    "strips": bool,
    "state_cap_mib": int,
    "memory_cap_mib": int,
}
SCHEDULE = ("enabled", "interval", "at_start", "at_end")
KNOWN: Mapping[Key, Any] = {
    ("type",): HEADER["type",],
    **{(name,): HEADER[name,] for name in SCHEDULE},
    **{("eval", name): kind for name, kind in KEYS.items()},
}


@dataclass(frozen=True)
class SealedSection:
    """One live section.

    enabled, interval, at_start, at_end  when it runs inside training, as of every section
    values  keys that were written, as written; paths are made absolute to the file that names them
    places  file:line of each
    """

    name: str
    enabled: bool
    interval: int
    at_start: bool
    at_end: bool
    values: Mapping[str, Any]
    places: Mapping[str, str]


def sealed_sections(
    path: pathlib.Path, overrides: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> dict[str, SealedSection] | None:
    """The sealed sections of a suite by name; None when it has none.

    Raises SettingsError, listing file and line, for unknown keys and for a suite that mixes them with other types.
    """
    environ = dict(os.environ if environ is None else environ)
    problems = Problems()
    sections = read_sections(path, environ, problems)
    if not any(_is_sealed(section.leaves.get(("type",))) for section in sections.named.values()):
        return None
    given = read_overrides(overrides, sections, KNOWN, problems)
    found = {}
    inherited = {parent for section in sections.named.values() for parent in section.parents}
    for name, section in sections.named.items():
        for key, leaf in section.leaves.items():
            if key not in KNOWN:
                problems.add(leaf.origin, unknown_key(key, leaf, KNOWN))
        try:
            leaves = _merged(sections, name, given)
        except OrderError as error:
            problems.add(section.inherits, f"[eval.{name}] inherits in {error}")
            continue
        kind = leaves.get(("type",))
        if section.is_abstract or (kind is None and name in inherited):
            continue
        if not _is_sealed(kind):
            text = f"[eval.{name}] is not of type {SEALED!r}, others here are; give each kind a file of its own"
            problems.add(section.origin, text)
            continue
        found[name] = _section(name, leaves, environ, problems)
    problems.raise_if_any()
    return found


def chosen_section(path: pathlib.Path, sections: Mapping[str, SealedSection], name: str | None) -> SealedSection:
    """The section to run: the named one, or the only one that is enabled. Raises SettingsError otherwise."""
    if name is not None:
        if name not in sections:
            raise SettingsError(
                f"{path}: no evaluator {name!r}{nearest(name, sections)}; there are: {listed(sections) or 'none'}"
            )
        return sections[name]
    enabled = [section for section in sections.values() if section.enabled]
    if len(enabled) != 1:
        raise SettingsError(
            f"{path}: {listed(one.name for one in enabled) or 'none'} of the sealed sections are enabled; each is a "
            "run of its own. Choose one with --evaluator."
        )
    return enabled[0]


def _is_sealed(leaf: Leaf | None) -> bool:
    return leaf is not None and str(leaf.value) == SEALED


def _merged(sections: Sections, name: str, given: Overrides) -> Leaves:
    leaves: Leaves = {}
    for section in sections.lineage(name):
        leaves = laid_over(without(leaves, section.unset), section.leaves)
    return laid_over(leaves, given.of(name))


def _section(name: str, leaves: Leaves, environ: Mapping[str, str], problems: Problems) -> SealedSection:
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    schedule: dict[str, Any] = {"enabled": True, "interval": 0, "at_start": False}
    for key, leaf in leaves.items():
        if key not in KNOWN or key == ("type",):
            continue
        value = typed(leaf.value, KNOWN[key])
        own = key[-1]
        if own in SCHEDULE:
            if own == "interval" and (type(value) is not int or value < 0):
                problems.add(leaf.origin, f"interval = {value!r} in [eval.{name}]: must be a whole number, 0 or more")
            elif own != "interval" and not isinstance(value, bool):
                problems.add(leaf.origin, f"{own} = {value!r} in [eval.{name}]: must be true or false")
            else:
                schedule[own] = value
            continue
        if own in PATHS and value is not None:
            value = _path(own, value, leaf, environ, problems)
        values[own], places[own] = value, leaf.origin.where
    for needed in ("index", "checkpoint"):
        if needed not in values:
            problems.add(leaves["type",].origin, f"[eval.{name}] needs {needed}")
    schedule.setdefault("at_end", schedule["interval"] > 0)
    return SealedSection(name, **schedule, values=values, places=places)


def _path(key: str, value: Any, leaf: Leaf, environ: Mapping[str, str], problems: Problems) -> pathlib.Path | None:
    if not isinstance(value, str):
        problems.add(leaf.origin, f"{key} = {value!r}: must be a path")
        return None
    folder = pathlib.Path(leaf.origin.source).parent if leaf.origin.line is not None else pathlib.Path()
    try:
        return folder / expanded(value, environ)
    except ValueError as error:
        problems.add(leaf.origin, f"{key}: {error}")
        return None
