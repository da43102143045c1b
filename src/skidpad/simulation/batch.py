"""Batch: the worlds of a simulator laid out in memory, and where everything lies.

Worlds keep the caller's order in every array, but are visited ordered by scene, so that maps stay warm; threads
take contiguous stretches of that order, of about as many agents each.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import ActionError, CaseError, ProtocolError, listed
from skidpad.scenes.case import Case
from skidpad.scenes.events import Controller, Ending, Event, Status
from skidpad.scenes.map_cache import MapCache
from skidpad.scenes.scene import TYPE_VEHICLE, Scene
from skidpad.settings.schema import ControllerName, EnvSettings
from skidpad.simulation import state as at
from skidpad.simulation.actions import action_scales, action_space, models
from skidpad.simulation.budget import drawn_worlds
from skidpad.simulation.coefficients import COEF_ROWS, coefficient_table
from skidpad.simulation.episodes import Draws, Ended
from skidpad.simulation.layout import layout_of
from skidpad.simulation.phases import Phases, scratch_arrays
from skidpad.simulation.population import Population, Span, select, span, with_goals
from skidpad.simulation.results import PACKINGS, StepResult, result_arrays
from skidpad.simulation.roads import MapLists, Roads
from skidpad.simulation.slots import BATCH, SCRATCH, ArrayTable, SlotPool, lined_zeros, spread
from skidpad.simulation.stage import Stage
from skidpad.simulation.tally import TALLY, TALLY_ROWS
from skidpad.simulation.ways import Ways

MOST_AGENTS = 16_384  # in one world; each pair takes a byte
KEPT_STAGES = 64  # scenes no world is on at present, ready to be drawn again


class Batch:
    """Worlds over cases, who is in them, and their arrays; the Simulator adds what can be done with them.

    Its attributes are described there. Raises as the Simulator.
    """

    result: StepResult

    def __init__(
        self,
        settings: EnvSettings,
        scenes: Mapping[str, Scene],
        cache: MapCache,
        substitute: ControllerName | None,
        threads: int,
    ) -> None:
        self.settings, self.layout, self.actions = settings, layout_of(settings), action_space(settings)
        self._scenes, self._cache, self._substitute, self._threads = scenes, cache, substitute, threads
        self._stages: OrderedDict[str, Stage] = OrderedDict()
        self._slot_pool = SlotPool()
        controllers = settings.sdc_controller, settings.vehicle_controller, settings.other_controller
        self._drivers: set[str | None] = {*controllers, substitute}
        self._phases = Phases.load(settings, self.layout.family, self._drivers)
        # Who takes part depends on the case where something is drawn; else all worlds of a scene are alike.
        self._by_case = settings.simulation_mode == "gigaflow" or settings.init_spread or settings.limit_rank == "drawn"
        self.cases: tuple[Case, ...] = ()
        self._populations: list[Population] = []
        self._spans: list[Span] = []

    def _take_all(self, cases: Sequence[Case]) -> None:
        """One world for each case."""
        chosen: dict[tuple[str, int] | str, tuple[Population, Span]] = {}
        members = []
        for w, case in enumerate(cases):
            key = case.id if self._by_case else (case.scene_digest, case.ego)
            if key not in chosen:
                try:
                    chosen[key] = self._select(case, w)
                except CaseError as error:
                    raise CaseError(str(error), world=w) from error
            members.append((case, *chosen[key]))
        self._settle(members)

    def _draw_worlds(self, draws: Draws, rows: int, worlds: int | None) -> None:
        """The next worlds of that many policy rows."""
        self._settle(drawn_worlds(draws, rows, self.settings, self._select, worlds=worlds))

    def _settle(self, members: Sequence[tuple[Case, Population, Span]]) -> None:
        self.cases = tuple(case for case, _, _ in members)
        self._populations = [population for _, population, _ in members]
        self._spans = [one for _, _, one in members]

    def _select(self, case: Case, w: int, limit: int | None = None) -> tuple[Population, Span]:
        """Who takes part in a case, and when; `limit` at most under test. Its stage is made ready."""
        scene = self._scenes.get(case.scene_digest)
        if scene is None:
            raise ProtocolError(f"world {w}: scene {case.scene_id} is not among the {len(self._scenes)} scenes given")
        if case.scene_digest not in self._stages:
            self._stages[case.scene_digest] = Stage(scene, self.settings, self._cache)
        self._stages.move_to_end(case.scene_digest)
        members = self._stages[case.scene_digest].members
        if not self._by_case and (case.ego, limit) in members:
            known: tuple[Population, Span] = members[case.ego, limit]
            return known
        population = select(scene, case, self.settings, substitute=self._substitute, limit=limit)
        if len(population.exists) > MOST_AGENTS:
            raise CaseError(
                f"scene {case.scene_id}: {len(population.exists)} agents in one world; {MOST_AGENTS} fit. "
                "Take fewer agents per world and more worlds."
            )
        if population.spawned and not len(self._stages[case.scene_digest].arrays["spawn_lane"]):
            raise CaseError(f"scene {case.scene_id}: no drivable lane to put agents on. Choose another map.")
        chosen = population, span(scene, case, self.settings)
        if not self._by_case:
            members[case.ego, limit] = chosen
        return chosen

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
        self._roads: Roads | None = None

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
        self._f4 = lined_zeros((len(at.FLOAT_STATE), columns), np.float32)
        self._i4 = lined_zeros((len(at.INT_STATE), columns), np.int32)
        self._u1 = lined_zeros((len(at.BYTE_STATE), columns), np.uint8)
        self._coef = lined_zeros((COEF_ROWS, columns), np.float32)
        self._coefficients = coefficient_table(self.settings)
        self._events = np.zeros(agents, np.uint32)
        self._tally = lined_zeros((TALLY_ROWS, columns), np.float32)
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
        self._ways = Ways.allocate(self.settings, populations, stages, self._spans, keep=not self._by_case)
        for w, population in enumerate(populations):
            a = self._agents(w)
            self._u1[at.CONTROLLER, a], self._u1[at.EXCLUSION, a] = population.controller, population.exclusion
            self._u1[at.TYPE, a], self._u1[at.SUBTYPE, a] = population.type, population.subtype
            self._u1[at.WATCHED, a] = population.type == TYPE_VEHICLE
            self._u1[at.MODEL, a] = models(self.settings, population.controller, population.type)
            self._i4[at.KEY, a] = np.arange(len(population.exists))
            slot = self._ways.slots(w)
            self._i4[at.GOAL_SLOT, a.start + with_goals(population)] = np.arange(slot.start, slot.stop)
        self._list_agents()
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
        self.goal_next = self._i4[at.GOAL_NEXT, :agents]
        self.goal_next.flags.writeable = False
        sums = {quantity.name: self._tally[row, :agents] for row, quantity in enumerate(TALLY)}
        for view in sums.values():
            view.flags.writeable = False
        self.tally: Mapping[str, NDArray[Any]] = MappingProxyType(sums)

    def _list_agents(self) -> None:
        """Whom rows are about (S114): agents under test or driven by a policy, each with its policy row, -1 = none."""
        agents = [np.union1d(population.scored, population.policy) for population in self._populations]
        self._listed_start = np.concatenate([[0], np.cumsum([len(one) for one in agents])]).astype(np.int64)
        self._listed_agent = np.concatenate(agents).astype(np.int32)
        self._listed_flat = np.repeat(self.world_agents[:-1], np.diff(self._listed_start)) + self._listed_agent
        row_of = np.full(int(self.world_agents[-1]), -1, np.int64)
        row_of[self._row_flat] = np.arange(len(self._row_flat))
        self._listed_row = row_of[self._listed_flat]

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
            "coef_table": self._coefficients,
            "drawn": self._drawn,
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
        plans = "pdm" in self._drivers
        self._scratch = ArrayTable(SCRATCH, len(self._stretches))
        for part in range(len(self._stretches)):
            self._scratch.put(part, scratch_arrays(largest, self.layout, lanes, plans))

    def _arguments(self, row: int, end: int) -> tuple[Any, ...]:
        """What a phase takes for the first `end` worlds of an order."""
        return self._batch.entries[row], self._slot_pool.table.entries, self._scratch.entries[0], 0, end

    def _begin(self, worlds: NDArray[np.int32], *, again: bool) -> None:
        """Put worlds into state 0 and show it; `again` counts an episode more."""
        self._world[at.EPISODE, worlds] = self._world[at.EPISODE, worlds] + 1 if again else 0
        self._restart[: len(worlds)] = worlds
        self._phases.start(*self._arguments(1, len(worlds)))

    def _ended(self, worlds: NDArray[np.int64]) -> Ended:
        """What rows are made of, of worlds whose episode has ended."""
        held = self._batch.held(0)
        first = self._listed_start[worlds]
        count = self._listed_start[worlds + 1] - first
        start = np.concatenate([[0], np.cumsum(count)])
        taken = np.repeat(first - start[:-1], count) + np.arange(start[-1])
        flat, rows = self._listed_flat[taken], self._listed_row[taken]
        fields = {"reward": "reward_sum", "terms": "term_sum", "overflow": "overflow_sum", "clipped": "clipped_sum"}
        sums = {name: np.zeros((len(rows), *held[field].shape[1:])) for name, field in fields.items()}
        for name, field in fields.items():
            sums[name][rows >= 0] = held[field][rows[rows >= 0]]
        return Ended(
            cases=tuple(self.cases[w] for w in worlds),
            populations=tuple(self._populations[w] for w in worlds),
            told=tuple(self._told.get(int(w), "") for w in worlds),
            world=self._world[:, worlds],
            dt_us=self.dt_us[worlds],
            start=start,
            agents=self._listed_agent[taken],
            ints=self._i4[:, flat],
            bytes_=self._u1[:, flat],
            counts=held["event_count"][:, flat],
            first=held["event_first"][:, flat],
            tally=self._tally[:, flat],
            sums=sums,
        )

    # ------------------------------------------------------------------ what a world is

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

    @property
    def roads(self) -> Roads:
        """The road lists of the maps that the worlds have now, for layouts that leave road rows out."""
        if self._roads is None:
            maps = {
                int(slot): MapLists(stage.index.rows, float(stage.parameters[at.LEVEL_GATE]))
                for slot, stage in zip(self._world[at.SLOT], self._stage_of, strict=True)
            }
            self._roads = Roads(self.layout, maps)
        return self._roads

    # ------------------------------------------------------------------ what went wrong

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

    def _check_somebody_there(self, w: int) -> None:
        """Some agents of a bare map may find no place, which their status says (S57); but not all of them."""
        if not (self._u1[at.STATUS, self._agents(w)] == Status.ACTIVE).any():
            raise CaseError(
                f"world {w} (scene {self.cases[w].scene_id}): none of its {len(self._populations[w].exists)} agents "
                "found a place to start. Choose another map, or smaller env.spawn_sizes.",
                world=w,
            )
