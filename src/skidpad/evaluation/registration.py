"""What the manifest says of one evaluator: its settings, digests, arms, scenes and cases.

The report is computed from this and the records alone, so everything that it needs to know stands here; what decides
whether a run may be resumed is the smaller `identity`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from skidpad.artifacts.digests import canonical_json, digest_value
from skidpad.evaluation.drivers import Driver
from skidpad.evaluation.evaluator import Arm, Evaluator
from skidpad.runs.manifest import code_digests


def described(evaluator: Evaluator, arms: Sequence[Arm], driver: Driver) -> tuple[dict[str, Any], dict[str, Any]]:
    """An evaluator's entry in the manifest, and its part of the run's identity."""
    spec, plan = evaluator.spec, evaluator.plan
    names = [arm.name for arm in arms]
    digests = {
        "section": evaluator.section_digest(),
        "metrics": evaluator.metric_digest(),
        "scenes": digest_value(sorted(plan.entries), "scene set"),
    }
    part = {
        "type": spec.type,
        "arms": names,
        "focus": driver.focus,
        "digests": {**digests, "checkpoint": driver.digest, "code": code_digests()["code"]},
        "settings": json.loads(canonical_json(_plain(spec.tree))),
        "origins": {key: origin.where for key, origin in sorted(spec.origins.items())},
        "scenes_text": list(spec.scenes_text),
        "checkpoint_path": driver.path,
        "weights": {
            arm.name: {
                "digest": file.digest,
                "path": str(file.path.absolute()),
                "run": file.run,
                "epoch": file.epoch,
                "step": file.step,
                "architecture": file.architecture.settings(),
            }
            for arm in arms
            if (file := arm.weights) is not None
        },
        "action_selection": spec.action_selection,
        "profile": spec.profile,
        "infer_batch": spec.vec.infer_batch,
        "scenes": {
            digest: {"scene_id": entry.scene_id, "path": str(entry.path)}
            for digest, entry in sorted(plan.entries.items())
        },
        "cases": [
            {
                "case": item.case.id,
                "scene_digest": item.case.scene_digest,
                "ego": item.case.ego,
                "replicate": item.case.replicate,
                "seed": item.case.seed,
            }
            for item in plan.cases
        ],
        "duplicates": list(plan.duplicates),
    }
    beside = {name: file["digest"] for name, file in part["weights"].items()}
    return part, {"type": spec.type, **digests, "arms": names, "weights": beside}


def _plain(value: Any) -> Any:
    """A settings tree as JSON values: tuples as lists, paths as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)
