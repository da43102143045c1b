"""What every metric looks at: the agents under test of one case, as float64 series over steps.

A trace is states of all agents; a metric asks about steps of the agents under test while they were driving. The view
does that selection once per case, so that metrics are a few lines each and agree on what "active" means. It adds no
information: everything here is a pure function of trace and scene.

Several cases of one scene that ran equally long are one view, since calls cost more than the numbers in them: their
agents under test stand one below the other, and no value of an agent depends on which cases share its view.

Letters: K cases, M agents under test of all of them, N agents of each, T states, U = T - 1 steps; step u leads from
state u to state u + 1. A step is *active* when its agent was active as it began; what the agent met in the step that
stopped it therefore counts, and nothing after it does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import fields, replace
from functools import cached_property, lru_cache, wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import ProtocolError
from skidpad.runs.trace import Trace
from skidpad.scenes.events import Status
from skidpad.scenes.scene import EDGE_UNKNOWN, SIGNAL_LIGHT, SIGNAL_STOP, SIGNAL_YIELD, RoadMap, Scene, Tracks

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]
T = TypeVar("T")

# Arrays of (agents under test, states, agents) are made so many numbers at a time: large ones leave the caches of a
# processor, and a scene of hundreds of agents under test would fill the memory.
MOST_NUMBERS = 1 << 18

# Why a value is missing. The position is the code; 0 means that it is there.
REASONS = (
    "",
    "no_map",
    "no_lane",
    "no_limit",
    "no_signal",
    "no_log",
    "no_exposure",
    "too_short",
    "not_applicable",
)


class AgentValues(NamedTuple):
    """One metric of every agent under test (of the case, for joint metrics: M = 1).

    numerator    (M,)  f64  the value itself, or the counted part of an exposure metric
    denominator  (M,)  f64  1, or the exposure; 0 where nothing was measured
    reason       (M,)  u1   position in REASONS; 0 = valid
    """

    numerator: F64
    denominator: F64
    reason: NDArray[np.uint8]

    @property
    def valid(self) -> Bool:
        return np.asarray(self.reason == 0)

    @property
    def value(self) -> F64:
        """(M,) f64, numerator over denominator; 0 where invalid, so look at `valid` first."""
        return np.divide(self.numerator, self.denominator, out=np.zeros_like(self.numerator), where=self.valid)


def measured(numerator: Any, denominator: Any = 1.0, *missing: tuple[Any, str]) -> AgentValues:
    """Values of M agents; each `missing` is (mask or bool, reason), the first that applies to an agent wins.

    An exposure of zero is missing too (`no_exposure`) but keeps its numerator: sums over cases need it.

    numerator    (M,)          f64
    denominator  (M,) or ()    f64
    """
    top = np.array(numerator, dtype=np.float64)
    bottom = np.empty_like(top)
    bottom[...] = denominator
    code = np.zeros(top.shape, dtype=np.uint8)
    for mask, reason in missing:
        if mask is not False:
            code[(code == 0) & mask] = REASONS.index(reason)
    top[code != 0] = 0.0
    bottom[code != 0] = 0.0
    code[(code == 0) & (bottom == 0.0)] = REASONS.index("no_exposure")
    return AgentValues(top, bottom, code)


def mean_over(values: F64 | Bool, steps: Bool, *missing: tuple[Any, str]) -> AgentValues:
    """Mean over the chosen steps; an agent without any is missing.

    values  (M, U)  f64 or bool
    steps   (M, U)  bool
    """
    count = steps.sum(axis=1)
    total = np.where(steps, values, 0.0).sum(axis=1)
    return measured(total / np.maximum(count, 1), 1.0, *missing, (count == 0, "no_exposure"))


class CaseView:
    """Cases of one scene, seen from their agents under test. Agent n is track n of the scene; on a bare map, where
    agents are no tracks, the scene's own log is hidden, so that whoever asks for one finds none.

    traces  one, or several that may share a view (`fits`)

    traces  one per case
    case    (M,)  i64  whose agent under test a row is
    agents  (M,)  i64  which agent of its case
    meta    of the first case: the fields in which cases that share a view agree are those of all

    Raises ProtocolError for a trace of several rollouts, of another scene, or with more agents than the scene has
    tracks."""

    def __init__(self, traces: Trace | Sequence[Trace], scene: Scene) -> None:
        self.traces = (traces,) if isinstance(traces, Trace) else tuple(traces)
        for trace in self.traces:
            _check(trace, scene)
        first = self.traces[0]
        if _is_bare(first):
            scene = _without_log(scene, first)
        if first["x"].shape[2] != scene.tracks.count:
            raise ProtocolError(
                f"case {first.meta.case}: {first['x'].shape[2]} agents in the trace, {scene.tracks.count} tracks in "
                "its scene, expected as many: agents of a replay are the tracks."
            )
        self.scene = scene
        self.meta = first.meta
        self.steps = first.steps
        self.dt = first.meta.dt
        self.case = np.repeat(np.arange(len(self.traces)), [len(trace["scored"]) for trace in self.traces])
        self.agents = np.concatenate([trace["scored"] for trace in self.traces]).astype(np.int64)
        self._one_each = np.array_equal(self.case, np.arange(len(self.traces)))
        self._made: dict[Hashable, Any] = {}

    @staticmethod
    def fits(trace: Trace) -> Hashable:
        """Traces may share a view where this is equal and their scene is the same."""
        meta = trace.meta
        # Agents of bare maps are no tracks: each episode has its own.
        alone = id(trace) if _is_bare(trace) else 0
        return (alone, meta.dt_us, meta.start_row, trace["x"].shape, meta.settings.get("offroad"))

    def once(self, name: Hashable, make: Callable[[CaseView], T]) -> T:
        """`make(self)`, computed the first time somebody asks for `name`."""
        if name not in self._made:
            self._made[name] = make(self)
        found: T = self._made[name]
        return found

    @property
    def count(self) -> int:
        """M, agents under test."""
        return len(self.agents)

    def crowd(self, name: str) -> NDArray[Any]:
        """(K, T, N), a trace array of all agents of each case."""
        if len(self.traces) == 1:
            return self.traces[0][name]
        return self.once(("crowd", name), lambda view: np.concatenate([trace[name] for trace in view.traces]))

    def whole(self, name: str) -> NDArray[Any]:
        """(M, T), a trace array of the agents under test as it stands there."""
        return np.ascontiguousarray(self.crowd(name)[self.case, :, self.agents])

    def kinds(self, name: str) -> NDArray[Any]:
        """(K, N), a trace array that has one value per agent."""
        return self.once(("kinds", name), lambda view: np.stack([trace[name] for trace in view.traces]))

    def goals(self, name: str) -> NDArray[Any]:
        """(M,), a trace array that has one value per agent under test."""
        return np.concatenate([trace[name][0] for trace in self.traces])

    def blocks(self) -> Iterator[slice]:
        """Rows of agents under test, as many together as MOST_NUMBERS allow for (rows, T, N) arrays."""
        size = max(1, MOST_NUMBERS // max(1, (self.steps + 1) * self.scene.tracks.count))
        return (slice(first, min(first + size, self.count)) for first in range(0, self.count, size))

    def around(self, crowd: NDArray[Any], rows: slice) -> NDArray[Any]:
        """(R, U, N), everybody in the cases of some agents under test, at the end of each step; crowd (K, T, N)."""
        # With one agent under test per case nothing need be copied.
        return np.asarray(crowd[rows, 1:] if self._one_each else crowd[self.case[rows], 1:])

    def own(self, crowd: NDArray[Any], rows: slice) -> NDArray[Any]:
        """(R, U, 1), some agents under test themselves, at the end of each step; crowd (K, T, N)."""
        return np.asarray(crowd[self.case[rows], 1:, self.agents[rows]][:, :, None])

    def states(self, name: str) -> F64:
        """(M, T) f64, a trace array of the agents under test; unit as in TRACE_ARRAYS."""
        return self.once(("states", name), lambda view: view.whole(name).astype(np.float64))

    def ends(self, name: str) -> F64:
        """(M, U) f64, the same at the end of each step."""
        return self.states(name)[:, 1:]

    @cached_property
    def status(self) -> NDArray[np.uint8]:
        """(M, T) u1, skidpad.scenes.events.Status."""
        return self.whole("status")

    @cached_property
    def active(self) -> Bool:
        """(M, U) bool, steps that the agent began active and for which its log or body did not simply end."""
        begins, ends = self.status[:, :-1], self.status[:, 1:]
        return np.asarray((begins == Status.ACTIVE) & (ends != Status.ABSENT) & (ends != Status.EMPTY))

    @cached_property
    def driven(self) -> Bool:
        """(M, U) bool, active steps at whose end the agent still has a body, so that its motion is known."""
        ends = self.status[:, 1:]
        return np.asarray(self.active & ((ends == Status.ACTIVE) | (ends == Status.STOPPED)))

    @cached_property
    def never_active(self) -> Bool:
        """(M,) bool."""
        return ~np.asarray(self.active.any(axis=1))

    @cached_property
    def events(self) -> NDArray[np.uint32]:
        """(M, U) u4, event bits found in each step; 0 in steps that were not active."""
        bits = self.whole("events")[:, 1:]
        return np.where(self.active, bits, np.uint32(0))

    def happened(self, bits: int) -> Bool:
        """(M, U) bool, active steps with any of the event bits."""
        return np.asarray((self.events & np.uint32(bits)) != 0)

    @cached_property
    def step_length(self) -> F64:
        """(M, U) f64 [m], distance moved in the plane in each driven step, 0 in others."""
        x, y = self.states("x"), self.states("y")
        return np.where(self.driven, np.hypot(np.diff(x), np.diff(y)), 0.0)

    @cached_property
    def turn(self) -> F64:
        """(M, U) f64 [rad], change of heading in each driven step by the shorter way, 0 in others."""
        change = np.diff(self.states("heading"))
        return np.where(self.driven, np.remainder(change + np.pi, 2 * np.pi) - np.pi, 0.0)

    @cached_property
    def lane(self) -> NDArray[np.int32]:
        """(M, U) i4 lane at the end of each step, -1 = none."""
        return self.whole("lane")[:, 1:]

    @cached_property
    def on_lane(self) -> Bool:
        """(M, U) bool, driven steps that end on a lane."""
        return np.asarray(self.driven & (self.lane >= 0))

    @cached_property
    def limit(self) -> F64:
        """(M, U) f64 [m/s], speed limit at the end of each step; NaN where unknown or off the lanes."""
        if not self.has_lanes:
            return np.full(self.lane.shape, np.nan)
        limit = self.scene.road.speed_limit.astype(np.float64)[np.maximum(self.lane, 0)]
        return np.where(self.lane >= 0, limit, np.nan)

    @property
    def has_lanes(self) -> bool:
        return self.scene.road.lane_count > 0

    @property
    def has_edges(self) -> bool:
        kinds = self.scene.road.element_type
        return bool(np.any((kinds >= EDGE_UNKNOWN) & (kinds < EDGE_UNKNOWN + 10)))

    @property
    def has_lights(self) -> bool:
        return bool(np.any(self.scene.signals.kind == SIGNAL_LIGHT))

    @property
    def has_stop_signs(self) -> bool:
        return bool(np.any(self.scene.signals.kind == SIGNAL_STOP))

    @property
    def has_yields(self) -> bool:
        return bool(np.any(self.scene.signals.kind == SIGNAL_YIELD))

    @cached_property
    def log_rows(self) -> tuple[F64, F64, F64, Bool]:
        """The agents' own recorded tracks at the time of every state: x, y (M, T) f64 [m], z (M, T) f64 [m], valid.

        Between two rows of the log the position is linear and valid where both are.
        """
        tracks, meta = self.scene.tracks, self.meta
        steps = self.steps
        time_us = np.arange(steps + 1, dtype=np.int64) * meta.dt_us
        row, rest = np.divmod(time_us, self.scene.meta.dt_us)
        row = row + meta.start_row
        share = rest / self.scene.meta.dt_us
        after = np.where(rest > 0, row + 1, row)
        inside = after < tracks.x.shape[1]
        row, after = np.where(inside, row, 0), np.where(inside, after, 0)
        owner = np.asarray(self.agents)[:, None]
        if tracks.x.shape[1] == 0:
            nothing = np.zeros((self.count, steps + 1))
            return nothing, nothing, nothing, np.zeros(nothing.shape, dtype=bool)
        valid = tracks.valid[owner, row] & tracks.valid[owner, after] & inside
        x, y, z = (
            np.where(valid, (1 - share) * array[owner, row] + share * array[owner, after], 0.0)
            for array in (tracks.x, tracks.y, tracks.z)
        )
        return x, y, z, np.asarray(valid)


def _check(trace: Trace, scene: Scene) -> None:
    if trace["x"].shape[0] != 1:
        raise ProtocolError(
            f"case {trace.meta.case}: {trace['x'].shape[0]} rollouts in the trace, expected 1. "
            "Driving metrics score one rollout; hand them over one at a time."
        )
    if trace.meta.scene_digest != scene.digest:
        raise ProtocolError(
            f"case {trace.meta.case}: the trace was recorded in scene {trace.meta.scene_digest[:12]}, "
            f"this is {scene.meta.scene_id} ({scene.digest[:12]}). Pass the scene that the trace names."
        )


def _is_bare(trace: Trace) -> bool:
    return bool(trace.meta.settings.get("simulation_mode") == "gigaflow")


def _without_log(scene: Scene, trace: Trace) -> Scene:
    """The scene with the agents of a trace in the place of its tracks, none of which was ever recorded, has a goal of a
    log or a route."""
    count, rows = trace["x"].shape[2], scene.tracks.x.shape[1]
    empty = {
        item.name: np.zeros(
            (count, *getattr(scene.tracks, item.name).shape[1:]), getattr(scene.tracks, item.name).dtype
        )
        for item in fields(Tracks)
    }
    empty |= {name: trace[name] for name in ("type", "subtype", "source_id")}
    empty |= {"route_offset": np.zeros(count + 1, np.int32), "route_lane": np.zeros(0, np.int32)}
    empty |= {"first": np.full(count, -1, np.int32), "last": np.full(count, -1, np.int32)}
    hidden = replace(scene, tracks=Tracks(**empty), meta=replace(scene.meta, sdc=-1, tracks_to_predict=(), steps=rows))
    vars(hidden)["digest"] = scene.digest  # It is the same scene for whoever asks which one.
    return hidden


def shared(function: Callable[..., T]) -> Callable[..., T]:
    """A function of a view and keyword parameters that is computed once per view and parameters: scores ask for each
    other's terms. Nobody may write into what it returns."""

    @wraps(function)
    def ask(view: CaseView, **parameters: float) -> T:
        key = (function, tuple(sorted(parameters.items())))
        return view.once(key, lambda view: function(view, **parameters))

    return ask


@lru_cache(maxsize=16)
def _shelf(owner: object) -> dict[Hashable, Any]:
    return {}


def kept(owner: Scene | RoadMap, name: Hashable, make: Callable[[], T]) -> T:
    """`make()`, computed the first time somebody asks for `name` of a scene or a road: for what the next case in the
    same scene needs again. The last few scenes and roads are remembered."""
    shelf = _shelf(owner)
    if name not in shelf:
        shelf[name] = make()
    found: T = shelf[name]
    return found
