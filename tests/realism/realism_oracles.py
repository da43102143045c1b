"""The oracle folder of the realism scores as our arrays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from skidpad.evaluation.metrics.realism_features import SERIES, Features
from skidpad.evaluation.rollouts import RolloutCase, Rollouts, Task, check_rollouts, make_edges, make_lights, make_log
from skidpad.evaluation.rollouts import make_rollouts as rollouts_of

SCENES = ("USA_Lanker-1_1_T-1", "USA_Peach-4_8_T-1", "USA_US101-4_1_T-1")
KINDS = ("log_hold_last", "constant_velocity", "stationary", "random_arcs", "noisy_log")
STOP_STATES = (1, 4)  # arrow stop, stop
STREET = 2


class Oracle(NamedTuple):
    """One scene of the folder: its arrays and results as stored, and the case made of them."""

    arrays: dict[str, np.ndarray]
    results: dict
    case: RolloutCase

    def rollouts(self, kind: str) -> Rollouts:
        """As stored: one rollout for those without chance, else 32."""
        return rollouts_of(self.case.log.object_id, *np.moveaxis(self.arrays[f"sim_{kind}"], -1, 0))

    def task(self, kind: str) -> Task:
        return check_rollouts(self.rollouts(kind), self.case.log, not_standard=True)

    def official(self, kind: str) -> Features:
        """The official features; those of one rollout 32 times, as the evaluator was fed."""
        of = {name: self.arrays[f"feat_{kind}_{name}"] for name in SERIES}
        lights = self.arrays[f"feat_{kind}_traffic_light_violation_per_step"]
        found = Features(**of, traffic_light_violation=lights)
        return found if kind == "logged" else thirty_two(found)


def thirty_two(features: Features) -> Features:
    return features.select(np.zeros(32, dtype=int)) if len(features.linear_speed) == 1 else features


def oracle(shared: Path, name: str) -> Oracle:
    folder = shared / "oracles" / "realism"
    with np.load(folder / f"{name}.npz", allow_pickle=False) as stored:
        z = {key: stored[key] for key in stored.files}
    scored = np.union1d([int(z["sdc_index"])], z["tracks_to_predict"])
    log = make_log(
        **{key: z[key] for key in ("object_id", "object_type", "length", "width", "height")},
        **{key: z[f"log_{key}"] for key in ("x", "y", "z", "heading", "valid")},
        # The official order of scored objects is by id.
        scored=scored[np.argsort(z["object_id"][scored])],
    )
    number = {int(lane): n for n, lane in enumerate(z["lane_id"])}
    lights = make_lights(
        z["lane_points"],
        z["lane_offsets"],
        np.full(len(number), int(z["lane_type"]) == STREET),
        [number[int(lane)] for lane in z["signal_lane_id"]],
        z["signal_stop_point"],
        np.isin(z["signal_state"], STOP_STATES),
    )
    case = RolloutCase(name, log, make_edges(z["road_edge_points"], z["road_edge_offsets"]), lights)
    return Oracle(z, json.loads((folder / f"{name}.json").read_text())["results"], case)


def unit(shared: Path, name: str) -> dict[str, np.ndarray]:
    with np.load(shared / "oracles" / "realism" / f"unit_{name}.npz", allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}
