"""`skidpad bench sealed` prints every row that has a target."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_every_row_is_there() -> None:
    """M91: each operation with a target is in the figures, with both calibrations; no time is asserted."""
    done = subprocess.run(
        [sys.executable, "-m", "skidpad", "bench", "sealed", "--quick", "--json"],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    figures = json.loads(done.stdout)
    assert figures["schema"] == "skidpad.bench.sealed/1"
    assert set(figures["calibration"]) == {"before", "after", "reliable"}
    rows = {"fuse_ms", "render_ms", "rays_per_cpu_second", "seal_hash_ms", "unet_ms", "room_frame_ms", "episode_s"}
    assert all(figures[row] > 0 for row in rows | {"provenance_s", "harmonic_ms"})
    assert set(figures["render_ms_by_samples"]) == {"16", "64", "96"}
