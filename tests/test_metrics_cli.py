"""The verbs about metrics, end to end: score, metrics list, metrics explain."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from skidpad.cli import run
from skidpad.evaluation.metrics.registry import METRICS
from skidpad.evaluation.rollout_files import write_rollouts
from skidpad.evaluation.rollouts import RolloutCase, Rollouts, make_edges, make_lights, make_log, make_rollouts
from skidpad.evaluation.score import SCORE_SCHEMA
from skidpad.evaluation.score_rollouts import ROLLOUT_SCORE_SCHEMA

SUITE = """
[eval.bundled]
type = "human_replay"
keep_traces = "all"
env.scenes = ["library:DEU_*"]
env.num_goals = 1
eval.egos = "each"
eval.baselines = ["log_actions", "stationary", "constant_velocity", "idm", "log", "random"]
"""


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run of all baselines on a bundled scene that kept every trace."""
    folder = tmp_path_factory.mktemp("scored")
    (folder / "suite.toml").write_text(SUITE, encoding="utf-8")
    assert run(["eval", str(folder / "suite.toml"), "--out", str(folder / "run")]) == 0
    return folder / "run"


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert run(list(words)) == code
    out = capsys.readouterr()
    return out.out, out.err


def test_scoring_a_run_gives_the_run_s_own_numbers(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Q1: traces of a run, scored again from disk, give every value of its report: same functions, same bytes."""
    out, _ = printed(capsys, "score", str(run_folder), "--json")
    table = json.loads(out)
    report = json.loads((run_folder / "report.json").read_text())["evaluators"]["bundled"]
    assert table["schema"] == SCORE_SCHEMA
    assert set(table["arms"]) == set(report["arms"])
    for arm, part in report["arms"].items():
        assert table["arms"][arm]["cases"] == part["n_cases"]
        for name, entry in part["metrics"].items():
            found = table["arms"][arm]["metrics"][name]
            assert (found["value"], found["valid"], found["interval"]) == (
                entry["value"],
                entry["valid"],
                entry["interval"],
            ), (arm, name)


def test_the_report_carries_the_scores_people_compare_with(run_folder: Path) -> None:
    """The scores are in the run's report and page through the registry, each with its reading aid."""
    report = json.loads((run_folder / "report.json").read_text())["evaluators"]["bundled"]
    page = (run_folder / "report.html").read_text(encoding="utf-8")
    for name in ("nuplan_cls", "carla_ds_2_0", "carla_ds_2_1", "b2d_smoothness", "ttc.sweep", "puffer_score"):
        assert name in report["arms"]["idm"]["metrics"]
        assert name in page
    assert METRICS["carla_ds_2_1"].aid in page


def test_one_metric_of_one_trace(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A single file and a single metric: the smallest question one can ask."""
    trace = sorted(run_folder.rglob("*@log_step0.trace"))[0]
    out, _ = printed(capsys, "score", str(trace), "--metric", "progress_ratio")
    assert out.splitlines()[1].split() == ["progress_ratio", "1.00"]
    assert "1 case from 1 scene" in out


def test_unknown_metric_and_nothing_to_score(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """F1: usage errors are one sentence and exit code 2."""
    assert "name trace files" in printed(capsys, "score", code=2)[1].lower()
    assert "no trace there" in printed(capsys, "score", str(tmp_path), code=2)[1]
    assert "did you mean 'carla_ds_2_0'" in printed(capsys, "metrics", "explain", "carla_ds_20", code=2)[1]


# -- rollouts -----------------------------------------------------------------------------------------------------

OBJECTS, FUTURE = 4, 80


def rollouts_file(path: Path, *, count: int = 32, lights: bool = True) -> Path:
    """Four cars side by side at 8 m/s, whose simulated ones wander."""
    rng = np.random.default_rng(0)
    x = 0.8 * np.arange(91) + np.zeros((OBJECTS, 1))
    y = 4.0 * np.arange(OBJECTS)[:, None] + np.zeros((1, 91))
    size = np.ones(OBJECTS)
    log = make_log(
        object_id=np.arange(OBJECTS), object_type=size, length=4.5 * size, width=2 * size, height=1.5 * size,
        x=x, y=y, z=0 * x, heading=0 * x, valid=np.ones(x.shape, dtype=bool), scored=[0, 1],
    )  # fmt: skip
    edges = make_edges([[-50, -5], [200, -5], [200, 20], [-50, 20]], [0, 2, 4])
    none = make_lights(np.zeros((0, 2)), [0], [], [], np.zeros((0, 2)), np.zeros((91, 0))) if lights else None
    noise = np.cumsum(rng.normal(0, 0.05, (count, OBJECTS, FUTURE)), axis=2)
    made = make_rollouts(log.object_id, x[:, 11:] + noise, y[:, 11:] + 0.1 * noise, 0 * noise, 0 * noise)
    assert isinstance(made, Rollouts)
    write_rollouts(path, RolloutCase(path.stem, log, edges, none), made)
    return path


def test_rollouts_are_scored_among_their_baselines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Q29: no realism score without the rows that make it readable; diversity stands below."""
    files = [str(rollouts_file(tmp_path / f"{name}.npz")) for name in ("a", "b")]
    text, _ = printed(capsys, "score", *files)
    lines = [line.split()[0] for line in text.splitlines() if line.strip()]
    assert lines[:7] == [
        "realism_2025",
        "rollouts",
        "log",
        "log_hold_last",
        "stationary",
        "constant_velocity",
        "random",
    ]
    assert {"diversity", "min_ade_official", "spread_ratio", "even", "2"} <= set(lines)
    table = json.loads(printed(capsys, "score", *files, "--json", "--year", "2024")[0])
    assert (table["schema"], table["name"], table["standard"]) == (ROLLOUT_SCORE_SCHEMA, "realism_2024", True)
    row = table["realism"]["rollouts"]
    assert 0 < row["value"] < 1
    assert row["value"] == table["values"]["realism_2024"]
    assert len({part["value"] for arm, part in table["realism"].items() if arm in ("rollouts", "log", "random")}) == 3
    assert "realism_2025" not in table["values"]


def test_peer_s_realism_stands_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Q31: never in one table with realism_*."""
    text, _ = printed(capsys, "score", str(rollouts_file(tmp_path / "a.npz")), "--peer", "puffer")
    assert text.startswith("puffer/realism")
    assert "realism_2025" not in text


def test_deviations_are_announced_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Q21, Q27: eight rollouts are no standard task, and a format without lights has no score of 2025: no data with its
    reason, while its other values stand."""
    path = str(rollouts_file(tmp_path / "few.npz", count=8, lights=False))
    assert "8 rollouts instead of 32" in printed(capsys, "score", path, code=2)[1]
    text, _ = printed(capsys, "score", path, "--not-standard")
    assert "no data (no_signal)" in text
    assert "few: 8 rollouts instead of 32" in text
    whole = str(rollouts_file(tmp_path / "whole.npz"))
    assert "Score them apart" in printed(capsys, "score", path, whole, "--not-standard", code=2)[1]


def message(number: int, body: bytes) -> bytes:
    """One length-delimited field of the submission layout."""
    size, digits = len(body), b""
    while size > 127:
        digits, size = digits + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + digits + bytes([size]) + body


def submission(path: Path, scenario: str, count: int = 2) -> Path:
    """The cars of `rollouts_file` on their recorded way, in the public layout."""
    x = 0.8 * np.arange(11, 91, dtype="<f4")
    scenes = []
    for _ in range(count):
        cars = (
            message(2, x.tobytes()) + message(3, np.full(80, 4.0 * car, "<f4").tobytes())
            + message(4, bytes(320)) + message(5, bytes(320)) + bytes([6 << 3, car])
            for car in range(OBJECTS)
        )  # fmt: skip
        scenes.append(message(2, b"".join(message(1, car) for car in cars)))
    path.write_bytes(message(1, message(1, scenario.encode()) + b"".join(scenes)))
    return path


def test_submissions_find_their_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A submission holds no log: it comes from a case file of the same id, and without one nothing is scored. The cars
    follow their log exactly, so the score is that of the log's own row."""
    case, sent = str(rollouts_file(tmp_path / "known.npz")), str(submission(tmp_path / "sent.binproto", "known"))
    words = ("score", sent, "--not-standard", "--json")
    row = json.loads(printed(capsys, *words, "--case", case)[0])["realism"]
    assert row["rollouts"]["value"] == pytest.approx(row["log"]["value"], abs=1e-6)
    assert "scenario 'known' is none of the 0 cases given" in printed(capsys, *words, code=2)[1]
    foreign = str(submission(tmp_path / "foreign.binproto", "unknown"))
    assert "pass its case with --case" in printed(capsys, "score", foreign, "--case", case, code=2)[1]


def test_a_scenario_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same scenario from two programs in one table would be averaged into nobody's score."""
    path = rollouts_file(tmp_path / "a.npz")
    (tmp_path / "copy.npz").write_bytes(path.read_bytes())
    _, err = printed(capsys, "score", str(path), str(tmp_path / "copy.npz"), code=2)
    assert "scenario a occurs twice" in err


def test_options_that_would_do_nothing_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An option without effect makes people believe that it had one; traces and rollouts do not mix."""
    path = str(rollouts_file(tmp_path / "a.npz"))
    assert "--metric does nothing for rollouts" in printed(capsys, "score", path, "--metric", "score", code=2)[1]
    assert (
        "--not-standard does nothing for traces" in printed(capsys, "score", str(tmp_path), "--not-standard", code=2)[1]
    )
    assert "one after the other" in printed(capsys, "score", path, str(tmp_path), code=2)[1]


# -- list and explain ---------------------------------------------------------------------------------------------


def test_list_prints_the_registry(capsys: pytest.CaptureFixture[str]) -> None:
    """Q2: the printed registry is the registry, as text and as JSON; realism is in the list though not of a trace."""
    text, _ = printed(capsys, "metrics", "list")
    assert [line.split("/")[0] for line in text.splitlines()[1 : len(METRICS) + 1]] == list(METRICS)
    assert "\nrealism_2025/1" in text
    lines = json.loads(printed(capsys, "metrics", "list", "--json")[0])
    assert [line["name"] for line in lines][: len(METRICS)] == list(METRICS)
    assert lines[0] == METRICS[lines[0]["name"]].spec()


def test_list_of_a_peer(capsys: pytest.CaptureFixture[str]) -> None:
    """Q11: the seven names that sound like ours, and what they count."""
    text, _ = printed(capsys, "metrics", "list", "--peer", "puffer")
    assert "total_infraction_count" in text
    assert "counts agents with an infraction, not infractions" in text
    assert len(text.splitlines()) == 8


@pytest.mark.parametrize("name", ["nuplan_cls", "realism_2025", "carla_ds_2_1", "puffer/realism"])
def test_explain(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Q43: every function explains itself: definition, source, versions, example, differences, blindness."""
    text, _ = printed(capsys, "metrics", "explain", name)
    assert text.startswith(f"{name}/1\n")
    for heading in ("definition", "unit", "source", "versions", "by hand", "differs", "cannot see"):
        assert f"\n  {heading}" in text


# -- bench --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_bench_prints_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """The figures of the README come from this verb: they are there, positive, and beside a calibration loop."""
    figures = json.loads(printed(capsys, "bench", "metrics", "--json", "--quick")[0])
    for name in ("realism_seconds_per_scenario", "nuplan_seconds_per_1000_cases", "paired_bootstrap_cpu_seconds"):
        assert figures[name] > 0
    assert figures["cases"] > 30
    assert figures["realism_load"] == {"rollouts": 32, "steps": 80, "objects": 50, "scored": 50}
    assert set(figures["calibration"]) == {"before", "after", "reliable"}
