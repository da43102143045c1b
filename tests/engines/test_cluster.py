"""Ray as a place to run: tasks come back as from any workers; without Ray nothing is quietly done elsewhere."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skidpad.artifacts.digests import digest_bytes
from skidpad.engines import cluster
from skidpad.engines.engine import Done, Job, PlaceLostError, Task
from skidpad.engines.frames import Inbox
from skidpad.errors import MissingExtraError, UsageError

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


def until_both_answer():
    for number in range(300):  # the second actor starts while the first is busy
        if len(pids) == 2:
            return
        yield Task({"do": "grow", "mib": 0, "seconds": 1.0, "number": number})


engine = Cluster(2, address="local")
try:
    found = run(*[{"do": "well", "number": k, "sizes": [k, 70_000]} for k in range(6)])
    assert [done.fate for done in found] == ["done"] * 6
    assert sorted(done.reply.document["number"] for done in found) == list(range(6))
    assert {len(done.reply.blobs[1]) for done in found} == {70_000}
    pids = {done.reply.document["pid"] for done in found}
    for done in engine.run(work, until_both_answer(), deadline=None, stopped=lambda: False):
        pids.add(done.reply.document["pid"])
    assert len(pids) == 2
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
from skidpad.engines.cluster import Cluster, patient
from skidpad.engines.engine import Job, PlaceLostError, Task

path = Path(sys.argv[1])
work = Job("engine_work:open_work", path, digest_bytes(path.read_bytes()))
with patient():
    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    lost = nodes.add_node(num_cpus=1)
ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
engine = Cluster(2, address=nodes.address)


def run(tasks):
    return engine.run(work, map(Task, tasks), deadline=time.monotonic() + 400, stopped=lambda: False)


def until_it_is_gone():
    for number in range(100):  # as long as the second actor takes to start, and four more when its node is gone
        if gone and number >= gone[0] + 4:
            return
        yield dict(busy, number=number)


busy = {"do": "grow", "mib": 0, "seconds": 3.0}
found, gone = [], []
for done in run(until_it_is_gone()):
    found.append(done)
    if not gone and len({done.reply.document["pid"] for done in found}) == 2:
        nodes.remove_node(lost, allow_graceful=False)
        gone.append(len(found) + 2)
assert gone, "one actor on each node"
assert sorted(done.fate for done in found) == ["died", *["done"] * (len(found) - 1)], found
assert next(done.about for done in found if done.fate == "died")
again = list(run([dict(busy, number=900), dict(busy, number=901)]))
assert [done.fate for done in again] == ["done", "done"], again
ray.shutdown()
try:
    print(list(run([busy])))
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
        env={**os.environ, "PYTHONPATH": paths},
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


def test_a_local_cluster_is_given_time(monkeypatch) -> None:
    """E45: a slow machine is no reason to fail: Ray's own processes may take minutes to start. The environment is as it
    was afterwards, what somebody has set stays, and a start that fails says where to look."""
    seen: list[str | None] = []
    name = next(iter(cluster.PATIENCE))

    class Failing(StandIn):
        __version__ = "2.53.0"

        def is_initialized(self) -> bool:
            return False

        def init(self, **options: Any) -> None:
            assert options["address"] == "local"
            seen.append(os.environ.get(name))
            raise RuntimeError("The current node timed out")

    monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cluster, "require_ray", lambda: None)
    monkeypatch.setitem(sys.modules, "ray", Failing(1, set()))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"Ray 2\.53\.0 did not start .*timed out.*session_latest/logs"):
        cluster.Cluster(1, address="local")
    assert seen == ["600000"]
    assert name not in os.environ
    monkeypatch.setenv(name, "5")
    with pytest.raises(UsageError):
        cluster.Cluster(1, address="local")
    assert seen[1] == os.environ[name] == "5"


def test_without_ray_it_says_so(monkeypatch) -> None:
    """E45, F8: missing Ray is one sentence that ends in the command, never a run on this machine."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'skidpad\[cluster\]'$"):
        cluster.Cluster(2, address="local")


class Reference:
    """What an actor has been asked: known when the actor has room."""

    def __init__(self, actor: Actor, answer: Callable[[], Any]) -> None:
        self.actor, self.answer = actor, answer


class Actor:
    """A worker on a node of the stand-in: its methods are called when their answers are fetched."""

    def __init__(self, ray: StandIn) -> None:
        self.ray, self.served, self.dead = ray, cluster.Served(), False
        self.hello = self.answer = self
        ray.actors.append(self)

    def remote(self, *arguments: Any) -> Reference:
        if not arguments:
            return Reference(self, self.served.hello)
        inbox = Inbox()
        inbox.add(arguments[-1])
        message = inbox.take()
        assert message is not None
        return Reference(self, partial(self._answered, message.document["number"], arguments))

    def _answered(self, number: int, arguments: Any) -> bytes:
        if number in self.ray.lost_at:
            self.dead, self.ray.room = True, self.ray.room - 1
            raise self.ray.exceptions.ActorDiedError("The actor died because its node has died.")
        self.ray.ran.append(number)
        return self.served.answer(*arguments)


class StandIn:
    """Ray as far as `Cluster` knows it: `room` actors at once, the nodes of tasks in `lost_at` go with them, and after
    `answers` answers nothing is there any more."""

    class exceptions:
        class RayError(Exception): ...

        class ActorDiedError(RayError): ...

    def __init__(self, room: int, lost_at: set[int], answers: int = 1000) -> None:
        self.room, self.lost_at, self.answers = room, lost_at, answers
        self.actors: list[Actor] = []
        self.ran: list[int] = []

    def is_initialized(self) -> bool:
        return True

    def remote(self, kind: type) -> Any:
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=lambda: Actor(self)))

    def put(self, data: bytes) -> bytes:
        return data

    def wait(self, references: list[Reference], num_returns: int, timeout: float) -> Any:
        if self.answers <= 0:
            raise self.exceptions.RayError("GCS is gone")
        there = [actor for actor in self.actors if not actor.dead][: self.room]
        ready = [one for one in references if one.actor in there]
        if not ready:
            time.sleep(min(timeout, 0.05))
        self.answers -= 1
        return ready[:1], []

    def get(self, reference: Reference) -> Any:
        return reference.answer()

    def kill(self, actor: Actor, no_restart: bool) -> None:
        actor.dead = True


@pytest.fixture
def stand_in(monkeypatch, tmp_path: Path):
    """stand_in(room, lost_at, answers): the stand-in, and a function that runs tasks of these numbers on it."""

    def made(room: int, lost_at: set[int], answers: int = 1000) -> Any:
        ray = StandIn(room, lost_at, answers)
        monkeypatch.setattr(cluster, "require_ray", lambda: None)
        monkeypatch.setitem(sys.modules, "ray", ray)  # type: ignore[arg-type]
        handover = tmp_path / "handover.json"
        handover.write_text("{}")
        work = Job("engine_work:open_work", handover, digest_bytes(b"{}"))
        engine = cluster.Cluster(2, address="there")

        def run(*numbers: int) -> list[Done]:
            tasks = (Task({"do": "well", "number": number}) for number in numbers)
            return list(engine.run(work, tasks, deadline=time.monotonic() + 60, stopped=lambda: False))

        return ray, engine, run

    return made


def test_no_task_waits_for_a_node_without_room(stand_in) -> None:
    """E45, EF32: where only one of two actors has room, it does all the work; nothing is bound to the other. A node
    that goes costs its task, and what is left runs where there is room, in this run and the next."""
    ray, engine, run = stand_in(1, set())
    assert [done.fate for done in run(0, 1, 2, 3)] == ["done"] * 4
    assert ray.ran == [0, 1, 2, 3]
    engine.close()
    assert all(actor.dead for actor in ray.actors)
    ray, engine, run = stand_in(2, {1})
    found = run(0, 1, 2, 3, 4)
    assert sorted((done.task.document["number"], done.fate) for done in found) == [
        (0, "done"), (1, "died"), (2, "done"), (3, "done"), (4, "done"),
    ]  # fmt: skip
    assert "node has died" in next(done.about for done in found if done.fate == "died")
    ray.lost_at.clear()
    assert [done.fate for done in run(1)] == ["done"]
    engine.close()


def test_a_cluster_that_is_gone_is_an_error_in_a_sentence(stand_in) -> None:
    """F38: what was done stays; then PlaceLostError, which ends the pass and not the run."""
    ray, engine, run = stand_in(2, set(), answers=4)
    with pytest.raises(PlaceLostError, match=r"does not answer any more \(GCS is gone\)"):
        run(*range(9))
    assert ray.ran
    engine.close()


def test_a_port_where_nobody_listens_is_said_at_once(monkeypatch) -> None:
    """E45: Ray asks a dead address for many minutes; a usage error that names it comes first. What is no host and port
    is Ray's to find."""
    monkeypatch.setattr(cluster, "require_ray", lambda: None)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=None))
    with pytest.raises(UsageError, match=r"no Ray cluster answers at '127\.0\.0\.1:9' \(.*refused"):
        cluster.Cluster(1, address="127.0.0.1:9")
    for address in ("auto", "local", "ray://head:10001"):
        cluster.look_for(address)
