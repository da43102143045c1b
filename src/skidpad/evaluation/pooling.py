"""Several evaluators read as one set of cases: behaviour classes, each too small to say much (E68).

Pooling adds no measurement: it is the same records, each case once, with intervals over all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from skidpad.evaluation.measures import clusters_of
from skidpad.evaluation.significance import FEW_CLUSTERS, size_note
from skidpad.evaluation.summary import arm_part, last_pass
from skidpad.runs.records import Record

POOLED_TYPES = ("behavior_class",)


def pooled(evaluators: Mapping[str, Mapping[str, Any]], records: Sequence[Record]) -> dict[str, Any]:
    """By type, the evaluators of a run that are pooled, and their arms over all cases together; {} where a type has
    fewer than two.

    evaluators  entries of the manifest, by name
    """
    found = {}
    for kind in POOLED_TYPES:
        parts = {name: part for name, part in evaluators.items() if part["type"] == kind}
        if len(parts) > 1:
            own = [record for name in parts for record in last_pass([r for r in records if r.evaluator == name])]
            found[kind] = _pool(parts, own)
    return found


def verdict_of(evaluators: Mapping[str, Mapping[str, Any]], pools: Mapping[str, Mapping[str, Any]]) -> str:
    """The verdict of a run: the sentence of each evaluator, and one for those that are pooled."""
    inside = {name for pool in pools.values() for name in pool["evaluators"]}
    said = [part["verdict"] for name, part in evaluators.items() if name not in inside]
    said += [_pool_sentence(evaluators, pool) for pool in pools.values()]
    return " ".join(said) or "No evaluator ran."


def _pool_sentence(evaluators: Mapping[str, Mapping[str, Any]], pool: Mapping[str, Any]) -> str:
    focus, primary, arms = pool["focus"], pool["primary"], pool["arms"]
    reference = evaluators[pool["evaluators"][0]]["reference"]
    values = [arms[arm]["metrics"].get(primary) if arm in arms else None for arm in (focus, reference)]
    text = [f"{value['value']:.3g}" if value is not None and value["valid"] else "no data" for value in values]
    bad = [name for name in pool["evaluators"] if not evaluators[name]["ok"]]
    note = f"; {pool['size_note']}" if pool["size_note"] else ""
    failed = f" Not ok: {', '.join(bad)}." if bad else ""
    return (
        f"{len(pool['evaluators'])} behaviour classes, {pool['cases']} cases together: {focus} has {primary} "
        f"{text[0]}, {reference} {text[1]}{note}.{failed}"
    )


def _pool(parts: Mapping[str, Mapping[str, Any]], records: Sequence[Record]) -> dict[str, Any]:
    first = next(iter(parts.values()))
    knobs = first["settings"]["eval"]
    arms = [arm for arm in first["arms"] if all(arm in part["arms"] for part in parts.values())]
    # A scene that shows two behaviours is a case of both classes, and one case here.
    once = {(record.arm, record.case): record for record in records}
    table = {arm: arm_part([once[key] for key in sorted(once) if key[0] == arm], knobs) for arm in arms}
    cases = len({case["case"] for part in parts.values() for case in part["cases"]})
    clusters = len(set(clusters_of([record for record in once.values() if record.status == "ok"], knobs)))
    return {
        "evaluators": list(parts),
        "primary": knobs["primary"],
        "focus": first["focus"],
        "cases": cases,
        "cluster": knobs["cluster"],
        "clusters": clusters,
        "few_clusters": clusters < FEW_CLUSTERS,
        "size_note": size_note(cases, clusters),
        "arms": table,
    }
