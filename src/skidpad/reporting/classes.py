"""The table of behaviour classes: what each driver scores in each class, and in all of them together (E68)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skidpad.reporting.wording import ARM_WORDS, cell_of, plural


def class_table(report: Mapping[str, Any]) -> dict[str, Any] | None:
    """Rows of classes, columns of drivers, of the primary metric; the last row is all classes. None where a run has
    fewer than two classes."""
    pool = report["pooled"].get("behavior_class")
    if pool is None:
        return None
    arms, primary = list(pool["arms"]), pool["primary"]
    entries = [(name, report["evaluators"][name]) for name in pool["evaluators"]]
    rows = [
        {
            "name": name,
            "cases": plural(part["cases"], "case"),
            "note": part["size_note"] or "",
            "cells": [cell_of(part["arms"][arm]["metrics"].get(primary), (0.0, 1.0)) for arm in arms],
            "pooled": part is pool,
        }
        for name, part in [*entries, ("all classes", pool)]
    ]
    return {
        "primary": primary.replace("_", " "),
        "columns": [{"label": ARM_WORDS.get(arm, arm), "focus": arm == pool["focus"]} for arm in arms],
        "rows": rows,
    }
