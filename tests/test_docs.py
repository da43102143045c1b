"""What the documents say is what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_generated_tables_are_fresh() -> None:
    """Arrays, codes and metrics in docs/ are printed from the code; a table nobody renewed misleads."""
    script = ROOT / "scripts" / "write_docs.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_documents_name_files_that_exist() -> None:
    """A path in a document that no longer exists sends the reader nowhere."""
    missing = []
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for path in re.findall(
            r"`((?:src|tests|docs|scripts)/[A-Za-z0-9_./-]+)`", document.read_text(encoding="utf-8")
        ):
            if not (ROOT / path).exists():
                missing.append(f"{document.name}: {path}")
    assert missing == []


def test_every_verb_is_documented() -> None:
    """Each verb of the command line stands in the README: a verb nobody can find is not there."""
    from skidpad.cli import app

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    verbs = [name for name in app if not name.startswith("-")]
    assert [verb for verb in verbs if f"skidpad {verb}" not in text] == []


@pytest.mark.parametrize("page", ["evaluation.md", "faults.md", "parity.md", "sealed.md"])
def test_claims_name_tests_that_exist(page: str) -> None:
    """A claim rests on its test; one that was renamed or removed leaves a claim without."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = re.findall(r"`(test_\w+\.py)::([Tt]est_?\w+)`", text)
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(named) > 80
    assert [
        f"{file}::{test}" for file, test in named if not re.search(rf"(def|class) {test}\b", files.get(file, ""))
    ] == []


def test_every_fault_has_its_test() -> None:
    """A fault without a test is one that nobody survives: each row of faults.md names what holds it."""
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (E?F\d+) \| [^|]+ \| (.*) \|$", text, re.MULTILINE))
    assert list(rows) == [*(f"F{k}" for k in range(1, 61)), *(f"EF{k}" for k in range(1, 41))]
    assert [row for row, held in rows.items() if "::" not in held and "make test-bounds" not in held] == []
