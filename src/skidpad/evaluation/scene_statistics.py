"""What a sealed evaluation concludes: scenes, one row per arm, controls, frontier, and the sentences beside them.

`conclude` is a pure function of the registration and the records of pairs; it runs once at the end of a run, and again
in `skidpad verify`. The arithmetic by scene is in `scene_aggregates.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.evaluation.metrics.scene_metrics import LPIPS
from skidpad.evaluation.scene_aggregates import (
    REFERENCE,
    Group,
    aggregate_scenes,
    compared,
    mean,
    split_unpaired,
    summarise,
    summary_csv,
    with_deltas,
)
from skidpad.evaluation.significance import CONFIDENCE, FEW_CLUSTERS, verdict

__all__ = ["CAVEATS", "conclude", "frontier_area", "summary_csv", "verdict_sentences"]

F64 = NDArray[np.float64]
Table = Mapping[str, Mapping[str, float | None]]  # arm to scene to value

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


# -- work and placements ----------------------------------------------------------------------------------------------


def work_of(records: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Per (split, track, arm): declared units by operation and seconds, means over pairs."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for record in sorted(records, key=lambda record: str(record["pair_id"])):
        groups.setdefault((record["split_id"], record["track_id"], record["policy"]), []).append(record)
    found = {}
    for key, group in groups.items():
        ledgers = [record["budget"] for record in group if record["budget"]]
        operations = sorted({name for ledger in ledgers for name in ledger["operations"]})
        found[key] = {
            "units": mean([ledger["units"] for ledger in ledgers]),
            "operations": {
                name: {
                    "count": mean([ledger["operations"][name]["count"] for ledger in ledgers]),
                    "units": mean([ledger["operations"][name]["units"] for ledger in ledgers]),
                    "seconds": mean([ledger["operations"][name]["seconds"] for ledger in ledgers]),
                }
                for name in operations
            },
            "seconds": mean([record["times"]["adapt_s"] for record in group]),
        }
    return found


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


def _tables(scenes: Sequence[Group], metric: str) -> dict[tuple[str, str], dict[str, dict[str, float | None]]]:
    found: dict[tuple[str, str], dict[str, dict[str, float | None]]] = {}
    for scene in scenes:
        arms = found.setdefault((scene["split_id"], scene["track_id"]), {})
        arms.setdefault(scene["arm"], {})[scene["scene_id"]] = scene["means"].get(metric)
    return dict(sorted(found.items()))


def controls(scenes: Sequence[Group], registration: Mapping[str, Any]) -> dict[str, Any]:
    """Every arm against what stands beside it, scene by scene, and what may be claimed because of it.

    comparisons  arm minus control in the primary metric; `verdict` is that of the arm, any difference counting
    claims       one sentence per track on whether completion knows the scene
    """
    metric, direction = registration["primary"]["name"], registration["primary"]["direction"]
    comparisons: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    for (split, track), arms in _tables(scenes, metric).items():
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


# -- frontier ---------------------------------------------------------------------------------------------------------


def frontier_area(work: F64, gain: F64) -> F64:
    """Area under the best-so-far gain over the share of work from 0 to 1.

    work  (..., A)  share of ALL's work
    gain  (..., A)  share of ALL's gain over OFF

    A trapezoid through (0, 0), the arms by work, and (1, best); a cheaper arm that is better hides a dearer one.
    """
    order = np.argsort(work, axis=-1, kind="stable")
    x = np.clip(np.take_along_axis(work, order, -1), 0.0, 1.0)
    best = np.maximum.accumulate(np.maximum(np.take_along_axis(gain, order, -1), 0.0), axis=-1)
    start, end = np.zeros((*x.shape[:-1], 1)), np.ones((*x.shape[:-1], 1))
    x, best = np.concatenate([start, x, end], -1), np.concatenate([start, best, best[..., -1:]], -1)
    return np.asarray((np.diff(x, axis=-1) * (best[..., 1:] + best[..., :-1]) / 2).sum(-1))


def frontier(
    scenes: Sequence[Group], records: Sequence[Mapping[str, Any]], registration: Mapping[str, Any]
) -> dict[str, Any]:
    """Work against the primary metric: every policy as a point, and the area under the best of them."""
    metric, direction = registration["primary"]["name"], registration["primary"]["direction"]
    policies = {scene["arm"] for scene in scenes if scene["kind"] == "policy"}
    means = work_of(records)
    units: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for record in records:
        place = units.setdefault((record["split_id"], record["track_id"]), {})
        if record["budget"]:
            place.setdefault(record["policy"], {})[record["scene_id"]] = float(record["budget"]["units"])
    tracks = []
    for (split, track), arms in _tables(scenes, metric).items():
        names = sorted(policies & arms.keys())
        whole = means.get((split, track, "ALL"), {"units": None, "seconds": None})
        points = [
            {
                "arm": name,
                "units": means[split, track, name]["units"],
                "work_share": _ratio(means[split, track, name]["units"], whole["units"]),
                "value": mean([value for value in arms[name].values() if value is not None]),
                "seconds": {
                    "mean": means[split, track, name]["seconds"],
                    "share": _ratio(means[split, track, name]["seconds"], whole["seconds"]),
                },
            }
            for name in names
        ]
        area = _area({name: arms[name] for name in names}, units[split, track], direction, registration["bootstrap"])
        tracks.append({"split_id": split, "track_id": track, "points": points, "area": area})
    return {"metric": metric, "max_units": registration["budget_protocol"]["max_units"], "tracks": tracks}


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _area(
    values: Table, units: Mapping[str, Mapping[str, float]], direction: str, bootstrap: Mapping[str, Any]
) -> dict[str, Any]:
    """The area with its interval over scenes on which every policy has a value; None with a reason."""
    nothing = {"value": None, "low": None, "high": None}
    if "ALL" not in values or REFERENCE not in values:
        return nothing | {"reason": "ALL did not run"}
    names = sorted(values)
    common = sorted(
        scene
        for scene in values[REFERENCE]
        if all(values[name].get(scene) is not None and scene in units.get(name, {}) for name in names)
    )
    if not common:
        return nothing | {"reason": "no scene has every policy"}
    score = np.array([[float(values[name][scene] or 0.0) for name in names] for scene in common])
    score = score if direction == "higher" else -score
    cost = np.array([[units[name][scene] for name in names] for scene in common])
    off, whole = names.index(REFERENCE), names.index("ALL")

    def area_of(rows: NDArray[np.intp]) -> F64:
        s, c = score[rows].mean(-2), cost[rows].mean(-2)
        gain = s[..., whole] - s[..., off]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (s - s[..., off : off + 1]) / gain[..., None]
        return np.asarray(np.where(gain > 0, frontier_area(c / c[..., whole : whole + 1], share), np.nan))

    value = float(area_of(np.arange(len(common))))
    if not np.isfinite(value):
        return nothing | {"reason": "ALL does not beat OFF"}
    found = nothing | {"value": value, "reason": None}
    if len(common) < 2:
        return found | {"reason": "1 scene"}
    low, high, beaten = _interval(area_of, len(common), bootstrap)
    if not beaten:
        return found | {"reason": "ALL does not beat OFF in some resamples"}
    if not np.isfinite([low, high]).all() or low == high:
        return found | {"reason": "resamples do not vary"}
    return found | {"low": low, "high": high}


def _interval(statistic: Any, count: int, bootstrap: Mapping[str, Any]) -> tuple[float, float, bool]:
    """Low, high, and whether every resample has a value."""
    from scipy import stats

    def of(drawn: Any, axis: int = -1) -> F64:
        return np.asarray(statistic(np.asarray(drawn).astype(np.intp)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # resamples without a value come back as NaN and are stated by the caller
        result = stats.bootstrap(
            (np.arange(count),),
            of,
            method="BCa",
            n_resamples=bootstrap["resamples"],
            confidence_level=CONFIDENCE,
            vectorized=True,
            rng=np.random.default_rng(bootstrap["seed"]),
        )
    limits = result.confidence_interval
    return float(limits.low), float(limits.high), bool(np.isfinite(result.bootstrap_distribution).all())


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
