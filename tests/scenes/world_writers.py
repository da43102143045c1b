"""The small world in the formats of maps and of CommonRoad (R26): straight lanes, written by hand from its arrays."""

from __future__ import annotations

import numpy as np
import opendrive_files as drive
from commonroad_files import HEAD_2020, RECTANGLE, bound, state
from lanelet2_files import Map
from small_world import world_points
from sumo_files import connection, edge, lane, logic, net

from skidpad.scenes.scene import SIGNAL_LIGHT, STATE_GREEN, STATE_RED, STATE_YELLOW, Scene

_LETTERS = {STATE_RED: "r", STATE_YELLOW: "y", STATE_GREEN: "G"}
_COLOURS = {STATE_RED: "red", STATE_YELLOW: "yellow", STATE_GREEN: "green"}


def borders(scene: Scene, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centre, left and right border (2, 3) f64 [m] of lane n."""
    centre, half = world_points(scene, n), float(scene.road.width[scene.road.lane_points(n)][0]) / 2.0
    along = centre[-1] - centre[0]
    aside = half * np.array([-along[1], along[0], 0.0]) / np.hypot(*along[:2])
    return centre, (centre + aside).round(6), (centre - aside).round(6)


def ids(scene: Scene) -> list[int]:
    found: list[int] = scene.road.source_id[scene.road.lane_element].tolist()
    return found


def controlled(scene: Scene, kind_is_light: bool) -> tuple[int, np.ndarray]:
    """The lane of the light, or of the stop sign, and its line (2, 3) f64 [m]."""
    (n,) = np.flatnonzero((scene.signals.kind == SIGNAL_LIGHT) == kind_is_light)
    return int(scene.signals.lanes(n)[0]), scene.signals.line[n].astype(float) + scene.meta.origin


def programme(scene: Scene) -> list[tuple[int, int]]:
    """(rows, state) of the light, run after run."""
    (n,) = np.flatnonzero(scene.signals.kind == SIGNAL_LIGHT)
    runs: list[tuple[int, int]] = []
    for value in scene.signals.state[n].tolist():
        runs[-1:] = [(runs[-1][0] + 1, value)] if runs and runs[-1][1] == value else [*runs[-1:], (1, value)]
    return runs


def commonroad_xml(scene: Scene) -> bytes:
    """Flat, of version 2020a: every lane a lanelet, the crosswalk another, obstacles by their rows."""
    road, tracks = scene.road, scene.tracks
    text = HEAD_2020 + "\n"
    for n, identity in enumerate(ids(scene)):
        _, left, right = borders(scene, n)
        marking = "dashed" if identity == 11 else ""
        text += f'<lanelet id="{identity}">'
        text += bound("leftBound", *map(tuple, left[:, :2].tolist()), marking=marking)
        text += bound("rightBound", *map(tuple, right[:, :2].tolist()))
        text += "".join(f'<predecessor ref="{ids(scene)[other]}"/>' for other in road.entries(n))
        text += "".join(f'<successor ref="{ids(scene)[other]}"/>' for other in road.exits(n))
        for is_light, reference in ((True, '<trafficLightRef ref="50"/>'), (False, '<trafficSignRef ref="41"/>')):
            owner, line = controlled(scene, is_light)
            if owner == n:
                points = "".join(f"<point><x>{x!r}</x><y>{y!r}</y></point>" for x, y in line[:, :2].tolist())
                text += f"<stopLine>{points}<lineMarking>solid</lineMarking>{reference}</stopLine>"
        text += '<laneletType>urban</laneletType><trafficSignRef ref="40"/></lanelet>\n'
    walk = world_points(scene, 5)
    text += '<lanelet id="23">' + bound("leftBound", *map(tuple, walk[[0, 3], :2].tolist()))
    text += bound("rightBound", *map(tuple, walk[[1, 2], :2].tolist()))
    text += "<laneletType>crosswalk</laneletType></lanelet>\n"
    for number, code, value in (
        (40, "274", f"<additionalValue>{road.speed_limit[0]!s}</additionalValue>"),
        (41, "206", ""),
    ):
        text += f'<trafficSign id="{number}"><trafficSignElement><trafficSignID>{code}</trafficSignID>{value}'
        text += "</trafficSignElement></trafficSign>"
    cycle = "".join(
        f"<cycleElement><duration>{rows}</duration><color>{_COLOURS[value]}</color></cycleElement>"
        for rows, value in programme(scene)
    )
    text += f'<trafficLight id="50"><cycle>{cycle}</cycle><active>true</active></trafficLight>\n'
    for n in range(tracks.count):
        kind = {1: "car", 2: "pedestrian"}[int(tracks.type[n])]
        size = RECTANGLE.replace("4.5", f"{tracks.length[n].max()!s}").replace("1.8", f"{tracks.width[n].max()!s}")
        rows = [
            state(
                "initialState" if row == tracks.first[n] else "state",
                row,
                float(tracks.x[n, row]) + scene.meta.origin[0],
                float(tracks.y[n, row]) + scene.meta.origin[1],
                speed=repr(float(np.hypot(tracks.vx[n, row], tracks.vy[n, row]))),
                heading=repr(float(tracks.heading[n, row])),
            )
            for row in np.flatnonzero(tracks.valid[n]).tolist()
        ]
        text += f'<dynamicObstacle id="{tracks.source_id[n]}"><type>{kind}</type>{size}{rows[0]}'
        text += f"<trajectory>{''.join(rows[1:])}</trajectory></dynamicObstacle>\n"
    return (text + "</commonRoad>\n").encode()


def opendrive_xodr(scene: Scene) -> bytes:
    """Every lane a road of one lane to the right of its reference line, those that leave the first in a junction."""
    roads, parts = ids(scene), []
    for n, identity in enumerate(roads):
        centre, left, _ = borders(scene, n)
        along = (centre[-1] - centre[0])[:2]
        length, heading = float(np.hypot(*along)), float(np.arctan2(along[1], along[0]))
        view = drive.geometry(length=length, x=float(left[0, 0]), y=float(left[0, 1]), hdg=heading)
        width = drive.width(float(scene.road.width[scene.road.lane_points(n)][0]))
        link = '<successor elementType="junction" elementId="5"/>' if n == 0 else ""
        mark = '<roadMark sOffset="0" type="broken" color="white" width="0.1"/>' if n == 0 else ""
        rest = ""
        if n:
            link = f'<predecessor elementType="road" elementId="{roads[0]}" contactPoint="end"/>'
        else:
            corners = "".join(
                f'<cornerRoad s="{x - left[0, 0]}" t="{y - left[0, 1]}" dz="0" height="0"/>'
                for x, y, _ in world_points(scene, 5).tolist()
            )
            rest += f'<objects><object id="23" type="crosswalk" s="0" t="0" zOffset="0" hdg="0"><outline>{corners}'
            rest += "</outline></object></objects>"
        signals = ""
        for is_light, kind in ((True, 'dynamic="yes" type="1000001"'), (False, 'dynamic="no" type="206"')):
            owner, line = controlled(scene, is_light)
            if owner == n:
                s = float((line.mean(axis=0) - centre[0])[:2] @ along) / length
                signals += f'<signal s="{s!r}" t="-2" id="{900 + n}" orientation="+" zOffset="0" {kind} subtype="-1" '
                signals += 'country="DE" value="-1"/>'
        parts.append(
            drive.road(
                str(identity),
                drive.section({-1: drive.lane(-1, width, link='<predecessor id="-1"/>' if n else "")}, centre=mark),
                view=view,
                length=length,
                junction="5" if n else "-1",
                link=link,
                types=f'<type s="0" type="town"><speed max="{scene.road.speed_limit[n]!s}" unit="m/s"/></type>',
                profile=f'<elevationProfile><elevation s="0" a="{centre[0, 2]}" b="0" c="0" d="0"/></elevationProfile>',
                rest=rest + (f"<signals>{signals}</signals>" if signals else ""),
            )
        )
    connections = "".join(
        f'<connection id="{n}" incomingRoad="{roads[0]}" connectingRoad="{roads[n]}" contactPoint="start">'
        '<laneLink from="-1" to="-1"/></connection>'
        for n in scene.road.exits(0).tolist()
    )
    parts.append(f'<junction id="5" name="">{connections}</junction>')
    return drive.document(*parts)


def lanelet2_osm(scene: Scene) -> bytes:
    """Every lane a lanelet with borders of its own, which share their end nodes."""
    osm = Map(ele=float(world_points(scene, 0)[0, 2]))
    signs = {}
    for is_light in (True, False):
        owner, line = controlled(scene, is_light)
        signs[owner] = (osm.way(*map(tuple, line[:, :2].tolist()), type="stop_line"), is_light)
    post = osm.way((80, 5), (80, 6), type="traffic_sign", subtype="de206")
    for n, identity in enumerate(ids(scene)):
        _, left, right = borders(scene, n)
        start, end = ((50.0, 1.85), (50.0, -1.85))
        left_ends, right_ends = [tuple(p) for p in left[:, :2].tolist()], [tuple(p) for p in right[:, :2].tolist()]
        if identity == 13:  # its borders begin in the nodes in which those of the first lane end
            left_ends[0], right_ends[0] = start, end
        tags = {"type": "line_thin", "subtype": "dashed"} if n == 0 else {"type": "virtual"}
        rules = []
        if n in signs:
            way, is_light = signs[n]
            rules = [300 + n]
            members = [("way", way, "ref_line")]
            if is_light:
                osm.rule(300 + n, "traffic_light", members)
            else:
                osm.rule(300 + n, "all_way_stop", [*members, ("way", post, "refers"), ("relation", identity, "yield")])
        osm.lanelet(
            identity,
            osm.way(*left_ends, **tags),
            osm.way(*right_ends, type="virtual" if n else "curbstone"),
            rules,
            speed_limit=f"{scene.road.speed_limit[n]!s} m/s",
        )
    walk = [tuple(point) for point in world_points(scene, 5)[:, :2].tolist()]
    osm.lanelet(23, osm.way(walk[0], walk[3]), osm.way(walk[1], walk[2]), subtype="crosswalk")
    return osm.text


def sumo_net(scene: Scene) -> bytes:
    """Every lane an edge; the light's programme is what it showed."""
    parts, roads = [], ids(scene)
    for n, identity in enumerate(roads):
        shape = " ".join(f"{x!r},{y!r},{z!r}" for x, y, z in world_points(scene, n).tolist())
        width = f'width="{scene.road.width[scene.road.lane_points(n)][0]!s}"'
        parts.append(
            edge(str(identity), lane(f"{identity}_0", 0, shape, width, speed=float(scene.road.speed_limit[n])))
        )
    phases = "".join(
        f'<phase duration="{rows * scene.meta.dt:.3f}" state="{_LETTERS[value]}"/>' for rows, value in programme(scene)
    )
    parts.append(logic("j", phases))
    light, _ = controlled(scene, True)
    stop, _ = controlled(scene, False)
    for n in range(len(roads)):
        for other in scene.road.exits(n).tolist():
            more = {"tl": "j", "linkIndex": "0"} if other == light else {}
            way = "s" if other == stop else "M"
            parts.append(connection(str(roads[n]), str(roads[other]), dir="s", state=way, **more))
    return net(*parts)
