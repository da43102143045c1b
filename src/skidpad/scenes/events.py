"""The codes that simulation writes and everything else reads: events, agent status, controllers and why an agent is
not controlled.

They stand here because traces, metrics and pages use them without knowing the simulator. Codes are part of the trace
format: they are appended to, never renumbered.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag


class Event(IntFlag):
    """What happened to an agent in a step. Several bits may be set at once; none hides another."""

    COLLISION_VEHICLE = 1 << 0
    COLLISION_VRU = 1 << 1  # pedestrian or cyclist
    COLLISION_STATIC = 1 << 2
    OFFROAD = 1 << 3
    OFF_MAP = 1 << 4
    RED_LIGHT = 1 << 5
    STOP_SIGN = 1 << 6
    YIELD = 1 << 7
    WRONG_WAY = 1 << 8
    GOAL = 1 << 9
    GOAL_SLOW = 1 << 10  # reached within the speed gate
    AT_FAULT = 1 << 11
    HIT_FROM_BEHIND = 1 << 12
    OVERSPEED = 1 << 13
    COMFORT = 1 << 14
    LANE_LOST = 1 << 15
    LANE_CHANGED = 1 << 16
    PHANTOM_BRAKING = 1 << 17
    BLIND = 1 << 18


COLLISION = Event.COLLISION_VEHICLE | Event.COLLISION_VRU | Event.COLLISION_STATIC
INFRACTION = COLLISION | Event.OFFROAD | Event.OFF_MAP | Event.RED_LIGHT | Event.STOP_SIGN


class Status(IntEnum):
    """Where an agent is in its life within an episode."""

    EMPTY = 0
    ACTIVE = 1
    STOPPED = 2  # keeps its body
    REMOVED = 3  # has no body
    RETIRED = 4  # route or goals are over
    ABSENT = 5  # the log has not brought it yet, or has taken it away


class Reason(IntEnum):
    """Why an agent is not, or no longer, active."""

    NONE = 0
    LOG_END = 1  # its track, which bounds how long it is driven, is over
    COLLISION = 2
    OFFROAD = 3
    RED_LIGHT = 4
    STOP_SIGN = 5
    GOAL = 6  # stopped at its goal
    NO_GOAL = 7  # no further goal could be made
    NOT_SPAWNED = 8  # no free place was found


class Ending(IntEnum):
    """Why a world ended."""

    NONE = 0
    INACTIVE = 1  # too many driven agents are gone
    GOAL = 2  # the ego has reached its last goal
    LENGTH = 3  # all steps of the episode are taken
    NOT_FINITE = 4  # a state is not a number: a defect
    TOLD = 5  # the caller ended it
    RESAMPLED = 6  # its world has drawn another scene


class Controller(IntEnum):
    """Who drives an agent."""

    NONE = 0
    POLICY = 1
    REPLAY = 2
    IDM = 3
    PDM = 4
    STATIC = 5


class Exclusion(IntEnum):
    """Why a track is not under test. The codes partition the tracks of a world."""

    CONTROLLED = 0
    NOT_VALID_AT_START = 1
    WRONG_TYPE = 2
    EXPERT = 3
    NO_GOAL = 4
    OVER_LIMIT = 5
    REMOVED_BY_OVERLAP = 6
    NOT_SELECTED = 7
