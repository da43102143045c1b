"""What a person can get wrong, one test each, through the public interface: a typed error that says what, where, what
was expected and what to do (S115)."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import DT_US, car, case_of, coast, simulator, straight_road

from skidpad.errors import ActionError, CaseError, ProtocolError, SettingsError
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.events import Status
from skidpad.scenes.scene import EDGE_BOUNDARY, LANE_STREET
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.batch import MOST_AGENTS
from skidpad.simulation.simulator import Simulator

ROAD = straight_road([car(50.0, speed=3.0), car(90.0, speed=3.0)], name="road")


def bare(agents, **keys):
    """Settings of self-play with so many agents per world."""
    return EnvSettings(simulation_mode="gigaflow", min_agents_per_world=agents, max_agents_per_world=agents, **keys)


def lane_between_walls(*, lanes=1, apart=0.5, length=100.0):
    """A lane whose edges stand `apart` metres from its centre, or no lane at all."""
    builder = SceneBuilder("walled" if lanes else "no_lanes", "test", "test", "1", "0" * 64, DT_US)
    x = np.linspace(0.0, length, 11)
    if lanes:
        builder.lane(0, np.stack([x, 0 * x, 0 * x], axis=1), width=np.full(11, 3.5), kind=LANE_STREET, speed_limit=10.0)
    for y in (-apart, apart):
        builder.edge(np.stack([x, 0 * x + y, 0 * x], axis=1), EDGE_BOUNDARY)
    return builder.finish(has_z=False)


def two_worlds(**keys):
    """Two worlds of two drivers, in state 1."""
    sim = simulator(ROAD, EnvSettings(**keys), cases=[case_of(ROAD), case_of(ROAD, replicate=1)])
    sim.reset()
    sim.step(coast(sim))
    return sim


def untouched(sim, call):
    """The error of a call, after which everything is as before."""
    before = {name: array.copy() for name, array in sim.agent.items()}
    with pytest.raises(ActionError) as caught:
        call()
    assert all((before[name] == array).all() for name, array in sim.agent.items())
    return caught.value


def test_an_action_that_is_no_number():
    """S115: NaN names world, scene, agent, row, track and step; nothing has moved; in a row that has left it is
    ignored."""
    sim = two_worlds()
    actions = coast(sim)
    actions[3, 0] = np.nan
    error = untouched(sim, lambda: sim.step(actions))
    assert "world 1 (scene road), agent 1 (row 3, track 101) is NaN at step 1" in str(error)
    assert error.world == 1
    sim.end(1, "told")
    sim.step(actions)


@pytest.mark.parametrize("index", [-1, 63, 2**31 - 1])
def test_an_index_outside_the_table(index):
    """S115: the same for discrete actions, on both sides of the table."""
    sim = two_worlds(action_type="discrete")
    actions = coast(sim)
    actions[2] = index
    error = untouched(sim, lambda: sim.step(actions))
    assert f"world 1 (scene road), agent 0 (row 2, track 100) is {index}, outside the table of 63" in str(error)


@pytest.mark.parametrize(
    ("actions", "given"),
    [
        (np.zeros((3, 2), np.float32), r"float32 \(3, 2\)"),
        (np.zeros((4, 3), np.float32), r"float32 \(4, 3\)"),
        (np.zeros(8, np.float32), r"float32 \(8,\)"),
        (np.zeros((4, 2)), r"float64 \(4, 2\)"),
        (np.zeros((4, 2), np.int32), r"int32 \(4, 2\)"),
        ([[0.0, 0.0]] * 4, "list"),
        (None, "NoneType"),
    ],
)
def test_actions_of_another_shape_or_dtype(actions, given):
    """S115: nothing is cast or broadcast in silence; the error says what was given and what is due."""
    sim = two_worlds()
    with pytest.raises(ProtocolError, match=f"actions are {given}.*takes float32 \\(4, 2\\)"):
        sim.step(actions)


def test_no_world_and_nobody():
    """S115: zero worlds, and a world without an agent to test, which says why there is none."""
    with pytest.raises(ProtocolError, match="no case"):
        Simulator([], EnvSettings(), scenes={})
    with pytest.raises(
        CaseError, match=r"scene road: nobody to test .it has no tracks.. Choose another scene"
    ) as caught:
        simulator([ROAD, straight_road()], cases=[case_of(ROAD), case_of(straight_road())])
    assert caught.value.world == 1


def test_more_agents_than_find_a_place():
    """S57, S115: on a road too short for sixty, those without a place are empty, silent and counted in the rows; the
    others drive."""
    road = straight_road(length=60.0)
    sim = simulator(road, bare(60, scenario_length=2))
    sim.reset()
    empty = sim.agent["status"] == Status.EMPTY
    assert 0 < empty.sum() < 60
    for _ in range(2):
        result = sim.step(coast(sim))
    assert (result.mask == ~empty).all()
    assert not result.obs[empty].any()
    rows = sim.rows()
    assert sum(row.get("status") == "empty" for row in rows) == empty.sum()


def test_more_agents_than_a_world_holds():
    """S115: above the limit of one world construction is refused at once, before memory is taken."""
    with pytest.raises(CaseError, match=f"agents in one world; {MOST_AGENTS} fit") as caught:
        simulator(straight_road(), bare(MOST_AGENTS + 1))
    assert caught.value.world == 0


def test_nobody_finds_a_place():
    """S57, S115: between walls closer than any car is wide every spawn fails; the world is named, and the others go on
    once it has been ended."""
    walled, road = lane_between_walls(), straight_road()
    sim = simulator([road, walled], bare(3), cases=[case_of(road), case_of(walled)])
    with pytest.raises(CaseError, match=r"world 1 \(scene walled\): none of its 3 agents found a place") as caught:
        sim.reset()
    sim.end(caught.value.world, str(caught.value))
    assert sim.step(coast(sim)).mask.tolist() == [True] * 3 + [False] * 3


def test_a_map_without_lanes():
    """S115: self-play needs lanes and says so; a log replays without any."""
    with pytest.raises(CaseError, match=r"scene no_lanes: no drivable lane to put agents on. Choose another map"):
        simulator(lane_between_walls(lanes=0), bare(2))


def test_a_log_without_lanes():
    """S115: where somebody only drives by actions, a map without lanes runs, and every agent's lane is lost."""
    builder = SceneBuilder("fields", "test", "test", "1", "0" * 64, DT_US)
    builder.edge(np.array([[0.0, 30.0, 0.0], [200.0, 30.0, 0.0]]), EDGE_BOUNDARY)
    track = car(50.0, speed=3.0)
    builder.track(1, track.pop("type"), track.pop("subtype"), **track)
    sim = simulator(builder.finish(has_z=False))
    sim.reset()
    assert sim.step(coast(sim)).mask.all()
    assert sim.agent["lane"].tolist() == [-1]


def test_calls_out_of_order():
    """S109, S115: a step, a snapshot or a partial reset before the first reset, and steps after everything has
    ended."""
    sim = simulator(ROAD, EnvSettings(scenario_length=1), cases=[case_of(ROAD), case_of(ROAD, replicate=1)])
    for call in (lambda: sim.step(coast(sim)), sim.snapshot, lambda: sim.reset([1])):
        with pytest.raises(ProtocolError, match=r"before reset|first reset"):
            call()
    sim.reset()
    with pytest.raises(ProtocolError, match="snapshot of no world"):
        sim.snapshot([])
    with pytest.raises(ProtocolError, match="no such world: 2; there are 2"):
        sim.reset([2])
    sim.step(coast(sim))
    with pytest.raises(ProtocolError, match="every world has ended: call reset"):
        sim.step(coast(sim))


def test_a_closed_simulator():
    """S109, S115: closing twice is harmless; every use afterwards says what to do."""
    sim = two_worlds()
    data = sim.snapshot()
    sim.close()
    sim.close()
    calls = [
        sim.reset,
        lambda: sim.step(coast(sim)),
        lambda: sim.step_many(coast(sim)[None]),
        sim.snapshot,
        lambda: sim.restore(data),
        lambda: sim.end(0, "told"),
        lambda: sim.write_to({}),
        sim.log_actions,
    ]
    for call in calls:
        with pytest.raises(ProtocolError, match="closed: construct a new one"):
            call()


def test_settings_that_a_mode_does_not_have():
    """S49, S115: a log's driver on a bare map."""
    with pytest.raises(SettingsError, match='"replay" needs a log'):
        simulator(straight_road(), bare(2, vehicle_controller="replay"))
