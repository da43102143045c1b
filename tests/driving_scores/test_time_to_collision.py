"""Time to collision and its relatives against closed forms: head-on, following, crossing, standing, diverging (Q14)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from driving import car, lane, scene_of, trace_of

from skidpad.evaluation.metrics import surrogates, ttc
from skidpad.evaluation.metrics.registry import METRICS, values_of
from skidpad.evaluation.metrics.view import REASONS, CaseView
from skidpad.scenes.events import Event
from skidpad.scenes.scene import SUBTYPE_STATIC, TYPE_CYCLIST, TYPE_UNKNOWN

ROAD = lane([(-300, 0), (300, 0)], width=3.5)
WIDE = lane([(-300, 0), (300, 0)], width=40.0)


def two(ego, other, *, steps=1, lanes=(ROAD,), **more):
    """Two cars of 4 x 2 m, each (x, y, heading, speed) as the first step ends; both keep going before and after."""
    t = (np.arange(steps + 1) - 1) * 0.1
    x, y, heading, speed = np.array([ego, other], dtype=float).T[..., None]
    rows = {"x": x + speed * np.cos(heading) * t, "y": y + speed * np.sin(heading) * t, "heading": heading}
    scene = scene_of([car(), car()], list(lanes), rows=steps + 1)
    rows |= {"speed": speed, "lane": 0 if lanes else -1, "lane_arc": rows["x"] + 300}
    return CaseView(trace_of(scene, rows | more, scored=[0], steps=steps), scene)


EGO = (0.0, 0.0, 0.0, 10.0)
# (other, exact time to the first touch; +inf = never): front of the ego at x = 2, sides at y = -1 and 1.
SITUATIONS = {
    "head-on": ((32.0, 0.0, math.pi, 10.0), (32 - 4) / 20),
    "following": ((24.0, 0.0, 0.0, 4.0), (24 - 4) / 6),
    # Its front reaches y = -1 after (11 - 2 - 1)/10 s; by then the ego's front is at x = 10, past x = 9.
    "crossing": ((10.0, -11.0, math.pi / 2, 10.0), 0.8),
    "standing": ((12.0, 0.0, 0.0, 0.0), 0.8),
    "diverging": ((10.0, 0.0, 0.0, 15.0), math.inf),
    "passing": ((30.0, 3.0, math.pi, 10.0), math.inf),
}


def rule(name):
    return dict(METRICS[name].parameters)


@pytest.mark.parametrize("name", SITUATIONS)
def test_first_touch_has_its_closed_form(name: str) -> None:
    """Q14, `ttc.sweep`: the interval of overlap is exact, not sampled; 1e-6 is float32 of the trace."""
    other, exact = SITUATIONS[name]
    assert ttc.sweep_times(two(EGO, other), **rule("ttc.sweep"))[0, 0] == pytest.approx(min(exact, 5.0), rel=1e-6)


@pytest.mark.parametrize("name", SITUATIONS)
def test_nuplan_sees_the_next_sample(name: str) -> None:
    """Q14, `ttc.nuplan`: boxes are projected at 0.1, 0.2 ... 2.9 s; a touch at 0.8 s is seen there, one at 1.4 s at
    1.4, one after 2.9 s never. What crosses at a right angle is beside, and the ego in its lane: it does not count."""
    other, exact = SITUATIONS[name]
    parameters = {key: value for key, value in rule("ttc.nuplan").items() if key != "threshold"}
    found = ttc.nuplan_times(two(EGO, other), **parameters)[0, 0]
    sampled = math.ceil(exact / 0.1 - 1e-4) * 0.1 if exact <= 2.9 else math.inf
    assert found == pytest.approx(math.inf if name == "crossing" else sampled)


@pytest.mark.parametrize("name", SITUATIONS)
def test_navsim_looks_at_four_moments(name: str) -> None:
    """Q14, `ttc.navsim`: a touch at 0.8 s is seen at 0.9; one at 1.4 s is not."""
    other, exact = SITUATIONS[name]
    fails = exact <= 0.9 and name != "crossing"
    assert values_of(METRICS["ttc.navsim"], two(EGO, other)).value[0] == (0 if fails else 1)


@pytest.mark.parametrize("name", SITUATIONS)
def test_gap_is_one_dimensional(name: str) -> None:
    """Q14, `ttc.gap`: gap over closing speed for what is in front and turned by less than 75 degrees; who comes head-on
    or crosses has no place in it."""
    other, exact = SITUATIONS[name]
    counts = name in ("following", "standing")
    found = ttc.gap_times(two(EGO, other), **rule("ttc.gap"))[0, 0]
    assert found == pytest.approx(exact if counts else 5.0, rel=1e-6)


@pytest.mark.parametrize("name", SITUATIONS)
def test_puffer_measures_corners(name: str) -> None:
    """Q14, `ttc.puffer`: nearest corners over the speed at which the centres close. Passing cars close in on each
    other too: corners 26.02 m apart at a closing speed of 19.9 m/s are 1.3 s."""
    closing = {"head-on": 28 / 20, "following": 20 / 6, "standing": 0.8, "passing": 1.3, "diverging": math.inf}
    # Corners (2, -1) and (9, -9): sqrt(113) = 10.63 m; centres close at 10 (10 + 11) / sqrt(221) = 14.13 m/s.
    closing["crossing"] = math.sqrt(113) / (210 / math.sqrt(221))
    found = values_of(METRICS["ttc.puffer"], two(EGO, SITUATIONS[name][0])).value[0]
    assert found == (1 if closing[name] >= 0.95 else 0)


@pytest.mark.parametrize(
    ("y", "degrees", "counts"),
    [
        (1.9, 0, True),  # 0.1 m of overlap sideways is enough in line,
        (1.9, 9, True),
        (2.0, 11, False),  # but not for one that is turned: 0.2 m of overlap,
        (1.5, 11, True),  # while 0.7 m is
        (0.0, 74, True),
        (0.0, 76, False),
        (2.1, 0, False),
    ],
)
def test_gap_needs_overlap_by_how_much_the_other_is_turned(y: float, degrees: float, counts: bool) -> None:
    """Q22: turned by at most 75 degrees, and overlap deeper than 0.5 m or turned by at most 10 degrees. A box turned by
    11 degrees is 2.73 m wide across, so it overlaps by (2 + 2.73)/2 - y."""
    view = two(EGO, (14.0, y, math.radians(degrees), 2.0))
    assert bool(ttc.gap_times(view, **rule("ttc.gap"))[0, 0] < 5) is counts


def test_beside_counts_only_off_the_own_lane() -> None:
    """`ttc.nuplan`: what is neither ahead nor behind counts while the ego straddles lanes, left the road or is in a
    junction. The same crossing car, seen from a lane, from no lane's ribbon and from between two lanes."""
    other = SITUATIONS["crossing"][0]
    parameters = {key: value for key, value in rule("ttc.nuplan").items() if key != "threshold"}
    beside = [lane([(-300, 1.5), (300, 1.5)], width=3.0), lane([(-300, -1.5), (300, -1.5)], width=3.0)]
    for lanes, expected in (((WIDE,), math.inf), ((lane([(-300, 9), (300, 9)]),), 0.8), (beside, 0.8)):
        assert ttc.nuplan_times(two(EGO, other, lanes=lanes), **parameters)[0, 0] == pytest.approx(expected)


def test_who_stands_meets_nobody_by_nuplan() -> None:
    """`ttc.nuplan`, `ttc.navsim`: at 0.005 m/s or slower the time is infinite, though somebody may be driving into the
    ego; `ttc.sweep` sees him."""
    view = two((0.0, 0.0, 0.0, 0.0), (12.0, 0.0, math.pi, 10.0))
    assert values_of(METRICS["ttc.nuplan"], view).value[0] == 1
    assert values_of(METRICS["ttc.navsim"], view).value[0] == 1
    assert values_of(METRICS["ttc.sweep"], view).value[0] == pytest.approx(0.8)


def test_contact_of_own_fault_is_zero_by_nuplan() -> None:
    """Section 11: in contact 0. The other, in the ego and not ahead of it any more, would else be nobody."""
    hit = np.zeros((2, 3), dtype=int)
    hit[0, 2] = int(Event.COLLISION_VEHICLE)
    view = two(
        EGO, (5.0, 0.0, 0.0, 0.0), steps=2, events=hit, contact_partner=np.where(hit, 1, -1),
        contact_time=hit * 1.0,
    )  # fmt: skip
    parameters = {key: value for key, value in rule("ttc.nuplan").items() if key != "threshold"}
    assert ttc.nuplan_times(view, **parameters)[0].tolist() == [pytest.approx(0.1), 0.0]
    assert ttc.sweep_times(view, **rule("ttc.sweep"))[0].tolist() == [pytest.approx(0.1), 0.0]


def test_contact_without_fault_is_no_approach_by_nuplan() -> None:
    """Who is in its lane is not at fault for a car that scrapes along its side. Since pushed over the line, it counts
    what is beside it, but does not fail for a box that it touches already."""
    lanes = [lane([(-300, 1.5), (300, 1.5)], width=5.0), lane([(-300, -2.5), (300, -2.5)], width=3.0)]
    hit = np.array([[0, int(Event.COLLISION_VEHICLE), 0], [0, 0, 0]])
    y = np.array([[0.1, 0.1, -0.5], [2.2, 2.05, 1.45]])
    partner = np.array([[-1, 1, 1], [-1, -1, -1]])
    view = two(
        EGO, (-1.0, 0.0, 0.0, 10.0), steps=2, lanes=lanes, events=hit, contact_partner=partner, y=y,
        contact_time=hit * 1.0,
    )  # fmt: skip
    parameters = {key: value for key, value in rule("ttc.nuplan").items() if key != "threshold"}
    assert (ttc.approaches(view).begins == 0).sum() == 2
    assert ttc.nuplan_times(view, **parameters)[0].tolist() == [math.inf, math.inf]


def test_bearings_are_taken_from_the_rear_axle() -> None:
    """nuPlan: the other at (5, 3) is 31 degrees off the centre and 26 off the rear axle, 1.13 m behind it: ahead. Its
    tail, 4 m ahead, is met when the front has come 2 m, after 0.2 s."""
    view = two(EGO, (5.0, 3.0, -math.pi / 2, 1.0), lanes=(WIDE,))
    parameters = {key: value for key, value in rule("ttc.nuplan").items() if key != "threshold"}
    assert ttc.nuplan_times(view, **parameters)[0, 0] == pytest.approx(0.2)


def test_navsim_looks_at_the_present() -> None:
    """`ttc.navsim`: the first moment is 0: a contact that ends at once by speed is one; in nuPlan it is judged by
    fault."""
    hit = np.array([[0, int(Event.COLLISION_VEHICLE)], [0, 0]])
    view = two(
        EGO, (3.5, 0.0, 0.0, 60.0), events=hit, contact_partner=np.where(hit, 1, -1), contact_time=hit * 1.0
    )  # fmt: skip
    assert values_of(METRICS["ttc.navsim"], view).value[0] == 0


def test_boxes_that_began_inside_each_other_approach_nobody() -> None:
    """S54: recorded boxes overlap at the start of many logs; a time of 0 for the whole drive would blame the driver."""
    view = two(EGO, (1.0, 0.5, 0.0, 10.0), steps=3)
    assert len(ttc.approaches(view).agent) == 0
    assert values_of(METRICS["ttc.sweep"], view).value[0] == 5
    assert not values_of(METRICS["pet"], two(EGO, (1.0, 0.5, 1.0, 0.0))).valid[0]


@pytest.mark.parametrize(("bearing", "counts"), [(169, True), (171, False)])
def test_sweep_leaves_out_what_is_behind(bearing: float, counts: bool) -> None:
    """S79: up to 170 degrees; who comes from behind is his own business. The other drives straight at the ego."""
    angle = math.radians(bearing)
    other = (15 * math.cos(angle), 15 * math.sin(angle), angle + math.pi, 30.0)
    assert bool(ttc.sweep_times(two(EGO, other), **rule("ttc.sweep"))[0, 0] < 5) is counts


@pytest.mark.parametrize(("distance", "counts"), [(49.9, True), (50.1, False)])
def test_sweep_and_puffer_reach_fifty_metres(distance: float, counts: bool) -> None:
    """S79: 50 m between centres; at 60 m/s each, 46 m are 0.38 s by any measure."""
    view = two((0.0, 0.0, 0.0, 60.0), (distance, 0.0, math.pi, 60.0))
    assert bool(ttc.sweep_times(view, **rule("ttc.sweep"))[0, 0] < 5) is counts
    assert bool(values_of(METRICS["ttc.puffer"], view).value[0] == 0) is counts


def test_interval_agrees_with_small_steps() -> None:
    """Style 9.2: begin and end of the overlap of random turning boxes, against boxes moved 1 ms at a time."""
    from skidpad.evaluation.metrics.fault import corners, overlapping

    rng = np.random.default_rng(5)
    for _ in range(40):
        x, y, vx, vy = (rng.uniform(-12, 12, 2) for _ in range(4))
        heading, length, width = rng.uniform(-3, 3, 2), rng.uniform(1, 6, 2), rng.uniform(0.5, 3, 2)
        a, b = (
            ttc.Boxes(*(np.array([v]) for v in (x[i], y[i], math.cos(heading[i]), math.sin(heading[i]), length[i],
                                                 width[i], vx[i], vy[i])))
            for i in (0, 1)
        )  # fmt: skip
        begin, end = (float(value[0]) for value in ttc.overlap_interval(a, b))
        t = np.arange(0, 5, 1e-3)
        moved = [corners(x[i] + vx[i] * t, y[i] + vy[i] * t, np.full(len(t), heading[i]),
                         np.full(len(t), length[i]), np.full(len(t), width[i])) for i in (0, 1)]  # fmt: skip
        meets = np.flatnonzero(overlapping(*moved))
        if len(meets):
            assert t[meets[0]] == pytest.approx(max(begin, 0.0), abs=1.1e-3)
            assert t[meets[-1]] == pytest.approx(min(end, t[-1]), abs=1.1e-3)
        else:
            assert begin > end or end < 0 or begin > 4.998 or end - begin < 2e-3


def test_levels_do_not_meet() -> None:
    """A car on the bridge above is as near in the plane as one can be."""
    scene = scene_of([car(), car()], [ROAD], rows=2, has_z=True)
    rows = {"x": [[-1.0, 0.0], [12.0, 12.0]], "z": [[0.0, 0.0], [6.0, 6.0]], "speed": [[10.0, 10.0], [0.0, 0.0]]}
    view = CaseView(trace_of(scene, rows, scored=[0], steps=1), scene)
    assert values_of(METRICS["ttc.sweep"], view).value[0] == 5
    assert values_of(METRICS["ttc.gap"], view).value[0] == 5


def test_variants_differ_on_one_scene() -> None:
    """Section 4: no metric is called `ttc`, since they disagree: a car crossing in 0.8 s fails some of them."""
    view = two(EGO, SITUATIONS["crossing"][0])
    found = {name: float(values_of(METRICS[name], view).value[0]) for name in METRICS if name.startswith("ttc.")}
    assert found == {
        "ttc.nuplan": 1.0,
        "ttc.navsim": 1.0,
        "ttc.gap": 5.0,
        "ttc.sweep": pytest.approx(0.8, rel=1e-6),
        "ttc.sweep_share": 0.0,
        "ttc.vmax": 1.0,
        "ttc.puffer": 0.0,
    }
    assert "ttc" not in METRICS


@pytest.mark.parametrize(
    ("metric", "view", "reason"),
    [
        ("ttc.nuplan", two(EGO, (50.0, 0.0, 0.0, 0.0), lanes=()), "no_lane"),
        ("ttc.navsim", two(EGO, (50.0, 0.0, 0.0, 0.0), lanes=()), "no_lane"),
        ("thw", two(EGO, (50.0, 0.0, 0.0, 0.0), lanes=()), "no_lane"),
        ("thw", two(EGO, (50.0, 0.0, 0.0, 0.0)), "no_exposure"),  # no route, hence no leader
        ("drac", two(EGO, (50.0, 0.0, 0.0, 0.0)), "no_exposure"),
        ("pet", two(EGO, (50.0, 9.0, 0.0, 0.0)), "no_exposure"),
    ],
)
def test_missing_is_not_safe(metric: str, view: CaseView, reason: str) -> None:
    """Q3: whom nobody could meet has no headway and no encroachment, not a good one."""
    found = values_of(METRICS[metric], view)
    assert REASONS[found.reason[0]] == reason


def test_gap_is_for_vehicles() -> None:
    """Realism, Q25: time to collision is a feature of vehicles only."""
    scene = scene_of([car(type=TYPE_CYCLIST)])
    assert not values_of(METRICS["ttc.gap"], CaseView(trace_of(scene), scene)).valid[0]


# -- headway, required braking, encroachment ----------------------------------------------------------------------


def following(gap, speed, leader, *, lanes=(ROAD,), leader_lane=0, leader_heading=0.0, leader_arc=None, route=(0,)):
    """The ego at x = 0 on lane 0 and a leader `gap` m ahead, for two steps without motion of either record."""
    x = np.array([[0.0], [4.0 + gap]]) + np.zeros((1, 3))
    scene = scene_of([car(route=route), car()], list(lanes), rows=3)
    arc = np.array([[300.0], [304.0 + gap if leader_arc is None else leader_arc]])
    rows = {"x": x, "speed": [[speed], [leader]], "lane": [[0], [leader_lane]], "lane_arc": arc}
    rows["heading"] = np.array([[0.0], [leader_heading]])
    return CaseView(trace_of(scene, rows, scored=[0], steps=2), scene)


@pytest.mark.parametrize(
    ("gap", "speed", "leader", "thw", "drac"),
    [
        (20.0, 10.0, 10.0, 2.0, 0.0),  # following at one speed
        (20.0, 10.0, 0.0, 2.0, 100 / 40),  # standing leader
        (20.0, 10.0, -5.0, 2.0, 225 / 40),  # a leader that backs up
        (20.0, 10.0, 15.0, 2.0, 0.0),  # opening
        (0.05, 2.0, 0.0, 0.025, 4 / 0.2),  # closer than 0.1 m counts as 0.1
    ],
)
def test_headway_and_braking_have_closed_forms(gap, speed, leader, thw, drac) -> None:
    """Q14: gap / v, and closing speed^2 / (2 gap). Arcs near 300 m are known to 3e-5 m in float32."""
    view = following(gap, speed, leader)
    assert values_of(METRICS["thw"], view).value[0] == pytest.approx(thw, abs=2e-5)
    assert values_of(METRICS["drac"], view).value[0] == pytest.approx(drac, rel=1e-3)


def test_no_headway_below_walking_pace() -> None:
    """Section 4: invalid below 1 m/s, where gap / v says nothing."""
    assert not values_of(METRICS["thw"], following(20.0, 0.9, 0.0)).valid[0]


def test_leader_is_on_the_route() -> None:
    """A leader may be on the next lane of the route, at the sum of arcs; one on another lane is not followed."""
    lanes = [lane([(-300, 0), (20, 0)], exits=[1]), lane([(20, 0), (300, 0)]), lane([(-300, 5), (300, 5)])]
    ahead = following(36.0, 10.0, 10.0, lanes=lanes, leader_lane=1, leader_arc=20.0, route=(0, 1))
    assert values_of(METRICS["thw"], ahead).value[0] == pytest.approx(3.6, abs=1e-5)
    elsewhere = following(36.0, 10.0, 10.0, lanes=lanes, leader_lane=2, route=(0, 1))
    assert not values_of(METRICS["thw"], elsewhere).valid[0]


def test_lanes_of_a_lane_change_begin_together() -> None:
    """A route that changes lanes names both; the second is not further down the road."""
    import dataclasses

    road = scene_of([], [lane([(0, 0), (100, 0)]), lane([(0, 3), (100, 3)]), lane([(100, 3), (200, 3)])]).road
    beside = dataclasses.replace(road, left_offset=np.array([0, 1, 1, 1], np.int32), left_lane=np.array([1], np.int32))
    assert surrogates.route_starts(beside, np.array([0, 1, 2])) == {0: 0.0, 1: 0.0, 2: 100.0}
    assert surrogates.route_starts(road, np.array([0, 1, 2])) == {0: 0.0, 1: 100.0, 2: 200.0}


def paths(*tracks, steps=40, types=None):
    """Cars of 4 x 2 m from (x, y, heading, speed) at state 0."""
    t = np.arange(steps + 1) * 0.1
    x, y, heading, speed = np.array(tracks, dtype=float).T[..., None]
    rows = {"x": x + speed * np.cos(heading) * t, "y": y + speed * np.sin(heading) * t, "heading": heading}
    scene = scene_of([car(**kind) for kind in types or [{}] * len(tracks)], rows=steps + 1)
    return CaseView(trace_of(scene, rows | {"speed": speed}, scored=[0], steps=steps), scene)


@pytest.mark.parametrize("order", [1, -1])
def test_encroachment_counts_either_order(order: int) -> None:
    """Q14, pet: first over the place or second, the time between is the same.

    The first, 4 x 2 m at 10 m/s from x = -3.05, clears the other's path (x = 1) with its tail after 0.605 s; the other
    enters (y = -1) with its front after 1.805 s: 1.2 s, seen within two steps of 0.1 s."""
    first, second = (-3.05, 0.0, 0.0, 10.0), (0.0, -21.05, math.pi / 2, 10.0)
    view = paths(*((first, second) if order == 1 else (second, first)))
    found = values_of(METRICS["pet"], view).value[0]
    assert 1.2 <= found <= 1.4 + 1e-9


def test_encroachment_ignores_who_follows() -> None:
    """Two cars in a line use every place of the road one after the other; that is headway. Head-on is not."""
    assert not values_of(METRICS["pet"], paths((0, 0, 0, 10), (12, 0, 0, 10))).valid[0]
    assert values_of(METRICS["pet"], paths((0, 0, 0, 10), (60, 0, math.pi, 10))).value[0] == 0


def test_encroachment_ends_at_its_horizon() -> None:
    """Above 5 s two paths have nothing to do with each other; no data, not 5."""
    assert not values_of(METRICS["pet"], paths((-80, 0, 0, 10), (0, -2, math.pi / 2, 10), steps=120)).valid[0]


def test_static_things_are_met_too() -> None:
    """Objects are no road users but can be hit: time to collision counts them."""
    view = paths((0, 0, 0, 10), (12, 0, 0, 0), steps=1, types=[{}, {"subtype": SUBTYPE_STATIC, "type": TYPE_UNKNOWN}])
    assert values_of(METRICS["ttc.sweep"], view).value[0] == pytest.approx(0.7, rel=1e-6)
