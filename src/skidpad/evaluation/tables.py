"""The tables of a run as CSV: one row per (case, arm), one line per arm, one line per evaluator.

Values that are missing or invalid are empty, never zero. Rows are sorted by identity and numbers written so that they
read back exactly, so equal runs give equal bytes; only the `cost_*` columns of `summary.csv` differ.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from skidpad.runs.records import Record

EPISODES_SCHEMA = "skidpad.episodes/1"
IDENTITY = (
    "schema", "evaluator", "section_digest", "metric_spec", "checkpoint", "arm", "step", "epoch", "scene",
    "scene_digest", "case", "case_index", "seed", "replicate", "ego", "ego_rule", "n_agents", "status", "error",
)  # fmt: skip


def tables_of(
    parts: Mapping[str, Mapping[str, Any]], records: Iterable[Record], report: Mapping[str, Any]
) -> dict[str, bytes]:
    """Every table of a run of drivers, by its path in the run folder.

    parts   the evaluators' entries in the manifest, by name
    report  content of `report.json`
    """
    by_name: dict[str, list[Record]] = {name: [] for name in parts}
    for record in records:
        by_name[record.evaluator].append(record)
    tables = {}
    for name, part in parts.items():
        costs = {
            arm: round(math.fsum(float(r.cost.get("seconds", 0.0)) for r in by_name[name] if r.arm == arm), 6)
            for arm in part["arms"]
        }
        tables[f"{name}/episodes.csv"] = episodes_csv(part, by_name[name])
        tables[f"{name}/summary.csv"] = summary_csv(name, report["evaluators"][name], costs)
    tables["eval_summary.csv"] = eval_summary_csv(report)
    return tables


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """A table as bytes: None is an empty cell, truth is 0 or 1, numbers read back exactly."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        # The writer itself leaves None empty and writes floats as they read back; truth it would spell.
        writer.writerow([int(value) if value is True or value is False else value for value in row])
    return text.getvalue().encode()


def episodes_csv(part: Mapping[str, Any], records: Sequence[Record]) -> bytes:
    """One row per (case, arm) whatever its status; `part` is the evaluator's entry in the manifest."""
    metrics = sorted(set().union(*(record.result["metrics"] for record in records if record.result)))
    header = [*IDENTITY, "steps", *(column for name in metrics for column in (name, f"{name}_valid")), "infer_batch"]
    digests = part["digests"]
    infer_batch = part["settings"]["vec"]["infer_batch"]

    def row(record: Record) -> list[Any]:
        result = record.result or {"n_agents": None, "steps": None, "metrics": {}}
        error = f"{record.error['type']}: {record.error['message']}" if record.error else None
        identity = [
            EPISODES_SCHEMA, record.evaluator, digests["section"], digests["metrics"], record.checkpoint, record.arm,
            record.step, record.epoch, record.scene_id, record.scene_digest, record.case, record.case_index,
            record.seed, record.replicate, record.ego, record.ego_rule, result["n_agents"], record.status, error,
        ]  # fmt: skip
        values = [result["metrics"].get(name, {"value": None, "valid": False}) for name in metrics]
        return [
            *identity,
            result["steps"],
            *(item for value in values for item in (value["value"], value["valid"])),
            infer_batch,
        ]

    ordered = sorted(records, key=lambda record: (record.case, record.arm, record.step, record.checkpoint))
    return csv_bytes(header, (row(record) for record in ordered))


def summary_csv(name: str, part: Mapping[str, Any], costs: Mapping[str, float]) -> bytes:
    """One line per arm of an evaluator; `part` is its entry in the report, `costs` the seconds of each arm."""
    header = [
        "evaluator", "arm", "primary", "value", "valid", "interval_low", "interval_high", "interval_reason", "bound",
        "by_scene", "by_agent", "ok", "status", "complete", "expected", "finished", "n_scenes", "n_cases", "n_agents",
        "few_clusters", "cost_seconds",
    ]  # fmt: skip
    empty = dict.fromkeys(("value", "interval", "interval_reason", "bound", "by_scene", "by_agent"), None)

    def row(arm: str) -> list[Any]:
        entry = part["arms"][arm]["metrics"].get(part["primary"], {**empty, "valid": False})
        low, high = entry["interval"] or (None, None)
        coverage = part["coverage"]
        return [
            name, arm, part["primary"], entry["value"], entry["valid"], low, high, entry["interval_reason"],
            entry["bound"], entry["by_scene"], entry["by_agent"], part["ok"], part["status"], coverage["complete"],
            coverage["expected"], coverage["finished"], coverage["distinct_scenes"], part["arms"][arm]["n_cases"],
            part["arms"][arm]["n_agents"], part["few_clusters"], costs.get(arm, 0.0),
        ]  # fmt: skip

    return csv_bytes(header, (row(arm) for arm in part["arms"]))


def eval_summary_csv(report: Mapping[str, Any]) -> bytes:
    """One line per evaluator of a run."""
    header = [
        "evaluator", "type", "ok", "status", "focus", "primary", "value", "interval_low", "interval_high", "n_cases",
        "n_scenes", "complete", "error",
    ]  # fmt: skip

    def row(name: str, part: Mapping[str, Any]) -> list[Any]:
        entry = part["arms"][part["focus"]]["metrics"].get(part["primary"], {"value": None, "interval": None})
        low, high = entry["interval"] or (None, None)
        error = f"{part['error']['type']}: {part['error']['message']}" if part["error"] else None
        return [
            name, part["type"], part["ok"], part["status"], part["focus"], part["primary"], entry["value"], low, high,
            part["cases"], part["coverage"]["distinct_scenes"], part["coverage"]["complete"], error,
        ]  # fmt: skip

    return csv_bytes(header, (row(name, part) for name, part in report["evaluators"].items()))
