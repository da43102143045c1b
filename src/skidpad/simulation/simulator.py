"""Simulator: worlds being simulated, stepped together.

Everything is checked and allocated here, once; the loops are kernels. Worlds keep the caller's order in every array,
but are visited ordered by scene: one kernel call per phase covers a stretch of that order and finds each world's scene
in the slot table. Threads take contiguous stretches. One iteration owns one world, hence the same bytes for any number
of threads, any batch and any order.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import ActionError, CaseError, ProtocolError, SettingsError, listed
from skidpad.scenes.case import Case
from skidpad.scenes.events import Controller, Ending, Status
from skidpad.scenes.map_cache import MapCache, memory_cache
from skidpad.scenes.scene import TYPE_VEHICLE, Scene
from skidpad.settings.schema import ControllerName, EnvSettings
from skidpad.simulation import state as at
from skidpad.simulation.actions import action_scales, action_space, models
from skidpad.simulation.coefficients import COEF_ROWS, coefficient_table
from skidpad.simulation.layout import layout_of
from skidpad.simulation.layout_table import Layout
from skidpad.simulation.population import Population, Span, select, span, with_goals
from skidpad.simulation.rewards import TERM_COUNT, RewardFunction
from skidpad.simulation.slots import BATCH, SCRATCH, SLOT, ArrayTable
from skidpad.simulation.stage import Stage
from skidpad.simulation.ways import Ways


class StepResult(NamedTuple):
    """What policy rows get back; views into the simulator's buffers, valid until the next call.

    obs        (N, D)  f32   as the layout declares; zero rows for ended worlds
    terminal   (N,)    bool  the agent left in this step, with its track; its row is silent from here on
    truncated  (N,)    bool  the world ended in this step, with the agent in it
    mask       (N,)    bool  the row was live in this step and is not tampered with (S65)
    events     (N,)    u32   skidpad.scenes.events.Event, of the step that led here
    reward     (N,)    f32   sum of the terms, or what the caller's function made of them
    reward_terms  (N, K)  f32   columns of `rewards.TERMS`
    """

    obs: NDArray[np.float32]
    terminal: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    mask: NDArray[np.bool_]
    events: NDArray[np.uint32]
    reward: NDArray[np.float32]
    reward_terms: NDArray[np.float32]


class Simulator:
    """Worlds over cases, in the caller's order.

    `cache`: where map indexes come from; without one they are made in this process, and shared inside it. No result
    depends on it.

    `substitute`: who drives the agents under test instead of the policy ("idm", "replay", "static"): how baseline arms
    run on the very same agents of the same cases; everybody else keeps the settings' controllers.

    `reward`: what to make of the terms and events of all rows, instead of their sum (S101). It is called in every step.

    row_world        (N,)     i32    world of each policy row; rows are sorted by world, then agent
    row_agent        (N,)     i32    agent inside its world (= track of the scene)
    row_seed         (N,)     u64    case seed of the row's world; with row_key, the identity of its random stream
    row_key          (N,)     u32    stable key of the agent
    world_agents     (W + 1,) i32    offsets of worlds in the flat agent arrays
    agent            name -> (A,)    live views: the arrays of a trace with axes (R, T, N), under the same names
    world_steps      (W,)     i64    steps each world runs
    steps_taken      (W,)     i64
    done             (W,)     bool   the world has ended
    dt_us            (W,)     i64    microseconds per step of each world
    applied_actions  (N, 2)   f32    [m/s^2, rad] command of the last step after clipping
    clipped          (N,)     bool   the last action lay outside the box
    overflow         (N, 4)   i32    partners, road rows (of both blocks) and stop lines that found no observation slot
    result                           the StepResult of the last call

    Raises CaseError (with `.world`) where a case has nobody under test or its log is too short, ProtocolError for no
    case, a missing scene or a scene that is not the case's.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        settings: EnvSettings,
        *,
        scenes: Mapping[str, Scene],
        threads: int = 1,
        cache: MapCache | None = None,
        substitute: ControllerName | None = None,
        reward: RewardFunction | None = None,
    ) -> None:
        if not cases:
            raise ProtocolError("no case: a simulator needs at least one world")
        if threads < 1:
            raise ProtocolError(f"threads is {threads}; at least 1 is needed")
        self.cases = tuple(cases)
        self.settings = settings
        self.layout = layout_of(settings)
        self.actions = action_space(settings)
        self._custom_reward = reward
        self._stages: dict[str, Stage] = {}
        self._stage_of: list[Stage] = []
        self._populations: list[Population] = []
        self._spans: list[Span] = []
        chosen: dict[tuple[str, int] | str, Population] = {}
        by_case = settings.simulation_mode == "gigaflow" or settings.init_spread
        for w, case in enumerate(self.cases):
            scene = scenes.get(case.scene_digest)
            if scene is None:
                raise ProtocolError(f"world {w}: scene {case.scene_id} is not among the {len(scenes)} scenes given")
            try:
                if case.scene_digest not in self._stages:
                    self._stages[case.scene_digest] = Stage(scene, settings, cache or memory_cache())
                self._spans.append(span(scene, case, settings))
                key = case.id if by_case else (case.scene_digest, case.ego)
                if key not in chosen:
                    chosen[key] = select(scene, case, settings, substitute=substitute)
            except CaseError as error:
                raise CaseError(str(error), world=w) from error
            self._stage_of.append(self._stages[case.scene_digest])
            self._populations.append(chosen[key])
        self._allocate()
        self._share_out(threads)
        self._fill_tables()
        self._phases = Phases.load(settings, self.layout.family)
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._started = False
        self._closed = False

    # ------------------------------------------------------------------ construction

    def _allocate(self) -> None:
        """All buffers, and what stays constant in them."""
        populations, stages = self._populations, self._stage_of
        worlds = len(self.cases)
        counts = np.array([len(p.exists) for p in populations])
        self.world_agents = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        agents = int(self.world_agents[-1])
        rows = np.array([len(p.policy) for p in populations])
        self._world_rows = np.concatenate([[0], np.cumsum(rows)]).astype(np.int32)
        self.row_world = np.repeat(np.arange(worlds, dtype=np.int32), rows)
        self.row_agent = np.concatenate([p.policy for p in populations]).astype(np.int32)
        self._row_flat = self.world_agents[self.row_world] + self.row_agent
        self._seeds = np.array([case.seed for case in self.cases], np.uint64)
        self.row_seed = self._seeds[self.row_world]
        self.row_key = self.row_agent.astype(np.uint32)

        columns = spread(agents)
        self._f4 = np.zeros((len(at.FLOAT_STATE), columns), np.float32)
        self._i4 = np.zeros((len(at.INT_STATE), columns), np.int32)
        self._u1 = np.zeros((len(at.BYTE_STATE), columns), np.uint8)
        self._coef = np.zeros((COEF_ROWS, columns), np.float32)
        self._coefficients = coefficient_table(self.settings)
        self._events = np.zeros(agents, np.uint32)
        self._world = np.zeros((at.WORLD_ROWS, worlds), np.int64)
        number = {id(stage): slot for slot, stage in enumerate(self._stages.values())}
        self._world[at.SLOT] = [number[id(stage)] for stage in stages]
        self._world[at.STEPS] = [one.steps for one in self._spans]
        self._world[at.START_ROW] = [one.start_row for one in self._spans]
        self._world[at.EGO] = [population.ego for population in populations]
        self.dt_us = np.array([stage.dt_us for stage in stages], np.int64)
        pairs = counts.astype(np.int64) * (counts - 1) // 2
        self._pair_start = np.concatenate([[0], np.cumsum(pairs)]).astype(np.int64)
        self._pair = np.zeros(int(self._pair_start[-1]), np.uint8)

        self._i4[at.GOAL_SLOT] = -1
        self._ways = Ways.allocate(self.settings, populations, stages, self._spans)
        for w, population in enumerate(populations):
            a = self._agents(w)
            self._u1[at.CONTROLLER, a], self._u1[at.EXCLUSION, a] = population.controller, population.exclusion
            self._u1[at.TYPE, a], self._u1[at.SUBTYPE, a] = population.type, population.subtype
            self._u1[at.WATCHED, a] = population.type == TYPE_VEHICLE
            self._u1[at.MODEL, a] = models(self.settings, population.controller, population.type)
            self._i4[at.KEY, a] = np.arange(len(population.exists))
            slot = self._ways.slots(w)
            self._i4[at.GOAL_SLOT, a.start + with_goals(population)] = np.arange(slot.start, slot.stop)
        policy = self._u1[at.CONTROLLER] == Controller.POLICY
        self._drawn = (policy & self.settings.randomise).astype(np.uint8)

        count = len(self.row_world)
        self._obs = observation_rows(count, self.layout, self.settings.obs_dtype)
        self._commands = np.zeros((count, 2), np.float32)
        self._flags = np.zeros((at.FLAGS, count), np.bool_)
        self._reward = np.zeros(count, np.float32)
        self._terms = np.zeros((count, TERM_COUNT), np.float32)
        discrete = self.settings.action_type == "discrete"
        self._box_actions = np.zeros((0 if discrete else count, 2), np.float32)
        self._index_actions = np.zeros(self.actions.shape(count if discrete else 0, True)[0], np.int32)
        self._row_events = np.zeros(count, np.uint32)
        self.overflow = np.zeros((count, 4), np.int32)
        self.clipped = self._flags[at.CLIPPED]
        self.applied_actions = self._commands
        self.done = np.ones(worlds, np.bool_)
        self.steps_taken = self._world[at.STEP]
        self.world_steps = self._world[at.STEPS]
        self._told: dict[int, str] = {}
        self.result = StepResult(
            self._obs, self._flags[0], self._flags[1], self._flags[2], self._row_events, self._reward, self._terms
        )
        views: dict[str, NDArray[Any]] = {"events": self._events[:]}
        for table, block in ((at.FLOAT_STATE, self._f4), (at.INT_STATE, self._i4), (at.BYTE_STATE, self._u1)):
            views |= {field.name: block[row, :agents] for row, field in enumerate(table) if field.traced}
        for view in views.values():
            view.flags.writeable = False
        self.agent: Mapping[str, NDArray[Any]] = MappingProxyType(views)

    def _fill_tables(self) -> None:
        """Say where everything lies: the batch, and a slot per scene."""
        self._batch = ArrayTable(BATCH, 1)
        no_rows = np.zeros((0, self.layout.size), np.float32)
        own: dict[str, NDArray[Any]] = {
            "order": self._order,
            "world": self._world,
            "seeds": self._seeds,
            "world_agents": self.world_agents,
            "world_rows": self._world_rows,
            "row_flat": self._row_flat,
            "f4": self._f4,
            "i4": self._i4,
            "u1": self._u1,
            "events": self._events,
            "pair": self._pair,
            "pair_start": self._pair_start,
            "box_actions": self._box_actions,
            "index_actions": self._index_actions.reshape(-1, len(self.actions.factors)),
            "action_scales": action_scales(self.settings),
            "action_box": self.actions.box,
            "action_factors": np.array(self.actions.factors, np.int64),
            "coef": self._coef,
            "commands": self._commands,
            "flags": self._flags,
            "row_events": self._row_events,
            "reward": self._reward,
            "terms": self._terms,
            "obs": self._obs if self._obs.dtype == np.float32 else no_rows,
            "obs16": self._obs.view(np.uint16) if self._obs.itemsize == 2 else no_rows.astype(np.uint16),
            "obs8": self._obs if self._obs.itemsize == 1 else no_rows.astype(np.int8),
            "packing": np.array([PACKINGS[self.settings.obs_dtype]], np.int32),
            "spans": self.layout.spans,
            "final_obs": no_rows,
            "overflow": self.overflow,
            "done": self.done,
        }
        self._batch.put(0, own | self._ways.arrays)
        self._slot_table = ArrayTable(SLOT, len(self._stages))
        for slot, stage in enumerate(self._stages.values()):
            self._slot_table.put(slot, stage.arrays)

    def _share_out(self, threads: int) -> None:
        """Order worlds by slot and cut the order into one stretch per thread, of about as many agents each."""
        order = np.argsort(self._world[at.SLOT], kind="stable").astype(np.int32)
        weights = np.cumsum(np.diff(self.world_agents)[order])
        cuts = np.searchsorted(weights, weights[-1] * np.arange(1, threads) / threads, side="right")
        bounds = np.unique([0, *cuts.tolist(), len(order)])
        self._order = order
        self._stretches = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
        largest = int(np.diff(self.world_agents).max())
        lanes = max(stage.scene.road.lane_count for stage in self._stages.values())
        self._scratch = ArrayTable(SCRATCH, len(self._stretches))
        for part in range(len(self._stretches)):
            self._scratch.put(part, scratch_arrays(largest, self.layout, lanes, self._obs.dtype != np.float32))

    def _work(self, part: int) -> int:
        """One thread's stretch of a step; returns how many worlds broke."""
        first, end = self._stretches[part]
        batch, slots, scratch = self._batch.entries[0], self._slot_table.entries, self._scratch.entries[part]
        phases = self._phases
        phases.advance(batch, slots, scratch, first, end)
        phases.detect(False, batch, slots, scratch, first, end)
        broken: int = phases.outcomes(batch, slots, scratch, first, end)
        phases.observe(batch, slots, scratch, first, end)
        return broken

    # ------------------------------------------------------------------ life cycle

    def reset(self, worlds: Sequence[int] | None = None) -> StepResult:
        """Start the named worlds again (all by default); the others are untouched.

        Raises ProtocolError after close, or for a number that is no world.
        """
        self._check_open()
        everything = range(len(self.cases))
        named = list(everything) if worlds is None else sorted({int(w) for w in worlds})
        unknown = [w for w in named if w not in everything]
        if unknown:
            raise ProtocolError(f"no such world: {listed(unknown)}; there are {len(self.cases)}")
        if not named:
            return self.result
        if not self._started and len(named) < len(self.cases):
            raise ProtocolError("the first reset starts all worlds; name some of them only afterwards")
        for w in named:
            self._start(w)
        order = self._order
        if len(named) < len(self.cases):
            order = np.array(named, np.int32)
            self._batch.put(0, {"order": order})
        arguments = (self._batch.entries[0], self._slot_table.entries, self._scratch.entries[0], 0, len(order))
        if not self._started:
            self._phases.compile_ahead(arguments, self._take)
        self._phases.start(*arguments)
        self._batch.put(0, {"order": self._order})
        rows = np.isin(self.row_world, named)
        self._flags[:, rows] = False
        self._flags[at.MASK, rows] = True
        self._commands[rows] = 0.0
        self._row_events[rows] = 0
        self._reward[rows] = 0.0
        self._terms[rows] = 0.0
        self._started = True
        return self.result

    def _start(self, w: int) -> None:
        """Put one world into state 0, where its log has everybody."""
        a, population, stage = self._agents(w), self._populations[w], self._stage_of[w]
        f4, i4, u1 = self._f4[:, a], self._i4[:, a], self._u1[:, a]
        body = np.zeros(len(population.exists), np.bool_)
        f4[:] = 0.0
        f4[[at.COS, at.LANE_COS]] = 1.0
        if self.settings.simulation_mode == "replay":  # On a bare map the spawn kernel puts them.
            pose = stage.log[self._spans[w].start_row]
            body = population.exists & (pose[:, at.LOG_LENGTH] > 0)
            for field, column in _START_COLUMNS:
                f4[field, body] = pose[body, column]
            f4[at.SPEED, population.controller == Controller.STATIC] = 0.0
        self._ways.start(w)
        for field in (at.LANE, at.PREVIOUS_LANE, at.BEFORE_LANE, at.CONTACT_PARTNER, at.RED_SIGNAL, at.STOP_SIGNAL):
            i4[field] = -1
        for field in (at.GOAL_INDEX, at.GOAL_NEXT, at.GOAL_SETS, at.ACTIVE_STEPS, at.REASON):
            i4[field] = 0
        for field in (at.AGE, at.BLIND_STEPS, at.BRAKE_STEPS):
            i4[field] = 0
        u1[at.STATUS] = np.where(body, Status.ACTIVE, np.where(population.exists, Status.ABSENT, Status.EMPTY))
        u1[at.BODY], u1[at.BEFORE_BODY] = body, False
        u1[[at.TOUCHING, at.BRAKED, at.GHOST, at.OFF_ROAD]] = 0
        for row in (at.STEP, at.DONE, at.FAULT, at.FAULT_AGENT, at.EPISODE, at.ENDING):
            self._world[row, w] = 0
        self.done[w] = False
        self._phases.draw_coefficients(
            a.start, a.stop, self._seeds[w], 0, self._i4[at.KEY], self._drawn, self._coefficients, self._coef
        )

    def step(self, actions: NDArray[Any]) -> StepResult:
        """One step of every world that has not ended.

        actions  (N, 2) f32 in [-1, 1] for a continuous world, (N,) i32 for a discrete one; rows of agents that have
                 left are ignored

        Raises ProtocolError before reset, after close, when every world has ended, or for a wrong shape or dtype;
        ActionError (with `.world`) for a value that is no action, state untouched; CaseError (with `.world`) when a
        state is not finite: that world has ended, the others have taken their step and `result` holds it.
        """
        self._check_open()
        if not self._started:
            raise ProtocolError("step before reset: call reset() first")
        if self.done.all():
            raise ProtocolError("every world has ended: call reset() before the next step")
        self._read_actions(actions)
        if self._pool is None:
            broken = sum(map(self._work, range(len(self._stretches))))
        else:
            if os.getpid() != self._pid:
                raise ProtocolError("this simulator's threads did not survive the fork: use spawn, or threads=1")
            broken = sum(self._pool.map(self._work, range(len(self._stretches))))
        if broken:
            faulty = np.flatnonzero(self._world[at.FAULT])
            self._world[at.FAULT] = 0
            raise CaseError(self._describe_fault(int(faulty[0])), world=int(faulty[0]))
        if self._custom_reward is not None:
            self._reward[:] = self._custom_reward(self._terms, self._row_events)
        return self.result

    def end(self, world: int, reason: str) -> None:
        """End one world now, for example because its case failed; the others go on, and its rows fall silent."""
        self._check_open()
        if self.done[world]:
            return
        self.done[world] = True
        self._world[at.DONE, world], self._world[at.ENDING, world] = at.SILENT, Ending.TOLD
        self._told[world] = reason
        rows = slice(int(self._world_rows[world]), int(self._world_rows[world + 1]))
        self._flags[:, rows] = False
        for block in (self._obs, self._row_events, self._reward, self._terms, self.overflow, self._commands):
            block[rows] = 0

    def close(self) -> None:
        """Release the threads. Closing twice is harmless; use after it raises ProtocolError."""
        if not self._closed and self._pool is not None and os.getpid() == self._pid:
            self._pool.shutdown()
        self._closed = True

    def __enter__(self) -> Simulator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ProtocolError("this simulator is closed: construct a new one")

    # ------------------------------------------------------------------ actions

    def _read_actions(self, actions: NDArray[Any]) -> None:
        """Check the actions and turn them into commands; nothing is written before everything is checked."""
        discrete = self.settings.action_type == "discrete"
        own = self._index_actions if discrete else self._box_actions
        if not isinstance(actions, np.ndarray) or actions.shape != own.shape or actions.dtype != own.dtype:
            given = f"{actions.dtype} {actions.shape}" if isinstance(actions, np.ndarray) else type(actions).__name__
            raise ProtocolError(
                f"actions are {given}; a {self.settings.action_type} world of {len(own)} policy rows takes "
                f"{own.dtype} {own.shape}"
            )
        if not (actions.flags.c_contiguous and actions.flags.aligned):
            np.copyto(own, actions)
            actions = own
        name, width = ("index_actions", len(self.actions.factors)) if discrete else ("box_actions", 2)
        self._batch.put(0, {name: actions.reshape(-1, width)})
        row = self._take(self._batch.entries[0])
        self._batch.put(0, {name: own.reshape(-1, width)})
        if row < 0:
            return
        if discrete:
            raise self._action_error(row, f"is {actions[row]}, outside the table of {len(self.actions.box)}")
        raise self._action_error(row, f"is {'NaN' if np.isnan(actions[row]).any() else 'infinite'}")

    @property
    def _take(self) -> Any:
        return self._phases.take_index if self.settings.action_type == "discrete" else self._phases.take_box

    def _action_error(self, row: int, what: str) -> ActionError:
        w, agent = int(self.row_world[row]), int(self.row_agent[row])
        track = int(self._populations[w].source_id[agent])
        return ActionError(
            f"action for world {w} (scene {self.cases[w].scene_id}), agent {agent} (row {row}, track {track}) {what} "
            f"at step {int(self.steps_taken[w])}. The state is untouched; send an action, or end the world.",
            world=w,
        )

    def _describe_fault(self, w: int) -> str:
        agent = int(self._world[at.FAULT_AGENT, w])
        values = self._f4[:, self.world_agents[w] + agent]
        broken = [field.name for field, value in zip(at.FLOAT_STATE, values, strict=True) if not np.isfinite(value)]
        track = int(self._populations[w].source_id[agent])
        named = [name for name in broken if name != "lane_limit"]  # NaN there means unknown
        return (
            f"world {w} (scene {self.cases[w].scene_id}), agent {agent} (track {track}): state not finite at step "
            f"{int(self.steps_taken[w])}: {listed(named, len(named))}. This world has ended; please report its case."
        )

    # ------------------------------------------------------------------ what a world is

    def _agents(self, w: int) -> slice:
        return slice(int(self.world_agents[w]), int(self.world_agents[w + 1]))

    def signal_state(self, world: int) -> NDArray[np.uint8]:
        """(S,) u8 signal states at the world's current state."""
        return self._ways.lights(world, int(self.steps_taken[world]))

    def scored(self, world: int) -> NDArray[np.int32]:
        """(M,) i32 agents under test, ascending."""
        return self._populations[world].scored

    def policy_agents(self, world: int) -> NDArray[np.int32]:
        """(Q,) i32 agents that own rows, ascending."""
        return self._populations[world].policy

    def goals(self, world: int) -> NDArray[np.float32]:
        """(M, G, 3) f32 [m] goals of the agents under test, in order; NaN beyond `goal_count`."""
        return self._ways.goals[self._ways.slots(world)][: len(self.scored(world))]

    def goal_count(self, world: int) -> NDArray[np.int32]:
        """(M,) i32 goals assigned."""
        return self._ways.goal_count[self._ways.slots(world)][: len(self.scored(world))]

    def identity(self, world: int) -> dict[str, NDArray[Any]]:
        """What the agents of a world are: `type` and `subtype` (N,) u8 as in the scene, `source_id` (N,) i64."""
        population = self._populations[world]
        return {"type": population.type, "subtype": population.subtype, "source_id": population.source_id}

    def controller(self, world: int) -> NDArray[np.uint8]:
        """(N,) u8 skidpad.scenes.events.Controller of each agent."""
        return self._populations[world].controller

    def exclusion(self, world: int) -> NDArray[np.uint8]:
        """(N,) u8 skidpad.scenes.events.Exclusion of each agent."""
        return self._populations[world].exclusion

    def start_row(self, world: int) -> int:
        """Log row of state 0."""
        return self._spans[world].start_row

    def end_reason(self, world: int) -> str:
        """Why the world ended: "length", "not_finite", or what `end` was told; "" while it runs."""
        ending = Ending(int(self._world[at.ENDING, world]))
        if ending == Ending.TOLD:
            return self._told[world]
        return ending.name.lower() if ending else ""

    def ego(self, world: int) -> tuple[int, str]:
        """(track, rule) of a one-ego world, rule "scene", "each" or "longest_valid"; (-1, "") elsewhere."""
        population = self._populations[world]
        return population.ego, population.ego_rule

    def scene(self, world: int) -> Scene:
        """The scene a world runs on."""
        return self._stage_of[world].scene

    def log_actions(self) -> NDArray[Any]:
        """Actions of every policy row that keep it closest to its log over the next half second (S47): (N, 2) f32 in
        [-1, 1], or (N,) i32. Reads the future of the log: a diagnostic, not a driver."""
        from skidpad.simulation.kernels.oracle import LOOK_AHEAD, follow_log

        self._check_open()
        count = len(self.row_world)
        choice, command = np.zeros(count, np.int32), np.zeros((count, 2), np.float32)
        scratch = np.zeros((LOOK_AHEAD + 1, at.LOG_COLUMNS), np.float32)
        discrete = self.settings.action_type == "discrete"
        for w in np.unique(self.row_world[~self.done[self.row_world]]):
            stage = self._stage_of[w]
            follow_log(
                self.row_agent,
                self.row_world,
                self.world_agents,
                self._world,
                self._f4,
                self._u1,
                self._coef,
                stage.parameters,
                stage.log,
                stage.scene.meta.dt_us,
                stage.dt_us,
                action_scales(self.settings),
                self.actions.box,
                discrete,
                scratch,
                choice,
                command,
                int(self._world_rows[w]),
                int(self._world_rows[w + 1]),
            )
        return self.actions.split(choice) if discrete else command


_START_COLUMNS = (
    (at.X, at.LOG_X),
    (at.Y, at.LOG_Y),
    (at.Z, at.LOG_Z),
    (at.HEADING, at.LOG_HEADING),
    (at.COS, at.LOG_COS),
    (at.SIN, at.LOG_SIN),
    (at.SPEED, at.LOG_SPEED),
    (at.LENGTH, at.LOG_LENGTH),
    (at.WIDTH, at.LOG_WIDTH),
    (at.HEIGHT, at.LOG_HEIGHT),
)


PACKINGS = {"float32": -1, "bfloat16": 0, "float16": 1, "int8": 2}
_OBS_DTYPES: dict[str, Any] = {"float32": np.float32, "bfloat16": np.uint16, "float16": np.float16, "int8": np.int8}


def observation_rows(count: int, layout: Layout, dtype: str) -> NDArray[Any]:
    """The buffer of observations, (N, D); of bfloat16 it holds the bits, u16.

    Raises SettingsError for int8 rows of a layout that is not within [-1, 1]: a step would not be 1/127.
    """
    low, high = layout.bounds()
    if dtype == "int8" and (low.min() < -1 or high.max() > 1):
        raise SettingsError(
            f"env.obs_dtype is int8, but {layout.id} has values beyond [-1, 1], which 127 steps cannot show. "
            "Use bfloat16 or float16, or a native layout such as default/1."
        )
    return np.zeros((count, layout.size), _OBS_DTYPES[dtype])


def spread(agents: int) -> int:
    """Columns of a state block for a number of agents: an odd number of cache lines.

    The fields of one agent are a row apart. Rows of 4 KiB would all compete for one set of the first-level cache, which
    made a step of 2,048 agents more than twice as dear.
    """
    lines = -(-agents // 16)
    return 16 * (lines + 1 - lines % 2)


def scratch_arrays(agents: int, layout: Layout, lanes: int, packed: bool) -> dict[str, NDArray[Any]]:
    """Working memory of one thread for worlds of up to `agents` agents and maps of up to `lanes` lanes: the fields of
    `slots.SCRATCH`. Contents mean nothing between calls. `packed`: observations are not of 32 bits."""
    from skidpad.simulation.kernels.contact import SCRATCH_ROWS
    from skidpad.simulation.kernels.idm import PATH_POINTS
    from skidpad.simulation.kernels.motion import BLOCK
    from skidpad.simulation.kernels.routes import ROUTE_LANES

    rows = max(block.listed or block.rows for block in layout.road_blocks)
    slots = max(block.rows for block in layout.blocks)
    return {
        "path": np.zeros((PATH_POINTS, 4), np.float32),
        "path_lane": np.zeros(PATH_POINTS, np.int32),
        "pose": np.zeros(at.LOG_COLUMNS, np.float32),
        "contacts": np.zeros((SCRATCH_ROWS, agents), np.float64),
        "ids": np.zeros(rows, np.int32),
        "squares": np.zeros(rows, np.float64),
        "near": np.zeros(agents + 1, np.int32),
        "value": np.zeros(agents + 32, np.float32),
        "square": np.zeros(agents, np.float32),
        "hidden": np.zeros(agents, np.float32),
        "packed": np.zeros((agents, 16), np.float32),
        "slots": np.zeros(max(agents, slots), np.int32),
        "reach": np.zeros(slots, np.float32),
        "tail": np.zeros(16, np.float32),
        "mark": np.zeros(lanes, np.uint8),
        "to_goal": np.full(lanes, np.inf, np.float32),
        "rows32": np.zeros((agents if packed else 0, layout.size), np.float32),
        "spare": np.zeros(ROUTE_LANES, np.int32),
        "lane_before": np.zeros(lanes, np.int32),
        "lane_queue": np.zeros(lanes, np.int32),
        "movers": np.zeros(agents, np.int32),
        "block": np.ones(BLOCK, np.float32),  # lanes that stand idle divide by a length
    }


class Phases(NamedTuple):
    """The kernels of one configuration, in the order of a step; `before` and `after` run around the first detection
    of an episode."""

    before: tuple[Any, ...]
    after: tuple[Any, ...]
    take_box: Any
    take_index: Any
    advance: Any
    detect: Any
    outcomes: Any
    observe: Any
    draw_coefficients: Any

    @staticmethod
    def load(settings: EnvSettings, family: str) -> Phases:
        """Import them, of the observing ones that of the layout's family; compiled before, they come from the cache."""
        from skidpad.simulation.kernels import start
        from skidpad.simulation.kernels.actions import take_box, take_index
        from skidpad.simulation.kernels.advance import advance
        from skidpad.simulation.kernels.coefficients import draw_coefficients
        from skidpad.simulation.kernels.detect import detect
        from skidpad.simulation.kernels.outcomes import outcomes

        module = importlib.import_module(f"skidpad.simulation.kernels.observe_{family}")
        observe = getattr(module, f"observe_{family}")
        before: tuple[Any, ...] = (start.start_lights,)
        if settings.simulation_mode == "gigaflow":
            before += (start.spawn_agents,)
        after: tuple[Any, ...] = (start.note_starts,)
        if settings.goals_from != "log":
            after += (start.start_goals,)
        return Phases(before, after, take_box, take_index, advance, detect, outcomes, observe, draw_coefficients)

    def start(self, *arguments: Any) -> None:
        """Put worlds into state 0, and show it."""
        for phase in self.before:
            phase(*arguments)
        self.detect(True, *arguments)
        for phase in self.after:
            phase(*arguments)
        self.observe(*arguments)

    def compile_ahead(self, arguments: tuple[Any, ...], take: Any) -> None:
        """Compile what `reset` and `step` will call; costs nothing once it is compiled."""
        from skidpad.artifacts.compile_ahead import compile_ahead

        compile_ahead(
            [
                (self.detect, (True, *arguments)),
                (self.advance, arguments),
                (self.observe, arguments),
                (self.outcomes, arguments),
                (take, arguments[:1]),
                *((phase, arguments) for phase in (*self.before, *self.after)),
            ]
        )
