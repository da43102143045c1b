"""Worker processes: every task comes back once, whatever its worker does, and nothing of a worker is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import engine_work
import pytest

from skidpad.artifacts.digests import digest_bytes
from skidpad.engines import processes
from skidpad.engines.engine import Done, Engine, Job, Task
from skidpad.engines.frames import Inbox, encoded
from skidpad.engines.inline import Inline
from skidpad.engines.processes import Processes


def job(folder: Path, text: str = '{"pass": 1}') -> Job:
    path = folder / f"handover-{digest_bytes(text.encode())[:8]}.json"
    path.write_text(text)
    return Job("engine_work:open_work", path, digest_bytes(text.encode()))


def run(
    engine: Engine, work: Job, *tasks: dict[str, Any], seconds: float | None = None, stopped: Any = None
) -> list[Done]:
    deadline = None if seconds is None else time.monotonic() + seconds
    given = (Task(task) for task in tasks)
    return list(engine.run(work, given, deadline=deadline, stopped=stopped or (lambda: False)))


@pytest.fixture
def pool() -> Iterator[Processes]:
    made = Processes(2, keep=True)
    yield made
    made.close()


def is_there(pid: int) -> bool:
    """A process that has ended but was not collected, as in a container without init, is not there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    """Whether a process ends within some seconds."""
    for _ in range(400):
        if not is_there(pid):
            return True
        time.sleep(0.02)
    return False


def test_every_task_comes_back_once(pool, tmp_path: Path, capfd) -> None:
    """E36, E43: what workers answer is what would have been answered here; the workers of a pool stay, and what their
    work prints does not end up on standard output."""
    tasks = [{"do": "well", "number": k, "sizes": [k, 0, 70_000]} for k in range(7)] + [{"do": "print", "number": 7}]
    first = run(pool, job(tmp_path), *tasks)
    here = run(Inline(engine_work.open_work(b'{"pass": 1}')), job(tmp_path), *tasks)
    assert sorted(done.reply.document["number"] for done in first) == list(range(8))
    known = {done.task.document["number"]: done.reply for done in here}
    for done in first:
        assert done.fate == "done"
        assert done.reply.blobs == known[done.task.document["number"]].blobs
        assert done.reply.document["handover"] == {"pass": 1}
    second = run(pool, job(tmp_path, '{"pass": 2}'), *tasks)
    assert {done.reply.document["handover"]["pass"] for done in second} == {2}
    pids = {done.reply.document["pid"] for done in first}
    assert {done.reply.document["pid"] for done in second} <= pids
    assert os.getpid() not in pids
    assert capfd.readouterr().out == "a driver that prints\n"  # the one that ran here
    pool.close()
    assert all(gone(pid) for pid in pids)


def test_what_a_task_raises_is_its_result(pool, tmp_path: Path) -> None:
    """E29: an error has its class, message and traceback wherever it was raised, and its worker goes on; so has an
    answer that is no JSON, and a hand-over that cannot be opened or is not the one that was written (E38)."""
    found = run(pool, job(tmp_path), {"do": "raise"}, {"do": "nan"}, {"do": "well"})
    by_task = {done.task.document["do"]: done for done in found}
    assert [by_task[what].fate for what in ("raise", "nan", "well")] == ["raised", "raised", "done"]
    assert by_task["raise"].reply.document["type"] == "KeyError"
    assert "asked to raise" in by_task["raise"].reply.document["traceback"]
    assert by_task["nan"].reply.document["type"] == "ValueError"
    here = run(Inline(engine_work.open_work(b"{}")), job(tmp_path), {"do": "raise"})[0]
    assert (here.fate, here.reply.document["type"]) == ("raised", "KeyError")
    (broken,) = run(pool, job(tmp_path, '{"broken": 1}'), {"do": "well"})
    assert (broken.fate, broken.reply.document["type"]) == ("raised", "ValueError")
    changed = job(tmp_path, '{"pass": 3}')
    changed.handover.write_text('{"pass": 4}')
    (other,) = run(pool, changed, {"do": "well"})
    assert (other.fate, other.reply.document["type"]) == ("raised", "HandoverError")
    assert run(pool, job(tmp_path), {"do": "well"})[0].fate == "done"


def test_a_worker_that_dies_costs_its_task_only(pool, tmp_path: Path) -> None:
    """E43, F38, EF32: killed during a task, the task says what its worker died of; killed between two runs, nobody
    notices."""
    found = run(pool, job(tmp_path), *[{"do": "die" if k == 2 else "well", "number": k} for k in range(6)])
    died = [done for done in found if done.fate == "died"]
    assert [done.task.document["number"] for done in died] == [2]
    assert died[0].about == "ended by SIGKILL"
    assert len(found) == 6
    pids = {done.reply.document["pid"] for done in run(pool, job(tmp_path), *[{"do": "well"}] * 4)}
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        assert gone(pid)
    again = run(pool, job(tmp_path), *[{"do": "well"}] * 4)
    assert [done.fate for done in again] == ["done"] * 4
    assert not pids & {done.reply.document["pid"] for done in again}


def test_timeout_kills_the_group(tmp_path: Path, monkeypatch) -> None:
    """timeout_kills_the_group E41, EF16: when the time is over everything a worker has started is asked to end, then
    killed, also what does not listen; what had not begun does not come back."""
    monkeypatch.setattr(processes, "GRACE_SECONDS", 0.3)
    engine = Processes(1, keep=False)
    note = tmp_path / "note"
    found = run(engine, job(tmp_path), {"do": "well"}, {"do": "fork", "note": str(note)}, {"do": "well"}, seconds=4.0)
    assert [done.fate for done in found] == ["done", "timeout"]
    assert found[1].about == "ended by SIGKILL"
    assert gone(int(note.read_text()))
    assert gone(found[0].reply.document["pid"])
    (hung,) = run(engine, job(tmp_path), {"do": "hang"}, seconds=1.5)
    assert (hung.fate, hung.about) == ("timeout", "ended by SIGTERM")


def test_a_worker_that_leaks_is_bounded(tmp_path: Path, monkeypatch) -> None:
    """EF16, F38: above its limit of memory a worker is ended and its task has died, saying why; one that has grown to
    half of it, or holds half of the descriptors it may have, is replaced when its task has ended, and costs nothing."""
    engine = Processes(1, keep=True, memory=400 << 20)
    try:
        well, more = {"do": "well"}, {"do": "grow", "mib": 150}
        found = run(engine, job(tmp_path), well, more, more, well, {"do": "grow", "mib": 500, "seconds": 60}, well)
        assert [done.fate for done in found] == ["done", "done", "done", "done", "died", "done"]
        pids = [done.reply.document["pid"] for done in found if done.fate == "done"]
        assert [pid == pids[0] for pid in pids] == [True, True, True, False, False]
        assert [bool(done.about) for done in found] == [False, False, True, False, True, False]
        assert "a worker was replaced after its task: it held 0.3" in found[2].about
        assert found[4].about.startswith("ended by SIGKILL: it held 0.")
        assert "vec.memory_gib allows 0.390625" in found[4].about
        monkeypatch.setattr(processes, "most_files", lambda: 100)
        opened = run(engine, job(tmp_path), {"do": "open", "count": 60}, well)
        assert "open files of at most 100" in opened[0].about
        assert opened[0].reply.document["pid"] != opened[1].reply.document["pid"]
    finally:
        engine.close()


def test_whoever_stops_listening_leaves_nothing(pool, tmp_path: Path) -> None:
    """F60, E42: a run that is left in the middle ends what it had running; a run that was told to stop finishes it."""
    asked: list[int] = []
    found = run(pool, job(tmp_path), *[{"do": "well"}] * 9, stopped=lambda: bool(asked) or asked.append(1) is not None)
    assert [done.fate for done in found] == ["done"]
    running = pool.run(
        job(tmp_path), iter([Task({"do": "well"}), Task({"do": "hang"})]), deadline=None, stopped=lambda: False
    )
    next(running)
    busy = [worker.pid for worker in pool._busy.values()]
    running.close()
    assert busy
    assert all(gone(pid) for pid in busy)


ORPHAN = """
import sys
from pathlib import Path
from skidpad.engines.engine import Job, Task
from skidpad.engines.processes import Processes
from skidpad.artifacts.digests import digest_bytes

path = Path(sys.argv[1])
engine = Processes(1, keep=True)
work = Job("engine_work:open_work", path, digest_bytes(path.read_bytes()))
tasks = [Task({"do": "well"}), Task({"do": "fork", "note": sys.argv[2]})]
for done in engine.run(work, tasks, deadline=None, stopped=lambda: False):
    print(done.reply.document["pid"], flush=True)
"""


def test_children_never_outlive_the_parent(tmp_path: Path) -> None:
    """F60, EF27: killed with -9 in the middle of a task, a manager leaves no worker and nothing a worker has started.
    Nothing warns, either: workers are started, never forked (E44)."""
    note = tmp_path / "note"
    command = [sys.executable, "-W", "error", "-c", ORPHAN, str(job(tmp_path).handover), str(note)]
    paths = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
    ) as parent:
        worker = int(parent.stdout.readline())
        while not note.exists() or not note.read_text():
            time.sleep(0.02)
        parent.kill()
    assert gone(worker)
    assert gone(int(note.read_text()))


def test_messages_survive_any_cut() -> None:
    """Bytes arrive in pieces of any size: a message is there when its last byte is, and not before; nonsense raises."""
    data = encoded({"a": 1}, [b"", b"xyz"]) + encoded({"b": "ü"})
    for size in (1, 3, 7, len(data)):
        inbox, found = Inbox(), []
        for start in range(0, len(data), size):
            inbox.add(data[start : start + size])
            while (message := inbox.take()) is not None:
                found.append(message)
        assert found == [({"a": 1}, (b"", b"xyz")), ({"b": "ü"}, ())]
    for nonsense in (b"\0" * 16, b"\xff" * 64, encoded({"a": 1}).replace(b"{", b"[")):
        inbox = Inbox()
        inbox.add(nonsense)
        with pytest.raises(ValueError):
            inbox.take()
