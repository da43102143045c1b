"""What a sealed evaluation concludes: scenes, one row per arm, controls, frontier, and the sentences beside them.

`conclude` is a pure function of the registration and the records of pairs; it runs once at the end of a run, and again
in `skidpad verify`. The arithmetic by scene is in `scene_aggregates.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skidpad.evaluation.frontier import frontier, work_of
from skidpad.evaluation.metrics.scene_metrics import LPIPS
from skidpad.evaluation.scene_aggregates import (
    REFERENCE,
    Group,
    Table,
    aggregate_scenes,
    compared,
    mean,
    split_unpaired,
    summarise,
    summary_csv,
    tables_by_arm,
    with_deltas,
)
from skidpad.evaluation.significance import FEW_CLUSTERS, verdict

__all__ = ["CAVEATS", "conclude", "summary_csv", "verdict_sentences"]

# Arm, what stands beside it, and what must hold before the arm's figure means what its name says.
COMPARISONS: tuple[tuple[str, str, str], ...] = (
    ("ALL", "ALL+MEAN_FIELD", "control"),
    ("COMPLETE", "COMPLETE+MEAN_FIELD", "control"),
    ("ALL", "ALL+WRONG_SCENE", "control"),
    ("COMPLETE", "COMPLETE+WRONG_SCENE", "control"),
    ("FUSE", "FUSE+SHUFFLED_POSES", "control"),
    ("OFF", "CONSTANT_DEPTH", "control"),
    ("FUSE", "CACHE", "bar"),
    ("COMPLETE", "OFF+HARMONIC_FILL", "bar"),
    ("ALL", "FUSE+HARMONIC_FILL", "bar"),
)
# Stand beside the figures of every run (M90).
CAVEATS = (
    "Hashes show that nothing changed since the seal, not that whoever owns both code and vault never looked. The "
    "ledger of attempts is a local file and can be deleted.",
    "A whole chain can be rebuilt by its owner: put its head where others keep it, in a commit, a tag or a signature.",
    "Most of what completion gains over hole filling is a prior about rooms, which a mean field without any context "
    "also has: about three quarters of it in the development runs. Only MEAN_FIELD and WRONG_SCENE tell the two apart.",
    "Generated rooms and streets come from the distribution that completion is trained on; poses are exact, and on the "
    "tracks without noise depth is clean. One training seed stands behind a checkpoint.",
    "The metrics were looked at while the mappers were built.",
    "The threshold of RESIDUAL_THRESHOLD was picked on scenes like these; a bad one loses to writing at random.",
    "A depth figure says nothing about colour.",
    "Keeping the frames and fusing them late (CACHE) is the opponent of every learned write, and not OFF alone.",
    "The state is turned with the first camera, so mean fields are weaker here than in world axes.",
)


def conclude(registration: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything in a report that follows from its records.

    records  of all pairs, the refused and crashed ones among them, with their rows per query

    Scenes on which OFF has no scores are left out of every comparison and listed as unpaired.
    """
    scored = [record for record in records if record["status"] == "ok" and record["metrics"]["averages"]]
    scenes, unpaired = split_unpaired(aggregate_scenes(scored) if scored else [])
    scenes = with_deltas(scenes)
    summaries = summarise(scenes, registration)
    work = work_of(scored)
    for row in summaries:
        row.update(work[row["split_id"], row["track_id"], row["arm"]])
        row["placements"] = placements_of(scored, row, registration["primary"]["name"])
    return {
        "scenes": scenes,
        "unpaired_scenes": unpaired,
        "summaries": summaries,
        "frontier": frontier(scenes, scored, registration),
        "controls": controls(scenes, registration),
        "caveats": caveats(registration, records, summaries, unpaired),
    }


# -- placements ----------------------------------------------------------------------------------------------


def placements_of(
    records: Sequence[Mapping[str, Any]], row: Mapping[str, Any], metric: str
) -> dict[str, dict[str, Any]]:
    """The primary metric of an arm by where its queries stand: mean over scenes of the mean over queries."""
    scenes: dict[str, dict[str, list[float]]] = {}
    kept = set(row["scene_ids"])
    for record in records:
        place = (record["split_id"], record["track_id"], record["policy"])
        if place != (row["split_id"], row["track_id"], row["arm"]) or record["scene_id"] not in kept:
            continue
        for query in record["metrics"]["per_query"]:
            value = query["metrics"].get(metric)
            if value is not None and value["valid"]:
                by_scene = scenes.setdefault(query["placement"], {})
                by_scene.setdefault(record["scene_id"], []).append(value["value"])
    return {
        placement: {
            "mean": mean([mean(by_scene[scene]) or 0.0 for scene in sorted(by_scene)]),
            "scenes": len(by_scene),
            "queries": sum(len(values) for values in by_scene.values()),
        }
        for placement, by_scene in sorted(scenes.items())
    }


# -- controls ---------------------------------------------------------------------------------------------------------


def controls(scenes: Sequence[Group], registration: Mapping[str, Any]) -> dict[str, Any]:
    """Every arm against what stands beside it, scene by scene, and what may be claimed because of it.

    comparisons  arm minus control in the primary metric; `verdict` is that of the arm, any difference counting
    claims       one sentence per track on whether completion knows the scene
    """
    metric, direction = registration["primary"]["name"], registration["primary"]["direction"]
    comparisons: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    for (split, track), arms in tables_by_arm(scenes, metric).items():
        asked = {
            f"{arm}\n{other}": (arms[arm], arms[other], direction)
            for arm, other, _ in COMPARISONS
            if arm in arms and other in arms
        }
        found = compared(asked, registration["bootstrap"]) if asked else {}
        for arm, other, role in COMPARISONS:
            pair = found.get(f"{arm}\n{other}")
            if pair is None:
                continue
            low, high = pair.interval.low, pair.interval.high
            comparisons.append(
                {
                    "split_id": split, "track_id": track, "arm": arm, "control": other, "role": role,
                    "scenes": pair.n, "delta": pair.difference, "low": low, "high": high,
                    "reason": pair.interval.reason, "wins": pair.wins, "ties": pair.ties, "losses": pair.losses,
                    "verdict": verdict(low, high, margin=0.0, direction=direction, clusters=pair.n),
                }
            )  # fmt: skip
        claims.append({"split_id": split, "track_id": track, **_claim(arms, comparisons, split, track)})
    return {"comparisons": comparisons, "claims": claims}


def _claim(arms: Table, comparisons: Sequence[Mapping[str, Any]], split: str, track: str) -> dict[str, Any]:
    """Whether scene-specific completion is established (M83): own layer better than both others, or why not."""
    arm = next((name for name in ("ALL", "COMPLETE") if name in arms), None)
    if arm is None:
        return {"established": False, "missing": [], "sentence": "no claim about completion: no arm completes."}
    missing = [name for name in ("MEAN_FIELD", "WRONG_SCENE") if f"{arm}+{name}" not in arms]
    if missing:
        text = f"no claim about completion: {' and '.join(missing)} did not run beside {arm}."
        return {"established": False, "missing": missing, "sentence": text}
    needed = (f"{arm}+MEAN_FIELD", f"{arm}+WRONG_SCENE")
    verdicts = {
        row["control"]: row["verdict"]
        for row in comparisons
        if (row["split_id"], row["track_id"], row["arm"]) == (split, track, arm) and row["control"] in needed
    }
    failed = [name for name in needed if verdicts.get(name) != "better"]
    if failed:
        text = (
            f"scene-specific completion: not established; {arm} is not shown to be better than {' and '.join(failed)}."
        )
        return {"established": False, "missing": [], "sentence": text}
    text = f"scene-specific completion: established; {arm} is better than {' and '.join(needed)}."
    return {"established": True, "missing": [], "sentence": text}


# -- sentences --------------------------------------------------------------------------------------------------------


def verdict_sentences(report: Mapping[str, Any]) -> list[str]:
    """What the primary metric says of every policy, in words that a reader can repeat."""
    primary = report["registration"]["primary"]
    sentences = []
    for row in report["summaries"]:
        if row["arm"] == REFERENCE or row["kind"] != "policy":
            continue
        entry = row["metrics"].get(primary["name"])
        if entry is None or entry["delta"] is None:
            sentences.append(f"{row['track_id']}: {row['arm']} has no {primary['name']} to compare.")
            continue
        span = f"no interval: {entry['reason']}"
        if entry["low"] is not None:
            span = f"95 % interval [{entry['low']:+.3f}, {entry['high']:+.3f}]"
        count = (entry["wins"] or 0) + (entry["ties"] or 0) + (entry["losses"] or 0)
        sentences.append(
            f"{row['track_id']}: {row['arm']} changed {primary['name']} by {entry['delta']:+.3f}, {span}, better on "
            f"{entry['wins']} of {count} scenes: {row['verdict']}."
        )
    return sentences


def caveats(
    registration: Mapping[str, Any],
    records: Sequence[Mapping[str, Any]],
    summaries: Sequence[Mapping[str, Any]],
    unpaired: Sequence[Mapping[str, Any]],
) -> list[str]:
    """What a reader must know before believing a figure of this run."""
    found = []
    if registration.get("kind") == "diagnostic":
        found.append(
            "This run is a diagnostic: ORACLE may have read its vaults while streaming. No figure of it counts."
        )
    failed = [record["pair_id"] for record in records if record["status"] != "ok"]
    if failed:
        found.append(
            f"{len(failed)} of {len(records)} pairs have no scores and are in no mean: {', '.join(failed[:5])}."
        )
    if unpaired:
        found.append(
            f"{len(unpaired)} scenes have no scored OFF and are left out of every comparison: "
            f"{', '.join(row['scene_id'] for row in unpaired[:5])}."
        )
    fewest = min((row["scene_count"] for row in summaries), default=0)
    if fewest < FEW_CLUSTERS:
        found.append(
            f"Fewer than {FEW_CLUSTERS} scenes ({fewest}): intervals are rough, and below 6 nothing is ranked."
        )
    if not any(_is_bound(record) for record in records):
        found.append(f"The limit of {registration['budget_protocol']['max_units']:g} units binds no arm.")
    if LPIPS not in registration["metrics"]:
        found.append(f"{LPIPS} is absent: its weights were not on this machine (`skidpad weights lpips` obtains them).")
    return [*found, *CAVEATS]


def _is_bound(record: Mapping[str, Any]) -> bool:
    return any(len(row["feasible"]) < 4 for row in record["history"])
