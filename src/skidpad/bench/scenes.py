"""`skidpad bench scenes`: how long a bundled archive takes to open, to be read through, and to be indexed."""

from __future__ import annotations

from typing import Any

from skidpad.bench.calibration import DRIFT_LIMIT, calibrate, cpu_seconds, drift, machine, spread
from skidpad.scenes.archive import load_scene
from skidpad.scenes.library import library_scenes

SCHEMA = "skidpad.bench.scenes/1"


def bench_scenes(*, quick: bool = False) -> dict[str, Any]:
    """Measure every bundled scene; returns what `--json` prints."""
    before = calibrate()
    repeats = 3 if quick else 15
    rows = []
    for path in library_scenes():
        scene = load_scene(path)
        opened = cpu_seconds(lambda path=path: load_scene(path), repeats)  # type: ignore[misc]
        checked = cpu_seconds(lambda path=path: load_scene(path, verify="full"), repeats)  # type: ignore[misc]
        rows.append(
            {
                "scene": scene.meta.scene_id,
                "bytes": path.stat().st_size,
                "points": len(scene.road.xyz),
                "lanes": scene.road.lane_count,
                "tracks": scene.tracks.count,
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
