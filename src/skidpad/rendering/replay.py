"""Traces as something a browser can play: small payloads, and the one-file page around them.

A payload is JSON around one compressed block per case. Positions are whole centimetres, headings whole milliradians,
and each channel is stored as differences along time, which is what makes a drive compress. Agents that move alike in
all arms of a case are stored once. The page (`viewer.html`) needs no network and no server.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.runs.trace import Trace
from skidpad.scenes import scene as codes
from skidpad.scenes.scene import Scene

METRES_PER_UNIT = 0.01
RADIANS_PER_UNIT = 0.001
MAP_MARGIN_M = 60.0
# Order of the channels of one agent in a block; the script in viewer.html reads them in this order.
CHANNELS = ("x", "y", "heading", "speed", "status", "events")


def compress(block: NDArray[np.int32]) -> str:
    """Base64 of the gzip of little-endian int32; the same bytes for the same numbers (no time stamp)."""
    return base64.b64encode(gzip.compress(block.astype("<i4").tobytes(), compresslevel=9, mtime=0)).decode()


def _differences(values: NDArray[np.int64]) -> NDArray[np.int32]:
    """First value, then steps, along the last axis. Wraps like int32 on both sides, so event masks survive."""
    stepped = np.diff(values, axis=-1, prepend=0)
    return stepped.astype(np.uint64).astype(np.uint32).view(np.int32)


def map_payload(scene: Scene, corners: tuple[float, float, float, float]) -> dict[str, Any]:
    """The part of a map inside a rectangle, as polylines in whole centimetres.

    corners  (x_low, y_low, x_high, y_high)  [m]   elements that reach into it, with a margin, are kept whole
    """
    x_low, y_low, x_high, y_high = corners
    road = scene.road
    elements, points = [], []
    lane_of_element = {int(element): lane for lane, element in enumerate(road.lane_element)}
    for element in range(road.element_count):
        rows = road.points(element)
        xy = road.xyz[rows, :2]
        low, high = xy.min(axis=0), xy.max(axis=0)
        outside = high[0] < x_low or low[0] > x_high or high[1] < y_low or low[1] > y_high
        if outside:
            continue
        width = float(np.median(road.width[rows])) if element in lane_of_element else 0.0
        drivable = element in lane_of_element and bool(road.drivable[lane_of_element[element]])
        elements.append([int(road.element_type[element]), len(xy), round(width / METRES_PER_UNIT), int(drivable)])
        points.append(_differences(np.rint(xy.T / METRES_PER_UNIT).astype(np.int64)).ravel())
    block = np.concatenate(points) if points else np.zeros(0, np.int32)
    return {"elements": elements, "points": compress(block)}


def region(traces: Sequence[Trace]) -> tuple[float, float, float, float]:
    """Bounding rectangle [m] of everybody under test in some traces, with a margin to look around in."""
    low, high = np.array([np.inf, np.inf]), np.array([-np.inf, -np.inf])
    for trace in traces:
        agents = trace["scored"] if len(trace["scored"]) else np.arange(trace["x"].shape[2])
        present = trace["length"][:, :, agents] > 0
        if present.any():
            xy = np.stack([trace["x"][:, :, agents][present], trace["y"][:, :, agents][present]])
            low, high = np.minimum(low, xy.min(axis=1)), np.maximum(high, xy.max(axis=1))
    if not np.isfinite(low).all():
        low, high = np.zeros(2), np.zeros(2)
    return (
        float(low[0] - MAP_MARGIN_M),
        float(low[1] - MAP_MARGIN_M),
        float(high[0] + MAP_MARGIN_M),
        float(high[1] + MAP_MARGIN_M),
    )


def _channels(trace: Trace, rollout: int) -> NDArray[np.int64]:
    """(N, channels, T) whole numbers of every agent of a rollout."""
    scale = {"x": METRES_PER_UNIT, "y": METRES_PER_UNIT, "heading": RADIANS_PER_UNIT, "speed": METRES_PER_UNIT}
    rows = []
    for name in CHANNELS:
        values = trace[name][rollout].T
        rows.append(np.rint(values / scale[name]).astype(np.int64) if name in scale else values.astype(np.int64))
    return np.stack(rows, axis=1)


def _agents(trace: Trace) -> list[dict[str, Any]]:
    """Who is in a case: id in the file, kind, and the size when it first has a body [cm]."""
    length, width = trace["length"][0], trace["width"][0]
    agents = []
    for agent in range(length.shape[1]):
        rows = np.flatnonzero(length[:, agent] > 0)
        row = int(rows[0]) if len(rows) else 0
        agents.append(
            {
                "id": int(trace["source_id"][agent]),
                "kind": int(trace["type"][agent]),
                "static": int(trace["subtype"][agent] == codes.SUBTYPE_STATIC),
                "length": round(float(length[row, agent]) / METRES_PER_UNIT),
                "width": round(float(width[row, agent]) / METRES_PER_UNIT),
            }
        )
    return agents


def _goals(trace: Trace, rollout: int) -> list[dict[str, Any]]:
    """Of each agent under test: its goals in order [cm], the states at which each was reached, and how many it is shown
    ahead of it."""
    found = []
    for m, agent in enumerate(trace["scored"].tolist()):
        points = trace["goals"][rollout, m, : int(trace["goal_count"][rollout, m]), :2]
        gained = np.diff(trace["goal_index"][rollout, :, agent], prepend=0)
        found.append(
            {
                "points": np.rint(points / METRES_PER_UNIT).astype(int).tolist(),
                "reached": np.repeat(np.arange(len(gained)), np.maximum(gained, 0)).tolist(),
                "ahead": int(trace["goal_first"][rollout, m]),
            }
        )
    return found


def case_payload(arms: Mapping[str, Trace], scene: Scene, *, map_key: str, rollout: int = 0) -> dict[str, Any]:
    """One case as several arms drove it.

    The first arm gives the shared agents; of the others only the agents that moved differently are stored.
    Raises ValueError when `arms` is empty or its traces are of different cases.
    """
    if len({trace.meta.case for trace in arms.values()}) != 1:
        raise ValueError(f"a payload holds the arms of one case, got {sorted({t.meta.case for t in arms.values()})}")
    blocks: list[NDArray[np.int32]] = []
    base: NDArray[np.int64] | None = None
    described = {}
    for arm, trace in arms.items():
        channels = _channels(trace, rollout)
        if base is None or base.shape != channels.shape:
            own = list(range(len(channels)))
        else:
            own = np.flatnonzero((channels != base).any(axis=(1, 2))).tolist()
        blocks.append(_differences(channels[own]).ravel())
        described[arm] = {
            "states": int(channels.shape[2]),
            "agents": own,
            "controller": trace["controller"].tolist(),
            "goals": _goals(trace, rollout),
            "shares": base is not None and base.shape == channels.shape,
        }
        base = channels if base is None else base
    first = next(iter(arms.values()))
    signals = first["signal_state"][rollout].T.astype(np.int64)
    lines = scene.signals.line[:, :, :2] / METRES_PER_UNIT
    return {
        "case": first.meta.case,
        "scene": first.meta.scene_id,
        "map": map_key,
        "dt": first.meta.dt,
        "scored": first["scored"].tolist(),
        "agents": _agents(first),
        "lights": np.rint(lines).astype(int).reshape(-1, 4).tolist(),
        "light_states": compress(_differences(signals).ravel()),
        "arms": described,
        "block": compress(np.concatenate(blocks)),
    }


def script_json(value: Any) -> str:
    """JSON that can stand inside a script element: no `<` survives, so no text of a file can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("<", "\\u003c")


@cache
def viewer_parts(*, observer: bool = False) -> dict[str, str]:
    """Style, markup and script of the player, cut from `viewer.html` at its marks, with `observer.html` after it."""
    parts = dict.fromkeys(("style", "markup", "script"), "")
    for file in ("viewer.html", "observer.html") if observer else ("viewer.html",):
        text = resources.files("skidpad.rendering").joinpath(file).read_text(encoding="utf-8")
        for name in parts:
            start, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
            part = text[text.index(start) + len(start) : text.index(end)].strip()
            parts[name] += part.removeprefix(f"<{name}>").removesuffix(f"</{name}>")
    return parts


def script_hash(script: str) -> str:
    """What a content security policy calls a script: 'sha256-...'. Only scripts that are named so run on our pages."""
    import hashlib

    return "'sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() + "'"
