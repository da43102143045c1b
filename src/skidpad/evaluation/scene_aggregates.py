"""From records of pairs to scenes, and from scenes to one row per arm: the arithmetic of a sealed evaluation.

Scenes weigh equally whatever number of episodes they have, and every arm is compared with OFF on the same scene. All
functions are pure, and no result depends on the order of records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from skidpad.errors import UsageError
from skidpad.evaluation.metrics.scene_metrics import SCENE_METRICS
from skidpad.evaluation.significance import FEW_CLUSTERS, holm, mcnemar, verdict
from skidpad.evaluation.statistics import Column, Paired, paired_many
from skidpad.evaluation.tables import csv_bytes

REFERENCE = "OFF"
TRIMMED_SHARE = 0.1  # of the scenes at either end, left out of the trimmed mean
_TEXTS = ("split_id", "track_id", "scene_id", "policy", "episode_id")

Group = dict[str, Any]
Table = Mapping[str, Mapping[str, float | None]]  # arm to scene to value


def direction_of(metric: str) -> str:
    """Which values are better; "none" for a metric that this version does not know."""
    return SCENE_METRICS[metric].direction if metric in SCENE_METRICS else "none"


def aggregate_scenes(records: Sequence[Mapping[str, Any]]) -> list[Group]:
    """One group per (split, track, scene, arm), sorted: per metric the mean of the finite numbers and their count.

    Raises UsageError for no records, and for one without split, track, scene, arm, episode or averages.
    """
    if not records:
        raise UsageError("no records: there is nothing to aggregate.")
    for number, record in enumerate(records):
        lacking = [name for name in _TEXTS if not (isinstance(record.get(name), str) and record[name])]
        averages = record.get("metrics", {}).get("averages") if isinstance(record.get("metrics"), Mapping) else None
        if lacking or not isinstance(averages, Mapping) or not averages:
            what = ", ".join(lacking) or "metrics.averages"
            raise UsageError(f"record {number} ({record.get('episode_id')}@{record.get('policy')}): has no {what}.")
    names = metric_names(records)
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in _TEXTS[:4]), []).append(record)
    return [_group(key, groups[key], names) for key in sorted(groups)]


def metric_names(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Sorted union of the metrics of all records."""
    return sorted({name for record in records for name in record["metrics"]["averages"]})


def _group(key: tuple[str, ...], records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Group:
    values = {name: _finite(record["metrics"]["averages"].get(name) for record in records) for name in names}
    return {
        "split_id": key[0],
        "track_id": key[1],
        "scene_id": key[2],
        "arm": key[3],
        "kind": records[0].get("kind", "policy"),
        "episode_ids": sorted(record["episode_id"] for record in records),
        "record_count": len(records),
        "means": {name: mean(values[name]) for name in names},
        "finite_counts": {name: len(values[name]) for name in names},
    }


def _finite(values: Iterable[Any]) -> list[float]:
    return [
        float(value)
        for value in values
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    ]


def mean(values: Sequence[float]) -> float | None:
    """The mean, in whatever order the values come; None of none."""
    return math.fsum(values) / len(values) if values else None


def with_deltas(scenes: Sequence[Group]) -> list[Group]:
    """Every group with its differences from OFF on the same scene; None where one of the two is missing, 0.0 for OFF.

    Raises UsageError naming a scene without OFF.
    """
    reference = {_place(scene): scene for scene in scenes if scene["arm"] == REFERENCE}
    found = []
    for scene in scenes:
        if _place(scene) not in reference:
            raise UsageError(f"scene {scene['scene_id']} ({scene['track_id']}): {scene['arm']} has no {REFERENCE}.")
        base = reference[_place(scene)]["means"]
        deltas = {
            name: None if value is None or base.get(name) is None else value - base[name]
            for name, value in scene["means"].items()
        }
        found.append({**scene, "deltas": deltas})
    return found


def _place(scene: Mapping[str, Any]) -> tuple[str, str, str]:
    return scene["split_id"], scene["track_id"], scene["scene_id"]


def split_unpaired(scenes: Sequence[Group]) -> tuple[list[Group], list[dict[str, Any]]]:
    """The groups of scenes on which OFF has a record, and the scenes that are left out with the arms they had."""
    paired = {_place(scene) for scene in scenes if scene["arm"] == REFERENCE}
    dropped: dict[tuple[str, str, str], list[str]] = {}
    for scene in scenes:
        if _place(scene) not in paired:
            dropped.setdefault(_place(scene), []).append(scene["arm"])
    listed = [
        {"split_id": split, "track_id": track, "scene_id": scene, "arms": sorted(arms)}
        for (split, track, scene), arms in sorted(dropped.items())
    ]
    return [scene for scene in scenes if _place(scene) in paired], listed


def compared(
    pairs: Mapping[str, tuple[Mapping[str, float | None], Mapping[str, float | None], str]],
    bootstrap: Mapping[str, Any],
) -> dict[str, Paired]:
    """Differences of values by scene, with intervals by the registered bootstrap.

    pairs  per key: {scene: value} of an arm, the same of what it is compared with, and the direction
    """
    names = sorted({name for arm, base, _ in pairs.values() for name in (*arm, *base)})

    def column(values: Mapping[str, float | None]) -> Column:
        there = [values.get(name) for name in names]
        return Column([value or 0.0 for value in there], [float(value is not None) for value in there])

    columns = {key: (column(arm), column(base), direction) for key, (arm, base, direction) in pairs.items()}
    return paired_many(columns, names, resamples=bootstrap["resamples"], seed=bootstrap["seed"])


def tables_by_arm(scenes: Sequence[Group], metric: str) -> dict[tuple[str, str], dict[str, dict[str, float | None]]]:
    """Values of a metric by (split, track), arm and scene."""
    found: dict[tuple[str, str], dict[str, dict[str, float | None]]] = {}
    for scene in scenes:
        arms = found.setdefault((scene["split_id"], scene["track_id"]), {})
        arms.setdefault(scene["arm"], {})[scene["scene_id"]] = scene["means"].get(metric)
    return dict(sorted(found.items()))


def summarise(scenes: Sequence[Group], registration: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row per (split, track, arm), from groups with deltas; the numbers of a metric as `_entry` says."""
    tables: dict[tuple[str, str], dict[str, list[Group]]] = {}
    for scene in scenes:
        arms = tables.setdefault((scene["split_id"], scene["track_id"]), {})
        arms.setdefault(scene["arm"], []).append(scene)
    return [row for (split, track), arms in sorted(tables.items()) for row in _table(split, track, arms, registration)]


def _table(
    split: str, track: str, arms: Mapping[str, Sequence[Group]], registration: Mapping[str, Any]
) -> list[dict[str, Any]]:
    names = sorted({name for groups in arms.values() for group in groups for name in group["means"]})
    values = {
        (arm, name): {group["scene_id"]: group["means"].get(name) for group in groups}
        for arm, groups in arms.items()
        for name in names
    }
    pairs = {
        f"{arm}\n{name}": (values[arm, name], values[REFERENCE, name], direction_of(name))
        for arm in sorted(arms)
        for name in names
        if arm != REFERENCE
    }
    found = compared(pairs, registration["bootstrap"]) if pairs else {}
    primary = registration["primary"]
    base = {name: mean(_finite(values[REFERENCE, name].values())) for name in names}
    rows = []
    asked = list(registration["policies"])
    for arm in sorted(arms, key=lambda arm: (asked.index(arm) if arm in asked else len(asked), arm)):
        groups = sorted(arms[arm], key=lambda group: group["scene_id"])
        entries = {name: _entry(name, groups, found.get(f"{arm}\n{name}"), base[name]) for name in names}
        _adjust(entries, primary["name"])
        head = entries.get(primary["name"], {"low": None, "high": None})
        clusters = sum(group["deltas"].get(primary["name"]) is not None for group in groups)
        rows.append(
            {
                "split_id": split,
                "track_id": track,
                "arm": arm,
                "kind": groups[0]["kind"],
                "scene_count": len(groups),
                "scene_ids": [group["scene_id"] for group in groups],
                "few_scenes": len(groups) < FEW_CLUSTERS,
                "metrics": entries,
                "verdict": None
                if arm == REFERENCE or groups[0]["kind"] == "diagnostic"
                else verdict(
                    head["low"],
                    head["high"],
                    margin=primary["minimum_effect"],
                    direction=primary["direction"],
                    clusters=clusters,
                ),
            }
        )
    return rows


def _entry(name: str, groups: Sequence[Group], pair: Paired | None, base: float | None) -> dict[str, Any]:
    """The numbers of one metric of one arm.

    mean, valid     over the scenes that have a value
    delta           mean of the differences from OFF, scene by scene
    delta_of_means  mean minus OFF's mean over all its scenes; another number where scenes drop out
    low, high       95 % interval of `delta`; None with a `reason`
    p_sign, p_holm  exact sign test, and adjusted over the secondary metrics of the arm
    wins            scenes on which the arm is better; None for a metric without direction
    """
    values = [group["means"][name] for group in groups if group["means"].get(name) is not None]
    deltas = sorted(group["deltas"][name] for group in groups if group["deltas"].get(name) is not None)
    entry: dict[str, Any] = {"mean": mean(values), "valid": len(values), "delta": mean(deltas)}
    entry |= dict.fromkeys(("delta_of_means", "low", "high", "method", "wins", "ties", "losses", "p_sign", "p_holm"))
    entry |= {"trimmed_mean": _trimmed(deltas), "reason": "the reference itself" if values else "no value"}
    if pair is None:
        return entry
    ranked = direction_of(name) != "none"
    entry |= {
        "delta_of_means": None if not values or base is None else entry["mean"] - base,
        "low": pair.interval.low,
        "high": pair.interval.high,
        "reason": pair.interval.reason,
        "method": pair.interval.method,
        "wins": pair.wins if ranked else None,
        "ties": pair.ties if ranked else None,
        "losses": pair.losses if ranked else None,
        # The exact sign test is McNemar's of wins and losses.
        "p_sign": mcnemar(pair.wins, pair.losses) if ranked and pair.n else None,
    }
    return entry


def _trimmed(deltas: Sequence[float]) -> float | None:
    cut = int(TRIMMED_SHARE * len(deltas))
    return mean(deltas[cut : len(deltas) - cut])


def _adjust(entries: Mapping[str, dict[str, Any]], primary: str) -> None:
    family = [entry for name, entry in entries.items() if name != primary and entry["p_sign"] is not None]
    for entry, p in zip(family, holm([entry["p_sign"] for entry in family]), strict=True):
        entry["p_holm"] = p


_COLUMNS = (
    ("mean", "mean"), ("valid", "valid"), ("delta", "delta"), ("low", "low"), ("high", "high"), ("wins", "wins"),
    ("ties", "ties"), ("losses", "losses"),
)  # fmt: skip


def summary_csv(summaries: Sequence[Mapping[str, Any]]) -> bytes:
    """One line per (split, track, arm); an empty cell is None."""
    names = sorted({name for row in summaries for name in row["metrics"]})
    header = ["split_id", "track_id", "arm", "kind", "scene_count", "scene_ids"]
    header += [f"{prefix}_{name}" for prefix, _ in _COLUMNS for name in names]
    rows = [
        [
            *(row[key] for key in header[:5]),
            ";".join(row["scene_ids"]),
            *(row["metrics"].get(name, {}).get(key) for _, key in _COLUMNS for name in names),
        ]
        for row in summaries
    ]
    return csv_bytes(header, rows)
