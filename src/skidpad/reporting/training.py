"""Training curves: what the updates of a run did, and how its evaluators saw the driver grow.

Everything is read from `training.csv` and the records of the run folder; a folder without them has no curves.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.evaluation.summary import arm_part
from skidpad.reporting.charts import Line, line_chart
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import Record

F64 = NDArray[np.float64]
SMOOTH = 20
"""At most this many updates are pooled into one point of a curve: an update sees few drives."""
MAX_POINTS = 200


class Curve(NamedTuple):
    """One chart of the page, with what it says in a line."""

    title: str
    aid: str
    svg: str


def curves(
    folder: RunFolder, report: Mapping[str, Any], manifest: Mapping[str, Any], records: Sequence[Record]
) -> list[Curve]:
    """The charts of a training run, evaluators first; none for a folder in which nothing was trained.

    records  all of the folder
    """
    path = folder.path / "training.csv"
    if not path.is_file():
        return []
    found = [
        curve
        for name, part in report["evaluators"].items()
        if (curve := evaluator_curve(name, part, manifest["evaluators"][name], records))
    ]
    return found + update_curves(read_table(path.read_text().splitlines()))


def read_table(lines: Sequence[str]) -> dict[str, F64]:
    """Columns of `training.csv` by name, (updates,) f64 each."""
    rows = list(csv.DictReader(lines))
    names = rows[0] if rows else {}
    return {name: np.array([float(row[name]) for row in rows]) for name in names}


def evaluator_curve(
    name: str, part: Mapping[str, Any], entry: Mapping[str, Any], records: Sequence[Record]
) -> Curve | None:
    """An evaluator's primary metric over its passes, with the interval of each, and the baselines as level lines; None
    where the driver under test has been seen once only."""
    primary, focus, knobs = part["primary"], part["focus"], entry["settings"]["eval"]
    passes: dict[int, list[Record]] = {}
    for record in records:
        if record.evaluator == name and record.arm == focus and record.checkpoint:
            passes.setdefault(record.step, []).append(record)
    steps, values = [], []
    for step, of_pass in sorted(passes.items()):
        value = arm_part(sorted(of_pass, key=lambda record: record.case), knobs)["metrics"].get(primary)
        if value is not None and value["value"] is not None:
            low, high = value["interval"] or (value["value"], value["value"])
            steps.append(step)
            values.append((value["value"], low, high))
    if len(steps) < 2:
        return None
    x, (y, low, high) = np.array(steps, np.float64), np.array(values, np.float64).T
    lines = [Line("this driver", x, y, low, high, dots=True)]
    for arm, of_arm in part["arms"].items():
        level = of_arm["metrics"].get(primary, {}).get("value")
        if arm != focus and level is not None:
            lines.append(Line(arm, x[[0, -1]], np.full(2, float(level))))
    return Curve(
        f"{name}: {primary}",
        "The band is the 95 % interval of each pass by itself; passes share their cases, so differences are surer.",
        line_chart(lines, x_label="agent-steps", y_label=primary),
    )


def update_curves(table: Mapping[str, F64]) -> list[Curve]:
    """What training itself counts: how drives end, reward, how surely the policy acts, how well values are known, and
    speed."""
    if not table or len(table["step"]) < 2:
        return []
    pool = min(SMOOTH, max(1, len(table["step"]) // 10), len(table["step"]))
    pool = max(pool, -(-len(table["step"]) // MAX_POINTS))
    step = _pooled(table["step"], pool) / pool
    drives = np.maximum(_pooled(table["drives"], pool), 1.0)
    ends = [
        Line("goals", step, _pooled(table["goals"], pool) / drives),
        Line("collisions", step, _pooled(table["crashes"], pool) / drives),
        Line("off the road", step, _pooled(table["departures"], pool) / drives),
    ]
    pooled = f"Each point pools {pool} updates." if pool > 1 else "Each point is one update."

    def mean(column: str, label: str) -> list[Line]:
        return [Line(label, step, _pooled(table[column], pool) / pool)]

    charts = (
        (
            "How drives go",
            "per drive",
            f"Goals reached and how drives ended, for each drive that ended. {pooled}",
            ends,
        ),
        ("Reward", "per agent-step", "What the policy is trained on, undiscounted.", mean("reward_per_step", "reward")),
        ("Entropy", "nats", "How freely the policy still chooses; at 0 it no longer does.", mean("entropy", "entropy")),
        (
            "Explained variance",
            "share",
            "How much of the returns the value network foresees; 1 is all.",
            mean("explained_variance", "explained variance"),
        ),
        ("Speed", "agent-steps/s", "Collecting and learning, without evaluation.", mean("steps_per_second", "speed")),
    )
    return [
        Curve(title, aid, line_chart(lines, x_label="agent-steps", y_label=unit)) for title, unit, aid, lines in charts
    ]


def _pooled(values: F64, pool: int) -> F64:
    """Sums of `pool` consecutive values; what is left over at the end is dropped."""
    return np.asarray(values[: len(values) // pool * pool].reshape(-1, pool).sum(axis=1))
