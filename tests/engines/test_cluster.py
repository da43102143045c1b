"""Ray as a place to run: tasks come back as from any workers; without Ray nothing is quietly done elsewhere."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from skidpad.engines import cluster
from skidpad.errors import MissingExtraError

WORK = """
import sys, time
from pathlib import Path
from skidpad.artifacts.digests import digest_bytes
from skidpad.engines.cluster import Cluster
from skidpad.engines.engine import Job, Task

path = Path(sys.argv[1])
work = Job("engine_work:open_work", path, digest_bytes(path.read_bytes()))


def run(*tasks, seconds=None):
    deadline = None if seconds is None else time.monotonic() + seconds
    given = (Task(task) for task in tasks)
    return sorted(engine.run(work, given, deadline=deadline, stopped=lambda: False), key=lambda done: done.fate)


engine = Cluster(2, address="local")
try:
    found = run(*[{"do": "well", "number": k, "sizes": [k, 70_000]} for k in range(6)])
    assert [done.fate for done in found] == ["done"] * 6
    assert sorted(done.reply.document["number"] for done in found) == list(range(6))
    assert {len(done.reply.blobs[1]) for done in found} == {70_000}
    assert len({done.reply.document["pid"] for done in found}) == 2
    lost = run({"do": "die"}, {"do": "well"}, {"do": "raise"}, {"do": "well"})
    assert [done.fate for done in lost] == ["died", "done", "done", "raised"], lost
    assert lost[0].about
    assert lost[3].reply.document["type"] == "KeyError"
    late = run({"do": "well"}, {"do": "hang"}, seconds=8.0)
    assert [done.fate for done in late] == ["done", "timeout"], late
    assert [done.fate for done in run({"do": "well"})] == ["done"]
finally:
    engine.close()
print("all well")
"""


def ray_or_skip() -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'skidpad[cluster]'")


@pytest.mark.slow
def test_tasks_on_a_local_cluster(tmp_path: Path) -> None:
    """E45, F38: on two processes of a cluster started here, tasks, deaths, errors and timeouts come back as from a
    pool. In an interpreter of its own: Ray starts threads and warns of things that are not ours."""
    ray_or_skip()
    handover = tmp_path / "handover.json"
    handover.write_text('{"pass": 1}')
    paths = os.pathsep.join([str(Path(__file__).parent), *(path for path in sys.path if path)])
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(handover)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("all well\n")


def test_without_ray_it_says_so(monkeypatch) -> None:
    """E45, F8: missing Ray is one sentence that ends in the command, never a run on this machine."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'skidpad\[cluster\]'$"):
        cluster.Cluster(2, address="local")
