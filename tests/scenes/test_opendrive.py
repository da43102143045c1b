"""The OpenDRIVE reader on small documents whose answers are worked out by hand."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest
from opendrive_files import document, geometry, lane, lane_of, points_of, read, road, section, width

from skidpad.errors import FormatError, SettingsError
from skidpad.scenes.formats import opendrive
from skidpad.scenes.formats.source import Limits, read_source
from skidpad.scenes.scene import (
    LANE_BICYCLE,
    LANE_BUILT_BY_READER,
    LANE_BUS,
    LANE_FREEWAY,
    LANE_OTHER,
    LANE_SHOULDER,
    LANE_STREET,
    LANE_WALKWAY,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    SIGNAL_YIELD,
)


def exits(scene, number):
    return sorted(scene.road.exits(number).tolist())


def links(scene):
    """Successors as pairs of (road, section, lane) of the file."""

    def name(number):
        value = int(scene.road.source_id[scene.road.lane_element[number]])
        return value // 1_000_000, value // 1000 % 1000, value % 1000 - 500

    return {(name(a), name(int(b))) for a in range(scene.road.lane_count) for b in scene.road.exits(a)}


def elements(scene, low, high):
    """(kind, world points) of all elements whose type is in [low, high)."""
    found = []
    for number, kind in enumerate(scene.road.element_type.tolist()):
        if low <= kind < high:
            found.append((kind, scene.road.xyz[scene.road.points(number)].astype("f8") + scene.meta.origin))
    return found


# Lanes in the plane


@pytest.mark.parametrize("rule", ["", "RHT", "LHT"])
def test_lanes_run_as_the_traffic_rule_says(rule):
    """R17: negative ids run with s and positive against it; left-hand traffic is the reverse. Borders, width and edges
    do not change with the rule."""
    scene = read(document(road(rule=rule)))
    right, left = points_of(scene, lane_of(scene, 1, 0, -1)), points_of(scene, lane_of(scene, 1, 0, 1))
    sign = -1.0 if rule == "LHT" else 1.0
    assert right[:, 1] == pytest.approx(-1.75)
    assert left[:, 1] == pytest.approx(1.75)
    assert sign * (right[-1, 0] - right[0, 0]) == pytest.approx(100.0)
    assert sign * (left[-1, 0] - left[0, 0]) == pytest.approx(-100.0)
    assert scene.road.width[scene.road.lane_points(0)] == pytest.approx(3.5)
    assert sorted({round(float(y), 3) for _, edge in elements(scene, 20, 30) for y in edge[:, 1]}) == [-3.5, 3.5]


def test_widths_add_up_from_the_lane_offset_outwards():
    """R17: width is the sum of cubic pieces from the inside out, starting at laneOffset; the piece is chosen by s."""
    lanes = {
        -1: lane(-1, width(3.0) + width(3.0, 0.1, at=40.0)),
        -2: lane(-2, width(2.0, 0.0, 0.001)),
        1: lane(1, width(4.0)),
    }
    offset = '<laneOffset s="0" a="1.0" b="0.01" c="0" d="0"/>'
    scene = read(document(road(sections=section(lanes), offset=offset)))
    for x in (0.0, 30.0, 50.0, 100.0):
        first = 3.0 + 0.1 * max(0.0, x - 40.0)
        second = 2.0 + 0.001 * x * x
        middle = 1.0 + 0.01 * x
        for id, expected in ((1, middle + 2.0), (-1, middle - first / 2), (-2, middle - first - second / 2)):
            points = points_of(scene, lane_of(scene, 1, 0, id))
            order = np.argsort(points[:, 0])
            assert np.interp(x, points[order, 0], points[order, 1]) == pytest.approx(expected, abs=0.05)
    ends = points_of(scene, lane_of(scene, 1, 0, -2))
    assert ends[-1] == pytest.approx([100.0, 2.0 - 9.0 - 6.0, 0.0], abs=1e-3)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_border_says_where_a_lane_ends_and_width_wins(sign):
    """R17: a border counts from lane 0, not from the lane inside of it, whatever sign the exporter gives right lanes;
    it is used only where there is no width."""
    lanes = {
        -1: lane(-1, width(sign * 3.5, tag="border")),
        -2: lane(-2, width(sign * 6.0, sign * 0.01, tag="border")),
        1: lane(1, width(3.0) + width(9.0, tag="border")),
    }
    scene = read(document(road(sections=section(lanes))))
    first, second = lane_of(scene, 1, 0, -1), lane_of(scene, 1, 0, -2)
    assert points_of(scene, first)[:, 1] == pytest.approx(-1.75)
    assert scene.road.width[scene.road.lane_points(second)][[0, -1]] == pytest.approx([2.5, 3.5])
    assert points_of(scene, second)[-1] == pytest.approx([100.0, -(3.5 + 7.0) / 2, 0.0])
    assert points_of(scene, lane_of(scene, 1, 0, 1))[:, 1] == pytest.approx(1.5)
    assert scene.meta.loss["ignored_border"].count == 1


CURVES = {
    "poly3": '<poly3 a="0" b="0.2" c="0.01" d="-0.0001"/>',
    "normalized": '<paramPoly3 aU="0" bU="40" cU="60" dU="-20" aV="0" bV="0" cV="30" dV="-10" pRange="normalized"/>',
    "absent": '<paramPoly3 aU="0" bU="40" cU="60" dU="-20" aV="0" bV="0" cV="30" dV="-10"/>',
    "arcLength": '<paramPoly3 aU="0" bU="1" cU="0" dU="0" aV="0" bV="0" cV="0.004" dV="0" pRange="arcLength"/>',
}


@pytest.mark.parametrize("name", CURVES)
def test_plan_view_cubics_carry_their_lanes(name):
    """R17: poly3 and both pRanges of paramPoly3 (absent = normalized), which no freely licensed file uses; every lane
    point lies 1.75 m beside the curve, at the same share of its true arc length."""
    p = np.linspace(0.0, {"poly3": 70.0, "arcLength": 70.0}.get(name, 1.0), 200_001)
    if name == "poly3":
        x, y = p, 0.2 * p + 0.01 * p**2 - 0.0001 * p**3
    elif name == "arcLength":
        x, y = p, 0.004 * p**2
    else:
        x, y = 40 * p + 60 * p**2 - 20 * p**3, 30 * p**2 - 10 * p**3
    arc = np.concatenate(([0.0], np.cumsum(np.hypot(np.diff(x), np.diff(y)))))
    length = 60.0 if name == "poly3" else 70.0 if name == "arcLength" else float(arc[-1])
    end = length if name == "poly3" else float(arc[-1])  # poly3 stops at its length, the others at their parameter
    taper = section({-1: lane(-1, width(3.5)), 1: lane(1, width(1.0, 2.0 / length))})
    scene = read(document(road(sections=taper, view=geometry(CURVES[name], length=length), length=length)))
    points = points_of(scene, lane_of(scene, 1, 0, -1))
    dense = np.stack((x, y), axis=1)[arc <= end + 1e-6]
    heading = np.arctan2(np.gradient(y), np.gradient(x))[arc <= end + 1e-6]
    expected = dense + 1.75 * np.stack((np.sin(heading), -np.cos(heading)), axis=1)
    distance = np.linalg.norm(points[:, None, :2] - expected[None, ::20], axis=2).min(axis=1)
    assert distance.max() < 0.01
    assert points[[0, -1], :2] == pytest.approx(expected[[0, -1]], abs=0.01)
    # The lane that widens says how far along each of its points is: 1 m at the start, 3 m at the end.
    number = lane_of(scene, 1, 0, 1)
    widths, centre = scene.road.width[scene.road.lane_points(number)], points_of(scene, number)[:, :2]
    share = (widths - 1.0) / 2.0
    at = np.searchsorted(arc, share * end).clip(0, len(x) - 1)
    angle = np.arctan2(np.gradient(y), np.gradient(x))[at]
    beside = np.stack((x[at] - widths / 2 * np.sin(angle), y[at] + widths / 2 * np.cos(angle)), axis=1)
    assert centre == pytest.approx(beside, abs=0.01)


def test_height_is_a_function_of_road_s():
    """R17: elevation counts along the road; evaluating it with section-local s gives the second section the heights of
    the first."""
    sections = section({-1: lane(-1)}) + section({-1: lane(-1)}, s=50.0)
    profile = '<elevationProfile><elevation s="0" a="5" b="0.1" c="0" d="0"/></elevationProfile>'
    scene = read(document(road(sections=sections, profile=profile)))
    assert points_of(scene, lane_of(scene, 1, 1, -1))[[0, -1], 2] == pytest.approx([10.0, 15.0], abs=1e-3)
    assert scene.meta.has_z


def test_a_lane_as_wide_as_a_square_keeps_its_borders():
    """The scene model ends at 60 m of width: wider lanes are cut to it and counted, their edges stay in place."""
    scene = read(document(road(sections=section({-1: lane(-1, width(70.0))}))))
    assert scene.road.width[scene.road.lane_points(0)] == pytest.approx(60.0)
    assert sorted({round(float(y), 3) for _, edge in elements(scene, 20, 30) for y in edge[:, 1]}) == [-70.0, 0.0]
    assert scene.meta.loss["repaired_wide_lane"].count == 1


def test_a_section_does_not_see_the_offset_step_of_the_next():
    """R17: in the CARLA towns offsets step by up to 14 m where a section starts; evaluated from outside, the lanes
    before it would end in a spike."""
    sections = section({-1: lane(-1)}) + section({-1: lane(-1)}, s=50.0)
    offset = '<laneOffset s="0" a="0" b="0" c="0" d="0"/><laneOffset s="50" a="14" b="0" c="0" d="0"/>'
    scene = read(document(road(sections=sections, offset=offset)))
    assert points_of(scene, lane_of(scene, 1, 0, -1))[:, 1] == pytest.approx(-1.75)
    assert points_of(scene, lane_of(scene, 1, 1, -1))[:, 1] == pytest.approx(12.25)


def test_lanes_inside_of_a_tighter_curve_never_run_backwards():
    """Farther inside than the curve's radius a lane is folded over, and a folded polyline has headings against its
    traffic: what is folded in part is straightened, what is folded as a whole is no lane. Both are counted."""
    view = geometry('<arc curvature="0.2"/>', length=10.0)
    whole = read(document(road(sections=section({1: lane(1, width(4.0)), 2: lane(2)}), view=view, length=10.0)))
    assert whole.road.lane_count == 1
    assert whole.meta.loss["dropped_folded_lane"].count == 1
    view = geometry('<spiral curvStart="0" curvEnd="0.25"/>', length=30.0)
    part = read(document(road(sections=section({1: lane(1, width(4.0)), 2: lane(2)}), view=view, length=30.0)))
    assert part.road.lane_count == 2
    assert part.meta.loss["repaired_folded_lane"].count == 1
    direction = part.road.direction[part.road.lane_points(lane_of(part, 1, 0, 2))]
    assert (np.sum(direction[1:] * direction[:-1], axis=1) > 0.0).all()


def test_headings_that_differ_by_a_full_turn_are_the_same():
    """CARLA writes -3.139 rad for one piece and 3.145 rad for the next: a mean of the two points backwards, and would
    make folded lanes of straight ones."""
    halves = geometry(length=50.0, hdg=-math.pi) + geometry(length=50.0, s=50.0, x=-50.0, hdg=math.pi)
    sign = signal("1", 'dynamic="no" country="" type="206"', 49.9)
    scene = read(document(road(view=halves, rest=f"<signals>{sign}</signals>")))
    assert scene.road.lane_count == 2
    assert dict(read(document(road(view=halves))).meta.loss) == {}
    assert abs(scene.signals.heading[0]) == pytest.approx(math.pi, abs=1e-6)


def test_lane_types_become_scene_types():
    """R17's table; ground beside the lanes is no lane, and unknown types are counted, not guessed."""
    expected = {
        "driving": LANE_STREET,
        "entry": LANE_STREET,
        "offRamp": LANE_STREET,
        "stop": LANE_STREET,
        "bus": LANE_BUS,
        "biking": LANE_BICYCLE,
        "shoulder": LANE_SHOULDER,
        "parking": LANE_SHOULDER,
        "sidewalk": LANE_WALKWAY,
        "restricted": LANE_OTHER,
    }
    lanes = {-i: lane(-i, type=type) for i, type in enumerate([*expected, "border", "none", "catwalk"], start=1)}
    scene = read(document(road(sections=section(lanes))))
    types = [int(scene.road.element_type[scene.road.lane_element[lane_of(scene, 1, 0, -i)]]) for i in range(1, 11)]
    assert types == list(expected.values())
    assert scene.road.lane_count == len(expected)
    assert {kind: scene.meta.loss[kind].count for kind in ("ignored_lane_border", "unknown_lane_type")} == {
        "ignored_lane_border": 1,
        "unknown_lane_type": 1,
    }
    motorway = read(document(road(types='<type s="0" type="motorway"/>')))
    assert set(motorway.road.element_type[motorway.road.lane_element].tolist()) == {LANE_FREEWAY}


def test_bidirectional_lane_becomes_two():
    """R17: one lane driven both ways is two lanes of a scene, and the second one is marked as not in the file."""
    scene = read(document(road(sections=section({-1: lane(-1, type="bidirectional")}))))
    assert scene.road.lane_count == 2
    starts = sorted(float(points_of(scene, number)[0, 0]) for number in (0, 1))
    assert starts == pytest.approx([0.0, 100.0])
    assert sorted(scene.road.lane_flags.tolist()) == [0, LANE_BUILT_BY_READER]


def test_speed_limits_know_their_units():
    """R17: no unit means m/s; a lane's own limit wins over the road's; 'no limit' is unknown, not 0."""
    types = '<type s="0" type="town"><speed max="36" unit="km/h"/></type>'
    lanes = {
        -1: lane(-1),
        -2: lane(-2, width(3.5) + '<speed sOffset="0" max="10" unit="mph"/>'),
        -3: lane(-3, width(3.5) + '<speed sOffset="0" max="7.5"/>'),
        -4: lane(-4, width(3.5) + '<speed sOffset="0" max="no limit"/>'),
        -5: lane(-5, width(3.5) + '<speed sOffset="0" max="3" unit="knots"/>'),
        -6: lane(-6, width(3.5) + '<speed sOffset="0" max="5"/><speed sOffset="30" max="9"/>'),
    }
    scene = read(document(road(sections=section(lanes), types=types)))
    found = [float(scene.road.speed_limit[lane_of(scene, 1, 0, id)]) for id in lanes]
    assert found == pytest.approx([10.0, 4.4704, 7.5, math.nan, math.nan, 9.0], nan_ok=True)
    assert scene.meta.loss["dropped_speed_limit"].count == 1
    assert scene.meta.loss["assumed_speed_limit"].count == 1


def test_neighbours_touch_and_run_the_same_way():
    """S2: a lane change leads into a lane of the same direction, not over a median or the road's middle."""
    lanes = {id: lane(id) for id in (2, 1, -1, -2)} | {-3: lane(-3, type="median"), -4: lane(-4)}
    scene = read(document(road(sections=section(lanes))))
    number = {id: lane_of(scene, 1, 0, id) for id in (2, 1, -1, -2, -4)}
    left = {
        id: scene.road.left_lane[scene.road.left_offset[n] : scene.road.left_offset[n + 1]].tolist()
        for id, n in number.items()
    }
    assert left == {2: [number[1]], 1: [], -1: [], -2: [number[-1]], -4: []}


def test_painted_lines_follow_their_border():
    """R17: roadMark lies on the outer border from its sOffset on; standard is white; 'solid broken' counts as solid."""
    marks = '<roadMark sOffset="0" type="broken" color="standard"/><roadMark sOffset="60" type="none"/>'
    double = "".join(f'<roadMark sOffset="{s}" type="solid solid" color="yellow"/>' for s in (0, 30))
    mixed = '<roadMark sOffset="0" type="solid broken" color="white"/>'
    lanes = {-1: lane(-1, width(3.5) + marks), 1: lane(1, width(3.5) + mixed)}
    scene = read(document(road(sections=section(lanes, centre=double))))
    lines = sorted(
        (kind, *np.round(points[[0, -1], :2], 3).ravel().tolist()) for kind, points in elements(scene, 10, 20)
    )
    assert lines == [(11, 0, -3.5, 60, -3.5), (12, 0, 3.5, 100, 3.5), (17, 0, 0, 100, 0)]


# Who follows whom


def test_links_inside_a_road_follow_the_direction_of_each_lane():
    """R17: successor is meant along s; a lane of the other direction is entered at the end of the section."""
    first = section({1: lane(1, link='<successor id="1"/>'), -1: lane(-1, link='<successor id="-2"/>')})
    second = section({1: lane(1), -1: lane(-1), -2: lane(-2)}, s=50.0)
    scene = read(document(road(sections=first + second)))
    assert links(scene) == {((1, 0, -1), (1, 1, -2)), ((1, 1, 1), (1, 0, 1))}


@pytest.mark.parametrize("contact", ["start", "end", None])
@pytest.mark.parametrize("own_end", ["predecessor", "successor"])
def test_contact_points_decide_which_ends_meet(own_end, contact):
    """R17: two roads may meet start to start; then lane ids change sign, and the link decides, not the sign. Without a
    contactPoint the nearer end is taken, and counted."""
    meeting = 0.0 if own_end == "predecessor" else 100.0
    away = -1.0 if own_end == "predecessor" else 1.0
    starts_here = contact != "end"
    # Road 2 leads away from the meeting point, or ends there.
    heading = (0.0 if away > 0 else math.pi) if starts_here else (math.pi if away > 0 else 0.0)
    x = meeting if starts_here else meeting + away * 80.0
    same_sign = (own_end == "successor") == starts_here
    ids = {1: 1, -1: -1} if same_sign else {1: -1, -1: 1}
    name = f' contactPoint="{contact}"' if contact else ""
    sections = section({id: lane(id, link=f'<{own_end} id="{ids[id]}"/>') for id in (1, -1)})
    link = f'<{own_end} elementType="road" elementId="2"{name}/>'
    other = road("2", view=geometry(length=80.0, x=x, hdg=heading), length=80.0)
    scene = read(document(road(sections=sections, link=link), other))
    leaving = -1 if own_end == "successor" else 1
    assert links(scene) == {((1, 0, leaving), (2, 0, ids[leaving])), ((2, 0, ids[-leaving]), (1, 0, -leaving))}
    assert ("assumed_contact_point" in scene.meta.loss) == (contact is None)
    assert "assumed_link_over_gap" not in scene.meta.loss


def crossing(contact: str, kind: str = "default") -> list[str]:
    """Road 1 leads east into a junction, road 3 leads on; road 2 joins them, laid along or against the traffic."""
    ends = {
        "start": ('<predecessor elementType="road" elementId="1" contactPoint="end"/>'
                  '<successor elementType="road" elementId="3" contactPoint="start"/>', 100.0, 0.0, -1),
        "end": ('<predecessor elementType="road" elementId="3" contactPoint="start"/>'
                '<successor elementType="road" elementId="1" contactPoint="end"/>', 120.0, math.pi, 1),
    }  # fmt: skip
    link, x, heading, id = ends[contact]
    after = '<successor id="-1"/>' if contact == "start" else '<predecessor id="-1"/>'
    before = '<predecessor id="-1"/>' if contact == "start" else '<successor id="-1"/>'
    joining = section({id: lane(id, link=before + after)})
    return [
        road("1", section({-1: lane(-1)}), link='<successor elementType="junction" elementId="7"/>'),
        road("2", joining, view=geometry(length=20.0, x=x, hdg=heading), length=20.0, junction="7", link=link),
        road(
            "3",
            section({-1: lane(-1)}),
            view=geometry(x=120.0),
            link='<predecessor elementType="junction" elementId="7"/>',
        ),
        f'<junction id="7"><connection id="0" incomingRoad="1" connectingRoad="2" contactPoint="{contact}">'
        f'<laneLink from="-1" to="{id}"/></connection></junction>',
    ]


@pytest.mark.parametrize(("contact", "id"), [("start", -1), ("end", 1)])
def test_junction_leads_through_its_connecting_road(contact, id):
    """R17: connection and laneLink lead in, the connecting road's own links lead out; with contactPoint end it is
    driven against s."""
    scene = read(document(*crossing(contact)))
    assert links(scene) == {((1, 0, -1), (2, 0, id)), ((2, 0, id), (3, 0, -1))}
    inside = scene.road.lane_junction[lane_of(scene, 2, 0, id)]
    assert inside >= 0
    assert scene.road.lane_junction[lane_of(scene, 1, 0, -1)] == -1
    assert points_of(scene, lane_of(scene, 2, 0, id))[[0, -1], 0] == pytest.approx([100.0, 120.0])


def test_junction_links_alone_are_enough():
    """Files exist whose connecting roads carry no lane links: the junction then says how to get in."""
    roads = crossing("start")
    roads[1] = roads[1].replace('<predecessor id="-1"/>', "")
    assert ((1, 0, -1), (2, 0, -1)) in links(read(document(*roads)))


def test_direct_junction_joins_roads_without_a_connecting_one():
    """R17, OpenDRIVE 1.7: linkedRoad takes the place of connectingRoad."""
    scene = read(
        document(
            road("1", section({-1: lane(-1)}), link='<successor elementType="junction" elementId="7"/>'),
            road("2", section({-1: lane(-1)}), view=geometry(x=100.0)),
            '<junction id="7" type="direct"><connection id="0" incomingRoad="1" linkedRoad="2" contactPoint="start">'
            '<laneLink from="-1" to="-1"/></connection></junction>',
        )
    )
    assert links(scene) == {((1, 0, -1), (2, 0, -1))}


@pytest.mark.parametrize("place", ["start", "middle", "end"])
def test_sections_shorter_than_a_centimetre_are_bridged(place):
    """R17: dropping one must not cut the lane graph, neither inside a road nor at its ends, also where the lane changes
    its id in it: lane -1 of a long section is lane -2 of the short one."""
    starts = {"start": [0.0, 0.005, 50.0], "middle": [0.0, 50.0, 50.005], "end": [0.0, 50.0, 99.995]}[place]
    short = {"start": 0, "middle": 1, "end": 2}[place]
    parts = []
    for index, s in enumerate(starts):
        before, after = (-2 if index - 1 == short else -1), (-2 if index + 1 == short else -1)
        link = f'<predecessor id="{before}"/><successor id="{after}"/>'
        id = -2 if index == short else -1
        parts.append(section({-1: lane(-1)} | {id: lane(id, link=link)}, s=s))
    name_start, name_end = (-2 if place == "start" else -1), (-2 if place == "end" else -1)
    link = (
        '<predecessor elementType="road" elementId="5" contactPoint="end"/>'
        '<successor elementType="road" elementId="6" contactPoint="start"/>'
    )
    scene = read(
        document(
            road("1", "".join(parts), link=link),
            road(
                "5",
                section({-1: lane(-1, link=f'<successor id="{name_start}"/>')}),
                view=geometry(x=-100.0),
                link='<successor elementType="road" elementId="1" contactPoint="start"/>',
            ),
            road(
                "6",
                section({-1: lane(-1, link=f'<predecessor id="{name_end}"/>')}),
                view=geometry(x=100.0),
                link='<predecessor elementType="road" elementId="1" contactPoint="end"/>',
            ),
        )
    )
    assert links(scene) == {((5, 0, -1), (1, 0, -1)), ((1, 0, -1), (1, 1, -1)), ((1, 1, -1), (6, 0, -1))}
    assert {kind: entry.count for kind, entry in scene.meta.loss.items()} == {"dropped_short_section": 1}


def test_section_of_a_single_side_leaves_the_other_side_alone():
    """singleSide: a new section for the right lanes must not end the left ones, whose records go on counting from
    where they were written."""
    first = section({1: lane(1, width(3.0, 0.01)), -1: lane(-1, link='<successor id="-1"/>')})
    second = section({-1: lane(-1), -2: lane(-2)}, s=50.0).replace("<laneSection ", '<laneSection singleSide="true" ')
    scene = read(document(road(sections=first + second)))
    assert links(scene) == {((1, 0, -1), (1, 1, -1)), ((1, 1, 1), (1, 0, 1))}
    widths = scene.road.width[scene.road.lane_points(lane_of(scene, 1, 1, 1))]
    assert widths[[0, -1]] == pytest.approx([4.0, 3.5])
    assert dict(scene.meta.loss) == {}


def test_links_that_cannot_be_driven_are_dropped_and_counted():
    """R8, F13: dangling ids, lanes that meet head to head, and links over metres are neither followed nor fatal."""
    sections = section({-1: lane(-1, link='<successor id="1"/>'), -2: lane(-2, link='<successor id="-9"/>')})
    sections += section({-1: lane(-1), 1: lane(1)}, s=50.0)
    far = section({-1: lane(-1, link='<successor id="-1"/>')})
    scene = read(
        document(
            road("1", sections),
            road(
                "2",
                far,
                view=geometry(y=50.0),
                link='<successor elementType="road" elementId="1" contactPoint="start"/>',
            ),
            road(
                "3",
                far,
                view=geometry(y=99.0),
                link='<successor elementType="road" elementId="44" contactPoint="start"/>',
            ),
        )
    )
    assert links(scene) == set()
    loss = {kind: entry.count for kind, entry in scene.meta.loss.items() if kind.startswith("dropped")}
    assert loss == {"dropped_dangling_link": 2, "dropped_link_against_traffic": 1, "dropped_link_over_gap": 1}


# Signals and crosswalks

LIGHT = 'dynamic="yes" country="OpenDRIVE" type="1000001" subtype="-1"'


def signal(id: str, what: str, s: float, orientation: str = "+", validity: str = "") -> str:
    return f'<signal id="{id}" s="{s}" t="5" orientation="{orientation}" {what}>{validity}</signal>'


def valid(low: int, high: int) -> str:
    return f'<validity fromLane="{low}" toLane="{high}"/>'


@pytest.mark.parametrize(("contact", "id", "orientation"), [("start", -1, "-"), ("end", 1, "+")])
def test_light_controls_where_it_is_referenced(contact, id, orientation):
    """R17's traps, all in one: the pole's own validity 0..0 is no lane; the reference on the connecting road says which
    lane; its orientation contradicts the lane (as in all CARLA towns) and the validity wins; the stop line is where the
    lane starts."""
    roads = crossing(contact)
    roads[0] = roads[0].replace("</road>", f"<signals>{signal('9', LIGHT, 95.0, '-', valid(0, 0))}</signals></road>")
    reference = f'<signalReference id="9" s="1" t="0" orientation="{orientation}">{valid(id, id)}</signalReference>'
    roads[1] = roads[1].replace("</road>", f"<signals>{reference}</signals></road>")
    scene = read(document(*roads))
    signals = scene.signals
    assert signals.kind.tolist() == [SIGNAL_LIGHT]
    assert signals.lanes(0).tolist() == [lane_of(scene, 2, 0, id)]
    line = signals.line[0].astype("f8") + scene.meta.origin
    assert line == pytest.approx(np.array([[100.0, 0.0, 0.0], [100.0, -3.5, 0.0]]), abs=1e-5)  # left to right
    assert signals.heading[0] == pytest.approx(0.0, abs=1e-6)
    assert signals.junction[0] == scene.road.lane_junction[lane_of(scene, 2, 0, id)]


@pytest.mark.parametrize(
    ("rule", "orientation", "lanes"),
    [("", "+", [-1, -2]), ("", "-", [1]), ("LHT", "+", [1]), ("", "none", [1, -1, -2])],
)
def test_sign_without_validity_controls_the_lanes_of_its_direction(rule, orientation, lanes):
    """Orientation + is meant for traffic along s: right lanes with right-hand traffic, left lanes with left-hand. The
    line lies at the sign's s, across all lanes it holds for; each direction has its own."""
    sign = signal("1", 'dynamic="no" country="DE" type="206"', 70.0, orientation)
    sections = section({1: lane(1), -1: lane(-1), -2: lane(-2), -3: lane(-3, type="shoulder")})
    scene = read(document(road(sections=sections, rule=rule, rest=f"<signals>{sign}</signals>")))
    assert set(scene.signals.kind.tolist()) == {SIGNAL_STOP}
    found = sorted(int(number) for i in range(scene.signals.count) for number in scene.signals.lanes(i))
    assert found == sorted(lane_of(scene, 1, 0, id) for id in lanes)
    assert scene.signals.count == (2 if orientation == "none" else 1)
    for line in scene.signals.line.astype("f8") + scene.meta.origin:
        assert line[:, 0] == pytest.approx(70.0, abs=1e-4)


def test_signal_kinds():
    """R17: dynamic lights and 1000001 are lights, 206 stop, 205 yield; lights for pedestrians are not ours, and 206 of
    another country is another sign."""
    signs = [
        signal("1", 'dynamic="yes" country="" type="1000011"', 10.0),
        signal("2", 'dynamic="no" country="" type="1000001"', 20.0),
        signal("3", 'dynamic="no" country="de" type="205"', 30.0),
        signal("4", 'dynamic="no" country="US" type="R1-1"', 40.0),
        signal("5", 'dynamic="yes" country="" type="1000002"', 50.0),
        signal("6", 'dynamic="no" country="SE" type="206"', 60.0),
        signal("6", 'dynamic="no" country="" type="206"', 60.0),
        signal("8", 'dynamic="no" country="" type="206"', 80.0, validity=valid(0, 0)),
        '<signalReference id="77" s="1" t="0" orientation="+"/>',
    ]
    scene = read(document(road(rest=f"<signals>{''.join(signs)}</signals>")))
    assert scene.signals.kind.tolist() == [SIGNAL_LIGHT, SIGNAL_LIGHT, SIGNAL_YIELD, SIGNAL_STOP]
    loss = {kind: scene.meta.loss[kind].count for kind in scene.meta.loss if "_signal_" not in kind or "type" in kind}
    assert loss["ignored_signal_type"] == 2
    assert loss["dropped_doubled_signal"] == 1
    assert loss["dropped_dangling_signal"] == 1
    assert scene.meta.loss["dropped_signal_without_lane"].count == 1


def test_references_of_one_approach_share_a_stop_line():
    """One light over two connecting roads that start side by side is one signal, with one line across both; the same
    light on the opposite approach is another."""
    roads = [
        road("1", section({-1: lane(-1), -2: lane(-2)}), link='<successor elementType="junction" elementId="7"/>',
             rest=f"<signals>{signal('9', LIGHT, 95.0, '-', valid(0, 0))}</signals>"),
    ]  # fmt: skip
    reference = (
        f'<signals><signalReference id="9" s="0" t="0" orientation="+">{valid(-1, -1)}</signalReference></signals>'
    )
    for id, y, x, hdg in (("2", 0.0, 100.0, 0.0), ("3", -3.5, 100.0, 0.1), ("4", 0.0, 140.0, math.pi)):
        roads.append(road(id, section({-1: lane(-1)}), view=geometry(length=20.0, x=x, y=y, hdg=hdg), length=20.0,
                          junction="7", rest=reference))  # fmt: skip
    scene = read(document(*roads, '<junction id="7"/>'))
    assert scene.signals.count == 2
    assert sorted(scene.signals.lanes(0).tolist()) == [lane_of(scene, 2, 0, -1), lane_of(scene, 3, 0, -1)]
    line = scene.signals.line[0].astype("f8") + scene.meta.origin
    assert line[:, 1] == pytest.approx([0.0, -7.0], abs=0.05)


def test_stop_line_of_a_lane_that_opens_there_has_a_width():
    """A turn lane starts with width 0 where its stop line lies; a line without length is crossed by nobody."""
    sections = section({-1: lane(-1, width(0.0, 0.175))})
    reference = f'<signalReference id="9" s="0" t="0" orientation="+">{valid(-1, -1)}</signalReference>'
    roads = [
        road("1", view=geometry(x=-200.0), rest=f"<signals>{signal('9', LIGHT, 95.0, '-', valid(0, 0))}</signals>"),
        road(
            "2", sections, view=geometry(length=20.0), length=20.0, junction="7", rest=f"<signals>{reference}</signals>"
        ),
    ]
    scene = read(document(*roads, '<junction id="7"/>'))
    line = scene.signals.line[0].astype("f8") + scene.meta.origin
    assert line == pytest.approx(np.array([[0.0, 1.75, 0.0], [0.0, -1.75, 0.0]]), abs=1e-5)


@pytest.mark.parametrize(
    ("groups", "phases"),
    [([["1", "2"], ["3"]], [0, 0, 1]), ([["1"], ["2"], ["3"]], [-1] * 3), ([["1", "2"], ["2", "3"]], [-1] * 3)],
)
def test_controllers_give_phases_only_where_they_share_out_the_lights(groups, phases):
    """R17: in CARLA a light is in several controllers, or alone in its own: that says nothing about phases (S104)."""
    lights = "".join(signal(str(i), LIGHT, 30.0 * i) for i in (1, 2, 3))
    scene = read(
        document(
            road(rest=f"<signals>{lights}</signals>", link='<successor elementType="junction" elementId="7"/>'),
            '<junction id="7">' + "".join(f'<controller id="c{i}"/>' for i in range(len(groups))) + "</junction>",
            *(
                f'<controller id="c{i}">' + "".join(f'<control signalId="{id}"/>' for id in group) + "</controller>"
                for i, group in enumerate(groups)
            ),
        )
    )
    assert scene.signals.phase.tolist() == phases
    assert ("ignored_controllers" in scene.meta.loss) == (phases[0] < 0)


def test_crosswalks_in_all_spellings():
    """R17: corners in the object's own frame (turned against the road), on the road, or only length and width."""
    local = "".join(f'<cornerLocal u="{u}" v="{v}" z="0"/>' for u, v in ((4, 1), (-4, 1), (-4, -1), (4, -1)))
    on_road = "".join(f'<cornerRoad s="{s}" t="{t}" dz="0"/>' for s, t in ((79, -4), (81, -4), (81, 4), (79, 4)))
    objects = (
        f'<object id="11" type="crosswalk" s="20" t="0" hdg="{math.pi / 2}"><outline>{local}</outline></object>'
        f'<object id="12" type="crosswalk" s="80" t="0"><outlines><outline>{on_road}</outline></outlines></object>'
        f'<object id="13" type="crosswalk" s="50" t="0" hdg="{math.pi / 2}" length="8" width="2"><outline/></object>'
        '<object id="14" type="crosswalk" s="60" t="0"/><object id="15" type="tree" s="60" t="0"/>'
    )
    scene = read(document(road(rest=f"<objects>{objects}</objects>")))
    boxes = [(*points[:, :2].min(axis=0), *points[:, :2].max(axis=0)) for _, points in elements(scene, 30, 40)]
    assert sorted(boxes) == [
        pytest.approx(box, abs=1e-4) for box in ((19, -4, 21, 4), (49, -4, 51, 4), (79, -4, 81, 4))
    ]
    assert scene.meta.loss["dropped_crosswalk"].count == 1
    assert scene.meta.loss["ignored_object"].count == 1


# The file as a whole


def test_loss_report_has_exactly_the_entries_that_were_planted():
    """R7: one unknown tag, one known but unused tag and one dangling id give three entries, and a clean file none."""
    assert dict(read(document(road())).meta.loss) == {}
    sections = section({-1: lane(-1, width(3.5) + '<access sOffset="0" rule="deny"/>')})
    link = '<successor elementType="road" elementId="44" contactPoint="start"/>'
    sections = sections.replace("<link></link>", '<link><successor id="-1"/></link>', 1)
    scene = read(document(road(sections=sections, link=link, rest="<telepathy/>")))
    counts = {kind: entry.count for kind, entry in scene.meta.loss.items()}
    assert counts == {"unknown_element": 1, "ignored_access": 1, "dropped_dangling_link": 1}


@pytest.mark.parametrize(("minor", "counted"), [(4, False), (7, False), (8, True), (1, True)])
def test_versions(minor, counted):
    """R17: 1.4 to 1.7 are what this reads; others are read as 1.7, with a loss entry."""
    scene = read(document(road(), minor=minor))
    assert ("assumed_version" in scene.meta.loss) == counted
    assert scene.meta.source_version == f"1.{minor}"
    assert scene.meta.labels["opendrive"] == f"1.{minor}"


def test_superelevation_counts_only_where_it_tilts():
    """R17: superelevation is ignored and counted; the CARLA towns hold thousands of records that say 0."""
    record = '<superelevation s="0" a="{}" b="0" c="0" d="0"/>'
    flat = f"<lateralProfile>{record.format(0)}</lateralProfile>"
    assert dict(read(document(road(profile=flat))).meta.loss) == {}
    tilted = f"<lateralProfile>{record.format(0)}{record.format(0.1)}</lateralProfile>"
    assert read(document(road(profile=tilted))).meta.loss["ignored_superelevation"].count == 1


def chained(gap: float) -> bytes:
    return document(road(view=geometry(length=50.0) + geometry(length=50.0, s=50.0, x=50.0 + gap)))


def test_small_gaps_are_repaired_and_large_ones_refused():
    """R17: gaps of millimetres are rounding; above 0.1 m the file is broken and says where."""
    assert dict(read(chained(0.0)).meta.loss) == {}
    assert read(chained(0.005)).meta.loss["repaired_geometry_gap"].count == 1
    with pytest.raises(FormatError, match=r"test.xodr:2: .*road '1' has a gap of 0.2 m at s = 50 m, expected at most"):
        read(chained(0.2))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([road("1"), road("1")], "road id '1' is there twice"),
        ([road(sections=section({-1: lane(-1) + lane(-1)}))], "lane id -1 is there twice in one section"),
        ([road(view="")], "expected at least one <geometry>"),
        ([road(view=geometry("<helix/>"))], "expected exactly one of line, arc, spiral, poly3, paramPoly3, found 0"),
        ([road(view=geometry("<line/><line/>"))], "found 2"),
        ([road(rule="UK")], "'rule' is 'UK', expected RHT or LHT"),
        ([road(sections="")], "expected at least one <laneSection>"),
        ([road(sections=section({-1: lane(-1, "")}))], "no road has a lane with a width"),
        ([], "no road has a lane with a width"),
        ([road(link='<successor elementType="ferry" elementId="1"/>')], "'elementType' is 'ferry'"),
        ([road(view=geometry(length=-1.0))], "expected no negative numbers"),
    ],
)
def test_malformed_files_are_refused_with_a_reason(parts, message):
    """R8, F9: doubled lanes and missing pieces are errors with file and line, never an IndexError."""
    with pytest.raises(FormatError, match=r"^test.xodr") as caught:
        read(document(*parts))
    assert message in str(caught.value)


def test_other_major_version_and_other_roots_are_refused():
    """R17, F15: OpenDRIVE 2 would mean something else by the same tags."""
    with pytest.raises(FormatError, match=r"OpenDRIVE 2.7, expected 1.4 to 1.8"):
        read(document(road()).replace(b'revMajor="1"', b'revMajor="2"'))
    with pytest.raises(FormatError, match="expected an <OpenDRIVE> document"):
        read(b"<OpenSCENARIO/>")


def test_unknown_options_are_refused():
    """The reader takes no options; one that does nothing would be a lie."""
    with pytest.raises(SettingsError, match="knows no option tolerance"):
        opendrive.read(read_source(document(road()), name="x"), Limits(), {"tolerance": 1})


@pytest.mark.parametrize(
    ("head", "mine"),
    [
        (b"<OpenDRIVE>", True),
        (b'\xef\xbb\xbf<?xml version="1.0" standalone="yes"?>\n<!-- a -->\n<!-- b -->\n<OpenDRIVE x="1">', True),
        (b"<OpenDRIVEN>", False),
        (b"<commonRoad><OpenDRIVE>", False),
        (b"OpenDRIVE", False),
        (b"", False),
    ],
)
def test_sniffing_is_by_the_first_element(head, mine):
    """R2: by content, and only the root counts."""
    assert opendrive.sniff(head, "anything.dat") == float(mine)


def test_same_bytes_same_digest_in_another_process():
    """R9: independent of hash seed, locale and time zone."""
    data = document(*crossing("end"))
    code = (
        "import sys; from skidpad.scenes.formats import opendrive; from skidpad.scenes.formats.source import *;"
        "print(opendrive.read(read_source(sys.stdin.buffer.read(), name='x'), Limits(), {}).digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77", "TZ": "Asia/Kathmandu", "LC_ALL": "de_DE.UTF-8"}
    done = subprocess.run([sys.executable, "-c", code], input=data, env=environment, capture_output=True, check=True)
    assert done.stdout.decode().strip() == read(data).digest
