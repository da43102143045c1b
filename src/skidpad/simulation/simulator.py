"""Simulator: worlds being simulated, stepped together.

Everything is checked and allocated here, once; the loops are kernels. Worlds keep the caller's order in every array,
but are visited ordered by scene: one kernel call per phase covers a stretch of that order and finds each world's scene
in the slot table. Threads take contiguous stretches. One iteration owns one world, hence the same bytes for any number
of threads, any batch and any order.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_value
from skidpad.errors import CaseError, ProtocolError, listed
from skidpad.scenes.case import Case
from skidpad.scenes.events import Ending
from skidpad.scenes.map_cache import MapCache, memory_cache
from skidpad.scenes.scene import Scene
from skidpad.settings.schema import PERTURBATIONS_OFF, ControllerName, EnvSettings
from skidpad.simulation import state as at
from skidpad.simulation.actions import action_scales
from skidpad.simulation.batch import Batch
from skidpad.simulation.episodes import Draws, Ledger
from skidpad.simulation.results import StepResult, make_results, refuse_overlap, result_arrays, take_buffers
from skidpad.simulation.rewards import TERMS, RewardFunction
from skidpad.simulation.snapshot import check_fits, freeze, place, thaw

__all__ = ["Simulator", "StepResult"]


class Simulator(Batch):
    """Worlds over cases, in the caller's order.

    `cache`: where map indexes come from; without one they are made in this process, and shared inside it. No result
    depends on it.

    `substitute`: who drives the agents under test instead of the policy ("idm", "pdm", "replay", "static"): how
    baseline arms run on the very same agents of the same cases; everybody else keeps the settings' controllers.

    `reward`: what to make of the terms and events of all rows, instead of their sum (S101). It is called in every step.

    `buffers`: memory of the caller's to write results into, by the names of StepResult's fields
    (`results.take_buffers`).

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
    goal_next        (A,)     i32    live view: which of its `goals` an agent drives to; their count = none is left
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
        if autoreset not in {"off", "same_step", "next_step"} or check not in {"state", "full"}:
            raise ProtocolError(
                f'autoreset is {autoreset!r}, check {check!r}; "off", "same_step" or "next_step", and "state" or "full"'
            )
        if resample_every < 0 or (resample_every and autoreset == "off"):
            raise ProtocolError(
                f'resample_every is {resample_every} under autoreset "{autoreset}"; a number of steps needs '
                '"same_step" or "next_step", 0 is never'
            )
        super().__init__(settings, scenes, cache or memory_cache(), substitute, threads)
        self._draws = Draws(pool or cases, cases[0].seed)
        if rows is None:
            self._take_all(cases)
        else:
            self._draw_worlds(self._draws, rows, worlds)
        # On logs, which ones come next decides how many there are.
        self._worlds_due = worlds if settings.simulation_mode == "gigaflow" else None
        self.custom_reward = reward
        self.autoreset, self._check, self.resample_every = autoreset, check, resample_every
        self._since_draw, self._draw_due = 0, False
        self.ledger = Ledger()
        count = sum(len(population.policy) for population in self._populations)
        with_final = autoreset == "same_step"
        self.result = make_results(count, self.layout, settings.obs_dtype, buffers or {}, with_final=with_final)
        self._foreign = bool(buffers)  # results lie in memory of the caller's
        self._lay_out()
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._started = False
        self._closed = False

    # ------------------------------------------------------------------ construction

    def _work(self, part: int) -> int:
        """One thread's stretch of a step; returns how many worlds broke."""
        first, end = self._stretches[part]
        batch, slots, scratch = self._batch.entries[0], self._slot_pool.table.entries, self._scratch.entries[part]
        phases = self._phases
        phases.move(batch, slots, scratch, first, end)
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
            self._phases.compile_ahead(self._arguments(0, 0))
        self._begin(np.array(named, np.int32), again=anew and self._started)
        for rows in map(self._rows, named) if len(named) < len(self.cases) else [slice(None)]:
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

    def take(self, cases: Sequence[Case], scenes: Mapping[str, Scene]) -> None:
        """Run other cases from here on, with the settings, the controller and the threads that there are; reset comes
        next. What is said of worlds and rows is replaced, results too. Steps are those of a new simulator, bit by bit.

        Raises as the constructor; such a simulator is good for nothing but `close`.
        """
        self._check_open()
        if not cases:
            raise ProtocolError("no case: a simulator needs at least one world")
        self._scenes, self._started = scenes, False
        self._draws, self.ledger = Draws(cases, cases[0].seed), Ledger()
        self._since_draw, self._draw_due = 0, False
        self._take_all(cases)
        count, with_final = (
            sum(len(population.policy) for population in self._populations),
            self.autoreset == "same_step",
        )
        self.result = make_results(count, self.layout, self.settings.obs_dtype, {}, with_final=with_final)
        self._lay_out()

    def _end_all(self) -> None:
        """The end of all worlds that still run, because the next scenes are due."""
        running = np.flatnonzero(self._world[at.DONE] == at.RUNNING)
        self._world[at.ENDING, running], self._world[at.DONE, running] = Ending.RESAMPLED, at.ENDED
        self.done[running] = True
        self._note_ended(running)
        ended = np.zeros(len(self.cases), np.bool_)
        ended[running] = True
        self.result.truncated[:] |= ended[self.row_world] & self._flags[at.LIVE] & ~self.result.terminal
        self._draw_due = True

    def _resample(self) -> None:
        """Draw cases until they fill the policy rows, and start their worlds."""
        if self.result.final_obs is not None:
            np.copyto(self.result.final_obs, self.result.obs)
        self._draw_worlds(self._draws, len(self.result.obs), self._worlds_due)
        self._lay_out()
        self._since_draw, self._draw_due = 0, False
        if self.autoreset == "next_step":  # No action was taken in this step.
            for array in (*result_arrays(self.result).values(), self.overflow):
                array[...] = 0
        self._begin(np.arange(len(self.cases), dtype=np.int32), again=False)

    def rows(self) -> list[dict[str, Any]]:
        """What became of the worlds and agents whose episodes have ended since the last call (S114): for each world one
        row of kind "world", then one of kind "agent" for each agent under test or driven by a policy. Where nobody asks
        for long, the oldest are dropped and counted (`ledger.dropped`)."""
        return [row for ended in self.ledger.take() for row in ended.rows(self.term_names, self._perturbed)]

    @cached_property
    def _perturbed(self) -> dict[str, Any]:
        """The perturbations that are not off."""
        values = self.settings.perturbation.model_dump()
        return {name: values[name] for name, off in PERTURBATIONS_OFF.items() if values[name] != off}

    def _note_ended(self, worlds: NDArray[np.int64]) -> None:
        """Keep what rows are made of."""
        if len(worlds):
            self.ledger.add(self._ended(worlds))

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

    def step(self, actions: NDArray[Any]) -> StepResult:
        """One step of every world that has not ended.

        actions  (N, 2) f32 in [-1, 1] for a continuous world, (N,) i32 for a discrete one; rows of agents that have
                 left are ignored

        Raises ProtocolError before reset, after close, when every world has ended, for a wrong shape or dtype, or for
        memory that results are written to; ActionError (with `.world`) for a value that is no action, state untouched;
        CaseError (with `.world`) when a state is not finite: that world has ended, the others have taken their step and
        `result` holds it.
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
            self._note_ended(faulty)
            self._world[at.FAULT] = 0
            raise CaseError(self._describe_fault(int(faulty[0])), world=int(faulty[0]))
        if self.custom_reward is not None:
            made = self.custom_reward(self.result.reward_terms, self.result.events)
            self._accounts["reward_sum"] += np.where(self._flags[at.LIVE], made - self.result.reward, 0.0)
            self.result.reward[:] = made
        self._note_ended(np.flatnonzero(self._world[at.DONE] == at.ENDED))
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
        refuse_overlap({"actions": actions}, taken)
        home, foreign = self.result, self._foreign
        try:
            for k in range(shape[0]):
                self._write_to(home._replace(**{name: array[k] for name, array in taken.items()}))
                self.step(actions[k])
        finally:
            last = self.result
            self._write_to(home)
            self._foreign = foreign
            for name in taken:
                np.copyto(own[name], getattr(last, name))
        return home

    def write_to(self, buffers: Mapping[str, Any]) -> StepResult:
        """From now on results go into memory of the caller (S111), by the names of StepResult's fields; what they show
        at present is copied there. Raises ProtocolError for buffers that do not fit."""
        self._check_open()
        own = {name: array for name, array in self.result._asdict().items() if array is not None}
        taken = take_buffers(buffers, own)
        refuse_overlap(taken, {name: array for name, array in own.items() if name not in taken})
        for name, array in taken.items():
            np.copyto(array, own[name])
        self._write_to(self.result._replace(**taken))
        return self.result

    def _write_to(self, result: StepResult) -> None:
        """Where results go from now on."""
        self.result, self._foreign = result, True
        for row in (0, 1):
            self._batch.put(row, result_arrays(result))

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
                self._phases.compile_ahead(self._arguments(0, 0))
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

    def end(self, world: int, reason: str) -> None:
        """End one world now, for example because its case failed; the others go on, and its rows fall silent."""
        self._check_open()
        if self.done[world]:
            return
        self.done[world] = True
        self._world[at.DONE, world], self._world[at.ENDING, world] = at.SILENT, Ending.TOLD
        self._told[world] = reason
        self._note_ended(np.array([world]))
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
        if self._foreign:
            refuse_overlap({"actions": actions}, {n: a for n, a in self.result._asdict().items() if a is not None})
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
