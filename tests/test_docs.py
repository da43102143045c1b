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


def test_every_requirement_of_evaluation_is_in_a_test() -> None:
    """Acceptance 1 of the evaluation: E1 to E118 are each named by the test that pins them, in its first line."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    named: set[int] = set()
    for first, last in re.findall(r"\bE(\d+)(?: to E(\d+))?", text.replace(Path(__file__).read_text("utf-8"), "")):
        named |= set(range(int(first), int(last or first) + 1))
    assert [number for number in range(1, 119) if number not in named | {117}] == []


def test_every_promise_is_held() -> None:
    """E117: each promise names what holds it, a test or the folder of them, and that exists."""
    rows = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8").split("\n## ")[0].splitlines()
    held = [row.split("|")[-2] for row in rows if row.startswith("|")][2:]
    files = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    named = [re.findall(r"`(?:tests/)?([\w/]+(?:\.py)?)`", text) for text in held]
    assert len(held) >= 9
    assert [
        text
        for text, names in zip(held, named, strict=True)
        if not names or not all(Path(name).name in files or (ROOT / "tests" / name).is_dir() for name in names)
    ] == []


def test_every_fault_has_its_test() -> None:
    """A fault without a test is one that nobody survives: each row of faults.md names what holds it."""
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (E?F\d+) \| [^|]+ \| (.*) \|$", text, re.MULTILINE))
    assert list(rows) == [*(f"F{k}" for k in range(1, 61)), *(f"EF{k}" for k in range(1, 41))]
    assert [row for row, held in rows.items() if "::" not in held and "make test-bounds" not in held] == []
