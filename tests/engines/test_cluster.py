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

PATIENT = {"RAY_raylet_start_wait_time_s": "300", "RAY_agent_register_timeout_ms": "300000"}
"""Ray gives its own processes half a minute to start, which is too little for a machine that does other things."""
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


NODES = """
import sys, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster as Nodes
from skidpad.artifacts.digests import digest_bytes
from skidpad.engines.cluster import Cluster
from skidpad.engines.engine import Job, PlaceLostError, Task

path = Path(sys.argv[1])
work = Job("engine_work:open_work", path, digest_bytes(path.read_bytes()))
nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
lost = nodes.add_node(num_cpus=1)
ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
engine = Cluster(2, address=nodes.address)


def run(*tasks):
    return engine.run(work, map(Task, tasks), deadline=time.monotonic() + 200, stopped=lambda: False)


busy = {"do": "grow", "mib": 0, "seconds": 4.0}
found = []
for done in run(*[dict(busy, number=k) for k in range(6)]):
    found.append(done)
    if len(found) == 2:
        assert len({done.reply.document["pid"] for done in found}) == 2, "one actor on each node"
        nodes.remove_node(lost, allow_graceful=False)
assert sorted(done.fate for done in found) == ["died", *["done"] * 5], found
assert "node" in next(done.about for done in found if done.fate == "died")
again = list(run(dict(busy, number=9), dict(busy, number=10)))
assert [done.fate for done in again] == ["done", "done"], again
ray.shutdown()
try:
    print(list(run(busy)))
except PlaceLostError as error:
    assert "does not answer any more" in str(error)
    print("all well")
"""


def ray_or_skip() -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'skidpad[cluster]'")


def run_script(text: str, folder: Path) -> None:
    """Run it in an interpreter of its own."""
    handover = folder / "handover.json"
    handover.write_text('{"pass": 1}')
    paths = os.pathsep.join([str(Path(__file__).parent), *(path for path in sys.path if path)])
    done = subprocess.run(
        [sys.executable, "-c", text, str(handover)],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "PYTHONPATH": paths, **PATIENT},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("all well\n")


@pytest.mark.slow
def test_tasks_on_a_local_cluster(tmp_path: Path) -> None:
    """E45, F38: on two processes of a cluster started here, tasks, deaths, errors and timeouts come back as from a
    pool. In an interpreter of its own: Ray starts threads and warns of things that are not ours."""
    ray_or_skip()
    run_script(WORK, tmp_path)


@pytest.mark.slow
def test_a_node_that_is_lost(tmp_path: Path) -> None:
    """E45, F38, EF32: of two nodes one goes in the middle: its task has died, the others are done where there is room,
    and so is what is tried again; nothing waits for the node. A cluster that is gone is an error in a sentence."""
    ray_or_skip()
    run_script(NODES, tmp_path)


def test_without_ray_it_says_so(monkeypatch) -> None:
    """E45, F8: missing Ray is one sentence that ends in the command, never a run on this machine."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'skidpad\[cluster\]'$"):
        cluster.Cluster(2, address="local")
