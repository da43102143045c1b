"""The report of a run: a pure function of its manifest, its chain and its records.

Whoever has those three files can compute every published number again. Both weightings of every metric are given,
intervals and tests are by scene, failed cases stay in the coverage, and a missing value is "no data", never zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from skidpad.evaluation.drivers import POLICY_ARM
from skidpad.evaluation.measures import Measures, clusters_of
from skidpad.evaluation.metrics.guards import dead_metrics
from skidpad.evaluation.metrics.lines import line_of
from skidpad.evaluation.metrics.registry import Metric
from skidpad.evaluation.realism_summary import realism_part
from skidpad.evaluation.selection import random_cases, worst_cases
from skidpad.evaluation.significance import FEW_CLUSTERS, bound, holm, size_note, variance_components, verdict
from skidpad.evaluation.statistics import Column, Interval, Paired, estimate, resampled
from skidpad.runs.chain import read_chain
from skidpad.runs.folder import REPORT_SCHEMA, RunFolder
from skidpad.runs.manifest import read_manifest
from skidpad.runs.records import Record

CLUSTERS = {"log": "scenes", "case": "episodes", "map": "maps"}
WORST_FIRST = ("mismatch", "error", "timeout", "incomplete", "failed")
EARLY_ENDS = {"PassTimeout": "timeout", "PassMismatch": "mismatch", "HandoverError": "mismatch"}
"""What a pass is called that ended early, by the type of what ended it; "error" for everything else."""
FLOOR_METRICS = ("collision_rate", "offroad_rate")


def build_report(folder: RunFolder, records: Sequence[Record]) -> dict[str, Any]:
    """The content of `report.json`, without the digests of the other files.

    records  of the run's file, merged

    Raises IntegrityError when the manifest or the chain do not hold.
    """
    from skidpad.evaluation.pooling import pooled, verdict_of

    manifest = read_manifest(folder)
    said: dict[str, dict[str, Any]] = {"evaluator_failed": {}, "batch_checked": {}}
    drawn: dict[str, list[dict[str, Any]]] = {}
    for event in read_chain(folder.chain):
        if event["event"] in said:
            said[event["event"]][event["data"]["evaluator"]] = event["data"]
        elif event["event"] in ("rendered", "render_failed"):
            drawn.setdefault(event["data"]["evaluator"], []).append(event["data"])
    evaluators = {
        name: summarise(
            name,
            part,
            [record for record in records if record.evaluator == name],
            said["evaluator_failed"].get(name, {}).get("error"),
            folder,
            batch_sensitive=said["batch_checked"].get(name, {}).get("sensitive"),
        )
        | {"renders": renders(drawn.get(name, []))}
        for name, part in manifest["evaluators"].items()
    }
    pools = pooled(manifest["evaluators"], records)
    ok = all(part["ok"] for part in evaluators.values())
    statuses = {part["status"] for part in evaluators.values()}
    return {
        "schema": REPORT_SCHEMA,
        "ok": ok,
        "status": next((status for status in WORST_FIRST if status in statuses), "ok"),
        "verdict": verdict_of(evaluators, pools),
        "evaluators": evaluators,
        "pooled": pools,
        "provenance": {
            "identity": manifest["identity"],
            "environment": manifest["environment"],
            "run": manifest["run"],
        },
        "reproduce": manifest["reproduce"],
    }


def summarise(
    name: str,
    part: Mapping[str, Any],
    records: Sequence[Record],
    failure: Mapping[str, str] | None,
    folder: RunFolder,
    *,
    batch_sensitive: str | None = None,
) -> dict[str, Any]:
    """One evaluator of a report. `part` is its entry in the manifest, `failure` what ended it early, `batch_sensitive`
    how the driver's actions depend on its batch, None where they do not."""
    records = last_pass(records)
    arms: list[str] = part["arms"]
    knobs = part["settings"]["eval"]
    by_arm = {arm: sorted((r for r in records if r.arm == arm), key=lambda record: record.case) for arm in arms}
    coverage = coverage_of(part, records)
    clusters = len(set(clusters_of([record for record in records if record.status == "ok"], knobs)))
    measures = {arm: Measures(by_arm[arm]) for arm in arms}
    asked = {(arm, ""): measures[arm].sample(knobs) for arm in arms}
    for arm in arms:
        if arm != (reference := knobs["reference"]):
            asked[arm, reference] = measures[arm].against(measures[reference], knobs)
    # All at once: whatever has values in the same scenes shares one drawing.
    told = resampled(asked, method=knobs["interval_method"], resamples=knobs["resamples"])
    table = {arm: _arm_part(measures[arm], told[arm, ""].intervals) for arm in arms}
    paired = paired_part({arm: told[arm, other].paired for arm, other in told if other}, knobs)
    failed_cases = len({record.case for record in records if record.status != "ok"})
    status = status_of(failure, coverage, failed_cases, knobs["max_failed_cases"])
    summary = {
        "type": part["type"],
        "ok": status == "ok",
        "status": status,
        "error": failure,
        "primary": knobs["primary"],
        "focus": part["focus"],
        "reference": knobs["reference"],
        "cases": len(part["cases"]),
        "cluster": knobs["cluster"],
        "clusters": clusters,
        "few_clusters": clusters < FEW_CLUSTERS,
        "size_note": size_note(len(part["cases"]), clusters),
        "batch_sensitive": batch_sensitive,
        "coverage": coverage,
        "arms": table,
        "floor": floor(table.get("log")),
        "scale": scale(table, part["focus"], knobs["primary"], "log" if "log" in table else knobs["reference"]),
        "paired": paired,
        "variance": variance(by_arm[part["focus"]], knobs),
        "dead": [dead._asdict() for dead in dead_metrics(records)],
        "realism": realism_part(by_arm, part),
        **looked_at(name, part, by_arm, folder),
        "digests": part["digests"],
        "seconds": seconds(records),
    }
    return {**summary, "verdict": sentence(name, summary, knobs)}


def status_of(failure: Mapping[str, str] | None, coverage: Mapping[str, Any], failed: int, allowed: int) -> str:
    """What a pass came to, in a word: `failure` ended it early; `failed` cases of the `allowed` ones ended badly."""
    if failure is not None:
        return EARLY_ENDS.get(failure["type"], "error")
    if coverage["attempted"] < coverage["expected"]:
        return "incomplete"
    return "failed" if failed > allowed else "ok"


def renders(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each pass that was drawn: its epoch and step, and its files by tracker key, or what went wrong."""
    return [
        {key: event[key] for key in ("epoch", "step", "seconds")}
        | {"files": event.get("files", {}), "error": event.get("error")}
        for event in events
    ]


def last_pass(records: Sequence[Record]) -> list[Record]:
    """Whoever drives beside, and of the driver under test its last pass: in training one folder holds many
    checkpoints."""
    passes = [(record.step, record.epoch, record.checkpoint) for record in records if record.arm == POLICY_ARM]
    if not passes:
        return list(records)
    checkpoint = max(passes)[2]
    return [record for record in records if record.arm != POLICY_ARM or record.checkpoint == checkpoint]


def coverage_of(part: Mapping[str, Any], records: Iterable[Record]) -> dict[str, Any]:
    """What was asked for and what came of it, by (case, arm). Complete means that the sets are equal (E73)."""
    expected = {(case["case"], arm) for case in part["cases"] for arm in part["arms"]}
    found = {(record.case, record.arm): record for record in records}
    finished = {key for key, record in found.items() if record.status == "ok"}
    reasons = Counter(
        record.error["type"] if record.status == "error" and record.error else record.status
        for record in found.values()
        if record.status != "ok"
    )
    return {
        "expected": len(expected),
        "attempted": len(found),
        "finished": len(finished),
        "failed": dict(sorted(reasons.items())),
        "distinct_scenes": len({record.scene_digest for record in found.values() if record.status == "ok"}),
        "missing": sorted(f"{case}@{arm}" for case, arm in expected - finished),
        "duplicated": part["duplicates"],
        "complete": finished == expected,
    }


def arm_part(records: Sequence[Record], knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Every metric of one arm, with interval or the reason why there is none."""
    measures = Measures(records)
    asked = {"": measures.sample(knobs)}
    told = resampled(asked, method=knobs["interval_method"], resamples=knobs["resamples"])
    return _arm_part(measures, told[""].intervals)


def _arm_part(measures: Measures, bounds: Mapping[str, Interval]) -> dict[str, Any]:
    return {
        "n_cases": len(measures.records),
        "n_agents": sum(record.result["n_agents"] for record in measures.records if record.result),
        "metrics": {name: metric_part(line, measures, bounds[name]) for name, line in measures.lines.items()},
    }


def metric_part(metric: Metric, measures: Measures, interval: Interval) -> dict[str, Any]:
    columns = measures.columns(metric)
    by_scene, by_agent = (estimate(*columns[weighting]) for weighting in ("by_scene", "by_agent"))
    value = by_scene if metric.aggregation == "by_scene" else by_agent
    reasons = measures.missing(metric.name)
    reason = min(reasons, key=lambda name: (-reasons[name], name)) if reasons and value is None else None
    return {
        "value": value,
        "valid": value is not None,
        "reason": reason,
        "n": len(measures.records) - reasons.total(),
        "invalid": reasons.total(),
        "by_scene": by_scene,
        "by_agent": by_agent,
        "interval": None if interval.low is None else [interval.low, interval.high],
        "interval_reason": interval.reason,
        "interval_method": interval.method,
        "clusters": interval.clusters,
        "bound": zero_bound(metric, columns["by_agent"], interval.clusters),
        "unit": metric.unit,
        "direction": metric.direction,
    }


def zero_bound(metric: Metric, column: Column, clusters: int) -> str | None:
    """What zero events leave possible, in words (E108); None when something happened or nothing can be said."""
    if metric.shape == "ever" and metric.direction == "lower":
        return bound(column.numerators, column.denominators, clusters, kind="rate")
    if metric.shape == "exposure" and metric.unit.startswith("1/"):
        return bound(column.numerators, column.denominators, clusters, kind="per_exposure", unit=metric.unit)
    if metric.name == "distance_per_infraction":
        return bound(
            column.numerators, column.denominators, clusters, kind="exposure_per_event", unit="m between infractions"
        )
    return None


def paired_part(found: Mapping[str, Mapping[str, Paired]], knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Each arm minus the reference, case by case. The primary metric is the declared family: its p values are
    adjusted for the number of arms (Holm), and only there is the margin known; everything else is exploratory."""
    primary = knobs["primary"]
    tested = [arm for arm in found if primary in found[arm] and found[arm][primary].p is not None]
    adjusted = dict(zip(tested, holm([found[arm][primary].p or 0.0 for arm in tested]), strict=True))
    return {
        arm: {
            name: {
                "n": pair.n,
                "excluded": pair.excluded,
                "difference": pair.difference,
                "interval": None if pair.interval.low is None else [pair.interval.low, pair.interval.high],
                "interval_reason": pair.interval.reason,
                "p": pair.p,
                "p_method": pair.p_method,
                "p_adjusted": adjusted.get(arm) if name == primary else None,
                "mcnemar_p": pair.mcnemar_p,
                "wins": pair.wins,
                "ties": pair.ties,
                "losses": pair.losses,
                "exploratory": name != primary,
                "verdict": verdict(
                    pair.interval.low,
                    pair.interval.high,
                    margin=knobs["primary_margin"] if name == primary else 0.0,
                    direction=line_of(name).direction,
                    clusters=pair.interval.clusters,
                    p=adjusted.get(arm) if name == primary else pair.p,
                ),
            }
            for name, pair in pairs.items()
        }
        for arm, pairs in found.items()
    }


def paired_arm(records: Sequence[Record], reference: Sequence[Record], knobs: Mapping[str, Any]) -> dict[str, Paired]:
    """All metrics of one arm against the reference, over the cases that both finished."""
    asked = {"": Measures(records).against(Measures(reference), knobs)}
    return resampled(asked, method=knobs["interval_method"], resamples=knobs["resamples"])[""].paired


def floor(log: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What the recorded drivers themselves show in this data: no driver can be asked for less (Q10)."""
    if log is None:
        return None
    return {name: log["metrics"][name]["value"] for name in FLOOR_METRICS if name in log["metrics"]}


def scale(table: Mapping[str, Any], focus: str, primary: str, upper: str) -> dict[str, Any] | None:
    """Where the driver under test stands between the weakest arm and `upper`, 0 to 1: the log, or where there is none
    the reference (E71)."""
    values = {
        arm: part["metrics"][primary]["value"]
        for arm, part in table.items()
        if primary in part["metrics"] and part["metrics"][primary]["valid"]
    }
    if focus not in values or upper not in values:
        return None
    pick = min if line_of(primary).direction == "higher" else max
    weakest = pick(sorted(values), key=lambda arm: values[arm])
    width = values[upper] - values[weakest]
    position = (values[focus] - values[weakest]) / width if width else None
    return {
        "weakest": weakest,
        "lowest": values[weakest],
        "upper": upper,
        "highest": values[upper],
        "position": position,
    }


def variance(records: Sequence[Record], knobs: Mapping[str, Any]) -> dict[str, float | None] | None:
    """Spread of the primary metric between scenes and between seeds of one scene (E113); None without replicates."""
    if knobs["replicates"] < 2:
        return None
    valid = [r for r in records if r.result is not None and r.result["metrics"].get(knobs["primary"], {}).get("valid")]
    if not valid:
        return None
    # One vehicle's replicates belong together: with one ego per case the scene alone would mix vehicles into seeds.
    groups = [f"{record.scene_digest}/{record.ego}" for record in valid]
    values = [record.result["metrics"][knobs["primary"]]["value"] for record in valid if record.result]
    return dict(variance_components(values, groups)._asdict())


def looked_at(
    name: str, part: Mapping[str, Any], by_arm: Mapping[str, Sequence[Record]], folder: RunFolder
) -> dict[str, Any]:
    """The worst cases of the focus arm and the random sample, with the traces that were kept."""
    worst, random = selected(part, by_arm[part["focus"]])
    metric = worst_metric(part)
    focus = {record.case: record for record in by_arm[part["focus"]]}
    steps = {(record.case, arm): record.step for arm, records in by_arm.items() for record in records}

    def entry(case: str) -> dict[str, Any]:
        result = focus[case].result
        value = result["metrics"][metric] if result else {"value": None, "reason": None}
        paths = {
            arm: folder.trace(name, case, arm, steps[case, arm]) if (case, arm) in steps else None
            for arm in part["arms"]
        }
        return {
            "case": case,
            "scene_id": focus[case].scene_id,
            "replicate": focus[case].replicate,
            "metric": metric,
            "value": value["value"],
            "reason": value["reason"],
            "arms": {
                arm: path.relative_to(folder.path).as_posix() if path is not None and path.exists() else None
                for arm, path in paths.items()
            },
        }

    return {"worst": [entry(case) for case in worst], "random": [entry(case) for case in random]}


def worst_metric(part: Mapping[str, Any]) -> str:
    """The metric that orders the worst list."""
    knobs = part["settings"]["eval"]
    return str(knobs["worst_metric"] or knobs["primary"])


def selected(part: Mapping[str, Any], focus: Sequence[Record]) -> tuple[list[str], list[str]]:
    """Ids of the worst cases and of the random sample, of the focus arm's records."""
    metric, count = worst_metric(part), part["settings"]["eval"]["worst_n"]
    return (
        worst_cases(focus, metric, line_of(metric).direction, count),
        random_cases(focus, part["digests"]["section"], count),
    )


def values_of(records: Sequence[Record]) -> dict[str, float]:
    """Numbers of one arm for a tracker: every metric by its primary weighting, both weightings, and how many cases have
    no value. What is missing is absent."""
    measures = Measures(records)
    found: dict[str, float] = {}
    for name, line in measures.lines.items():
        both = {weighting: estimate(*column) for weighting, column in measures.columns(line).items()}
        found[f"{name}_invalid"] = float(measures.missing(name).total())
        for key, value in ((name, both[line.aggregation]), *((f"{name}_{w}", v) for w, v in both.items())):
            if value is not None:
                found[key] = value
    return found


def seconds(records: Iterable[Record]) -> dict[str, float]:
    """Where the time of an evaluator went, summed over its records (E75)."""
    totals: dict[str, float] = {
        "eval_seconds": 0.0,
        "setup_seconds": 0.0,
        "rollout_seconds": 0.0,
        "metric_seconds": 0.0,
    }
    count = 0
    for record in records:
        count += not record.cost.get("kept", False)
        for key, part in (("eval_seconds", "seconds"), *((key, key) for key in list(totals)[1:])):
            totals[key] += float(record.cost.get(part, 0.0))
    rate = count / totals["eval_seconds"] if totals["eval_seconds"] > 0 else 0.0
    return {key: round(value, 6) for key, value in totals.items()} | {"cases_per_second": round(rate, 6)}


def sentence(name: str, summary: Mapping[str, Any], knobs: Mapping[str, Any]) -> str:
    """The verdict of one evaluator, in words a reader can repeat."""
    focus, reference, primary = summary["focus"], summary["reference"], summary["primary"]
    if summary["status"] == "error":
        return f"{name}: ended by {summary['error']['type']}, so it says nothing."
    partial = "" if summary["coverage"]["complete"] else "incomplete; on the cases that finished, "
    entry = summary["arms"][focus]["metrics"].get(primary)
    if entry is None or not entry["valid"]:
        return f"{name}: {partial}no data on {primary} of {focus}."
    value = f"{primary} {entry['value']:.3g}"
    if focus == reference:
        return f"{name}: {partial}{focus} has {value}; it is the reference itself."
    pair = summary["paired"][focus].get(primary)
    if pair is None or pair["difference"] is None:
        return f"{name}: {partial}{focus} has {value}; no case can be paired with {reference}."
    interval = pair["interval"]
    span = f"95 % {_end(interval[0])} to {_end(interval[1])}" if interval else f"no interval: {pair['interval_reason']}"
    note = f"; {summary['size_note']}" if summary["size_note"] else ""
    groups = f"{summary['clusters']} {CLUSTERS[summary['cluster']]}"
    return (
        f"{name}: {partial}{_reading(pair['verdict'], focus, reference, primary, knobs['primary_margin'])}: "
        f"{entry['value']:.3g} against {summary['arms'][reference]['metrics'][primary]['value']:.3g}, difference "
        f"{pair['difference']:+.3g} ({span}), {pair['n']} cases in {groups}{note}."
    )


def _reading(verdict: str, focus: str, reference: str, primary: str, margin: float) -> str:
    """What a verdict says of two drivers, as the start of a sentence."""
    if verdict in ("better", "worse"):
        return f"{focus} is {verdict} than {reference} on {primary}"
    if verdict.startswith("equivalent"):
        return f"{focus} and {reference} are equivalent on {primary} within {margin:g}"
    return f"no difference between {focus} and {reference} is established on {primary}"


def _end(value: float | None) -> str:
    return "without end" if value is None else f"{value:+.3g}"


def deterministic_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """What two runs of the same evaluation share: everything but time, machine and the digests of files."""
    evaluators = {
        name: {key: value for key, value in part.items() if key not in ("seconds", "renders")}
        for name, part in report["evaluators"].items()
    }
    kept = ("schema", "ok", "status", "verdict", "pooled")
    return {key: report[key] for key in kept} | {
        "evaluators": evaluators,
        "identity": report["provenance"]["identity"],
    }
