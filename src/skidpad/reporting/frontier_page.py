"""The page of a frontier: work against the primary metric over runs with several limits.

As on the page of a run, nothing is computed here that `over_limits` does not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import skidpad
from skidpad.artifacts.files import create
from skidpad.errors import UsageError
from skidpad.evaluation.frontier import CURVES, over_limits
from skidpad.reporting.report import environment
from skidpad.reporting.sealed_page import LEFT, RIGHT, STYLE, TOP, WIDTH, figure, sealed_page
from skidpad.runs.folder import RunFolder, read_document
from skidpad.runs.manifest import read_manifest
from skidpad.streaming.report_format import REPORT_SCHEMA, checked_report, document

HEIGHT = 320
COLOURS = ("#0969da", "#bc4c00", "#1a7f37", "#8250df", "#bf3989", "#57606a")


def sealed_report(folder: RunFolder) -> dict[str, Any] | None:
    """The report of a finished sealed evaluation; None for a run of drivers. Raises UsageError when the run is not
    finished, IntegrityError for a damaged file."""
    if folder.is_finished and "registration" in read_manifest(folder)["identity"]:
        return checked_report(read_document(folder.report, REPORT_SCHEMA), str(folder.report))
    folder.read_report()  # says what is the matter, where something is
    return None


def write_sealed(folders: Sequence[RunFolder], reports: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Write the page of one sealed run again; over several, that of their frontier, and the same as JSON beside it.

    Raises UsageError when two runs have one name and for what keeps them apart; AlreadyThereError when a target exists.
    """
    if len(folders) == 1:
        create(out, sealed_page(folders[0], reports[0]).encode())
        return
    names = [folder.path.absolute().name for folder in folders]
    if len(set(names)) < len(names):
        raise UsageError(f"two of these runs have one name ({', '.join(sorted(names))}); rename a folder.")
    found = over_limits(dict(zip(names, reports, strict=True)))
    data = out.with_suffix(".json")
    create(data, document(found))
    create(out, frontier_page(found).encode())


def frontier_page(found: Mapping[str, Any]) -> str:
    """The HTML of a frontier."""
    runs = len(found["runs"])
    html: str = (
        environment()
        .get_template("frontier.html")
        .render(
            title="Work against quality",
            subtitle=f"{found['episodes']} episodes, {runs} runs of a sealed evaluation; {found['metric']}, "
            f"{found['direction']} is better",
            primary=found["metric"],
            tracks=[_part(track) for track in found["tracks"]],
            runs=found["runs"],
            version=skidpad.__version__,
            attributions=[],
            style=STYLE,
            script_hashes=[],
        )
    )
    return html


def _part(track: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": f"{track['track_id']} ({track['split_id']})",
        "words": area_words(track["area"]),
        "chart": chart(track),
        "points": [_point(row) for row in track["points"]],
        "curves": [
            {"name": curve["name"], "limits": len(curve["points"]), "words": area_words(curve["area"])}
            for curve in track["curves"]
        ],
        "differences": [
            {
                **row,
                "delta": figure(row["value"], signed=True),
                "span": _span(row),
                "tone": row["verdict"] if row["verdict"] in ("better", "worse") else "",
            }
            for row in track["differences"]
        ],
    }


def _span(row: Mapping[str, Any]) -> str:
    if row["low"] is None:
        return str(row["reason"] or "")
    return f"{figure(row['low'], signed=True)} to {figure(row['high'], signed=True)}"


def area_words(area: Mapping[str, Any]) -> str:
    """An area with its interval, or why there is none."""
    span = "" if area["low"] is None else f" [{figure(area['low'])}, {figure(area['high'])}]"
    return f"{figure(area['value'])}{span}" + (f"; {area['reason']}" if area["reason"] else "")


def _point(row: Mapping[str, Any]) -> dict[str, Any]:
    share = "–" if row["work_share"] is None else f"{100 * row['work_share']:.1f} %"
    seconds = "–" if row["seconds_share"] is None else f"{100 * row['seconds_share']:.1f} %"
    return {
        "arm": row["name"].partition(" @ ")[0],
        "run": row["run"],
        "limit": f"{row['max_units'] / 1e6:,.1f}" if row["arm"] in CURVES else "none bound",
        "share": share,
        "seconds": seconds,
        "value": figure(row["value"]),
        "delta": figure(row["delta"], signed=True),
        "span": "the reference" if row["arm"] == "OFF" else _span(row),
    }


def chart(track: Mapping[str, Any]) -> dict[str, Any] | None:
    """Points with their bars and a line per curve; None where ALL has no work to measure in."""
    known = [row for row in track["points"] if row["work_share"] is not None and row["value"] is not None]
    if not known:
        return None
    # The bar of a point is the interval of its difference from OFF, hung at the point.
    bars = {
        row["name"]: (row["value"], row["value"])
        if row["low"] is None
        else (row["value"] + row["low"] - row["delta"], row["value"] + row["high"] - row["delta"])
        for row in known
    }
    low, high = min(bar[0] for bar in bars.values()), max(bar[1] for bar in bars.values())
    across = (WIDTH - LEFT - RIGHT) / max(1.0, *(row["work_share"] for row in known))
    down = HEIGHT / ((high - low) or 1.0)

    def y(value: float) -> float:
        return float(round(TOP + (high - value) * down, 1))

    places = {row["name"]: (round(LEFT + row["work_share"] * across, 1), y(row["value"])) for row in known}
    colour = {
        name: COLOURS[n % len(COLOURS)] for n, curve in enumerate(track["curves"], start=1) for name in curve["points"]
    }
    lines = []
    for number, curve in enumerate(track["curves"], start=1):
        path = " ".join(f"{x},{height}" for x, height in (places[name] for name in curve["points"] if name in places))
        lines.append({"name": curve["name"], "colour": COLOURS[number % len(COLOURS)], "path": path})
    return {
        "low": figure(low),
        "high": figure(high),
        "bottom": TOP + HEIGHT,
        "right": WIDTH - RIGHT,
        "left": LEFT,
        "width": WIDTH,
        "lines": lines,
        "points": [
            {
                "label": "" if row["arm"] in CURVES else row["name"],
                "colour": colour.get(row["name"], COLOURS[0]),
                "x": places[row["name"]][0],
                "y": places[row["name"]][1],
                "top": y(bars[row["name"]][1]),
                "bottom": y(bars[row["name"]][0]),
                "title": f"{row['name']}: {figure(row['value'])} at {100 * row['work_share']:.1f} % of ALL's work",
            }
            for row in known
        ],
    }
