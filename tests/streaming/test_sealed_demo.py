"""`skidpad demo --sealed`: the whole path by its verbs, here over two small rooms and streets whose inputs lie there
already."""

from __future__ import annotations

from pathlib import Path

import pytest

from skidpad.cli import run
from skidpad.evaluation.metrics.scene_metrics import SCENE_METRICS
from skidpad.evaluation.sealed_demo import SPEC, STREETS, SUITE

ARMS = '["OFF", "FUSE"]'


@pytest.mark.slow
def test_all_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Compile, register, run, verify, each printed as the command that does it; a second call finds them done (M96)."""

    def smaller(text: str) -> str:
        for name in ("warmup = 3", "stream = 6", "queries = 4", "queries = 5"):
            text = text.replace(name, f"{name[:-1]}{2 if 'stream' in name else 1}")
        return text

    scenes = next(line for line in STREETS.splitlines() if line.startswith("scenes"))
    spec = smaller(SPEC).replace("count = 20", "count = 2")
    streets = smaller(STREETS).replace(scenes, 'scenes = ["synthetic:merge:1", "synthetic:curve:1"]')
    suite = smaller(SUITE).replace("strips = true\n", "workers = 1\nrender_samples = 16\n")
    lines = [f"policies = {ARMS}" if line.startswith("policies") else line for line in suite.splitlines()]
    lines = ['controls = ["CACHE"]' if line.startswith("controls") else line for line in lines]
    (tmp_path / "spec.toml").write_text(spec)
    (tmp_path / "streets.toml").write_text(streets)
    (tmp_path / "suite.toml").write_text("\n".join(lines) + "\n")
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
    page = (tmp_path / "run-streets" / "report.html").read_text()
    for name in ("free_space_iou", "first_obstacle_error", "bev_occupancy_iou"):
        assert page.count(SCENE_METRICS[name].aid) == 2  # for a driver, and among all metrics
    assert run(["demo", "--sealed", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("done before") == 6
