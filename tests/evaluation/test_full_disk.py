"""A disk that is really full, not a file layer that says so: what is written stays whole, and the run goes on later."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skidpad.artifacts.files import parse_json
from skidpad.runs.chain import read_chain
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import deterministic, read_records

SUITE = """
[eval.a]
type = "human_replay"
env.scenes = ["{scenes}/straight-0.scene", "{scenes}/crossing.scene"]
env.scenario_length = 12
keep_traces = "all"
eval.egos = "each"
eval.resamples = 100
eval.worst_n = 1
eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
"""


def mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 160 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if sys.platform != "linux" or os.geteuid() or not mount("-t", "tmpfs", "-o", "size=160k", "tmpfs", str(folder)):
        pytest.skip("mounting a small tmpfs needs Linux and the right to mount; faults of the file layer are injected")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inline", "pool"])
def test_full_disk(small_disk: Path, tmp_path: Path, scene_folder: Path, mode: str) -> None:
    """F29, EF28, E82: the disk fills up in the middle of a run: the path is named, the exit code is 1, every file is
    whole and none is temporary; with room again the same command ends in the records of a run that never stopped."""
    (tmp_path / "suite.toml").write_text(SUITE.replace("{scenes}", str(scene_folder)))
    paths = os.pathsep.join(path for path in sys.path if path)

    def skidpad(folder: Path) -> subprocess.CompletedProcess[str]:
        command = ["eval", "suite.toml", "--out", str(folder), "--mode", mode, "--workers", "2"]
        return subprocess.run(
            [sys.executable, "-m", "skidpad", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            env={**os.environ, "PYTHONPATH": paths},
        )

    whole = skidpad(tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    full = skidpad(small_disk / "run")
    assert full.returncode == 1, full.stderr
    assert "No space left on device" in full.stderr
    assert str(small_disk / "run") in full.stderr
    run = RunFolder(small_disk / "run")
    assert not run.is_finished
    assert not list(run.path.rglob("*.tmp-*"))
    read_chain(run.chain)
    list(read_records(run.records))
    for path in run.path.rglob("*.json"):
        if path.name != "run.lock":
            parse_json(path.read_bytes())
    assert mount("-o", "remount,size=64m", str(small_disk))
    again = skidpad(run.path)
    assert again.returncode == 0, again.stderr
    expected = {record.key: deterministic(record) for record in read_records(tmp_path / "whole" / "records.jsonl")}
    assert {record.key: deterministic(record) for record in read_records(run.records)} == expected
