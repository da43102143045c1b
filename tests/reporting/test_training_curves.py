"""The curves of a training run: what they pool, which passes they show, and that they may stand in an offline page."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from skidpad.reporting import training
from skidpad.reporting.charts import Line, line_chart
from skidpad.runs.records import Record

COLUMNS = ("step", "drives", "goals", "crashes", "departures", "reward_per_step", "entropy", "explained_variance")


def table(updates: int) -> dict[str, Any]:
    """`training.csv` of a run whose updates are alike: of 4 drives 2 reach a goal, 1 collides, 1 leaves the road."""
    text = [",".join((*COLUMNS, "steps_per_second"))]
    text += [f"{100 * (n + 1)},4,2,1,1,{n / 10},1.5,0.5,1000" for n in range(updates)]
    return training.read_table(text)


def record(step: int, case: str, value: float, arm: str = "policy") -> Record:
    metric = {"value": value, "valid": True, "numerator": value, "denominator": 1.0, "reason": None}
    result = {"n_agents": 1, "steps": 1, "metrics": {"score": metric}, "trace_digest": "", "state_hash": ""}
    checkpoint = f"c{step}" if arm == "policy" else ""
    scene = f"scene of {case}"
    return Record("a", step, step, checkpoint, case, arm, 0, scene, scene, 1, 0, 0, -1, "", "ok", None, result)


def shown(monkeypatch) -> list[list[Line]]:
    """What the charts are asked to draw."""
    drawn: list[list[Line]] = []
    monkeypatch.setattr(training, "line_chart", lambda lines, **_: drawn.append(list(lines)) or "<svg></svg>")
    return drawn


def test_updates_are_pooled_by_their_drives(monkeypatch):
    """A point pools a tenth of the updates, at most 20 of a short run and as many as leave 200 points of a long one;
    shares are of all its drives, and it stands at its updates' mean step."""
    drawn = shown(monkeypatch)
    training.update_curves(table(50))
    goals, collisions, departures = drawn[0]
    assert goals.x.tolist() == [300.0 + 500.0 * n for n in range(10)]
    assert goals.y.tolist() == [0.5] * 10
    assert collisions.y.tolist() == departures.y.tolist() == [0.25] * 10
    assert np.allclose(drawn[1][0].y, [0.2 + 0.5 * n for n in range(10)])
    drawn.clear()
    training.update_curves(table(10_000))
    assert len(drawn[0][0].x) == 200
    assert training.update_curves(table(1)) == []


def test_evaluators_are_shown_pass_by_pass(monkeypatch):
    """Each pass is one point at its step with the mean over its cases; a baseline is level; one pass is no curve."""
    drawn = shown(monkeypatch)
    knobs = {"cluster": "log", "interval_method": "bca", "resamples": 200}
    entry = {"settings": {"eval": knobs}}
    part = {
        "primary": "score",
        "focus": "policy",
        "arms": {"policy": {"metrics": {}}, "log": {"metrics": {"score": {"value": 0.9}}}},
    }
    records = [record(step, case, value) for step in (0, 500) for case, value in (("x", 0.2 + step / 1e3), ("y", 0.4))]
    curve = training.evaluator_curve("a", part, entry, [*records, record(0, "x", 0.9, "log")])
    assert curve is not None
    driver, log = drawn[0]
    assert driver.x.tolist() == [0.0, 500.0]
    assert np.allclose(driver.y, [0.3, 0.55])
    assert log.y.tolist() == [0.9, 0.9]
    assert training.evaluator_curve("a", part, entry, records[:2]) is None


def test_charts_are_plain_elements_without_addresses():
    """A chart is one element whose text is text; it names no address, holds no script, and equal lines give equal
    text, so that a page stays reproducible and works offline. Labels from files are escaped."""
    lines = [Line("<script>", np.arange(3.0), np.arange(3.0)), Line("b", np.arange(3.0), np.array([1.0, np.nan, 2.0]))]
    chart = line_chart(lines, x_label="agent-steps", y_label="score & more")
    assert chart == line_chart(lines, x_label="agent-steps", y_label="score & more")
    assert chart.startswith("<svg ")
    assert chart.endswith("</svg>")
    assert not re.search(r"https?:|//www|<script|<metadata|<\?xml", chart)
    assert "agent-steps" in chart
    assert "score &amp; more" in chart
