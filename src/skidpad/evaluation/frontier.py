"""Work against quality: what a run paid for what it gained, and curves over runs with several limits.

Work is counted in declared units as a share of ALL's, gain as a share of ALL's gain over OFF in the primary metric.
The area under the best so far, from no work to ALL's, is one number for a policy that is told how much it may spend;
its interval comes of resampling scenes, like every other. Pure functions of what reports and records say.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import UsageError
from skidpad.evaluation.scene_aggregates import REFERENCE, Group, Table, mean, tables_by_arm
from skidpad.evaluation.significance import CONFIDENCE, verdict

F64 = NDArray[np.float64]
Rows = NDArray[np.intp]

FRONTIER_SCHEMA = "skidpad.sealed_stream.frontier/1"
WHOLE = "ALL"
# Policies whose work follows the limit; each is one curve. The order says who is asked about in a comparison.
CURVES = ("LEARNED", "RESIDUAL_THRESHOLD", "EVEN", "RANDOM")
LEAST_LIMITS = 4  # a curve of fewer is not one
# What runs must share before their points stand on one chart.
SHARED = (
    "index_root", "split", "tracks", "episode_ids", "protocol", "mapper", "shuffle_seed", "render_protocol",
    "fallback", "metrics", "primary", "bootstrap", "environment",
)  # fmt: skip


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


class Shares(NamedTuple):
    """Work and quality of arms by scene.

    names  of the columns
    score  (S, A) f64, higher is better
    cost   (S, A) f64, declared units
    """

    names: tuple[str, ...]
    score: F64
    cost: F64


def shares_of(values: Table, units: Mapping[str, Mapping[str, float]], direction: str) -> Shares | str:
    """Arms over the scenes on which each of them has a value and a ledger, or why there is nothing to compare."""
    if WHOLE not in values or REFERENCE not in values:
        return "ALL did not run"
    names = tuple(sorted(values))
    common = sorted(
        scene
        for scene in values[REFERENCE]
        if all(values[name].get(scene) is not None and scene in units.get(name, {}) for name in names)
    )
    if not common:
        return "no scene has every policy"
    score = np.array([[float(values[name][scene] or 0.0) for name in names] for scene in common])
    cost = np.array([[units[name][scene] for name in names] for scene in common])
    return Shares(names, score if direction == "higher" else -score, cost)


def area_of(shares: Shares, names: Sequence[str]) -> Callable[[Rows], F64]:
    """The area under the best of some columns, as a function of which scenes (..., S) are drawn; NaN where ALL does not
    beat OFF on them."""
    off, whole = shares.names.index(REFERENCE), shares.names.index(WHOLE)
    columns = [shares.names.index(name) for name in names]

    def found(rows: Rows) -> F64:
        s, c = shares.score[rows].mean(-2), shares.cost[rows].mean(-2)
        gain = s[..., whole] - s[..., off]
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (s[..., columns] - s[..., off : off + 1]) / gain[..., None]
        return np.asarray(np.where(gain > 0, frontier_area(c[..., columns] / c[..., whole : whole + 1], share), np.nan))

    return found


def area_row(shares: Shares | str, names: Sequence[str], bootstrap: Mapping[str, Any]) -> dict[str, Any]:
    """The area under some columns with its interval over scenes; None with a reason."""
    if isinstance(shares, str):
        return {"value": None, "low": None, "high": None, "reason": shares}
    return _row(area_of(shares, names), len(shares.score), bootstrap)


def _row(statistic: Callable[[Rows], F64], scenes: int, bootstrap: Mapping[str, Any]) -> dict[str, Any]:
    nothing = {"value": None, "low": None, "high": None}
    value = float(statistic(np.arange(scenes)))
    if not np.isfinite(value):
        return nothing | {"reason": "ALL does not beat OFF"}
    found = nothing | {"value": value, "reason": None}
    if scenes < 2:
        return found | {"reason": "1 scene"}
    low, high, beaten = _interval(statistic, scenes, bootstrap)
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


# -- one run -----------------------------------------------------------------------------------------------------------


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
    for (split, track), arms in tables_by_arm(scenes, metric).items():
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
        shares = shares_of({name: arms[name] for name in names}, units[split, track], direction)
        area = area_row(shares, names, registration["bootstrap"])
        tracks.append({"split_id": split, "track_id": track, "points": points, "area": area})
    return {"metric": metric, "max_units": registration["budget_protocol"]["max_units"], "tracks": tracks}


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


# -- several limits ---------------------------------------------------------------------------------------------------


def over_limits(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """One frontier over finished runs that differ in limit, policies, threshold or writer.

    reports  report.json by the name of its run

    Fixed policies are points; those of `CURVES` are a curve each over the limits they ran under, with the area under
    it and the differences between areas. Raises UsageError listing what keeps the runs apart.
    """
    if problems := _apart(reports):
        raise UsageError("these runs have no common frontier:\n  " + "\n  ".join(problems))
    first = next(iter(reports.values()))["registration"]
    by_limit = sorted(reports, key=lambda name: (reports[name]["registration"]["budget_protocol"]["max_units"], name))
    places = sorted({(row["split_id"], row["track_id"]) for report in reports.values() for row in report["summaries"]})
    return {
        "schema": FRONTIER_SCHEMA,
        "metric": first["primary"]["name"],
        "direction": first["primary"]["direction"],
        "episodes": len(first["episode_ids"]),
        "runs": [
            {
                "name": name,
                "max_units": reports[name]["registration"]["budget_protocol"]["max_units"],
                **{key: reports[name][key] for key in ("status", "run_id", "chain_head", "result_digest")},
            }
            for name in by_limit
        ],
        "tracks": [_track({name: reports[name] for name in by_limit}, *place) for place in places],
    }


def _apart(reports: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What forbids a common frontier."""
    found = []
    names = list(reports)
    first = reports[names[0]]["registration"]
    for name in names:
        registration = reports[name]["registration"]
        if registration["kind"] == "diagnostic":
            found.append(f"{name} is a diagnostic run: no figure of it counts.")
        found += [f"{name} and {names[0]} differ in {key}." for key in SHARED if registration[key] != first[key]]
        if registration["code"]["source_digest"] != first["code"]["source_digest"]:
            found.append(f"{name} and {names[0]} ran other code.")
    if not any(WHOLE in reports[name]["registration"]["policies"] for name in names):
        found.append(f"none has policy {WHOLE}: work and gain are shares of its.")
    seen: dict[tuple[str, float], str] = {}
    values: dict[tuple[str, str], tuple[str, float | None]] = {}
    for name in names:
        registration = reports[name]["registration"]
        for arm in registration["policies"]:
            label = (curve_name(arm, registration), registration["budget_protocol"]["max_units"])
            if arm in CURVES and label in seen:
                found.append(f"{seen[label]} and {name} both have {label[0]} with {label[1]:g} units.")
            seen.setdefault(label, name)
        for scene in reports[name]["scenes"]:
            key = (scene["arm"], scene["scene_id"])
            value = scene["means"].get(first["primary"]["name"])
            there, held = values.setdefault(key, (name, value))
            if scene["kind"] == "policy" and scene["arm"] not in CURVES and held != value:
                found.append(f"{scene['arm']} on {scene['scene_id']} is {held} in {there} and {value} in {name}.")
    return found


def curve_name(arm: str, registration: Mapping[str, Any]) -> str:
    """A policy as its curve is called: a threshold of its own is a curve of its own."""
    return f"{arm} {registration['residual_threshold']:g}" if arm == "RESIDUAL_THRESHOLD" else arm


def _track(reports: Mapping[str, Mapping[str, Any]], split: str, track: str) -> dict[str, Any]:
    """Points, curves and areas of one track; runs in order of their limits."""
    metric, direction, bootstrap = "", "", {}
    rows: dict[str, dict[str, Any]] = {}  # by column: the fixed policy, or curve and limit
    values: dict[str, Mapping[str, float | None]] = {}
    units: dict[str, dict[str, float]] = {}
    curves: dict[str, list[str]] = {}
    for name, report in reports.items():
        registration = report["registration"]
        primary, bootstrap = registration["primary"], registration["bootstrap"]
        metric, direction = primary["name"], primary["direction"]
        limit = registration["budget_protocol"]["max_units"]
        table = tables_by_arm(report["scenes"], metric).get((split, track), {})
        for row in report["summaries"]:
            arm = row["arm"]
            if (row["split_id"], row["track_id"], row["kind"]) != (split, track, "policy"):
                continue
            column = arm
            if arm in CURVES:
                curve = curve_name(arm, registration)
                column = f"{curve} @ {limit:.17g}"
                curves.setdefault(curve, []).append(column)
            # A fixed policy does the same under every limit that it fits; the last run has the loosest.
            values[column] = table[arm]
            units[column] = {
                record["scene_id"]: float(record["budget"]["units"])
                for record in report["records"]
                if record["policy"] == arm and record["budget"]
                and (record["split_id"], record["track_id"]) == (split, track)
            }  # fmt: skip
            entry = row["metrics"][metric]
            rows[column] = {
                "name": column,
                "arm": arm,
                "run": name,
                "max_units": limit,
                "scenes": row["scene_count"],
                "value": entry["mean"],
                **{key: entry[key] for key in ("delta", "low", "high", "reason")},
                "units": row["units"],
                "seconds": row["seconds"],
            }
    whole = rows.get(WHOLE, {"units": None, "seconds": None})
    for row in rows.values():
        row["work_share"] = _ratio(row["units"], whole["units"])
        row["seconds_share"] = _ratio(row["seconds"], whole["seconds"])
    shares = shares_of(values, units, direction)
    known = sorted(curves, key=lambda curve: (CURVES.index(curve.split(" ")[0]), curve))
    drawn = [curve for curve in known if len(curves[curve]) >= LEAST_LIMITS]
    few = {curve: f"{len(curves[curve])} limits; a curve needs {LEAST_LIMITS}" for curve in known if curve not in drawn}
    return {
        "split_id": split,
        "track_id": track,
        "points": sorted(rows.values(), key=lambda row: (row["work_share"] is None, row["work_share"], row["name"])),
        "curves": [
            {
                "name": curve,
                "points": curves[curve],
                "area": area_row(few.get(curve, shares), (REFERENCE, *curves[curve]), bootstrap),
            }
            for curve in known
        ],
        "differences": [
            _difference(shares, (one, curves[one]), (other, curves[other]), bootstrap)
            for n, one in enumerate(drawn)
            for other in drawn[n + 1 :]
        ],
        "area": area_row(shares, tuple(rows), bootstrap),
    }


def _difference(
    shares: Shares | str,
    one: tuple[str, Sequence[str]],
    other: tuple[str, Sequence[str]],
    bootstrap: Mapping[str, Any],
) -> dict[str, Any]:
    """Area of one curve minus that of another, on the same scenes."""
    named = {"curve": one[0], "other": other[0]}
    if isinstance(shares, str):
        return named | area_row(shares, (), bootstrap) | {"verdict": "not established"}
    first, second = (area_of(shares, (REFERENCE, *columns)) for _, columns in (one, other))
    row = _row(lambda rows: np.asarray(first(rows) - second(rows)), len(shares.score), bootstrap)
    said = verdict(row["low"], row["high"], margin=0.0, direction="higher", clusters=len(shares.score))
    return named | row | {"verdict": said}
