"""A resolved suite as TOML that loads to the same suite, each value with its origin in a comment (E17)."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from skidpad.settings.checking import MANAGER, section_fields
from skidpad.settings.leaves import Key, Leaf, Leaves, Origin, dotted
from skidpad.settings.scene_paths import anchored, expanded
from skidpad.settings.schema import ManagerSettings
from skidpad.settings.sections import as_tuple
from skidpad.settings.stack import DEFAULT, Resolved, baseline_leaves
from skidpad.settings.suite_file import toml_text

_COMMENT_COLUMN = 48


def manager_text(manager: ManagerSettings, leaves: Leaves) -> str:
    lines = ["[eval]"]
    for key in MANAGER:
        origin = leaves[key].origin if key in leaves else DEFAULT
        lines.append(_line(dotted(key), getattr(manager, key[0]), origin))
    return "\n".join(lines) + "\n"


def training_text(lines: Iterable[tuple[str, Any, Origin]]) -> str:
    """What is trained, every key with its place in the tables."""
    return "\n".join(_line(key, value, origin) for key, value, origin in lines) + "\n"


def profile_text(name: str, leaves: Leaves) -> str:
    lines = [f"[perturbations.{name}]"]
    lines += [_line(dotted(key), leaf.value, leaf.origin) for key, leaf in leaves.items()]
    return "\n".join(lines) + "\n"


def section_text(one: Resolved, folder: Callable[[Key], pathlib.Path], environ: Mapping[str, str]) -> str:
    """The section with every key written out and no ancestors left.

    folder   what its relative paths under a key are relative to; they are printed absolute, variables unexpanded
    environ  tells whether a path that starts in a variable is relative
    """
    lines = [f"[eval.{one.name}]"]
    baseline = baseline_leaves(one.type)
    values = {key: one.value(key) for key in section_fields([one.type.settings])}
    # TOML has no None. It is the default of every key that takes it, so all there is to say is what it replaces.
    unset = tuple(dotted(key) for key, value in values.items() if value is None and key in baseline)
    if unset:
        lines.append(f"unset = {toml_text(unset)}")
    for key, value in values.items():
        if key == ("env", "scenes"):
            value = tuple(_placed(entry, folder(key).absolute(), environ) for entry in as_tuple(value))
        if key == ("eval", "baselines"):
            value = tuple(_placed_driver(entry, folder(key).absolute(), environ) for entry in value)
        lines.append(_line(dotted(key), value, one.origin_of(key)))
    return "\n".join(lines) + "\n"


def _line(key: str, value: Any, origin: Origin) -> str:
    setting = f"{key} = {toml_text(value)}" if value is not None else f"# {key} = None"
    comment = "".join(one if one.isprintable() else "?" for one in _history(origin))
    return f"{setting.ljust(_COMMENT_COLUMN)}  # {comment}"


def _history(origin: Origin) -> str:
    """The origin, then each weaker value it replaced."""
    section = f" [eval.{origin.section}]" if origin.section else ""
    below: Leaf | None = origin.replaced
    over = f", over {toml_text(below.value)} from {_history(below.origin)}" if below else ""
    return f"{origin.where}{section}{over}"


def _placed_driver(entry: str, folder: pathlib.Path, environ: Mapping[str, str]) -> str:
    name, has_file, file = entry.partition("=")
    return f"{name}={_placed(file, folder, environ)}" if has_file else entry


def _placed(entry: str, folder: pathlib.Path, environ: Mapping[str, str]) -> str:
    """The entry so that it means the same files in whatever folder it is read."""
    try:
        whole = expanded(entry, environ)
    except ValueError:  # a disabled section may name what is not set here
        if entry.startswith("${"):
            return entry
        whole = entry
    if os.path.isabs(whole) or whole.startswith("library:"):
        return entry
    place = str(folder) if (folder / whole).exists() else anchored("", folder).rstrip(os.sep)
    return f"{place.replace('$', '$$')}{os.sep}{entry}"
