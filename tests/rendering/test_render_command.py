"""`skidpad render` through the command line, on finished runs: what is shown, what is passed over, what is refused."""

from __future__ import annotations

from pathlib import Path

import cv2
import pytest

from skidpad.cli import run
from skidpad.scenes.archive import save_scene
from skidpad.scenes.synthetic import synthetic

SUITE = """
[eval.shown]
type = "human_replay"
env.num_goals = 1
env.scenes = ["straight.scene"]
eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
eval.resamples = 200
keep_traces = "all"

[eval.bare]
inherits = "shown"
keep_traces = "none"
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two evaluators, one of which kept no trace."""
    folder = tmp_path_factory.mktemp("render")
    save_scene(synthetic("straight"), folder / "straight.scene")
    (folder / "suite.toml").write_text(SUITE)
    out = folder / "run"
    assert run(["eval", str(folder / "suite.toml"), "--policy", "idm", "--out", str(out)]) == 0
    return out


def test_worst_cases_of_a_run(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E89, E92: pictures and a page beside the run, of the evaluators that kept traces; one that kept none, as realism
    does in every shipped suite, is named and passed over and does not keep the others from being shown."""
    out = tmp_path / "seen"
    size = ["--size", "320x192", "--max-steps", "5"]
    assert run(["render", str(finished), "--worst", "1", "--png", "--html", "--out", str(out), *size]) == 0
    said = capsys.readouterr()
    written = [Path(line) for line in said.out.splitlines()]
    assert [path.suffix for path in written] == [".png", ".html"]
    picture = cv2.imread(str(written[0]))
    assert picture is not None
    assert picture.shape == (192, 320, 3)
    assert picture.std() > 1.0
    assert written[0].parent == out / "shown"
    assert "bare: kept no trace, nothing of it is shown" in said.err
    assert not (out / "bare").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--evaluator", "bare"], "was not kept. Choose a case of the report's lists"),
        (["--evaluator", "others"], "no evaluator others in this run; it has bare, shown"),
        (["--case", "zz"], "no case zz in this run"),
        (["--arm", "random"], "no driver random; it has"),
        (["--by", "beauty"], "no metric 'beauty'"),
        (["--size", "321x192"], "both even"),
    ],
)
def test_what_is_not_there(
    finished: Path, tmp_path: Path, more: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What somebody names and the run does not have is said, with 2, and nothing is written."""
    assert run(["render", str(finished), "--png", "--out", str(tmp_path / "seen"), *more]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "seen").exists()


def test_a_run_without_traces_and_a_place_inside(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that kept no trace at all has nothing to show and says what to set; nothing is ever written into a run."""
    bare = tmp_path / "bare"
    suite = finished.parent / "suite.toml"
    assert run(["eval", str(suite), "--policy", "idm", "--evaluator", "bare", "--out", str(bare)]) == 0
    assert run(["render", str(bare), "--png", "--out", str(tmp_path / "seen")]) == 2
    assert 'no trace was kept of bare, so there is nothing to show. Run with keep_traces = "selected"' in (
        capsys.readouterr().err
    )
    assert run(["render", str(finished), "--png", "--out", str(finished / "seen")]) == 2
    assert "lies inside the run" in capsys.readouterr().err
    assert not (finished / "seen").exists()
