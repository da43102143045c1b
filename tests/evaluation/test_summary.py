"""The report as a function of records: hand-worked values, coverage by set, and what is said when there is no data."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skidpad.evaluation.selection import random_cases, worst_cases
from skidpad.evaluation.summary import coverage_of, deterministic_report, last_pass, summarise, values_of
from skidpad.evaluation.tables import episodes_csv, eval_summary_csv, summary_csv
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import Record

ARMS = ("policy", "idm", "log")


def record(
    case: str,
    arm: str = "policy",
    *,
    value: float | None = 1.0,
    agents: int = 1,
    scene: str | None = None,
    **changed: Any,
) -> Record:
    """One record whose score is `value` of `agents` agents; None = not valid."""
    return Record(
        **{
            "evaluator": "a",
            "epoch": 0,
            "step": 0,
            "checkpoint": "c1" if arm == "policy" else "",
            "case": case,
            "arm": arm,
            "case_index": 0,
            "scene_id": f"scene of {case}",
            "scene_digest": scene or f"digest of {case}",
            "seed": 1,
            "benchmark_seed": 0,
            "replicate": 0,
            "ego": -1,
            "ego_rule": "",
            "status": "ok",
            "error": None,
            "result": {
                "n_agents": agents,
                "steps": 10,
                "metrics": {
                    "score": metric(value, agents),
                    "collision_rate": metric(0.0, agents),
                    "distance_per_infraction": {
                        "value": None,
                        "valid": False,
                        "numerator": 300.0,
                        "denominator": 0.0,
                        "reason": "no_exposure",
                    },
                },
                "trace_digest": "t",
                "state_hash": "s",
            },
            "cost": {"seconds": 2.0, "setup_seconds": 0.5, "rollout_seconds": 1.0, "metric_seconds": 0.5},
            **changed,
        }
    )


def metric(value: float | None, agents: int) -> dict[str, Any]:
    if value is None:
        return {"value": None, "valid": False, "numerator": 0.0, "denominator": 0.0, "reason": "no_lane"}
    return {"value": value, "valid": True, "numerator": value * agents, "denominator": float(agents), "reason": None}


def failed(case: str, arm: str = "policy", **changed: Any) -> Record:
    error = {"type": "ActionError", "message": "is NaN", "traceback": "Traceback ..."}
    return record(case, arm, status="error", error=error, result=None, **changed)


def part(cases: list[str], **knobs: Any) -> dict[str, Any]:
    settings = {
        "primary": "score",
        "primary_margin": 0.02,
        "reference": "log",
        "cluster": "log",
        "worst_metric": None,
        "worst_n": 2,
        "max_failed_cases": 0,
        "replicates": 1,
        "resamples": 500,
        "interval_method": "bca",
        **knobs,
    }
    return {
        "type": "multi_scenario",
        "arms": list(ARMS),
        "focus": "policy",
        "digests": {"section": "5e", "metrics": "3e", "scenes": "5c", "code": "c0", "checkpoint": "c1"},
        "settings": {"eval": settings, "vec": {"infer_batch": 64}},
        "cases": [{"case": case} for case in cases],
        "duplicates": [],
    }


def summary(records: list[Record], cases: list[str] | None = None, failure: Any = None, **knobs: Any) -> dict[str, Any]:
    names = cases or sorted({r.case for r in records})
    return summarise("a", part(names, **knobs), records, failure, RunFolder(Path("nowhere")))


def complete(values: Mapping[str, float]) -> list[Record]:
    """Every arm over the cases; the log scores 1 everywhere and idm 0.5."""
    return [
        record(case, arm, value={"policy": value, "idm": 0.5, "log": 1.0}[arm])
        for case, value in values.items()
        for arm in ARMS
    ]


def test_two_weightings_by_hand() -> None:
    """E106, E74: one case of 100 agents at 0.1 and one of 1 agent at 1. By scene (0.1 + 1) / 2 = 0.55, by agent
    (10 + 1) / 101; the bare value is the one that the metric declares."""
    records = [record("aa", value=0.1, agents=100), record("bb", value=1.0, agents=1)]
    entry = summary(records)["arms"]["policy"]["metrics"]["score"]
    assert entry["by_scene"] == pytest.approx(0.55)
    assert entry["by_agent"] == pytest.approx(11 / 101)
    assert entry["value"] == entry["by_scene"]
    logged = values_of(records)
    assert logged["score"] == logged["score_by_scene"] == entry["by_scene"]
    assert logged["score_by_agent"] == entry["by_agent"]


def test_invalid_is_counted_and_never_zero() -> None:
    """E74, Q3: 2 of 3 without a lane: the mean is over one, says so, and gives the reason; 3 of 3 is no data."""
    records = [record("aa", value=None), record("bb", value=None), record("cc", value=0.25)]
    entry = summary(records)["arms"]["policy"]["metrics"]["score"]
    assert (entry["value"], entry["n"], entry["invalid"], entry["reason"]) == (0.25, 1, 2, None)
    nothing = summary(records[:2])["arms"]["policy"]["metrics"]["score"]
    assert (nothing["value"], nothing["valid"], nothing["reason"]) == (None, False, "no_lane")
    logged = values_of(records[:2])
    assert "score" not in logged
    assert logged["score_invalid"] == 2.0
    assert "no data on score" in summary(records[:2])["verdict"]


def test_zero_events_are_a_bound() -> None:
    """E108: no collision in 8 cases is below 1 - 0.05^(1/8) = 31 %, not 0 %; 8 x 300 m without infraction is more than
    2,400 / 3 = 800 m between them, not 2,400."""
    entry = summary([record(f"c{n}") for n in range(8)])["arms"]["policy"]["metrics"]
    assert entry["collision_rate"]["bound"] == "below 31 % at 95 %"
    assert entry["collision_rate"]["interval"] is None
    assert "800" in entry["distance_per_infraction"]["bound"]
    assert entry["distance_per_infraction"]["value"] is None


def test_coverage_compares_sets() -> None:
    """E73: counting called four maps plus a duplicate complete; the missing one is named."""
    records = [record(case, arm) for case in ("aa", "bb", "cc", "dd") for arm in ARMS]
    five = ["aa", "bb", "cc", "dd", "ee"]
    coverage = coverage_of({**part(five), "duplicates": ["x holds the scene of y"]}, records)
    assert not coverage["complete"]
    assert coverage["missing"] == ["ee@idm", "ee@log", "ee@policy"]
    assert coverage["duplicated"] == ["x holds the scene of y"]
    assert (coverage["expected"], coverage["finished"], coverage["distinct_scenes"]) == (15, 12, 4)
    assert coverage_of(part(five[:4]), records)["complete"]


def test_one_failed_of_twenty() -> None:
    """E30: the mean over the survivors says how many it is over; coverage is incomplete and ok is false, unless the
    section allows it."""
    records = [
        *complete({f"c{n:02d}": 1.0 for n in range(19)}),
        failed("c99"),
        record("c99", "idm"),
        record("c99", "log"),
    ]
    result = summary(records)
    assert (result["ok"], result["status"]) == (False, "failed")
    assert result["coverage"]["failed"] == {"ActionError": 1}
    assert result["coverage"]["missing"] == ["c99@policy"]
    assert result["arms"]["policy"]["metrics"]["score"]["n"] == 19
    assert result["verdict"].startswith("a: incomplete; on the cases that finished")
    assert summary(records, max_failed_cases=1)["ok"]


def test_missing_records_and_broken_evaluators_are_not_ok() -> None:
    """E29, E47: an interrupted or broken pass never looks like a good one."""
    records = complete({"aa": 1.0, "bb": 1.0})
    assert summary(records[:-1], ["aa", "bb"])["status"] == "incomplete"
    broken = summary(records, failure={"type": "ZeroDivisionError", "message": "m", "traceback": "t"})
    assert (broken["ok"], broken["status"]) == (False, "error")
    assert "ZeroDivisionError" in broken["verdict"]


def test_paired_differences_by_hand() -> None:
    """E110: policy minus log over the same cases: (0 - 1), (1 - 1), (0.5 - 1) is -0.5 with one tie, two losses."""
    result = summary(complete({"aa": 0.0, "bb": 1.0, "cc": 0.5}))
    pair = result["paired"]["policy"]["score"]
    assert pair["difference"] == pytest.approx(-0.5)
    assert (pair["n"], pair["wins"], pair["ties"], pair["losses"]) == (3, 0, 1, 2)
    assert pair["verdict"] == "not established"  # three scenes establish nothing
    assert pair["exploratory"] is False
    assert result["paired"]["policy"]["collision_rate"]["exploratory"] is True
    assert "log" not in result["paired"]
    assert "3 clusters: the interval is a guess" in result["verdict"]


def test_cases_that_failed_in_one_arm_are_left_out_of_pairs() -> None:
    """E110: a pair needs both sides; the failure stays in the coverage."""
    records = [*complete({"aa": 0.0, "bb": 1.0}), failed("cc"), record("cc", "log"), record("cc", "idm")]
    assert summary(records)["paired"]["policy"]["score"]["n"] == 2


def test_few_clusters_are_said() -> None:
    """E107, E109: below 10 scenes "few clusters", below 6 a guess, however many cases they give."""
    for scenes, few, note in ((5, True, "guess"), (9, True, "few clusters"), (10, False, "n small")):
        records = [
            record(f"c{n:03d}", arm, value=float(n % 2), scene=f"s{n % scenes}") for n in range(30) for arm in ARMS
        ]
        result = summary(records)
        assert (result["clusters"], result["few_clusters"]) == (scenes, few)
        assert note in result["size_note"]


def test_floor_and_scale_stand_beside_the_score() -> None:
    """E71, Q10: what the log itself does is printed, and the score stands between the weakest arm and the log."""
    result = summary(complete({"aa": 0.7, "bb": 0.8}))
    assert result["floor"] == {"collision_rate": 0.0}
    assert result["scale"]["weakest"] == "idm"
    assert result["scale"]["position"] == pytest.approx((0.75 - 0.5) / (1 - 0.5))


def test_seeds_and_scenes_are_told_apart() -> None:
    """E113: 4 scenes at 0.2, 0.4, 0.6, 0.8, replicates 0.1 apart: within variance 0.005, between larger than that."""
    records = [
        record(f"c{scene}{seed}", value=0.2 * scene + 0.1 * seed, scene=f"s{scene}", replicate=seed)
        for scene in range(1, 5)
        for seed in (0, 1)
    ]
    variance = summary(records, replicates=2)["variance"]
    assert variance["between_seeds"] == pytest.approx(0.005)
    # Variance of the scene means 0.25, 0.45, 0.65, 0.85 is 0.0667; minus 0.005 / 2 of seed noise.
    assert variance["between_scenes"] == pytest.approx(0.2 / 3 - 0.0025)
    assert summary(records)["variance"] is None


def test_training_folders_report_the_last_pass() -> None:
    """E24: one folder holds many checkpoints; the summary is of the newest weights, baselines belong to all."""
    old, new = record("aa", step=10, checkpoint="c1"), record("aa", step=20, checkpoint="c2", value=0.0)
    base = record("aa", "idm")
    assert last_pass([new, base, old]) == [new, base]
    assert last_pass([base]) == [base]


def test_worst_cases_are_a_sort() -> None:
    """E78: worst first by the metric's direction, ties by id, invalid and failed ones out, fewer than N is fewer."""
    values = {"dd": 0.5, "aa": 0.5, "cc": 0.1, "bb": None, "ee": 0.9}
    records = [*(record(case, value=value) for case, value in values.items()), failed("ff")]
    assert worst_cases(records, "score", "higher", 3) == ["cc", "aa", "dd"]
    assert worst_cases(records, "score", "lower", 3) == ["ee", "aa", "dd"]
    assert worst_cases(records, "score", "higher", 99) == ["cc", "aa", "dd", "ee"]
    assert worst_cases(records, "unknown", "higher", 3) == []


def test_random_cases_spread_over_scenes_and_repeat() -> None:
    """E78: a sample that only sees one busy scene says little; one per scene comes first, and the seed decides."""
    records = [record(f"{scene}{n}", scene=scene) for scene in "xyz" for n in range(5)]
    first = random_cases(records, "seed", 3)
    assert sorted(case[0] for case in first) == ["x", "y", "z"]
    assert random_cases(records[::-1], "seed", 3) == first
    assert random_cases(records, "seed", 7)[:3] == first
    assert len({tuple(random_cases(records, str(seed), 3)) for seed in range(20)}) > 5
    assert len(random_cases(records, "seed", 99)) == 15


def rows_of(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode())))


def test_episodes_csv_is_joinable_and_survives_names() -> None:
    """E76, F16: identity first, one row per (case, arm) whatever its status, hostile scene names intact, values that
    read back exactly and empty where there is none."""
    hostile = 'a,"b"\n<script>;=1+1'
    records = [record("bb", value=1 / 3, scene_id=hostile), failed("aa"), record("aa", "idm", value=None)]
    data = episodes_csv(part(["aa", "bb"]), records)
    rows = rows_of(data)
    assert data.decode().startswith("schema,evaluator,section_digest,metric_spec,checkpoint,arm,step,epoch,scene,")
    assert [(row["case"], row["arm"], row["status"]) for row in rows] == [
        ("aa", "idm", "ok"),
        ("aa", "policy", "error"),
        ("bb", "policy", "ok"),
    ]
    assert rows[2]["scene"] == hostile
    assert float(rows[2]["score"]) == 1 / 3
    assert (rows[0]["score"], rows[0]["score_valid"]) == ("", "0")
    assert rows[1]["error"] == "ActionError: is NaN"
    assert (rows[1]["score"], rows[1]["n_agents"]) == ("", "")
    assert episodes_csv(part(["aa", "bb"]), records[::-1]) == data


def test_worst_list_equals_a_sort_of_the_csv() -> None:
    """E78: whoever sorts the table finds the same cases as the page shows."""
    values = {f"c{n:02d}": round(float(np.sin(n)), 1) for n in range(20)}
    records = complete(values)
    rows = [row for row in rows_of(episodes_csv(part(list(values)), records)) if row["arm"] == "policy"]
    by_hand = [row["case"] for row in sorted(rows, key=lambda row: (float(row["score"]), row["case"]))][:2]
    assert [entry["case"] for entry in summary(records)["worst"]] == by_hand


def test_summary_tables_have_one_line_each() -> None:
    """E77: one line per arm and one per evaluator, the failed one with ok 0; costs stand last and alone."""
    good, bad = summary(complete({"aa": 1.0, "bb": 0.0})), summary([failed("aa")])
    lines = rows_of(summary_csv("a", good, {"policy": 4.0}))
    assert [line["arm"] for line in lines] == list(ARMS)
    assert float(lines[0]["value"]) == 0.5
    assert list(lines[0])[-1] == "cost_seconds"
    assert [key for key in lines[0] if key.startswith("cost_")] == ["cost_seconds"]
    report = {"evaluators": {"a": good, "b": bad}}
    lines = rows_of(eval_summary_csv(report))
    assert [(line["evaluator"], line["ok"], line["status"]) for line in lines] == [
        ("a", "1", "ok"),
        ("b", "0", "incomplete"),
    ]


def test_times_are_no_part_of_the_promise() -> None:
    """E102: the deterministic part of two reports is equal when only time, machine and file digests differ."""
    records = complete({"aa": 1.0, "bb": 0.0})
    slow = [Record(**{**vars(r), "cost": {"seconds": 99.0}}) for r in records]
    common = {"schema": "s", "ok": True, "status": "ok", "verdict": "v", "pooled": {}, "reproduce": "r"}

    def report(some: list[Record], start: str) -> dict[str, Any]:
        provenance = {"identity": {"code": "c"}, "run": {"started": start}}
        return {**common, "evaluators": {"a": summary(some)}, "provenance": provenance, "files": {start: "x"}}

    one, other = report(records, "monday"), report(slow, "tuesday")
    assert one != other
    assert deterministic_report(one) == deterministic_report(other)
    assert one["evaluators"]["a"]["seconds"]["eval_seconds"] == 12.0
