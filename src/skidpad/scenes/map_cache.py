"""MapCache: one copy of every map per machine, mapped read-only by whoever simulates on it (S22 to S31).

What is expensive to make lies in a folder of this user as one file each, named by everything its bytes depend on: the
index of a map under some parameters, and the archive of a scene that was parsed from another format. A file is made
once, under a lock, aside, and moved into place; a file that is not as it was written is made again. Mapping a file
takes a shared lock on it, so that the bound on the disk never takes a file from under somebody, in any process.

Nothing here is needed for a result: without a folder, or where the folder cannot be used, the same things are made in
memory.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast
from weakref import WeakValueDictionary

from skidpad.artifacts.container import MAGIC
from skidpad.artifacts.digests import digest_file, digest_sources, digest_value
from skidpad.artifacts.files import user_cache_folder
from skidpad.errors import ProtocolError, SettingsError
from skidpad.scenes.archive import SUFFIX as SCENE_SUFFIX
from skidpad.scenes.archive import load_scene, scene_bytes
from skidpad.scenes.index import IndexParams, MapIndex, build_index
from skidpad.scenes.index_file import SUFFIX as INDEX_SUFFIX
from skidpad.scenes.index_file import index_bytes, index_key, open_index
from skidpad.scenes.map_files import MapFiles
from skidpad.scenes.scene import Scene

Thing = TypeVar("Thing", Scene, MapIndex)

MAX_MAPPED = 256
MAX_DISK_MIB = 4096.0
# Everything whose text decides what a parsed file becomes.
_READER_SOURCES = ("artifacts/container.py", "scenes/*.py", "scenes/formats/*.py")
_PACKAGE = Path(__file__).resolve().parents[1]


class CacheStats(NamedTuple):
    """What a cache holds and what this process has had of it. Counters are of this `MapCache`.

    size, bytes    files in the folder, and their bytes
    hits           asked for, and neither made nor waited for
    misses         asked for, and not there
    builds         indexes made here; `build_seconds` of wall time
    evictions      dropped from `max_mapped`, or deleted for `max_disk_mib`
    mapped         scenes and indexes alive in this process, kept by the cache or by those who use them
    stored_lists   indexes among them whose neighbour lists are stored; those of the others are computed at look-up
    parses         files of other formats that were parsed here
    """

    size: int
    bytes: int
    hits: int
    misses: int
    builds: int
    build_seconds: float
    evictions: int
    mapped: int
    stored_lists: int
    parses: int


class MapCache:
    """Scenes and map indexes by content. Any number of threads and processes may share a folder.

    folder        where files lie; made private to the user. None keeps everything in the memory of this process
    max_mapped    scenes and indexes kept alive though nobody uses them, the most recently wanted ones
    max_disk_mib  the files of the folder are deleted, oldest use first, down to this; never one that is mapped
    verify        "lazy" hashes a file when this process first maps it and when its size, time or inode have changed;
                  "full" each time it is mapped

    An index or scene lives as long as somebody holds it, whether the cache is closed or not. Raises SettingsError for
    a bound that is not positive.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        max_mapped: int = MAX_MAPPED,
        max_disk_mib: float = MAX_DISK_MIB,
        verify: Literal["lazy", "full"] = "lazy",
    ) -> None:
        if max_mapped < 1 or not max_disk_mib > 0:
            raise SettingsError(
                f"map cache: max_mapped is {max_mapped} and max_disk_mib {max_disk_mib:g}; both must be positive."
            )
        self.folder = folder
        self._files = MapFiles(folder, max_disk_mib) if folder is not None else None
        self._max_mapped = max_mapped
        self._verify: Literal["lazy", "full"] = verify
        self._guard = threading.Lock()
        self._kept: OrderedDict[str, Any] = OrderedDict()
        self._alive: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._names: dict[tuple[object, ...], str] = {}
        self._count = dict.fromkeys(("hits", "misses", "builds", "evictions", "parses"), 0)
        self._build_seconds = 0.0
        self._closed = False

    def index(self, scene: Scene, params: IndexParams) -> MapIndex:
        """The index of a scene's map: mapped where its file is there, else built.

        Raises SettingsError when `lists` is "stored" and the lists are above the budget, ProtocolError after `close`.
        """

        def make() -> MapIndex:
            start = time.perf_counter()
            built = build_index(scene, params)
            with self._guard:
                self._count["builds"] += 1
                self._build_seconds += time.perf_counter() - start
            return built

        def opened(path: Path) -> MapIndex:
            return open_index(path, scene.map_digest, params, verify=self._verify)

        name = index_key(scene.map_digest, params) + INDEX_SUFFIX
        return self._get(name, opened, make, index_bytes)

    def scene(self, path: Path) -> Scene:
        """The scene of a file. An archive is mapped where it lies; a file of another format is parsed once, and its
        archive kept.

        Raises what `read_scene` and `load_scene` raise, OSError for a file that is not there, and ProtocolError after
        `close`.
        """
        status = path.stat()
        identity = (os.fspath(path.absolute()), status.st_size, status.st_mtime_ns, status.st_ino)
        name = self._names.get(identity)
        if name is None:
            name = self._names[identity] = _scene_name(path, identity)
        if not name.endswith(SCENE_SUFFIX):
            return self._once(name, lambda: load_scene(path, verify=self._verify))

        def make() -> Scene:
            from skidpad.scenes.formats import read_scene

            with self._guard:
                self._count["parses"] += 1
            return read_scene(path)

        return self._get(name, lambda file: load_scene(file, verify=self._verify, hold=True), make, scene_bytes)

    # ------------------------------------------------------------------ one thing

    def _once(self, name: str, make: Callable[[], Thing]) -> Thing:
        """Something by its name, from memory or made."""
        with self._guard:
            self._check_open()
            found: Thing | None = self._alive.get(name)
            self._count["misses" if found is None else "hits"] += 1
        return self._keep(name, make() if found is None else found)

    def _get(
        self,
        name: str,
        opened: Callable[[Path], Thing],
        make: Callable[[], Thing],
        encoded: Callable[[Thing], bytes],
    ) -> Thing:
        """Something by its name: from memory, else mapped, else made, written and mapped."""
        if self._files is None:
            return self._once(name, make)
        with self._guard:
            self._check_open()
            found: Thing | None = self._alive.get(name)
        if found is None:
            found = self._files.map(name, opened, quiet=True)
        with self._guard:
            self._count["misses" if found is None else "hits"] += 1
        if found is None:
            with self._files.building(name):
                # Somebody else may have made it while we waited.
                found = self._files.map(name, opened)
                if found is None:
                    found = make()
                    if self._files.usable and self._files.write(name, encoded(found)):
                        mapped = self._files.map(name, opened)
                        found = found if mapped is None else mapped
            evicted = self._files.prune()
            with self._guard:
                self._count["evictions"] += evicted
        return self._keep(name, found)

    def _keep(self, name: str, found: Thing) -> Thing:
        """Remember something as wanted last; what another thread remembered meanwhile stands."""
        dropped = []
        with self._guard:
            found = cast(Thing, self._alive.setdefault(name, found))
            if not self._closed:
                self._kept[name] = found
                self._kept.move_to_end(name)
                while len(self._kept) > self._max_mapped:
                    dropped.append(self._kept.popitem(last=False))
                    self._count["evictions"] += 1
        del dropped  # outside the lock: the last view of a mapping goes with it
        return found

    # ------------------------------------------------------------------ the whole

    @property
    def stats(self) -> CacheStats:
        """Counters and contents, now."""
        size, total = (0, 0) if self._files is None else self._files.contents()
        with self._guard:
            alive = list(self._alive.values())
            stored = sum(isinstance(item, MapIndex) and item.lists == "stored" for item in alive)
            return CacheStats(
                size=size,
                bytes=total,
                mapped=len(alive),
                stored_lists=stored,
                build_seconds=self._build_seconds,
                **self._count,
            )

    def close(self) -> None:
        """Let go of everything. What others hold stays mapped until they let go. Closing twice is harmless; asking a
        closed cache raises ProtocolError."""
        with self._guard:
            self._closed = True
            kept, self._kept = self._kept, OrderedDict()
        del kept

    def __enter__(self) -> MapCache:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ProtocolError("this map cache is closed: construct a new one")


def _scene_name(path: Path, identity: tuple[object, ...]) -> str:
    """Name of a file's scene: where it lies for an archive, its content for another format."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) == MAGIC:
            return digest_value([str(part) for part in identity], "archive")
    # A file's name may become the scene's id.
    key = {"bytes": digest_file(path), "name": path.name, "reader": _reader_version()}
    return digest_value(key, "parsed scene") + SCENE_SUFFIX


@cache
def _reader_version() -> str:
    return digest_sources(_PACKAGE, _READER_SOURCES)


@cache
def user_cache() -> MapCache:
    """The cache of this user, shared by all programs: what evaluations and benches use. Its folder is
    `skidpad/maps` under $XDG_CACHE_HOME, else under ~/.cache."""
    return MapCache(user_cache_folder("maps"))


@cache
def memory_cache() -> MapCache:
    """What a Simulator uses that is given no cache: indexes are made in this process and shared inside it."""
    return MapCache(None)
