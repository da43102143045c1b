"""nuPlan's closed-loop score term by term, on hand-made lanes, with the map-bound values of its own fixtures."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from driving import car, cruise, lane, scene_of, trace_of
from hand_driving_scores import LANE, alone
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.evaluation.metrics import nuplan_score
from skidpad.evaluation.metrics.registry import METRICS, compute, compute_agents, values_of
from skidpad.evaluation.metrics.view import REASONS, CaseView
from skidpad.scenes.events import Event, Status
from skidpad.scenes.scene import SUBTYPE_STATIC, TYPE_PEDESTRIAN, TYPE_UNKNOWN, Scene

TERMS = [name for name in METRICS if name.startswith("nuplan_") and name != "nuplan_cls"]


def value(made, name: str) -> float | None:
    return compute(*made, [name])[name].value


def changed(scene: Scene, **road) -> Scene:
    """The scene with some arrays of its road replaced."""
    arrays = dict(scene.arrays())
    arrays |= {f"road.{name}": np.array(v, dtype=arrays[f"road.{name}"].dtype) for name, v in road.items()}
    return Scene.from_arrays(arrays, scene.meta)


# -- C ------------------------------------------------------------------------------------------------------------


def contacts(*kinds):
    """The ego at 10 m/s runs with its front into one standing body after the other: car 4 x 2 m each, 10 m apart."""
    count, steps = len(kinds), 12 * len(kinds)
    t = np.arange(steps + 1) * 0.1
    places = [10.0 * (k + 1) for k in range(count)]
    x = np.stack([10 * t, *(np.full(steps + 1, place) for place in places)])
    hit, partner = np.zeros((count + 1, steps + 1), dtype=int), np.full((count + 1, steps + 1), -1)
    for k, place in enumerate(places):
        touching = np.flatnonzero(np.abs(x[0] - place) < 4.0)
        hit[0, touching[0]] = int(Event.COLLISION_VEHICLE)
        partner[0, touching] = k + 1
    scene = scene_of([car(route=[0]), *(car(x=place, **kind) for place, kind in zip(places, kinds, strict=True))],
                     [LANE], rows=steps + 1)  # fmt: skip
    rows = {"x": x, "speed": np.array([[10.0], *([0.0] for _ in kinds)]), "events": hit, "contact_partner": partner}
    return trace_of(scene, rows | {"contact_time": hit * 1.0, "lane": 0}, scored=[0]), scene


OBJECT, PERSON, CAR = {"type": TYPE_UNKNOWN, "subtype": SUBTYPE_STATIC}, {"type": TYPE_PEDESTRIAN}, {}


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [((OBJECT,), 0.5), ((OBJECT, OBJECT), 0.0), ((PERSON,), 0.0), ((CAR,), 0.0), ((OBJECT, CAR), 0.0)],
)
def test_one_object_is_forgiven_and_no_road_user(kinds, expected: float) -> None:
    """Section 5, C: max(0, 1 - n/(allowed + 1)), allowed 1 for objects, 0 for road users; the product of all."""
    assert value(contacts(*kinds), "nuplan_no_fault") == expected


# -- D ------------------------------------------------------------------------------------------------------------


def test_one_frame_off_the_road_is_enough() -> None:
    """D: in any frame, but only in frames that were driven; what the log does after the drive is nobody's fault."""
    y = np.zeros((1, 51))
    y[0, 20] = 3.0
    assert value(alone(y=y), "nuplan_drivable") == 0
    status = np.full((1, 51), Status.ACTIVE)
    status[0, 20:] = Status.REMOVED
    assert value(alone(y=y, status=status), "nuplan_drivable") == 1


def test_lanes_side_by_side_are_one_area() -> None:
    """D: a box on the line between two lanes is inside; each corner asks for any lane, and 0.3 m of gap are bridged."""
    for gap, expected in ((0.0, 1), (0.59, 1), (0.7, 0)):
        lanes = [lane([(0, 0), (400, 0)]), lane([(0, 3.5 + gap), (400, 3.5 + gap)])]
        # The left corners in the middle of the gap.
        assert value(alone(y=0.75 + gap / 2, lanes=lanes), "nuplan_drivable") == expected


# -- W ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("speed", "expected"), [(10, 1), (-1.9, 1), (-2.1, 0.5), (-5.9, 0.5), (-6.1, 0), (-12.99, 0)])
def test_direction_is_graded(speed: float, expected: float) -> None:
    """W: below 2 m in a second 1, below 6 m 0.5, else 0; -12.99 -> 0 is nuPlan's fixture."""
    view = CaseView(*alone(speed, start=200.0))
    assert values_of(METRICS["nuplan_direction"], view).value[0] == expected
    worst = nuplan_score.trailing(nuplan_score.lane_progress(view), 10).min()
    assert worst == pytest.approx(min(speed, speed * 0.1), abs=1e-4)  # forwards the first, shorter window is least


def test_steps_are_measured_along_the_lane_they_began_on() -> None:
    """W: a metre along +x that begins on a lane along +x is progress, though it ends on one along +y; off every lane it
    is none, and one that enters the road counts by the lane it enters."""
    error, lanes = [[0.0, -np.pi / 2, 0.0, 0.0]], [[0, 1, -1, 0]]
    made = alone(steps=3, lane_heading_error=error, lane=lanes, lanes=[LANE, LANE])
    # Step 1 begins on the lane along +y; step 2 begins off the lanes and ends on the one along +x.
    assert nuplan_score.lane_progress(CaseView(*made))[0] == pytest.approx([1.0, 0.0, 1.0], abs=1e-5)


def test_wrong_way_is_a_multiplier() -> None:
    """Q15: public documents have direction as one term of the mean; the shipped configuration multiplies by it. Turned
    round in its lane and fast, a car scores 0, not a lower mean."""
    t = np.arange(51) * 0.1
    scene = scene_of([car(x=300 - 10 * t)], [LANE])
    rows = {"x": [300 - 10 * t], "heading": np.pi, "lane_heading_error": np.pi, "speed": 10.0, "lane": 0}
    found = compute(trace_of(scene, rows), scene, [*TERMS, "nuplan_cls"])
    assert {name for name, term in found.items() if term.value == 0} == {"nuplan_direction", "nuplan_cls"}


def test_a_second_is_a_second() -> None:
    """Q7: the trailing window is in seconds; at dt 0.2 it has five steps, not ten."""
    t = np.arange(26) * 0.2
    scene = scene_of([car(x=200 - 5.0 * t, route=[0])], [LANE], dt_us=200_000)
    made = trace_of(scene, {"x": [200 - 5.0 * t], "speed": -5.0, "lane": 0}), scene
    assert value(made, "nuplan_direction") == 0.5


# -- P and M ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ego", "expert", "progress", "making"),
    [
        (41.04, 41.99, 41.04 / 41.99, 1),
        (4.07, 25.83, 4.07 / 25.83, 0),
        (-13.0, 10.0, 0.0, 0),  # nuPlan's fixture of a car that backs up
        (-1.0, 10.0, 0.2, 1),  # both at least 2 m
        (0.0, 0.0, 1.0, 1),
        (50.0, 40.0, 1.0, 1),
    ],
)
def test_progress_along_the_experts_route(ego: float, expert: float, progress: float, making: int) -> None:
    """Section 11: 41.99 / 41.04, 25.83 / 4.07, backwards 10 / -13; floor 2 m (Q15, not 0.1). Five seconds each."""
    made = alone(ego / 5, log_speed=expert / 5)
    found = nuplan_score.expert_progress(CaseView(*made))
    assert (found.ego[0], found.expert[0]) == (pytest.approx(ego, abs=1e-4), pytest.approx(expert, abs=1e-4))
    assert value(made, "nuplan_progress") == pytest.approx(progress, abs=1e-5)
    assert value(made, "nuplan_making_progress") == making


def test_expert_without_a_route_asks_for_no_progress() -> None:
    """P: no route 1, though the ego stood still."""
    t = np.arange(51) * 0.1
    scene = scene_of([car(x=100 + 10 * t)], [LANE])
    assert value((trace_of(scene, {"x": 100.0, "lane": 0}, steps=50), scene), "nuplan_progress") == 1


def test_progress_survives_a_lane_change_and_a_bend() -> None:
    """A route that names two lanes side by side is no longer than one; metres sideways are no progress, and round a
    right angle the way counts along both legs."""
    lanes = [lane([(0, 0), (200, 0)]), lane([(0, 4), (200, 4), (200, 100)])]
    road = scene_of([], lanes).road
    x = np.array([0.0, 50, 100, 150, 200, 200])
    y = np.array([0.0, 0, 4, 4, 4, 54])
    assert nuplan_score.along_route(x, y, road, [0, 1]) == pytest.approx(250.0)
    assert nuplan_score.along_route(x[:1], y[:1], road, [0, 1]) == 0.0


# -- S ------------------------------------------------------------------------------------------------------------


def test_overspeed_series_of_the_fixture() -> None:
    """Section 11: 6.59, 8.86, 11.28, 0, 0; those above have mean 8.91; 5.346 over all is beyond 2.23: 0."""
    made = alone(steps=5, limit_over=[6.59, 8.86, 11.28, -1, -20])
    excess, known = nuplan_score.overspeed(CaseView(*made))
    assert known.all()
    assert excess[0] == pytest.approx([6.59, 8.86, 11.28, 0, 0], abs=1e-5)
    assert excess[0][excess[0] > 0].mean() == pytest.approx(8.91, abs=1e-5)
    assert value(made, "nuplan_speed") == 0


def test_connectors_have_the_larger_limit_around_them() -> None:
    """S: a lane of a junction takes the larger of incoming and outgoing limits, whatever it says itself; one between
    lanes without limits keeps its own."""
    lanes = [lane([(x, 0), (x + 9, 0)], limit=limit) for x, limit in ((0, 8.0), (9, 3.0), (18, 12.0))]
    ways = {"exit_offset": [0, 1, 2, 2], "exit_lane": [1, 2], "entry_offset": [0, 0, 1, 2], "entry_lane": [0, 1]}
    scene = changed(scene_of([], lanes), lane_junction=[-1, 5, -1], **ways)
    assert nuplan_score.lane_limits(scene.road).tolist() == [8.0, 12.0, 12.0]
    alone_there = changed(scene, speed_limit=[np.nan, 3.0, np.nan])
    assert nuplan_score.lane_limits(alone_there.road)[1] == 3.0


def test_no_limit_is_missing_as_a_term_and_harmless_in_the_score() -> None:
    """Q3: nobody can break a limit that no lane has, so the score has S = 1 as nuPlan's code does, and the term on its
    own says that it measured nothing."""
    made = alone(30.0, log_speed=30.0, lanes=[lane([(0, 0), (400, 0)])])
    assert compute(*made, ["nuplan_speed"])["nuplan_speed"].reason == "no_limit"
    assert value(made, "nuplan_cls") == 1


# -- the score ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (alone(10.0), 1.0),
        (alone(8.0), (5 * 0.8 + 5 + 4 + 2) / 16),
        (alone(1.0), 0.0),  # a tenth of the way: not making progress
        (alone(10.0, accel_long=3.0), 14 / 16),  # uncomfortable
        (alone(10.0, y=1.06), 0.0),  # off the road
        (alone(-3.0, log_speed=-3.0, start=200.0), 0.0),  # backs up as its log does: progress -15 m
    ],
)
def test_score_weighs_its_terms(made, expected: float) -> None:
    """Section 5: C D M W (5 P + 5 T + 4 S + 2 F) / 16, each case with one term off."""
    assert value(made, "nuplan_cls") == pytest.approx(expected, abs=1e-6)


def test_score_is_the_formula_of_its_published_terms() -> None:
    """Section 5: what stands in the report beside the score must explain it, on orderly random drives."""
    explained = 0
    for seed in range(8):
        found = compute_agents(*cruise(seed), [*TERMS, "ttc.nuplan", "comfort_nuplan", "nuplan_cls"])
        v = {name: found[name].value for name in found}
        product = v["nuplan_no_fault"] * v["nuplan_drivable"] * v["nuplan_making_progress"] * v["nuplan_direction"]
        mean = 5 * v["nuplan_progress"] + 5 * v["ttc.nuplan"] + 4 * v["nuplan_speed"] + 2 * v["comfort_nuplan"]
        assert v["nuplan_cls"] == pytest.approx(product * mean / 16, abs=1e-12)
        explained += (v["nuplan_cls"] > 0).sum()
    assert explained > 8


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (alone(lanes=()), "no_lane"),
        (alone(steps=3), "too_short"),
        (alone(status=Status.ABSENT), "no_exposure"),
        (alone(status=[[Status.ACTIVE, *[Status.ABSENT] * 50]]), "no_exposure"),
    ],
)
def test_missing_terms_leave_the_score_missing(made, reason: str) -> None:
    """Q3: never zero, never a mean over the terms that happen to be there."""
    found = compute(*made, ["nuplan_cls"])["nuplan_cls"]
    assert (found.valid, found.reason) == (False, reason)


def test_log_that_ends_at_once_is_no_expert() -> None:
    """Q3: without an expert there is no progress to compare with."""
    t = np.arange(51) * 0.1
    scene = scene_of([car(x=100 + 10 * t, valid=t < 0.05, route=[0])], [LANE])
    trace = trace_of(scene, {"x": [100 + 10 * t], "speed": 10.0, "lane": 0})
    assert REASONS[values_of(METRICS["nuplan_cls"], CaseView(trace, scene)).reason[0]] == "no_log"


@given(st.integers(0, 2**32), st.floats(-3, 3), st.floats(-500, 500), st.floats(-500, 500))
@settings(max_examples=10, deadline=None)
def test_orderly_worlds_may_be_moved_and_turned(seed: int, turn: float, dx: float, dy: float) -> None:
    """Style 9.3, on drives whose scores are not all zero. A corner within 3e-5 m of its tolerance may tip over, which
    no drive of this generator comes near by design; 1e-3 covers float32 at 500 m."""
    names = [*TERMS, "nuplan_cls", "ttc.sweep", "ttc.gap", "thw", "drac"]
    here = compute(*cruise(seed), names)
    there = compute(*cruise(seed, turn=turn, shift=(dx, dy)), names)
    for name in names:
        assert here[name].valid == there[name].valid, name
        if here[name].valid:
            assert here[name].value == pytest.approx(there[name].value, rel=2e-3, abs=2e-3), name


def test_agents_have_no_order_where_scores_are_not_zero() -> None:
    """Values go with their agent, bit by bit, in drives where they differ."""
    order = [2, 0, 3, 1]
    for seed in range(4):
        before, after = compute_agents(*cruise(seed)), compute_agents(*cruise(seed, order=order))
        for name in (*TERMS, "nuplan_cls", "pdms_by_log", "epdms_2025_09_by_log", "thw", "pet", "ttc.sweep"):
            assert np.array_equal(before[name].numerator[order], after[name].numerator), name


def test_trace_is_all_there_is() -> None:
    """Q1: the same bytes from a trace written down and read back, in any order of asking."""
    trace, scene = cruise(3)
    copy = dataclasses.replace(trace, arrays={name: array.copy() for name, array in trace.arrays.items()})
    names = [name for name in METRICS if name.startswith(("nuplan", "ttc", "pdms", "epdms"))]
    assert compute(trace, scene, names) == {name: compute(copy, scene, [name])[name] for name in names}
