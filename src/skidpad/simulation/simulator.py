"""Simulator: worlds being simulated, stepped together.

Everything is checked and allocated here, once; the loops are kernels. Worlds keep the caller's order in every array,
but are visited ordered by scene: one kernel call per phase covers a stretch of that order and finds each world's scene
in the slot table. Threads take contiguous stretches. One iteration owns one world, hence the same bytes for any number
of threads, any batch and any order.
"""

from __future__ import annotations

import importlib
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from types import MappingProxyType, TracebackType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_value
from skidpad.errors import ActionError, CaseError, ProtocolError, SettingsError, listed
from skidpad.scenes.case import Case
from skidpad.scenes.events import Controller, Ending, Event, Status
from skidpad.scenes.map_cache import MapCache, memory_cache
from skidpad.scenes.scene import TYPE_VEHICLE, Scene
from skidpad.settings.schema import ControllerName, EnvSettings
from skidpad.simulation import state as at
from skidpad.simulation.actions import action_scales, action_space, models
from skidpad.simulation.budget import drawn_worlds
from skidpad.simulation.buffers import take_buffers
from skidpad.simulation.coefficients import COEF_ROWS, coefficient_table
from skidpad.simulation.episodes import Draws, Episode, Ledger
from skidpad.simulation.layout import layout_of
from skidpad.simulation.layout_table import Layout
from skidpad.simulation.population import Population, Span, select, span, with_goals
from skidpad.simulation.rewards import TERM_COUNT, TERMS, RewardFunction
from skidpad.simulation.slots import BATCH, SCRATCH, ArrayTable, SlotPool
from skidpad.simulation.snapshot import check_fits, freeze, place, thaw
from skidpad.simulation.stage import Stage
from skidpad.simulation.tally import TALLY, TALLY_ROWS
from skidpad.simulation.ways import Ways

MOST_AGENTS = 16_384  # in one world; each pair takes a byte
KEPT_STAGES = 64  # scenes no world is on at present, ready to be drawn again


class StepResult(NamedTuple):
    """What policy rows get back; views into the simulator's buffers or the caller's, valid until the next call.

    obs        (N, D)  f32   as the layout declares; zero rows for ended worlds
    reward     (N,)    f32
    terminal   (N,)    bool  the agent left in this step, with its track; its row is silent from here on
    truncated  (N,)    bool  the world ended in this step, with the agent in it
    mask       (N,)    bool  the row was live in this step and is not tampered with (S65)
    events     (N,)    u32   skidpad.scenes.events.Event, of the step that led here
    reward_terms  (N, K)  f32   columns of `rewards.TERMS`
    final_obs  (N, D)  f32   autoreset same_step: for rows of worlds that ended, the last row of the old episode, while
                             `obs` holds the first of the new; None under the other modes
    """

    obs: NDArray[np.float32]
    reward: NDArray[np.float32]
    terminal: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    mask: NDArray[np.bool_]
    events: NDArray[np.uint32]
    reward_terms: NDArray[np.float32]
    final_obs: NDArray[np.float32] | None


class Simulator:
    """Worlds over cases, in the caller's order.

    `cache`: where map indexes come from; without one they are made in this process, and shared inside it. No result
    depends on it.

    `substitute`: who drives the agents under test instead of the policy ("idm", "replay", "static"): how baseline arms
    run on the very same agents of the same cases; everybody else keeps the settings' controllers.

    `reward`: what to make of the terms and events of all rows, instead of their sum (S101). It is called in every step.

    `buffers`: memory of the caller's to write results into, by the names of StepResult's fields
    (`buffers.take_buffers`).

    `autoreset`: when a world that has ended starts anew: "same_step", "next_step" (the actions of that step are ignored
    and its mask is False), or "off", not by itself.

    `resample_every`: after so many steps all worlds end, truncated, and draw the next cases from `pool` (default: the
    cases given), in a seeded order in which each comes once per pass (S67). As many are taken as fill the policy rows;
    the last world is limited to what is left, by the ranks of `population.select`. Needs an autoreset. What is said of
    worlds and rows below is replaced then, results and actions are not. 0 = never.

    `rows`: so many policy rows are drawn from `pool` at once, instead of a world for each case, in `worlds` worlds if
    that is given (`training.training_simulator`).

    `check`: "full" reads every observation of every step for values that are not finite.

    row_world        (N,)     i32    world of each policy row; rows are sorted by world, then agent
    row_agent        (N,)     i32    agent inside its world (= track of the scene)
    row_seed         (N,)     u64    case seed of the row's world; with row_key, the identity of its random stream
    row_key          (N,)     u32    stable key of the agent
    world_agents     (W + 1,) i32    offsets of worlds in the flat agent arrays
    agent            name -> (A,)    live views: the arrays of a trace with axes (R, T, N), under the same names
    tally            name -> (A,)    live views: the running quantities of `tally.TALLY`
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
        buffers: Mapping[str, Any] | None = None,
        autoreset: Literal["off", "same_step", "next_step"] = "off",
        resample_every: int = 0,
        pool: Sequence[Case] | None = None,
        rows: int | None = None,
        worlds: int | None = None,
        check: Literal["state", "full"] = "state",
    ) -> None:
        if not cases:
            raise ProtocolError("no case: a simulator needs at least one world")
        if threads < 1:
            raise ProtocolError(f"threads is {threads}; at least 1 is needed")
        self.settings = settings
        self.layout = layout_of(settings)
        self.actions, self.custom_reward = action_space(settings), reward
        self._scenes, self._cache, self._substitute = scenes, cache or memory_cache(), substitute
        self._stages: OrderedDict[str, Stage] = OrderedDict()
        self._slot_pool = SlotPool()
        self._by_case = settings.simulation_mode == "gigaflow" or settings.init_spread
        self._draws = Draws(pool or cases, cases[0].seed)
        self._worlds_due = worlds
        if rows is None:
            self._take_all(cases)
        else:
            self._draw_worlds(rows)
        if settings.simulation_mode == "replay":  # Which logs come next decides how many there are.
            self._worlds_due = None
        if autoreset not in {"off", "same_step", "next_step"} or check not in {"state", "full"}:
            raise ProtocolError(
                f'autoreset is {autoreset!r}, check {check!r}; "off", "same_step" or "next_step", and "state" or "full"'
            )
        if resample_every < 0 or (resample_every and autoreset == "off"):
            raise ProtocolError(
                f'resample_every is {resample_every} under autoreset "{autoreset}"; a number of steps needs '
                '"same_step" or "next_step", 0 is never'
            )
        self.autoreset, self._check, self.resample_every = autoreset, check, resample_every
        self._since_draw, self._draw_due = 0, False
        self.ledger = Ledger()
        self._results(int(sum(len(population.policy) for population in self._populations)), buffers or {})
        self._threads = threads
        self._lay_out()
        self._phases = Phases.load(settings, self.layout.family)
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._started = False
        self._closed = False

    # ------------------------------------------------------------------ construction

    def _take_all(self, cases: Sequence[Case]) -> None:
        """One world for each case."""
        chosen: dict[tuple[str, int] | str, tuple[Population, Span]] = {}
        taking_part: list[tuple[Population, Span]] = []
        for w, case in enumerate(cases):
            key = case.id if self._by_case else (case.scene_digest, case.ego)
            if key not in chosen:
                try:
                    chosen[key] = self._select(case, w)
                except CaseError as error:
                    raise CaseError(str(error), world=w) from error
            taking_part.append(chosen[key])
        self.cases = tuple(cases)
        self._populations = [population for population, _ in taking_part]
        self._spans = [one for _, one in taking_part]

    def _draw_worlds(self, rows: int) -> None:
        """The next worlds of that many policy rows."""
        chosen = drawn_worlds(self._draws, rows, self.settings, self._select, worlds=self._worlds_due)
        self.cases = tuple(case for case, _, _ in chosen)
        self._populations = [population for _, population, _ in chosen]
        self._spans = [one for _, _, one in chosen]

    def _select(self, case: Case, w: int, limit: int | None = None) -> tuple[Population, Span]:
        """Who takes part in a case, and when; `limit` at most under test. Its stage is made ready."""
        scene = self._scenes.get(case.scene_digest)
        if scene is None:
            raise ProtocolError(f"world {w}: scene {case.scene_id} is not among the {len(self._scenes)} scenes given")
        if case.scene_digest not in self._stages:
            self._stages[case.scene_digest] = Stage(scene, self.settings, self._cache)
        self._stages.move_to_end(case.scene_digest)
        population = select(scene, case, self.settings, substitute=self._substitute, limit=limit)
        if len(population.exists) > MOST_AGENTS:
            raise CaseError(
                f"scene {case.scene_id}: {len(population.exists)} agents in one world; {MOST_AGENTS} fit. "
                "Take fewer agents per world and more worlds."
            )
        if population.spawned and not len(self._stages[case.scene_digest].arrays["spawn_lane"]):
            raise CaseError(f"scene {case.scene_id}: no drivable lane to put agents on. Choose another map.")
        return population, span(scene, case, self.settings)

    def _lay_out(self) -> None:
        """Give every world its place in the batch, and every thread its worlds."""
        used = {case.scene_digest for case in self.cases}
        self._slot_pool.keep(used)
        for digest in [digest for digest in self._stages if digest not in used][:-KEPT_STAGES]:
            del self._stages[digest]
        self._stage_of = [self._stages[case.scene_digest] for case in self.cases]
        self._allocate()
        self._share_out(self._threads)
        self._fill_tables()

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
        self._tally = np.zeros((TALLY_ROWS, columns), np.float32)
        self._world = np.zeros((at.WORLD_ROWS, worlds), np.int64)
        self._world[at.SLOT] = [
            self._slot_pool.claim(case.scene_digest, stage.arrays)
            for case, stage in zip(self.cases, stages, strict=True)
        ]
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
        self._commands = np.zeros((count, 2), np.float32)
        self._flags = np.zeros((at.FLAGS, count), np.bool_)
        discrete = self.settings.action_type == "discrete"
        self._box_actions = np.zeros((0 if discrete else count, 2), np.float32)
        self._index_actions = np.zeros(self.actions.shape(count if discrete else 0, True)[0], np.int32)
        self.overflow = np.zeros((count, 4), np.int32)
        self.clipped = self._flags[at.CLIPPED]
        self.applied_actions = self._commands
        self.done = np.ones(worlds, np.bool_)
        self.steps_taken = self._world[at.STEP]
        self.world_steps = self._world[at.STEPS]
        self._told: dict[int, str] = {}
        self._accounts: dict[str, NDArray[Any]] = {
            "event_count": np.zeros((len(Event), agents), np.int32),
            "event_first": np.zeros((len(Event), agents), np.int32),
            "reward_sum": np.zeros(count, np.float64),
            "term_sum": np.zeros(self.result.reward_terms.shape, np.float64),
            "overflow_sum": np.zeros(self.overflow.shape, np.int64),
            "clipped_sum": np.zeros(count, np.int32),
        }
        views: dict[str, NDArray[Any]] = {"events": self._events[:]}
        for table, block in ((at.FLOAT_STATE, self._f4), (at.INT_STATE, self._i4), (at.BYTE_STATE, self._u1)):
            views |= {field.name: block[row, :agents] for row, field in enumerate(table) if field.traced}
        for view in views.values():
            view.flags.writeable = False
        self.agent: Mapping[str, NDArray[Any]] = MappingProxyType(views)
        sums = {quantity.name: self._tally[row, :agents] for row, quantity in enumerate(TALLY)}
        for view in sums.values():
            view.flags.writeable = False
        self.tally: Mapping[str, NDArray[Any]] = MappingProxyType(sums)

    def _results(self, count: int, buffers: Mapping[str, Any]) -> None:
        """What a step of `count` rows returns, in the caller's memory where it gave some."""
        own: dict[str, NDArray[Any]] = {
            "obs": observation_rows(count, self.layout, self.settings.obs_dtype),
            "reward": np.zeros(count, np.float32),
            "terminal": np.zeros(count, np.bool_),
            "truncated": np.zeros(count, np.bool_),
            "mask": np.zeros(count, np.bool_),
            "events": np.zeros(count, np.uint32),
            "reward_terms": np.zeros((count, TERM_COUNT), np.float32),
        }
        if self.autoreset == "same_step":
            own["final_obs"] = np.zeros_like(own["obs"])
        results: dict[str, Any] = {"final_obs": None, **own, **take_buffers(buffers, own)}
        self.result = StepResult(**results)

    def _fill_tables(self) -> None:
        """Say where everything lies: the batch, and a slot per scene."""
        self._batch = ArrayTable(BATCH, 2)  # the second row differs in its order: worlds that start anew
        self._restart = np.zeros(len(self.cases), np.int32)
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
            "tally": self._tally,
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
            "overflow": self.overflow,
            "packing": np.array([PACKINGS[self.settings.obs_dtype]], np.int32),
            "spans": self.layout.spans,
            "done": self.done,
        }
        self._batch.put(0, own | self._ways.arrays | self._accounts | result_arrays(self.result))
        self._batch.put(1, {**self._batch.held(0), "order": self._restart})

    def _share_out(self, threads: int) -> None:
        """Order worlds by slot and cut the order into one stretch per thread, of about as many agents each."""
        order = np.argsort(self._world[at.SLOT], kind="stable").astype(np.int32)
        weights = np.cumsum(np.diff(self.world_agents)[order])
        cuts = np.searchsorted(weights, weights[-1] * np.arange(1, threads) / threads, side="right")
        bounds = np.unique([0, *cuts.tolist(), len(order)])
        self._order = order
        self._stretches = list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
        largest = int(np.diff(self.world_agents).max())
        lanes = max(stage.scene.road.lane_count for stage in self._stage_of)
        self._scratch = ArrayTable(SCRATCH, len(self._stretches))
        for part in range(len(self._stretches)):
            self._scratch.put(part, scratch_arrays(largest, self.layout, lanes, self.settings.obs_dtype != "float32"))

    def _work(self, part: int) -> int:
        """One thread's stretch of a step; returns how many worlds broke."""
        first, end = self._stretches[part]
        batch, slots, scratch = self._batch.entries[0], self._slot_pool.table.entries, self._scratch.entries[part]
        phases = self._phases
        phases.advance(batch, slots, scratch, first, end)
        phases.detect(False, batch, slots, scratch, first, end)
        broken: int = phases.outcomes(batch, slots, scratch, first, end)
        phases.observe(batch, slots, scratch, first, end)
        return broken

    # ------------------------------------------------------------------ life cycle

    def reset(self, worlds: Sequence[int] | None = None, *, anew: bool = False) -> StepResult:
        """Start the named worlds again (all by default); the others are untouched.

        `anew`: not the same episode once more, but the next one, with random numbers of its own.

        Raises ProtocolError after close, or for a number that is no world; CaseError (with `.world`) where no agent
        found a place on a bare map: all have been reset, and that world is to be ended.
        """
        self._check_open()
        named = self._named(worlds)
        if not named:
            return self.result
        if not self._started and len(named) < len(self.cases):
            raise ProtocolError("the first reset starts all worlds; name some of them only afterwards")
        if not self._started:
            self._phases.compile_ahead(self._arguments(0, 0), self._take)
        self._begin(np.array(named, np.int32), again=anew and self._started)
        for w in named:
            rows = self._rows(w)
            for name in ("reward", "terminal", "truncated", "events", "reward_terms"):
                getattr(self.result, name)[rows] = 0
            self.result.mask[rows] = True
            self._flags[:, rows] = False
            self._commands[rows] = 0.0
        self._started = True
        if self.settings.simulation_mode == "gigaflow":
            for w in named:
                self._check_somebody_there(w)
        return self.result

    def _check_somebody_there(self, w: int) -> None:
        """Some agents of a bare map may find no place, which their status says (S57); but not all of them."""
        if not (self._u1[at.STATUS, self._agents(w)] == Status.ACTIVE).any():
            raise CaseError(
                f"world {w} (scene {self.cases[w].scene_id}): none of its {len(self._populations[w].exists)} agents "
                "found a place to start. Choose another map, or smaller env.spawn_sizes.",
                world=w,
            )

    def _arguments(self, row: int, end: int) -> tuple[Any, ...]:
        """What a phase takes for the first `end` worlds of an order."""
        return self._batch.entries[row], self._slot_pool.table.entries, self._scratch.entries[0], 0, end

    def _begin(self, worlds: NDArray[np.int32], *, again: bool) -> None:
        """Put worlds into state 0 and show it; `again` counts an episode more."""
        for w in worlds:
            episode = int(self._world[at.EPISODE, w]) + 1 if again else 0
            self._start(int(w))
            self._world[at.EPISODE, w] = episode
            agents, rows = self._agents(int(w)), self._rows(int(w))
            for name in ("event_count", "event_first"):
                self._accounts[name][:, agents] = 0
            for name in ("reward_sum", "term_sum", "overflow_sum", "clipped_sum"):
                self._accounts[name][rows] = 0
        self._restart[: len(worlds)] = worlds
        arguments = self._arguments(1, len(worlds))
        self._phases.start(*arguments)

    def _end_all(self) -> None:
        """The end of all worlds that still run, because the next scenes are due."""
        running = np.flatnonzero(self._world[at.DONE] == at.RUNNING)
        self._world[at.ENDING, running], self._world[at.DONE, running] = Ending.RESAMPLED, at.ENDED
        self.done[running] = True
        self._write_down(running)
        ended = np.zeros(len(self.cases), np.bool_)
        ended[running] = True
        self.result.truncated[:] |= ended[self.row_world] & self._flags[at.LIVE] & ~self.result.terminal
        self._draw_due = True

    def _resample(self) -> None:
        """Draw cases until they fill the policy rows, and start their worlds."""
        if self.result.final_obs is not None:
            np.copyto(self.result.final_obs, self.result.obs)
        self._draw_worlds(len(self.result.obs))
        self._lay_out()
        self._since_draw, self._draw_due = 0, False
        if self.autoreset == "next_step":  # No action was taken in this step.
            for array in (*result_arrays(self.result).values(), self.overflow):
                array[...] = 0
        self._begin(np.arange(len(self.cases), dtype=np.int32), again=False)

    def _write_down(self, worlds: NDArray[np.int64]) -> None:
        """Keep what rows are made of, of worlds whose episode has ended."""
        held = self._batch.held(0)
        for w in worlds.tolist():
            population, a, r = self._populations[w], self._agents(w), self._rows(w)
            agents = np.union1d(population.scored, population.policy).astype(np.int32)
            at_row = np.searchsorted(population.policy, agents).clip(max=max(len(population.policy) - 1, 0))
            has_row = population.policy[at_row] == agents if len(population.policy) else np.zeros(len(agents), bool)
            rows = np.where(has_row, r.start + at_row, -1).astype(np.int32)
            flat = a.start + agents
            sums = {"reward": "reward_sum", "terms": "term_sum", "overflow": "overflow_sum", "clipped": "clipped_sum"}
            kept = {name: np.zeros((len(agents), *held[field].shape[1:])) for name, field in sums.items()}
            for name, field in sums.items():
                kept[name][has_row] = held[field][rows[has_row]]
            self.ledger.add(
                Episode(
                    case=self.cases[w],
                    number=int(self._world[at.EPISODE, w]),
                    start_row=self.start_row(w),
                    steps=int(self._world[at.STEP, w]),
                    dt_us=int(self.dt_us[w]),
                    ending=Ending(int(self._world[at.ENDING, w])),
                    told=self._told.get(w, ""),
                    exclusion=population.exclusion,
                    agents=agents,
                    rows=rows,
                    names=population.source_id[agents],
                    ints=self._i4[:, flat],
                    bytes_=self._u1[:, flat],
                    counts=held["event_count"][:, flat],
                    first=held["event_first"][:, flat],
                    quantities={},
                    sums=kept,
                )
            )

    def rows(self) -> list[dict[str, Any]]:
        """What became of the worlds and agents whose episodes have ended since the last call (S114): for each world one
        row of kind "world", then one of kind "agent" for each agent under test or driven by a policy. Where nobody asks
        for long, the oldest are dropped and counted (`ledger.dropped`)."""
        return [
            row for episode in self.ledger.take() for row in (episode.world_row(), *episode.agent_rows(self.term_names))
        ]

    @property
    def term_names(self) -> tuple[str, ...]:
        """The columns of `reward_terms`."""
        return tuple(term.name for term in TERMS)

    def _begin_ended(self) -> None:
        """Autoreset: worlds that have ended start anew (S66)."""
        state = self._world[at.DONE]
        same_step = self.autoreset == "same_step"
        ended = np.flatnonzero(state != at.RUNNING if same_step else state == at.SILENT).astype(np.int32)
        if not len(ended):
            return
        final = self.result.final_obs
        if final is not None:
            for w in ended:
                rows = self._rows(int(w))
                final[rows] = self.result.obs[rows]
        self._begin(ended, again=True)

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
        if self.autoreset == "off" and self.done.all():
            raise ProtocolError("every world has ended: call reset() before the next step")
        self._read_actions(actions)
        if self._draw_due:
            self._resample()
            return self.result
        if self._pool is None:
            broken = sum(map(self._work, range(len(self._stretches))))
        else:
            if os.getpid() != self._pid:
                raise ProtocolError("this simulator's threads did not survive the fork: use spawn, or threads=1")
            broken = sum(self._pool.map(self._work, range(len(self._stretches))))
        if broken:
            faulty = np.flatnonzero(self._world[at.FAULT])
            self._write_down(faulty)
            self._world[at.FAULT] = 0
            raise CaseError(self._describe_fault(int(faulty[0])), world=int(faulty[0]))
        if self.custom_reward is not None:
            made = self.custom_reward(self.result.reward_terms, self.result.events)
            self._accounts["reward_sum"] += np.where(self._flags[at.LIVE], made - self.result.reward, 0.0)
            self.result.reward[:] = made
        self._write_down(np.flatnonzero(self._world[at.DONE] == at.ENDED))
        self._since_draw += 1
        if self._since_draw == self.resample_every:
            self._end_all()
            if self.autoreset == "same_step":
                self._resample()
        elif self.autoreset != "off":
            self._begin_ended()
        if self._check == "full":
            self._check_observations()
        return self.result

    def step_many(self, actions: NDArray[Any], *, into: Mapping[str, Any] | None = None) -> StepResult:
        """M steps, as M calls of `step` would take them.

        actions  (M, N, ...) of what `step` takes
        into     name of a StepResult field -> (M, N, ...) array that is written in place, one entry per step (S111)

        Raises as `step`, and ProtocolError for buffers that do not fit; a step that raises is the last one taken.
        """
        shape = actions.shape if isinstance(actions, np.ndarray) else ()
        if len(shape) < 2:
            raise ProtocolError(f"step_many takes an array (M, N, ...) of actions; given is {type(actions).__name__}")
        own = {name: array for name, array in self.result._asdict().items() if array is not None}
        taken = take_buffers(into or {}, own, shape[0])
        home = self.result
        try:
            for k in range(shape[0]):
                self._write_to(home._replace(**{name: array[k] for name, array in taken.items()}))
                self.step(actions[k])
        finally:
            last = self.result
            self._write_to(home)
            for name in taken:
                np.copyto(own[name], getattr(last, name))
        return home

    def write_to(self, buffers: Mapping[str, Any]) -> StepResult:
        """From now on results go into memory of the caller (S111), by the names of StepResult's fields; what they show
        at present is copied there. Raises ProtocolError for buffers that do not fit."""
        self._check_open()
        own = {name: array for name, array in self.result._asdict().items() if array is not None}
        taken = take_buffers(buffers, own)
        for name, array in taken.items():
            np.copyto(array, own[name])
        self._write_to(self.result._replace(**taken))
        return self.result

    def _write_to(self, result: StepResult) -> None:
        """Where results go from now on."""
        self.result = result
        for row in (0, 1):
            self._batch.put(row, result_arrays(result))

    def _check_observations(self) -> None:
        """Raises CaseError for an observation that is not finite (S116)."""
        obs: NDArray[Any] = self.result.obs
        finite = (obs & 0x7F80) != 0x7F80 if obs.dtype == np.uint16 else np.isfinite(obs)  # bfloat16 comes as bits
        good = finite.all(axis=1)
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            w = int(self.row_world[row])
            column = int(np.flatnonzero(~finite[row])[0])
            raise CaseError(
                f"world {w} (scene {self.cases[w].scene_id}), agent {int(self.row_agent[row])} (row {row}): the "
                f"observation is not finite in column {column} at step {int(self.steps_taken[w])}. Please report its "
                "case.",
                world=w,
            )

    # ------------------------------------------------------------------ snapshots

    def snapshot(self, worlds: Sequence[int] | None = None) -> bytes:
        """The named worlds (all by default), in that order, as bytes, from which `restore` goes on bit by bit (S113).

        Raises ProtocolError before reset or after close.
        """
        named = self._named(worlds, in_order=True)
        if not self._started:
            raise ProtocolError("snapshot before reset: there is no state yet")
        if not named:
            raise ProtocolError("snapshot of no world: name at least one, or leave it out for all")
        cases, told = [self.cases[w] for w in named], [self._told.get(w, "") for w in named]
        return freeze(named, cases, told, self._settings_digest, self._batch.held(0), self._bounds)

    def restore(self, data: bytes, worlds: Sequence[int] | None = None) -> StepResult:
        """Put the worlds of a snapshot, in their order, over the named worlds (the first ones by default). Seeds come
        with them; the cases they replace are gone.

        Raises ProtocolError, with nothing changed, for a snapshot of other settings, another version or a world of
        another scene; FormatError or IntegrityError for bytes that are no snapshot or were altered.
        """
        self._check_open()
        frozen = thaw(data, self._settings_digest)
        named = self._named(range(len(frozen.cases)) if worlds is None else worlds, in_order=True)
        if len(named) != len(frozen.cases):
            raise ProtocolError(f"the snapshot has {len(frozen.cases)} worlds; {len(named)} are named")
        for number, w in enumerate(named):
            here, there = self.cases[w], frozen.cases[number]
            if (here.scene_digest, here.ego) != (there.scene_digest, there.ego):
                raise ProtocolError(
                    f"world {w} runs scene {here.scene_id}, ego {here.ego}; world {number} of the snapshot is of "
                    f"{there.scene_id}, ego {there.ego}. Restore it into a world of its own scene."
                )
            check_fits(frozen, number, w, self._bounds)
        if not self._started:
            if len(set(named)) < len(self.cases):
                self.reset()
            else:
                self._phases.compile_ahead(self._arguments(0, 0), self._take)
        cases = list(self.cases)
        for number, w in enumerate(named):
            place(frozen, number, w, self._batch.held(0), self._bounds)
            cases[w], self._told[w] = frozen.cases[number], frozen.told[number]
            self.result.obs[self._rows(w)] = 0.0
            self.overflow[self._rows(w)] = 0
        self.cases = tuple(cases)
        self.row_seed[:] = self._seeds[self.row_world]
        self._started = True
        self._restart[: len(named)] = named
        self._phases.observe(*self._arguments(1, len(named)))
        return self.result

    @cached_property
    def _settings_digest(self) -> str:
        return digest_value(self.settings.model_dump(mode="json"), "env settings")

    @property
    def _bounds(self) -> dict[str, NDArray[Any]]:
        """Where the part of each world begins, by what is divided among worlds (`slots.ArrayField.along`)."""
        return {
            "world": np.arange(len(self.cases) + 1),
            "agent": self.world_agents,
            "row": self._world_rows,
            "pair": self._pair_start,
            **self._ways.bounds(self.world_agents),
        }

    def end(self, world: int, reason: str) -> None:
        """End one world now, for example because its case failed; the others go on, and its rows fall silent."""
        self._check_open()
        if self.done[world]:
            return
        self.done[world] = True
        self._world[at.DONE, world], self._world[at.ENDING, world] = at.SILENT, Ending.TOLD
        self._told[world] = reason
        self._write_down(np.array([world]))
        rows = self._rows(world)
        self._flags[:, rows] = False
        for block in (*result_arrays(self.result).values(), self.overflow, self._commands):
            if len(block):
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

    def _named(self, worlds: Sequence[int] | None, *, in_order: bool = False) -> list[int]:
        """The worlds a caller names, all by default, ascending or as given."""
        self._check_open()
        everything = range(len(self.cases))
        named = list(everything) if worlds is None else [int(w) for w in worlds]
        unknown = sorted({w for w in named if w not in everything})
        if unknown:
            raise ProtocolError(f"no such world: {listed(unknown)}; there are {len(self.cases)}")
        return named if in_order else sorted(set(named))

    def _rows(self, w: int) -> slice:
        return slice(int(self._world_rows[w]), int(self._world_rows[w + 1]))

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

    def overlapping(self, world: int) -> NDArray[np.int32]:
        """(K, 2) i32 pairs of agents whose boxes have overlapped since state 0, or since one of them appeared: their
        contact is not reported until they part (S54)."""
        from skidpad.simulation.kernels.contact import OVERLAPPING

        first, second = np.triu_indices(len(self._populations[world].exists), 1)
        inside = self._pair[self._pair_start[world] : self._pair_start[world + 1]] == OVERLAPPING
        return np.stack([first[inside], second[inside]], axis=1).astype(np.int32)

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


def result_arrays(result: StepResult) -> dict[str, NDArray[Any]]:
    """The fields of `slots.BATCH` that a result is. Observations are there under the dtype they have, and as bytes."""
    obs = result.obs
    fields = result._asdict()
    bits = {"events": "row_events", "reward_terms": "terms"}
    arrays = {bits.get(name, name): array for name, array in fields.items() if name not in {"obs", "final_obs"}}
    for name, dtype in (("obs", np.float32), ("obs16", np.uint16), ("obs8", np.int8)):
        fits = obs.itemsize == np.dtype(dtype).itemsize
        arrays[name] = obs.view(dtype) if fits else np.zeros((0, obs.shape[1]), dtype)
    return arrays | {"obs_bytes": obs.view(np.uint8)}


def scratch_arrays(agents: int, layout: Layout, lanes: int, packed: bool) -> dict[str, NDArray[Any]]:
    """Working memory of one thread for worlds of up to `agents` agents and maps of up to `lanes` lanes: the fields of
    `slots.SCRATCH`. Contents mean nothing between calls. `packed`: observations are not of 32 bits."""
    from skidpad.simulation.kernels.agent_grid import GRID_ROWS
    from skidpad.simulation.kernels.contact import CONTACT_SLOTS
    from skidpad.simulation.kernels.idm import PATH_POINTS
    from skidpad.simulation.kernels.motion import BLOCK
    from skidpad.simulation.kernels.routes import ROUTE_LANES

    rows = max(block.listed or block.rows for block in layout.road_blocks)
    slots = max(block.rows for block in layout.blocks)
    return {
        "path": np.zeros((PATH_POINTS, 4), np.float32),
        "path_lane": np.zeros(PATH_POINTS, np.int32),
        "pose": np.zeros(at.LOG_COLUMNS, np.float32),
        "contacts": np.zeros((GRID_ROWS, agents), np.float64),
        "places": np.zeros(CONTACT_SLOTS * agents + 2, np.int32),
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
