"""What this machine can do just now: plain loops whose times every other figure is read against.

Machines differ and are shared, so an absolute time says little. A ratio to a copy loop that ran in the same process
travels; when the loops before and after a measurement disagree, the measurement is marked unreliable.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from skidpad.runs.manifest import environment

REUSED_BYTES = 4 << 20
RING_BYTES = 256 << 20
DRIFT_LIMIT = 0.15


def cpu_seconds(work: Callable[[], object], repeats: int) -> list[float]:
    """CPU seconds of this thread for each repeat of some work."""
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return times


def spread(times: list[float]) -> dict[str, float]:
    """Minimum and median of some times."""
    return {"min": min(times), "median": float(np.median(times))}


def calibrate(repeats: int = 9) -> dict[str, float]:
    """Bytes per CPU second of fill and copy loops: within the cache, and streaming through a ring of 256 MiB."""
    source = np.ones(REUSED_BYTES // 4, np.float32)
    target = np.empty_like(source)
    ring = np.empty((RING_BYTES // REUSED_BYTES, len(source)), np.float32)
    ring[:] = 0.0  # pages are touched before they are timed

    def ring_copy() -> None:
        for row in ring:
            np.copyto(row, source)

    loops: dict[str, tuple[Callable[[], object], int]] = {
        "fill_reused": (lambda: target.fill(1.0), REUSED_BYTES),
        "copy_reused": (lambda: np.copyto(target, source), REUSED_BYTES),
        "copy_ring": (ring_copy, RING_BYTES),
    }
    return {
        name: size / max(min(cpu_seconds(loop, repeats if size == REUSED_BYTES else 3)), 1e-9)
        for name, (loop, size) in loops.items()
    }


def drift(before: dict[str, float], after: dict[str, float]) -> float:
    """Largest relative change between two calibrations."""
    return max(abs(after[name] / before[name] - 1.0) for name in before)


def machine() -> dict[str, Any]:
    """Which machine, how busy, which versions."""
    return {**environment(threads=1), "load": list(os.getloadavg())}
