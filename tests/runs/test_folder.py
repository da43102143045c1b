"""Run folders and their manifests: one runner, finished is finished, and resuming needs the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skidpad.errors import AlreadyThereError, IntegrityError, UsageError
from skidpad.runs.folder import RunFolder
from skidpad.runs.manifest import code_digests, environment, identity_differences, read_manifest, write_manifest

IDENTITY: dict[str, Any] = {"code": "c0de", "evaluators": {"a": {"section": "5ec7", "arms": ["idm", "log"]}}}

HOLDER = """
import sys, time
from pathlib import Path
from skidpad.runs.folder import RunFolder
with RunFolder(Path(sys.argv[1])).held():
    print("held", flush=True)
    sys.stdin.read()
"""


def manifest_in(folder: RunFolder, identity: dict[str, Any] | None = None) -> dict[str, Any]:
    return write_manifest(folder, identity=identity or IDENTITY, evaluators={}, suite={}, reproduce="again", threads=1)


def test_second_runner_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    """E103, F40, EF26: two writers would mix their lines; the second stops and names pid, host and start of the first.
    A killed holder's lock is free by itself, although its pid still stands in the file."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(AlreadyThereError, match=rf"pid {holder.pid} on .*, since 20"),
            RunFolder(tmp_path / "run").held(),
        ):
            pass
    finally:
        holder.kill()
        holder.communicate()
    assert str(holder.pid) in (tmp_path / "run" / "run.lock").read_text()
    with RunFolder(tmp_path / "run").held():
        pass


def test_finished_folder_is_refused(tmp_path: Path) -> None:
    """F41: a run with a report never changes, not even by a resumed command."""
    folder = RunFolder(tmp_path)
    folder.report.write_text("{}")
    with pytest.raises(AlreadyThereError, match="finished"), folder.held():
        pass


def test_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    """F41, F58: a run must not be mixed into somebody's documents; a file is no folder."""
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match=r"letter\.txt"), RunFolder(tmp_path).held():
        pass
    with pytest.raises(UsageError, match="is a file"), RunFolder(tmp_path / "letter.txt").held():
        pass


def test_unwritable_targets_are_found_first(tmp_path: Path) -> None:
    """F58: a target that cannot be is told in a sentence before any work, not as a traceback after it."""
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file" / "run", tmp_path / ("x" * 300)):
        with pytest.raises(UsageError, match=r"cannot be written \("), RunFolder(target).held():
            pass


def test_leftovers_of_a_killed_run_are_swept(tmp_path: Path) -> None:
    """E42: temporary files of a killed writer do not stay, and nothing else goes."""
    folder = RunFolder(tmp_path / "run")
    with folder.held():
        manifest_in(folder)
    (folder.path / "traces").mkdir()
    left = [folder.path / "report.json.tmp-12-0123abcd", folder.path / "traces" / "x.trace.tmp-9-ffffffff"]
    kept = folder.path / "traces" / "notes.tmp-x"
    for path in [*left, kept]:
        path.write_text("half")
    with folder.held():
        assert not any(path.exists() for path in left)
        assert kept.exists()
        assert [path.name for path in folder.files()] == ["manifest.json", "notes.tmp-x"]


def test_unfinished_runs_are_not_results(tmp_path: Path) -> None:
    """E99: a folder that only looks complete is never read as a result; the message says what it is."""
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(UsageError, match="no such folder"):
        folder.read_report()
    with folder.held():
        manifest_in(folder)
    with pytest.raises(UsageError, match="unfinished run; resume"):
        folder.read_report()
    folder.report.write_text('{"schema": "other/1"}')
    with pytest.raises(IntegrityError, match="other/1"):
        folder.read_report()
    folder.report.write_text("{")
    with pytest.raises(IntegrityError, match="not JSON"):
        folder.read_report()


def test_manifest_is_written_once_and_compared_afterwards(tmp_path: Path) -> None:
    """E101, F41: resuming needs the same run; what differs is listed with both sides, and nothing is changed."""
    folder = RunFolder(tmp_path)
    first = manifest_in(folder)
    assert manifest_in(folder) == first == read_manifest(folder)
    bytes_before = folder.manifest.read_bytes()
    for other in (
        {**IDENTITY, "code": "beef"},
        {"code": "c0de", "evaluators": {"a": {"section": "0000", "arms": ["idm", "log"]}}},
        {"code": "c0de", "evaluators": {"a": {"section": "5ec7", "arms": ["idm"]}}},
        {"code": "c0de", "evaluators": {"a": IDENTITY["evaluators"]["a"], "b": {"section": "1"}}},
        {"code": "c0de", "evaluators": {}},
    ):
        with pytest.raises(AlreadyThereError) as refused:
            manifest_in(folder, other)
        for difference in identity_differences(IDENTITY, other):
            assert difference in str(refused.value)
    with pytest.raises(AlreadyThereError, match="code: the folder has c0de, this run has beef"):
        manifest_in(folder, {**IDENTITY, "code": "beef"})
    assert folder.manifest.read_bytes() == bytes_before


def test_manifest_says_what_ran_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E115: versions, machine, commit and start are there; the process's environment is not."""
    monkeypatch.setenv("SKIDPAD_TEST_TOKEN", "hunter2-token")
    folder = RunFolder(tmp_path)
    manifest = manifest_in(folder)
    assert "hunter2-token" not in folder.manifest.read_text()
    machine = manifest["environment"]
    assert {"skidpad", "commit", "dirty", "python", "libraries", "cpu", "threads", "precision"} <= set(machine)
    assert machine["libraries"]["numpy"]
    assert manifest["run"]["pid"] == os.getpid()
    assert manifest["run"]["started"].endswith("Z")
    assert manifest["reproduce"] == "again"
    assert json.loads(folder.manifest.read_text())["identity"] == IDENTITY


def test_code_digest_follows_the_sources(tmp_path: Path) -> None:
    """E101: an edited source is another program, a kernel is told apart, and other files are none."""
    (tmp_path / "simulation" / "kernels").mkdir(parents=True)
    (tmp_path / "a.py").write_text("x = 1\n")
    kernel = tmp_path / "simulation" / "kernels" / "k.py"
    kernel.write_text("y = 1\n")
    read = code_digests.__wrapped__  # past the memory of this process
    first = read(tmp_path)
    (tmp_path / "notes.txt").write_text("no source")
    assert read(tmp_path) == first == code_digests(tmp_path)
    (tmp_path / "a.py").write_text("x = 2\n")
    second = read(tmp_path)
    assert second["code"] != first["code"]
    assert second["kernels"] == first["kernels"]
    kernel.write_text("y = 2\n")
    assert read(tmp_path)["kernels"] != first["kernels"]
    assert code_digests(tmp_path) == first  # what runs is what was imported


def test_package_outside_a_checkout_has_no_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """F43, EF39: an installed package that lies inside somebody else's checkout must not borrow its commit."""
    monkeypatch.setattr("skidpad.runs.manifest._PACKAGE", tmp_path)
    assert environment(1)["commit"] is None
    assert environment(1)["dirty"] is None
