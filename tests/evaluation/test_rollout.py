"""The rollout loop on real worlds, and on stub ones where a world must misbehave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from skidpad.errors import CaseError, ProtocolError
from skidpad.evaluation.rollout import STALL_FACTOR, STATE_ARRAYS, Labels, rollout, state_hashes
from skidpad.policies.policy import PolicySpec
from skidpad.runs.trace import TRACE_ARRAYS
from skidpad.runs.trace_file import encode_trace, read_trace
from skidpad.scenes.case import Case
from skidpad.scenes.scene import Scene
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.simulator import Simulator, StepResult

ENV = EnvSettings(scenario_length=12)
LABELS = Labels("e", "policy", "clean")


@pytest.fixture(scope="module")
def scenes() -> dict[str, Scene]:
    return {scene.digest: scene for scene in (synthetic("crossing"), synthetic("straight"), synthetic("curve"))}


def cases_of(scenes: dict[str, Scene], replicates: int = 2) -> list[Case]:
    return [Case(digest, s.meta.scene_id, 7, r) for digest, s in scenes.items() for r in range(replicates)]


class Driver:
    """Sums what it has seen of each row into its memory and steers by it, with a random part of the row's own.

    `poison(step, row)` may replace an action; `log` keeps (reset, memory) of every call.
    """

    spec = PolicySpec("driver", "compact/1", "continuous")

    def __init__(self, poison: Any = None) -> None:
        self.poison = poison
        self.log: list[tuple[np.ndarray, np.ndarray]] = []

    def initial_state(self, rows: int) -> np.ndarray:
        return np.zeros(rows)

    def act(self, observation, state, reset, *, selection, streams, simulator=None):
        self.log.append((reset.copy(), state.copy()))
        state = np.where(reset, 0.0, state) + observation[:, 0]
        actions = np.stack([np.tanh(state), streams.uniform(1)[:, 0] - 0.5], axis=1).astype(np.float32)
        if self.poison is not None:
            actions = self.poison(len(self.log) - 1, actions)
        return actions, state


def run(scenes: dict[str, Scene], cases: Sequence[Case], policy: Any, env: EnvSettings = ENV, **simulator: Any) -> Any:
    with Simulator(cases, env, scenes=scenes, **simulator) as worlds:
        return rollout(worlds, cases, policy, env=env, selection="deterministic", labels=LABELS)


def test_selection_has_no_default(scenes) -> None:
    """E51: a shared loop once sampled while the metrics it replaced were deterministic; nobody may forget to say."""
    cases = cases_of(scenes)[:1]
    with Simulator(cases, ENV, scenes=scenes) as worlds, pytest.raises(TypeError, match="selection"):
        rollout(worlds, cases, Driver(), env=ENV, labels=LABELS)  # type: ignore[call-arg]


def test_a_case_is_the_same_alone_in_any_batch_and_order(scenes) -> None:
    """E52, E48: results that depend on who ran first are not results. The global generator does not move."""
    cases = cases_of(scenes)
    before = str(np.random.get_state())
    together = {o.trace.meta.case: o.trace.digest for o in run(scenes, cases, Driver())}
    backwards = {o.trace.meta.case: o.trace.digest for o in run(scenes, cases[::-1], Driver(), threads=2)}
    alone = {case.id: run(scenes, [case], Driver())[0].trace.digest for case in cases}
    assert together == backwards == alone
    assert len(set(together.values())) == len(cases)
    assert str(np.random.get_state()) == before


def test_memory_is_fresh_at_the_start_and_kept_until_the_end(scenes) -> None:
    """E53: every row is reset before its first decision and no row before its episode ends."""
    driver = Driver()
    run(scenes, cases_of(scenes), driver)
    resets = [reset for reset, _ in driver.log]
    assert resets[0].all()
    assert not np.stack(resets[1:]).any()
    assert any(memory.any() for _, memory in driver.log)


def test_only_ended_rows_are_reset(scenes) -> None:
    """E53: of four rows one terminal, two truncated, one alive, exactly the first three forget."""
    worlds = StubWorlds([5, 5, 5, 5])
    worlds.flags = {2: ([True, False, False, False], [False, True, True, False])}
    driver = Driver()
    rollout(worlds, worlds.cases, driver, env=ENV, selection="deterministic", labels=LABELS)  # type: ignore[arg-type]
    assert driver.log[2][0].tolist() == [True, True, True, False]
    assert not driver.log[1][0].any()
    assert not driver.log[3][0].any()


def test_traces_hold_every_array_in_its_shape(scenes) -> None:
    """E118: axes agree with the table over all arrays, so no reader has to guess."""
    case = cases_of(scenes)[0]
    trace = run(scenes, [case], Driver())[0].trace
    sizes: dict[str, int] = {}
    for spec in TRACE_ARRAYS:
        for axis, length in zip(spec.shape.split(","), trace[spec.name].shape, strict=True):
            assert sizes.setdefault(axis, length) == length, (spec.name, axis)
    assert sizes["T"] == sizes["U"] + 1 == 13
    assert sizes["N"] == scenes[case.scene_digest].tracks.count
    assert sizes["M"] == len(trace["scored"]) > 0
    assert (trace["events"][:, 0] == 0).all()
    assert len(trace.meta.state_hash) == 13
    assert trace.meta.end_reason == "length"


def test_recording_observations_changes_nothing_else(scenes) -> None:
    """E50, E94: what is recorded is what the policy was given at that step; states, actions and hashes stay as they
    are without it."""
    cases = cases_of(scenes)[:2]
    given: list[np.ndarray] = []

    class Watching(Driver):
        def act(self, observation, state, reset, *, selection, streams, simulator=None):
            given.append(observation.copy())
            return super().act(observation, state, reset, selection=selection, streams=streams)

    plain = run(scenes, cases, Driver())
    with Simulator(cases, ENV, scenes=scenes) as worlds:
        outcomes = rollout(
            worlds, cases, Watching(), env=ENV, selection="deterministic", labels=LABELS, record="observations"
        )
        row_world, blocks = worlds.row_world.copy(), worlds.layout.blocks
    for world, (before, after) in enumerate(zip(plain, outcomes, strict=True)):
        assert before.trace.meta.state_hash == after.trace.meta.state_hash
        assert before.trace["observation"].shape[3] == 0
        assert before.trace.meta.observed == {}
        seen = after.trace["observation"][0]
        for step in range(after.trace.steps):
            assert np.array_equal(seen[step], given[step][row_world == world])
        assert [block["name"] for block in after.trace.meta.observed["blocks"]] == [block.name for block in blocks]
        assert (
            sum(block["rows"] * len(block["features"]) for block in after.trace.meta.observed["blocks"])
            == seen.shape[2]
        )
        assert after.trace["value"].shape[3] == after.trace["distribution"].shape[3] == 0  # this driver has neither
        assert (read_trace(encode_trace(after.trace))["observation"] == after.trace["observation"]).all()


def test_applied_actions_belong_to_their_step(scenes) -> None:
    """E118: row u is the action that led from state u to u + 1; shifted by one it would explain nothing."""

    def beyond(step: int, actions: np.ndarray) -> np.ndarray:
        actions[:] = [2.0, 0.0] if step == 3 else [0.5, 0.0]
        return actions

    case = cases_of(scenes)[0]
    trace = run(scenes, [case], Driver(beyond))[0].trace
    assert trace["action_clipped"][0, 3].all()
    assert not np.delete(trace["action_clipped"][0], 3, axis=0).any()
    np.testing.assert_allclose(trace["action"][0, 3, :, 0], 2.0)
    np.testing.assert_allclose(trace["action_applied"][0, 3, :, 0], 4.0)
    np.testing.assert_allclose(trace["action_applied"][0, 2, :, 0], 2.0)
    agents = trace["policy_agent"]
    np.testing.assert_allclose(np.diff(trace["speed"][0, 3:5, agents].squeeze(), axis=-1), 0.4, atol=1e-5)


def test_discrete_actions_are_stored_as_numbers(scenes) -> None:
    """E118: one column per row for a discrete world, and the applied command of the table beside it."""
    env = EnvSettings(scenario_length=3, action_type="discrete")

    class Chooser(Driver):
        spec = PolicySpec("chooser", "compact/1", "discrete")

        def act(self, observation, state, reset, *, selection, streams, simulator=None):
            return np.full(len(observation), 40, np.int32), state

    trace = run(scenes, cases_of(scenes)[:1], Chooser(), env)[0].trace
    assert trace["action"].shape[-1] == 1
    assert (trace["action"] == 40).all()
    np.testing.assert_allclose(trace["action_applied"][0, 0, 0], [1.333, 0.0])


def test_nan_action_ends_its_case_only(scenes) -> None:
    """E60, EF15, F21: a NaN clipped to a limit and driven would be a result; the case fails, its neighbours finish as
    if it had never been there."""
    cases = cases_of(scenes)
    with Simulator(cases, ENV, scenes=scenes) as worlds:
        bad_row = int(np.flatnonzero(worlds.row_world == 2)[0])

    def poison(step: int, actions: np.ndarray) -> np.ndarray:
        if step == 4:
            actions[bad_row] = np.nan
        return actions

    clean, poisoned = run(scenes, cases, Driver()), run(scenes, cases, Driver(poison))
    assert [outcome.status for outcome in poisoned] == ["ok", "ok", "error", "ok", "ok", "ok"]
    failure = poisoned[2].failure
    assert failure.type == "ActionError"
    assert all(word in failure.message for word in ("world 2", "agent", "step 4", "NaN"))
    assert "Traceback" in failure.traceback
    for one, other in zip(clean, poisoned, strict=True):
        if other.trace is not None:
            assert one.trace.digest == other.trace.digest


def test_every_case_may_fail(scenes) -> None:
    """E60: when the last world of a batch fails there is nothing left to step, which is no error of its own."""
    cases = cases_of(scenes)
    outcomes = run(scenes, cases, Driver(lambda step, actions: actions * np.nan))
    assert {outcome.status for outcome in outcomes} == {"error"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda step, actions: actions[:-1], "policy rows"),
        (lambda step, actions: actions.astype(np.float64), "float64"),
        (lambda step, actions: actions.tolist(), "list"),
    ],
)
def test_wrong_shape_or_dtype_is_an_error_of_the_policy(scenes, wrong, said) -> None:
    """E60, EF15: it cannot be one case's fault alone, so it is raised, and the caller tries the cases one by one."""
    with pytest.raises(ProtocolError, match=said):
        run(scenes, cases_of(scenes), Driver(wrong))


def test_a_policy_is_needed_where_rows_wait(scenes) -> None:
    """E71: a baseline that drives through a controller has no policy; rows without one are a mistake, not zeros."""
    with pytest.raises(ProtocolError, match="wait for a policy"):
        run(scenes, cases_of(scenes), None)


def test_only_policies_that_ask_see_the_simulator(scenes) -> None:
    """E71, S47: an oracle declares that it looks behind the observation; nobody else can."""
    seen = []

    class Oracle(Driver):
        spec = PolicySpec("oracle", None, "continuous", needs_state=True)

        def act(self, observation, state, reset, *, selection, streams, simulator=None):
            seen.append(simulator)
            return super().act(observation, state, reset, selection=selection, streams=streams)

    class Plain(Oracle):
        spec = PolicySpec("plain", None, "continuous")

    run(scenes, cases_of(scenes)[:1], Oracle())
    assert all(isinstance(simulator, Simulator) for simulator in seen)
    seen.clear()
    run(scenes, cases_of(scenes)[:1], Plain())
    assert set(seen) == {None}


def test_state_hash_sees_every_array_and_state() -> None:
    """E83, E105: one changed number in one state changes that state's hash and no other."""
    arrays = {spec.name: np.zeros((1, 4, 3), spec.dtype) for spec in STATE_ARRAYS}
    base = state_hashes(arrays)
    for spec in STATE_ARRAYS:
        changed = {**arrays, spec.name: arrays[spec.name].copy()}
        changed[spec.name][0, 2, 1] = 1
        assert [a == b for a, b in zip(base, state_hashes(changed), strict=True)] == [True, True, False, True]


class StubWorlds:
    """Worlds of one row each that end when told to, or never (length 0), or with a broken observation."""

    def __init__(self, lengths: Sequence[int], steps: int = 6, broken: int = -1) -> None:
        count = len(lengths)
        self.cases = [Case(f"{w:064d}", f"scene-{w}", 0) for w in range(count)]
        self.lengths, self.broken = lengths, broken
        self.flags: dict[int, tuple[list[bool], list[bool]]] = {}
        self.row_world = np.arange(count, dtype=np.int32)
        self.row_agent = np.zeros(count, np.int32)
        self.row_seed, self.row_key = np.arange(count, dtype=np.uint64), np.zeros(count, np.uint32)
        self.world_agents = np.arange(count + 1, dtype=np.int32)
        self.world_steps = np.full(count, steps)
        self.steps_taken = np.zeros(count, np.int64)
        self.done = np.zeros(count, bool)
        self.dt_us = np.full(count, 100_000)
        self.agent = {spec.name: np.zeros(count, spec.dtype) for spec in STATE_ARRAYS}
        self.goal_next = np.zeros(count, np.int32)
        self.applied_actions, self.clipped = np.zeros((count, 2), np.float32), np.zeros(count, bool)
        self.reasons = [""] * count
        self.calls = 0
        self._set()

    def _set(self) -> None:
        count = len(self.cases)
        terminal, truncated = self.flags.get(self.calls, ([False] * count, [False] * count))
        obs = np.zeros((count, 4), np.float32)
        if self.broken >= 0 and self.calls == 2 and not self.done[self.broken]:
            obs[self.broken, 1] = np.inf
        self.result = StepResult(
            obs=obs,
            reward=np.zeros(count, np.float32),
            terminal=np.array(terminal),
            truncated=np.array(truncated),
            mask=~self.done,
            events=np.zeros(count, np.uint32),
            reward_terms=np.zeros((count, 0), np.float32),
            final_obs=None,
        )

    def reset(self) -> StepResult:
        return self.result

    def step(self, actions: np.ndarray) -> StepResult:
        self.calls += 1
        self.steps_taken += ~self.done
        for w, length in enumerate(self.lengths):
            if not self.done[w] and length and self.steps_taken[w] >= length:
                self.end(w, "length")
        self._set()
        return self.result

    def end(self, world: int, reason: str) -> None:
        self.done[world], self.reasons[world] = True, reason

    def end_reason(self, world: int) -> str:
        return self.reasons[world]

    def signal_state(self, world: int) -> np.ndarray:
        return np.zeros(0, np.uint8)

    def scored(self, world: int) -> np.ndarray:
        return np.zeros(1, np.int32)

    policy_agents = scored

    def goals(self, world: int) -> np.ndarray:
        return np.zeros((1, 1, 3), np.float32)

    def goal_count(self, world: int) -> np.ndarray:
        return np.ones(1, np.int32)

    def controller(self, world: int) -> np.ndarray:
        return np.ones(1, np.uint8)

    exclusion = controller

    def identity(self, world: int) -> dict[str, np.ndarray]:
        return {"type": np.ones(1, np.uint8), "subtype": np.zeros(1, np.uint8), "source_id": np.zeros(1, np.int64)}

    def start_row(self, world: int) -> int:
        return 0

    def ego(self, world: int) -> tuple[int, str]:
        return -1, ""


def stub_run(worlds: StubWorlds) -> Any:
    return rollout(worlds, worlds.cases, Driver(), env=ENV, selection="deterministic", labels=LABELS)  # type: ignore[arg-type]


def test_a_world_that_never_ends_is_stalled() -> None:
    """E58, EF20: a job must not wait for ever for an episode that cannot end, nor lose those that did."""
    worlds = StubWorlds([4, 0, 6])
    outcomes = stub_run(worlds)
    assert [outcome.status for outcome in outcomes] == ["ok", "stalled", "ok"]
    assert worlds.calls == STALL_FACTOR * 6
    assert "did not end within 3 times its 6 steps" in outcomes[1].failure.message
    assert outcomes[0].trace.steps == 4
    assert outcomes[2].trace.steps == 6


def test_the_loop_ends_when_every_world_has() -> None:
    """E57, EF20: worlds that end early by termination alone end the pass; no counter of steps or logs decides."""
    worlds = StubWorlds([1, 3])
    outcomes = stub_run(worlds)
    assert worlds.calls == 3
    assert [outcome.trace.steps for outcome in outcomes] == [1, 3]


def test_broken_observation_ends_its_case() -> None:
    """E60: an observation that is not finite is a fault of the world it comes from, named with agent and step."""
    outcomes = stub_run(StubWorlds([4, 4, 4], broken=1))
    assert [outcome.status for outcome in outcomes] == ["ok", "error", "ok"]
    assert outcomes[1].failure.type == CaseError.__name__
    assert "agent 0 in scene scene-1 is not finite at step 2" in outcomes[1].failure.message
