"""What processes of the tests in `test_map_processes.py` do; each is started afresh with spawn."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from skidpad.bench.memory import mapped, own_bytes
from skidpad.scenes import map_cache, preload
from skidpad.scenes.index import IndexParams, RowParams, build_index
from skidpad.scenes.map_cache import MapCache
from skidpad.scenes.synthetic import synthetic

PARAMS = IndexParams()
NAME = "roundabout"
# Some 8 MB, so that a copy of it would stand out from what a process allocates besides.
LARGE = IndexParams(list_cell=5.0, sectors=16, rows=(RowParams(slots=200),))


def read_through(index):
    """A sum over every byte of an index, so that every page is there."""
    return sum(int(array.view("u1").sum()) for array in index.arrays)


def race(folder, barrier, answers):
    """Ask for an index at the same time as everybody else."""
    scene = synthetic(NAME, traffic=False)
    with MapCache(folder) as cache:
        barrier.wait(timeout=120)
        total = read_through(cache.index(scene, PARAMS))
        stats = cache.stats
    answers.put((total, stats.builds, stats.hits, stats.misses))


def share(folder, barrier, answers):
    """Map an index and read all of it; say what that takes while everybody holds it."""
    scene = synthetic(NAME, traffic=False)
    with MapCache(folder) as cache:
        cache.index(scene, LARGE)
    before = own_bytes()
    with MapCache(folder) as cache:
        index = cache.index(scene, LARGE)
        barrier.wait(timeout=120)  # the test holds the map alone
        barrier.wait(timeout=120)
        read_through(index)
        barrier.wait(timeout=120)
        answers.put((mapped(folder).proportional, own_bytes() - before, cache.stats.builds))
        barrier.wait(timeout=120)


def hold(folder, ready, leave):
    """Keep an index mapped until told."""
    with MapCache(folder) as cache:
        index = cache.index(synthetic(NAME, traffic=False), PARAMS)
        cache.close()
        ready.set()
        leave.wait(timeout=120)
        del index


def stall(folder, ready):
    """Begin a build and never end it, with half a file written."""

    def never(*arguments):
        build_index(*arguments)
        ready.set()
        time.sleep(600)

    map_cache.build_index = never
    folder.mkdir(mode=0o700, exist_ok=True)
    MapCache(folder).index(synthetic(NAME, traffic=False), PARAMS)


def die_on_request(folder, path, params):
    """In place of `preload.prepare`: a file named so kills its process, as running out of memory would."""
    if Path(path).name == "deadly.xml":
        os.kill(os.getpid(), signal.SIGKILL)
    with MapCache(folder) as cache:
        return preload._problem(cache, path, params)


def write_into(folder):
    """Write one byte into a mapped index behind NumPy's back."""
    import ctypes

    index = MapCache(folder).index(synthetic(NAME, traffic=False), PARAMS)
    ctypes.memset(index.points.ctypes.data, 1, 1)
