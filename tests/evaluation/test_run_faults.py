"""A run that is stopped anywhere ends, when it is started again, in the same files as one that was not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from failing_files import every_fault
from stub_evaluator import STUBS, StubEvaluator

from skidpad.artifacts.digests import digest_file
from skidpad.artifacts.files import parse_json
from skidpad.errors import AlreadyThereError, IntegrityError
from skidpad.evaluation import manager as manager_module
from skidpad.evaluation.interrupts import Interrupts
from skidpad.evaluation.manager import EvalManager, evaluate_suite
from skidpad.evaluation.summary import deterministic_report
from skidpad.evaluation.verify import verify_run
from skidpad.runs.chain import read_chain
from skidpad.runs.folder import RunFolder
from skidpad.runs.manifest import read_manifest
from skidpad.runs.records import read_records

SMALL = """
    [eval.a]
    type = "stub"
    keep_traces = "none"
    env.scenes = "{scenes}/straight-*.scene"
    vec.num_worlds = 2
    eval.resamples = 100
    eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
"""


def run_once(suite: Any, folder: Path) -> dict[str, Any]:
    """Run or resume a suite on stubs, in one process."""
    with EvalManager(suite, folder, evaluators=STUBS) as manager:
        manager.run_all()
        return manager.finish(lambda folder, report: f"<p>{report['verdict']}</p>")


def lasting(folder: Path) -> dict[str, Any]:
    """What must not depend on how often a run was stopped."""
    report = RunFolder(folder).read_report()
    summary = [line.rpartition(",")[0] for line in (folder / "a" / "summary.csv").read_text().splitlines()]
    return {
        "episodes": (folder / "a" / "episodes.csv").read_bytes(),
        "summary": summary,
        "report": deterministic_report(report),
        "page": (folder / "report.html").read_bytes(),
    }


def assert_readable(folder: Path) -> None:
    """The folder is absent, resumable or finished, and every file in it is whole (writing rule 3)."""
    run = RunFolder(folder)
    if run.is_started:
        read_manifest(run)
    if run.chain.exists():
        read_chain(run.chain)
    list(read_records(run.records))
    if run.is_finished:
        run.read_report()
    for path in folder.rglob("*.json"):
        if path.name != "run.lock":
            parse_json(path.read_bytes())


def run_with_faults(suite: Any, tmp_path: Path, stride: int) -> int:
    """Lets one file call after the other fail, starts each run again, and compares; returns how many failed."""
    run_once(suite, tmp_path / "whole")
    expected = lasting(tmp_path / "whole")
    number, raised = 0, 0

    def attempt() -> None:
        nonlocal number
        number += 1
        run_once(suite, tmp_path / f"run-{number}")

    for failed in every_fault(attempt, stride):
        folder = tmp_path / f"run-{number}"
        assert_readable(folder)
        raised += failed
        if not RunFolder(folder).is_finished:
            run_once(suite, folder)
        assert lasting(folder) == expected, f"file call {number}"
        assert not list(folder.rglob("*.tmp-*"))
    return raised


def test_fault_at_some_writes(load, tmp_path: Path, stub) -> None:
    """E82, F29, EF28: a file call of a run fails; the folder stays readable and the run, started again, ends in the
    same files."""
    assert run_with_faults(load(SMALL), tmp_path, 11) >= 4


@pytest.mark.slow
def test_fault_at_every_write(load, tmp_path: Path, stub) -> None:
    """E82, F29, EF28: as above, at every single file call: 16 record lines, 5 chain lines, manifest, 3 tables, page,
    report and progress, each with several."""
    assert run_with_faults(load(SMALL), tmp_path, 1) > 40


def test_resume_runs_only_what_is_missing(load, tmp_path: Path, stub) -> None:
    """E101, F39: what is recorded is not run again, and other workers and batches are no other run."""
    suite = load(SMALL)
    run_once(suite, tmp_path / "whole")
    lines = (tmp_path / "whole" / "records.jsonl").read_bytes().splitlines(keepends=True)
    part = tmp_path / "part"
    part.mkdir()
    for name in ("manifest.json", "chain.jsonl"):
        (part / name).write_bytes((tmp_path / "whole" / name).read_bytes())
    (part / "records.jsonl").write_bytes(b"".join(lines[:9]) + lines[9][:30])
    StubEvaluator.ran.clear()
    run_once(load(SMALL, "vec.num_worlds=1", "vec.threads=2"), part)
    assert len(StubEvaluator.ran) == len(lines) - 9
    whole = lasting(tmp_path / "whole")
    assert lasting(part)["episodes"] == whole["episodes"]
    events = {event["event"]: event["data"] for event in read_chain(part / "chain.jsonl")}
    assert events["resumed"]["torn_bytes"] == 30
    assert events["resumed"]["records"] == 9


def test_another_run_is_refused_with_both_digests(load, tmp_path: Path, stub, monkeypatch) -> None:
    """E101, EF31, F41: other settings, metrics, scenes, drivers or code would mix two versions in one table."""
    suite = load(SMALL)
    folder = tmp_path / "run"
    with EvalManager(suite, folder, evaluators=STUBS) as manager:
        manager._register(["a"])
    identity = read_manifest(RunFolder(folder))["identity"]

    def refused(other: Any, what: str, **options: Any) -> None:
        with (
            pytest.raises(AlreadyThereError, match=what),
            EvalManager(other, folder, evaluators=STUBS, **options) as manager,
        ):
            manager._register(["a"])

    refused(load(SMALL, "env.goal_radius=3.0"), rf"a\.section: the folder has {identity['evaluators']['a']['section']}")
    refused(load(SMALL, "eval.num_scenarios=3"), r"evaluators\.a\.scenes")
    refused(load(SMALL, "eval.a.seed=9"), r"evaluators\.a\.section")
    refused(suite, "policy: the folder has None, this run has random", policy_name="random")
    with monkeypatch.context() as patch:
        patch.setattr("skidpad.evaluation.metrics.registry.metric_spec_digest", lambda names: "another metric")
        refused(suite, r"evaluators\.a\.metrics: .* this run has another metric")
    with monkeypatch.context() as patch:
        patch.setattr(manager_module, "code_digests", lambda: {"code": "edited", "kernels": identity["kernels"]})
        refused(suite, f"code: the folder has {identity['code']}, this run has edited")
    with EvalManager(suite, folder, evaluators=STUBS) as manager:
        manager._register(["a"])


def test_tampered_records_stop_a_resume(load, tmp_path: Path, stub) -> None:
    """F42: a doubled case with another result, or an edited line, is not quietly continued."""
    suite = load(SMALL)
    folder = tmp_path / "run"
    run_once(suite, folder)
    (folder / "report.json").unlink()
    lines = (folder / "records.jsonl").read_text().splitlines()
    changed = lines[0].replace('"n_agents":2', '"n_agents":3')
    (folder / "records.jsonl").write_text("\n".join([*lines, changed]) + "\n")
    with pytest.raises(IntegrityError, match=r"differ in result\.n_agents"):
        run_once(suite, folder)


def test_first_interrupt_finishes_the_batch_and_the_second_stops(load, tmp_path: Path, stub, monkeypatch) -> None:
    """F60, EF29: one Ctrl-C lets running cases finish and writes them, two stop at once; both give 130, both resume."""
    monkeypatch.setattr(
        manager_module.EvalManager.__init__,
        "__kwdefaults__",
        {**manager_module.EvalManager.__init__.__kwdefaults__, "evaluators": STUBS},
    )
    suite = load(SMALL)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    for name, number, count, left in (
        ("one", signal.SIGINT, 1, 2),
        ("two", signal.SIGINT, 2, 0),
        ("term", signal.SIGTERM, 1, 2),
    ):
        stub.after = staticmethod(
            lambda number=number, count=count: [os.kill(os.getpid(), number) for _ in range(count)]
        )
        result = evaluate_suite(suite, tmp_path / name)
        assert (result.exit_code, result.ok, result.report) == (130, False, None)
        assert len(list(read_records(tmp_path / name / "records.jsonl"))) == left
        assert_readable(tmp_path / name)
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    stub.after = staticmethod(lambda: None)
    results = [
        evaluate_suite(suite, tmp_path / name, page=lambda folder, report: "p")
        for name in ("one", "two", "term", "whole")
    ]
    assert [result.exit_code for result in results] == [0, 0, 0, 0]
    assert len({lasting(tmp_path / name)["episodes"] for name in ("one", "two", "term", "whole")}) == 1


def test_interrupts_only_ask_once(load) -> None:
    """F60: asking is a flag that is looked at between batches; the second time it is an exception."""
    told: list[str] = []
    with Interrupts(told.append) as interrupts:
        interrupts.stop_here()
        interrupts.ask()
        assert interrupts.asked
        with pytest.raises(KeyboardInterrupt):
            interrupts.stop_here()
        with pytest.raises(KeyboardInterrupt):
            interrupts.ask()
    assert len(told) == 1


KILLED = """
import os, signal, sys
from pathlib import Path

sys.path[:0] = sys.argv[1:3]
from test_run_faults import SMALL, assert_readable, lasting, run_once
from skidpad.evaluation.evaluators import TYPES
from stub_evaluator import StubEvaluator
from skidpad.settings.suite import load_suite

folder, stride = Path(sys.argv[3]), int(sys.argv[4])
suite = load_suite(folder / "suite.toml", types={**TYPES, "stub": StubEvaluator.TYPE})
calls, last = [0], [None]
for name in ("fsync", "replace", "link"):
    def wrapped(*args, call=getattr(os, name)):
        if calls[0] == last[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        calls[0] += 1
        return call(*args)
    setattr(os, name, wrapped)
run_once(suite, folder / "whole")
expected, total, killed = lasting(folder / "whole"), calls[0], 0
for k in range(0, total, stride):
    path = folder / f"run-{k}"
    child = os.fork()
    if child == 0:
        calls[0], last[0] = 0, k
        run_once(suite, path)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert_readable(path)
    assert os.WIFSIGNALED(status), (k, total)
    killed += 1
    if not (path / "report.json").exists():
        run_once(suite, path)
    assert lasting(path) == expected, k
    assert not list(path.rglob("*.tmp-*")), k
print("killed", killed)
"""


def killed_everywhere(load, tmp_path: Path, stride: int) -> int:
    load(SMALL)  # writes suite.toml
    here = Path(__file__).parent
    command = [sys.executable, "-c", KILLED, str(here), str(here.parent), str(tmp_path), str(stride)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[-1])


def test_kill_and_resume_equal(load, tmp_path: Path) -> None:
    """E102, EF27, F39, F60: killed with -9 before a file call and resumed, episodes.csv, summary.csv without its cost
    columns, the page and the deterministic part of report.json are those of a run that was never stopped."""
    assert killed_everywhere(load, tmp_path, 13) >= 3


@pytest.mark.slow
def test_kill_and_resume_equal_at_every_call(load, tmp_path: Path) -> None:
    """E102: as above, at every single sync, rename and link."""
    assert killed_everywhere(load, tmp_path, 1) >= 30


def test_clock_zone_mask_and_folder_are_no_input(load, tmp_path: Path, stub, monkeypatch) -> None:
    """EF40, F39: a clock that jumps back at every look, another time zone, umask and working directory leave names,
    order and numbers as they are; the order of events is their number."""
    suite = load(SMALL)
    run_once(suite, tmp_path / "plain")
    clock = iter(range(2_000_000_000, 0, -86_400))
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    monkeypatch.setenv("TZ", "Pacific/Chatham")
    time.tzset()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    mask = os.umask(0o077)
    try:
        run_once(suite, Path("run"))
    finally:
        os.umask(mask)
        monkeypatch.undo()
        time.tzset()
    other = tmp_path / "elsewhere" / "run"
    assert lasting(other) == lasting(tmp_path / "plain")
    names = [sorted(path.relative_to(folder) for path in folder.rglob("*")) for folder in (other, tmp_path / "plain")]
    assert names[0] == names[1]
    events = [
        [event["event"] for event in read_chain(RunFolder(folder).chain)] for folder in (other, tmp_path / "plain")
    ]
    assert events[0] == events[1]


Tamper = Callable[[Path], object]


def _lines(name: str, change: Callable[[list[str]], list[str]]) -> Tamper:
    """A change of a file's lines."""

    def do(folder: Path) -> None:
        lines = (folder / name).read_text().splitlines()
        (folder / name).write_text("".join(f"{line}\n" for line in change(lines)))

    return do


def _bytes(name: str, old: str, new: str) -> Tamper:
    def do(folder: Path) -> None:
        before, found, after = (folder / name).read_text().rpartition(old)
        assert found
        (folder / name).write_text(before + new + after)

    return do


TAMPERINGS: dict[str, tuple[Tamper, str]] = {
    "a value of a record": (_bytes("records.jsonl", '"n_agents":2', '"n_agents":3'), "records.jsonl"),
    "a record dropped": (_lines("records.jsonl", lambda lines: lines[1:]), "records.jsonl"),
    "the last record dropped": (_lines("records.jsonl", lambda lines: lines[:-1]), "records.jsonl"),
    "records in another order": (_lines("records.jsonl", lambda lines: lines[::-1]), "records.jsonl"),
    "a record doubled": (_lines("records.jsonl", lambda lines: [*lines, lines[0]]), "records.jsonl"),
    "a torn record": (lambda folder: os.truncate(folder / "records.jsonl", 900), "records.jsonl"),
    "the records gone": (lambda folder: (folder / "records.jsonl").unlink(), "records.jsonl"),
    "the chain cut": (_lines("chain.jsonl", lambda lines: lines[:-1]), "chain"),
    "an event edited": (_bytes("chain.jsonl", '"registered"', '"resumed"'), "chain"),
    "an event dropped": (_lines("chain.jsonl", lambda lines: [lines[0], *lines[2:]]), "chain"),
    "events in another order": (_lines("chain.jsonl", lambda lines: lines[::-1]), "chain"),
    "a setting of the manifest": (_bytes("manifest.json", '"worst_n":', '"worst_n":1'), "manifest"),
    "a digest of the manifest": (_bytes("manifest.json", '"section":"', '"section":"0'), "manifest"),
    "a figure of the report": (_bytes("report.json", '"n":4', '"n":40'), "report."),
    "the verdict": (_bytes("report.json", '"verdict":"', '"verdict":"All is well. '), "report.verdict"),
    "the head in the report": (_bytes("report.json", '"chain_head":"', '"chain_head":"0'), "chain head"),
    "a row of a table": (_lines("a/episodes.csv", lambda lines: lines[:-1]), "a/episodes.csv"),
    "a cell of a table": (_bytes("a/summary.csv", "score", "scores"), "a/summary.csv"),
    "the page": (_bytes("report.html", "<p>", "<p>!"), "report.html"),
    "a file more": (lambda folder: (folder / "a" / "more.csv").write_text("x"), "a/more.csv"),
    "a file less": (lambda folder: (folder / "eval_summary.csv").unlink(), "eval_summary.csv"),
}


def test_verify_catches_twenty(load, tmp_path: Path, stub) -> None:
    """verify_catches_twenty E116, EF38, F45: whatever is changed, missing, added or reordered in a finished run is
    found, with exit code 3, and named. A table that was written anew, digest and all, does not follow from the
    records any more."""
    run_once(load(SMALL), tmp_path / "run")
    assert verify_run(tmp_path / "run").problems == []
    for name, (tamper, said) in TAMPERINGS.items():
        folder = tmp_path / name.replace(" ", "-")
        shutil.copytree(tmp_path / "run", folder)
        tamper(folder)
        found = verify_run(folder)
        assert found.exit_code == 3, name
        assert any(said in problem for problem in found.problems), (name, found.problems)
    table, report = tmp_path / "run" / "a" / "episodes.csv", tmp_path / "run" / "report.json"
    before = digest_file(table)
    _bytes("a/episodes.csv", ",ok,", ",OK,")(tmp_path / "run")
    report.write_text(report.read_text().replace(before, digest_file(table)))
    assert verify_run(tmp_path / "run").problems == ["a/episodes.csv: does not follow from the records."]
