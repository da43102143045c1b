"""One frontier over sealed runs with several limits: curves and areas by hand, and what keeps runs apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import pytest

from skidpad.errors import UsageError
from skidpad.evaluation.frontier import LEAST_LIMITS, over_limits
from skidpad.evaluation.scene_statistics import conclude
from skidpad.reporting.frontier_page import frontier_page

SCENES = 8
REGISTRATION: dict[str, Any] = {
    "kind": "development",
    "index_root": "i",
    "split": "dev",
    "tracks": ["rooms"],
    "episode_ids": [f"s{n}" for n in range(SCENES)],
    "protocol": {"warmup": 3, "stream": 6, "queries": 4},
    "mapper": {"content_hash": "m", "file_sha256": "f"},
    "policies": ["OFF", "FUSE", "ALL"],
    "residual_threshold": 0.03,
    "shuffle_seed": 0,
    "render_protocol": {"renderer": "r", "samples": 96, "ray_chunk": 2048},
    "budget_protocol": {"max_units": 1e12, "writer_units": None},
    "fallback": "as declared",
    "metrics": {"depth_absrel": 1},
    "primary": {"name": "depth_absrel", "direction": "lower", "minimum_effect": 0.0},
    "bootstrap": {"resamples": 500, "seed": 7, "level": 0.95},
    "code": {"commit": None, "dirty": None, "source_digest": "c"},
    "environment": {"torch": "2"},
}
UNITS = {"OFF": 100.0, "FUSE": 200.0, "ALL": 500.0}
VALUES = {"OFF": 0.5, "FUSE": 0.3, "ALL": 0.1}


def report(limit: float, arms: Mapping[str, tuple[float, float]], spread: float = 0.01, **changes: Any) -> Any:
    """A report as far as a frontier reads it; `arms` are value and units of each policy, values a little apart from
    scene to scene."""
    registration = REGISTRATION | {
        "policies": list(arms),
        "budget_protocol": {"max_units": limit, "writer_units": None},
    }
    registration |= changes
    records = [
        {
            "pair_id": f"s{n}@{arm}",
            "split_id": "dev",
            "track_id": "rooms",
            "scene_id": f"s{n}",
            "episode_id": f"s{n}",
            "policy": arm,
            "kind": "policy",
            "status": "ok",
            "history": [{"feasible": ["OFF"]}],
            "metrics": {"averages": {"depth_absrel": value + spread * (n % 3 - 1) * (arm != "OFF")}, "per_query": []},
            "budget": {"units": units, "operations": {}},
            "times": {"adapt_s": units / 1000},
        }
        for arm, (value, units) in arms.items()
        for n in range(SCENES)
    ]
    found = conclude(registration, records)
    return {
        "registration": registration, "records": records, "status": "complete", "run_id": "r", "chain_head": "h",
        "result_digest": "d", **found,
    }  # fmt: skip


def whole(**changes: Any) -> Any:
    """The run in which every fixed policy fits."""
    return report(1e12, {arm: (VALUES[arm], UNITS[arm]) for arm in UNITS}, **changes)


def limited(curve: Mapping[float, Mapping[str, tuple[float, float]]]) -> dict[str, Any]:
    """`whole`, and one run per limit of OFF and what follows the limit."""
    runs = {"whole": whole()}
    for limit, arms in curve.items():
        runs[f"at-{limit:g}"] = report(limit, {"OFF": (VALUES["OFF"], UNITS["OFF"]), **arms})
    return runs


CURVE = {
    200.0: {"RESIDUAL_THRESHOLD": (0.3, 200.0), "RANDOM": (0.4, 200.0)},
    300.0: {"RESIDUAL_THRESHOLD": (0.2, 300.0), "RANDOM": (0.35, 300.0)},
    400.0: {"RESIDUAL_THRESHOLD": (0.15, 400.0), "RANDOM": (0.25, 400.0)},
    500.0: {"RESIDUAL_THRESHOLD": (0.1, 500.0), "RANDOM": (0.1, 500.0)},
}


def test_curves_by_hand() -> None:
    """M88: gain and work are shares of ALL's; a curve starts at nothing, goes through OFF and its points, and its area
    is theirs alone; the area of all takes the best of both and of FUSE."""
    (track,) = over_limits(limited(CURVE))["tracks"]
    curves = {curve["name"]: curve for curve in track["curves"]}
    assert list(curves) == ["RESIDUAL_THRESHOLD 0.03", "RANDOM"]
    # Work 0, 0.2 (OFF), 0.4, 0.6, 0.8, 1; gain 0, 0, 0.5, 0.75, 0.875, 1.
    by_hand = 0.2 * (0.5 / 2 + (0.5 + 0.75) / 2 + (0.75 + 0.875) / 2 + (0.875 + 1) / 2)
    area = curves["RESIDUAL_THRESHOLD 0.03"]["area"]
    assert area["value"] == pytest.approx(by_hand, abs=0.01)
    assert area["low"] < area["value"] < area["high"]
    random = 0.2 * (0.25 / 2 + (0.25 + 0.375) / 2 + (0.375 + 0.625) / 2 + (0.625 + 1) / 2)
    assert curves["RANDOM"]["area"]["value"] == pytest.approx(random, abs=0.01)
    assert track["area"]["value"] == pytest.approx(area["value"], abs=0.01)
    (difference,) = track["differences"]
    assert (difference["curve"], difference["other"]) == ("RESIDUAL_THRESHOLD 0.03", "RANDOM")
    assert difference["value"] == pytest.approx(area["value"] - curves["RANDOM"]["area"]["value"])
    assert difference["low"] > 0
    assert difference["verdict"] == "better"
    points = {row["name"]: row for row in track["points"]}
    assert points["FUSE"]["work_share"] == 0.4
    assert points["FUSE"]["seconds_share"] == pytest.approx(0.4)
    assert points["RANDOM @ 200"]["delta"] == pytest.approx(-0.1, abs=0.005)
    assert points["RANDOM @ 200"]["low"] < points["RANDOM @ 200"]["delta"] < points["RANDOM @ 200"]["high"]
    assert track["points"][0]["name"] == "OFF"


def test_dearer_and_worse_changes_nothing() -> None:
    """M88: the envelope is monotone: a point that costs more and gains less leaves the area as it is."""
    random = {limit: {"RANDOM": arms["RANDOM"]} for limit, arms in CURVE.items()}
    plain, after = (
        over_limits(limited(curve))["tracks"][0]["curves"][0]["area"]["value"]
        for curve in (random, random | {450.0: {"RANDOM": (0.45, 450.0)}})
    )
    # Between 0.8 and 1 of the work the straight line gives way to a flat one up to 0.9.
    assert plain - after == pytest.approx(0.1 * (0.625 + 1) - 0.1 * 0.625 - 0.05 * (0.625 + 1), abs=0.002)


def test_three_limits_are_no_curve() -> None:
    """M88: below four limits there is no area of a curve, with the reason; its points count for the area of all."""
    few = {limit: arms for limit, arms in CURVE.items() if limit < 500}
    (track,) = over_limits(limited(few))["tracks"]
    assert LEAST_LIMITS == 4
    for curve in track["curves"]:
        assert curve["area"] == {
            "value": None, "low": None, "high": None, "reason": "3 limits; a curve needs 4",
        }  # fmt: skip
    assert track["differences"] == []
    assert track["area"]["value"] > 0


def test_no_gain_no_area() -> None:
    """M88: where ALL does not beat OFF every area is None, and says so."""
    runs = limited(CURVE) | {"whole": report(1e12, {"OFF": (0.5, 100.0), "ALL": (0.6, 500.0)})}
    (track,) = over_limits(runs)["tracks"]
    assert track["area"]["reason"] == "ALL does not beat OFF"
    assert {curve["area"]["reason"] for curve in track["curves"]} == {"ALL does not beat OFF"}
    assert track["differences"][0]["verdict"] == "not established"


def test_order_of_runs_is_irrelevant() -> None:
    """M88: the same runs named in another order give the same document."""
    runs = limited(CURVE)
    backwards = dict(reversed(runs.items()))
    assert json.dumps(over_limits(runs)) == json.dumps(over_limits(backwards))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"index_root": "other"}, "x and whole differ in index_root"),
        ({"mapper": {"content_hash": "n", "file_sha256": "f"}}, "differ in mapper"),
        ({"environment": {"torch": "3"}}, "differ in environment"),
        ({"code": {"commit": None, "dirty": None, "source_digest": "e"}}, "x and whole ran other code"),
        ({"kind": "diagnostic"}, "x is a diagnostic run"),
    ],
)
def test_runs_that_stand_apart(changes: dict[str, Any], words: str) -> None:
    """M88: runs of other data, weights, libraries or code have no common frontier, and all that differs is listed."""
    x = report(200.0, {"OFF": (0.5, 100.0), "RANDOM": (0.4, 200.0)}, **changes)
    with pytest.raises(UsageError, match=words):
        over_limits({"whole": whole(), "x": x})


def test_runs_that_contradict_each_other() -> None:
    """M88: a curve twice at one limit, a fixed policy with two values, and no ALL at all are refused."""
    off, random = (0.5, 100.0), (0.4, 200.0)
    twice = {name: report(200.0, {"OFF": off, "RANDOM": random}) for name in ("a", "b")}
    with pytest.raises(UsageError, match="a and b both have RANDOM with 200 units"):
        over_limits({"whole": whole()} | twice)
    with pytest.raises(UsageError, match=r"OFF on s0 is 0\.5 in whole and 0\.4 in x"):
        over_limits({"whole": whole(), "x": report(200.0, {"OFF": (0.4, 100.0), "RANDOM": random})})
    with pytest.raises(UsageError, match="none has policy ALL"):
        over_limits({"a": twice["a"], "b": report(300.0, {"OFF": off, "RANDOM": random})})


class _Texts(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.found.append(data.strip())


def test_the_page_says_what_the_file_says() -> None:
    """M88, M97: every curve, area and difference of the document stands on the page; names of runs stay text."""
    runs = limited(CURVE)
    runs["<script>alert(1)</script>"] = runs.pop("at-300")
    found = over_limits(runs)
    page = frontier_page(found)
    assert "<script>alert" not in page
    texts = _Texts(page).found
    (track,) = found["tracks"]
    for curve in track["curves"]:
        assert curve["name"] in texts
        assert f"{curve['area']['value']:.3f} [{curve['area']['low']:.3f}, {curve['area']['high']:.3f}]" in texts
    assert f"{track['differences'][0]['value']:+.3f}" in texts
    assert page.count("<polyline") == 2
    assert page.count("<circle") == len(track["points"]) == 3 + 8
