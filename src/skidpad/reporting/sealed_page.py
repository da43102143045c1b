"""The page of a sealed evaluation: one file that opens offline, from the run's report and its full records.

Nothing is computed here that the report or a record does not say; this module chooses, words and lays out. The page is
a pure function of what lies in the folder, so `skidpad verify` makes it again and compares bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import skidpad
from skidpad.artifacts.files import parse_json
from skidpad.evaluation.metrics.scene_metrics import SCENE_METRICS, TASK
from skidpad.evaluation.scene_statistics import verdict_sentences
from skidpad.evaluation.sealed_strips import read_strips
from skidpad.reporting.report import environment
from skidpad.reporting.wording import plural
from skidpad.runs.folder import RunFolder
from skidpad.streaming.report_format import PAIR, pair_id

Strips = Mapping[tuple[str, int], str]

EXTREMES = 4  # best and worst queries shown of the best arm
WIDTH, LEFT, RIGHT = 720, 170, 20
ROW, TOP = 24, 16
LIBRARIES = ("python", "torch", "numpy", "scipy")
ACTION_LETTERS = {"OFF": "·", "FUSE": "F", "COMPLETE": "C", "ALL": "A"}


def sealed_page(folder: RunFolder, report: Mapping[str, Any]) -> str:
    """The HTML of a run whose report is known; the full records lie in the folder."""
    records = read_pairs(folder, report)
    strips = read_strips(folder)
    primary = report["registration"]["primary"]["name"]
    tracks = sorted({(row["split_id"], row["track_id"]) for row in report["summaries"]})
    html: str = (
        environment()
        .get_template("sealed.html")
        .render(
            title="Sealed evaluation of a mapper",
            subtitle=subtitle(report),
            report=report,
            complete=report["status"] == "complete",
            verdicts=verdict_sentences(report),
            faults=faults(report),
            primary=primary,
            tracks=[track_part(report, records, strips, split, track, primary) for split, track in tracks],
            facts=facts(report),
            version=skidpad.__version__,
            attributions=[],
            style=STYLE,
            script_hashes=[],
        )
    )
    return html


STYLE = """
.chart { max-width: 760px; width: 100%; height: auto; font: 11px system-ui, sans-serif; }
.timeline td { font-family: ui-monospace, "DejaVu Sans Mono", monospace; text-align: left; letter-spacing: 2px; }
tr.control td { color: var(--muted); }
.views { display: flex; flex-wrap: wrap; gap: 10px 14px; margin: 6px 0 14px; } figure { margin: 0; }
.views img { height: 96px; width: auto; image-rendering: pixelated; display: block; border: 1px solid var(--line); }
figcaption { font-size: 12.5px; color: var(--muted); } figcaption b { color: var(--ink); }
td img { height: 64px; width: auto; image-rendering: pixelated; display: inline-block; margin-right: 6px; }
"""


def read_pairs(folder: RunFolder, report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The full records of the report's pairs, in its order."""
    wanted = {row["pair_id"] for row in report["records"]}
    found = {path.stem: path for path in folder.path.glob("*/pairs/*.json") if path.stem in wanted}
    ordered = [found[row["pair_id"]] for row in report["records"] if row["pair_id"] in found]
    return [dict(parse_json(path.read_bytes())) for path in ordered]


def subtitle(report: Mapping[str, Any]) -> str:
    """How much of the index ran, and what kind of run it is."""
    subset, registration = report["subset"], report["registration"]
    of = f" of {subset['available']}" if subset["selected"] != subset["available"] else ""
    protocol = registration["protocol"]
    return (
        f"{subset['selected']}{of} episodes of split {registration['split']} ({', '.join(registration['tracks'])}), "
        f"{protocol['warmup']} + {protocol['stream']} frames, {protocol['queries']} hidden views each; "
        f"{report['kind']} run"
    )


def faults(report: Mapping[str, Any]) -> list[str]:
    """What went wrong in the run itself."""
    failed = [row for row in report["records"] if row["status"] != "ok"]
    found = [f"{row['pair_id']}: {row['status']}: {row['error']['message']}" for row in failed[:10]]
    if len(failed) > 10:
        found.append(f"and {plural(len(failed) - 10, 'other pair')} without scores; the records hold the reasons.")
    return found


def figure(value: float | None, digits: int = 3, *, signed: bool = False) -> str:
    """A number of the report, or a dash."""
    return "–" if value is None else f"{value:{'+' if signed else ''}.{digits}f}"


def track_part(
    report: Mapping[str, Any],
    records: Sequence[Mapping[str, Any]],
    strips: Strips,
    split: str,
    track: str,
    primary: str,
) -> dict[str, Any]:
    """What the template shows of one track."""

    def here(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [row for row in rows if (row["split_id"], row["track_id"]) == (split, track)]

    rows = here(report["summaries"])
    arms = [row["arm"] for row in rows]
    comparisons = here(report["controls"]["comparisons"])
    return {
        "name": f"{track} ({split})",
        "few": any(row["few_scenes"] for row in rows),
        "arms": [arm_row(row, primary) for row in rows],
        "controls": [control_row(row) for row in comparisons],
        "claims": [row["sentence"] for row in here(report["controls"]["claims"])],
        "sets": [
            {
                "arm": row["arm"],
                "cells": [figure(row["metrics"].get(name, {}).get("mean")) for name in set_names(primary)],
            }
            for row in rows
        ],
        "set_names": set_names(primary),
        "tasks": task_table(rows),
        "placements": placement_table(rows),
        "dots": dots(here(report["scenes"]), arms, primary),
        "frontier": frontier_chart(here(report["frontier"]["tracks"]), rows, primary),
        "extremes": extremes(here(records), rows, strips, primary, report["registration"]["primary"]["direction"]),
        "pictures": pictures(here(records), strips, primary),
        "timeline": timeline(here(records)),
        "operations": operation_table(rows),
        "metrics": metric_table(rows),
        "arm_names": arms,
    }


def arm_row(row: Mapping[str, Any], primary: str) -> dict[str, Any]:
    """One line of the table of arms."""
    entry = row["metrics"].get(primary, {})
    span = "" if entry.get("delta") is None else (entry.get("reason") or "")
    if entry.get("low") is not None:
        span = f"{figure(entry['low'], signed=True)} to {figure(entry['high'], signed=True)}"
    return {
        "arm": row["arm"],
        "kind": row["kind"],
        "scenes": row["scene_count"],
        "mean": figure(entry.get("mean")),
        "delta": figure(entry.get("delta"), signed=True),
        "span": span,
        "record": "" if entry.get("wins") is None else f"{entry['wins']} / {entry['ties']} / {entry['losses']}",
        "verdict": row["verdict"] or ("not ranked" if row["kind"] == "diagnostic" else "the reference"),
        "tone": row["verdict"] if row["verdict"] in ("better", "worse") else "",
        "coverage": figure(row["metrics"].get("coverage", {}).get("mean"), 2),
        "psnr": figure(row["metrics"].get("rgb_psnr", {}).get("mean"), 1),
        "work": "–" if row["units"] is None else f"{row['units'] / 1e6:,.1f}",
        "seconds": figure(row["seconds"], 2),
    }


def control_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """One line of the table of controls."""
    span = row["reason"] or ""
    if row["low"] is not None:
        span = f"{figure(row['low'], 4, signed=True)} to {figure(row['high'], 4, signed=True)}"
    return {
        "arm": row["arm"],
        "control": row["control"],
        "role": "must be worse" if row["role"] == "control" else "the bar",
        "delta": figure(row["delta"], 4, signed=True),
        "span": span,
        "record": f"{row['wins']} / {row['ties']} / {row['losses']}",
        "verdict": row["verdict"],
        "tone": row["verdict"] if row["verdict"] in ("better", "worse") else "",
    }


def set_names(primary: str) -> list[str]:
    """The primary metric on each set of pixels."""
    return [primary, *(f"{primary}.{name}" for name in ("covered", "seen", "unseen", "moving"))]


def task_table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What each arm's state would tell a driver: the metrics of the task, and their differences from OFF; None on a
    track without one."""
    names = [name for name in TASK if any(row["metrics"].get(name, {}).get("valid") for row in rows)]
    if not names:
        return None

    def cell(row: Mapping[str, Any], name: str) -> dict[str, str]:
        entry = row["metrics"].get(name, {})
        note = "" if entry.get("delta") is None or row["arm"] == "OFF" else figure(entry["delta"], signed=True)
        if note and entry["low"] is not None:
            note += f" [{figure(entry['low'], signed=True)}, {figure(entry['high'], signed=True)}]"
        return {"text": figure(entry.get("mean")), "note": note}

    shown = [row for row in rows if any(row["metrics"].get(name, {}).get("valid") for name in names)]
    return {
        "heads": [{"name": SCENE_METRICS[name].aid, "hint": hint(name)} for name in names],
        "rows": [{"arm": row["arm"], "cells": [cell(row, name) for name in names]} for row in shown],
    }


def placement_table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The primary metric by where queries stand."""
    names = sorted({name for row in rows for name in row["placements"]})
    cells = [
        {"arm": row["arm"], "cells": [figure(row["placements"].get(name, {}).get("mean")) for name in names]}
        for row in rows
    ]
    return {"names": names, "rows": cells}


def dots(scenes: Sequence[Mapping[str, Any]], arms: Sequence[str], primary: str) -> dict[str, Any]:
    """One row per arm, one dot per scene: its difference from OFF."""
    shown = [arm for arm in arms if arm != "OFF"]
    values = {
        arm: [
            (scene["scene_id"], scene["deltas"][primary])
            for scene in scenes
            if scene["arm"] == arm and scene["deltas"].get(primary) is not None
        ]
        for arm in shown
    }
    every = [delta for pairs in values.values() for _, delta in pairs]
    low, high = min([0.0, *every]), max([0.0, *every])
    scale = (WIDTH - LEFT - RIGHT) / ((high - low) or 1.0)
    return {
        "height": TOP + ROW * len(shown) + 20,
        "zero": round(LEFT + (0.0 - low) * scale, 1),
        "low": figure(low, signed=True) if low < 0 else "",
        "high": figure(high, signed=True) if high > 0 else "",
        "rows": [
            {
                "arm": arm,
                "y": TOP + ROW * number + ROW // 2,
                "dots": [
                    {"x": round(LEFT + (delta - low) * scale, 1), "title": f"{scene}: {figure(delta, 4, signed=True)}"}
                    for scene, delta in values[arm]
                ],
            }
            for number, arm in enumerate(shown)
        ],
    }


def frontier_chart(
    tracks: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], primary: str
) -> dict[str, Any] | None:
    """Work share against the primary metric; None where ALL did not run, which work is measured in."""
    points = [point for track in tracks for point in track["points"]]
    points = [point for point in points if point["work_share"] is not None and point["value"] is not None]
    if not points:
        return None
    # The bar of a point is the interval of its difference from OFF, hung at the point.
    entries = {row["arm"]: row["metrics"].get(primary, {}) for row in rows}
    ends = []
    for point in points:
        entry = entries[point["arm"]]
        known = entry.get("low") is not None
        ends.append(
            (point["value"] + entry["low"] - entry["delta"], point["value"] + entry["high"] - entry["delta"])
            if known
            else (point["value"], point["value"])
        )
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    most = max(1.0, *(point["work_share"] for point in points))
    across, down = (WIDTH - LEFT - RIGHT) / most, 200 / ((high - low) or 1.0)

    def y(value: float) -> float:
        return float(round(TOP + (high - value) * down, 1))

    area = tracks[0]["area"]
    span = "" if area["low"] is None else f" [{figure(area['low'], 2)}, {figure(area['high'], 2)}]"
    words = f"area {figure(area['value'], 2)}{span}" + (f"; {area['reason']}" if area["reason"] else "")
    return {
        "words": words,
        "low": figure(low),
        "high": figure(high),
        "points": [
            {
                "arm": point["arm"],
                "x": round(LEFT + point["work_share"] * across, 1),
                "y": y(point["value"]),
                "top": y(end[1]),
                "bottom": y(end[0]),
                "title": f"{point['arm']}: {figure(point['value'])} at {100 * point['work_share']:.1f} % of ALL's work",
            }
            for point, end in zip(points, ends, strict=True)
        ],
    }


def extremes(
    records: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    strips: Strips,
    primary: str,
    direction: str,
) -> dict[str, Any] | None:
    """Best and worst hidden views of the policy with the best mean."""
    sign = -1.0 if direction == "higher" else 1.0
    means = [
        (sign * row["metrics"][primary]["mean"], row["arm"])
        for row in rows
        if row["kind"] == "policy" and row["metrics"].get(primary, {}).get("mean") is not None
    ]
    if not means:
        return None
    arm = min(means)[1]
    found = sorted(
        (
            sign * query["metrics"][primary]["value"],
            record["episode_id"],
            query["frame_id"],
            query["placement"],
            query["pixels"],
        )
        for record in records
        if record["policy"] == arm
        for query in record["metrics"]["per_query"]
        if query["placement"] != PAIR and query["metrics"].get(primary, {}).get("valid")
    )

    def lines(part: Sequence[Any]) -> list[dict[str, Any]]:
        return [
            {
                "episode": episode,
                "query": frame,
                "placement": placement,
                "value": figure(sign * value),
                "unseen": f"{100 * pixels['unseen'] / pixels['label']:.0f} %",
                "strips": [strips[name, frame] for name in (episode, pair_id(episode, arm)) if (name, frame) in strips],
            }
            for value, episode, frame, placement, pixels in part
        ]

    return {"arm": arm, "best": lines(found[:EXTREMES]), "worst": lines(found[::-1][:EXTREMES])}


def pictures(records: Sequence[Mapping[str, Any]], strips: Strips, primary: str) -> list[dict[str, Any]]:
    """Per scene two hidden views, that with least and that with most surface that no frame had shown: the truth, and
    beside it what each policy shows there, what it wrote, and what that cost."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for record in records:
        episode, queries = record["episode_id"], [row for row in record["metrics"]["per_query"] if row["pixels"]]
        if record["kind"] != "policy" or not queries:
            continue
        ordered = sorted(queries, key=lambda row: (_never_shown(row), row["frame_id"]))
        for view in (ordered[0], ordered[-1]):
            frame = view["frame_id"]
            if (record["pair_id"], frame) not in strips or (episode, frame) not in strips:
                continue
            words = f"view {frame}, {view['placement']}, {_never_shown(view):.0%} never shown"
            shown = {"words": words, "truth": strips[episode, frame], "arms": {}}
            arms = found.setdefault(episode, {}).setdefault(frame, shown)["arms"]
            arms[record["policy"]] = {
                "arm": record["policy"],
                "strip": strips[record["pair_id"], frame],
                "letters": letters(record),
                "value": figure(view["metrics"][primary]["value"]),
                "work": f"{record['budget']['units'] / 1e6:,.1f}",
            }
    return [{"episode": episode, "views": list(views.values())} for episode, views in found.items()]


def _never_shown(view: Mapping[str, Any]) -> float:
    """Share of a hidden view's surface that was in no frame."""
    return float(view["pixels"]["unseen"] / max(view["pixels"]["label"], 1))


def letters(record: Mapping[str, Any]) -> str:
    """One letter per arrival, or why there are none."""
    return "".join(ACTION_LETTERS.get(action, "?") for action in record["actions"]) or str(record["status"])


def timeline(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What each policy did at each arrival, episode by episode."""
    episodes: dict[str, list[dict[str, str]]] = {}
    for record in records:
        if record["kind"] == "policy":
            line = {"arm": record["policy"], "letters": letters(record)}
            episodes.setdefault(record["episode_id"], []).append(line)
    return [{"episode": episode, "lines": lines} for episode, lines in episodes.items()]


def operation_table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Declared units per pair by operation, in millions."""
    names = sorted({name for row in rows for name in row["operations"]})
    return {
        "names": names,
        "rows": [
            {
                "arm": row["arm"],
                "cells": [
                    figure(None if name not in row["operations"] else row["operations"][name]["units"] / 1e6, 2)
                    for name in names
                ],
            }
            for row in rows
        ],
    }


def metric_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every metric of every arm: the mean over scenes, and over how many."""
    names = sorted({name for row in rows for name in row["metrics"]})
    return [
        {
            "name": name,
            "hint": hint(name),
            "aid": SCENE_METRICS[name].aid if name in SCENE_METRICS else "",
            "cells": [
                {
                    "text": figure(row["metrics"].get(name, {}).get("mean")),
                    "note": f"{row['metrics'].get(name, {}).get('valid', 0)} of {row['scene_count']}",
                }
                for row in rows
            ],
        }
        for name in names
    ]


def hint(metric: str) -> str:
    """Unit and which way is better."""
    if metric not in SCENE_METRICS:
        return ""
    line = SCENE_METRICS[metric]
    better = {"higher": "higher is better", "lower": "lower is better"}.get(line.direction, "")
    return ", ".join(text for text in ("ratio" if line.unit == "1" else line.unit, better) if text)


def facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and text of each fact; a leading `!` marks what should worry a reader."""
    registration = report["registration"]
    code, machine, attempts = registration["code"], registration["environment"], report["attempts"]
    commit = code["commit"] or "!unknown: not run from a checkout"
    if code["dirty"]:
        commit = f"!{code['commit']}, with uncommitted changes"
    opened = max(attempts["before"].values(), default=0)
    threads = ", ".join(f"{name} {value}" for name, value in sorted(machine["threads"].items()))
    found = [
        ("run id", report["run_id"]),
        ("registration", f"{registration['kind']}, parent {registration['parent'] or 'none'}"),
        ("chain head", report["chain_head"]),
        ("result digest", report["result_digest"]),
        ("index root", registration["index_root"]),
        ("mapper content hash", report["mapper"]["content_hash"]),
        ("mapper file", report["mapper"]["file_sha256"] or "none"),
    ]
    if report["writer"]:
        found.append(("writer content hash", report["writer"]["content_hash"]))
    found += [
        (
            "vaults opened before",
            f"{opened} times at most; ledger {attempts['ledger']}. It is a local file and can be deleted."
            if attempts["ledger"] == "ok"
            else f"!{opened} times at most; ledger {attempts['ledger']}",
        ),
        (
            "primary metric",
            f"{registration['primary']['name']}, minimum effect {registration['primary']['minimum_effect']:g}",
        ),
        (
            "bootstrap",
            f"{registration['bootstrap']['resamples']} resamples of scenes, seed {registration['bootstrap']['seed']}",
        ),
        ("renderer", ", ".join(f"{name} {value}" for name, value in sorted(registration["render_protocol"].items()))),
        ("commit", commit),
        ("source digest", code["source_digest"]),
        ("environment", ", ".join(f"{name} {machine[name]}" for name in (*LIBRARIES, "device_kind"))),
        ("threads", threads or "not stated"),
    ]
    return found
