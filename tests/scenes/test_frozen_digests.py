"""R9: the same bytes give the same scene wherever they are read; digests of all samples are frozen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from digests_of_samples import FROZEN, files

# Decimal commas, a zone of 5:45, another order of sets, and other numbers of threads than here.
ELSEWHERE = {
    "LC_ALL": "de_DE.UTF-8",
    "LANG": "de_DE.UTF-8",
    "TZ": "Asia/Kathmandu",
    "PYTHONHASHSEED": "4711",
    "OMP_NUM_THREADS": "3",
    "OPENBLAS_NUM_THREADS": "3",
    "MKL_NUM_THREADS": "3",
    "NUMBA_NUM_THREADS": "2",
}


def elsewhere(*arguments: str) -> dict[str, str]:
    """What the program prints in a process in which all of that differs."""
    environment = {**os.environ, **ELSEWHERE, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    program = Path(__file__).with_name("digests_of_samples.py")
    done = subprocess.run(
        [sys.executable, str(program), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def frozen(group: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(FROZEN.read_text())[group]
    return found


def test_files_of_the_tests_elsewhere() -> None:
    """R9: every format once, under another locale, zone, hash seed and number of threads."""
    assert elsewhere("made") == frozen("made")


@pytest.mark.slow
def test_real_files_elsewhere(shared: Path) -> None:
    """R9: all samples; what is refused is refused in the same words."""
    found = elsewhere("real", str(shared / "data"))
    assert found == frozen("real")
    assert len(found) == len(files(shared / "data"))
