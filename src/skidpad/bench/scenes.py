"""`skidpad bench scenes`: how long a file takes to become a scene, and its archive to open and to be hashed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skidpad.artifacts.files import replace
from skidpad.bench.calibration import DRIFT_LIMIT, calibrate, cpu_seconds, drift, machine, spread
from skidpad.scenes.archive import load_scene, scene_bytes
from skidpad.scenes.formats import read_scene
from skidpad.scenes.library import library_scenes

SCHEMA = "skidpad.bench.scenes/1"


def bench_scenes(files: Sequence[Path] = (), *, quick: bool = False) -> dict[str, Any]:
    """Measure some files, the bundled archives if none are named; returns what `--json` prints.

    convert_s   [s]   CPU, reading a file with its reader and encoding the archive
    load_ms     [ms]  CPU, opening the archive, known to this process (median)

    Raises as `read_scene`.
    """
    before = calibrate()
    repeats = 3 if quick else 15
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "bench.scene"
        for path in files or library_scenes():
            converted = cpu_seconds(lambda path=path: replace(archive, scene_bytes(read_scene(path))), 1)  # type: ignore[misc]
            scene = load_scene(archive)
            opened = cpu_seconds(lambda: load_scene(archive), repeats)
            checked = cpu_seconds(lambda: load_scene(archive, verify="full"), repeats)
            rows.append(
                {
                    "file": path.name,
                    "scene": scene.meta.scene_id,
                    "bytes": archive.stat().st_size,
                    "points": len(scene.road.xyz),
                    "lanes": scene.road.lane_count,
                    "tracks": scene.tracks.count,
                    "convert_s": converted[0],
                    "load_ms": 1e3 * spread(opened)["median"],
                    "open_cpu_seconds": spread(opened),
                    "open_and_hash_cpu_seconds": spread(checked),
                }
            )
    after = calibrate()
    return {
        "schema": SCHEMA,
        "machine": machine(),
        "calibration": {"before": before, "after": after, "reliable": drift(before, after) <= DRIFT_LIMIT},
        "scenes": rows,
    }
