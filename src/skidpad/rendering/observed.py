"""What an agent was given: recorded observation rows as things in metres, in the agent's own frame.

Any layout can be read, since a trace says of every column which block and feature it is (`TraceMeta.observed`). A slot
whose features are all zero is empty. Which agents of the world found no slot follows from the trace's true state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.runs.trace import Trace

F64 = NDArray[np.float64]
ROAD_BLOCKS = ("road", "lanes", "edges", "boundaries")
GOAL_BLOCKS = ("goal", "goals")
SIGNAL_BLOCKS = ("signal", "signals")
LANE, LINE, EDGE = 0, 1, 2
UNKNOWN, RED, YELLOW, GREEN, STOP_SIGN = 0, 1, 2, 3, 4  # colours of a signal as the scene's codes, and a sign
MATCH_M = 0.2  # a slot belongs to the agent that stands where it says; packed rows round more, see `_match_m`


class Rows(NamedTuple):
    """The filled slots of one block.

    slot      (n,)    int    which slots are filled, ascending
    values    (n, F)  f64    in the features' units: number times divisor
    names     F names of features
    slots     slots there are
    """

    slot: NDArray[np.int64]
    values: F64
    names: tuple[str, ...]
    slots: int

    def get(self, name: str) -> F64 | None:
        """One feature of all filled slots, (n,) f64, or None where the layout has no such feature."""
        return self.values[:, self.names.index(name)] if name in self.names else None

    def column(self, *names: str) -> F64:
        """Some features of all filled slots, (n, len(names)) f64. Raises ValueError for one that is not there."""
        return self.values[:, [self.names.index(name) for name in names]]


class Missed(NamedTuple):
    """Agents within reach that an observation does not show.

    cut      (n,)  int  further away than the last slot: all slots were taken
    dropped  (m,)  int  a slot was free: blindness, or another level
    """

    cut: NDArray[np.int64]
    dropped: NDArray[np.int64]


class Observed:
    """The recorded observations of a trace.

    Raises ValueError when the trace holds none.
    """

    def __init__(self, trace: Trace, rollout: int = 0) -> None:
        if not trace.meta.observed or not trace["observation"].shape[3] or not len(trace["policy_agent"]):
            raise ValueError(
                f"case {trace.meta.case}, arm {trace.meta.arm}: its trace holds no observations. Record it with "
                'record = "observations", by a driver that is a policy.'
            )
        self.trace, self.rollout = trace, rollout
        self.agents: list[int] = trace["policy_agent"].tolist()
        self.blocks = trace.meta.observed["blocks"]
        packing = trace.meta.settings.get("obs_dtype", "float32")
        self.numbers = unpacked(trace["observation"][rollout], str(packing))
        self._match_m = MATCH_M if packing in ("float32", "float16") else 1.5

    @property
    def steps(self) -> int:
        """Decisions that were recorded."""
        return int(self.numbers.shape[0])

    def read(self, step: int, row: int) -> dict[str, Rows]:
        """The observation of row `row` (agent `agents[row]`) before step `step`, by block."""
        numbers = self.numbers[step, row].astype(np.float64)
        found, start = {}, 0
        for block in self.blocks:
            features = block["features"]
            size = block["rows"] * len(features)
            table = numbers[start : start + size].reshape(block["rows"], len(features))
            slot = np.flatnonzero(table.any(axis=1))
            divisors = np.array([feature[2] for feature in features])
            found[block["name"]] = Rows(slot, table[slot] * divisors, tuple(f[0] for f in features), block["rows"])
            start += size
        return found

    def missed(self, step: int, row: int, rows: Rows) -> Missed:
        """Agents within the reach of the partner slots `rows` that are in none of them, by the true state."""
        trace, agent = self.trace, self.agents[row]
        x, y, z, heading = (trace[name][self.rollout, step] for name in ("x", "y", "z", "heading"))
        there = trace["length"][self.rollout, step] > 0
        there[agent] = False
        dx, dy = (x - x[agent]).astype(np.float64), (y - y[agent]).astype(np.float64)
        c, s = np.cos(float(heading[agent])), np.sin(float(heading[agent]))
        place = np.stack([c * dx + s * dy, c * dy - s * dx], axis=1)
        reach = next(f[2] for b in self.blocks if b["name"] == "partners" for f in b["features"] if f[0] == "x")
        same_level = np.abs(z - z[agent]) < float(trace.meta.settings.get("level_gate", np.inf))
        near = np.flatnonzero(there & same_level & (np.hypot(dx, dy) < reach))
        if len(rows.slot):
            gap = np.linalg.norm(place[near, None] - rows.column("x", "y")[None], axis=2).min(axis=1)
            near = near[gap > self._match_m]
        none = np.zeros(0, np.int64)
        return Missed(near, none) if len(rows.slot) == rows.slots else Missed(none, near)


def unpacked(numbers: NDArray[np.float32], packing: str) -> NDArray[np.float32]:
    """Recorded numbers as the network reads them: bfloat16 is recorded as its bits, int8 in steps of 1/127."""
    if packing == "bfloat16":
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers / np.float32(127.0) if packing == "int8" else numbers


class Segments(NamedTuple):
    """Pieces of road: middle (n, 2), direction (n, 2), half length (n,), width (n,) [m], and what each is (n,)."""

    middle: F64
    direction: F64
    half: F64
    width: F64
    kind: NDArray[np.int64]


def segments(read: dict[str, Rows]) -> Segments:
    """Every road row of an observation."""
    parts: list[Segments] = []
    for name in ROAD_BLOCKS:
        rows = read.get(name)
        if rows is None:
            continue
        count = len(rows.slot)
        kind = np.full(count, LANE if name == "lanes" else EDGE, np.int64)
        side, code = rows.get("kind"), rows.get("type")
        if side is not None:
            kind = np.where(side > 0, LANE, EDGE)
        elif code is not None:
            kind = np.rint(code).astype(np.int64)
        width = rows.get("width")
        parts.append(
            Segments(
                rows.column("x", "y"),
                rows.column("cos", "sin"),
                rows.column("half length")[:, 0],
                np.zeros(count) if width is None or name != "lanes" else width,
                kind,
            )
        )
    if not parts:
        return Segments(np.zeros((0, 2)), np.zeros((0, 2)), np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
    return Segments(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def goals(read: dict[str, Rows]) -> F64:
    """Goals of an observation, next first, (n, 2) f64 [m]; one beyond the reach stands at the reach."""
    for name in GOAL_BLOCKS:
        if name in read:
            return read[name].column("x", "y")
    ego = read["ego"]
    if "goal x" in ego.names and len(ego.slot):
        place = ego.column("goal x", "goal y")
        return place[place.any(axis=1)]
    return np.zeros((0, 2))


class StopLines(NamedTuple):
    """Ends of stop lines (n, 2, 2) [m] and what each shows (n,): UNKNOWN, RED, YELLOW, GREEN or STOP_SIGN."""

    ends: F64
    shows: NDArray[np.int64]


def stop_lines(read: dict[str, Rows]) -> StopLines:
    """Signals and signs of an observation."""
    rows = next((read[name] for name in SIGNAL_BLOCKS if name in read), None)
    if rows is None or not len(rows.slot):
        return StopLines(np.zeros((0, 2, 2)), np.zeros(0, np.int64))
    if "left x" in rows.names:
        ends = rows.column("left x", "left y", "right x", "right y").reshape(-1, 2, 2)
    else:
        middle, direction = rows.column("x", "y"), rows.column("cos", "sin")
        aside = 1.75 * np.stack([-direction[:, 1], direction[:, 0]], axis=1)
        ends = np.stack([middle + aside, middle - aside], axis=1)
    state = rows.get("signal state")
    if state is not None:
        shows = np.where(rows.column("signal kind")[:, 0] > 1, STOP_SIGN, np.rint(state) % 4).astype(np.int64)
        return StopLines(ends, shows)
    shows = np.zeros(len(rows.slot), np.int64)
    for name, code in (
        ("red", RED),
        ("yellow", YELLOW),
        ("green", GREEN),
        ("sign", STOP_SIGN),
        ("stop sign", STOP_SIGN),
    ):
        lit = rows.get(name)
        shows = shows if lit is None else np.where(lit > 0, code, shows)
    return StopLines(ends, shows)


def action_words(trace: Trace, step: int, row: int, rollout: int = 0) -> str:
    """What the agent did with it: the command as it was applied, and whether it had to be clipped."""
    acceleration, steering = trace["action_applied"][rollout, step, row].tolist()
    clipped = "  clipped" if trace["action_clipped"][rollout, step, row] else ""
    return f"{acceleration:+.2f} m/s^2  {np.degrees(steering):+.1f} deg{clipped}"


def summary(read: dict[str, Rows], missed: Missed) -> list[str]:
    """One line per block of several slots: how many are filled, and what found none."""
    lines = []
    for name, rows in read.items():
        if rows.slots < 2:
            continue
        line = f"{name} {len(rows.slot)} of {rows.slots}"
        if name == "partners":
            line += "".join(f", {len(ids)} {word}" for word, ids in missed._asdict().items() if len(ids))
        lines.append(line)
    return lines


def ego_size(read: dict[str, Rows]) -> tuple[float, float]:
    """Length and width that the agent was told of itself [m]."""
    ego: Any = read["ego"]
    return tuple(ego.column("length", "width")[0].tolist()) if len(ego.slot) else (4.5, 1.9)
