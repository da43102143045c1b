"""The Trace: what happened in one case, recorded once. Metrics, videos and pages are pure functions of it and its
scene.

State k is the state after k steps; row 0 is the start. `events[k]` are the events found in the step that led to state
k, so row 0 is zero. Axes: R rollouts (one, except in realism), T states, N agents (all that exist; in replay agent n
is track n of the scene), S signals, M agents under test. A trace names its scene by digest and does not hold it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import Encoded, digest_arrays, digest_value, encoded

TRACE_SCHEMA = "skidpad.trace/3"


class TraceArray(NamedTuple):
    """One array of a trace: axes by letter, dtype, unit, meaning."""

    name: str
    shape: str
    dtype: str
    unit: str
    meaning: str


TRACE_ARRAYS: tuple[TraceArray, ...] = (
    TraceArray("x", "R,T,N", "f4", "m", "centre of the box, frame of the scene; 0 while the agent has no body"),
    TraceArray("y", "R,T,N", "f4", "m", ""),
    TraceArray("z", "R,T,N", "f4", "m", ""),
    TraceArray("heading", "R,T,N", "f4", "rad", ""),
    TraceArray("speed", "R,T,N", "f4", "m/s", "signed, along the heading"),
    TraceArray("steering", "R,T,N", "f4", "rad", "0 for agents that are not driven through the dynamics"),
    TraceArray("accel_long", "R,T,N", "f4", "m/s^2", "realised in the step that led here"),
    TraceArray("accel_lat", "R,T,N", "f4", "m/s^2", "realised, positive to the left"),
    TraceArray("length", "R,T,N", "f4", "m", ""),
    TraceArray("width", "R,T,N", "f4", "m", ""),
    TraceArray("height", "R,T,N", "f4", "m", ""),
    TraceArray("lane", "R,T,N", "i4", "lane", "-1 = none"),
    TraceArray("lane_offset", "R,T,N", "f4", "m", "left of the lane's centre line is positive; 0 without lane"),
    TraceArray("lane_heading_error", "R,T,N", "f4", "rad", "heading minus the lane's; 0 without lane"),
    TraceArray("lane_arc", "R,T,N", "f4", "m", "position along the lane; 0 without lane"),
    TraceArray("status", "R,T,N", "u1", "code", "skidpad.scenes.events.Status"),
    TraceArray("events", "R,T,N", "u4", "bits", "skidpad.scenes.events.Event"),
    TraceArray("contact_partner", "R,T,N", "i4", "agent", "agent met first in the step, -1 = none"),
    TraceArray(
        "contact_time", "R,T,N", "f4", "1", "share of the step at which the first contact began; 0 without contact"
    ),
    TraceArray(
        "goal_index", "R,T,N", "i4", "", "goals reached so far, over all sets; the next one is goals[goal_index]"
    ),
    TraceArray(
        "goals",
        "R,M,G,3",
        "f4",
        "m",
        "goals of the agents under test: those reached, in order, then those still ahead at the end; NaN beyond "
        "goal_count",
    ),
    TraceArray("goal_count", "R,M", "i4", "", "goals assigned over the episode"),
    TraceArray("goal_first", "R,M", "i4", "", "how many of them stood at state 0: the first set"),
    TraceArray("signal_state", "R,T,S", "u1", "code", "as in the scene"),
    TraceArray("scored", "M", "i4", "agent", "agents under test, ascending"),
    TraceArray("type", "N", "u1", "code", "what each agent is, as in the scene"),
    TraceArray("subtype", "N", "u1", "code", "as in the scene"),
    TraceArray("source_id", "N", "i8", "", "id in the source file; of a spawned agent its number"),
    TraceArray("controller", "N", "u1", "code", "skidpad.scenes.events.Controller"),
    TraceArray("exclusion", "N", "u1", "code", "skidpad.scenes.events.Exclusion"),
    TraceArray("policy_agent", "Q", "i4", "agent", "agents that a policy drove, ascending"),
    TraceArray(
        "action",
        "R,U,Q,A",
        "f4",
        "",
        "as the policy gave it, U = T - 1 steps; a discrete index is stored as its number",
    ),
    TraceArray("action_applied", "R,U,Q,2", "f4", "m/s^2, rad", "acceleration and steering command after clipping"),
    TraceArray("action_clipped", "R,U,Q", "b1", "", "the action lay outside the box"),
    TraceArray("observation", "R,U,Q,D", "f4", "", "what the policy saw before the action; D = 0 unless recorded"),
    TraceArray("value", "R,U,Q,V", "f4", "", "what it expected; V = 0 unless recorded and the policy has a value"),
    TraceArray(
        "distribution",
        "R,U,Q,K",
        "f4",
        "",
        "what it could have done: probability of each discrete action, or means then deviations in the box; K = 0 "
        "unless recorded and the policy has one",
    ),
)


_EXPECTED = [(spec, np.dtype(spec.dtype), spec.shape.count(",") + 1) for spec in TRACE_ARRAYS]


@dataclass(frozen=True)
class TraceMeta:
    """What a trace is a record of.

    dt_us             integer microseconds per step
    start_row         log row of state 0
    state_hash        one digest per state (and rollout, concatenated): equal runs have equal hashes at every step
    ego               agent under test in one-ego cases, -1 otherwise
    ego_rule          how the ego was chosen: "scene", "each", "longest_valid", or "" where there is none
    settings          the resolved environment settings that change what happens
    observed          what the columns of `observation` and `distribution` are; {} unless they were recorded
    """

    case: str
    arm: str
    evaluator: str
    scene_id: str
    scene_digest: str
    dt_us: int
    start_row: int
    action_selection: str
    profile: str
    ego: int
    ego_rule: str
    end_reason: str
    settings: Mapping[str, Any]
    observed: Mapping[str, Any]
    state_hash: tuple[str, ...]

    @property
    def dt(self) -> float:
        """Seconds per step."""
        return self.dt_us * 1e-6


class _Settings:
    """The settings that were digested last: traces of one rollout share them, and they are most of a trace's digest."""

    def __init__(self) -> None:
        self._last: tuple[Mapping[str, Any], Encoded] | None = None

    def part(self, settings: Mapping[str, Any]) -> Encoded:
        if self._last is None or self._last[0] is not settings:
            self._last = (settings, encoded(settings))
        return self._last[1]


_settings = _Settings()


@dataclass(frozen=True, eq=False)
class Trace:
    """What happened in one case. Shapes, dtypes and units: `TRACE_ARRAYS`."""

    meta: TraceMeta
    arrays: Mapping[str, NDArray[Any]]

    def __post_init__(self) -> None:
        for spec, dtype, axes in _EXPECTED:
            array = self.arrays[spec.name]
            if array.dtype != dtype or array.ndim != axes:
                raise TypeError(
                    f"trace array {spec.name}: {array.dtype} {array.shape}, expected {spec.dtype} ({spec.shape})"
                )

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[name]

    @property
    def steps(self) -> int:
        """Steps taken: states minus one."""
        return int(self.arrays["x"].shape[1]) - 1

    @cached_property
    def hashes(self) -> Encoded:
        """The hashes of its states, as a part of what is digested."""
        return encoded(list(self.meta.state_hash))

    @cached_property
    def digest(self) -> str:
        """Identity of what happened: every array and the metadata."""
        meta = {key: list(value) if isinstance(value, tuple) else value for key, value in vars(self.meta).items()}
        meta["settings"], meta["state_hash"] = _settings.part(self.meta.settings), self.hashes
        return digest_value({"arrays": digest_arrays(self.arrays, "trace arrays"), "meta": meta}, "trace")
