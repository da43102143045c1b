"""The peers' composites: each gate, each part, and what sets them apart from nuPlan's score."""

from __future__ import annotations

import numpy as np
import pytest
from driving import car, scene_of, trace_of
from hand_composites import ROAD, in_lane, on_route, sideways
from hand_worked import FAULT, OFFROAD, RED, VEHICLE

from skidpad.evaluation.metrics.composites import VMAX_BOUNDS, stepped, weighted
from skidpad.evaluation.metrics.registry import METRICS, compute


def of(made, name):
    return compute(*made, [name])[name].value


def driven(share=0.8, happened=(), **arrays):
    return on_route(share, happened, log_step=1.0, steps=120, **{"lane": 0, **arrays})


def test_parts_weigh_five_five_four_three_two() -> None:
    """Q37: nineteen parts; each alone gives its weight over 19."""
    none = dict.fromkeys(("ttc", "progress", "speed", "lanes", "comfort"), np.zeros(1))
    for name, weight in (("ttc", 5), ("progress", 5), ("speed", 4), ("lanes", 3), ("comfort", 2)):
        assert weighted(none | {name: np.ones(1)})[0] == pytest.approx(weight / 19)


@pytest.mark.parametrize("name", ["puffer_score", "puffer_score_compat"])
@pytest.mark.parametrize("bits", [VEHICLE | FAULT, OFFROAD, RED])
def test_an_infraction_of_ones_own_is_zero(name: str, bits: int) -> None:
    """Q37: the gate is a product; a contact without fault passes it and only costs time to collision."""
    assert of(driven(happened=[(10, bits)]), name) == 0
    assert of(driven(), name) > 0.8


def test_a_contact_without_fault_is_no_gate() -> None:
    """Q37: at fault, not in contact: being hit costs the share of the steps in contact, 1 of 120."""
    clean, hit = of(driven(), "puffer_score_compat"), of(driven(happened=[(10, VEHICLE)]), "puffer_score_compat")
    assert clean - hit == pytest.approx(5 / 19 / 120)


def test_progress_gate_and_cap() -> None:
    """Q37: 0.2 of 10 m/s does not pass, 0.3 does, and 15 m/s earn no more progress than 10."""
    assert of(driven(0.2), "puffer_score") == 0
    assert of(driven(0.3), "puffer_score_compat") == pytest.approx((5 + 1.5 + 4 + 3 + 2) / 19)
    assert of(driven(1.5), "puffer_score_compat") == pytest.approx((5 + 5 + 0 + 3 + 2) / 19)  # 5 m/s over the limit


def test_direction_and_lanes_have_two_steps() -> None:
    """Q37: 2 m against the lane pass, 6 m halve; 3.4 s between lanes are whole, 5.7 s half."""
    assert stepped(np.array([2.0, 2.1, 6.0, 6.1]), 2.0, 6.0).tolist() == [1.0, 0.5, 0.5, 0.0]
    error = np.zeros((2, 121))
    error[0, 1:5] = np.pi  # 4 steps of 0.8 m
    assert of(driven(lane_heading_error=error), "puffer_score_compat") == pytest.approx(18 / 19 / 2)


def test_published_comfort_is_given_for_nothing() -> None:
    """Q37: on one trace, an uncomfortable one, the two differ by 2/19 = 0.105."""
    made = in_lane(accel_lat=sideways(3.5))
    assert of(made, "puffer_score_compat") - of(made, "puffer_score") == pytest.approx(2 / 19)


def test_unknown_limits_are_assumed_by_the_peer_only() -> None:
    """Q37, Q3: 16 m/s on a lane without limit is 1 m/s above the assumed 15; V-Max's score has no data there."""
    t = np.arange(61.0)
    free = {**ROAD, "limit": float("nan")}
    scene = scene_of([car(x=1.6 * t, route=[0])], [free], edges=True)
    made = trace_of(scene, {"x": 1.6 * t[None], "speed": 16.0, "lane": 0}), scene
    assert of(made, "puffer_score_compat") == pytest.approx((5 + 5 + 0 + 3 + 2) / 19)
    assert compute(*made, ["vmax_score"])["vmax_score"].reason == "no_limit"


def test_a_lateral_turn_fails_vmax_and_passes_nuplan() -> None:
    """Q38: 3 m/s^2 sideways is above V-Max's 2.0 and below nuPlan's 4.89: 2/19 of the score, by that clause alone."""
    made, calm = in_lane(accel_lat=sideways(3.0)), in_lane()
    assert of(made, "comfort_nuplan") == 1
    assert of(calm, "vmax_score") - of(made, "vmax_score") == pytest.approx(2 / 19)
    assert {name for name, pair in VMAX_BOUNDS.items() if pair != comfort_bounds()[name]} == {
        "lateral_acceleration",
        "longitudinal_jerk",
        "yaw_acceleration",
    }


def comfort_bounds():
    line = METRICS["comfort_nuplan"].parameters
    return {name: (line[f"{name}_min"], line[f"{name}_max"]) for name in VMAX_BOUNDS}


def test_vmax_gates() -> None:
    """Q38: off-road, red light and a fifth of the progress are gates; what lies ahead within 5 s but not within 0.95 s
    is not."""
    assert of(driven(happened=[(10, OFFROAD)]), "vmax_score") == 0
    assert of(driven(happened=[(10, RED)]), "vmax_score") == 0
    assert of(driven(0.19), "vmax_score") == 0
    assert of(driven(0.5), "vmax_score") == pytest.approx((5 + 2.5 + 4 + 3 + 2) / 19)


def test_vmax_charges_nuplans_fault() -> None:
    """Q38: running into something that stands is at fault by nuPlan's rule, without any bit of the simulator's."""
    assert of(driven(happened=[(10, VEHICLE)]), "at_fault_collision_rate") == 1
    assert of(driven(happened=[(10, VEHICLE)]), "vmax_score") == 0


def test_vmax_progress_is_capped_and_direction_multiplies() -> None:
    """Q38: 7.5 m/s where the log made 5 is whole progress, not 1.5; seven steps of 0.8 m against the lane and three
    along it are -3.2 m in a second, which halves the score."""
    fast = on_route(1.5, log_step=0.5, steps=120, lane=0)
    assert of(fast, "vmax_score") == pytest.approx(1.0)
    error = np.zeros((2, 121))
    error[0, 50:57] = np.pi
    made = driven(lane_heading_error=error)
    assert of(made, "nuplan_direction") == 0.5
    assert of(made, "vmax_score") == pytest.approx(18 / 19 / 2)


def test_no_lane_no_composite() -> None:
    """Q3: half of the parts are about lanes; without any there is no score."""
    t = np.arange(11.0)
    scene = scene_of([car(x=t)])
    found = compute(trace_of(scene, {"x": t[None], "speed": 10.0}), scene, ["puffer_score", "vmax_score"])
    assert {name: value.reason for name, value in found.items()} == {"puffer_score": "no_lane", "vmax_score": "no_lane"}
