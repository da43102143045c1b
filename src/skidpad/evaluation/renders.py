"""Which cases of a pass are drawn, and when. Drawing itself is handed to the manager, since pictures are made of traces
and records alone and stand above the evaluation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from skidpad.artifacts.digests import digest_value
from skidpad.engines.engine import described
from skidpad.errors import SettingsError, listed
from skidpad.evaluation.evaluator import Arm
from skidpad.evaluation.selection import worst_cases
from skidpad.runs.folder import RunFolder
from skidpad.runs.records import Record
from skidpad.scenes.scene import Scene
from skidpad.settings.render_rules import OBSERVED_VIEWS, minutes_of
from skidpad.settings.suite import EvaluatorSpec

INFRACTIONS = ("collision_rate", "offroad_rate", "red_light_rate")
"""A case in which one of these is above zero is a failed one (E85)."""


class RenderJob(NamedTuple):
    """Cases to draw: all from traces that lie in the run folder.

    part     the evaluator's entry in the manifest
    cases    ids, in the order they are shown
    records  by (case, arm)
    load     the scene of a digest
    """

    folder: RunFolder
    spec: EvaluatorSpec
    part: Mapping[str, Any]
    cases: Sequence[str]
    records: Mapping[tuple[str, str], Record]
    load: Callable[[str], Scene]
    epoch: int
    step: int


Draw = Callable[[RenderJob], Mapping[str, Sequence[Path]]]
"""Draws a job and returns the files of each view or page, in the order they were written (E90)."""


class Drawn(NamedTuple):
    """What drawing a job came to: files by tracker key, wall seconds, and what went wrong."""

    files: dict[str, tuple[Path, ...]]
    seconds: float
    failure: dict[str, str] | None

    def event(self, job: RenderJob) -> dict[str, Any]:
        """What the chain says of it."""
        said = {"evaluator": job.spec.name, "epoch": job.epoch, "step": job.step, "seconds": self.seconds}
        if self.failure is not None:
            return {**said, "error": self.failure}
        folder = job.folder.path
        files = {key: [path.relative_to(folder).as_posix() for path in paths] for key, paths in self.files.items()}
        return {**said, "files": files}


def draw_cases(draw: Draw, job: RenderJob) -> Drawn:
    """Draw a job. A fault of drawing is a fault of the pictures and is returned: records and numbers stand (F57)."""
    start = time.perf_counter()
    try:
        files = {f"{job.spec.name}/render/{what}": tuple(paths) for what, paths in draw(job).items()}
    except Exception as error:
        return Drawn({}, round(time.perf_counter() - start, 6), described(error))
    return Drawn(files, round(time.perf_counter() - start, 6), None)


def is_render_due(spec: EvaluatorSpec, epoch: int, *, force: bool) -> bool:
    """Whether a pass that runs at an epoch is drawn, or at the end of training when `force` is set (E32)."""
    if force:
        return spec.render_at_end
    if spec.render_interval is None:
        return True
    return spec.render_interval > 0 and epoch > 0 and epoch % spec.render_interval == 0


def check_render(spec: EvaluatorSpec, arms: Sequence[Arm], focus: str, cases: Sequence[str]) -> None:
    """Raises SettingsError where pictures of observations are asked of a driver that is given none, or where
    `render_select` names a case that is not among `cases`."""
    blind = {arm.name for arm in arms if arm.policy is None}
    wanted: list[str] = [view for view in spec.render_views if view in OBSERVED_VIEWS and focus in blind]
    wanted += [page for page in spec.render_backend if page == "obs_html" and len(blind) == len(arms)]
    if wanted:
        raise SettingsError(
            f"[eval.{spec.name}]: {listed(wanted)} shows what a policy was given, but {focus} is a controller, "
            "which is given no observation. Name a policy with --policy or --checkpoint, or draw other views."
        )
    if isinstance(spec.render_select, tuple) and (lost := sorted(set(spec.render_select) - set(cases))):
        raise SettingsError(f"[eval.{spec.name}]: render_select names no case of it, {listed(lost)}.")


def budget_line(spec: EvaluatorSpec) -> str:
    """How much one pass draws at most, and how long that may take (E86)."""
    cases, steps = spec.eval.render_num_scenarios or 0, spec.eval.render_max_steps or 0
    minutes = minutes_of(spec.render_views, spec.render_backend, cases, steps)
    return (
        f"{spec.name}: renders {len(spec.render_views)} views x {cases} cases x {steps} steps a pass as "
        f"{', '.join(spec.render_backend)}, about {minutes:.1f} min"
    )


def cases_to_draw(spec: EvaluatorSpec, part: Mapping[str, Any], focus: Sequence[Record], step: int) -> list[str]:
    """Ids of the cases that a pass at a training step draws, at most `eval.render_num_scenarios` (E85, E87).

    focus  the records of the driver under test, in the order of its cases
    """
    from skidpad.evaluation.metrics.lines import line_of
    from skidpad.evaluation.summary import worst_metric

    count = spec.eval.render_num_scenarios or 0
    finished = [record for record in focus if record.result is not None]
    select = spec.render_select
    if isinstance(select, tuple):
        there = {record.case for record in finished}
        return [case for case in select if case in there][:count]
    if select == "first":
        return [record.case for record in finished][:count]
    if select == "random":
        # Another sample at every step, so that who looks at one film per epoch sees more than one scene.
        return sorted((record.case for record in finished), key=lambda c: digest_value([step, c], "drawn case"))[:count]
    metric = worst_metric(part)
    if select == "failed":
        finished = [record for record in finished if _failed(record)]
    return worst_cases(finished, metric, line_of(metric).direction, count)


def _failed(record: Record) -> bool:
    metrics = record.result["metrics"] if record.result else {}
    return any(name in metrics and metrics[name]["valid"] and metrics[name]["value"] > 0 for name in INFRACTIONS)
