"""The Simulator keeps its contract: life cycle, errors, and the same bytes however worlds are arranged (S109-S122)."""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from worlds import ROWS, car, case_of, coast, simulator, straight_road

from skidpad.errors import ActionError, CaseError, ProtocolError
from skidpad.scenes.case import Case
from skidpad.scenes.events import Status
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import CompatSettings, EnvSettings, PerturbationSettings
from skidpad.simulation import state as at
from skidpad.simulation.random import uniform_array
from skidpad.simulation.simulator import Simulator

SCENES = {name: synthetic(name) for name in ("straight", "curve", "crossing")}


def wild(sim):
    """Actions by identity: a function of seed, agent and step, never of the row's place."""
    steps = sim.steps_taken[sim.row_world]
    drawn = uniform_array(sim.row_seed[:, None], 0, sim.row_key[:, None], steps[:, None], 12, np.arange(2)[None])
    if sim.settings.action_type == "discrete":
        return (drawn[:, 0] * 63).astype(np.int32)
    return (drawn * np.float32(2) - np.float32(1)).astype(np.float32)


def fingerprints(sim, steps=40):
    """Per case and step, a digest of everything its world shows."""
    found = {case.id: hashlib.sha256() for case in sim.cases}
    result = sim.reset()
    for step in range(steps + 1):
        for w, case in enumerate(sim.cases):
            a = slice(int(sim.world_agents[w]), int(sim.world_agents[w + 1]))
            rows = sim.row_world == w
            for name in sorted(sim.agent):
                found[case.id].update(sim.agent[name][a].tobytes())
            for part in result:
                found[case.id].update(b"" if part is None else part[rows].tobytes())
            found[case.id].update(sim.overflow[rows].tobytes())
        if step < steps:
            result = sim.step(wild(sim))
    return {case: digest.hexdigest() for case, digest in found.items()}


def cases_of(count):
    """Cases over the three scenes in turn, all different."""
    scenes = list(SCENES.values())
    return [case_of(scenes[n % 3], replicate=n // 3) for n in range(count)]


EVERYTHING_ON = EnvSettings(
    beyond_log="stay",
    perturbation=PerturbationSettings(lane_dropout=0.3, edge_dropout=0.2, blindness=0.5, phantom_braking=0.5),
)


@pytest.fixture(scope="module")
def reference():
    """Each of nine cases simulated alone."""
    return {
        case.id: fingerprints(simulator(list(SCENES.values()), EVERYTHING_ON, cases=[case]))[case.id]
        for case in cases_of(9)
    }


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
def test_same_bytes_for_any_threads(reference, threads):
    """S35, F25: threads only decide who computes what."""
    with simulator(list(SCENES.values()), EVERYTHING_ON, cases=cases_of(9), threads=threads) as sim:
        assert fingerprints(sim) == reference


@pytest.mark.parametrize("order", [range(9), range(8, -1, -1), [4, 0, 7, 2], [3, 3, 5]])
def test_same_bytes_for_any_batch(reference, order):
    """S34, S35, F25: batch position, company and order of worlds are no inputs."""
    cases = [cases_of(9)[n] for n in order]
    found = fingerprints(simulator(list(SCENES.values()), EVERYTHING_ON, cases=cases))
    if len(set(order)) == len(list(order)):
        assert found == {case.id: reference[case.id] for case in cases}
    else:  # The same case twice: both copies feed one digest, so compare the states.
        sim = simulator(list(SCENES.values()), EVERYTHING_ON, cases=cases)
        sim.reset()
        for _ in range(30):
            sim.step(wild(sim))
        first, second = (slice(int(sim.world_agents[w]), int(sim.world_agents[w + 1])) for w in (0, 1))
        assert all(view[first].tobytes() == view[second].tobytes() for view in sim.agent.values())


def test_two_simulators_in_two_threads(reference):
    """S122: two Python threads with a simulator each do not meet."""
    found = {}

    def run(cases):
        found.update(fingerprints(simulator(list(SCENES.values()), EVERYTHING_ON, cases=cases)))

    workers = [threading.Thread(target=run, args=(cases_of(9)[part],)) for part in (slice(0, 5), slice(5, 9))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == reference


@pytest.mark.parametrize("driver", ["idm", "pdm", "rails"])
def test_order_of_agents_changes_nothing_else(driver):
    """S36, S107: permuting the tracks of a scene permutes the result; nobody decides on another's next pose, whichever
    rule drives."""
    compat = CompatSettings(idm="rails" if driver == "rails" else "none")
    settings = EnvSettings(vehicle_controller="pdm" if driver == "pdm" else "idm", beyond_log="stay", compat=compat)
    tracks = [car(60.0 + 11.0 * n, y=-3.5 * (n % 2), speed=4.0 + n, source_id=n) for n in range(8)]
    order = [5, 2, 7, 0, 3, 6, 1, 4]
    runs = []
    for numbers in (range(8), order):
        scene = straight_road([tracks[n] for n in numbers], lanes=2)
        sim = simulator(scene, settings, substitute=settings.vehicle_controller)
        sim.reset()
        states = []
        while not sim.done.all():
            sim.step(coast(sim))
            states.append(np.stack([sim.agent[name] for name in ("x", "y", "speed", "lane_offset")]))
        runs.append(np.array(states))
    assert runs[0][:, :, order].tobytes() == runs[1].tobytes()


def test_partial_reset_touches_only_the_named():
    """S109: the other worlds keep their state, their rows and their place in the episode."""
    sim = simulator(list(SCENES.values()), cases=cases_of(6))
    first = sim.reset().obs.copy()
    for _ in range(10):
        sim.step(wild(sim))
    before = {name: view.copy() for name, view in sim.agent.items()}
    obs = sim.result.obs.copy()
    result = sim.reset([1, 4])
    named = np.isin(sim.row_world, [1, 4])
    agents = np.concatenate([np.arange(sim.world_agents[w], sim.world_agents[w + 1]) for w in (1, 4)])
    kept = np.setdiff1d(np.arange(sim.world_agents[-1]), agents)
    assert (result.obs[named] == first[named]).all()
    assert (result.obs[~named] == obs[~named]).all()
    for name, view in sim.agent.items():
        assert (view[kept] == before[name][kept]).all(), name
    assert sim.steps_taken.tolist() == [10, 0, 10, 10, 0, 10]


def test_a_reset_is_a_fresh_start():
    """An episode leaves nothing behind: the second one is the first, byte by byte."""
    sim = simulator(list(SCENES.values()), EVERYTHING_ON, cases=cases_of(3))
    assert fingerprints(sim, 60) == fingerprints(sim, 60)


# ------------------------------------------------------------------------------------------------ life cycle


def test_calls_in_the_wrong_order():
    """S115, F23: step before reset, after the end and after close are typed errors; closing twice is harmless."""
    scene = SCENES["straight"]
    sim = simulator(scene, EnvSettings(scenario_length=2))
    with pytest.raises(ProtocolError, match="before reset"):
        sim.step(coast(sim))
    sim.reset()
    sim.step(coast(sim))
    result = sim.step(coast(sim))
    assert result.truncated.all()
    assert sim.end_reason(0) == "length"
    with pytest.raises(ProtocolError, match="every world has ended"):
        sim.step(coast(sim))
    with pytest.raises(ProtocolError, match="no such world: 7"):
        sim.reset([7])
    sim.close()
    sim.close()
    for call in (sim.reset, lambda: sim.step(coast(sim)), sim.log_actions, lambda: sim.end(0, "x")):
        with pytest.raises(ProtocolError, match="closed"):
            call()


def test_construction_errors():
    """S115: no case, a foreign scene, no thread, a case without a driver: each says which."""
    scene = SCENES["straight"]
    with pytest.raises(ProtocolError, match="no case"):
        Simulator([], EnvSettings(), scenes={})
    with pytest.raises(ProtocolError, match="not among"):
        Simulator([Case("0" * 64, "gone", 0)], EnvSettings(), scenes={scene.digest: scene})
    with pytest.raises(ProtocolError, match="threads is 0"):
        simulator(scene, threads=0)
    empty = straight_road([car(50.0)], name="parked")
    with pytest.raises(CaseError, match="parked") as caught:
        simulator([scene, empty])
    assert caught.value.world == 1


def test_worlds_end_one_by_one():
    """S64, S110: a world that ended is silent; the others run on; its last row stays readable in the step it ended."""
    short = straight_road([car(50.0, speed=3.0) | {"valid": np.arange(ROWS) < 200}], name="short")
    sim = simulator([short, SCENES["straight"]], EnvSettings(scenario_length=10))
    sim.reset()
    for _ in range(4):
        sim.step(coast(sim))
    sim.end(0, "because")
    rows = sim.row_world == 0
    assert sim.end_reason(0) == "because"
    frozen = sim.agent["x"][0]
    for _ in range(6):
        result = sim.step(coast(sim))
        assert (result.obs[rows] == 0).all()
        assert not result.mask[rows].any()
        assert sim.agent["x"][0] == frozen
    assert result.truncated[~rows].all()
    assert not result.truncated[rows].any()
    assert (np.abs(result.obs[~rows]).sum(axis=1) > 0).all()


def test_terminal_once_when_the_track_ends():
    """S64: an agent leaves with its track: terminal once, then masked, zero and without a body; truncated it is not."""
    scene = straight_road([car(50.0, speed=5.0, valid=np.arange(ROWS) < 31), car(150.0, speed=5.0)])
    sim = simulator(scene)
    sim.reset()
    terminal, truncated, masks = [], [], []
    while not sim.done.all():
        result = sim.step(coast(sim))
        terminal.append(result.terminal.copy())
        truncated.append(result.truncated.copy())
        masks.append(result.mask.copy())
        if result.terminal[0]:
            assert sim.agent["status"][0] == Status.RETIRED
            assert (result.obs[0] == 0).all()
            assert sim.steps_taken[0] == 31
    assert np.sum(terminal, axis=0).tolist() == [1, 0]
    assert np.sum(truncated, axis=0).tolist() == [0, 1]
    assert np.sum(masks, axis=0).tolist() == [31, 90]
    stays = simulator(scene, EnvSettings(beyond_log="stay"))
    stays.reset()
    while not stays.done.all():
        assert not stays.step(coast(stays)).terminal.any()
    assert stays.agent["status"][0] == Status.ACTIVE


# --------------------------------------------------------------------------------------------------- actions


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_action(value):
    """S115, F21: NaN and infinity are refused with world, scene, agent, row, track and step, state untouched."""
    sim = simulator(list(SCENES.values()), cases=cases_of(3))
    sim.reset()
    for _ in range(5):
        sim.step(coast(sim))
    before = [view.copy() for view in sim.agent.values()]
    actions = coast(sim)
    row = int(np.flatnonzero(sim.row_world == 1)[2])
    actions[row, 1] = value
    with pytest.raises(ActionError) as caught:
        sim.step(actions)
    scene = SCENES["curve"]
    agent = int(sim.row_agent[row])
    assert caught.value.world == 1
    for part in (f"world 1 (scene {scene.meta.scene_id})", f"agent {agent} (row {row}, track", "at step 5"):
        assert part in str(caught.value)
    assert all((a == b).all() for a, b in zip(before, sim.agent.values(), strict=True))
    sim.end(1, "failed")
    sim.step(actions)  # A NaN in a row that nobody reads is ignored.
    assert sim.steps_taken.tolist() == [6, 5, 6]


@pytest.mark.parametrize("index", [-1, 63, 2**31 - 1])
def test_an_index_outside_the_table(index):
    """S115, F21, EF19: an index that names no action is refused, not wrapped."""
    sim = simulator(SCENES["straight"], EnvSettings(action_type="discrete"))
    sim.reset()
    actions = coast(sim)
    actions[3] = index
    with pytest.raises(ActionError, match=f"is {index}, outside the table of 63"):
        sim.step(actions)


@pytest.mark.parametrize(
    "actions",
    [
        np.zeros((8, 2)),
        np.zeros((7, 2), np.float32),
        np.zeros(8, np.float32),
        [[0.0, 0.0]] * 8,
        np.zeros((8, 2), np.int32),
    ],
    ids=["float64", "a row short", "one column", "list", "int"],
)
def test_wrong_shape_or_dtype(actions):
    """S115, F21: the message names what came and what is taken."""
    sim = simulator(SCENES["straight"])
    sim.reset()
    with pytest.raises(ProtocolError, match=r"takes float32 \(8, 2\)"):
        sim.step(actions)


def test_out_of_the_box_is_clipped_and_counted():
    """S45, F22, EF19: commands beyond the box are those of its corner, and the row says so."""
    over, corner = (simulator(SCENES["straight"]) for _ in range(2))
    over.reset(), corner.reset()
    actions = coast(over)
    actions[0], actions[1] = (7.0, -3.0), (1.0, 1.0)
    over.step(actions)
    corner.step(np.clip(actions, -1, 1))
    assert over.clipped.tolist() == [True] + [False] * 7
    assert over.applied_actions[0].tolist() == np.float32([4.0, -0.667]).tolist()
    assert all((a == b).all() for a, b in zip(over.agent.values(), corner.agent.values(), strict=True))


def test_clipping_of_ended_worlds_is_not_counted():
    """F22: what nobody reads is not clipped, or a case that ended early would look like a bad driver."""
    sim = simulator(SCENES["straight"], cases=[case_of(SCENES["straight"], replicate=n) for n in range(2)])
    sim.reset()
    sim.end(0, "told")
    sim.step(np.full((16, 2), 9.0, np.float32))
    assert sim.clipped.tolist() == [False] * 8 + [True] * 8


def test_read_only_and_strided_actions_are_read():
    """F21: how the caller holds its array is no reason to refuse it, nor to write into it."""
    sim = simulator(SCENES["straight"])
    sim.reset()
    wide = np.zeros((8, 6), np.float32)
    wide[:, 2:4] = 0.5
    view = wide[:, 2:4]
    view.flags.writeable = False
    sim.step(view)
    assert sim.applied_actions[0].tolist() == np.float32([2.0, 0.3335]).tolist()


@pytest.mark.parametrize("index", [0, 31, 62])
def test_discrete_equals_the_box_at_its_corners(index):
    """S45, S46: the extremes of the table and zero are the same command as the box's."""
    unit = {0: (-1.0, -1.0), 31: (0.0, 0.0), 62: (1.0, 1.0)}[index]
    one = simulator(SCENES["curve"], EnvSettings(action_type="discrete"))
    two = simulator(SCENES["curve"])
    one.reset(), two.reset()
    rows = len(one.row_world)
    for _ in range(20):
        one.step(np.full(rows, index, np.int32))
        two.step(np.tile(np.float32([unit]), (rows, 1)))
    assert all((a == b).all() for a, b in zip(one.agent.values(), two.agent.values(), strict=True))


# ------------------------------------------------------------------------------------------------------ state


@pytest.mark.parametrize("field", ["x", "y", "z", "heading", "speed", "steering"])
def test_a_state_that_is_not_finite_ends_its_world(field):
    """S116: NaN injected into a state field is found in the next step, named, and stays in its world."""
    sim = simulator(list(SCENES.values()), cases=cases_of(3))
    sim.reset()
    sim.step(coast(sim))
    row = [f.name for f in at.FLOAT_STATE].index(field)
    sim._f4[row, sim.world_agents[1] + 2] = np.nan
    with pytest.raises(CaseError, match=rf"world 1 \(scene curve-0\), agent 2 .*{field}") as caught:
        sim.step(coast(sim))
    assert caught.value.world == 1
    assert sim.end_reason(1) == "not_finite"
    assert sim.steps_taken[[0, 2]].tolist() == [2, 2]
    assert np.isfinite(sim.result.obs).all()
    assert np.isfinite(sim.step(coast(sim)).obs).all()


def test_errors_travel_between_processes():
    """A worker's error must say its world in the parent: exceptions with arguments often do not survive pickling."""
    error = pickle.loads(pickle.dumps(ActionError("no", world=4)))
    assert (str(error), error.world) == ("no", 4)


def test_buffers_stay_and_nothing_is_allocated_per_row():
    """S110, S111: results are views of the same buffers; a step allocates no array that grows with the batch."""
    sim = simulator(SCENES["straight"], cases=[case_of(SCENES["straight"], replicate=n) for n in range(64)])
    first, actions = sim.reset(), coast(sim)
    second = sim.step(actions)
    assert all(a is b for a, b in zip(first, second, strict=True))
    tracemalloc.start()
    for _ in range(5):
        sim.step(actions)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < first.obs.nbytes / 8
    with pytest.raises(ValueError, match="read-only"):
        sim.agent["x"][0] = 1.0


def test_views_follow_the_scene():
    """The accessors are those of the population and the log; agent n of a world is track n of its scene."""
    sim = simulator(list(SCENES.values()), cases=cases_of(3), settings=EnvSettings(init_step=5))
    sim.reset()
    for w in range(3):
        scene, a = sim.scene(w), int(sim.world_agents[w])
        assert sim.start_row(w) == 5
        assert sim.world_steps[w] == 85
        assert sim.agent["x"][a] == scene.tracks.x[0, 5]
        assert sim.scored(w).tolist() == sim.policy_agents(w).tolist() == sim.row_agent[sim.row_world == w].tolist()
        assert sim.goals(w).shape == (len(sim.scored(w)), 3, 3)
        assert sim.goal_count(w).tolist() == [3] * len(sim.scored(w))
        assert len(sim.controller(w)) == len(sim.exclusion(w)) == scene.tracks.count
        assert sim.signal_state(w).shape == (scene.signals.count,)
        assert sim.ego(w) == (-1, "")
    assert (np.diff(sim.row_world) >= 0).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_fork_is_an_error_not_a_hang():
    """S122: threads do not survive a fork; the child is told so at once."""
    with simulator(
        SCENES["straight"], threads=2, cases=[case_of(SCENES["straight"], replicate=n) for n in range(2)]
    ) as sim:
        sim.reset()
        child = os.fork()
        if child == 0:
            try:
                sim.step(coast(sim))
            except ProtocolError:
                os._exit(7)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        sim.step(coast(sim))


class Calls(RuleBasedStateMachine):
    """Any order of reset, partial reset, step and end keeps clocks, masks and rows consistent."""

    @initialize()
    def start(self):
        self.sim = simulator(list(SCENES.values()), EnvSettings(scenario_length=6), cases=cases_of(3))
        self.sim.reset()
        self.clock = [0, 0, 0]

    @rule(worlds=st.sets(st.integers(0, 2)))
    def reset(self, worlds):
        self.sim.reset(sorted(worlds))
        for w in worlds:
            self.clock[w] = 0
        self.check()

    @precondition(lambda self: not self.sim.done.all())
    @rule()
    def step(self):
        done = self.sim.done.copy()
        result = self.sim.step(wild(self.sim))
        for w in range(3):
            self.clock[w] += not done[w]
        assert (result.mask == ~done[self.sim.row_world]).all()
        assert (result.truncated == (self.sim.done & ~done)[self.sim.row_world]).all()
        self.check()

    @rule(world=st.integers(0, 2))
    def end(self, world):
        self.sim.end(world, "told")
        self.check()

    def check(self):
        assert self.sim.steps_taken.tolist() == self.clock
        assert (self.sim.done[np.array(self.clock) == 6]).all()
        assert np.isfinite(self.sim.result.obs).all()


TestCalls = Calls.TestCase
TestCalls.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
