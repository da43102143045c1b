"""Recorded observations and thoughts as something the page can show: exact numbers, packed small."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.rendering.observed import Observed
from skidpad.rendering.replay import compress
from skidpad.runs.trace import Trace

MAX_AGENTS = 8  # of one case in one page


def observed_payload(arms: Mapping[str, Trace]) -> dict[str, Any]:
    """What `observer.html` reads, of every arm whose trace holds observations."""
    return {arm: _arm(trace) for arm, trace in arms.items() if trace.meta.observed and len(trace["policy_agent"])}


def _arm(trace: Trace) -> dict[str, Any]:
    observed = Observed(trace)
    shown = [observed.agents.index(agent) for agent in trace["scored"].tolist() if agent in observed.agents]
    shown = (shown + [row for row in range(len(observed.agents)) if row not in shown])[:MAX_AGENTS]
    steps = observed.steps
    parts = {
        "observation": observed.numbers,
        "value": trace["value"][0],
        "distribution": trace["distribution"][0],
        "action": trace["action"][0],
        "applied": trace["action_applied"][0],
        "clipped": trace["action_clipped"][0][:, :, None].astype(np.float32),
    }
    columns, start = {}, 0
    for name, values in parts.items():
        columns[name] = [start, int(values.shape[2])]
        start += values.shape[2]
    table = np.concatenate([values[:, shown] for values in parts.values()], axis=2)
    missed: list[int] = []
    has_partners = any(block["name"] == "partners" for block in observed.blocks)
    for row in shown:
        for step in range(steps):
            if not has_partners or trace["length"][0, step, observed.agents[row]] <= 0:
                missed += [0, 0]
                continue
            found = observed.missed(step, row, observed.read(step, row)["partners"])
            missed += [len(found.cut), len(found.dropped), *found.cut.tolist(), *found.dropped.tolist()]
    said = trace.meta.observed
    return {
        "layout": said["layout"],
        "agents": [observed.agents[row] for row in shown],
        "left_out": len(observed.agents) - len(shown),
        "steps": steps,
        "width": start,
        "columns": columns,
        "blocks": [
            [block["name"], block["rows"], [list(feature[:3]) for feature in block["features"]]]
            for block in observed.blocks
        ],
        # A categorical head may drive a continuous world: the index or the command it stands for is what is recorded.
        "discrete": trace["action"].shape[3] == 1,
        "categorical": parts["distribution"].shape[2] == len(said["actions"]),
        "actions": said["actions"],
        "units": said["action_units"],
        "names": ["acceleration", "steering"],
        "numbers": shuffled(table.transpose(1, 2, 0)),
        "missed": compress(np.array(missed, np.int32)),
    }


def shuffled(values: NDArray[np.float32]) -> str:
    """Base64 of the gzip of little-endian float32 with all first bytes, then all second ones, and so on: the numbers
    themselves, and small where they change little along the last axis."""
    planes = np.ascontiguousarray(values, "<f4").reshape(-1).view(np.uint8).reshape(-1, 4).T
    return base64.b64encode(gzip.compress(planes.tobytes(), compresslevel=6, mtime=0)).decode()
