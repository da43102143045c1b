"""The page of a run: one file that opens offline, from the run's report, its manifest and the traces it kept.

Nothing is computed here that the report does not already say; this module chooses, words and lays out. Every text that
came from a file is escaped by the template engine, scripts run only by their hash, and the page names no address.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import skidpad
from skidpad.artifacts.files import create
from skidpad.evaluation.metrics.published import published_beside
from skidpad.evaluation.run_files import scenes_of
from skidpad.rendering.observed_page import observed_payload
from skidpad.rendering.replay import case_payload, map_payload, region, script_hash, script_json, viewer_parts
from skidpad.reporting.classes import class_table
from skidpad.reporting.perspective import perspective
from skidpad.reporting.training import Curve, curves
from skidpad.reporting.values import as_link, cost, failures, pictures, values_csv
from skidpad.reporting.wording import ARM_WORDS, Cell, cell_of, number, plural, signed
from skidpad.runs.folder import RunFolder
from skidpad.runs.manifest import read_manifest
from skidpad.runs.records import Record, read_records
from skidpad.runs.trace import Trace
from skidpad.scenes.scene import Scene

# What a stranger asks first, in this order. The rest stands under "Every metric".
HEADLINE = (
    "score",
    "realism_2025",
    "min_ade_joint",
    "diversity",
    "progress_ratio",
    "goal_rate",
    "collision_rate",
    "at_fault_collision_rate",
    "offroad_rate",
    "red_light_rate",
    "comfort_nuplan",
    "ade_log",
)
# Scores under which drivers are compared elsewhere; each has a definition of its own, and none replaces the headline.
COMPARED = (
    "nuplan_cls",
    "pdms_by_log",
    "epdms_2025_09_by_log",
    "pdms_by_pdm",
    "epdms_2025_09_by_pdm",
    "carla_ds_2_0",
    "carla_ds_2_1",
    "b2d_success",
    "b2d_efficiency",
    "b2d_smoothness",
    "ttc.sweep_share",
)
PAIRED = ("score", "progress_ratio", "collision_rate", "offroad_rate", "ade_log")
FLOOR = (("collision_rate", "in collision"), ("offroad_rate", "off the road"), ("red_light_rate", "past a red light"))
MAX_REPLAYS = 40
# What a cluster is, as `eval.cluster` says.
CLUSTER_WORDS = {"log": "scene", "case": "episode", "map": "map"}


class Replay(NamedTuple):
    """One case to play: where it came from, why it is shown, what each arm did, and per metric and arm its value or why
    there is none."""

    group: str
    title: str
    why: str
    focus: str
    arms: Mapping[str, Trace]
    scene: Scene
    metrics: Mapping[str, Mapping[str, float | str]] = MappingProxyType({})


def environment() -> Any:
    """The template engine: autoescape on, missing names are errors."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("skidpad.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def report_page(
    report: Mapping[str, Any],
    manifest: Mapping[str, Any],
    replays: Sequence[Replay],
    metrics: Mapping[str, Any],
    *,
    failed: Mapping[str, Any] | None = None,
    drawn: Sequence[Mapping[str, Any]] = (),
    trained: Sequence[Curve] = (),
) -> str:
    """The HTML of a run's page.

    report    what `report.json` holds
    manifest  what `manifest.json` holds
    replays   the cases to show, worst first
    metrics   name to registry entry: unit, direction, reading aid
    failed    runs that did not finish, as `values.failures` gives them
    drawn     drawn passes, as `values.pictures` gives them
    trained   charts of training, as `training.curves` gives them
    """
    parts = viewer_parts()
    planned = manifest.get("evaluators", {})
    evaluators = [
        evaluator_part(name, part, metrics, planned.get(name, {})) for name, part in report["evaluators"].items()
    ]
    names = [part["focus"] for part in report["evaluators"].values()]
    page = environment().get_template("report.html")
    html: str = page.render(
        title="Skidpad report",
        subtitle=subtitle(report, manifest),
        report=report,
        cautions=cautions(report),
        faults=faults(report),
        evaluators=evaluators,
        classes=class_table(report),
        published=published_beside(measured_in(report)),
        csv_link=as_link(values_csv(report)),
        failed=failed or {"count": 0, "rows": []},
        cost=cost(report),
        drawn=drawn,
        trained=trained,
        has_replays=bool(replays),
        focus_label=ARM_WORDS.get(names[0], names[0]) if names else "",
        viewer_markup=parts["markup"],
        viewer_script=parts["script"],
        style=parts["style"],
        script_hashes=[script_hash(parts["script"])] if replays else [],
        replay_json=script_json(replay_data(replays)),
        facts=provenance_facts(report, manifest),
        configuration=configuration_text(manifest),
        attributions=attributions(replay.scene for replay in replays),
        version=skidpad.__version__,
    )
    return html


def measured_in(report: Mapping[str, Any]) -> set[str]:
    """Every metric that some driver of some evaluator has a value of."""
    return {
        name
        for part in report["evaluators"].values()
        for arm in part["arms"].values()
        for name, entry in arm["metrics"].items()
        if entry["valid"]
    }


def subtitle(report: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """Cases, drivers and scenes in one line."""
    parts = report["evaluators"].values()
    arms = {arm for part in parts for arm in part["arms"]}
    cases = sum(part["cases"] for part in parts)
    scenes = max((part["coverage"]["distinct_scenes"] for part in parts), default=0)
    started = manifest.get("run", {}).get("started", "")
    return f"{plural(cases, 'case')} from {plural(scenes, 'scene')}, {plural(len(arms), 'driver')}; started {started}"


def cautions(report: Mapping[str, Any]) -> list[str]:
    """What a reader must know before believing a number."""
    sentences = []
    for name, part in report["evaluators"].items():
        clusters, kind = part["clusters"], part["cluster"]
        if kind == "case":
            sentences.append(
                f"{name}: self-play on {plural(part['coverage']['distinct_scenes'], 'map')}; intervals "
                "are about more episodes on these maps, not about other maps."
            )
        if clusters < 6:
            sentences.append(
                f"{name}: few clusters. The cases come from {plural(clusters, f'independent {CLUSTER_WORDS[kind]}')} "
                "only, so every interval here is a guess: it says how much the numbers move between these, not how "
                "they would move on other roads."
            )
        elif part["few_clusters"]:
            sentences.append(f"{name}: few clusters ({clusters}). Intervals are rough below ten independent ones.")
    return sentences


def faults(report: Mapping[str, Any]) -> list[str]:
    """What went wrong in the run itself."""
    sentences = []
    for name, part in report["evaluators"].items():
        coverage = part["coverage"]
        failed = sum(coverage["failed"].values())
        if failed:
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(coverage["failed"].items()))
            sentences.append(
                f"{name}: {plural(failed, 'run')} failed ({reasons}) and are in no mean. "
                "The records hold their tracebacks."
            )
        for dead in part.get("dead", []):
            why = f"{dead['metric']} is {dead['why']}"
            sentences.append(f"{name}: dead metric: {why}. " + (dead["expected"] or "It says nothing on this set."))
        if not coverage["complete"]:
            sentences.append(f"{name}: incomplete, {plural(len(coverage['missing']), 'case')} missing.")
    return sentences


def evaluator_part(
    name: str, part: Mapping[str, Any], metrics: Mapping[str, Any], planned: Mapping[str, Any]
) -> dict[str, Any]:
    """What the template shows of one evaluator; `planned` is its entry in the manifest."""
    arms = ordered_arms(part)
    files = weight_files(planned)
    everything = sorted({metric for arm in arms for metric in part["arms"][arm]["metrics"]})
    return {
        "name": name,
        "description": f"({part['type'].replace('_', ' ')}, {plural(part['cases'], 'case')})",
        "headline": value_table(part, HEADLINE, metrics, files),
        "compared": value_table(part, COMPARED, metrics, files),
        "cluster_words": f"whole {CLUSTER_WORDS[part['cluster']]}s ({plural(part['clusters'], 'cluster')})",
        "floor": data_floor(part),
        "perspective": perspective(part),
        "reference": part["reference"],
        "paired": paired_rows(part),
        "arms": arms,
        "all_rows": [
            {
                "name": metric,
                "hint": entry_hint(metric, part),
                "aid": getattr(metrics.get(metric), "aid", ""),
                "cells": [cell(part, arm, metric, None) for arm in arms],
            }
            for metric in everything
        ],
        "coverage_words": coverage_words(part),
    }


def has_value(arm: Mapping[str, Any], metric: str) -> bool:
    """Whether a driver has a value of a metric."""
    return bool(arm["metrics"].get(metric, {}).get("valid"))


def weight_files(planned: Mapping[str, Any]) -> dict[str, str]:
    """Names of the files that drivers with weights came from, by driver. In training the one under test has none."""
    path, beside = planned.get("checkpoint_path"), planned.get("weights", {})
    own = {} if path is None else {"policy": Path(path).name}
    return own | {arm: Path(file["path"]).name for arm, file in beside.items()}


def value_table(
    part: Mapping[str, Any], names: Sequence[str], metrics: Mapping[str, Any], files: Mapping[str, str]
) -> dict[str, Any]:
    """Columns of those metrics that somebody has a value of, and one row per driver, with the file of its weights.

    A column in which nobody has a value says nothing here; it stands, with its reason, under "Every metric".
    """
    arms = ordered_arms(part)
    named = [metric for metric in names if any(has_value(part["arms"][arm], metric) for arm in arms)]
    scales = {metric: common_scale(part, metric) for metric in named}
    rows = [
        {
            "label": ARM_WORDS.get(arm, arm),
            "hint": files.get(arm, arm),
            "focus": arm == part["focus"],
            "cells": [cell(part, arm, metric, scales[metric]) for metric in named],
        }
        for arm in arms
    ]
    return {"columns": [column(metric, part, metrics) for metric in named], "rows": rows}


def ordered_arms(part: Mapping[str, Any]) -> list[str]:
    """The driver under test first, then the others from best to worst in the primary metric, the log last."""

    def key(arm: str) -> tuple[int, float, str]:
        entry = part["arms"][arm]["metrics"].get(part["primary"], {})
        value = entry.get("value") if entry.get("valid") else None
        sign = -1.0 if entry.get("direction") == "higher" else 1.0
        group = 0 if arm == "policy" else 2 if arm in ("log", "log_actions") else 1
        return group, sign * value if value is not None else float("inf"), arm

    return sorted(part["arms"], key=key)


def cell(part: Mapping[str, Any], arm: str, metric: str, scale: tuple[float, float] | None) -> Cell:
    """One value with its interval, or why there is none."""
    entry = part["arms"][arm]["metrics"].get(metric)
    return cell_of(entry, scale)


def common_scale(part: Mapping[str, Any], metric: str) -> tuple[float, float]:
    """Lowest and highest point that any driver's value or interval touches, so that bars of a column compare."""
    points = []
    for arm in part["arms"].values():
        entry = arm["metrics"].get(metric)
        if entry and entry["valid"]:
            points += [entry["value"], *(end for end in entry["interval"] or () if end is not None)]
    return (min(points), max(points)) if points else (0.0, 1.0)


def column(metric: str, part: Mapping[str, Any], metrics: Mapping[str, Any]) -> dict[str, str]:
    """Head of a column: the name, unit and which way is better, and what the metric says."""
    return {
        "name": metric,
        # Names with a version in them are read as names.
        "label": metric if metric in COMPARED else metric.replace("_", " "),
        "hint": entry_hint(metric, part),
        "aid": getattr(metrics.get(metric), "aid", ""),
    }


def entry_hint(metric: str, part: Mapping[str, Any]) -> str:
    """Unit and direction, from whichever arm has the metric."""
    entry = next((arm["metrics"][metric] for arm in part["arms"].values() if metric in arm["metrics"]), None)
    if entry is None:
        return ""
    unit = {"rate": "%", "1": "ratio"}.get(entry["unit"], entry["unit"])
    better = {"higher": "higher is better", "lower": "lower is better"}.get(entry["direction"], "")
    return ", ".join(text for text in (unit, better) if text)


def data_floor(part: Mapping[str, Any]) -> str:
    """What log replay itself shows: no driver can be asked to do better than the data."""
    log = part["arms"].get("log")
    if log is None:
        return ""
    shown = []
    for metric, words in (
        ("collision_rate", "in collision"),
        ("offroad_rate", "off the road"),
        ("red_light_rate", "past a red light"),
    ):
        entry = log["metrics"].get(metric)
        if entry and entry["valid"]:
            shown.append(f"{number(entry['value'], entry['unit'])} {words}")
    if not shown:
        return ""
    return (
        f"Floor of the data: the recorded vehicles themselves are {', '.join(shown)}. "
        "Map and label errors alone give that much."
    )


def paired_rows(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Per driver and chosen metric, the difference from the reference on the same cases."""
    rows = []
    for arm in ordered_arms(part):
        for metric in dict.fromkeys((part["primary"], *PAIRED)):
            entry = part["paired"].get(arm, {}).get(metric)
            if entry is None:
                continue
            known = part["arms"][arm]["metrics"].get(metric) or {"unit": ""}
            unit = known["unit"]
            interval = entry["interval"]
            rows.append(
                {
                    "arm": ARM_WORDS.get(arm, arm),
                    "focus": arm == part["focus"],
                    "primary": metric == part["primary"],
                    "metric": metric.replace("_", " "),
                    "difference": "no data" if entry["difference"] is None else signed(entry["difference"], unit),
                    "interval": f"{signed(interval[0], unit)} to {signed(interval[1], unit)}"
                    if interval
                    else (entry["interval_reason"] or "none"),
                    "p": "" if entry["p"] is None else f"{entry['p']:.3g}",
                    "record": f"{entry['wins']} / {entry['ties']} / {entry['losses']}",
                    "verdict": entry["verdict"],
                    "tone": {"better": "better", "worse": "worse"}.get(str(entry["verdict"]).split(" ")[0], ""),
                }
            )
    return rows


def coverage_words(part: Mapping[str, Any]) -> str:
    """Expected, finished, failed, duplicated, in one sentence; cost beside it."""
    coverage = part["coverage"]
    failed = sum(coverage["failed"].values())
    words = (
        f"{coverage['finished']} of {coverage['expected']} runs finished ({plural(part['cases'], 'case')} x "
        f"{plural(len(part['arms']), 'driver')}), {failed} failed, "
        f"{plural(coverage['distinct_scenes'], 'distinct scene')}"
    )
    if coverage["duplicated"]:
        words += f", {plural(len(coverage['duplicated']), 'duplicate')} listed once"
    seconds = part["seconds"].get("eval_seconds")
    return words + (f"; {seconds:.1f} s in all." if seconds is not None else ".")


def provenance_facts(report: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Name and text of each fact; a leading `!` marks what should worry a reader."""
    machine, run = manifest["environment"], manifest.get("run", {})
    commit = machine.get("commit")
    state = f"{commit}" if commit else "!unknown: not run from a checkout"
    if machine.get("dirty"):
        state = f"!{commit}, with uncommitted changes"
    libraries = ", ".join(f"{name} {version}" for name, version in machine["libraries"].items() if version)
    facts = [
        ("Skidpad", f"{machine['skidpad']}"),
        ("commit", state),
        ("code digest", str(manifest["identity"].get("code", ""))),
        ("Python", f"{machine['python']}; {libraries}"),
        (
            "machine",
            f"{machine['cpu']}, {machine['cpu_count']} cores, {machine['system']}; {machine['threads']} thread(s)",
        ),
        ("started", f"{run.get('started', '')} on {run.get('host', '')}"),
    ]
    for name, part in report["evaluators"].items():
        facts += [
            (f"{name}: {key} digest", str(value))
            for key, value in sorted(part["digests"].items())
            if isinstance(value, str)
        ]
        beside = manifest.get("evaluators", {}).get(name, {}).get("weights", {})
        facts += [
            (f"{name}: weights of {arm}", f"{file['digest']}; step {file['step']} of run {file['run']}; {file['path']}")
            for arm, file in beside.items()
        ]
    return facts


def configuration_text(manifest: Mapping[str, Any]) -> str:
    """The resolved suite as text: what `--print-config` printed, or the tree itself."""
    suite = manifest.get("suite", {})
    text = suite.get("config") if isinstance(suite, Mapping) else None
    return text if isinstance(text, str) else json.dumps(suite, indent=2, sort_keys=True)


def attributions(scenes: Iterable[Scene]) -> list[str]:
    """Each attribution and licence line of the scenes shown, once."""
    lines = {
        f"{scene.meta.attribution} ({scene.meta.licence})" if scene.meta.licence else scene.meta.attribution
        for scene in scenes
    }
    return sorted(line for line in lines if line)


def case_metrics(records: Mapping[str, Record]) -> dict[str, dict[str, float | str]]:
    """Every metric of one case by name and arm: its value, or why there is none.

    records  of the case, by arm
    """
    found: dict[str, dict[str, float | str]] = {}
    for arm, record in records.items():
        for name, entry in (record.result["metrics"] if record.result else {}).items():
            value = entry["value"] if entry["valid"] else (entry["reason"] or "no data").replace("_", " ")
            found.setdefault(name, {})[arm] = float(f"{value:.5g}") if isinstance(value, float) else value
    return dict(sorted(found.items()))


def replay_data(replays: Sequence[Replay], *, observations: bool = False) -> dict[str, Any]:
    """What the player reads: maps, each once, and cases; with `observations` also what policies were given."""
    regions: dict[str, tuple[float, float, float, float]] = {}
    scenes: dict[str, Scene] = {}
    for replay in replays:
        key, corners = replay.scene.map_digest[:16], region(list(replay.arms.values()))
        known = regions.get(key, corners)
        regions[key] = (
            min(known[0], corners[0]),
            min(known[1], corners[1]),
            max(known[2], corners[2]),
            max(known[3], corners[3]),
        )
        scenes[key] = replay.scene
    maps = {key: map_payload(scenes[key], regions[key]) for key in sorted(scenes)}
    cases = []
    for replay in replays:
        payload = case_payload(replay.arms, replay.scene, map_key=replay.scene.map_digest[:16])
        cases.append(
            {
                **payload,
                "group": replay.group,
                "title": replay.title,
                "why": replay.why,
                "focus": replay.focus,
                "metrics": dict(replay.metrics),
                **({"observed": observed_payload(replay.arms)} if observations else {}),
            }
        )
    return {"maps": maps, "cases": cases}


def selected_replays(folder: RunFolder, report: Mapping[str, Any], scenes: Mapping[str, Scene]) -> list[Replay]:
    """The worst cases of each evaluator, then its random sample, as far as their traces and scenes are there.

    scenes  by scene digest
    """
    from skidpad.runs.trace_file import read_trace

    found: list[Replay] = []
    records = {(r.evaluator, r.case, r.arm, r.step): r for r in read_records(folder.records)}
    for name, part in report["evaluators"].items():
        worst = {case["case"] for case in part["worst"]}
        others = [case for case in part["random"] if case["case"] not in worst]  # whoever is shown is shown once
        for group, picked in (("worst", part["worst"]), ("random", others)):
            for case in picked:
                paths: Mapping[str, str | None] = case["arms"]
                traces = {arm: read_trace(folder.path / path) for arm, path in paths.items() if path is not None}
                if not traces or len(found) >= MAX_REPLAYS:
                    continue
                order = [arm for arm in ordered_arms(part) if arm in traces]
                traces = {arm: traces[arm] for arm in sorted(order, key=lambda arm: arm != part["focus"])}
                scene = scenes.get(next(iter(traces.values())).meta.scene_digest)
                if scene is None:
                    continue
                label = {"worst": "worst cases of", "random": "random cases, seen by"}[group]
                found.append(
                    Replay(
                        f"{name}: {label} {part['focus']}",
                        case_title(case, scene, next(iter(traces.values()))),
                        case_why(case, part),
                        part["focus"],
                        traces,
                        scene,
                        case_metrics(
                            {
                                arm: record
                                for (evaluator, case_id, arm, _), record in records.items()
                                if (evaluator, case_id) == (name, case["case"]) and arm in traces
                            }
                        ),
                    )
                )
    return found


def case_title(case: Mapping[str, Any], scene: Scene, trace: Trace) -> str:
    """Scene and, where one vehicle is under test, which; in self-play which episode."""
    if trace.meta.settings["simulation_mode"] == "gigaflow":
        return f"{case['scene_id']}, episode {case['replicate']}"
    if trace.meta.ego >= 0:
        return f"{case['scene_id']}, vehicle {int(trace['source_id'][trace.meta.ego])}"
    return str(case["scene_id"])


def case_why(case: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    """The value that put a case on the list."""
    entry = part["arms"][part["focus"]]["metrics"].get(case["metric"], {"unit": ""})
    value = "no data" if case["value"] is None else number(case["value"], entry["unit"])
    return f"{case['metric'].replace('_', ' ')} {value}" + (f": {case['reason']}" if case.get("reason") else "")


def run_page(folder: RunFolder, report: Mapping[str, Any]) -> str:
    """The page of a run whose report is known: what the manager calls before it closes the run."""
    manifest = read_manifest(folder)
    replays = selected_replays(folder, report, scenes_of(manifest))
    return _page(folder, report, manifest, replays, folder.page)


def _page(
    folder: RunFolder, report: Mapping[str, Any], manifest: Mapping[str, Any], replays: Sequence[Replay], page: Path
) -> str:
    records = list(read_records(folder.records))
    return report_page(
        report,
        manifest,
        replays,
        metric_lines(report),
        failed=failures(records),
        drawn=pictures(report, folder.path, page),
        trained=curves(folder, report, manifest, records),
    )


def metric_lines(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """The registry lines of every metric that a report holds."""
    from skidpad.evaluation.metrics.lines import lines_of

    arms = [arm for part in report["evaluators"].values() for arm in part["arms"].values()]
    return lines_of(name for arm in arms for name in arm["metrics"])


def write_report(folder: RunFolder, out: Path, assets: Sequence[Path] = ()) -> None:
    """Write the page of a finished run beside it.

    assets  folders to look for scenes in, before the library and the paths of the manifest

    Raises UsageError when the run is not finished, AlreadyThereError when `out` exists.
    """
    report, manifest = folder.read_report(), read_manifest(folder)
    replays = selected_replays(folder, report, scenes_of(manifest, assets))
    create(out, _page(folder, report, manifest, replays, out).encode())
