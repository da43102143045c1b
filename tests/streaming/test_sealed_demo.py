"""`skidpad demo --sealed`: the whole path by its verbs, here over two small rooms whose inputs lie there already."""

from __future__ import annotations

from pathlib import Path

import pytest

from skidpad.cli import run
from skidpad.evaluation.sealed_demo import SPEC, SUITE

ARMS = '["OFF", "FUSE"]'


@pytest.mark.slow
def test_all_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Compile, register, run, verify, each printed as the command that does it; a second call finds them done (M96)."""
    spec = SPEC.replace("count = 24", "count = 2").replace("warmup = 3", "warmup = 1")
    spec = spec.replace("stream = 6", "stream = 2").replace("queries = 4", "queries = 1")
    suite = (
        SUITE.replace("warmup = 3", "warmup = 1")
        .replace("stream = 6", "stream = 2")
        .replace("queries = 4", "queries = 1")
    )
    lines = [f"policies = {ARMS}" if line.startswith("policies") else line for line in suite.splitlines()]
    lines = ['controls = ["CACHE"]' if line.startswith("controls") else line for line in lines]
    (tmp_path / "spec.toml").write_text(spec)
    (tmp_path / "suite.toml").write_text("\n".join([*lines, "workers = 1", "render_samples = 16"]) + "\n")
    assert run(["demo", "--sealed", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for words in (
        "skidpad episodes compile",
        "skidpad register",
        "skidpad eval",
        "skidpad verify",
        "all holds",
        "in all",
    ):
        assert words in printed
    assert "no claim about completion: no arm completes" in (tmp_path / "run" / "report.html").read_text()
    assert run(["demo", "--sealed", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("done before") == 3
