"""Sealed sections inside training: which are due at an epoch, and each of their passes as a run folder of its own.

Training hands this to its `EvalManager`, whose `maybe_run` then runs mappers on the schedule of every other evaluator.
A pass reads the mapper's file as it lies there; the same weights are not evaluated twice, and a fault of one section
leaves the others, and training, alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from skidpad.artifacts.digests import digest_file
from skidpad.artifacts.files import parse_json
from skidpad.evaluation.schedule import EvalResult, is_due
from skidpad.runs.folder import RunFolder
from skidpad.settings.sealed import SealedSection

Page = Callable[[RunFolder, dict[str, Any]], str]


class SealedSchedule:
    """Runs what is due of the sealed sections of a suite.

    folder  passes go into <folder>/<section>/<step>
    page    makes the page of each
    say     told one line per pair and phase
    """

    def __init__(
        self,
        sections: Mapping[str, SealedSection],
        folder: Path,
        *,
        page: Page | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._sections, self._folder, self._page, self._say = sections, folder, page, say
        self._results: dict[tuple[str, ...], EvalResult] = {}

    def maybe_run(self, epoch: int, step: int, *, force: bool = False) -> dict[str, EvalResult]:
        """Run what is due at an epoch; with `force`, what runs at the end of training.

        Tracker keys are "<section>/<track>/<arm>/<metric>", and the same with "_delta" for the difference from OFF.
        """
        due = [section for section in self._sections.values() if is_due(section, epoch, force=force)]
        return {section.name: self._result(section, step) for section in due}

    def _result(self, section: SealedSection, step: int) -> EvalResult:
        try:
            weights = [section.values.get(name) for name in ("checkpoint", "writer")]
            key = (section.name, *(digest_file(Path(path)) for path in weights if path is not None))
            if key in self._results:
                return replace(self._results[key], cached=True)
            found = self._results[key] = self._passed(section, step)
            return found
        except Exception as error:  # A failure becomes a result of the section (E29).
            from skidpad.streaming.sealed import described

            return EvalResult(section.name, False, "error", {f"{section.name}/ok": 0.0}, {}, described(error))

    def _passed(self, section: SealedSection, step: int) -> EvalResult:
        from skidpad.evaluation.evaluators.sealed_stream import evaluate_sealed_stream
        from skidpad.streaming.episode import load_episode_index

        values = dict(section.values)
        index, checkpoint = values.pop("index"), values.pop("checkpoint")
        folder = RunFolder(self._folder / section.name / f"{step:08d}")
        if folder.is_finished and _is_of(folder, checkpoint):  # training was started again behind this pass
            report = parse_json(folder.report.read_bytes())
        else:
            report = evaluate_sealed_stream(
                load_episode_index(index),
                checkpoint,
                folder.path,
                name=section.name,
                page=self._page,
                say=self._say,
                places=section.places,
                **values,
            )
        return _result_of(section.name, report)


def _is_of(folder: RunFolder, checkpoint: Path) -> bool:
    report = parse_json(folder.report.read_bytes())
    return bool(report["mapper"]["file_sha256"] == digest_file(checkpoint))


def _result_of(name: str, report: Mapping[str, Any]) -> EvalResult:
    values: dict[str, float] = {}
    for row in report["summaries"]:
        for metric, entry in row["metrics"].items():
            key = f"{name}/{row['track_id']}/{row['arm']}/{metric}"
            found = {key: entry["mean"], f"{key}_delta": entry["delta"]}
            values |= {one: float(value) for one, value in found.items() if value is not None}
    ok = report["status"] == "complete"
    scored = sum(record["status"] == "ok" for record in report["records"])
    coverage = {"expected": len(report["records"]), "attempted": len(report["records"]), "scored": scored}
    return EvalResult(name, ok, "ok" if ok else "failed", values | {f"{name}/ok": float(ok)}, coverage)
