"""One page over many finished runs: what each found, how sure that is, and where its own page lies."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import skidpad
from skidpad.artifacts.files import create
from skidpad.reporting.report import environment
from skidpad.reporting.values import as_link, values_csv
from skidpad.reporting.wording import ARM_WORDS, cell_of, plural
from skidpad.runs.folder import RunFolder
from skidpad.runs.manifest import read_manifest


def write_index(folders: Sequence[RunFolder], out: Path) -> None:
    """Write the page over some finished runs. Rows of one evaluator's name and primary metric stand together, on one
    scale, with a word of warning where their case sets or metric definitions differ.

    Raises UsageError when a run is not finished, AlreadyThereError when `out` exists.
    """
    runs = [(folder, folder.read_report(), read_manifest(folder)) for folder in folders]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for folder, report, manifest in runs:
        for name, part in report["evaluators"].items():
            entry = part["arms"][part["focus"]]["metrics"].get(part["primary"])
            base = os.path.relpath(folder.path.absolute(), out.absolute().parent)
            groups.setdefault((name, part["primary"]), []).append(
                {
                    "run": folder.path.absolute().name,
                    "link": quote(os.path.join(base, folder.page.name)) if folder.page.is_file() else "",
                    "started": manifest.get("run", {}).get("started", ""),
                    "driver": ARM_WORDS.get(part["focus"], part["focus"]),
                    "checkpoint": str(part["digests"].get("checkpoint", ""))[:12],
                    "entry": entry,
                    "cases": part["cases"],
                    "status": part["status"],
                    "verdict": part.get("verdict", ""),
                    "same": (part["digests"]["section"], part["digests"]["metrics"]),
                }
            )
    tables = [_table(name, primary, rows) for (name, primary), rows in groups.items()]
    lines = ["run," + values_csv(runs[0][1]).splitlines(keepends=True)[0]]
    for folder, report, _ in runs:
        label = '"' + folder.path.absolute().name.replace('"', '""') + '"'
        lines += [f"{label},{line}" for line in values_csv(report).splitlines(keepends=True)[1:]]
    html = (
        environment()
        .get_template("index.html")
        .render(
            title=plural(len(runs), "run"),
            tables=tables,
            csv_link=as_link("".join(lines)),
            style="",
            script_hashes=[],
            attributions=[],
            version=skidpad.__version__,
        )
    )
    create(out, html.encode())


def _table(name: str, primary: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One evaluator over the runs, its values on one scale."""
    points = [
        point
        for row in rows
        if row["entry"] and row["entry"]["valid"]
        for point in (row["entry"]["value"], *(end for end in row["entry"]["interval"] or () if end is not None))
    ]
    scale = (min(points), max(points)) if points else (0.0, 1.0)
    return {
        "name": name,
        "primary": primary.replace("_", " "),
        "comparable": len({row["same"] for row in rows}) == 1,
        "rows": [{**row, "cell": cell_of(row["entry"], scale)} for row in rows],
    }
