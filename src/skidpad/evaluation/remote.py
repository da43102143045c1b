"""One pass of an evaluator, as work that can be done anywhere: in this process, or by a worker that knows nothing but
the hand-over file (E38).

The file holds the resolved section, the cases and their scenes, the driver under test by name or as a checkpoint, its
epoch and step. Whoever does the work says in every reply which section, weights, epoch and step it was
done for; a reply of another pass is never recorded.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from skidpad.artifacts.digests import canonical_json
from skidpad.artifacts.files import parse_json
from skidpad.engines.engine import Reply
from skidpad.errors import ProtocolError
from skidpad.evaluation.drivers import Driver, arms_beside, batch_sensitivity_of
from skidpad.evaluation.evaluator import Arm, Evaluator, Plan, PlannedCase
from skidpad.evaluation.sources import SceneEntry, SceneSources
from skidpad.evaluation.worlds import Worlds
from skidpad.runs.records import Record
from skidpad.scenes.case import Case
from skidpad.settings.suite import spec_of

SCHEMA = "skidpad.handover/1"
OPENER = "skidpad.evaluation.remote:open_pass"


class Made(NamedTuple):
    """A record as a worker made it, and the bytes of its trace where they are kept."""

    record: Record
    trace: bytes | None


class Pass:
    """The cases of an evaluator, driven by some arms, at one epoch and step of training.

    A task is {"do": "run" | "again" | "check", "arm": name, "cases": positions in the plan}. "run" makes records;
    "again" simulates and gives trace digests and traces; "check" asks whether the driver depends on its batch.
    """

    def __init__(self, evaluator: Evaluator, arms: Sequence[Arm], epoch: int, step: int) -> None:
        self._evaluator = evaluator
        self._arms = {arm.name: arm for arm in arms}
        self._epoch, self._step = epoch, step
        weights = {arm.name: arm.checkpoint for arm in arms if arm.checkpoint}
        self.echo = {"section": evaluator.section_digest(), "weights": weights, "epoch": epoch, "step": step}

    def perform(self, task: Mapping[str, Any]) -> Reply:
        """Do one task, as `engines.Perform`."""
        arm = self._arms[task["arm"]]
        if task["do"] == "check":
            return self._reply({"sensitive": batch_sensitivity_of(arm, self._evaluator.spec)})
        cases = [self._evaluator.plan.cases[position] for position in task["cases"]]
        return self._run(arm, cases) if task["do"] == "run" else self._again(arm, cases)

    def _run(self, arm: Arm, cases: Sequence[PlannedCase]) -> Reply:
        from skidpad.runs.trace_file import encode_trace

        finished = self._evaluator.run(arm, cases, epoch=self._epoch, step=self._step)
        keeps = self._evaluator.spec.keep_traces == "all"
        traces = [encode_trace(one.trace) if keeps and one.trace is not None else b"" for one in finished]
        return self._reply({"records": [dict(vars(one.record)) for one in finished]}, traces)

    def _again(self, arm: Arm, cases: Sequence[PlannedCase]) -> Reply:
        from skidpad.runs.trace_file import encode_trace

        found = [outcome.trace for outcome in self._evaluator.simulate(arm, cases).outcomes]
        digests = [None if trace is None else trace.digest for trace in found]
        return self._reply({"digests": digests}, [b"" if trace is None else encode_trace(trace) for trace in found])

    def _reply(self, said: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> Reply:
        return Reply({**said, "echo": self.echo}, tuple(blobs))


def made_of(reply: Reply) -> list[Made]:
    """The records of a reply to "run"."""
    records = [Record(**said) for said in reply.document["records"]]
    return [Made(record, blob or None) for record, blob in zip(records, reply.blobs, strict=True)]


# -- the hand-over ----------------------------------------------------------------------------------------------------


def handed_over(evaluator: Evaluator, driver: Driver, epoch: int, step: int) -> bytes:
    """The bytes of the hand-over file. Raises ProtocolError for a policy object that lies in no file."""
    if driver.policy is not None and driver.checkpoint is None:
        raise ProtocolError(
            f"[eval.{evaluator.spec.name}] runs in mode {evaluator.spec.mode!r}, where a policy object cannot go. Save "
            "a checkpoint and pass its path, or use mode = 'inline'."
        )
    kind = type(evaluator)
    checkpoint = driver.checkpoint
    document = {
        "schema": SCHEMA,
        "evaluator": f"{kind.__module__}:{kind.__qualname__}",
        "spec": evaluator.spec.document(),
        "cases": [
            [item.case.scene_digest, item.case.scene_id, item.case.benchmark_seed, item.case.replicate, item.case.ego,
             item.problem]
            for item in evaluator.plan.cases
        ],
        "scenes": [[str(entry.path), *entry[1:]] for entry in evaluator.plan.entries.values()],
        "duplicates": list(evaluator.plan.duplicates),
        "baseline": driver.baseline,
        "checkpoint": None if checkpoint is None else str(checkpoint.path.absolute()),
        "epoch": epoch,
        "step": step,
    }  # fmt: skip
    return canonical_json(document).encode()


@cache
def _shared() -> tuple[SceneSources, Worlds]:
    """What a worker keeps from one pass to the next: scenes, map indexes, simulators."""
    return SceneSources(), Worlds()


def open_pass(data: bytes) -> Any:
    """What a worker does with the hand-over file: the `Perform` of a pass. Raises as loading a checkpoint does."""
    said = parse_json(data)
    if said["schema"] != SCHEMA:
        raise ProtocolError(f"a hand-over of schema {said['schema']!r}, expected {SCHEMA!r}.")
    module, _, name = said["evaluator"].partition(":")
    kind: type[Evaluator] = getattr(importlib.import_module(module), name)
    spec = spec_of(said["spec"], kind.TYPE)
    entries = [SceneEntry(Path(path), digest, scene, problem) for path, digest, scene, problem in said["scenes"]]
    planned = [
        PlannedCase(Case(digest, scene, seed, replicate, ego), position, problem)
        for position, (digest, scene, seed, replicate, ego, problem) in enumerate(said["cases"])
    ]
    sources, worlds = _shared()
    sources.know(entries)
    plan = Plan(tuple(planned), {entry.digest: entry for entry in entries}, tuple(said["duplicates"]))
    checkpoint = None if said["checkpoint"] is None else Path(said["checkpoint"])
    driver = Driver.of(None, "", said["baseline"], checkpoint)
    evaluator = kind(spec, sources, plan=plan, worlds=worlds)
    return Pass(evaluator, driver.arms(spec, arms_beside(spec)), said["epoch"], said["step"]).perform
