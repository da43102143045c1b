"""The scenes that come with the package: three recorded pieces of traffic and eight towns (formats.md, section 4), and
in `behaviours/` two generated scenes of each behaviour class.

`scripts/build_library.py` makes the files from two public packages; their digests are frozen there. The generated ones
are what `behaviour_scenes.py` makes, which the tests compare.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

FOLDER = Path(__file__).parent
SUFFIX = ".scene"


def library_scenes(pattern: str = "*") -> list[Path]:
    """Archives of the bundled scenes whose name matches a glob, in byte order: `Town*`, `USA_US101-3_1_T-1`. Those of a
    folder only where the glob names it: `behaviours/merge-*`."""
    folder, _, name = pattern.rpartition("/")
    where = FOLDER / folder
    found = [path for path in where.glob(f"*{SUFFIX}") if fnmatchcase(path.stem, name)] if where.is_dir() else []
    return sorted(found, key=lambda path: path.name.encode())


def attributions() -> dict[str, tuple[str, str]]:
    """Licence and attribution of each bundled scene, by name: what NOTICE and every rendered page print."""
    from skidpad.scenes.archive import scene_header

    headers = {path.stem: scene_header(path).meta for path in library_scenes()}
    return {name: (meta.licence, meta.attribution) for name, meta in headers.items()}
