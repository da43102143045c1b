"""`skidpad bench cache`: what many worlds on one map cost, what a second process adds, and how fast a map is opened.

Maps are prepared in a folder of their own, so that building is measured too. Memory is asked of the operating system:
the proportional set size of the mapped files, and what processes hold besides. Figures the system does not give are
null.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from skidpad.bench.calibration import DRIFT_LIMIT, calibrate, cpu_seconds, drift, machine, spread
from skidpad.bench.memory import mapped, own_bytes
from skidpad.scenes.case import Case
from skidpad.scenes.index import MapIndex
from skidpad.scenes.library import library_scenes
from skidpad.scenes.map_cache import MapCache
from skidpad.scenes.scene import Scene
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.simulator import Simulator
from skidpad.simulation.stage import index_params

SCHEMA = "skidpad.bench.cache/1"
TOWN, TRAFFIC = "Town03", "USA_US101-3_1_T-1"
WORLDS = 1000
OTHER_PROCESS = "import sys; from skidpad.bench.cache import other_process; other_process(sys.argv[1])"


def bench_cache(*, quick: bool = False) -> dict[str, Any]:
    """Measure the map cache; returns what `--json` prints. Times are CPU time of one thread."""
    before = calibrate()
    repeats = 5 if quick else 25
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "maps"
        figures = {**opening(folder, repeats), **second_process(folder), **many_worlds(folder, repeats)}
    after = calibrate()
    return {
        "schema": SCHEMA,
        "machine": machine(),
        "calibration": {"before": before, "after": after, "reliable": drift(before, after) <= DRIFT_LIMIT},
        "threads": 1,
        **figures,
    }


def prepared(cache: MapCache, name: str) -> tuple[Scene, MapIndex]:
    """A bundled scene and its index under the default settings."""
    scene = cache.scene(library_scenes(name)[0])
    return scene, cache.index(scene, index_params(EnvSettings()))


def opening(folder: Path, repeats: int) -> dict[str, Any]:
    """How long the largest bundled map takes to build, and to open when it was built before: known to this process,
    and with every byte hashed as at the first time."""

    def open_once(verify: Any) -> None:
        with MapCache(folder, verify=verify) as cache:
            prepared(cache, TOWN)

    with MapCache(folder) as cache:
        scene, index = prepared(cache, TOWN)
        built = cache.stats.build_seconds
        map_bytes = cache.stats.bytes
        again = cpu_seconds(lambda: prepared(cache, TOWN), repeats)
    known = cpu_seconds(lambda: open_once("lazy"), repeats)
    hashed = cpu_seconds(lambda: open_once("full"), repeats)
    return {
        "map": TOWN,
        "points": len(scene.road.xyz),
        "map_bytes": map_bytes,
        "lists": index.lists,
        "build_ms": 1e3 * built,
        "open_cached_ms": 1e3 * spread(known)["median"],
        "open_hashed_ms": 1e3 * spread(hashed)["median"],
        "open_mapped_ms": 1e3 * spread(again)["median"],
    }


def second_process(folder: Path) -> dict[str, Any]:
    """What a second process adds that opens the same map and reads all of it: share of the map's bytes in the sum of
    proportional set sizes, and in its own memory."""
    with MapCache(folder) as cache:
        _, index = prepared(cache, TOWN)
        read_through(index)
        alone = mapped(folder)
        with subprocess.Popen(
            [sys.executable, "-c", OTHER_PROCESS, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            line = other.stdout.readline()
            together = mapped(folder)
            other.communicate("done\n")
    if other.returncode != 0:
        raise RuntimeError(f"the second process ended with {other.returncode}")
    theirs = json.loads(line)
    if alone is None or together is None:
        return {"second_process_share": None, "second_process_own_bytes": None}
    added = together.proportional + theirs["proportional"] - alone.proportional
    return {"second_process_share": added / index.nbytes, "second_process_own_bytes": theirs["own"]}


def read_through(index: MapIndex) -> None:
    """Touch every page of an index."""
    for array in index.arrays:
        np.bitwise_xor.reduce(array.view(np.uint8), axis=None)


def other_process(folder: str) -> None:
    """What the second process does: open, read, say what it has, and wait for a line."""
    with MapCache(Path(folder)) as cache:
        prepared(cache, TOWN)  # imports and hashing are over
    own = own_bytes()
    with MapCache(Path(folder)) as cache:
        _, index = prepared(cache, TOWN)
        read_through(index)
        pages, after = mapped(Path(folder)), own_bytes()
        answer = {
            "proportional": pages and pages.proportional,
            "own": None if after is None or own is None else after - own,
        }
        print(json.dumps(answer), flush=True)
        sys.stdin.readline()


def many_worlds(folder: Path, repeats: int) -> dict[str, Any]:
    """Map memory of 1,000 worlds on one scene against one world, memory of a world besides, and resets."""
    with MapCache(folder) as cache:
        scene, _ = prepared(cache, TRAFFIC)

        def stepped(worlds: int) -> Simulator:
            cases = [Case(scene.digest, scene.meta.scene_id, 0, replicate) for replicate in range(worlds)]
            simulator = Simulator(cases, EnvSettings(), scenes={scene.digest: scene}, cache=cache)
            simulator.reset()
            simulator.step(np.zeros((len(simulator.row_world), 2), np.float32))
            return simulator

        one = stepped(1)
        reset = cpu_seconds(one.reset, repeats)
        few, own = mapped(folder), own_bytes()
        many = stepped(WORLDS)
        lots, grown = mapped(folder), own_bytes()
        observations = many.result.obs.nbytes
        resets = cpu_seconds(many.reset, 2)
        one.close()
        many.close()
    ratio = per_world = None
    if few is not None and lots is not None and own is not None and grown is not None:
        ratio = lots.proportional / few.proportional
        per_world = (grown - own - observations) / WORLDS / 1024
    return {
        "traffic": TRAFFIC,
        "worlds": WORLDS,
        "agents_per_world": scene.tracks.count,
        "map_bytes_ratio_1000_worlds": ratio,
        "kib_per_world": per_world,
        "reset_world_ms": 1e3 * spread(reset)["median"],
        "reset_world_of_1000_ms": 1e3 * min(resets) / WORLDS,
    }
