"""Passes that are drawn: which cases, when, where the files lie; a broken pen breaks no number (E32, E83-E90)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skidpad.errors import ProtocolError, SettingsError
from skidpad.evaluation.manager import EvalManager, evaluate_suite
from skidpad.evaluation.renders import RenderJob, cases_to_draw, is_render_due
from skidpad.policies.policy import PolicySpec
from skidpad.reporting.films import draw_pass
from skidpad.runs.chain import read_chain
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import deterministic, read_records
from skidpad.runs.trace_file import read_trace

SUITE = """
    [eval.a]
    type = "human_replay"
    env.scenes = ["{scenes}/straight-0.scene", "{scenes}/straight-1.scene", "{scenes}/crossing.scene"]
    env.scenario_length = 12
    eval.worst_n = 1
    eval.resamples = 200
    eval.baselines = ["stationary", "constant_velocity", "idm", "log"]
    eval.skip_metrics = ["nuplan_*", "pdms_*", "epdms_*", "carla_*", "b2d_*", "ttc.*"]
"""
DRAWN = """
    render = true
    render_views = ["sim_state", "topdown_sim"]
    eval.render_num_scenarios = 2
    eval.render_max_steps = 5
"""


class Straight:
    """Drives straight on."""

    spec = PolicySpec("straight", "compact/1", "continuous")

    def initial_state(self, rows: int) -> None:
        return None

    def act(self, observation: Any, state: Any, reset: Any, **rest: Any) -> Any:
        return np.zeros((len(observation), 2), np.float32), state


@pytest.fixture(scope="module")
def drawn(scene_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run whose three cases had a budget of two, with two views and a page."""
    import textwrap

    from skidpad.evaluation.evaluators import TYPES
    from skidpad.settings.suite import load_suite

    folder = tmp_path_factory.mktemp("drawn")
    text = textwrap.dedent(SUITE + DRAWN + '    render_backend = ["mp4", "triage_html"]\n')
    (folder / "suite.toml").write_text(text.replace("{scenes}", str(scene_folder)))
    suite = load_suite(folder / "suite.toml", types=TYPES)
    result = evaluate_suite(suite, folder / "run", draw=draw_pass, reproduce="again")
    assert result.exit_code == 0
    return result.folder


def test_a_budget_of_two_cases_and_two_views_is_four_files(drawn: RunFolder) -> None:
    """E84, E87, E88, E90: exactly cases x views clips of at most the budgeted steps, in the evaluator's own folder,
    named by the report in the order the writer gave them."""
    import av

    (passed,) = drawn.read_report()["evaluators"]["a"]["renders"]
    assert passed["error"] is None
    assert list(passed["files"]) == ["a/render/sim_state", "a/render/topdown_sim", "a/render/triage_html"]
    clips = passed["files"]["a/render/sim_state"] + passed["files"]["a/render/topdown_sim"]
    assert len(set(clips)) == 4
    assert sorted(clips) == sorted(
        path.relative_to(drawn.path).as_posix() for path in drawn.renders("a").iterdir() if path.suffix == ".mp4"
    )
    for clip in clips:
        with av.open(io.BytesIO((drawn.path / clip).read_bytes())) as container:
            assert sum(1 for _ in container.decode(video=0)) == 6
    assert passed["files"]["a/render/triage_html"] == ["renders/a/triage_epoch0_step0.html"]
    assert "://" not in (drawn.path / "renders/a/triage_epoch0_step0.html").read_text()


def test_what_is_drawn_is_what_was_scored(drawn: RunFolder) -> None:
    """E83: the trace behind each clip is the one whose digest the record holds."""
    records = {(record.case, record.arm): record for record in read_records(drawn.records)}
    for path in (drawn.path / "traces" / "a").iterdir():
        trace = read_trace(path)
        record = records[trace.meta.case, trace.meta.arm]
        assert record.result is not None
        assert record.result["trace_digest"] == trace.digest


def test_drawing_changes_no_record(load, drawn: RunFolder, tmp_path: Path) -> None:
    """E18, E31: the same suite without pictures gives the same section digest and records."""
    plain = evaluate_suite(load(SUITE), tmp_path / "plain").folder
    first, second = ([deterministic(r) for r in read_records(one.records)] for one in (plain, drawn))
    assert first == second
    digests = [one.read_report()["evaluators"]["a"]["digests"]["section"] for one in (plain, drawn)]
    assert digests[0] == digests[1]


def test_a_broken_pen_breaks_no_number(load, tmp_path: Path, capsys) -> None:
    """F57: drawing that fails is said in the chain and the report, with exit code 1; records and page stand."""

    def breaks(job: RenderJob) -> dict[str, list[Path]]:
        raise RuntimeError("pen broken")

    result = evaluate_suite(load(SUITE + DRAWN), tmp_path / "run", draw=breaks)
    assert result.exit_code == 1
    assert result.report is not None
    part = result.report["evaluators"]["a"]
    assert part["ok"]
    assert part["renders"][0]["error"]["message"] == "pen broken"
    assert "pen broken" in capsys.readouterr().err
    assert [event["event"] for event in read_chain(result.folder.chain)].count("render_failed") == 1


def test_the_product_is_printed(load, tmp_path: Path, capsys) -> None:
    """E86: what will be drawn is said before the first case runs."""
    evaluate_suite(load(SUITE + DRAWN), tmp_path / "run", draw=lambda job: {})
    assert "a: renders 2 views x 2 cases x 5 steps a pass as mp4" in capsys.readouterr().err


def test_render_interval_multiple(load, tmp_path: Path) -> None:
    """E32: pictures on every second pass and at the end, numbers on all; the schedules are separate."""
    text = SUITE + DRAWN + "    interval = 2\n    render_interval = 4\n"
    jobs: list[tuple[int, int]] = []

    def draw(job: RenderJob) -> dict[str, list[Path]]:
        jobs.append((job.epoch, len(job.cases)))
        return {"sim_state": [job.folder.renders(job.spec.name) / "x.mp4"]}

    with EvalManager(load(text), tmp_path / "run", policy=Straight(), policy_digest="0", draw=draw) as manager:
        passes = {
            epoch: manager.maybe_run(epoch, 10 * epoch, policy=Straight(), policy_digest=str(epoch)).get("a")
            for epoch in range(1, 9)
        }
        assert [epoch for epoch, result in passes.items() if result] == [2, 4, 6, 8]
        assert jobs == [(4, 2), (8, 2)]
        assert passes[2].renders == {}
        assert list(passes[4].renders) == ["a/render/sim_state"]
        assert passes[4].values["a/render_seconds"] >= 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {0: True, 4: True, "end": True}),
        ("render_interval = 4", {0: False, 2: False, 4: True, "end": True}),
        ("render_interval = 0", {0: False, 4: False, "end": False}),
        ("render_interval = 0\n    render_at_end = true", {4: False, "end": True}),
        ("render_at_end = false", {4: True, "end": False}),
    ],
)
def test_when_pictures_are_due(load, text: str, expected: dict[Any, bool]) -> None:
    """E32: by default with the numbers; 0 is never on schedule, and the end has a word of its own."""
    spec = load(SUITE + DRAWN + f"    interval = 2\n    {text}\n").spec("a")
    for epoch, due in expected.items():
        at = 9 if epoch == "end" else epoch
        assert is_render_due(spec, at, force=epoch == "end") is due, epoch


def test_cases_to_draw(load, drawn: RunFolder) -> None:
    """E85: worst equals the sort of the records; random differs between steps and repeats for one; first is the order
    of the cases; failed leaves out the faultless; ids come in the order they were written."""
    part = drawn.read_report()["evaluators"]["a"]
    manifest_part = {**part, "settings": {"eval": {"worst_metric": None, "primary": "score"}}}
    focus = [record for record in read_records(drawn.records) if record.arm == part["focus"]]
    focus.sort(key=lambda record: record.case_index)

    def drawn_with(select: str, step: int = 0, count: int = 2) -> list[str]:
        spec = load(SUITE + DRAWN + f"    render_select = {select}\n", f"eval.render_num_scenarios={count}").spec("a")
        return cases_to_draw(spec, manifest_part, focus, step)

    def value(record: Any) -> tuple[float, str]:
        return record.result["metrics"]["score"]["value"], record.case

    assert drawn_with('"worst"') == [record.case for record in sorted(focus, key=value)[:2]]
    assert drawn_with('"first"') == [record.case for record in focus[:2]]
    ids = [record.case for record in focus]
    assert drawn_with(str([ids[2], ids[0]])) == [ids[2], ids[0]]
    assert len({tuple(drawn_with('"random"', step)) for step in range(12)}) > 1
    assert drawn_with('"random"', 7) == drawn_with('"random"', 7)
    bad = [r for r in focus if any(r.result["metrics"][n]["value"] for n in ("collision_rate", "offroad_rate"))]
    assert set(drawn_with('"failed"', count=9)) == {record.case for record in bad}


def test_what_nobody_could_see_is_refused_before_it_runs(load, tmp_path: Path) -> None:
    """E91, E94: a controller is given no observation, and a case that does not exist cannot be drawn; an hour later is
    too late to say so."""
    for line, reason in (
        ('    render_views = ["bev"]\n', "idm is a controller"),
        ('    render_select = ["0000"]\n', "no case of it, 0000"),
    ):
        text = SUITE + DRAWN.replace('    render_views = ["sim_state", "topdown_sim"]\n', "") + line
        with pytest.raises(SettingsError, match=reason):
            evaluate_suite(load(text), tmp_path / "run", draw=draw_pass)
    with pytest.raises(ProtocolError, match="was given no `draw`"):
        evaluate_suite(load(SUITE + DRAWN), tmp_path / "other")
