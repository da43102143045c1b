"""The state of an agent and of a world as kernels hold it, and the columns of what they read.

Kernels index blocks by the numbers defined here, and Python names the same rows by the tables, so a field is added in
one place: at the end of its table, with its number beside it.
"""

from __future__ import annotations

from typing import NamedTuple


class StateField(NamedTuple):
    """One row of a state block: what it holds for every agent.

    `traced` fields are those of `skidpad.runs.trace.TRACE_ARRAYS`, under the same name.
    """

    name: str
    unit: str
    traced: bool
    meaning: str


FLOAT_STATE: tuple[StateField, ...] = (
    StateField("x", "m", True, "centre of the box, frame of the scene; 0 without a body"),
    StateField("y", "m", True, ""),
    StateField("z", "m", True, ""),
    StateField("heading", "rad", True, "in (-pi, pi]"),
    StateField("cos", "1", False, "of the heading"),
    StateField("sin", "1", False, ""),
    StateField("speed", "m/s", True, "signed, along the heading"),
    StateField("steering", "rad", True, "0 for agents that are not driven through the dynamics"),
    StateField("accel_long", "m/s^2", True, "realised: change of signed speed over the step"),
    StateField("accel_lat", "m/s^2", True, "realised: signed speed times yaw rate, positive to the left"),
    StateField("yaw_rate", "rad/s", False, "realised"),
    StateField("length", "m", True, ""),
    StateField("width", "m", True, ""),
    StateField("height", "m", True, ""),
    StateField("lane_offset", "m", True, "left of the lane's centre line is positive; 0 without lane"),
    StateField("lane_heading_error", "rad", True, "heading minus the lane's; 0 without lane"),
    StateField("lane_cos", "1", False, "of the lane heading error; 1 without lane"),
    StateField("lane_sin", "1", False, ""),
    StateField("lane_arc", "m", True, "position along the lane; 0 without lane"),
    StateField("lane_half_width", "m", False, "of the lane there; 0 without lane"),
    StateField("lane_limit", "m/s", False, "NaN = unknown or no lane"),
    StateField("lane_height", "m", False, "z of the lane there; the agent's own z without lane"),
    StateField("contact_time", "1", True, "share of the step at which the first contact began"),
    StateField("stopped_s", "s", False, "time below 0.2 m/s without a break"),
    StateField("dwell_s", "s", False, "time below 0.2 m/s before the stop sign `stop_signal`"),
    StateField("before_x", "m", False, "pose before the step"),
    StateField("before_y", "m", False, ""),
    StateField("before_z", "m", False, ""),
    StateField("before_heading", "rad", False, ""),
    StateField("before_cos", "1", False, ""),
    StateField("before_sin", "1", False, ""),
    StateField("before_speed", "m/s", False, ""),
    StateField("before_accel", "m/s^2", False, "longitudinal"),
    StateField("command_accel", "m/s^2", False, "asked for in this step; a jerk [m/s^3] under jerk dynamics"),
    StateField("command_steer", "rad", False, "or a lateral jerk [m/s^3], or a heading rate [rad/s] on foot"),
    StateField("start_x", "m", False, "pose and speed of state 0, or of the row that brought the agent"),
    StateField("start_y", "m", False, ""),
    StateField("start_z", "m", False, ""),
    StateField("start_heading", "rad", False, ""),
    StateField("start_speed", "m/s", False, ""),
    StateField("jerk_long", "m/s^3", False, "realised: change of accel_long over the step; 0 in the first"),
    StateField("jerk_lat", "m/s^3", False, ""),
)
X, Y, Z, HEADING, COS, SIN, SPEED, STEERING, ACCEL_LONG, ACCEL_LAT, YAW_RATE, LENGTH, WIDTH, HEIGHT = range(14)
LANE_OFFSET, LANE_HEADING_ERROR, LANE_COS, LANE_SIN, LANE_ARC, LANE_HALF_WIDTH, LANE_LIMIT, LANE_HEIGHT = range(14, 22)
CONTACT_TIME, STOPPED_S, DWELL_S = range(22, 25)
BEFORE_X, BEFORE_Y, BEFORE_Z, BEFORE_HEADING, BEFORE_COS, BEFORE_SIN, BEFORE_SPEED, BEFORE_ACCEL = range(25, 33)
COMMAND_ACCEL, COMMAND_STEER = range(33, 35)
START_X, START_Y, START_Z, START_HEADING, START_SPEED = range(35, 40)
JERK_LONG, JERK_LAT = range(40, 42)

INT_STATE: tuple[StateField, ...] = (
    StateField("lane", "lane", True, "-1 = none"),
    StateField("previous_lane", "lane", False, "the lane before the current one, -1 = none"),
    StateField("goal_index", "", True, "goals reached so far"),
    StateField("contact_partner", "agent", True, "agent met first in the step, -1 = none"),
    StateField("red_signal", "signal", False, "light whose passage on red was already charged, -1 = none"),
    StateField("stop_signal", "signal", False, "stop sign that `dwell_s` counts for, -1 = none"),
    StateField("goal_slot", "", False, "row of the goal table, -1 = not under test"),
    StateField("age", "step", False, "steps since the body appeared"),
    StateField("blind_steps", "step", False, "steps of blindness left"),
    StateField("brake_steps", "step", False, "steps of phantom braking left"),
    StateField("before_lane", "lane", False, "lane before the step"),
    StateField("key", "", False, "stable name of the agent in its world (its track): random streams and ties"),
    StateField("goal_next", "", False, "column of the goal table that holds the next goal; the count = none is left"),
    StateField("goal_sets", "", False, "goal sets made for the agent in this episode"),
    StateField("active_steps", "step", False, "steps taken with status active"),
    StateField("reason", "code", False, "skidpad.scenes.events.Reason, why the agent is no longer active"),
    StateField("goals_paid", "", False, "goals reached in the step, without a last one passed too fast"),
    StateField("lane_segment", "segment", False, "of `lane`, where the next look begins; never changes a result"),
)
LANE, PREVIOUS_LANE, GOAL_INDEX, CONTACT_PARTNER, RED_SIGNAL, STOP_SIGNAL, GOAL_SLOT, AGE = range(8)
BLIND_STEPS, BRAKE_STEPS, BEFORE_LANE, KEY = range(8, 12)
GOAL_NEXT, GOAL_SETS, ACTIVE_STEPS, REASON = range(12, 16)
GOALS_PAID = 16
LANE_SEGMENT = 17

BYTE_STATE: tuple[StateField, ...] = (
    StateField("status", "code", True, "skidpad.scenes.events.Status"),
    StateField("controller", "code", False, "skidpad.scenes.events.Controller"),
    StateField("exclusion", "code", False, "skidpad.scenes.events.Exclusion"),
    StateField("type", "code", False, "as in the scene"),
    StateField("subtype", "code", False, "as in the scene"),
    StateField("body", "", False, "1 while others can meet the agent"),
    StateField("before_body", "", False, "`body` before the step"),
    StateField("touching", "", False, "1 while it touches another agent"),
    StateField("watched", "", False, "1 where leaving the road matters: vehicles"),
    StateField("braked", "", False, "1 when phantom braking overrode the step's action"),
    StateField("ghost", "", False, "1 once put back to its start: it drives, but meets, sees and is seen by nobody"),
    StateField("model", "code", False, "how it moves: skidpad.simulation.kernels.dynamics"),
    StateField("off_road", "", False, "1 while it is in contact with an edge or off the road"),
    StateField("solid", "", False, "`body`, but 0 for ghosts; as of the last detection"),
)
STATUS, CONTROLLER, EXCLUSION, TYPE, SUBTYPE, BODY, BEFORE_BODY, TOUCHING, WATCHED, BRAKED, GHOST = range(11)
MODEL, OFF_ROAD, SOLID = range(11, 14)

# Rows of the per-world block, int64.
# ENDING: skidpad.scenes.events.Ending, why the world ends with this step; NONE = go on. ACTIVE_AGENTS, GONE_AGENTS:
# driven agents (policy, idm, pdm) that are active, and that stopped, were removed or ran out of goals.
# EGO: the agent whose last goal ends the episode under `end_on_goal`, -1 = none. SLOT: row of the slot table.
STEP, STEPS, DONE, START_ROW, FAULT, FAULT_AGENT, EPISODE, ENDING, ACTIVE_AGENTS, GONE_AGENTS, EGO = range(11)
SLOT = 11
WORLD_ROWS = 12

# DONE: the last rows of a world stay readable in the step it ended, then they fall silent.
RUNNING, ENDED, SILENT = range(3)

# Rows of the per-row flags, bool. LIVE: the row took an action in this step.
CLIPPED, LIVE = range(2)
FLAGS = 2

# Columns of the packed log of a scene, (T, N, LOG_COLUMNS) float32: one step of all tracks is one stretch of memory.
# A row without a body has length 0.
LOG_X, LOG_Y, LOG_Z, LOG_HEADING, LOG_VX, LOG_VY, LOG_LENGTH, LOG_WIDTH, LOG_HEIGHT, LOG_COS, LOG_SIN, LOG_SPEED = (
    range(12)
)
LOG_COLUMNS = 12

# Plain numbers of the settings that kernels read, (PARAMETERS,) float32; rates are already per step of this world.
P_DT, LEVEL_GATE, GOAL_RADIUS, GOAL_SPEED = range(4)
IDM_ACCELERATION, IDM_DECELERATION, IDM_MIN_GAP, IDM_HEADWAY, IDM_DESIRED_SPEED = range(4, 9)
BLIND_SHARE, BLIND_ONSET, BRAKE_SHARE, BRAKE_ONSET, LATCH_STEPS, LANE_DROPOUT, EDGE_DROPOUT = range(9, 16)
RETIRES = 16
# What follows an infraction: IGNORE, STOP or REMOVE below. The share of gone to active agents that ends an episode.
COLLISION_BEHAVIOUR, OFFROAD_BEHAVIOUR, RED_LIGHT_BEHAVIOUR, STOP_SIGN_BEHAVIOUR, INACTIVE_THRESHOLD = range(17, 22)
# Goals: codes of source and behaviour below; metres between goals; does the speed gate hold for all goals of a set?
GOAL_SOURCE, GOAL_BEHAVIOUR, SPACING_LOW, SPACING_HIGH, GATE_ALL, END_ON_GOAL = range(22, 28)
# Spawning: sizes [m] and speed [m/s]. Generated lights: one of the codes below.
SPAWN_LENGTH_LOW, SPAWN_LENGTH_HIGH, SPAWN_WIDTH_LOW, SPAWN_WIDTH_HIGH, SPAWN_SPEED, LIGHT_MODE = range(28, 34)
OWN_MARGIN = 34  # m, added to each side of the agent's own size as it sees it
# Rewards: `rewards.reward_parameters`.
RESETS_ON_STOP, R_GOAL, R_GOAL_AGAIN, R_IMPACT, R_COMFORT_S, R_EACH_STEP = range(35, 41)
R_NOT_YIELDING, R_PROGRESS, R_ADE = range(41, 44)
PDM_HORIZON, PDM_STEP = range(44, 46)  # s
YELLOW_COUNTS = 46
PARAMETERS = 47

IGNORE, STOP, REMOVE = range(3)
GOALS_LOG, GOALS_ROUTE, GOALS_MAP = range(3)
GOALS_FINITE, GOALS_ROLLING, GOALS_RESPAWN, GOALS_NEW, GOALS_STOP, GOALS_RETIRE = range(6)
LIGHTS_FIXED, LIGHTS_RANDOM, LIGHTS_INDEPENDENT = range(3)

# Rows of the light programmes of a world, (PROGRAMME_ROWS, S) int64 [us]: the cycle, how far it is ahead at time 0, and
# where in it green, yellow and red begin; red ends with the cycle. A cycle of 0 is a light that does not change: its
# state stands in PROGRAMME_GREEN.
PROGRAMME_CYCLE, PROGRAMME_OFFSET, PROGRAMME_GREEN, PROGRAMME_YELLOW, PROGRAMME_RED = range(5)
PROGRAMME_ROWS = 5
# Where the state of a signal comes from: nowhere, the log, the file's programme, a generated programme.
LIGHT_NONE, LIGHT_LOGGED, LIGHT_FILE, LIGHT_GENERATED = range(4)

# Columns of the packed signals of a scene, (S, SIGNAL_COLUMNS) float32: middle of the stop line, the unit normal that
# points along the direction of travel, half of the line's extended length (1.5 x), cos and sin of the travel heading.
SIGNAL_X, SIGNAL_Y, SIGNAL_Z, SIGNAL_NX, SIGNAL_NY, SIGNAL_REACH, SIGNAL_COS, SIGNAL_SIN = range(8)
SIGNAL_COLUMNS = 8
