"""Recorded cases of a finished run as videos, pictures and one page to play: written beside the run, never into it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import skidpad
from skidpad.artifacts.files import create, replace
from skidpad.errors import UsageError, listed
from skidpad.evaluation.renders import RenderJob
from skidpad.evaluation.run_files import scenes_of
from skidpad.evaluation.selection import worst_cases
from skidpad.rendering.clips import ClipSettings, clip_stem, write_clips
from skidpad.rendering.replay import script_hash, script_json, viewer_parts
from skidpad.reporting.report import (
    Replay,
    attributions,
    case_metrics,
    case_title,
    environment,
    ordered_arms,
    replay_data,
)
from skidpad.runs.folder import RunFolder
from skidpad.runs.manifest import read_manifest
from skidpad.runs.records import Record, read_records
from skidpad.runs.trace import Trace
from skidpad.runs.trace_file import read_trace
from skidpad.scenes.scene import Scene


class Selection(NamedTuple):
    """Which cases of a run are shown.

    evaluators  names; empty: all of the run
    cases       case ids or unambiguous beginnings; empty: the worst ones
    worst       how many of the worst
    by          metric that says which are worst; None: the one of the report's own list
    arms        drivers shown; empty: the one that the evaluator is about
    """

    evaluators: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    worst: int = 4
    by: str | None = None
    arms: tuple[str, ...] = ()


class Chosen(NamedTuple):
    """One case to show: the record of its first arm, every arm's trace in order, and its scene."""

    evaluator: str
    record: Record
    traces: Mapping[str, Trace]
    scene: Scene
    records: Mapping[str, Record]


def render_run(
    folder: RunFolder,
    out: Path,
    selection: Selection,
    clips: ClipSettings | None,
    *,
    page: bool,
    assets: Sequence[Path] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Show cases of a finished run, and return the files in the order they were written.

    out     folder beside the run; files go to out/<evaluator>/
    clips   views and formats of the clips; None writes none
    page    write out/index.html, on which the same cases can be played
    assets  folders to look for scenes in, before the library and the paths of the manifest
    tell    gets a line for each evaluator that is passed over: nobody named it, and it kept no trace at all

    Raises UsageError when the run is not finished, when `out` lies in it, when a case, arm or metric is not in it or
    its trace was not kept, and when no evaluator has any.
    """
    report, manifest = folder.read_report(), read_manifest(folder)
    if out.resolve().is_relative_to(folder.path.resolve()):
        raise UsageError(f"{out}: lies inside the run, which never changes. Choose a folder beside it.")
    chosen = choose(folder, report, scenes_of(manifest, assets), selection, tell)
    written: list[Path] = []
    for case in chosen if clips else ():
        assert clips is not None
        written += write_case(out / case.evaluator, case, clips, case.traces)
    if page:
        out.mkdir(parents=True, exist_ok=True)
        create(
            out / "index.html", gallery_page(chosen, folder.path.name, observations=has_observations(chosen)).encode()
        )
        written.append(out / "index.html")
    return written


def draw_pass(job: RenderJob) -> dict[str, list[Path]]:
    """Draw the cases of a pass into renders/<evaluator>/ of its run; files by view and page, in the order written.

    Clips show the driver under test; pages play every driver whose trace was kept.
    """
    chosen = [_drawn(job, case) for case in job.cases]
    out = job.folder.renders(job.spec.name)
    written: dict[str, list[Path]] = {}
    if "mp4" in job.spec.render_backend:
        for view in job.spec.render_views:
            clips = ClipSettings(views=(view,), max_steps=job.spec.eval.render_max_steps)
            written[view] = [path for case in chosen for path in write_case(out, case, clips, (job.part["focus"],))]
    out.mkdir(parents=True, exist_ok=True)
    for page in [name for name in job.spec.render_backend if name != "mp4"]:
        path = out / f"{page.removesuffix('_html')}_epoch{job.epoch}_step{job.step}.html"
        replace(
            path,
            gallery_page(chosen, f"{job.folder.path.name}, step {job.step}", observations=page == "obs_html").encode(),
        )
        written[page] = [path]
    return written


def _drawn(job: RenderJob, case: str) -> Chosen:
    focus = job.part["focus"]
    traces = {}
    for arm in (focus, *(arm for arm in job.part["arms"] if arm != focus)):
        record = job.records.get((case, arm))
        path = job.folder.trace(job.spec.name, case, arm, record.step if record else 0)
        if record is not None and path.is_file():
            traces[arm] = read_trace(path)
    first = job.records[case, focus]
    records = {arm: job.records[case, arm] for arm in traces}
    return Chosen(job.spec.name, first, traces, job.load(first.scene_digest), records)


def write_case(out: Path, case: Chosen, clips: ClipSettings, arms: Iterable[str]) -> list[Path]:
    """The clips of one case with some of its drivers."""
    written, record = [], case.record
    ego = record.ego if record.ego_rule == "each" else -1
    for arm in arms:
        trace = case.traces[arm]
        stem = clip_stem(
            record.scene_id, ego=ego, replicate=record.replicate, arm=arm, epoch=record.epoch, step=record.step
        )
        caption = f"{case_title(vars(record), case.scene, trace)}  {arm}  case {record.case[:8]}"
        written += write_clips(out, trace, case.scene, clips, stem=stem, caption=caption)
    return written


def choose(
    folder: RunFolder,
    report: Mapping[str, Any],
    scenes: Mapping[str, Scene],
    selection: Selection,
    tell: Callable[[str], None],
) -> list[Chosen]:
    """The selected cases of every selected evaluator, in order; errors as `render_run`."""
    parts = report["evaluators"]
    unknown = [name for name in selection.evaluators if name not in parts]
    if unknown:
        raise UsageError(f"no evaluator {listed(unknown)} in this run; it has {listed(list(parts))}.")
    records = list(read_records(folder.records))
    chosen: list[Chosen] = []
    for name in selection.evaluators or _with_traces(folder, parts, selection, tell):
        part = parts[name]
        arms = selection.arms or (part["focus"],)
        missing = [arm for arm in arms if arm not in part["arms"]]
        if missing:
            raise UsageError(f"{name}: no driver {listed(missing)}; it has {listed(ordered_arms(part))}.")
        own = {(r.case, r.arm): r for r in records if r.evaluator == name}
        for case in _cases(name, part, own, selection):
            chosen.append(_chosen(folder, name, case, arms, own, scenes))
    if selection.cases:
        found = {case.record.case for case in chosen}
        lost = [want for want in selection.cases if not any(case.startswith(want) for case in found)]
        if lost:
            raise UsageError(f"no case {listed(lost)} in this run; episodes.csv lists them.")
    return chosen


def _with_traces(
    folder: RunFolder, parts: Mapping[str, Any], selection: Selection, tell: Callable[[str], None]
) -> list[str]:
    """The evaluators to take the worst cases of where none was named: those that kept some trace. `realism` keeps none,
    and stands in most suites beside others that do."""
    if selection.cases:
        return list(parts)
    kept = [name for name in parts if any(folder.traces(name).glob("*.trace"))]
    if not kept and parts:
        raise UsageError(
            f"{folder.path}: no trace was kept of {listed(list(parts))}, so there is nothing to show. Run with "
            'keep_traces = "selected" or "all".'
        )
    for name in parts:
        if name not in kept:
            tell(f"{name}: kept no trace, nothing of it is shown")
    return kept


def _cases(
    name: str, part: Mapping[str, Any], own: Mapping[tuple[str, str], Record], selection: Selection
) -> Iterable[str]:
    known = sorted({case for case, _ in own})
    if selection.cases:
        picked = []
        for want in selection.cases:
            matching = [case for case in known if case.startswith(want)]
            if len(matching) > 1:
                raise UsageError(f"{name}: {want} begins {len(matching)} cases, {listed(matching)}; give more of it.")
            picked += matching
        return picked
    metric = selection.by or (part["worst"][0]["metric"] if part["worst"] else part["primary"])
    entry = part["arms"][part["focus"]]["metrics"].get(metric)
    if entry is None:
        have = sorted(part["arms"][part["focus"]]["metrics"])
        raise UsageError(f"{name}: no metric {metric!r}; it has {listed(have)}.")
    focus = [record for (_, arm), record in own.items() if arm == part["focus"]]
    return worst_cases(focus, metric, entry["direction"], selection.worst)


def _chosen(
    folder: RunFolder,
    name: str,
    case: str,
    arms: Sequence[str],
    own: Mapping[tuple[str, str], Record],
    scenes: Mapping[str, Scene],
) -> Chosen:
    traces: dict[str, Trace] = {}
    for arm in arms:
        record = own.get((case, arm))
        if record is None or record.result is None:
            why = "was not run" if record is None else f"ended as {record.status}"
            raise UsageError(f"{name}: case {case} {why} with driver {arm}, so there is nothing to show.")
        path = folder.trace(name, case, arm, record.step)
        if not path.is_file():
            raise UsageError(
                f"{name}: the trace of case {case} with driver {arm} was not kept. Choose a case of the report's "
                'lists, or run with keep_traces = "all".'
            )
        traces[arm] = read_trace(path)
    first = own[case, arms[0]]
    scene = scenes.get(first.scene_digest)
    if scene is None:
        raise UsageError(f"{name}: scene {first.scene_id} is not where the run found it. Say --assets with its folder.")
    return Chosen(name, first, traces, scene, {arm: own[case, arm] for arm in arms})


def has_observations(chosen: Sequence[Chosen]) -> bool:
    """Whether some driver's trace says what it was given."""
    return any(trace.meta.observed for case in chosen for trace in case.traces.values())


def gallery_page(chosen: Sequence[Chosen], run_name: str, *, observations: bool = False) -> str:
    """One page on which cases are played: self-contained, without an address in it.

    observations  also show what a policy was given at each moment and what it made of it
    """
    replays = [
        Replay(
            case.evaluator,
            case_title(vars(case.record), case.scene, next(iter(case.traces.values()))),
            f"case {case.record.case}",
            opening_arm(case.traces, observations),
            case.traces,
            case.scene,
            case_metrics(case.records),
        )
        for case in chosen
    ]
    return replay_page(f"Cases of {run_name}", replays, observations=observations)


def replay_page(title: str, replays: Sequence[Replay], *, observations: bool = False) -> str:
    """The page of some replays under a title; as `gallery_page`."""
    parts = viewer_parts(observer=observations)
    html: str = (
        environment()
        .get_template("gallery.html")
        .render(
            title=title,
            cases=len(replays),
            viewer_markup=parts["markup"],
            viewer_script=parts["script"],
            style=parts["style"],
            script_hashes=[script_hash(parts["script"])],
            replay_json=script_json(replay_data(replays, observations=observations)),
            attributions=attributions(replay.scene for replay in replays),
            version=skidpad.__version__,
        )
    )
    return html


def opening_arm(traces: Mapping[str, Trace], observations: bool) -> str:
    """The driver that a page opens with: the first, or where observations are shown the first that was given some."""
    seeing = [arm for arm, trace in traces.items() if len(trace["policy_agent"]) and trace.meta.observed]
    return seeing[0] if observations and seeing else next(iter(traces))
