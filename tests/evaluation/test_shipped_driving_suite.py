"""The suite that comes with the package: what it holds, that a name finds it, and that it runs as it stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import skidpad
from skidpad.cli import run
from skidpad.evaluation.evaluators import TYPES
from skidpad.evaluation.verify import verify_run
from skidpad.scenes.behaviours import BEHAVIOURS
from skidpad.settings.suite import load_suite

SUITE = Path(skidpad.__file__).parent / "suites" / "driving.toml"


def test_it_holds_what_people_evaluate() -> None:
    """E64 to E69: self-play, recorded traffic, one recorded vehicle, twelve classes from one template, realism."""
    suite = load_suite(SUITE, types=TYPES)
    classes = [f"behaviors_{name}" for name in BEHAVIOURS]
    assert set(suite.names) == {"validation_gigaflow", "validation_replay", "human_replay", "realism", *classes}
    assert {suite.spec(name).type for name in classes} == {"behavior_class"}
    assert len({suite.spec(name).scenes for name in classes}) == 12
    assert suite.spec("validation_gigaflow").env.simulation_mode == "gigaflow"
    assert all(suite.spec(name).interval == 250 for name in suite.names)


def test_shipped_suites_have_names(capsys: pytest.CaptureFixture[str]) -> None:
    """E80, E81: `library:<name>` is a suite of the package, `--simulation` names a validation section, an unknown name
    is refused with the near one, and the section is not named twice."""
    assert run(["eval", "library:driving", "--list"]) == 0
    assert "validation_gigaflow" in capsys.readouterr().out.split()
    assert run(["eval", "library:driving", "--simulation", "gigaflow", "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert "[eval.validation_gigaflow]" in printed
    assert "[eval.validation_replay]" not in printed
    assert run(["eval", "library:drivin", "--list"]) == 2
    assert "did you mean 'driving'?" in capsys.readouterr().err
    assert run(["eval", "library:driving", "--simulation", "replay", "--evaluator", "realism"]) == 2


@pytest.mark.slow
def test_it_runs_as_it_stands(tmp_path: Path) -> None:
    """E63, E71, E77, acceptance 11: every section of the shipped suite is ok, with its baselines beside it, its line in
    the summary, a page and a film; the generated logs drive without an infraction; the folder verifies."""
    folder = tmp_path / "run"
    assert run(["eval", str(SUITE), "--out", str(folder)]) == 0
    report = json.loads((folder / "report.json").read_text())
    for name, part in report["evaluators"].items():
        assert part["ok"], name
        assert len(part["arms"]) == (4 if name == "validation_gigaflow" else 6), name
        assert {"eval_seconds", "setup_seconds", "rollout_seconds", "metric_seconds"} <= set(part["seconds"])
        if part["type"] == "behavior_class":
            assert part["arms"]["log"]["metrics"]["score"]["value"] == 1.0, name
    assert len((folder / "eval_summary.csv").read_text().splitlines()) == 17
    assert report["pooled"]["behavior_class"]["cases"] == 24
    assert not report["evaluators"]["realism"]["realism"]["not_standard"]
    page = (folder / "report.html").read_text()
    assert "Behaviour classes" in page
    assert "realism_2025 in perspective" in page
    assert list((folder / "renders" / "validation_gigaflow").glob("*.mp4"))
    assert verify_run(folder).exit_code == 0
