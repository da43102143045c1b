"""Where the scenes of a run come from: which file holds which scene, and loading one when its cases run.

A file that cannot be read is an entry like any other, with the reason in it, so that its cases become records instead
of ending the run. A scene is identified by what it holds: one that changed since it was listed is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from skidpad.artifacts.container import MAGIC
from skidpad.artifacts.digests import digest_file, digest_value
from skidpad.errors import IntegrityError, SkidpadError
from skidpad.scenes.map_cache import MapCache, user_cache
from skidpad.scenes.scene import Scene


class SceneEntry(NamedTuple):
    """One listed file.

    digest   identity of the scene; of the file's bytes where the scene cannot be read
    problem  why it cannot be read, or None
    """

    path: Path
    digest: str
    scene_id: str
    problem: str | None


class SceneSources:
    """Scenes by digest. `cache` keeps what was parsed and the indexes of their maps; the user's own unless told."""

    def __init__(self, cache: MapCache | None = None) -> None:
        self.cache = cache or user_cache()
        self._entries: dict[Path, SceneEntry] = {}
        self._paths: dict[str, Path] = {}

    def entry(self, path: Path) -> SceneEntry:
        """What a file holds; from the header where it is an archive. Raises nothing: the problem is in the entry."""
        if path not in self._entries:
            self._entries[path] = entry = self._read_entry(path)
            self._paths.setdefault(entry.digest, path)
        return self._entries[path]

    def _read_entry(self, path: Path) -> SceneEntry:
        try:
            if self.is_archive(path):
                from skidpad.scenes.archive import scene_header

                meta, digest = scene_header(path)
                return SceneEntry(path, digest, meta.scene_id, None)
            scene = self.cache.scene(path)
            return SceneEntry(path, scene.digest, scene.meta.scene_id, None)
        except (SkidpadError, OSError) as error:
            return SceneEntry(path, _fallback_digest(path), path.stem, f"{type(error).__name__}: {error}")

    @staticmethod
    def is_archive(path: Path) -> bool:
        """Whether a file is an archive of ours. Raises OSError where it cannot be read."""
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC

    def know(self, entries: Iterable[SceneEntry]) -> None:
        """Files that somebody else has listed."""
        for entry in entries:
            self._entries[entry.path] = entry
            self._paths[entry.digest] = entry.path

    def size(self, digest: str) -> int:
        """Bytes of a scene's file, 0 where it is gone: about how much work its cases are."""
        try:
            return self._paths[digest].stat().st_size
        except OSError:
            return 0

    def load(self, digest: str) -> Scene:
        """The scene of a digest that an entry has named.

        Raises FormatError or OSError when its file cannot be read, IntegrityError with both digests when it holds
        another scene than it was listed with.
        """
        path = self._paths[digest]
        scene = self.cache.scene(path)
        if scene.digest != digest:
            raise IntegrityError(
                f"{path}: holds scene {scene.digest}, was listed as scene {digest}. Restore the file, or run it anew."
            )
        return scene


def _fallback_digest(path: Path) -> str:
    try:
        content = digest_file(path)
    except OSError:
        content = ""
    return digest_value({"unreadable": content, "name": path.name}, "unreadable scene")
