"""What is known to go wrong in the peer, staged here (section 14 of the specification), and settings that act in whole
worlds only."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from bare_maps import town
from worlds import ROWS, car, coast, history, simulator, straight_road

from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.events import Event, Status
from skidpad.scenes.scene import EDGE_BOUNDARY, LANE_STREET, STATE_GREEN, STATE_RED, STATE_YELLOW
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.schema import CompatSettings, EnvSettings, PerturbationSettings, RewardSettings
from skidpad.simulation import state as at
from skidpad.simulation.rewards import T_GOAL

LAYOUTS = ("compact/1", "wide_32/1", "default/1", "v3/1", "deferred_32/1")


def curve(*, edges):
    """A bend of one lane with a car that leaves it, with or without the edges that it crosses."""
    builder = SceneBuilder("bend", "test", "test", "1", "0" * 64)
    angle = np.linspace(0, np.pi / 2, 30)
    bend = np.stack([60 * np.sin(angle), 60 - 60 * np.cos(angle)], axis=1)
    builder.lane(0, bend, width=np.full(30, 3.5), kind=LANE_STREET)
    if edges:
        for radius in (57.5, 62.5):
            arc = np.stack([radius * np.sin(angle), 60 - radius * np.cos(angle)], axis=1)
            builder.edge(arc, EDGE_BOUNDARY)
    track = car(2.0, speed=8.0)
    builder.track(1, track.pop("type"), track.pop("subtype"), **track)
    return builder.finish(has_z=False)


def test_lanes_do_not_depend_on_edges():
    """Weakness 12 (S71): in the peer the hit of an edge ends the search that also finds the lane. A car that drives off
    a bend has the same lane in every step whether edges are there to be hit or not."""
    names = ("lane", "lane_offset", "lane_heading_error", "lane_arc", "events")
    with_edges, without = (
        history(simulator(curve(edges=edges), EnvSettings(offroad="edges")), names=names) for edges in (True, False)
    )
    assert (with_edges["events"] & np.uint32(Event.OFFROAD)).any()
    for name in names[:-1]:
        assert (with_edges[name] == without[name]).all(), name


def test_four_things_happen_in_one_step():
    """Weakness 13 (S69, S71, S72, S77): a car that hits another and the edge, and passes a red light and its goal in
    one step, has all four bits of it; in the peer one hides the others."""
    light = {
        "kind": 1,
        "line": [(60.0, 1.75, 0.0), (60.0, -1.75, 0.0)],
        "heading": 0.0,
        "states": np.full(ROWS, STATE_RED),
    }
    ego, parked = car(50.0, 1.2, speed=20.0, goal=(59.0, 1.2, 0.0)), car(62.4, 1.0)
    scene = straight_road([ego, parked], signals=[light])
    sim = simulator(scene, EnvSettings(num_goals=1, offroad="edges"))
    sim.reset()
    # Just before the line and the parked car, turned towards the edge.
    sim._f4[at.X, 0], sim._f4[at.HEADING, 0] = 57.0 - scene.meta.origin[0], 0.3
    sim._f4[at.COS, 0], sim._f4[at.SIN, 0] = np.cos(0.3), np.sin(0.3)
    sim.step(coast(sim))
    bits = Event(int(sim.agent["events"][0]))
    for event in (Event.COLLISION_VEHICLE, Event.OFFROAD, Event.RED_LIGHT, Event.GOAL):
        assert event in bits, bits


def test_a_reset_with_map_goals_makes_map_goals():
    """Weakness 16 (S59): in the peer a reset of a log with map goals makes route goals. Here the second reset gives the
    goals of the first, which are on lanes, and not those of routes."""
    scene = synthetic("crossing", seed=1)
    made = {}
    for source in ("map", "route"):
        sim = simulator(scene, EnvSettings(goal_source=source))
        sim.reset()
        first = sim.goals(0).copy()
        sim.step(coast(sim))
        sim.reset()
        assert np.array_equal(first, sim.goals(0), equal_nan=True)
        made[source] = first
    assert np.isfinite(made["map"][:, 0]).all()
    assert not np.array_equal(made["map"][:, 0], made["route"][:, 0])


def test_events_do_not_depend_on_observations():
    """Weakness 20 (S82): rules of the peer read observation slots. Here every layout, of whatever family, and every
    weight and way of looking leaves the same events, lanes and poses in every step of traffic that runs into itself."""
    scene = synthetic("crossing", seed=2)
    seen = set()
    free = RewardSettings(collision=0.0, offroad=0.0, stop_line=0.0, goal=5.0, comfort=1.0, progress=1.0)
    perturbed = PerturbationSettings(lane_dropout=0.5, edge_dropout=0.5)
    for settings in (
        *(EnvSettings(layout=layout) for layout in LAYOUTS),
        EnvSettings(reward=free),
        EnvSettings(compat=CompatSettings(reward="v2")),
        EnvSettings(own_size_margin=0.5, obs_dtype="int8", perturbation=perturbed),
    ):
        sim = simulator(scene, settings)
        push = np.full((len(sim.row_world), 2), (1.0, 0.1), np.float32)
        found = history(sim, lambda sim, result, push=push: push)
        seen.add(hashlib.sha256(b"".join(found[name].tobytes() for name in sorted(found))).hexdigest())
        assert found["events"].any()
    assert len(seen) == 1


def test_lights_of_the_peer_ignore_each_other():
    """Weakness 21 (S104): generated lights of a junction are never open together where their ways conflict; under
    `compat.lights = independent` each has a cycle of its own, and they are."""
    scene = town("crossing")
    signals = replace(
        scene.signals,
        state=np.zeros_like(scene.signals.state),
        program_offset=np.zeros_like(scene.signals.program_offset),
        program_duration=np.zeros(0, np.float32),
        program_state=np.zeros(0, np.uint8),
    )
    scene = replace(scene, signals=signals)
    shown = {}
    for lights in ("none", "independent"):
        settings = EnvSettings(
            simulation_mode="gigaflow",
            min_agents_per_world=2,
            max_agents_per_world=2,
            compat=CompatSettings(lights=lights),
        )
        sim = simulator(scene, settings)
        sim.reset()
        states = []
        for _ in range(250):
            states.append(sim.signal_state(0).copy())
            sim.step(coast(sim))
        shown[lights] = np.array(states)
    # Every arm of this crossing conflicts with every other: each has a phase of its own.
    open_lights = {lights: np.isin(states, (STATE_GREEN, STATE_YELLOW)).sum(axis=1) for lights, states in shown.items()}
    assert open_lights["none"].max() == 1
    assert open_lights["independent"].max() > 1


def test_the_speed_gate_may_hold_for_all_goals():
    """S77: a car at 6 m/s past a gate of 3 m/s is paid for all goals but the last of its set; with `gate_all`, for
    none. It reaches them all the same."""
    scene = straight_road([car(20.0, speed=6.0)])
    for gate_all, paid in ((False, 2.0), (True, 0.0)):
        sim = simulator(scene, EnvSettings(goal_speed=3.0, gate_all=gate_all))
        sim.reset()
        total = 0.0
        while not sim.done.all():
            total += float(sim.step(coast(sim)).reward_terms[0, T_GOAL])
        assert sim.agent["goal_index"][0] == 3
        assert total == paid


def test_worlds_may_outlast_their_log():
    """S56: 120 steps over a log of 91 rows: whoever is driven stays under `beyond_log = stay` and drives on, or leaves
    with its track; traffic of the log is gone after its last row."""
    scene = straight_road([car(20.0, speed=2.0), car(60.0, speed=2.0, expert=True)])
    for beyond, at_the_end in (("stay", Status.ACTIVE), ("retire", Status.RETIRED)):
        settings = EnvSettings(
            scenario_length=120,
            allow_beyond_log=True,
            beyond_log=beyond,
            inactive_threshold=1e6,
            vehicle_controller="policy",
        )
        sim = simulator(scene, settings)
        assert sim.world_steps.tolist() == [120]
        found = history(sim, names=("status", "x"))
        assert len(found["status"]) == 121
        assert found["status"][-1, 0] == at_the_end
        assert (found["status"][ROWS:, 1] != Status.ACTIVE).all()
        assert (found["status"][1:ROWS] == Status.ACTIVE).all()
        if beyond == "stay":
            assert (np.diff(found["x"][:, 0]) > 0.19).all()


def test_overlaps_at_the_start_are_named():
    """S54: pairs whose boxes overlap in state 0 are named by the simulator, and no longer once they have parted."""
    scene = straight_road([car(20.0, speed=6.0), car(22.0), car(60.0)])
    sim = simulator(scene)
    sim.reset()
    assert sim.overlapping(0).tolist() == [[0, 1]]
    for _ in range(20):
        sim.step(coast(sim))
        if not len(sim.overlapping(0)):
            break
    assert sim.overlapping(0).tolist() == []
