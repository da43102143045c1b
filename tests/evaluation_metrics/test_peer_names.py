"""The peer's names (Q11): one trace, the peer's value and ours, both worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from driving import car, lane, scene_of, trace_of
from hand_worked import OFFROAD, RED, STOP, events

from skidpad.evaluation.metrics.peer import PEER, compute_peer
from skidpad.evaluation.metrics.registry import METRICS, compute
from skidpad.scenes.events import Event, Status


def two_cars():
    """Four steps of 1 m at 10 m/s. Car 0: red light, stop sign, off the road twice; one of two goals; 0.2 m beside the
    centre, at the end 0.8 m. Car 1: no infraction, both goals; stops after step 2 and is 0.1 m beside the centre."""
    goal = int(Event.GOAL)
    bits = events(2, 4, (0, 1, RED), (0, 1, STOP), (0, 2, OFFROAD), (0, 4, OFFROAD | goal), (1, 1, goal), (1, 2, goal))
    t = np.arange(5.0)
    rows = {
        "x": np.stack([t, np.minimum(t, 2.0) + 50]),
        "speed": np.array([[10.0] * 5, [10, 10, 10, 0, 0]]),
        "events": bits,
        "goal_index": np.array([[0, 0, 0, 0, 1], [0, 1, 2, 2, 2]]),
        "lane": 0,
        "lane_offset": np.array([[0.2, 0.2, 0.2, 0.2, 0.8], [0.1] * 5]),
        "lane_heading_error": np.array([[0.0] * 5, [np.pi / 3] * 5]),
        "status": np.array([[Status.ACTIVE] * 5, [Status.ACTIVE] * 2 + [Status.STOPPED] * 3]),
    }
    scene = scene_of([car(), car()], [lane([(0, 0), (200, 0)])], edges=True, lights=1, stop_signs=1, rows=5)
    return trace_of(scene, rows, goals=2), scene


BY_HAND = {
    # name: (peer's value, our value)
    "total_infraction_count": (1, 4 / 2),  # one agent; 1 + 1 + 2 events of two agents
    "avg_distance_per_infraction": (6 / 1, 6 / 4),  # 4 m + 2 m
    "num_goals_reached": (3, 1.5),
    "velocity_progress_sum": ((4 + 2 * 0.5) / 2, (1 + 0.5) / 2),  # sums 4 and 1; means 1 and 0.5
    "lane_center_rate": (0.5, (0.75 + 1) / 2),  # 0.8 and 0.1 m at the end; 3 of 4 steps, and all
    "comfort_violation_count": (0, 0),
    "completion_rate": (1, 0.5),  # both reached a goal; one is clean and has all
}


@pytest.mark.parametrize("name", PEER)
def test_both_values_of_one_trace(name: str) -> None:
    """Q11: the same word, two numbers; a mapping that is wrong in silence misleads everybody who migrates."""
    trace, scene = two_cars()
    theirs, ours = compute_peer(trace, scene)[f"puffer/{name}"], compute(trace, scene)[PEER[name].ours]
    assert (theirs.value, ours.value) == pytest.approx(BY_HAND[name])


def test_comfort_counter_is_never_raised() -> None:
    """Q11: however hard the drive, the peer's count is 0 and ours is not."""
    t = np.arange(5.0)
    scene = scene_of([car(x=t)])
    made = trace_of(scene, {"x": t[None], "speed": 10.0, "accel_lat": 9.0}), scene
    assert compute_peer(*made)["puffer/comfort_violation_count"].value == 0
    assert compute(*made, ["comfort_violations"])["comfort_violations"].value == 1


def test_without_infractions_the_whole_distance_is_shown() -> None:
    """Q11: max(agents, 1): 4 m without an infraction read as 4 m per infraction; ours has no value."""
    t = np.arange(5.0)
    scene = scene_of([car(x=t)])
    made = trace_of(scene, {"x": t[None], "speed": 10.0}), scene
    assert compute_peer(*made)["puffer/avg_distance_per_infraction"].value == 4
    assert compute(*made)["distance_per_infraction"].value is None


def test_last_step_decides_alone() -> None:
    """Q11: in the middle of the lane for 4 of 5 steps and off every lane at the end: 0 there, 1 here."""
    t = np.arange(6.0)
    scene = scene_of([car(x=t)], [lane([(0, 0), (200, 0)])])
    made = trace_of(scene, {"x": t[None], "speed": 10.0, "lane": [[0, 0, 0, 0, 0, -1]]}), scene
    assert compute_peer(*made)["puffer/lane_center_rate"].value == 0
    assert compute(*made, ["lane_center_rate"])["lane_center_rate"].value == 1


def test_compat_values_stay_apart() -> None:
    """Q11: published only under puffer/...; in the registry they would enter reports and comparisons."""
    assert set(BY_HAND) == set(PEER)
    assert all(entry.metric.name == f"puffer/{name}" for name, entry in PEER.items())
    assert not [name for name in METRICS if name.startswith("puffer/")]
    assert all(entry.ours in METRICS and entry.differs for entry in PEER.values())
