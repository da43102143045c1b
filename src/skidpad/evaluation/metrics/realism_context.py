"""What a realism score is printed with, always: baselines of the same scene, spread of the rollouts, an interval (Q29).

A perfect log does not score 1, and a parked world can beat a moving one; without these rows nobody can read the number.
Published rows stand apart: they are of other scenes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.evaluation.metrics.displacement_sets import ade, diversity, known, spread_ratio
from skidpad.evaluation.metrics.realism import Compared, RealismResult, compare, score
from skidpad.evaluation.metrics.realism_features import Features
from skidpad.evaluation.rollouts import POSE, Lights, Log, RoadEdges, Rollouts, Task, check_rollouts

F32 = NDArray[np.float32]

BASELINES = ("log", "log_hold_last", "stationary", "constant_velocity", "random")
ARC_SPEED = (0.6, 1.4)
ARC_YAW_RAD = 0.008
PUBLISHED_LABEL = "published, other scenes"


class Published(NamedTuple):
    """A row of a public table. `min_ade` [m] is `min_ade_official`; what was not published is None."""

    method: str
    metric: str
    value: float
    kinematic: float | None = None
    interactive: float | None = None
    map_based: float | None = None
    min_ade: float | None = None


PUBLISHED: tuple[Published, ...] = (
    Published("SMART-tiny-DecompGAIL", "realism_2025", 0.7864, 0.4919, 0.8152, 0.9176, 1.4209),
    Published("SMART-R1", "realism_2025", 0.7858, 0.4944, 0.8110, 0.9201, 1.2885),
    Published("SMART-tiny-RLFTSim", "realism_2025", 0.7857, 0.4927, 0.8129, 0.9183, 1.3252),
    Published("TrajTok", "realism_2025", 0.7852, 0.4887, 0.8116, 0.9207, 1.3179),
    Published("SMART-tiny-CLSFT", "realism_2025", 0.7846, 0.4931, 0.8106, 0.9177, 1.3065),
    Published("UniMM", "realism_2025", 0.7829, 0.4914, 0.8089, 0.9161, 1.2949),
    Published("SMART-tiny", "realism_2025", 0.7814, 0.4854, 0.8089, 0.9153, 1.3931),
    Published("SMART-tiny-CLSFT", "realism_2024", 0.7702),
    Published("logged oracle", "realism_2023", 0.722),
    Published("constant velocity", "realism_2023", 0.287),
)


@dataclass(frozen=True)
class RealismContext:
    """A realism score and what it must be read with.

    result           the score itself
    baselines        the same score for each of BASELINES
    halves           scores of the even and of the odd rollouts alone; None with a single one
    diversity        [m]  mean distance between two rollouts; None with a single one
    diversity_final  [m]  the same at the last row
    spread_ratio     (ADE - minADE) / ADE; None where the log has no later row, or the error is 0
    """

    result: RealismResult
    baselines: Mapping[str, RealismResult]
    halves: tuple[RealismResult, RealismResult] | None
    diversity: float | None
    diversity_final: float | None
    spread_ratio: float | None

    def as_record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "result": self.result.as_record(),
            "baselines": {name: result.as_record() for name, result in self.baselines.items()},
            "halves": None if self.halves is None else [half.as_record() for half in self.halves],
            "diversity": self.diversity,
            "diversity_final": self.diversity_final,
            "spread_ratio": self.spread_ratio,
        }


def realism_in_context(
    rollouts: Rollouts,
    log: Log,
    edges: RoadEdges | None,
    lights: Lights | None,
    year: str = "2025",
    *,
    seed: int = 0,
    not_standard: bool = False,
    official_light: bool = False,
) -> RealismContext:
    """The realism score of one case with all that belongs beside it; arguments and errors as `realism`.

    seed  of the random baseline
    """
    task = check_rollouts(rollouts, log, not_standard=not_standard)
    compared = compare(task, edges, lights, official_light=official_light)
    scored = task.log.scored
    spread = spread_ratio(ade(task)[:, known(task)]) if known(task).any() else None
    return RealismContext(
        result=score(compared, year),
        baselines=baseline_scores(compared, edges, lights, year, seed=seed),
        halves=split_half(compared, year),
        diversity=diversity(task.rollouts, scored),
        diversity_final=diversity(task.rollouts, scored, final=True),
        spread_ratio=spread,
    )


def baseline_scores(
    compared: Compared, edges: RoadEdges | None, lights: Lights | None, year: str, *, seed: int = 0
) -> dict[str, RealismResult]:
    """The score of each of BASELINES on the scene of `compared`, whose log it reuses."""
    found = {"log": score(log_as_simulation(compared), year)}
    for name, rollouts in baseline_rollouts(compared.task, seed=seed).items():
        task = Task(rollouts, compared.task.log, compared.task.not_standard)
        other = compare(task, edges, lights, official_light=compared.official_light)
        found[name] = score(replace(other, simulated=_repeated(other.simulated, compared.task.rollouts.count)), year)
    return found


def log_as_simulation(compared: Compared) -> Compared:
    """The log's own features in the place of every rollout: what a perfect driver would get, which is not 1."""
    count, log = compared.task.rollouts.count, compared.task.log
    future = {name: getattr(log, name)[None, :, log.current_step + 1 :] for name in POSE}
    task = compared.task._replace(rollouts=Rollouts(log.object_id, **future))
    return replace(compared, task=task, simulated=_repeated(compared.logged, count))


def _repeated(features: Features, count: int) -> Features:
    """Features of one rollout, `count` times: a deterministic simulation has equal rollouts."""
    return features.select(np.zeros(count, dtype=np.intp)) if len(features.linear_speed) == 1 else features


def baseline_rollouts(task: Task, *, seed: int = 0) -> dict[str, Rollouts]:
    """Rollouts of all baselines but the log itself. Those without chance are one rollout: its copies would be equal.

    log_hold_last      the log; after the last valid row its pose is held
    stationary         the pose of now
    constant_velocity  the displacement between the row before and now repeated; stationary where that row is not valid
    random             constant speed times a factor in 0.6 to 1.4, heading steps of normal noise of 0.008 rad
    """
    log = task.log
    poses = {name: getattr(log, name) for name in POSE}
    now, steps = log.current_step, task.rollouts.steps
    rows = np.arange(now + 1, now + 1 + steps)
    last = np.maximum.accumulate(np.where(log.valid, np.arange(log.valid.shape[1]), 0), axis=1)[:, rows]
    hold = {name: np.take_along_axis(pose, last, axis=1)[None] for name, pose in poses.items()}
    still = {name: np.repeat(pose[None, :, now, None], steps, axis=2) for name, pose in poses.items()}
    moved = still | {
        name: still[name] + _step(poses[name], log, now)[None, :, None] * np.arange(1, steps + 1, dtype=np.float32)
        for name in ("x", "y", "z")
    }
    return {
        "log_hold_last": Rollouts(log.object_id, **hold),
        "stationary": Rollouts(log.object_id, **still),
        "constant_velocity": Rollouts(log.object_id, **moved),
        "random": _random_arcs(task, poses, still["z"], seed),
    }


def _step(series: F32, log: Log, now: int) -> F32:
    """(N,) f32, change of a coordinate in the row that led to now; 0 where it is not known."""
    if now == 0:
        return np.zeros(log.count, dtype=np.float32)
    return np.where(log.valid[:, now - 1] & log.valid[:, now], series[:, now] - series[:, now - 1], np.float32(0))


def _random_arcs(task: Task, poses: Mapping[str, F32], z: F32, seed: int) -> Rollouts:
    log, count, steps, now = task.log, task.rollouts.count, task.rollouts.steps, task.log.current_step
    length = np.hypot(_step(poses["x"], log, now), _step(poses["y"], log, now))
    found = {name: np.empty((count, log.count, steps), dtype=np.float32) for name in ("x", "y", "heading")}
    for n, number in enumerate(log.object_id):
        # Each object has a stream of its own, so that neither order nor company changes it.
        stream = np.random.default_rng([seed, int(number) % (1 << 63)])
        stride = length[n] * stream.uniform(*ARC_SPEED, (count, 1))
        heading = poses["heading"][n, now] + np.cumsum(stream.normal(0.0, ARC_YAW_RAD, (count, steps)), axis=1)
        found["x"][:, n] = poses["x"][n, now] + np.cumsum(stride * np.cos(heading), axis=1)
        found["y"][:, n] = poses["y"][n, now] + np.cumsum(stride * np.sin(heading), axis=1)
        found["heading"][:, n] = np.remainder(heading + np.pi, 2 * np.pi) - np.pi
    return Rollouts(log.object_id, x=found["x"], y=found["y"], z=np.repeat(z, count, axis=0), heading=found["heading"])


def split_half(compared: Compared, year: str) -> tuple[RealismResult, RealismResult] | None:
    """Scores of the even and of the odd rollouts alone: how far chance moves the number. None with a single rollout.

    Half the rollouts score lower than all of them, because the estimators see fewer samples; the difference between the
    halves is what counts.
    """
    if compared.task.rollouts.count < 2:
        return None
    halves = []
    for first in (0, 1):
        chosen = slice(first, None, 2)
        task = compared.task._replace(rollouts=compared.task.rollouts.select(chosen))
        halves.append(score(replace(compared, task=task, simulated=compared.simulated.select(chosen)), year))
    return halves[0], halves[1]
