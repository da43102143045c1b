"""The tables everything in the simulator is derived from: the state of an agent, the actions, and what is observed.

Kernels index blocks by the numbers defined here, and Python names the same rows by the tables, so a field is added in
one place. Layouts are values: their digest goes into checkpoints, and a policy trained on one is refused on another.
What the features mean for a network is `kernels/observe.py`; nothing here touches an array of a scene.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import pi, sin
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_value

F32 = NDArray[np.float32]


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
    StateField("command_accel", "m/s^2", False, "what the controller asked for in this step"),
    StateField("command_steer", "rad", False, ""),
)
X, Y, Z, HEADING, COS, SIN, SPEED, STEERING, ACCEL_LONG, ACCEL_LAT, YAW_RATE, LENGTH, WIDTH, HEIGHT = range(14)
LANE_OFFSET, LANE_HEADING_ERROR, LANE_COS, LANE_SIN, LANE_ARC, LANE_HALF_WIDTH, LANE_LIMIT, LANE_HEIGHT = range(14, 22)
CONTACT_TIME, STOPPED_S, DWELL_S = range(22, 25)
BEFORE_X, BEFORE_Y, BEFORE_Z, BEFORE_HEADING, BEFORE_COS, BEFORE_SIN, BEFORE_SPEED, BEFORE_ACCEL = range(25, 33)
COMMAND_ACCEL, COMMAND_STEER = range(33, 35)

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
)
LANE, PREVIOUS_LANE, GOAL_INDEX, CONTACT_PARTNER, RED_SIGNAL, STOP_SIGNAL, GOAL_SLOT, AGE = range(8)
BLIND_STEPS, BRAKE_STEPS, BEFORE_LANE, KEY = range(8, 12)

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
)
STATUS, CONTROLLER, EXCLUSION, TYPE, SUBTYPE, BODY, BEFORE_BODY, TOUCHING, WATCHED, BRAKED = range(10)

# Rows of the per-world block, int64.
STEP, STEPS, DONE, START_ROW, FAULT, FAULT_AGENT, EPISODE = range(7)
WORLD_ROWS = 7

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
PARAMETERS = 17

# Columns of the packed signals of a scene, (S, SIGNAL_COLUMNS) float32: middle of the stop line, the unit normal that
# points along the direction of travel, half of the line's extended length (1.5 x), cos and sin of the travel heading.
SIGNAL_X, SIGNAL_Y, SIGNAL_Z, SIGNAL_NX, SIGNAL_NY, SIGNAL_REACH, SIGNAL_COS, SIGNAL_SIN = range(8)
SIGNAL_COLUMNS = 8


class ActionSpace(NamedTuple):
    """How one dynamics model reads actions.

    scale  (2,)    f32   physical value of the corner (1, 1) of the continuous box
    table  (K, 2)  f32   physical value of each discrete index
    units                of the two columns
    """

    scale: F32
    table: F32
    units: tuple[str, str]


def _constant(values: object) -> F32:
    array = np.array(values, np.float32)
    array.flags.writeable = False
    return array


# S44, S45: 7 accelerations by 9 steering angles, index = acceleration * 9 + steering.
CLASSIC_ACCELERATIONS = (-4.0, -2.667, -1.333, 0.0, 1.333, 2.667, 4.0)
CLASSIC_STEERING = (-0.667, -0.5, -0.333, -0.167, 0.0, 0.167, 0.333, 0.5, 0.667)
ACTIONS: dict[str, ActionSpace] = {
    "classic": ActionSpace(
        scale=_constant((4.0, 0.667)),
        table=_constant([(a, s) for a in CLASSIC_ACCELERATIONS for s in CLASSIC_STEERING]),
        units=("m/s^2", "rad"),
    ),
}


class Feature(NamedTuple):
    """One number of an observation row: value / divisor, clipped to [low, high]."""

    name: str
    unit: str
    divisor: float
    low: float
    high: float
    meaning: str = ""


class Block(NamedTuple):
    """Rows of one kind. `reach` is how far its rows are looked for; rows beyond the found ones are zero."""

    name: str
    rows: int
    reach: float
    features: tuple[Feature, ...]

    @property
    def size(self) -> int:
        return self.rows * len(self.features)


@dataclass(frozen=True)
class Layout:
    """What a policy sees.

    order      how road rows are ordered: "cell" (S19)
    list_cell  m, edge of the cells that own a neighbour list
    sectors    heading sectors of the lists
    window     m, (back, front, side) of the road that is shown, in the agent's frame
    """

    id: str
    blocks: tuple[Block, ...]
    order: str
    list_cell: float
    sectors: int
    window: tuple[float, float, float]

    def __post_init__(self) -> None:
        _, front, side = self.window
        if front * sin(pi / self.sectors) > side:
            raise ValueError(f"layout {self.id}: the road straight ahead is cut; {self.sectors} sectors are too few")

    @cached_property
    def size(self) -> int:
        """Floats per agent."""
        return sum(block.size for block in self.blocks)

    def span(self, name: str) -> slice:
        """Columns of one block."""
        start = 0
        for block in self.blocks:
            if block.name == name:
                return slice(start, start + block.size)
            start += block.size
        raise KeyError(name)

    def block(self, name: str) -> Block:
        """One block by its name."""
        return next(block for block in self.blocks if block.name == name)

    def bounds(self) -> tuple[F32, F32]:
        """Declared low and high of every column, (D,) f32 each."""
        low = [f.low for block in self.blocks for _ in range(block.rows) for f in block.features]
        high = [f.high for block in self.blocks for _ in range(block.rows) for f in block.features]
        return _constant(low), _constant(high)

    @cached_property
    def digest(self) -> str:
        """Identity of the layout: what a checkpoint was trained on."""
        return digest_value(
            {
                "id": self.id,
                "order": self.order,
                "list_cell": self.list_cell,
                "sectors": self.sectors,
                "window": list(self.window),
                "blocks": [
                    {
                        "name": block.name,
                        "rows": block.rows,
                        "reach": block.reach,
                        "features": [list(feature[:5]) for feature in block.features],
                    }
                    for block in self.blocks
                ],
            },
            "observation layout",
        )

    def document(self) -> str:
        """The layout as a Markdown table: this is its documentation."""
        lines = [f"`{self.id}`: {self.size} floats, digest `{self.digest[:12]}`", ""]
        lines += ["| columns | block | feature | unit | divisor | range | meaning |", "|---|---|---|---|---|---|---|"]
        column = 0
        for block in self.blocks:
            for index, feature in enumerate(block.features):
                columns = str(column + index) + (f" + {len(block.features)} i" if block.rows > 1 else "")
                title = f"{block.name} ({block.rows} rows)" if block.rows > 1 else block.name
                bounds = f"[{feature.low:g}, {feature.high:g}]"
                lines.append(
                    f"| {columns} | {title} | {feature.name} | {feature.unit} | {feature.divisor:g} | {bounds} "
                    f"| {feature.meaning} |"
                )
            column += block.size
        return "\n".join(lines)


def _signed(name: str, unit: str, divisor: float, meaning: str = "") -> Feature:
    return Feature(name, unit, divisor, -1.0, 1.0, meaning)


def _share(name: str, unit: str, divisor: float, meaning: str = "") -> Feature:
    return Feature(name, unit, divisor, 0.0, 1.0, meaning)


EGO_FEATURES = (
    _signed("speed", "m/s", 40.0, "signed"),
    _signed("speed over limit", "1", 2.0, "speed / lane limit; 0 where the limit is unknown"),
    _signed("steering", "rad", 0.667),
    _signed("longitudinal acceleration", "m/s^2", 5.0, "realised in the last step"),
    _signed("lateral acceleration", "m/s^2", 5.0, "realised, left positive"),
    _signed("yaw rate", "rad/s", 1.0, "realised"),
    _share("length", "m", 20.0),
    _share("width", "m", 5.0),
    _signed("lane offset", "m", 4.0, "left positive; 0 without lane"),
    _signed("cos lane heading error", "1", 1.0, "0 without lane"),
    _signed("sin lane heading error", "1", 1.0, "0 without lane"),
    _share("limit", "m/s", 40.0, "of the lane; 0 where unknown"),
    _share("limit known", "", 1.0),
    _share("seconds stopped", "s", 60.0, "below 0.2 m/s"),
    _share("on a lane", "", 1.0),
    _share("dt", "s", 0.5, "length of one step"),
)

COMPACT = Layout(
    id="compact/1",
    order="cell",
    list_cell=10.0,
    sectors=8,
    window=(20.0, 60.0, 30.0),
    blocks=(
        Block("ego", 1, 0.0, EGO_FEATURES),
        Block(
            "goal",
            1,
            200.0,
            (
                _signed("x", "m", 200.0, "next goal, forward; beyond 200 m the unit direction; 0 when none is left"),
                _signed("y", "m", 200.0, "left"),
                _signed("z", "m", 4.0, "up"),
                _share("is last", "", 1.0, "1 at the last goal of the set"),
            ),
        ),
        Block(
            "partners",
            8,
            60.0,
            (
                _signed("x", "m", 60.0, "nearest first, ties by track"),
                _signed("y", "m", 60.0),
                _signed("cos", "1", 1.0, "of the relative heading"),
                _signed("sin", "1", 1.0),
                _signed("speed", "m/s", 40.0, "signed, along its own heading"),
                _share("length", "m", 20.0),
                _share("width", "m", 5.0),
                _signed("kind", "", 1.0, "1 vehicle, -1 anybody else"),
            ),
        ),
        Block(
            "road",
            32,
            60.0,
            (
                _signed("x", "m", 60.0, "middle of the segment; order of the neighbour list"),
                _signed("y", "m", 60.0),
                _share("half length", "m", 10.0),
                _signed("cos", "1", 1.0, "of its direction in the agent's frame"),
                _signed("sin", "1", 1.0),
                _signed("kind", "", 1.0, "1 lane centre line, -1 road edge"),
            ),
        ),
        Block(
            "signal",
            1,
            100.0,
            (
                _signed("x", "m", 100.0, "middle of the next stop line on the agent's lane or one of its exits"),
                _signed("y", "m", 100.0),
                _signed("cos", "1", 1.0, "of the direction of travel through it, in the agent's frame"),
                _signed("sin", "1", 1.0),
                _share("red", "", 1.0),
                _share("yellow", "", 1.0),
                _share("green", "", 1.0, "all three zero: unknown, off, or a sign"),
                _share("sign", "", 1.0, "1 stop sign, 0.5 yield, 0 light"),
            ),
        ),
    ),
)
LAYOUTS: dict[str, Layout] = {layout.id: layout for layout in (COMPACT,)}
