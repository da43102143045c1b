"""Traces with observations written by hand from the true state, for any table of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from skidpad.runs.trace import Trace

PARTNER = ("x", "y", "cos", "sin", "speed", "length", "width", "kind")
DIVISORS = (60.0, 60.0, 1.0, 1.0, 40.0, 20.0, 5.0, 1.0)
ROAD, ROAD_DIVISORS = ("x", "y", "half length", "cos", "sin", "kind"), (60.0, 60.0, 10.0, 1.0, 1.0, 1.0)
SLOTS = 3


def block(name: str, rows: int, names: tuple[str, ...], divisors: tuple[float, ...]) -> dict[str, Any]:
    """A block as `TraceMeta.observed` holds it."""
    return {
        "name": name,
        "rows": rows,
        "features": [[n, "", d, -1.0, 1.0] for n, d in zip(names, divisors, strict=True)],
    }


def with_observations(trace: Trace, *, slots: int = SLOTS, packing: str = "float32", blind: bool = False) -> Trace:
    """The trace as if its vehicle under test had been given its size, a goal 20 m ahead, its `slots` nearest partners
    (none where `blind`), a lane ahead and an edge to the left; deciding among three actions."""
    (agent,) = trace["policy_agent"].tolist()
    blocks = [
        block("ego", 1, ("length", "width"), (20.0, 5.0)),
        block("goal", 1, ("x", "y"), (200.0, 200.0)),
        block("partners", slots, PARTNER, DIVISORS),
        block("road", 4, ROAD, ROAD_DIVISORS),
    ]
    arrays = dict(trace.arrays)
    states, steps = trace.steps + 1, trace.steps
    rows = []
    for k in range(states):
        at = {name: trace[name][0, k].astype(float) for name in ("x", "y", "heading", "length", "width", "speed")}
        turn, own = -at["heading"][agent], np.array([at["x"][agent], at["y"][agent]])
        spin = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        others = []
        for n in np.flatnonzero(at["length"] > 0).tolist():
            place = spin @ (np.array([at["x"][n], at["y"][n]]) - own)
            distance = float(np.hypot(*place))
            if n != agent and distance < 60:
                relative = at["heading"][n] + turn
                shape = [at[name][n] for name in ("speed", "length", "width")]
                others.append((distance, n, [*place, np.cos(relative), np.sin(relative), *shape, 1.0]))
        partners = np.zeros((slots, 8))
        for slot, (_, _, values) in enumerate([] if blind else sorted(others, key=lambda item: item[:2])[:slots]):
            partners[slot] = np.array(values) / DIVISORS
        road = np.zeros((4, 6))
        road[0] = np.array([15.0, 0.0, 10.0, 1.0, 0.0, 1.0]) / ROAD_DIVISORS
        road[1] = np.array([0.0, 12.0, 10.0, 1.0, 0.0, -1.0]) / ROAD_DIVISORS
        size = [at["length"][agent] / 20, at["width"][agent] / 5]
        rows.append(np.concatenate([size, [20 / 200, 0.0], partners.ravel(), road.ravel()]))
    numbers = np.array(rows, np.float32)[:steps]
    if packing == "bfloat16":
        numbers = (numbers.view(np.uint32) >> 16).astype(np.float32)
    elif packing == "int8":
        numbers = np.rint(numbers * 127).astype(np.float32)
    arrays["observation"] = numbers[None, :, None]
    arrays["value"] = np.linspace(-1, 1, steps, dtype=np.float32).reshape(1, steps, 1, 1)
    weights = np.arange(1, 1 + steps * 3, dtype=np.float32).reshape(1, steps, 1, 3)
    arrays["distribution"] = weights / weights.sum(axis=3, keepdims=True)
    arrays["action"] = (np.arange(steps, dtype=np.float32) % 3).reshape(1, steps, 1, 1)
    arrays["action_applied"] = np.zeros((1, steps, 1, 2), np.float32)
    arrays["action_clipped"] = (np.arange(steps) % 4 == 0).reshape(1, steps, 1)
    actions = [[-1.0, 0.0], [0.0, 0.1], [1.0, -0.1]]
    said = {"layout": "hand/1", "blocks": blocks, "actions": actions}
    said |= {"action_units": ["m/s^2", "rad"], "action_scale": [1.0, 1.0]}
    meta = vars(trace.meta) | {
        "observed": said,
        "settings": trace.meta.settings | {"obs_dtype": packing, "level_gate": 4.0},
    }
    return Trace(type(trace.meta)(**meta), arrays)
