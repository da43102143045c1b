"""From what a suite writes as a path to files that are there.

Variables are expanded once and only as `${NAME}`; a relative path is relative to the file that wrote it. Nothing is
opened but list files: whether a file is a scene is for its reader to say.
"""

from __future__ import annotations

import glob
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from skidpad.errors import listed

Library = Callable[[str], Sequence[pathlib.Path]]

LIST_SUFFIXES = frozenset({".txt", ".list"})
MAX_LIST_BYTES = 16 << 20

_DOLLAR = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Za-z_]\w*)(?::-(?P<fallback>[^}]*))?\}|(?P<bare>\w*))")


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """The text with `${NAME}`, `${NAME:-fallback}` and `$$` replaced.

    An empty variable counts as unset, as in a shell: "${DATA}/x" must not become "/x". Raises ValueError with the right
    spelling for a bare `$NAME` and a leading `~`.
    """
    if text.startswith("~"):
        raise ValueError(f"{text!r} starts with '~', which is not expanded; write ${{HOME}}{text[1:]}")

    def value(match: re.Match[str]) -> str:
        if match["dollar"]:
            return "$"
        if match["name"] is None:
            right = f"${{{match['bare']}}}, or $${match['bare']} for a" if match["bare"] else "$$ for a"
            raise ValueError(f"{text!r} has a bare '${match['bare']}'; write {right} literal dollar")
        found = environ.get(match["name"]) or match["fallback"]
        if found is None:
            raise ValueError(f"{text!r}: {match['name']} is not set; set it, or write ${{{match['name']}:-fallback}}")
        return found

    return _DOLLAR.sub(value, text)


def find_scenes(text: str, folder: pathlib.Path, environ: Mapping[str, str], library: Library) -> list[pathlib.Path]:
    """The scene files that one entry of `env.scenes` names, byte-wise sorted.

    text    a scene file, a folder of .scene files, a glob, a list file (.txt, .list), or library:<glob>
    folder  what a relative path is relative to

    Raises ValueError when nothing is there, or something is there that cannot be read.
    """
    entry = expanded(text, environ)
    try:
        found = list(library(entry.removeprefix("library:"))) if entry.startswith("library:") else _find(entry, folder)
    except OSError as error:
        raise ValueError(f"{entry!r}: {error.strerror}") from None
    if not found:
        raise ValueError(f"{entry!r} matches no scene")
    if unreadable := [path for path in found if not os.access(path, os.R_OK)]:
        raise ValueError(f"{entry!r}: may not be read: {listed(unreadable)}")
    return sorted(found, key=os.fsencode)


def _find(entry: str, folder: pathlib.Path) -> list[pathlib.Path]:
    path = folder / entry
    if not entry or "\0" in entry:
        raise ValueError(f"{entry!r} is not a path")
    if path.is_dir():
        if scenes := [child for child in path.iterdir() if child.suffix == ".scene" and child.is_file()]:
            return scenes
        raise ValueError(f"folder {str(path)!r} holds no .scene file; write others with `skidpad scenes convert`")
    if path.is_file():
        return _from_list(path) if path.suffix in LIST_SUFFIXES else [path]
    if glob.has_magic(entry):
        matches = glob.iglob(anchored(entry, folder), recursive=True)
        return [match for match in map(pathlib.Path, matches) if match.is_file()]
    raise ValueError(f"{str(path)!r} is not there")


def anchored(entry: str, folder: pathlib.Path) -> str:
    """A glob joined to its folder, whose own name is taken literally."""
    return entry if os.path.isabs(entry) else os.path.join(glob.escape(str(folder)), entry)


def _from_list(path: pathlib.Path) -> list[pathlib.Path]:
    """The files a list names, one a line, relative to the list (R15)."""
    if path.stat().st_size > MAX_LIST_BYTES:
        raise ValueError(f"list {str(path)!r} is larger than {MAX_LIST_BYTES >> 20} MiB")
    try:
        lines: Iterable[str] = path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"list {str(path)!r} is not UTF-8 text") from None
    scenes = [path.parent / line.strip() for line in lines if line.strip()]
    if missing := [scene for scene in scenes if not scene.is_file()]:
        raise ValueError(f"list {str(path)!r} names files that are not there: {listed(missing)}")
    return scenes
