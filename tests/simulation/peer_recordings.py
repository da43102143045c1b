"""Recordings of another simulator, PufferDrive, replayed in ours one step at a time (section 13 of the specification).

Each step starts from the recorded state: rolled out freely, two float32 programs drift apart, and every later
difference would be one of an earlier step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from worlds import case_of

from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.events import Event, Status
from skidpad.scenes.scene import EDGE_BOUNDARY, LANE_STREET, SUBTYPE_CAR, SUBTYPE_NONE, TYPE_VEHICLE
from skidpad.settings.schema import CompatSettings, EnvSettings, RewardSettings
from skidpad.simulation import state as at
from skidpad.simulation.simulator import Simulator

CLASSIC = ("classic_continuous", "classic_discrete", "classic_discrete_goal_stop")
CLASSIC_2 = ("v2_classic_continuous", "v2_classic_discrete", "v2_classic_discrete_stop")
JERK = ("jerk_continuous", "jerk_discrete", "jerk_discrete_straight")
JERK_2 = ("v2_jerk_discrete", "v2_jerk_discrete_remove")
RECORDINGS = CLASSIC + CLASSIC_2 + JERK + JERK_2
LANE, LINE, EDGE = 4, 5, 6
BEHAVIOURS = ("ignore", "stop", "remove")


@cache
def recording(folder, name):
    """The arrays of one recording; the test is skipped where it is absent."""
    path = folder / "oracles" / "pufferdrive" / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"the recording {path.name} is not beside this checkout")
    with np.load(path) as file:
        return {key: file[key] for key in file.files}


def roads(data):
    """(kind, points) of every polyline, kind 4 lane, 5 line, 6 edge."""
    ends = data["road_offsets"]
    for n, kind in enumerate(data["road_type"]):
        yield int(kind), data["road_points"][ends[n] : ends[n + 1]].astype(float)


def scene_of(data):
    """The scene of a recording: its map as it came, and its log with the sizes that it simulated."""
    builder = SceneBuilder("town01_parity", "carla", "recording", "1", "0" * 64)
    for n, (kind, points) in enumerate(roads(data)):
        if kind == LANE:
            builder.lane(n, points, kind=LANE_STREET)
        elif kind == LINE:
            builder.line(points, 10)
        elif kind == EDGE:
            builder.edge(points, EDGE_BOUNDARY)
    for n, rows in enumerate(data["log_traj"].astype(float)):
        kind = int(data["object_type"][n])
        builder.track(
            int(data["object_id"][n]),
            kind,
            SUBTYPE_CAR if kind == TYPE_VEHICLE else SUBTYPE_NONE,
            x=rows[:, 0],
            y=rows[:, 1],
            vx=rows[:, 2],
            vy=rows[:, 3],
            heading=rows[:, 4],
            length=data["length_after_shrink"][n],
            width=data["width_after_shrink"][n],
            height=1.5,
            valid=data["log_valid"][n] != 0,
            goal=(data["state_goal_x"][0, n], data["state_goal_y"][0, n]),
            expert=not data["is_controlled"][n],
        )
    return builder.finish(has_z=False)


def settings_of(name, data):
    """The settings under which a recording was made."""
    later = name.startswith("v2_")
    behaviours = {
        key: BEHAVIOURS[int(data[there])] if there in data else "ignore"
        for key, there in (("collision_behaviour", "collision_behavior"), ("offroad_behaviour", "offroad_behavior"))
    }
    return EnvSettings(
        dynamics=str(data["dynamics"]),
        action_type=str(data["action_type"]),
        layout="wide/1",
        num_goals=1,
        goal_radius=2.0,
        goal_behaviour={0: "respawn", 2: "stop"}[int(data["goal_behavior"])],
        reward=RewardSettings(collision=0.5, offroad=0.2, goal=1.0, collision_each_step=True),
        compat=CompatSettings(dynamics="v2b" if later else "v2", types="car", reward="v2"),
        inactive_threshold=1e6,
        beyond_log="stay",
        map_tolerance=0.0,
        max_segment=1e6,
        **behaviours,
    )


@dataclass
class Replay:
    """What ours made of every recorded step; row t is the state after it, (90, ...).

    origin     (2,)         of our frame in the recording's
    pose       (90, M, 3)   x, y, heading in the recording's frame
    speed      (90, M)      signed
    touching, offroad, off_map, goal, status  (90, M)
    reward, terms, clipped     (90, n), (90, n, 14), (90, n, 2)
    obs        (K, n, D)    of the recorded states `observation_steps`
    """

    origin: np.ndarray
    pose: np.ndarray
    speed: np.ndarray
    touching: np.ndarray
    offroad: np.ndarray
    off_map: np.ndarray
    goal: np.ndarray
    status: np.ndarray
    reward: np.ndarray
    terms: np.ndarray
    clipped: np.ndarray
    obs: np.ndarray


def signed_speed(data, t):
    """(M,) speeds with the sign of velocity along the heading; what is recorded has none."""
    heading = data["state_heading"][t]
    forward = data["state_vx"][t] * np.cos(heading) + data["state_vy"][t] * np.sin(heading)
    return np.copysign(np.abs(data["state_speed"][t]), forward)


def standing(data, t):
    """(M,) of the recorded state: absent, removed, stopped, ghost."""
    gone = data["state_x"][t] < -5000
    removed = data["state_removed"][t] != 0 if "state_removed" in data else np.zeros_like(gone)
    return gone & ~removed, removed, data["state_stopped"][t] != 0, data["state_respawn_timestep"][t] != -1


def agents_of(data):
    """How many objects a recording has."""
    return data["state_x"].shape[1]


def put(sim, data, t, origin):
    """Set the simulator to the recorded state t."""
    agents = agents_of(data)
    f4, i4, u1 = sim._f4[:, :agents], sim._i4[:, :agents], sim._u1[:, :agents]
    absent, removed, stopped, ghost = standing(data, t)
    body = ~absent & ~removed
    heading = data["state_heading"][t].astype(float)
    f4[at.X], f4[at.Y] = data["state_x"][t] - origin[0], data["state_y"][t] - origin[1]
    f4[at.HEADING], f4[at.COS], f4[at.SIN] = np.angle(np.exp(1j * heading)), np.cos(heading), np.sin(heading)
    f4[at.SPEED] = signed_speed(data, t)
    f4[at.STEERING] = data["state_steering_angle"][t]
    f4[at.ACCEL_LONG], f4[at.ACCEL_LAT] = data["state_a_long"][t], data["state_a_lat"][t]
    f4[at.LENGTH], f4[at.WIDTH], f4[at.HEIGHT] = data["length_after_shrink"], data["width_after_shrink"], 1.5
    f4[:, ~body] = 0.0
    f4[at.COS, ~body] = 1.0
    u1[at.BODY], u1[at.GHOST] = body, ghost
    u1[at.STATUS] = np.where(removed, Status.REMOVED, np.where(absent, Status.ABSENT, Status.ACTIVE))
    u1[at.STATUS, stopped & body] = Status.STOPPED
    i4[at.GOAL_NEXT], i4[at.AGE], i4[at.REASON] = 0, t, 0
    sim._pair[:] = 0
    sim._world[at.STEP], sim._world[at.DONE], sim.done[:] = t, at.RUNNING, False


@cache
def replayed(folder, name):
    """The recording of that name, and our Replay of it."""
    data = recording(folder, name)
    scene = scene_of(data)
    origin = np.array(scene.meta.origin[:2])
    sim = Simulator([case_of(scene)], settings_of(name, data), scenes={scene.digest: scene})
    assert sim.row_agent.tolist() == data["controlled_object_index"].tolist()
    sim.reset()
    found = {key: [] for key in Replay.__dataclass_fields__ if key != "origin"}
    for t, actions in enumerate(data["actions"]):
        put(sim, data, t, origin)
        given = actions.astype(np.float32 if sim.settings.action_type == "continuous" else np.int32)
        discrete = sim.settings.action_type == "discrete" and len(sim.actions.factors) == 1
        result = sim.step(np.ascontiguousarray(given[:, 0] if discrete else given))
        agent = sim.agent
        pose = np.stack([agent["x"] + origin[0], agent["y"] + origin[1], agent["heading"].astype(float)], axis=1)
        step = {
            "pose": pose,
            "speed": agent["speed"],
            "touching": sim._u1[at.TOUCHING, : len(pose)] != 0,
            "offroad": agent["events"] & np.uint32(Event.OFFROAD) != 0,
            "off_map": agent["events"] & np.uint32(Event.OFF_MAP) != 0,
            "goal": agent["events"] & np.uint32(Event.GOAL) != 0,
            "status": agent["status"],
            "reward": result.reward,
            "terms": result.reward_terms,
            "clipped": sim.clipped,
        }
        for key, value in step.items():
            found[key].append(value.copy())
    for k in data["observation_steps"]:
        put(sim, data, k, origin)
        sim._events[: agents_of(data)] = np.where(data["state_collision_state"][k] == 2, Event.OFFROAD, 0)
        sim._u1[at.TOUCHING, : agents_of(data)] = data["state_collision_state"][k] == 1
        sim._phases.observe(*sim._arguments(0, 1))
        found["obs"].append(sim.result.obs.copy())
    return data, Replay(origin=origin, **{key: np.array(value) for key, value in found.items()})
