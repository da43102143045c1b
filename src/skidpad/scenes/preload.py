"""Filling a map cache ahead of a run, in several processes; every file that fails is one line of the answer."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

from skidpad.errors import SettingsError, SkidpadError
from skidpad.scenes.index import IndexParams
from skidpad.scenes.map_cache import MapCache


class Preloaded(NamedTuple):
    """One file, and why it is not ready; None where it is."""

    path: Path
    problem: str | None


def preload(cache: MapCache, paths: Sequence[Path], params: IndexParams, *, workers: int = 1) -> list[Preloaded]:
    """Make the scene and the index of every file, in the order of `paths`; a file that fails leaves the others alone.

    workers  processes, started afresh; 1 works in this one

    Raises SettingsError for no worker, or for several and a cache without a folder to share.
    """
    if workers < 1 or (workers > 1 and cache.folder is None):
        raise SettingsError(
            f"preload: {workers} workers. At least one is needed, and several need a cache with a folder."
        )
    if workers == 1 or cache.folder is None:
        return [Preloaded(path, _problem(cache, path, params)) for path in paths]
    folder = cache.folder
    found = _in_processes(folder, list(paths), params, workers)
    # A process that died took the files of its pool with it: each of those is tried once more in one of its own.
    for place, (path, problem) in enumerate(found):
        if problem == _DIED:
            found[place] = _in_processes(folder, [path], params, 1)[0]
    return found


_DIED = "the process that worked on it died"


def _in_processes(folder: Path, paths: list[Path], params: IndexParams, workers: int) -> list[Preloaded]:
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures: list[Future[str | None] | None] = []
        for path in paths:
            try:
                futures.append(pool.submit(prepare, folder, path, params))
            except BrokenProcessPool:
                futures.append(None)
        return [Preloaded(path, _answer(future)) for path, future in zip(paths, futures, strict=True)]


def _answer(future: Future[str | None] | None) -> str | None:
    try:
        return _DIED if future is None else future.result()
    except BrokenProcessPool:
        return _DIED


def prepare(folder: Path, path: Path, params: IndexParams) -> str | None:
    """Make the scene and the index of one file in a folder; the work of one process."""
    with MapCache(folder) as cache:
        return _problem(cache, path, params)


def _problem(cache: MapCache, path: Path, params: IndexParams) -> str | None:
    try:
        cache.index(cache.scene(path), params)
    except (SkidpadError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return None
