"""What stands beside the tables of a run's page: every value as a file, what failed, what it cost, what was drawn."""

from __future__ import annotations

import csv
import io
import os.path
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from skidpad.reporting.wording import ARM_WORDS, number, plural
from skidpad.runs.records import Record

COLUMNS = (
    *("evaluator", "arm", "metric", "unit", "direction", "value", "low", "high"),
    *("n", "invalid", "by_scene", "by_agent", "reason"),
)
MAX_FAILURES = 50
DRAWN = {
    "sim_state": "Films of the whole scene",
    "topdown_sim": "Films around the vehicle under test",
    "bev": "Films of what one driver was given",
    "bev_all": "Films of what every driver was given",
    "triage_html": "Page on which the cases are played",
    "obs_html": "Page of what a driver was given, moment by moment",
}
COSTS = ("setup_seconds", "rollout_seconds", "metric_seconds")


def values_csv(report: Mapping[str, Any]) -> str:
    """Every summarised value of a report, one line per evaluator, arm and metric; a missing one has a reason."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for name, part in sorted(report["evaluators"].items()):
        for arm, of in sorted(part["arms"].items()):
            for metric, entry in sorted(of["metrics"].items()):
                low, high = entry["interval"] or (None, None)
                rest = [entry[key] for key in ("n", "invalid", "by_scene", "by_agent", "reason")]
                table.writerow([name, arm, metric, entry["unit"], entry["direction"], entry["value"], low, high, *rest])
    return text.getvalue()


def as_link(text: str) -> str:
    """A text file as something a link can hold, so that the page needs no second file."""
    return "data:text/csv;charset=utf-8," + quote(text)


def failures(records: Iterable[Record]) -> dict[str, Any]:
    """Runs that did not finish: up to MAX_FAILURES rows, and how many there are."""
    failed = [record for record in records if record.status != "ok"]
    rows = [
        {
            "evaluator": record.evaluator,
            "case": record.case,
            "scene": record.scene_id,
            "arm": ARM_WORDS.get(record.arm, record.arm),
            "status": record.status,
            "why": f"{record.error['type']}: {record.error['message']}" if record.error else "",
        }
        for record in failed[:MAX_FAILURES]
    ]
    return {"count": len(failed), "rows": rows}


def cost(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """Where the time of each evaluator went."""
    rows = []
    for name, part in sorted(report["evaluators"].items()):
        spent = part["seconds"]
        drawn = sum(drawing["seconds"] for drawing in part.get("renders", ()))
        row = {"name": name, "eval_seconds": number(spent.get("eval_seconds", 0.0), "s")}
        row |= {key: number(spent[key], "s") if key in spent else "" for key in COSTS}
        row |= {"render_seconds": number(drawn, "s") if drawn else "none drawn"}
        row["rate"] = number(spent["cases_per_second"], "1/s") if "cases_per_second" in spent else ""
        rows.append(row)
    return rows


def pictures(report: Mapping[str, Any], run: Path, page: Path) -> list[dict[str, Any]]:
    """Each drawn pass with links to its files, relative to the page.

    run   folder of the run
    page  where the page will lie
    """
    base = os.path.relpath(run.absolute(), page.absolute().parent)
    rows = []
    for name, part in sorted(report["evaluators"].items()):
        for drawing in part.get("renders", ()):
            groups = [
                {
                    "what": DRAWN.get(key.rsplit("/", 1)[-1], key.rsplit("/", 1)[-1]),
                    "files": [
                        {"name": file.rsplit("/", 1)[-1], "link": quote(os.path.normpath(os.path.join(base, file)))}
                        for file in files
                    ],
                }
                for key, files in drawing["files"].items()
            ]
            error = drawing["error"]
            rows.append(
                {
                    "title": f"{name}, step {drawing['step']}: "
                    + plural(sum(len(group["files"]) for group in groups), "file"),
                    "groups": groups,
                    "error": f"{error['type']}: {error['message']}" if error else "",
                }
            )
    return rows
