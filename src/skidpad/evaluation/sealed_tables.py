"""The tables of a sealed run: one row per pair, and one per query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from skidpad.evaluation.tables import csv_bytes
from skidpad.streaming.schemas import ID_NAMES

PIXELS = ("label", "covered", "seen", "unseen", "moving")


def metric_keys(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Sorted union of the metrics of all records."""
    return sorted({name for record in records for name in record["metrics"]["averages"]})


def episodes_csv(records: Sequence[Mapping[str, Any]]) -> bytes:
    """One row per pair in the given order: ids, status, actions, units, seconds, then averages and valid counts."""
    names = metric_keys(records)
    header = [
        *("pair_id", *ID_NAMES, "policy", "kind", "status", "actions", "units"),
        *("decode_s", "adapt_s", "score_s", "total_s"),
        *names,
        *(f"valid_{name}" for name in names),
    ]
    rows = []
    for record in records:
        metrics, times = record["metrics"], record["times"]
        rows.append(
            [
                record["pair_id"],
                *(record[name] for name in ID_NAMES),
                record["policy"],
                record["kind"],
                record["status"],
                " ".join(record["actions"]),
                record["budget"]["units"] if record["budget"] else None,
                *(times[name] for name in ("decode_s", "adapt_s", "score_s", "total_s")),
                *(metrics["averages"].get(name) for name in names),
                *(metrics["valid_counts"].get(name, 0) for name in names),
            ]
        )
    return csv_bytes(header, rows)


def queries_csv(records: Sequence[Mapping[str, Any]]) -> bytes:
    """One row per (pair, query) in the given order; what is measured once per pair stands in a row without query id."""
    names = metric_keys(records)
    header = ["pair_id", "policy", "query", "placement", *(f"pixels_{name}" for name in PIXELS), *names]
    rows = [
        [
            record["pair_id"],
            record["policy"],
            row["frame_id"],
            row["placement"],
            *(row["pixels"].get(name) for name in PIXELS),
            *(row["metrics"].get(name, {"value": None})["value"] for name in names),
        ]
        for record in records
        for row in record["metrics"]["per_query"]
    ]
    return csv_bytes(header, rows)
