"""The table that a realism score is read with: baselines of the same scenes, buckets, rates, and chance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skidpad.reporting.wording import ARM_WORDS, plural

WORDS = {
    "log": "the log itself",
    "log_hold_last": "log, held at its end",
    "stationary": "everybody parked",
    "constant_velocity": "everybody at constant velocity",
    "random": "random arcs",
}
GOALS = {
    "none": "nobody is told where to go",
    "log": "agents are given where they went: another task than the public one",
}


def perspective(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Rows of drivers, then of trajectories made from the log; None where an evaluator measures no realism."""
    realism = part.get("realism")
    if realism is None:
        return None
    rows = [_row(ARM_WORDS.get(arm, arm), entry, arm == part["focus"]) for arm, entry in realism["arms"].items()] + [
        _row(WORDS[name], entry, False) for name, entry in realism["baselines"].items()
    ]
    halves = realism["arms"].get(part["focus"], {}).get("halves")
    return {
        "name": realism["name"],
        "rows": rows,
        "goals": GOALS.get(realism["goals"], realism["goals"]),
        "rollouts": plural(realism["rollouts"], "rollout"),
        "not_standard": realism["not_standard"],
        "halves": "" if halves is None or halves[0] == halves[1] else f"{halves[0]:.4f} and {halves[1]:.4f}",
    }


def _row(label: str, entry: Mapping[str, Any], focus: bool) -> dict[str, Any]:
    def text(value: float | None, form: str = ".3f") -> str:
        return "no data" if value is None else format(value, form)

    interval = entry["interval"]
    return {
        "label": label,
        "focus": focus,
        "value": text(entry["value"], ".4f"),
        "interval": f"{interval[0]:.4f} to {interval[1]:.4f}" if interval else entry["interval_reason"] or "",
        "buckets": [text(value) for value in entry["buckets"].values()],
        "rates": [text(None if value is None else 100 * value, ".1f") for value in entry["rates"].values()],
        "min_ade": text(entry["min_ade"], ".2f"),
        "dropped": ", ".join(f"{count} {reason}" for reason, count in sorted(entry["dropped"].items())),
    }
