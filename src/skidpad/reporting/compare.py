"""Two finished runs, case by case: what changed, how sure that is, and where it got worse.

Only paired differences are compared: the same cases, the same metric definitions, the same way of choosing actions.
Where the two runs differ in one of these the comparison is refused with the list; where they differ in settings of the
world it goes on and says so first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import skidpad
from skidpad.artifacts.files import create
from skidpad.errors import UsageError, listed
from skidpad.reporting.report import environment, provenance_facts
from skidpad.reporting.wording import ARM_WORDS, number, plural, signed
from skidpad.runs.folder import RunFolder
from skidpad.runs.manifest import read_manifest
from skidpad.runs.records import Record, merge, read_records

WORST = 20


class Side(NamedTuple):
    """One of the two runs."""

    folder: RunFolder
    report: Mapping[str, Any]
    manifest: Mapping[str, Any]
    records: Sequence[Record]

    @property
    def name(self) -> str:
        """The folder's name, which is how a person calls a run."""
        return self.folder.path.resolve().name

    def part(self, evaluator: str) -> Mapping[str, Any]:
        """The manifest's entry of an evaluator."""
        return dict(self.manifest["evaluators"][evaluator])

    def arm(self, evaluator: str, arm: str) -> list[Record]:
        """The records of one arm, by case."""
        return [record for record in self.records if record.evaluator == evaluator and record.arm == arm]


def open_side(folder: RunFolder) -> Side:
    """Read a finished run. Raises UsageError when it is not finished, IntegrityError when a file is damaged."""
    report = folder.read_report()
    return Side(folder, report, read_manifest(folder), list(merge(read_records(folder.records)).values()))


def write_comparison(a: RunFolder, b: RunFolder, out: Path, *, intersection: bool = False) -> str:
    """Compare run `b` with run `a` (b minus a), write the page to `out`, and return the verdict.

    intersection  compare the cases both have when the case sets differ

    Raises UsageError listing what differs when the two cannot be compared, AlreadyThereError when `out` exists.
    """
    first, second = open_side(a), open_side(b)
    names = [name for name in second.report["evaluators"] if name in first.report["evaluators"]]
    if not names:
        raise UsageError(
            f"{first.name} ran {listed(first.report['evaluators'])}, {second.name} ran "
            f"{listed(second.report['evaluators'])}: no evaluator in common, so no case can be paired."
        )
    differences = [line for name in names for line in refusals(name, first, second, intersection)]
    if differences:
        raise UsageError("the runs cannot be compared:\n  " + "\n  ".join(differences))
    parts = [evaluator_comparison(name, first, second) for name in names]
    verdict = " ".join(part["verdict"] for part in parts)
    html: str = (
        environment()
        .get_template("compare.html")
        .render(
            title=f"{second.name} against {first.name}",
            first=first.name,
            second=second.name,
            verdict=verdict,
            parts=parts,
            notes=[line for name in names for line in setting_differences(name, first, second)],
            facts_first=provenance_facts(first.report, first.manifest),
            facts_second=provenance_facts(second.report, second.manifest),
            reproduce=f"skidpad compare {a.path} {b.path}" + (" --intersection" if intersection else ""),
            attributions=[],
            version=skidpad.__version__,
            style="",
            script_hashes=[],
        )
    )
    create(out, html.encode())
    return verdict


def refusals(name: str, first: Side, second: Side, intersection: bool) -> list[str]:
    """What forbids pairing the cases of an evaluator, one line each with both values."""
    a, b = first.part(name), second.part(name)
    lines = []
    for key, words in (
        ("action_selection", "action selection"),
        ("profile", "perturbation profile"),
        ("infer_batch", "inference batch"),
    ):
        if a[key] != b[key]:
            lines.append(f"{name}: {words} {a[key]!r} and {b[key]!r}")
    if a["digests"]["metrics"] != b["digests"]["metrics"]:
        lines.append(
            f"{name}: metric definitions {a['digests']['metrics'][:12]} and {b['digests']['metrics'][:12]}; "
            "run one of the two again with the other's version"
        )
    ids = [{case["case"] for case in part["cases"]} for part in (a, b)]
    common = ids[0] & ids[1]
    if ids[0] != ids[1] and not intersection:
        lines.append(
            f"{name}: {len(ids[0])} and {len(ids[1])} cases, {len(common)} in common; --intersection compares those"
        )
    if not common:
        lines.append(f"{name}: no case in common")
    return lines


def setting_differences(name: str, first: Side, second: Side) -> list[str]:
    """Settings of the world in which the two runs differ: allowed, and said before any number."""
    a, b = (leaves(side.part(name)["settings"].get("env", {})) for side in (first, second))
    lines = [
        f"{name}: env.{key} is {a.get(key)!r} in {first.name} and {b.get(key)!r} in {second.name}."
        for key in sorted(a.keys() | b.keys())
        if a.get(key) != b.get(key) and key != "scenes"
    ]
    ids = [{case["case"] for case in side.part(name)["cases"]} for side in (first, second)]
    if ids[0] != ids[1]:
        lines.insert(
            0, f"{name}: {len(ids[0])} and {len(ids[1])} cases; the {len(ids[0] & ids[1])} in common are compared."
        )
    return lines


def leaves(tree: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Dotted key to value."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        dotted = f"{path}.{key}" if path else key
        found |= leaves(value, dotted) if isinstance(value, Mapping) else {dotted: value}
    return found


def evaluator_comparison(name: str, first: Side, second: Side) -> dict[str, Any]:
    """What the page shows of one evaluator: the verdict, the differences of its focus arms, what got worse."""
    from skidpad.evaluation.metrics.lines import lines_of
    from skidpad.evaluation.significance import verdict
    from skidpad.evaluation.summary import paired_arm

    knobs = second.part(name)["settings"]["eval"]
    arms = first.part(name)["focus"], second.part(name)["focus"]
    before, after = first.arm(name, arms[0]), second.arm(name, arms[1])
    pairs = paired_arm(after, before, knobs)
    primary = knobs["primary"]
    lines = lines_of([*pairs, primary])
    rows = []
    for metric in sorted(pairs, key=lambda metric: (metric != primary, metric)):
        pair, known = pairs[metric], lines[metric]
        margin = knobs["primary_margin"] if metric == primary else 0.0
        reading = verdict(
            pair.interval.low,
            pair.interval.high,
            margin=margin,
            direction=known.direction,
            clusters=pair.interval.clusters,
            p=pair.p,
        )
        rows.append(
            {
                "metric": metric.replace("_", " "),
                "aid": known.aid,
                "primary": metric == primary,
                "difference": signed(pair.difference, known.unit),
                "interval": f"{signed(pair.interval.low, known.unit)} to {signed(pair.interval.high, known.unit)}"
                if pair.interval.low is not None
                else pair.interval.reason or "none",
                "p": "" if pair.p is None else f"{pair.p:.3g}",
                "record": f"{pair.wins} / {pair.ties} / {pair.losses}",
                "reading": reading,
                "tone": reading if reading in ("better", "worse") else "",
            }
        )
    labels = tuple(ARM_WORDS.get(arm, arm) for arm in arms)
    return {
        "name": name,
        "arms": labels,
        "rows": rows,
        "worst": worsened(before, after, primary, lines[primary].direction, lines[primary].unit),
        "primary": primary,
        "baselines": baseline_rows(name, first, second, primary),
        "verdict": sentence(name, labels, (first.name, second.name), primary, pairs.get(primary), rows),
    }


def sentence(
    name: str, arms: Sequence[str], runs: Sequence[str], primary: str, pair: Any, rows: Sequence[Mapping[str, Any]]
) -> str:
    """One sentence that can be repeated."""
    if pair is None or pair.difference is None:
        return f"{name}: no case can be paired on {primary}."
    row = next(row for row in rows if row["primary"])
    few = f"; {pair.interval.note}" if pair.interval.note else ""
    return (
        f"{name}: {arms[1]} of {runs[1]} against {arms[0]} of {runs[0]}: {row['reading']} on {primary} "
        f"(difference {row['difference']}, 95 % {row['interval']}, {plural(pair.n, 'pair')}{few})."
    )


def worsened(
    before: Sequence[Record], after: Sequence[Record], metric: str, direction: str, unit: str
) -> list[dict[str, str]]:
    """The cases that lost most, worst first."""
    known = {record.case: record for record in before}
    lost = []
    for record in after:
        other = known.get(record.case)
        values = [item.result["metrics"][metric] for item in (other, record) if item is not None and item.result]
        if len(values) == 2 and all(value["valid"] for value in values):
            change = values[1]["value"] - values[0]["value"]
            loss = change if direction == "lower" else -change
            if loss > 0:
                lost.append((-loss, record.case, record, values))
    lost.sort(key=lambda item: item[:2])
    return [
        {
            "case": record.case,
            "scene": record.scene_id,
            "before": number(values[0]["value"], unit),
            "after": number(values[1]["value"], unit),
        }
        for _, _, record, values in lost[:WORST]
    ]


def baseline_rows(name: str, first: Side, second: Side, primary: str) -> list[dict[str, str]]:
    """The primary metric of every arm in both runs: equal baselines say that the two runs measured the same thing."""
    a, b = (side.report["evaluators"][name]["arms"] for side in (first, second))
    rows = []
    for arm in sorted(a.keys() | b.keys()):
        entries = [arms.get(arm, {}).get("metrics", {}).get(primary) for arms in (a, b)]
        texts = [number(e["value"], e["unit"]) if e and e["valid"] else "no data" for e in entries]
        rows.append({"arm": ARM_WORDS.get(arm, arm), "before": texts[0], "after": texts[1]})
    return rows
