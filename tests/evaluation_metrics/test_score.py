"""Scoring traces from files: what is found, what is refused, and what a table says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from driving import car, lane, scene_of, trace_of
from hand_worked import OFFROAD, events

from skidpad.errors import FormatError, ProtocolError, UsageError
from skidpad.evaluation.metrics import registry
from skidpad.evaluation.metrics.registry import METRICS, compute, selected
from skidpad.evaluation.score import find_traces, holds_traces, score_case, score_files, score_table
from skidpad.runs.trace import Trace
from skidpad.runs.trace_file import write_trace
from skidpad.scenes.archive import save_scene
from skidpad.scenes.scene import Scene

NAMES = ["distance", "infractions_per_km", "offroad_rate"]


def world(end: float = 200.0) -> Scene:
    t = np.arange(6.0)
    return scene_of([car(x=t, route=[0])], [lane([(0, 0), (end, 0)])], edges=True)


def driven(scene: Scene, metres: float, happened=(), **meta: str) -> Trace:
    rows = {"x": metres * np.arange(6.0)[None], "speed": 10 * metres, "events": events(1, 5, *happened)}
    trace = trace_of(scene, rows)
    return dataclasses.replace(trace, meta=dataclasses.replace(trace.meta, **meta))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A scene, and two cases of it by each of two drivers."""
    scene = world()
    save_scene(scene, tmp_path / "hand.scene")
    for case, metres, happened in (("a", 1.0, ()), ("b", 3.0, ((0, 2, OFFROAD),))):
        write_trace(driven(scene, metres, happened, case=case, arm="slow"), tmp_path / f"{case}@slow.trace")
        write_trace(driven(scene, 2 * metres, case=case, arm="fast"), tmp_path / f"{case}@fast.trace")
    return tmp_path


def table_of(folder: Path, names=NAMES):
    return score_files([folder], [str(folder / "hand.scene")], names)


def test_a_table_is_what_the_metrics_say(files: Path) -> None:
    """5 and 15 m by the slow one: mean 10 m, spread 7.07 with n - 1, and 1 infraction over 0.02 km, not a mean of
    ratios; the fast one drives twice as far and has none."""
    found = table_of(files)
    slow, fast = found["arms"]["slow"], found["arms"]["fast"]
    assert (slow["cases"], slow["scenes"], slow["agents"]) == (2, 1, 2)
    assert slow["metrics"]["distance"]["value"] == 10
    assert slow["metrics"]["distance"]["spread"] == pytest.approx(50**0.5)
    assert slow["metrics"]["infractions_per_km"]["value"] == pytest.approx(50)
    assert slow["metrics"]["offroad_rate"]["value"] == 0.5
    assert fast["metrics"]["distance"]["value"] == 20
    assert slow["metrics"]["distance"]["interval_reason"] == "1 cluster"
    cases = {(case["case"], case["arm"]): case["metrics"]["distance"]["value"] for case in found["cases"]}
    assert cases == {("a", "slow"): 5, ("b", "slow"): 15, ("a", "fast"): 10, ("b", "fast"): 30}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_trace_from_disk_scores_as_in_memory(files: Path) -> None:
    """Q1: every metric gives the same value from the file as from the trace that was written."""
    scene = world()
    trace = driven(scene, 3.0, ((0, 2, OFFROAD),), case="b", arm="slow")
    stored = next(case for case in table_of(files, None)["cases"] if (case["case"], case["arm"]) == ("b", "slow"))
    assert stored["trace_digest"] == trace.digest
    assert stored["metrics"] == {name: value.as_record() for name, value in compute(trace, scene).items()}


def test_metres_without_an_infraction_count(files: Path) -> None:
    """Q4: 5 m without an infraction and 15 m with one are 20 m per infraction; dropped with their case, they would be
    15."""
    entry = table_of(files, ["distance_per_infraction"])["arms"]["slow"]["metrics"]["distance_per_infraction"]
    assert (entry["value"], entry["n"]) == (20, 1)


def test_missing_values_keep_their_reason(files: Path) -> None:
    """Q3: no light in the scene: no data for anybody, and never a zero."""
    entry = table_of(files, ["red_light_rate"])["arms"]["slow"]["metrics"]["red_light_rate"]
    assert (entry["value"], entry["valid"], entry["n"], entry["reason"]) == (None, False, 0, "no_signal")


def test_peer_values_stand_under_their_own_names(files: Path) -> None:
    """Q11: asked for, they are there; not asked for, they are not."""
    with_peer = score_files([files], [str(files / "hand.scene")], NAMES, peer=True)
    assert with_peer["arms"]["slow"]["metrics"]["puffer/total_infraction_count"]["value"] == 0.5
    assert not [name for name in table_of(files)["metrics"] if name.startswith("puffer/")]


def test_evaluators_are_kept_apart() -> None:
    """One case may be driven under two evaluators' settings; their means do not mix."""
    scene = world()
    made = [score_case(driven(scene, 1.0, evaluator=name), scene, ["distance"]) for name in ("calm", "rain")]
    assert list(score_table(made, selected(["distance"]))["arms"]) == ["calm: policy", "rain: policy"]


def test_one_case_twice_is_refused() -> None:
    """Two runs in one folder would weigh a case twice without a word."""
    scene = world()
    once = score_case(driven(scene, 1.0), scene, ["distance"])
    with pytest.raises(UsageError, match="two traces of case hand by policy"):
        score_table([once, once], selected(["distance"]))


def test_a_trace_without_its_scene_is_refused(files: Path) -> None:
    """The digest decides: a scene of the same name with another map is another scene."""
    save_scene(world(201.0), files / "other.scene")
    (files / "hand.scene").unlink()
    with pytest.raises(UsageError, match=r"recorded in scene hand .* Pass its file with --scenes"):
        score_files([files], [str(files / "other.scene")], NAMES)


def test_a_trace_of_another_scene_is_refused() -> None:
    """Pairing by hand is checked too."""
    with pytest.raises(ProtocolError, match="recorded in scene"):
        score_case(driven(world(), 1.0), world(201.0))


def test_folder_without_traces_is_refused(tmp_path: Path) -> None:
    """A run that kept no traces would otherwise score as an empty success."""
    with pytest.raises(UsageError, match="no trace there"):
        find_traces([tmp_path])


def test_a_case_that_cannot_be_scored_does_not_hide_the_others(files: Path) -> None:
    """A trace with a speed that is no number fails alone, and says which metric of which agent."""
    broken = driven(world(), 1.0, case="c", arm="slow")
    broken.arrays["speed"][:] = np.nan
    write_trace(broken, files / "c@slow.trace")
    found = table_of(files, ["avg_speed"])
    assert found["arms"]["slow"]["cases"] == 2
    assert [(item["case"], item["arm"]) for item in found["failed"]] == [("c", "slow")]
    assert "avg_speed/1 of agent 0" in found["failed"][0]["why"]


# -- two tables on one axis ---------------------------------------------------------------------------------------


def stored(files: Path, change=None) -> Path:
    found = table_of(files)
    if change:
        change(found)
    path = files / "earlier.json"
    path.write_text(json.dumps(found))
    return path


def test_an_earlier_score_stands_beside(files: Path) -> None:
    """Values of the same definitions are shown side by side, under the name of the file they came from."""
    found = score_files([files, stored(files)], [str(files / "hand.scene")], ["distance"])
    assert list(found["arms"]) == ["fast", "slow", "earlier: fast", "earlier: slow"]
    assert found["arms"]["earlier: slow"]["metrics"].keys() == {"distance"}


def test_versions_do_not_share_an_axis(files: Path) -> None:
    """Q8, E111: a number of version 2 beside one of version 1 is the comparison that nobody notices is wrong."""
    other = stored(files, lambda table: table["metrics"]["distance"].update(version=2))
    with pytest.raises(UsageError, match=r"distance \(version 2 there, 1 here\).*do not share an axis"):
        score_files([files, other], [str(files / "hand.scene")], NAMES)
    left_out = score_files([files, other], [str(files / "hand.scene")], ["offroad_rate"])
    assert "earlier: slow" in left_out["arms"]


def test_parameters_do_not_share_an_axis(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Q42: the same version with another threshold is another metric; the digest tells."""
    earlier = stored(files)
    line = METRICS["distance"]
    changed = dataclasses.replace(line, parameters={"teleport_m": 6.0})
    monkeypatch.setitem(cast("dict[str, object]", registry.LINES), "distance", changed)
    monkeypatch.setitem(cast("dict[str, object]", METRICS), "distance", changed)
    with pytest.raises(UsageError, match=r"distance \(other parameters or golden values\)"):
        score_files([files, earlier], [str(files / "hand.scene")], NAMES)


@pytest.mark.parametrize("text", ['{"schema": "skidpad.report/3"}', "[1]"])
def test_other_json_is_no_score(files: Path, text: str) -> None:
    """A report or a rollouts file is something else, and says so."""
    path = files / "other.json"
    path.write_text(text)
    assert not holds_traces(path)
    with pytest.raises(FormatError, match="expected a score file"):
        score_files([files, path], [str(files / "hand.scene")], NAMES)
