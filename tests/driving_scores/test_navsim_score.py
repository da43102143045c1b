"""PDMS and EPDMS: one hand case per term, the formulas, the stages, and where the terms differ from nuPlan's (Q32)."""

from __future__ import annotations

import numpy as np
import pytest
from driving import car, lane, scene_of, trace_of
from hand_driving_scores import LANE, alone, behind
from hand_worked import RED, events

from skidpad.errors import ProtocolError, UsageError
from skidpad.evaluation.metrics import navsim_score
from skidpad.evaluation.metrics.navsim_score import (
    PLAN_RULE,
    REFERENCE,
    PlanTerms,
    epdms,
    pdms,
    plan_terms,
    reference_terms,
    two_stage,
)
from skidpad.evaluation.metrics.plan import log_states, log_view, plan_view, window
from skidpad.evaluation.metrics.plan_tracking import tracked
from skidpad.evaluation.metrics.registry import BY_PDM, LINES, METRICS, compute, values_of
from skidpad.evaluation.metrics.view import REASONS, CaseView, measured
from skidpad.scenes.events import Event
from skidpad.scenes.scene import STATE_GREEN, STATE_RED, SUBTYPE_STATIC, TYPE_PEDESTRIAN, TYPE_UNKNOWN, Scene

T = np.arange(41) * 0.1  # a plan of four seconds


def with_arrays(scene: Scene, **named) -> Scene:
    """The scene with some arrays replaced, named with two underscores for the dot."""
    arrays = dict(scene.arrays())
    for name, values in named.items():
        path = name.replace("__", ".")
        arrays[path] = np.array(values, dtype=arrays[path].dtype)
    return Scene.from_arrays(arrays, scene.meta)


def world(*others, lanes=(LANE,), rows=60, start=100.0, lights=0, log_speed=10.0, route=(0,)):
    """Track 0 drives 10 m/s along the lane and has 19 rows of history before row 19, where it is at `start`."""
    t = (np.arange(rows) - 19) * 0.1
    ego = car(x=start + log_speed * t, vx=log_speed, route=list(route))
    return scene_of([ego, *others], list(lanes), rows=rows, lights=lights)


def planned(scene, x=None, y=None, heading=None, **more) -> CaseView:
    """A plan of track 0 from row 19, by default straight on at 10 m/s."""
    flat = np.zeros(41)
    return plan_view(scene, 0, 19, 100 + 10 * T if x is None else x, flat if y is None else y,
                     flat if heading is None else heading, **more)  # fmt: skip


def term(view, name) -> float | None:
    found = getattr(plan_terms(view), name)
    return float(found.value[0]) if found.valid[0] else None


def test_good_plan_has_full_marks() -> None:
    """The ground from which every case below departs in one thing."""
    terms = plan_terms(planned(world()))
    assert [float(t.value[0]) for t in terms[:-1]] == [1.0] * 8
    assert terms.progress.value[0] == pytest.approx(40.0, abs=1e-4)


# -- one case per term --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (car(x=125.0), 0.0),
        (car(x=125.0, type=TYPE_PEDESTRIAN), 0.0),
        (car(x=125.0, type=TYPE_UNKNOWN, subtype=SUBTYPE_STATIC), 0.5),
        (car(x=125.0, y=5.0), 1.0),
        (car(x=80.0 + 20 * (np.arange(60) - 19) * 0.1, vx=20.0), 1.0),  # runs into the plan from behind
    ],
)
def test_no_fault(other, expected: float) -> None:
    """NC: 0 for a road user, 0.5 for a static object (nuPlan forgives one, too, but a second is 0 there), fault by Q12;
    contacts of a plan are found from its boxes, without a simulator."""
    assert term(planned(world(other)), "no_fault") == expected


def test_drivable_has_no_tolerance() -> None:
    """DAC: a corner 0.05 m off the lane is outside, where nuPlan's D allows 0.3 m."""
    for y, expected in ((0.74, 1.0), (0.80, 0.0)):
        view = planned(world(), y=np.full(41, y))
        assert term(view, "drivable") == expected
        assert values_of(METRICS["nuplan_drivable"], view).value[0] == 1


@pytest.mark.parametrize(("speed", "expected"), [(1.9, 1.0), (2.1, 0.5), (5.9, 0.5), (6.1, 0.0)])
def test_direction_counts_metres_off_the_route(speed: float, expected: float) -> None:
    """DDC: metres in a second with the centre outside on-route lanes: 2 and 6 m as in nuPlan, but by place and not by
    direction. The plan follows the next lane, which is not on the route."""
    lanes = [LANE, lane([(0, 3.5), (400, 3.5)])]
    view = planned(world(lanes=lanes), x=100 + speed * T, y=np.full(41, 3.5))
    assert term(view, "direction") == expected
    assert term(planned(world(lanes=lanes, route=(0, 1)), x=100 + speed * T, y=np.full(41, 3.5)), "direction") == 1.0


def test_junctions_are_on_every_route() -> None:
    """DDC: in a junction the centre may be anywhere."""
    lanes = [LANE, lane([(0, 3.5), (400, 3.5)])]
    scene = with_arrays(world(lanes=lanes), road__lane_junction=[-1, 0])
    assert term(planned(scene, y=np.full(41, 3.5)), "direction") == 1.0


@pytest.mark.parametrize(
    ("state", "line_x", "heading", "expected"),
    [
        (STATE_RED, 120.0, 0.0, 0.0),
        (STATE_GREEN, 120.0, 0.0, 1.0),
        (STATE_RED, 160.0, 0.0, 1.0),  # the front ends at 142
        (STATE_RED, 101.5, 0.0, 1.0),  # the front is past it as the plan begins
        (STATE_RED, 120.0, np.pi, 1.0),  # a light for those who come the other way
    ],
)
def test_lights(state: int, line_x: float, heading: float, expected: float) -> None:
    """TLC: the front of the box crosses a stop line whose light is red as the step begins."""
    scene = world(lights=1)
    line = [[[line_x, 2.0, 0.0], [line_x, -2.0, 0.0]]]
    scene = with_arrays(scene, signals__line=line, signals__heading=[heading], signals__state=np.full((1, 60), state))
    assert term(planned(scene), "lights") == expected


def test_a_line_without_length_stops_nobody() -> None:
    """Readers give lights without a known line one of zero length; it would be crossed from anywhere."""
    assert term(planned(with_arrays(world(lights=1), signals__line=np.full((1, 2, 3), 110.0))), "lights") == 1.0


def test_a_light_passed_beside_its_line() -> None:
    """TLC: the line reaches half its length further than drawn, no more: 2 m wide and 2.9 or 3.1 m aside."""
    for aside, expected in ((2.9, 0.0), (3.1, 1.0)):
        line = [[[120.0, aside + 2.0, 0.0], [120.0, aside - 2.0, 0.0]]]
        scene = with_arrays(world(lights=1), signals__line=line)
        assert term(planned(scene), "lights") == expected, aside


def test_time_to_collision() -> None:
    """TTC is `ttc.navsim`: the plan ends 8.5 m behind a standing car, in contact after 0.85 s, seen at 0.9."""
    assert term(planned(world(car(x=140 + 4 + 8.5))), "ttc") == 0.0
    assert term(planned(world(car(x=140 + 4 + 9.3))), "ttc") == 1.0


def test_comfort() -> None:
    """C: 5 m/s^2 of braking is outside -4.05; 3 m/s^2 inside."""
    assert term(planned(world(), x=100 + 10 * T - 1.5 * T**2), "comfort") == 1.0
    braking = 100 + 10 * np.minimum(T, 2) - 2.5 * np.minimum(T, 2) ** 2
    assert term(planned(world(), x=braking), "comfort") == 0.0


def test_history_comfort_sees_what_came_before() -> None:
    """HC: the driver braked with 6 m/s^2 until the plan began, and the plan is smooth: C cannot see it."""
    t = (np.arange(60) - 19) * 0.1
    before = np.minimum(t, 0.0)
    braking = car(x=100 + 10 * t - 3 * before**2, vx=10 - 6 * before, route=[0])
    view = planned(scene_of([braking], [LANE]))
    assert (term(view, "comfort"), term(view, "history_comfort")) == (1.0, 0.0)
    plan, joined = navsim_score.motion_series(view, 0), navsim_score.motion_series(view, 0, 1.5)
    assert len(joined["jerk"]) == len(plan["jerk"]) + 16  # 1.5 s at 10 Hz and the present


def test_history_may_be_short() -> None:
    """HC: who was recorded a moment ago has the history there is, not one with zeros before it."""
    scene = world()
    valid = scene.tracks.valid.copy()
    valid[0, :16] = False
    view = planned(with_arrays(scene, tracks__valid=valid))
    assert len(navsim_score.motion_series(view, 0, 1.5)["jerk"]) == 40 + 3  # rows 17, 18, 19: row 16 has no step to it
    assert term(view, "history_comfort") == 1.0


@pytest.mark.parametrize(("seconds", "aside", "expected"), [(1.9, 0.6, 1.0), (2.1, 0.6, 0.0), (4.0, 0.4, 1.0)])
def test_lane_keeping(seconds: float, aside: float, expected: float) -> None:
    """LK: further than 0.5 m from the centre for 2 s on end."""
    y = np.where((T > 0.05) & (seconds + 0.05 > T), aside, 0.0)
    assert term(planned(world(), y=y), "lane_keeping") == expected


def test_lane_keeping_rests_in_junctions() -> None:
    """LK: skipped in intersections."""
    scene = with_arrays(world(), road__lane_junction=[0])
    assert term(planned(scene, y=np.full(41, 0.6)), "lane_keeping") == 1.0


def test_progress_is_a_share_of_the_best() -> None:
    """EP: progress times multipliers over the larger of both; nowhere to go below 5 m; never above 1 or below 0."""
    candidate, reference = np.array([20.0, 40.0, 3.0, 0.0, -4.0]), np.array([40.0, 20.0, 5.0, 30.0, 30.0])
    assert navsim_score.ego_progress(candidate, reference).tolist() == [0.5, 1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize(("name", "bound"), navsim_score.EXTENDED_BOUNDS.items())
def test_extended_comfort_bounds(name: str, bound: float) -> None:
    """EC: root mean square of what two plans say about the same time; the later begins 5 steps after the earlier."""
    quiet = dict.fromkeys(navsim_score.EXTENDED_BOUNDS, np.zeros(40))
    for difference, expected in ((bound * 0.99, True), (bound * 1.01, False)):
        other = quiet | {name: np.concatenate([np.full(5, 99.0), np.full(35, difference)])}
        assert bool(navsim_score.extended_comfort(quiet, other, 5)) is expected
    with pytest.raises(ValueError, match="shares no moment"):
        navsim_score.extended_comfort(quiet, quiet, 40)


# -- formulas -----------------------------------------------------------------------------------------------------


def terms_of(**values) -> PlanTerms:
    """Full marks and 40 m but for `values`."""
    full = dict.fromkeys(PlanTerms._fields, 1.0) | {"progress": 40.0} | values
    return PlanTerms(**{name: measured(np.array([value])) for name, value in full.items()})


@pytest.mark.parametrize(
    ("values", "expected_pdms", "expected_epdms"),
    [
        ({}, 1.0, 1.0),
        ({"no_fault": 0.5}, 0.5, 0.5),  # progress counts with its multiplier, and so does a reference without any
        ({"drivable": 0.0}, 0.0, 0.0),
        ({"direction": 0.5}, 1.0, 0.5),
        ({"lights": 0.0}, 1.0, 0.0),
        ({"ttc": 0.0}, 7 / 12, 11 / 16),
        ({"comfort": 0.0}, 10 / 12, 1.0),
        ({"lane_keeping": 0.0}, 1.0, 14 / 16),
        ({"history_comfort": 0.0}, 1.0, 14 / 16),
    ],
)
def test_formulas(values, expected_pdms: float, expected_epdms: float) -> None:
    """Section 7: (5 EP + 5 TTC + 2 C)/12 and (5 EP + 5 TTC + 2 LK + 2 HC + 2 EC)/16 times their multipliers."""
    terms, nothing = terms_of(**values), np.zeros(1)
    assert pdms(terms, nothing).value[0] == pytest.approx(expected_pdms)
    assert epdms(terms, nothing, np.ones(1)).value[0] == pytest.approx(expected_epdms)


def test_extended_comfort_and_progress_in_the_formula() -> None:
    """EC 0 costs 2/16; half the reference's progress costs 2.5/16, and 2.5/12 in PDMS."""
    assert epdms(terms_of(), np.zeros(1), np.zeros(1)).value[0] == 14 / 16
    assert epdms(terms_of(), np.array([80.0]), np.ones(1)).value[0] == 13.5 / 16
    assert pdms(terms_of(), np.array([80.0])).value[0] == 9.5 / 12


@pytest.mark.parametrize(
    "name", ["no_fault", "drivable", "direction", "lights", "ttc", "lane_keeping", "history_comfort"]
)
def test_what_the_human_failed_is_forgiven(name: str) -> None:
    """EPDMS: a term is 1 where the human's own is 0, and stands where his is 0.5; PDMS knows no such filter."""
    plan = terms_of(**{name: 0.0})
    assert epdms(plan, np.zeros(1), np.ones(1), terms_of(**{name: 0.0})).value[0] == 1.0
    assert epdms(plan, np.zeros(1), np.ones(1), terms_of(**{name: 0.5})).value[0] < 1.0
    assert epdms(plan, np.zeros(1), np.ones(1), terms_of()).value[0] < 1.0


def test_two_stages() -> None:
    """Q32: weights exp(-d^2/0.2): d = 0 and sqrt(0.2 ln 3) weigh 3 : 1, so 0.8 and 0.4 give 0.7; times 0.5 in frame 1,
    and 1 x 0.6 in frame 2: mean (0.35 + 0.6)/2."""
    d = np.sqrt(0.2 * np.log(3))
    found = two_stage(np.array([0.5, 1.0]), np.array([[0.8, 0.4], [0.6, 0.6]]), np.array([[0.0, d], [7.0, 9.0]]))
    assert found == pytest.approx((0.35 + 0.6) / 2)


def test_far_second_stages_still_weigh() -> None:
    """All synthetic starts 20 m away: exp(-2000) is 0 in floating point, and 0/0 would be no score."""
    far = two_stage(np.ones(1), np.array([[0.2, 0.6]]), np.array([[20.0, 20.0]]))
    assert far == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("one", "two", "distance"), [((2,), (1, 3), (1, 3)), ((1,), (1, 0), (1, 0)), ((1,), (1, 2), (1, 3))]
)
def test_stages_that_do_not_belong_together(one, two, distance) -> None:
    """Broadcasting would give a number for frames without a second stage."""
    with pytest.raises(ValueError, match="stage one"):
        two_stage(np.ones(one), np.ones(two), np.ones(distance))


def test_differences_from_nuplan() -> None:
    """Q32: what is measured otherwise than in section 5, each on one plan: (this, nuPlan's)."""
    aside = planned(world(), y=np.full(41, 0.8))
    lanes = [LANE, lane([(0, 3.5), (400, 3.5)])]
    elsewhere = planned(world(lanes=lanes), y=np.full(41, 3.5))
    objects = [car(x=x, type=TYPE_UNKNOWN, subtype=SUBTYPE_STATIC) for x in (115.0, 130.0)]
    twice = planned(world(*objects))
    assert (term(aside, "drivable"), _nuplan(aside, "nuplan_drivable")) == (0.0, 1.0)
    assert (term(elsewhere, "direction"), _nuplan(elsewhere, "nuplan_direction")) == (0.0, 1.0)
    assert (term(twice, "no_fault"), _nuplan(twice, "nuplan_no_fault")) == (0.5, 0.0)


def _nuplan(view: CaseView, name: str) -> float:
    return float(values_of(METRICS[name], view).value[0])


# -- windows, plans and the log -----------------------------------------------------------------------------------


def test_window_ends_after_four_seconds() -> None:
    """A red light in the fifth second is another plan's affair; one in the fourth counts."""
    name = "epdms_2025_09_by_log"
    for state, expected in ((41, 1.0), (40, 0.0)):
        made = alone(10.0, steps=60, events=events(1, 60, (0, state, RED)))
        assert compute(*made, [name])[name].value == expected
    view = CaseView(*alone(10.0, steps=60))
    assert window(view, 4.0).steps == 40
    assert window(view, 9.0).steps == 60


def test_what_the_log_failed_is_forgiven_in_a_trace() -> None:
    """Both scores of one drive 0.8 m aside, as its log was: corners off the road, which only EPDMS forgives."""
    t = np.arange(51) * 0.1
    scene = scene_of([car(x=100 + 10 * t, y=0.8, vx=10.0, route=[0])], [LANE])
    made = trace_of(scene, {"x": [100 + 10 * t], "y": 0.8, "speed": 10.0, "lane": 0}), scene
    found = compute(*made, ["pdms_by_log", "epdms_2025_09_by_log"])
    assert [found[name].value for name in found] == [0.0, 1.0]


def test_scores_by_the_planner_take_its_progress() -> None:
    """Q32: the reference changes EP and nothing else. 32 m where the planner makes 64: EP 0.5, all else 1, so
    (2.5 + 5 + 2) / 12 and (2.5 + 5 + 2 + 2 + 2) / 16; a planner that was at fault or off the road made no progress."""
    trace, scene = alone(8.0)
    planner = reference_terms(CaseView(*alone(16.0)), horizon=4.0, **PLAN_RULE)
    crashed = planner.copy()
    crashed[0, PlanTerms._fields.index("no_fault"), 0] = 0.0
    for terms, pdms_, epdms_ in ((planner, 9.5 / 12, 13.5 / 16), (crashed, 1.0, 1.0)):
        view = CaseView(trace, scene)
        view.once(REFERENCE, lambda _, terms=terms: navsim_score.terms_of(list(terms)))
        found = [float(values_of(LINES[name], view).value[0]) for name in BY_PDM]
        assert found == pytest.approx([pdms_, epdms_], rel=1e-6)


def test_scores_by_the_planner_need_its_drive() -> None:
    """Q3, F1: a trace alone does not hold the reference; without one a number would be by the log."""
    for name in BY_PDM:
        assert name not in METRICS
        with pytest.raises(UsageError, match=r"eval\.plan_reference"):
            compute(*alone(8.0), [name])


def test_score_without_a_route_is_missing() -> None:
    """Q3: progress along no route is not 0."""
    t = np.arange(51) * 0.1
    scene = scene_of([car(x=100 + 10 * t, vx=10.0)], [LANE])
    view = CaseView(trace_of(scene, {"x": [100 + 10 * t], "speed": 10.0, "lane": 0}), scene)
    assert REASONS[values_of(METRICS["pdms_by_log"], view).reason[0]] == "not_applicable"


def test_plan_and_trace_of_one_motion_agree() -> None:
    """The two doors: a drive of a simulator's trace, and the same motion as arrays, have the same terms."""
    made = behind(60.0, speed=10.0, leader=4.0, steps=40)
    view = CaseView(*made)
    x = view.states("x")[0]
    plan = plan_view(made[1], 0, 0, x, np.zeros(41), np.zeros(41))
    for name, ours in plan_terms(plan)._asdict().items():
        theirs = getattr(plan_terms(view), name)
        assert ours.value == pytest.approx(theirs.value, abs=1e-4), name


def test_plan_no_car_can_follow_is_scored_as_driven() -> None:
    """Section 7: plans are tracked before they are scored. A plan that steps 1.5 m aside within 0.1 s is impossible
    as it stands; a car that tracks it gets there by steering."""
    scene, y = world(lanes=[lane([(0, 0), (400, 0)], width=8.0)]), np.where(T > 0, 1.5, 0.0)
    x, heading = 100 + 10 * T, np.zeros(41)
    driven = tracked(x, y, heading, speed=10.0, length=4.0)
    raw, real = planned(scene, y=y), planned(scene, driven.x, driven.y, driven.heading, speed=driven.speed)
    assert np.abs(np.diff(raw.states("y")[0])).max() > 1.4
    assert np.abs(np.diff(real.states("y")[0])).max() < 0.3
    assert term(real, "drivable") == 1.0
    assert term(real, "progress") == pytest.approx(40.0, abs=0.5)


def test_log_states_lie_between_rows() -> None:
    """A plan's clock need not be the log's: half-way positions, headings the short way over pi, nothing across gaps."""
    turned = np.array([3.1, -3.1, -3.1, 0.0])
    scene = scene_of([car(x=[0.0, 1.0, 2.0, 0.0], heading=turned, vx=10.0, valid=[True, True, True, False])])
    states, valid = log_states(scene, np.arange(-1, 6, dtype=np.int64) * 50_000)
    assert valid[:, 0].tolist() == [False, True, True, True, True, True, False]
    assert states["x"][1:6, 0] == pytest.approx([0, 0.5, 1, 1.5, 2])
    assert states["heading"][2, 0] == pytest.approx(np.pi, abs=1e-6)


def test_log_view_meets_the_log() -> None:
    """The human's own terms: his contacts are found, everybody replays, and nothing is under test but him."""
    view = log_view(world(car(x=125.0)), np.array([0]), 19, 40, 100_000)
    assert (view.events[0] & int(Event.COLLISION_VEHICLE)).any()
    assert view.states("x")[0] == pytest.approx(100 + 10 * T, abs=1e-4)
    assert view.states("lane")[0].tolist() == [0] * 41


def test_lane_of_a_plan_is_the_fitting_one() -> None:
    """Where lanes cross, the one in the plan's direction; on no lane -1; offset positive to the left."""
    lanes = [LANE, lane([(120, -200), (120, 200)])]
    view = planned(world(lanes=lanes), y=np.full(41, 0.25))
    assert view.states("lane")[0].tolist() == [0] * 41
    assert view.states("lane_offset")[0] == pytest.approx(np.full(41, 0.25), abs=1e-6)
    assert view.states("lane_arc")[0] == pytest.approx(100 + 10 * T, abs=1e-4)
    off = planned(world(), y=np.full(41, 50.0))
    assert off.states("lane")[0].tolist() == [-1] * 41


@pytest.mark.parametrize(
    ("arrays", "start_row", "agent", "message"),
    [
        ((T, T, T[:5]), 19, 0, "expected one length"),
        ((T[:1], T[:1], T[:1]), 19, 0, "expected one length"),
        ((T, np.where(T > 1, np.nan, T), T), 19, 0, "NaN or infinity"),
        ((T, T, T), 70, 0, "not recorded at row 70"),
        ((T, T, T), 19, 7, "not recorded at row 19"),
    ],
)
def test_bad_plans_are_refused(arrays, start_row: int, agent: int, message: str) -> None:
    """Lengths that differ, gaps and strangers are said, not scored."""
    with pytest.raises(ProtocolError, match=message):
        plan_view(world(), agent, start_row, *arrays)
