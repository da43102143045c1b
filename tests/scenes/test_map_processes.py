"""One map cache under several processes: shared pages, one build, no damage by a kill (S25, S27, S31)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import cache_processes
import pytest
from cache_processes import LARGE, NAME, PARAMS, read_through
from commonroad_files import SMALL_2018, SMALL_2020

from skidpad.bench.memory import mapped
from skidpad.errors import SettingsError
from skidpad.scenes import preload as preloading
from skidpad.scenes.archive import save_scene
from skidpad.scenes.index import build_index
from skidpad.scenes.index_file import index_bytes, index_key
from skidpad.scenes.map_cache import MapCache
from skidpad.scenes.preload import Preloaded, preload
from skidpad.scenes.synthetic import synthetic

SPAWN = multiprocessing.get_context("spawn")
NEEDS_PSS = pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="no proportional set sizes here")


@pytest.fixture(scope="module")
def scene():
    return synthetic(NAME, traffic=False)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "maps"


def started(target, *arguments, count=1):
    """Processes that run a function of `cache_processes`."""
    processes = [SPAWN.Process(target=target, args=arguments) for _ in range(count)]
    for process in processes:
        process.start()
    return processes


def ended(processes):
    """Exit codes, once all have ended."""
    for process in processes:
        process.join(timeout=120)
    return [process.exitcode for process in processes]


@pytest.mark.slow
def test_eight_processes_build_once(scene, folder):
    """S27: a cold cache and eight that ask at once: one builds, the others wait and map what it made."""
    barrier, answers = SPAWN.Barrier(8), SPAWN.Queue()
    processes = started(cache_processes.race, folder, barrier, answers, count=8)
    found = [answers.get(timeout=120) for _ in range(8)]
    assert ended(processes) == [0] * 8
    assert {total for total, *_ in found} == {read_through(build_index(scene, PARAMS))}
    assert sum(builds for _, builds, _, _ in found) == 1
    assert all(hits + misses == 1 for _, _, hits, misses in found)
    assert [path.name for path in folder.iterdir() if ".tmp-" in path.name] == []


@pytest.mark.slow
@NEEDS_PSS
def test_spawned_processes_map_the_same_pages(scene, folder):
    """S25: each of four spawned processes adds less than 2 % of the map to the sum of proportional set sizes, and no
    copy of it to its own memory."""
    with MapCache(folder) as cache:
        index = cache.index(scene, LARGE)
        barrier, answers = SPAWN.Barrier(5), SPAWN.Queue()
        processes = started(cache_processes.share, folder, barrier, answers, count=4)
        barrier.wait(timeout=120)
        read_through(index)
        alone = mapped(folder)
        # The others have mapped, not yet read: pages count for those who have them.
        barrier.wait(timeout=120)
        barrier.wait(timeout=120)
        found = [answers.get(timeout=120) for _ in range(4)]
        together = mapped(folder).proportional + sum(size for size, _, _ in found)
        barrier.wait(timeout=120)
    assert ended(processes) == [0] * 4
    assert alone.resident >= index.nbytes > 4 << 20
    assert together - alone.resident < 4 * 0.02 * index.nbytes
    assert max(own for _, own, _ in found) < 0.5 * index.nbytes
    assert sum(builds for _, _, builds in found) == 0


def test_a_killed_builder_leaves_no_damage(scene, folder):
    """S27: kill -9 in the middle of a build, with a torn file beside: the next one neither waits for ever nor reads
    it."""
    ready = SPAWN.Event()
    (process,) = started(cache_processes.stall, folder, ready)
    assert ready.wait(timeout=120)
    os.kill(process.pid, signal.SIGKILL)
    assert ended([process]) == [-signal.SIGKILL]
    name = f"{index_key(scene.map_digest, PARAMS)}.index"
    (folder / f"{name}.tmp-1-abcd").write_bytes(index_bytes(build_index(scene, PARAMS))[:1000])
    with MapCache(folder) as cache:
        cache.index(scene, PARAMS)
        assert cache.stats.builds == 1
        assert cache.stats.size == 1
    assert {path.name for path in folder.iterdir() if not path.name.startswith("lock-")} == {name}


def test_what_another_process_has_mapped_stays_on_the_disk(scene, folder):
    """S27: the bound on the disk looks at all processes, not at what this one knows; the lock goes with the view."""
    ready, leave = SPAWN.Event(), SPAWN.Event()
    (process,) = started(cache_processes.hold, folder, ready, leave)
    assert ready.wait(timeout=120)
    path = folder / f"{index_key(scene.map_digest, PARAMS)}.index"
    small = synthetic("straight", traffic=False)
    with MapCache(folder, max_disk_mib=1e-6) as cache:
        cache.index(small, PARAMS)
        assert path.exists()
        leave.set()
        assert ended([process]) == [0]
        cache.index(synthetic("curve", traffic=False), PARAMS)
        assert not path.exists()


def test_old_temporary_files_are_taken_away(scene, folder):
    """S27: a writer killed an hour ago left a temporary file of a name nobody asks for again; one at work keeps its."""
    folder.mkdir(mode=0o700)
    old, new = folder / "0.index.tmp-1-aa", folder / "1.index.tmp-1-bb"
    for path in (old, new):
        path.write_bytes(b"x")
    hours_ago = time.time() - 7200
    os.utime(old, (hours_ago, hours_ago))
    with MapCache(folder) as cache:
        cache.index(scene, PARAMS)
    assert not old.exists()
    assert new.exists()


@pytest.mark.skipif(os.name != "posix", reason="memory protection is asked of POSIX systems")
def test_a_write_into_a_mapping_faults(folder):
    """S31: not even a kernel with a wild index can change a map for everybody else: the processor refuses."""
    before = synthetic(NAME, traffic=False)
    with MapCache(folder) as cache:
        cache.index(before, PARAMS)
    (path,) = folder.glob("*.index")
    data = path.read_bytes()
    assert ended(started(cache_processes.write_into, folder)) == [-signal.SIGSEGV]
    assert path.read_bytes() == data


# ----------------------------------------------------------------------------------------------------- preload, S31


@pytest.fixture
def files(tmp_path, scene):
    """Two that are read, one that is broken, one that is absent, and one that is read."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "one.xml").write_text(SMALL_2018)
    (sources / "two.xml").write_text(SMALL_2020)
    (sources / "broken.xml").write_text(SMALL_2018[:300])
    save_scene(scene, sources / "a.scene")
    return [sources / name for name in ("one.xml", "broken.xml", "two.xml", "absent.xml", "a.scene")]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_preload_reports_failures_one_by_one(folder, files, workers):
    """S31: a bad file among good ones is one line; the good ones are there afterwards, whoever made them."""
    with MapCache(folder) as cache:
        found = preload(cache, files, PARAMS, workers=workers)
        assert [item.path for item in found] == files
        assert [item.problem is None for item in found] == [True, False, True, False, True]
        assert "broken.xml" in found[1].problem
        assert found[3].problem.startswith("FileNotFoundError")
        good = [files[0], files[2], files[4]]
        built = cache.stats.builds
        for path in good:
            cache.index(cache.scene(path), PARAMS)
        assert cache.stats.builds == built == (3 if workers == 1 else 0)
        assert cache.stats.size == 5  # three indexes, and the archives of two parsed files


@pytest.mark.slow
def test_a_process_that_dies_fails_its_own_file_only(folder, files, monkeypatch):
    """S31: a file that takes its process with it (out of memory) is reported, and the pool's other files are done."""
    files[1] = files[1].with_name("deadly.xml")
    monkeypatch.setattr(preloading, "prepare", cache_processes.die_on_request)
    with MapCache(folder) as cache:
        found = preload(cache, files, PARAMS, workers=2)
    assert [item.problem is None for item in found] == [True, False, True, False, True]
    assert found[1] == Preloaded(files[1], "the process that worked on it died")


def test_preload_needs_workers_and_a_folder(folder):
    """Several processes cannot fill a cache that lies in the memory of one."""
    for cache, workers in ((MapCache(folder), 0), (MapCache(None), 2)):
        with pytest.raises(SettingsError, match="workers"):
            preload(cache, [], PARAMS, workers=workers)
