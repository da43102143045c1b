"""The page of a run says what the report says, in words, and nothing else."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from skidpad.evaluation.metrics.published import NUPLAN, published_beside
from skidpad.evaluation.metrics.registry import METRICS
from skidpad.reporting.report import cautions, data_floor, faults, ordered_arms, report_page
from skidpad.reporting.wording import Cell, cell_of, number, plural, strip


def test_numbers_as_people_read_them() -> None:
    """Rates are per cent, metres have a unit, differences a sign; a bare 0.0312 is misread."""
    assert number(0.0312, "rate") == "3.1 %"
    assert number(-0.5, "rate", signed=True) == "-50.0 %"
    assert number(2.5, "m") == "2.50 m"
    assert number(1234.6, "m") == "1235 m"
    assert number(1.5, "1") == "1.50"
    assert plural(1, "case") == "1 case"
    assert plural(3, "case") == "3 cases"


def test_missing_is_not_zero() -> None:
    """A metric without a value reads "no data" with its reason, and has neither number nor bar (Q3)."""
    cell = cell_of({"value": None, "valid": False, "reason": "no_log", "unit": "m", "interval": None}, (0, 1))
    assert cell == Cell("no data", why="no_log", missing=True)
    assert cell_of(None, (0, 1)).missing


def test_zero_events_show_their_bound() -> None:
    """No event in few cases is printed with what it leaves possible, not as a bare 0 % (E108)."""
    cell = cell_of(
        {"value": 0.0, "valid": True, "unit": "rate", "interval": None, "bound": "below 63 % at 95 %"}, (0.0, 1.0)
    )
    assert cell.text == "0.0 %"
    assert cell.note == "below 63 % at 95 %"


def test_strips_share_a_scale() -> None:
    """The bar's ends are the interval's on the column's scale; a scale per row would make all bars look alike."""
    bar = strip(0.5, [0.25, 0.75], (0.0, 1.0))
    assert bar is not None
    assert (bar.low, bar.width, bar.at) == (24.5, 49.0, 49.0)
    assert strip(0.5, None, (1.0, 1.0)) is None


def test_log_stands_last_and_the_policy_first(report: dict[str, Any]) -> None:
    """The driver under test leads and the log closes; between them the better driver stands higher."""
    part = report["evaluators"]["traffic"]
    part["arms"]["policy"] = part["arms"]["idm"]
    part["arms"]["stationary"] = {"metrics": {"score": {**part["arms"]["idm"]["metrics"]["score"], "value": 0.1}}}
    assert ordered_arms(part) == ["policy", "idm", "stationary", "log"]


def test_few_clusters_are_said_first(report: dict[str, Any]) -> None:
    """Three scenes are a guess, seven are few, twenty need no word (E107)."""
    part = report["evaluators"]["traffic"]
    assert "a guess" in cautions(report)[0]
    part["clusters"] = 7
    assert "few clusters (7)" in cautions(report)[0]
    part["clusters"], part["few_clusters"] = 20, False
    assert cautions(report) == []


def test_failed_runs_are_said(report: dict[str, Any]) -> None:
    """A failed case is in no mean, and the page says how many and why (E30)."""
    assert faults(report) == ["traffic: 1 run failed (1 error) and are in no mean. The records hold their tracebacks."]


def test_floor_of_the_data(report: dict[str, Any]) -> None:
    """The log's own collisions stand beside every replay result, and "no data" is left out of the sentence (Q10)."""
    words = data_floor(report["evaluators"]["traffic"])
    assert "0.0 % in collision" in words
    assert "red light" not in words


def test_page_has_its_sections_and_no_address(report: dict[str, Any], manifest: dict[str, Any]) -> None:
    """Verdict, drivers, pairs, coverage, provenance, how to repeat: all there; no URL; scripts only by hash (E93)."""
    html = report_page(report, manifest, [], {})
    for text in (report["verdict"], "IDM along the route", "worse", "19 of 20 runs finished", "uncommitted changes"):
        assert text in html
    assert report["reproduce"] in html
    assert "http" not in re.sub(r'http-equiv="[^"]*"', "", html)
    assert "script-src 'none'" in unescape(html)
    assert "no data" in html


def test_scores_of_others_stand_apart_and_are_explained(report: dict[str, Any], manifest: dict[str, Any]) -> None:
    """Each score people compare with has its reading aid in sight, and published rows are labelled as other scenes
    (Q20): a table that mixes them invites the comparison that means nothing."""
    metrics = report["evaluators"]["traffic"]["arms"]["idm"]["metrics"]
    html = report_page(report, manifest, [], METRICS)
    assert "Scores people compare with" not in html
    assert "published, other scenes" not in html
    metrics["nuplan_cls"] = {**metrics["score"], "value": 0.5}
    metrics["carla_ds_2_1"] = {**metrics["score"], "value": 32.0, "unit": "points", "interval": [30.0, 35.0]}
    html = unescape(report_page(report, manifest, [], METRICS))
    assert "Scores people compare with" in html
    assert METRICS["carla_ds_2_1"].aid in html
    assert "published, other scenes: nuPlan Val14, in percent" in html
    assert re.search(r"<td>log replay</td><td>80</td><td>94</td><td>100</td>", html)
    assert "realism_2025 of a public test set" not in html


def test_published_rows_are_the_public_ones() -> None:
    """Q20, Q30: rows copied by hand; the buckets of 2025 give each score to 1e-4 with their weights."""
    assert [row for row in NUPLAN.rows if row[0] == "PDM-Hybrid"] == [("PDM-Hybrid", "92", "93", "84")]
    (table,) = published_beside(["realism_2025"])
    assert table.label == "published, other scenes"
    for _, score, kinematic, interactive, road, _ in table.rows:
        assert 0.20 * float(kinematic) + 0.45 * float(interactive) + 0.35 * float(road) == pytest.approx(
            float(score), abs=1e-4
        )


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a\nb & c"])
def test_texts_of_files_are_escaped(report: dict[str, Any], manifest: dict[str, Any], text: str) -> None:
    """A verdict, a reason or a configuration that holds markup is text on the page (EF36, F16)."""
    report["verdict"] = text
    report["evaluators"]["traffic"]["arms"]["idm"]["metrics"]["score"]["interval_reason"] = text
    manifest["suite"]["config"] = text
    html = report_page(report, manifest, [], {})
    assert "<script>alert" not in html
    assert "<img" not in html
