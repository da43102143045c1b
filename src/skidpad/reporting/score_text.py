"""A score table for a terminal: one row per metric, one column per driver, and "no data" with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    counted = [
        f"{arm}: {plural(part['cases'], 'case')} from {plural(part['scenes'], 'scene')}" for arm, part in arms.items()
    ]
    note = "" if len(arms) <= WIDE else "\nintervals and spreads: --json"
    return "\n".join([*lines, "", *counted]) + note


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
