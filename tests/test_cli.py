"""The command line as a person meets it: exit codes, sentences not tracebacks, files where they were promised."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from skidpad.cli import run
from skidpad.scenes.archive import load_scene, save_scene
from skidpad.scenes.synthetic import synthetic

SUITE = """
[eval]
benchmark_seed = 3
[eval.traffic]
type = "human_replay"
env.scenes = "*.scene"
env.num_goals = 1
eval.worst_n = 1
eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
eval.resamples = 200
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite over two generated scenes."""
    folder = tmp_path_factory.mktemp("suite")
    for name in ("straight", "curve"):
        save_scene(synthetic(name), folder / f"{name}.scene")
    (folder / "suite.toml").write_text(SUITE)
    return folder / "suite.toml"


@pytest.fixture(scope="module")
def finished(suite: Path) -> Path:
    """A finished run with IDM under test."""
    out = suite.parent / "idm"
    assert run(["eval", str(suite), "--policy", "idm", "--out", str(out)]) == 0
    return out


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """What stands on the error stream."""
    return capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` and `--help` answer and end with 0; without arguments the help is shown."""
    assert run(["--version"]) == 0
    assert run(["--help"]) == 0
    assert run([]) == 0
    assert "eval" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "Unknown command"),
        (["eval"], "suite"),
        (["eval", "nowhere.toml"], "nowhere.toml"),
        (["eval", "SUITE", "env.nmu_goals=2"], "num_goals"),
        (["eval", "SUITE", "--policy", "imd"], "did you mean 'idm'"),
        (["eval", "SUITE", "--evaluator", "trafic"], "traffic"),
        (["eval", "SUITE", "--checkpoint", "none.safetensors"], "none.safetensors"),
        (["eval", "SUITE", "--policy", "idm", "--checkpoint", "x"], "once"),
        (["compare", "nowhere", "nowhere"], "nowhere"),
        (["report", "nowhere"], "nowhere"),
        (["scenes", "convert", "--out", "x"], "no files"),
        (["scenes", "inspect", "library:Nowhere*"], "library:Nowhere*"),
        (["scenes", "inspect"], "no scenes"),
        (["scenes", "draw", "SUITE", "--out", "x"], "suite.toml"),
    ],
)
def test_mistakes_get_a_sentence(
    suite: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the person can fix ends with 2, a sentence that names it, no traceback, and the code as a word (F1, F6)."""
    assert run([str(suite) if word == "SUITE" else word for word in arguments]) == 2
    text = said(capsys)
    assert words in text
    assert "Traceback" not in text
    assert text.splitlines()[-1] == "exit 2: usage"


def test_run_leaves_its_files(finished: Path) -> None:
    """A finished run holds what docs/formats.md lists; report.json is the mark of the end (E80, E99)."""
    for name in ("manifest.json", "chain.jsonl", "records.jsonl", "eval_summary.csv", "report.html", "report.json"):
        assert (finished / name).stat().st_size > 0, name
    assert (finished / "traffic" / "episodes.csv").exists()
    assert (finished / "traffic" / "summary.csv").exists()
    report = json.loads((finished / "report.json").read_text())
    assert report["schema"] == "skidpad.report/3"
    assert report["ok"] is True
    assert set(report["evaluators"]["traffic"]["arms"]) == {"idm", "stationary", "constant_velocity", "log"}
    log = report["evaluators"]["traffic"]["arms"]["log"]["metrics"]
    assert log["ade_log"]["value"] == 0.0
    assert log["score"]["value"] == 1.0


def test_finished_run_is_refused(suite: Path, finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with report.json is never written again (F41)."""
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    assert run(["eval", str(suite), "--policy", "idm", "--out", str(finished)]) == 2
    assert "finished" in said(capsys)
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_json_is_all_of_stdout(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json, standard output is one JSON document and everything else goes to the error stream (E80)."""
    assert run(["eval", str(suite), "--json", "--out", str(suite.parent / "json")]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "skidpad.report/3"


def test_list_and_print_config(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--list names the evaluators; --print-config is a legal suite with origins that prints itself again (E17)."""
    assert run(["eval", str(suite), "--list"]) == 0
    assert capsys.readouterr().out.split() == ["traffic"]
    assert run(["eval", str(suite), "--print-config"]) == 0
    printed = capsys.readouterr().out
    assert "suite.toml:" in printed
    again = tmp_path / "again.toml"
    again.write_text(printed)
    assert run(["eval", str(again), "--list"]) == 0
    assert capsys.readouterr().out.split() == ["traffic"]


def test_omitted_flag_keeps_the_section(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A flag that is not given changes nothing, one that is given does (E81)."""
    assert run(["eval", str(suite), "--print-config"]) == 0
    plain = capsys.readouterr().out
    assert "benchmark_seed = 3" in plain
    assert run(["eval", str(suite), "--print-config", "--num-scenarios", "1", "--seed", "9"]) == 0
    flagged = capsys.readouterr().out
    assert "num_scenarios = 1" in flagged
    assert "num_scenarios = 1" not in plain
    assert "seed = 9" in flagged


def test_report_goes_beside(finished: Path, tmp_path: Path) -> None:
    """`report` writes the page anew beside a run; it shows what the run's own page shows; it overwrites nothing."""
    out = tmp_path / "page.html"
    assert run(["report", str(finished), "--out", str(out)]) == 0
    assert out.read_text() == (finished / "report.html").read_text()
    assert run(["report", str(finished), "--out", str(out)]) == 2


def test_verify_a_run_of_drivers(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E116, M98, F45: a finished run holds; a changed record, a file more and a changed figure are found by name."""
    assert run(["verify", str(finished)]) == 0
    assert "all holds" in capsys.readouterr().out
    shutil.copytree(finished, tmp_path / "run")
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    name = next(iter(report["evaluators"]))
    report["evaluators"][name]["cases"] += 1
    (tmp_path / "run" / "report.json").write_text(json.dumps(report))
    (tmp_path / "run" / "more.txt").write_text("x")
    with (tmp_path / "run" / name / "summary.csv").open("a") as file:
        file.write("x\n")
    assert run(["verify", str(tmp_path / "run")]) == 3
    found = capsys.readouterr().out
    for words in (f"report.evaluators.{name}.cases", "more.txt: is no file", "summary.csv: was changed"):
        assert words in found
    assert run(["verify", str(finished), "--assets", str(finished.parent)]) == 0


def test_compare_two_runs(suite: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two drivers on the same cases are paired; a run against itself has no difference (E110, E114)."""
    other = suite.parent / "still"
    assert run(["eval", str(suite), "--policy", "stationary", "--out", str(other)]) == 0
    page = tmp_path / "compare.html"
    assert run(["compare", str(finished), str(other), "--out", str(page)]) == 0
    html = page.read_text()
    for text in ("stationary", "What got worse", "Provenance", "skidpad compare"):
        assert text in html
    capsys.readouterr()
    assert run(["compare", str(finished), str(finished), "--out", str(tmp_path / "same.html")]) == 0
    assert "+0.0 %" in capsys.readouterr().out


def test_compare_refuses_other_cases(
    suite: Path, finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """E111, EF37: other cases cannot be paired; with --intersection the common ones are, and both sizes printed."""
    fewer = suite.parent / "fewer"
    assert run(["eval", str(suite), "--policy", "idm", "--out", str(fewer), "--num-scenarios", "1"]) == 0
    capsys.readouterr()
    page = tmp_path / "c.html"
    assert run(["compare", str(finished), str(fewer), "--out", str(page)]) == 2
    assert "--intersection" in said(capsys)
    assert run(["compare", str(finished), str(fewer), "--out", str(page), "--intersection"]) == 0
    assert "2 and 1 cases" in page.read_text()


def test_unfinished_run_is_no_result(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder without report.json is not read as a result (E99)."""
    part = tmp_path / "part"
    part.mkdir()
    (part / "manifest.json").write_bytes((finished / "manifest.json").read_bytes())
    assert run(["compare", str(finished), str(part)]) == 2
    assert "unfinished" in said(capsys)


def test_scenes_from_file_to_picture(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A compressed scenario becomes an archive with a loss report, is described, and is drawn."""
    source = shared / "data" / "ngsim" / "USA_US101-3_3_T-1.xml.gz"
    out = tmp_path / "scenes"
    assert run(["scenes", "convert", str(source), "--out", str(out), "--licence", "BSD-3-Clause"]) == 0
    text = capsys.readouterr().out
    assert "12 lanes, 12 tracks" in text
    assert "assumed_height: 12" in text
    archive = out / "USA_US101-3_3_T-1.scene"
    assert load_scene(archive).meta.licence == "BSD-3-Clause"
    assert run(["scenes", "inspect", str(archive)]) == 0
    assert "findings      none" in capsys.readouterr().out
    assert run(["scenes", "draw", str(archive), "--out", str(tmp_path / "pictures")]) == 0
    assert (tmp_path / "pictures" / "USA_US101-3_3_T-1.png").read_bytes().startswith(b"\x89PNG")
    assert run(["scenes", "convert", str(source), "--out", str(out)]) == 0, "the same scene again is no conflict"


def test_one_bad_file_leaves_the_others(suite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is no scene is reported and ends with 2; the good one beside it is converted (F9)."""
    bad = tmp_path / "bad.xml"
    bad.write_bytes(b"<commonRoad")
    good = suite.parent / "straight.scene"
    assert run(["scenes", "convert", str(bad), str(good), "--out", str(tmp_path / "out")]) == 2
    output = capsys.readouterr()
    assert "bad.xml: failed" in output.err
    assert "Traceback" not in output.err
    assert [path.suffix for path in (tmp_path / "out").iterdir()] == [".scene"]


def test_library_is_listed_with_its_attribution(capsys: pytest.CaptureFixture[str]) -> None:
    """The bundled scenes are there, three with traffic and eight towns, each with licence and attribution."""
    assert run(["scenes", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    assert sum("tracks" in line for line in lines) == 3
    assert run(["scenes", "inspect", "library:*"]) == 0
    assert "not stated" not in capsys.readouterr().out


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command line as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "skidpad", *arguments], capture_output=True, env={**os.environ, **environment}
    )


def test_output_without_a_terminal(suite: Path) -> None:
    """In a pipe, on 20 columns, in an ASCII locale there are plain lines, no control characters (F59)."""
    done = program("scenes", "list", COLUMNS="20", LC_ALL="C", PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout + done.stderr
    listed = program("eval", str(suite), "--print-config", LC_ALL="C", PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert listed.returncode == 0, listed.stderr


def test_closed_pipe_leaves_no_trace() -> None:
    """`skidpad scenes inspect | head -1` ends in silence (F59)."""
    command = f"{sys.executable} -m skidpad scenes inspect 'library:*' | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True)
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr
