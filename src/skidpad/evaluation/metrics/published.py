"""Rows of public tables, to be printed beside our values and never among them: they are of other scenes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from skidpad.evaluation.metrics.realism_context import PUBLISHED, PUBLISHED_LABEL


class PublishedTable(NamedTuple):
    """One public table.

    metric   our metric that has the same definition
    title    what it is a table of
    columns  heads of the values
    rows     method, then one text per column; "" where nothing was published
    note     what a reader must know, with the source
    """

    metric: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str

    @property
    def label(self) -> str:
        """Stands over every such table."""
        return PUBLISHED_LABEL


NUPLAN = PublishedTable(
    "nuplan_cls",
    "nuPlan Val14, in percent",
    ("reactive", "non-reactive", "open loop"),
    (
        ("log replay", "80", "94", "100"),
        ("IDM", "77", "76", "38"),
        ("PDM-Closed", "92", "93", "44"),
        ("PDM-Hybrid", "92", "93", "84"),
        ("UrbanDriver", "44", "45", "76"),
    ),
    "The recorded drive itself does not score 100 (nuplan-devkit #258).",
)


def _realism(metric: str) -> PublishedTable:
    chosen = [row for row in PUBLISHED if row.metric == metric]
    values = ((row.value, row.kinematic, row.interactive, row.map_based, row.min_ade) for row in chosen)
    texts = (tuple("" if value is None else f"{value:.4f}" for value in row) for row in values)
    return PublishedTable(
        metric,
        f"{metric} of a public test set",
        ("score", "kinematic", "interactive", "map", "minADE [m]"),
        tuple((row.method, *text) for row, text in zip(chosen, texts, strict=True)),
        "The first rows lie closer together than chance moves a score: intervals decide.",
    )


TABLES: Sequence[PublishedTable] = (NUPLAN, *(_realism(f"realism_{year}") for year in ("2023", "2024", "2025")))


def published_beside(metrics: Collection[str]) -> list[PublishedTable]:
    """The tables that belong beside some metrics."""
    return [table for table in TABLES if table.metric in metrics]
