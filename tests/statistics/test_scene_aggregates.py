"""Aggregation of sealed evaluations: by hand where the numbers fit in the head, by simulation where they do not."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from skidpad.errors import UsageError
from skidpad.evaluation.frontier import frontier_area
from skidpad.evaluation.scene_aggregates import (
    aggregate_scenes,
    compared,
    split_unpaired,
    summarise,
    summary_csv,
    with_deltas,
)
from skidpad.evaluation.scene_statistics import conclude, verdict_sentences

REGISTRATION = {
    "policies": ["OFF", "FUSE", "COMPLETE", "ALL"],
    "primary": {"name": "depth_absrel", "direction": "lower", "minimum_effect": 0.0},
    "bootstrap": {"resamples": 2000, "seed": 7, "level": 0.95},
    "budget_protocol": {"max_units": 1e12},
    "metrics": {"depth_absrel": 1},
}


def pair(scene: str, arm: str, episode: str = "", **averages: Any) -> dict[str, Any]:
    """A record as far as statistics read it; averages by metric with `__` for a dot."""
    values = {name.replace("__", "."): value for name, value in averages.items()}
    rows = [
        {
            "placement": "interpolated",
            "metrics": {name: {"value": value, "valid": value is not None} for name, value in values.items()},
        }
    ]
    is_control = "+" in arm or arm in ("CACHE", "CONSTANT_DEPTH")
    return {
        "pair_id": f"{episode or scene}@{arm}",
        "split_id": "dev",
        "track_id": "rooms",
        "scene_id": scene,
        "episode_id": episode or scene,
        "policy": arm,
        "kind": "control" if is_control else "policy",
        "status": "ok",
        "history": [{"feasible": ["OFF", "FUSE", "COMPLETE", "ALL"]}],
        "metrics": {"averages": values, "per_query": rows},
        "budget": {"units": {"OFF": 100, "ALL": 400}.get(arm, 200), "operations": {}},
        "times": {"adapt_s": 0.5},
    }


def arms(values: Mapping[str, Sequence[float]], metric: str = "depth_absrel") -> list[dict[str, Any]]:
    """Records of arms over scenes s00, s01, ..."""
    return [
        pair(f"s{number:02}", arm, **{metric: value})
        for arm, column in values.items()
        for number, value in enumerate(column)
    ]


def test_groups_by_hand() -> None:
    """Means of finite numbers only: NaN, inf, None, true and a missing metric do not count, 3 does (M77)."""
    records = [
        pair("a", "OFF", "e2", x=1.0, y=float("nan"), z=True),
        pair("a", "OFF", "e1", x=3, y=float("inf"), z=None),
        pair("a", "OFF", "e3", x=None),
    ]
    (group,) = aggregate_scenes(records)
    assert group["episode_ids"] == ["e1", "e2", "e3"]
    assert group["record_count"] == 3
    assert group["means"] == {"x": 2.0, "y": None, "z": None}
    assert group["finite_counts"] == {"x": 2, "y": 0, "z": 0}


@pytest.mark.parametrize("field", ["split_id", "track_id", "scene_id", "policy", "episode_id", "averages"])
def test_incomplete_records_are_errors(field: str) -> None:
    """A record that does not say what it belongs to is an error, and so is no record at all (M77)."""
    record = pair("a", "OFF", x=1.0)
    if field == "averages":
        record["metrics"] = {"averages": {}}
    else:
        record[field] = ""
    with pytest.raises(UsageError, match=field):
        aggregate_scenes([record])
    with pytest.raises(UsageError, match="no records"):
        aggregate_scenes([])


def test_pairing() -> None:
    """Deltas are from OFF of the same scene, 0.0 for OFF, None where one is missing; no OFF is an error (M78)."""
    records = [
        pair("a", "OFF", x=1.0, y=float("nan")),
        pair("a", "FUSE", x=0.25, y=2.0),
        pair("b", "FUSE", x=5.0, y=2.0),
    ]
    scenes = aggregate_scenes(records)
    with pytest.raises(UsageError, match="scene b"):
        with_deltas(scenes)
    kept, dropped = split_unpaired(scenes)
    assert dropped == [{"split_id": "dev", "track_id": "rooms", "scene_id": "b", "arms": ["FUSE"]}]
    deltas = {scene["arm"]: scene["deltas"] for scene in with_deltas(kept)}
    assert deltas == {"OFF": {"x": 0.0, "y": None}, "FUSE": {"x": -0.75, "y": None}}


def test_scenes_weigh_equally() -> None:
    """A scene of three episodes counts as one of one; mean of deltas is not delta of means if scenes drop out (M79)."""
    records = [
        *(pair("a", "OFF", f"e{n}", depth_absrel=0.4) for n in range(3)),
        *(pair("a", "FUSE", f"e{n}", depth_absrel=0.1) for n in range(3)),
        pair("b", "OFF", depth_absrel=0.2),
        pair("b", "FUSE", depth_absrel=0.1),
        pair("c", "OFF", depth_absrel=0.9),
        pair("c", "FUSE", depth_absrel=None),
    ]
    rows = {row["arm"]: row for row in summarise(with_deltas(aggregate_scenes(records)), REGISTRATION)}
    off, fuse = (rows[arm]["metrics"]["depth_absrel"] for arm in ("OFF", "FUSE"))
    assert off["mean"] == pytest.approx(0.5)
    assert off["delta"] == 0.0
    assert fuse["mean"] == pytest.approx(0.1)
    assert (fuse["valid"], rows["FUSE"]["scene_count"]) == (2, 3)
    assert fuse["delta"] == pytest.approx(-0.2)
    assert fuse["delta_of_means"] == pytest.approx(-0.4)
    assert (fuse["wins"], fuse["ties"], fuse["losses"]) == (2, 0, 0)


@pytest.mark.parametrize(("metric", "sign"), [("depth_absrel", 1.0), ("rgb_psnr", -1.0)])
def test_worse_reads_worse(metric: str, sign: float) -> None:
    """A worse arm reads `worse` and loses every scene whichever way the metric points (M80)."""
    rng = np.random.default_rng(0)
    off = 1.0 + 0.1 * rng.random(12)
    registration = REGISTRATION | {
        "primary": {"name": metric, "direction": "lower" if sign > 0 else "higher", "minimum_effect": 0.05}
    }
    records = arms(
        {"OFF": off, "FUSE": off + sign * (0.2 + 0.05 * rng.random(12)), "ALL": off - sign * 0.4 * off}, metric
    )
    rows = {row["arm"]: row for row in summarise(with_deltas(aggregate_scenes(records)), registration)}
    assert rows["FUSE"]["verdict"] == "worse"
    assert rows["FUSE"]["metrics"][metric]["losses"] == 12
    assert rows["ALL"]["verdict"] == "better"
    assert rows["OFF"]["verdict"] is None


def test_equivalent_and_not_established() -> None:
    """Wholly inside the registered minimum effect is equivalence; across its edge nothing is established (M80)."""
    rng = np.random.default_rng(1)
    off = 0.3 + 0.1 * rng.random(12)
    registration = REGISTRATION | {"primary": REGISTRATION["primary"] | {"minimum_effect": 0.02}}  # type: ignore[operator]
    records = arms(
        {"OFF": off, "FUSE": off + 0.001 * rng.standard_normal(12), "ALL": off - 0.02 - 0.02 * rng.standard_normal(12)}
    )
    rows = {row["arm"]: row for row in summarise(with_deltas(aggregate_scenes(records)), registration)}
    assert rows["FUSE"]["verdict"] == "equivalent within the margin"
    assert rows["ALL"]["verdict"] == "not established"


def test_interval_is_never_of_width_zero() -> None:
    """One scene, or the same difference on all, has no interval but a reason (M80, F44)."""
    for values, reason in (
        ({"OFF": [0.5], "FUSE": [0.25]}, "1 cluster"),
        ({"OFF": [0.5, 1], "FUSE": [0.25, 0.75]}, "constant"),
    ):
        rows = summarise(with_deltas(aggregate_scenes(arms(values))), REGISTRATION)
        entry = rows[1]["metrics"]["depth_absrel"]
        assert entry["low"] is None
        assert entry["high"] is None
        assert reason in entry["reason"]
        assert rows[1]["few_scenes"]


def test_tests_are_scipys() -> None:
    """BCa is scipy's on scenes with the registered seed, the sign test its own, Holm over secondaries (M80)."""
    rng = np.random.default_rng(3)
    off, fuse = rng.random(15), rng.random(15)
    records = [
        pair(f"s{n:02}", arm, depth_absrel=value[n], depth_l1=2 * value[n] + 0.1 * n, rgb_psnr=10 * value[n] ** 2)
        for arm, value in (("OFF", off), ("FUSE", fuse))
        for n in range(15)
    ]
    entry = summarise(with_deltas(aggregate_scenes(records)), REGISTRATION)[1]["metrics"]
    deltas = fuse - off
    direct = stats.bootstrap((deltas,), np.mean, n_resamples=2000, rng=np.random.default_rng(7)).confidence_interval
    assert entry["depth_absrel"]["low"] == pytest.approx(direct.low, rel=1e-9)
    assert entry["depth_absrel"]["high"] == pytest.approx(direct.high, rel=1e-9)
    wins, losses = int((deltas < 0).sum()), int((deltas > 0).sum())
    assert entry["depth_absrel"]["p_sign"] == pytest.approx(stats.binomtest(wins, wins + losses).pvalue)
    assert entry["depth_absrel"]["trimmed_mean"] == pytest.approx(stats.trim_mean(deltas, 0.1))
    assert entry["depth_absrel"]["p_holm"] is None
    secondary = sorted((entry[name]["p_sign"], entry[name]["p_holm"]) for name in ("depth_l1", "rgb_psnr"))
    assert secondary[0][1] == pytest.approx(min(1.0, 2 * secondary[0][0]))
    assert secondary[1][1] == pytest.approx(max(secondary[0][1], secondary[1][0]))


def test_metric_without_direction_has_no_winners() -> None:
    """A share outside the grid is neither good nor bad: it has a difference, and neither wins nor a test (M80)."""
    records = arms({"OFF": [0.1, 0.2, 0.3], "FUSE": [0.2, 0.1, 0.5]}, "outside_box")
    entry = summarise(with_deltas(aggregate_scenes(records)), REGISTRATION)[1]["metrics"]["outside_box"]
    assert (entry["wins"], entry["p_sign"], entry["p_holm"]) == (None, None, None)
    assert entry["delta"] == pytest.approx(0.2 / 3)


def full(seed: int = 0, **extra: float) -> list[dict[str, Any]]:
    """Eight scenes of OFF, FUSE, ALL and the arms in `extra`, each that far below OFF on average."""
    rng = np.random.default_rng(seed)
    off = 0.3 + 0.05 * rng.random(8)
    gains = {"OFF": 0.0, "FUSE": 0.1, "ALL": 0.2} | {name.replace("__", "+"): gain for name, gain in extra.items()}
    return arms({arm: off - gain - 0.01 * rng.random(8) * (gain != 0) for arm, gain in gains.items()})


def test_order_of_records_is_irrelevant() -> None:
    """Equal results from shuffled records and from the same seed; another seed moves them (M80, M103)."""
    records = full()
    shuffled = records.copy()
    random.Random(5).shuffle(shuffled)
    assert conclude(REGISTRATION, records) == conclude(REGISTRATION, shuffled)
    other = REGISTRATION | {"bootstrap": REGISTRATION["bootstrap"] | {"seed": 8}}  # type: ignore[operator]
    assert conclude(other, records)["summaries"] != conclude(REGISTRATION, records)["summaries"]


@pytest.mark.slow
def test_coverage_at_24_scenes() -> None:
    """Over skewed deltas of 24 scenes the interval holds the truth 91 to 97 times of a hundred (M80)."""
    rng = np.random.default_rng(11)
    trials, held = 600, 0
    bootstrap = {"resamples": 1000, "seed": 3}
    off = dict.fromkeys(map(str, range(24)), 0.0)
    for _ in range(trials):
        arm = dict(zip(off, rng.gamma(2.0, 1.0, 24), strict=True))
        interval = compared({"x": (arm, off, "lower")}, bootstrap)["x"].interval
        held += bool(interval.low is not None and interval.low <= 2.0 <= interval.high)  # type: ignore[operator]
    assert 0.91 <= held / trials <= 0.97


def test_summary_table() -> None:
    """Columns in the written order, joined scene ids, empty cells for None (M81)."""
    records = [
        pair("a", "OFF", rgb_psnr=10.0, depth_absrel=0.5),
        pair("b", "OFF", rgb_psnr=12.0, depth_absrel=0.25),
        pair("a", "CACHE", rgb_psnr=11.0, depth_absrel=None),
    ]
    rows = list(
        csv.reader(io.StringIO(summary_csv(summarise(with_deltas(aggregate_scenes(records)), REGISTRATION)).decode()))
    )
    prefixes = ["mean", "valid", "delta", "low", "high", "wins", "ties", "losses"]
    assert rows[0] == [
        *("split_id", "track_id", "arm", "kind", "scene_count", "scene_ids"),
        *(f"{prefix}_{name}" for prefix in prefixes for name in ("depth_absrel", "rgb_psnr")),
    ]
    assert rows[1][:10] == ["dev", "rooms", "OFF", "policy", "2", "a;b", "0.375", "11.0", "2", "2"]
    assert rows[2][2:10] == ["CACHE", "control", "1", "a", "", "11.0", "0", "1"]


def test_area_by_hand() -> None:
    """Two arms and ALL: (0,0) (0.25,0) (0.5,0.8) (1,1) is 0.1 + 0.45; a dearer, worse arm changes nothing (M88)."""
    work, gain = np.array([0.25, 0.5, 1.0]), np.array([0.0, 0.8, 1.0])
    assert frontier_area(work, gain) == pytest.approx(0.1 + 0.45)
    worse = frontier_area(np.array([0.25, 0.5, 0.75, 1.0]), np.array([0.0, 0.8, 0.3, 1.0]))
    assert worse == pytest.approx(0.1 + 0.2 + 0.225)  # the envelope stays at 0.8 up to 0.75, never falls to 0.3
    assert frontier_area(np.stack([work, work]), np.stack([gain, gain])).tolist() == pytest.approx([0.55, 0.55])


def test_frontier_of_a_run() -> None:
    """Points of policies only, work as share of ALL; no area without a gain of ALL, with the reason (M88)."""
    found = conclude(REGISTRATION, full(CACHE=0.05))["frontier"]["tracks"][0]
    assert [(point["arm"], point["work_share"]) for point in found["points"]] == [
        ("ALL", 1.0),
        ("FUSE", 0.5),
        ("OFF", 0.25),
    ]
    area = found["area"]
    assert area["low"] < area["value"] < area["high"]
    assert area["value"] == pytest.approx((0.25 * 0.5) / 2 + 0.5 * (0.5 + 1) / 2, abs=0.03)
    worse = conclude(REGISTRATION, arms({"OFF": [0.1, 0.2, 0.3], "ALL": [0.2, 0.3, 0.5]}))
    assert worse["frontier"]["tracks"][0]["area"] == {
        "value": None, "low": None, "high": None, "reason": "ALL does not beat OFF",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({}, "MEAN_FIELD and WRONG_SCENE did not run beside ALL"),
        ({"ALL__MEAN_FIELD": 0.15}, "WRONG_SCENE did not run"),
        ({"ALL__MEAN_FIELD": 0.15, "ALL__WRONG_SCENE": 0.1}, "scene-specific completion: established"),
        (
            {"ALL__MEAN_FIELD": 0.25, "ALL__WRONG_SCENE": 0.1},
            "not established; ALL is not shown to be better than ALL+MEAN_FIELD",
        ),
    ],
)
def test_no_claim_without_its_control(extra: dict[str, float], words: str) -> None:
    """The claim of scene-specific completion needs both controls on the right side of zero, else it says why (M83)."""
    (claim,) = conclude(REGISTRATION, full(**extra))["controls"]["claims"]
    assert words in claim["sentence"]
    assert claim["established"] == ("completion: established" in claim["sentence"])


def test_comparisons_with_controls() -> None:
    """Each arm stands beside its control, arm minus control, on the scenes that both have (M82)."""
    rows = conclude(REGISTRATION, full(CACHE=0.05, FUSE__HARMONIC_FILL=0.18))["controls"]["comparisons"]
    assert [(row["arm"], row["control"], row["role"]) for row in rows] == [
        ("FUSE", "CACHE", "bar"),
        ("ALL", "FUSE+HARMONIC_FILL", "bar"),
    ]
    assert rows[0]["delta"] == pytest.approx(-0.05, abs=0.01)
    assert rows[0]["verdict"] == "better"


def test_failed_pairs_are_stated() -> None:
    """A refused OFF takes its scene out of every comparison, and the report says so in numbers and names (M45, M78)."""
    records = full()
    records[0] |= {"status": "refused", "metrics": {"averages": {}, "per_query": []}, "history": []}
    found = conclude(REGISTRATION, records)
    assert [row["scene_id"] for row in found["unpaired_scenes"]] == ["s00"]
    assert all("s00" not in row["scene_ids"] for row in found["summaries"])
    text = "\n".join(found["caveats"])
    assert "1 of 24 pairs have no scores" in text
    assert "1 scenes have no scored OFF" in text
    assert conclude(REGISTRATION, [records[0]])["summaries"] == []


def test_caveats_are_printed() -> None:
    """The block stands beside every figure, with what holds of this run in front (M65, M90)."""
    records = full()
    caveats = "\n".join(conclude(REGISTRATION, records)["caveats"])
    for words in (
        "prior about rooms",
        "never looked",
        "can be deleted",
        "Fewer than 10 scenes (8)",
        "binds no arm",
        "lpips is absent",
    ):
        assert words in caveats
    records[0]["history"] = [{"feasible": ["OFF"]}]
    bound = "\n".join(conclude(REGISTRATION | {"metrics": {"depth_absrel": 1, "rgb_lpips": 1}}, records)["caveats"])
    assert "binds no arm" not in bound
    assert "lpips" not in bound


def test_verdict_sentences() -> None:
    """One sentence per policy with change, interval and count of scenes; controls have none."""
    found = conclude(REGISTRATION, full(CACHE=0.05)) | {"registration": REGISTRATION}
    sentences = verdict_sentences(found)
    assert len(sentences) == 2
    assert sentences[1].startswith("rooms: ALL changed depth_absrel by -0.2")
    assert "better on 8 of 8 scenes: better." in sentences[1]


def test_placements() -> None:
    """The primary metric by where a query stands: means over scenes, with their number (M14)."""
    row = conclude(REGISTRATION, full())["summaries"][0]
    assert row["placements"] == {
        "interpolated": {"mean": pytest.approx(row["metrics"]["depth_absrel"]["mean"]), "scenes": 8, "queries": 8}
    }
