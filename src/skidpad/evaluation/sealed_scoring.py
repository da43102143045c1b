"""Phase two of a pair in a worker process: its sealed state, its vault, and the scores of every arm made of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from skidpad.evaluation.metrics.lpips import Lpips, load_lpips
from skidpad.evaluation.metrics.scene_metrics import Predicted, pair_metrics, query_metrics
from skidpad.evaluation.sealed_strips import arm_strip, truth_strip
from skidpad.streaming.arms import Arm, constant, harmonic_fill
from skidpad.streaming.audit import watching
from skidpad.streaming.feedback import Rendered
from skidpad.streaming.report_format import PAIR, averaged, scored_value
from skidpad.streaming.sealed import (
    Equipment,
    Opened,
    StateProbe,
    described,
    open_and_render,
    peak_rss_bytes,
    status_of,
)
from skidpad.streaming.vault import VaultEpisode


@dataclass(frozen=True, eq=False)
class ScoreJob:
    """One sealed state and the arms that are scored from it: its own, then those made of its renders."""

    pair: str
    arms: tuple[Arm, ...]
    state: bytes
    state_hash: str
    forgetting: float | None
    vault: VaultEpisode


@dataclass(frozen=True, eq=False)
class ArmScores:
    """What phase two found for one arm. `metrics` and `score_s` as records hold them."""

    arm: Arm
    status: str
    error: Mapping[str, str] | None
    metrics: Mapping[str, Any]
    score_s: float


@dataclass(frozen=True, eq=False)
class Scored:
    """What phase two found for one sealed state.

    status  "ok"; "refused" and "crashed" as in phase one; "invalid" where something does not hold
    facts   what records repeat of the sealed state: observed, actions, history, budget, hashes
    strips  base64 of PNGs by name, of a pair or of its episode, and query; see `sealed_strips`
    """

    pair: str
    status: str
    error: Mapping[str, str] | None
    arms: Sequence[ArmScores] = ()
    facts: Mapping[str, Any] | None = None
    peak_rss_bytes: int = 0
    opened: Mapping[str, Any] | None = None
    strips: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


def score_pair(equipment: Equipment, job: ScoreJob, clock: Callable[[], float] = time.monotonic) -> Scored:
    """Phase two of a sealed state. Never raises for what the pair does."""
    with watching(equipment.settings.data, "score") as watch:
        try:
            start = clock()
            opened = open_and_render(job.state, job.state_hash, job.vault, job.pair, equipment.settings.device)
            probe = StateProbe(opened.sealed)
            lpips = _lpips(equipment.settings.lpips)
            arms = []
            for arm in job.arms:
                arms.append(_arm_scores(arm, opened, probe, lpips, job.forgetting, start, clock))
                start = clock()
            strips = _strips(job, opened) if equipment.settings.strips else {}
            opened.sealed.check()  # also after the metrics: none of them may write
            watch.check()
        except Exception as error:  # A failure becomes a record of the pair.
            return Scored(job.pair, status_of(error), described(error), opened=watch.row(job.pair))
        return Scored(job.pair, "ok", None, arms, _facts(opened), peak_rss_bytes(), watch.row(job.pair), strips)


@lru_cache(1)  # one file per run, and a process reads it once
def _lpips(path: Path | None) -> Lpips | None:
    return None if path is None else load_lpips(path)


def _strips(job: ScoreJob, opened: Opened) -> dict[str, dict[int, str]]:
    """What a policy shows at each query, and beside OFF, which always runs, the truth."""
    found: dict[str, dict[int, str]] = {}
    fallback = opened.sealed.fallback.depth
    views = list(zip(opened.vault.queries, opened.views, strict=True))
    for arm in job.arms:
        if arm.kind == "policy":
            found[job.pair] = {
                query.frame_id: arm_strip(predicted_by(arm, view, opened), query, fallback) for query, view in views
            }
        if arm.name == "OFF":
            found[job.vault.manifest.episode_id] = {query.frame_id: truth_strip(query) for query, _ in views}
    return found


def _facts(opened: Opened) -> dict[str, Any]:
    sealed = opened.sealed
    return {
        "sealed": {
            "checkpoint_hash": sealed.checkpoint_hash,
            "state_hash": sealed.state_hash,
            "fast_state_hash": sealed.fast_state_hash,
            "observed": [dict(row) for row in sealed.observed],
        },
        "actions": [row["action"] for row in sealed.history],
        "history": [dict(row) for row in sealed.history],
        "budget": sealed.ledger.report(),
    }


def _arm_scores(
    arm: Arm,
    opened: Opened,
    probe: StateProbe,
    lpips: Lpips | None,
    forgetting: float | None,
    start: float,
    clock: Callable[[], float],
) -> ArmScores:
    made_of_renders = not arm.seals
    try:
        rows: list[dict[str, Any]] = []
        for query, view in zip(opened.vault.queries, opened.views, strict=True):
            predicted = predicted_by(arm, view, opened)
            known = None if arm.control == "CONSTANT_DEPTH" else probe
            pixels, values = query_metrics(predicted, query, opened.sealed.fallback, known, lpips)
            rows.append(
                {
                    "frame_id": query.frame_id,
                    "placement": query.placement,
                    "pixels": pixels,
                    "metrics": {name: scored_value(value) for name, value in values.items()},
                }
            )
        once = pair_metrics(
            opened.vault.task, None if made_of_renders else probe, None if made_of_renders else forgetting
        )
        whole = {name: scored_value(value) for name, value in once.items()}
        rows.append({"frame_id": None, "placement": PAIR, "pixels": {}, "metrics": whole})
    except Exception as error:  # One arm's failure leaves the others of this state alone.
        return ArmScores(arm, status_of(error), described(error), averaged([]), clock() - start)
    return ArmScores(arm, "ok", None, averaged(rows), clock() - start)


def predicted_by(arm: Arm, view: Rendered, opened: Opened) -> Predicted:
    """What an arm says of one query. A fill with no covered pixel to start from leaves the fallback."""
    depth, rgb, opacity = (view.depth.cpu().numpy(), view.rgb.cpu().numpy(), view.opacity.cpu().numpy())
    plain = Predicted(depth, rgb, opacity)
    covered = plain.covered
    if arm.control == "CONSTANT_DEPTH" or (arm.control == "HARMONIC_FILL" and not covered.any()):
        return Predicted(*constant(opened.sealed.fallback.depth, opened.sealed.fallback.rgb, *depth.shape))
    if arm.control != "HARMONIC_FILL":
        return plain
    filled = harmonic_fill(np.concatenate([depth[None], rgb]), covered).astype(np.float32)
    return Predicted(filled[0], filled[1:], np.ones_like(opacity))
