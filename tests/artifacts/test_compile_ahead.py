"""Compiling ahead changes when kernels are compiled, and never what they compute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CODE = """
import numpy as np
from skidpad.artifacts.compile_ahead import compile_ahead, listening
from skidpad.simulation.kernels.trig import arctan2, sincos
heard = []
one, two = np.float32(1.0), np.float32(2.0)
with listening(lambda done, total: heard.append((done, total))):
    compile_ahead([(sincos, (one,)), (arctan2, (one, two))])
    compile_ahead([(sincos, (one,)), (arctan2, (one, two))])
values = [float(v) for v in (*sincos(one), arctan2(one, two))]
hits = 0 if not hasattr(sincos, "stats") else sum(sum(k.stats.cache_hits.values()) for k in (sincos, arctan2))
print(heard, hits, values)
"""


def ran(cache: Path, **environment: str) -> tuple[str, str, str]:
    """Heard, cache hits and values of CODE in a new process with its own kernel cache."""
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(cache), **environment},
    )
    assert done.returncode == 0, done.stderr
    heard, _, rest = done.stdout.strip().partition("] ")
    hits, _, values = rest.partition(" ")
    return heard + "]", hits, values


def test_kernels_are_found_in_the_cache(tmp_path: Path) -> None:
    """Both kernels come from the cache that two other processes filled; a second call, and a second run, find nothing
    to do. If the types that are sent did not match those of the call, the work would be done twice."""
    heard, hits, values = ran(tmp_path)
    if (os.cpu_count() or 1) > 1:
        assert heard.startswith("[(0, 2)")
        assert heard.endswith("(2, 2)]")
        assert heard.count("(0, 2)") == 1
        assert hits == "2"
    again, hits, same = ran(tmp_path)
    assert again == "[]"
    assert hits == "2"
    assert same == values


def test_without_the_compiler_nothing_happens(tmp_path: Path) -> None:
    """Under NUMBA_DISABLE_JIT kernels are plain functions: nothing is compiled, values are the same to float32."""
    heard, hits, values = ran(tmp_path, NUMBA_DISABLE_JIT="1")
    assert heard == "[]"
    assert hits == "0"
    compiled = ran(tmp_path)[2]
    for a, b in zip(eval(values), eval(compiled), strict=True):
        assert abs(a - b) < 1e-6
