"""Score tables for a terminal. What has no value is "no data" with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skidpad.evaluation.metrics.published import published_beside
from skidpad.reporting.wording import bare, number, plural

# With more drivers than this, intervals would not fit a line.
WIDE = 3


def score_text(table: Mapping[str, Any]) -> str:
    """The table that `evaluation.score.score_files` returns, as text."""
    arms = table["arms"]
    if not arms:
        return "no case was scored"
    rows = [["metric", *arms]]
    for name, line in table["metrics"].items():
        rows.append(
            [name, *(_cell(part["metrics"].get(name), line["unit"], len(arms) <= WIDE) for part in arms.values())]
        )
    counted = [
        f"{arm}: {plural(part['cases'], 'case')} from {plural(part['scenes'], 'scene')}" for arm, part in arms.items()
    ]
    note = "" if len(arms) <= WIDE else "\nintervals and spreads: --json"
    return "\n".join([*aligned(rows), "", *counted]) + note


def rollout_text(table: Mapping[str, Any]) -> str:
    """The table of `evaluation.score_rollouts.score_rollouts`, as text: realism among its baselines, then the rest."""
    lines = [] if table["realism"] is None else [*realism_lines(table["name"], table["realism"]), ""]
    rows = [
        [name, "no data" if (value := table["values"][name]) is None else number(value, line["unit"])]
        for name, line in table["metrics"].items()
        if table["realism"] is None or name != table["name"]
    ]
    lines += [*aligned(rows), "", plural(len(table["scenarios"]), "scenario")]
    if table["halves"]:
        lines.append("even and odd rollouts alone: " + " and ".join(_plain(half, ".4f") for half in table["halves"]))
    for published in published_beside([table["name"]]) if table["standard"] else []:
        lines += ["", f"{published.label}: {published.title}"]
        lines += aligned([["", *published.columns], *published.rows])
    if not table["standard"]:
        lines.append("not the standard task, comparable with no published value:")
        lines += [f"  {entry['scenario_id']}: {'; '.join(entry['not_standard'])}" for entry in table["scenarios"]]
    return "\n".join(lines)


def realism_lines(name: str, realism: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What was simulated and its baselines, one line each; a score alone cannot be read."""
    buckets = list(next(iter(realism.values()))["buckets"])
    rows = [["", name, *buckets, "minADE", "contacts", "off-road"]]
    for arm, row in realism.items():
        value = _plain(row["value"], ".4f", row["dropped"])
        if row["interval"]:
            value += " ({:.4f} to {:.4f})".format(*row["interval"])
        rates = (row["rates"].get(rate) for rate in ("collision_indication", "offroad_indication"))
        parts = [_plain(row["buckets"][bucket], ".4f") for bucket in buckets]
        rows.append([arm, value, *parts, *(_plain(part, ".3f") for part in (row["min_ade_official"], *rates))])
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table whose columns stand under each other."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _plain(value: float | None, form: str, dropped: Mapping[str, int] | None = None) -> str:
    if value is None:
        return "no data" + (f" ({', '.join(dropped)})" if dropped else "")
    return format(value, form)


def _cell(entry: Mapping[str, Any] | None, unit: str, with_interval: bool) -> str:
    if entry is None:
        return "-"
    if not entry["valid"]:
        return f"no data ({entry['reason'] or 'no case'})"
    text = number(entry["value"], unit)
    if with_interval and entry["interval"]:
        low, high = entry["interval"]
        text += f" ({bare(low, unit)} to {bare(high, unit)})"
    return text
