"""For every metric a case worked out by hand (`hand_*`) and a pair of cases that it tells apart (`pair_*`).

A hand case returns (trace, scene, expected), expected being (numerator, denominator) of each agent under test, or a
reason. A pair returns two (trace, scene). `test_hand_worked.py` runs them and fails for a metric that lacks either.
"""

from __future__ import annotations

import numpy as np
from driving import car, lane, scene_of, trace_of

from skidpad.scenes.events import Controller, Event
from skidpad.scenes.scene import TYPE_PEDESTRIAN

VEHICLE, VRU, FAULT = int(Event.COLLISION_VEHICLE), int(Event.COLLISION_VRU), int(Event.AT_FAULT)
OFFROAD, RED, STOP, GOAL = int(Event.OFFROAD), int(Event.RED_LIGHT), int(Event.STOP_SIGN), int(Event.GOAL)
STRAIGHT = lane([(0, 0), (200, 0)], limit=10.0)


def events(n, u, *happened):
    """(N, T) bits: `happened` are (agent, state, bits)."""
    rows = np.zeros((n, u + 1), dtype=np.int64)
    for agent, state, bits in happened:
        rows[agent, state] |= bits
    return rows


def one(arrays, **more):
    """One car on a straight lane with a limit of 10 m/s."""
    scene = scene_of([car(valid=[True] * 60)], [STRAIGHT], edges=True, lights=1, stop_signs=1, yields=1)
    return trace_of(scene, arrays, **more), scene


def with_event(bits):
    return one({"events": events(1, 4, (0, 2, bits))})


# -- contacts -----------------------------------------------------------------------------------------------------


def crash(
    *, speeds=(20.0, 10.0), gap=1.5, heading=0.0, first_y=0.0, steps=4, controllers=Controller.POLICY, scored=None
):
    """Car 0 (4 x 2 m) drives along +x and runs into the tail of car 1, whose centre is 4 + gap m ahead at the start.

    Positions follow from the speeds; the bits and partners are set in the first step at whose end the boxes overlap.
    """
    t = np.arange(steps + 1) * 0.1
    x = np.stack([speeds[0] * t, 4.0 + gap + speeds[1] * t * np.cos(heading)])
    y = np.stack([np.full(steps + 1, first_y), speeds[1] * t * np.sin(heading)])
    hit = int(np.argmax(np.abs(x[1] - x[0]) < 4.0))
    before, after = (x[1] - x[0])[hit - 1], (x[1] - x[0])[hit]
    share = (before - 4.0) / (before - after)
    partner = np.full((2, steps + 1), -1)
    partner[:, hit:] = [[1], [0]]
    time = np.zeros((2, steps + 1))
    time[:, hit] = share
    scene = scene_of([car(), car()], [STRAIGHT], rows=steps + 1)
    arrays = {
        "x": x,
        "y": y,
        "heading": np.array([[0.0], [heading]]),
        "speed": np.array([[speeds[0]], [speeds[1]]]),
        "events": events(2, steps, (0, hit, VEHICLE | FAULT), (1, hit, VEHICLE)),
        "contact_partner": partner,
        "contact_time": time,
    }
    return trace_of(scene, arrays, controller=controllers, scored=scored), scene


def hand_collision_rate():
    """Car 0 at 20 m/s, car 1 at 10 m/s, gap 1.5 m closing 1 m a step: both are in contact in step 2: 1 each. A third
    car that meets nobody would be 0: the pair below."""
    return *crash(), [(1, 1), (1, 1)]


def pair_collision_rate():
    return with_event(VEHICLE), with_event(0)


def hand_collision_events():
    """The contact above lasts from step 2 to the end, 3 steps: 1 event for each of the two."""
    return *crash(), [(1, 1), (1, 1)]


def pair_collision_events():
    return with_event(VEHICLE), with_event(0)


def hand_collision_vru_rate():
    """Agent 0 touches a pedestrian, agent 1 a vehicle: 1 and 0."""
    scene = scene_of([car(), car(x=20.0), car(x=50.0, type=TYPE_PEDESTRIAN)])
    arrays = {"x": [[0.0], [20.0], [50.0]], "events": events(3, 2, (0, 1, VRU), (1, 1, VEHICLE))}
    return trace_of(scene, arrays, scored=[0, 1]), scene, [(1, 1), (0, 1)]


def pair_collision_vru_rate():
    return with_event(VRU), with_event(VEHICLE)


def hand_at_fault_collision_rate():
    """Car 0 (20 m/s) runs with its front into car 1 (10 m/s): `front`, fault. For car 1 the partner's centre is 4 m
    behind its centre, 2.87 m behind its rear axle (4 x 0.282 = 1.13): bearing 180 degrees > 150: `rear`, none."""
    return *crash(), [(1, 1), (0, 1)]


def pair_at_fault_collision_rate():
    # Standing still, car 0 is hit by car 1, which backs into it: stopped_ego, no fault of car 0.
    return crash(scored=[0]), crash(speeds=(0.0, -20.0), gap=1.5, scored=[0])


def hand_at_fault_skidpad_rate():
    """The simulator's own bit: set for car 0 and not for car 1."""
    return *crash(), [(1, 1), (0, 1)]


def pair_at_fault_skidpad_rate():
    return with_event(VEHICLE | FAULT), with_event(VEHICLE)


def hand_collision_by_log_rate():
    """A replayed car 0 runs into car 1, which the policy drives: car 1 is not at fault (rear), car 0 is (front)."""
    controllers = [Controller.REPLAY, Controller.POLICY]
    return *crash(controllers=controllers, scored=[1]), [(1, 1)]


def pair_collision_by_log_rate():
    return crash(scored=[1], controllers=[Controller.REPLAY, Controller.POLICY]), crash(scored=[1])


# -- rules --------------------------------------------------------------------------------------------------------


def hand_offroad_rate():
    """Off-road in step 2 of 4: 1."""
    return *with_event(OFFROAD), [(1, 1)]


def pair_offroad_rate():
    return with_event(OFFROAD), with_event(VEHICLE)


def hand_offroad_time():
    """Off-road in steps 1 and 2 and off the map in step 4, of 0.1 s each: 0.3 s."""
    bits = events(1, 4, (0, 1, OFFROAD), (0, 2, OFFROAD), (0, 4, int(Event.OFF_MAP)))
    return *one({"events": bits}), [(0.3, 1)]


def pair_offroad_time():
    return with_event(OFFROAD), with_event(0)


def hand_red_light_rate():
    """Crossed on red in step 2: 1."""
    return *with_event(RED), [(1, 1)]


def pair_red_light_rate():
    return with_event(RED), with_event(STOP)


def hand_stop_sign_rate():
    """Rolled through in step 2: 1."""
    return *with_event(STOP), [(1, 1)]


def pair_stop_sign_rate():
    return with_event(STOP), with_event(RED)


def hand_yield_failure_rate():
    """Took the right of way in step 2: 1."""
    return *with_event(int(Event.YIELD)), [(1, 1)]


def pair_yield_failure_rate():
    return with_event(int(Event.YIELD)), with_event(STOP)


def hand_infraction_rate():
    """One step with a collision, off-road, red light and stop sign at once: 1."""
    return *with_event(VEHICLE | OFFROAD | RED | STOP), [(1, 1)]


def pair_infraction_rate():
    return with_event(OFFROAD), with_event(GOAL)


def hand_infraction_events():
    """That step has 4 infractions; the car is still off the road in step 3, which is the same stay, and again in step
    5, which is another: 5."""
    bits = events(1, 6, (0, 2, VEHICLE | OFFROAD | RED | STOP), (0, 3, OFFROAD), (0, 5, OFFROAD))
    return *one({"events": bits}), [(5, 1)]


def pair_infraction_events():
    return with_event(OFFROAD | RED), with_event(OFFROAD)


def moving(metres_per_step=2.0, steps=5, bits=0, **arrays):
    """A car that moves along +x, with event bits in step 2."""
    return one(
        {
            "x": np.arange(steps + 1)[None] * metres_per_step,
            "speed": metres_per_step * 10.0,
            "events": events(1, steps, (0, 2, bits)),
            **arrays,
        }
    )


def hand_infractions_per_km():
    """2 infractions in 5 steps of 2 m = 0.01 km."""
    return *moving(bits=OFFROAD | RED), [(2, 0.01)]


def pair_infractions_per_km():
    return moving(2.0, bits=RED), moving(1.0, bits=RED)


def hand_infractions_per_hour():
    """2 infractions in 5 steps of 0.1 s = 0.5 / 3600 h."""
    return *moving(bits=OFFROAD | RED), [(2, 0.5 / 3600)]


def pair_infractions_per_hour():
    return moving(steps=5, bits=RED), moving(steps=10, bits=RED)


def hand_distance_per_infraction():
    """10 m with 2 infractions: 10 over 2."""
    return *moving(bits=OFFROAD | RED), [(10, 2)]


def pair_distance_per_infraction():
    return moving(2.0, bits=RED), moving(1.0, bits=RED)


# -- progress -----------------------------------------------------------------------------------------------------


def hand_distance():
    """Steps of 3 m along x and 4 m along y are 5 m; two of them, then one of 50 m at 50 m/s = 5 m a step, which is a
    teleport: 10 m."""
    return *one({"x": [[0, 3, 6, 56]], "y": [[0, 4, 8, 8]], "speed": 50.0}), [(10, 1)]


def pair_distance():
    return moving(2.0), moving(1.0)


def goals(reached, assigned=3, bits=0):
    steps = 4
    index = np.minimum(np.arange(steps + 1), reached)[None]
    return one({"goal_index": index, "events": events(1, steps, (0, 2, bits))}, goals=assigned)


def hand_goals_reached():
    """2 of 3."""
    return *goals(2), [(2, 1)]


def pair_goals_reached():
    return goals(2), goals(1)


def hand_goal_rate():
    """2 of 3, kept as 2 over 3."""
    return *goals(2), [(2, 3)]


def pair_goal_rate():
    return goals(2), goals(1)


def hand_score():
    """All 3 of 3 without infraction: 1."""
    return *goals(3), [(1, 1)]


def pair_score():
    return goals(3), goals(3, bits=OFFROAD)


def hand_partial_rate():
    """1 of 3 without infraction: 1."""
    return *goals(1), [(1, 1)]


def pair_partial_rate():
    return goals(1), goals(3)


def hand_dnf_rate():
    """0 of 3 without infraction: 1."""
    return *goals(0), [(1, 1)]


def pair_dnf_rate():
    return goals(0), goals(0, bits=RED)


def progress(agent_x, agent_y=0.0, route=(0,)):
    """A log that drives 10 m along +x on lane 0 in 5 steps."""
    log = car(x=2.0 * np.arange(6), route=route)
    scene = scene_of([log], [STRAIGHT])
    return trace_of(scene, {"x": agent_x, "y": np.broadcast_to(agent_y, (1, 6)), "speed": 1.0}, steps=5), scene


def hand_progress_ratio():
    """5 steps of 1 m along the lane and 1 m to its side: path 7.07 m, but 5 m of route; the log has 10 m: 0.5."""
    return *progress([np.arange(6.0)], [np.arange(6.0)]), [(0.5, 1)]


def pair_progress_ratio():
    return progress([np.arange(6.0)]), progress([2 * np.arange(6.0)])


def hand_avg_speed():
    """Speeds 1, 2, -3 at the ends of three steps; the start does not count: (1 + 2 + 3) / 3 = 2 m/s."""
    return *one({"speed": [[9, 1, 2, -3]]}), [(2, 1)]


def pair_avg_speed():
    return moving(2.0), moving(1.0)


def hand_stationary_share():
    """0.1, -0.1, 0.2 and 3 m/s: two of four are below 0.2 m/s."""
    return *one({"speed": [[0, 0.1, -0.1, 0.2, 3]]}), [(0.5, 1)]


def pair_stationary_share():
    return moving(2.0), moving(0.0)


def hand_episode_length():
    """5 steps."""
    return *moving(steps=5), [(5, 1)]


def pair_episode_length():
    return moving(steps=5), moving(steps=6)


def hand_active_time():
    """Stopped at the end of step 2 of 4: it drove 2 steps of 0.1 s."""
    return *one({"status": [[1, 1, 2, 2, 2]]}), [(0.2, 1)]


def pair_active_time():
    return one({"status": [[1, 1, 2, 2]]}), one({"status": [[1, 1, 1, 1]]})


def hand_clipped_actions():
    """Clipped in 1 of 4 steps."""
    return *one({}, steps=4, clipped=[[False, True, False, False]]), [(0.25, 1)]


def pair_clipped_actions():
    return one({}, steps=2, clipped=[[True, False]]), one({}, steps=2, clipped=[[False, False]])


# -- lanes --------------------------------------------------------------------------------------------------------


def on_lane(**arrays):
    return one({"lane": 0, "speed": 10.0, **arrays})


def hand_velocity_progress():
    """Heading errors 0, 60, 120 degrees give 1, 0.5, 0; a fourth step at 2 m/s gives 0; a fifth off the lane does not
    count: 1.5 / 4 = 0.375."""
    error = np.deg2rad([[0, 0, 60, 120, 0, 0]])
    arrays = {"lane_heading_error": error, "speed": [[0, 10, 10, 10, 2, 10]], "lane": [[0, 0, 0, 0, 0, -1]]}
    return *one(arrays), [(0.375, 1)]


def pair_velocity_progress():
    return on_lane(lane_heading_error=[[0, 0, 0]]), on_lane(lane_heading_error=[[1, 1, 1]])


def hand_lane_center_rate():
    """Offsets 0.4, -0.4, 0.6 m: two of three within 0.5 m; a fourth step has no lane."""
    return *one({"lane": [[0, 0, 0, 0, -1]], "lane_offset": [[9, 0.4, -0.4, 0.6, 0]]}), [(2 / 3, 1)]


def pair_lane_center_rate():
    return on_lane(lane_offset=[[0, 0.4, 0.4]]), on_lane(lane_offset=[[0, 0.6, 0.6]])


def hand_lane_offset():
    """Offsets 1, -2, 3 m: mean of the absolute values 2 m."""
    return *on_lane(lane_offset=[[9, 1, -2, 3]]), [(2, 1)]


def pair_lane_offset():
    return on_lane(lane_offset=[[0, 1, 1]]), on_lane(lane_offset=[[0, 2, 2]])


def hand_wrong_way_distance():
    """Steps of 1, 2, 3 and 4 m; against the lane in the first three, too slow (2 m/s) in the second and backwards in
    the third: 1 m."""
    arrays = {
        "x": [[0, 1, 3, 6, 10]],
        "lane": 0,
        "lane_heading_error": [[0, 3, 3, 3, 0]],
        "speed": [[0, 10, 2, -10, 10]],
    }
    return *one(arrays), [(1, 1)]


def pair_wrong_way_distance():
    x = [[0, 1, 2]]
    return on_lane(x=x, lane_heading_error=3.0), on_lane(x=x, lane_heading_error=0.0)


def hand_overspeed():
    """Limit 10: speeds 8, 11, 14 m/s exceed it by 0, 1, 4: mean 5/3 m/s."""
    return *on_lane(speed=[[99, 8, 11, 14]]), [(5 / 3, 1)]


def pair_overspeed():
    return on_lane(speed=[[0, 11, 11]]), on_lane(speed=[[0, 12, 12]])


def hand_overspeed_share():
    """Of 8, 11, 14 m/s one is more than 2 m/s above the limit of 10."""
    return *on_lane(speed=[[99, 8, 11, 14]]), [(1 / 3, 1)]


def pair_overspeed_share():
    return on_lane(speed=[[0, 11, 11]]), on_lane(speed=[[0, 13, 13]])


# -- comfort ------------------------------------------------------------------------------------------------------


def hand_comfort_violations():
    """Longitudinal 0, 4, 4: step 1 has none (its jerk is unknown), step 2 acceleration and a jerk of 40 m/s^3, step 3
    acceleration and lateral -3.5: 0 + 2 + 2 over 3 steps."""
    return *one({"accel_long": [[9, 0, 4, 4]], "accel_lat": [[0, 0, 0, -3.5]]}), [(4 / 3, 1)]


def pair_comfort_violations():
    return one({"accel_lat": [[0, 4, 0]]}), one({"accel_lat": [[0, 4, 4]]})


def hand_comfort_rate():
    """Of the same three steps one violates nothing."""
    return *one({"accel_long": [[9, 0, 4, 4]], "accel_lat": [[0, 0, 0, -3.5]]}), [(1 / 3, 1)]


def pair_comfort_rate():
    return one({"accel_lat": [[0, 4, 0]]}), one({"accel_lat": [[0, 0, 0]]})


def hand_comfort_nuplan():
    """A steady 5 m/s^2 sideways is outside 4.89: 0 for the first car; 4 m/s^2 is inside: 1 for the second (whose simple
    comfort is 0: the two rules differ)."""
    scene = scene_of([car(), car()])
    lateral = np.array([[5.0] * 7, [4.0] * 7])
    return trace_of(scene, {"x": [[0.0], [50.0]], "accel_lat": lateral}), scene, [(0, 1), (1, 1)]


def pair_comfort_nuplan():
    return one({"accel_long": np.full((1, 7), 2.3)}), one({"accel_long": np.full((1, 7), 2.5)})


def hand_infeasible_rate():
    """Five steps of 1 m at 10 m/s. Accelerations 8 and 6 together are 10 > 9.81: step 1. A turn of 0.3 rad is tighter
    than 1/3.5 = 0.286: step 2. 0.28 rad is possible: step 3. Standing, a turn of 0.04 rad is noise (step 4), 0.06 rad
    is not (step 5): 3 of 5."""
    arrays = {
        "x": [[0, 1, 2, 3, 3, 3]],
        "speed": [[10, 10, 10, 10, 0, 0]],
        "accel_long": [[0, 8, 0, 0, 0, 0]],
        "accel_lat": [[0, 6, 0, 0, 0, 0]],
        "heading": np.cumsum([[0, 0, 0.3, 0.28, 0.04, 0.06]], axis=1),
    }
    return *one(arrays), [(0.6, 1)]


def pair_infeasible_rate():
    return one({"accel_long": [[0, 9.7, 0]]}), one({"accel_long": [[0, 9.9, 0]]})


# -- displacement -------------------------------------------------------------------------------------------------


def against_log(offset):
    """A log at rest in the origin, valid in 3 of 4 future rows; the agent stands (3, 4) * offset away."""
    scene = scene_of([car(x=np.zeros(5), valid=[True, True, True, True, False])])
    offset = np.asarray(offset, dtype=float)[None]
    return trace_of(scene, {"x": 3 * offset, "y": 4 * offset}), scene


def hand_ade_log():
    """5, 10 and 15 m at the three steps at which the log is valid; start and invalid row do not count: mean 10 m."""
    return *against_log([9, 1, 2, 3, 9]), [(10, 1)]


def pair_ade_log():
    return against_log([0, 1, 1, 1, 0]), against_log([0, 1, 1, 2, 0])


def hand_fde_log():
    """15 m at the last step at which the log is valid."""
    return *against_log([9, 1, 2, 3, 9]), [(15, 1)]


def pair_fde_log():
    return against_log([0, 1, 1, 1, 0]), against_log([0, 1, 1, 2, 0])


HAND = {name.removeprefix("hand_"): make for name, make in list(globals().items()) if name.startswith("hand_")}
PAIRS = {name.removeprefix("pair_"): make for name, make in list(globals().items()) if name.startswith("pair_")}
