"""A writer of small Lanelet2 maps for the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Map:
    """Nodes, ways and relations as they are added; `text` is the file. Nodes stand in metres at height 7."""

    def __init__(self, *, local: bool = True, ele: float | None = 7.0) -> None:
        self._parts: list[str] = []
        self._nodes: dict[tuple[float, float], int] = {}
        self._local, self._ele = local, ele
        self._next = 1

    def node(self, x: float, y: float) -> int:
        """The node at a place; in degrees it is at 49 N 8.4 E and one degree is 111,000 m both ways."""
        if (x, y) not in self._nodes:
            self._nodes[x, y] = self._next
            tags = {"local_x": x, "local_y": y} if self._local else {}
            if self._ele is not None:
                tags["ele"] = self._ele
            place = (0.0, 0.0) if self._local else (49.0 + y / 111_000.0, 8.4 + x / 111_000.0)
            self._parts.append(f'<node id="{self._next}" lat="{place[0]!r}" lon="{place[1]!r}">{_tags(tags)}</node>')
            self._next += 1
        return self._nodes[x, y]

    def way(self, *places: tuple[float, float], **tags: str) -> int:
        nodes = [self.node(*place) for place in places]
        self._parts.append(
            f'<way id="{self._next}">' + "".join(f'<nd ref="{node}"/>' for node in nodes) + _tags(tags) + "</way>"
        )
        self._next += 1
        return self._next - 1

    def relation(self, identity: int, members: Sequence[tuple[str, int, str]], tags: Mapping[str, Any]) -> None:
        inner = "".join(f'<member type="{kind}" ref="{one}" role="{role}"/>' for kind, one, role in members)
        self._parts.append(f'<relation id="{identity}">{inner}{_tags(tags)}</relation>')

    def lanelet(self, identity: int, left: int, right: int, rules: Sequence[int] = (), **tags: str) -> None:
        members = [("way", left, "left"), ("way", right, "right")]
        members += [("relation", rule, "regulatory_element") for rule in rules]
        self.relation(identity, members, {"type": "lanelet", "subtype": "road", "one_way": "yes"} | tags)

    def rule(self, identity: int, subtype: str, members: Sequence[tuple[str, int, str]], **tags: str) -> None:
        self.relation(identity, members, {"type": "regulatory_element", "subtype": subtype} | tags)

    @property
    def text(self) -> bytes:
        return ('<?xml version="1.0"?>\n<osm version="0.6">\n' + "\n".join(self._parts) + "\n</osm>\n").encode()


def _tags(tags: Mapping[str, Any]) -> str:
    return "".join(f'<tag k="{key}" v="{value}"/>' for key, value in tags.items())


def small_map(*, local: bool = True, ele: float | None = 7.0) -> bytes:
    """Lanelet 11 that forks into 12 and 13, borders partly against the driving direction, a light before the fork, a
    stop sign at the end of 13, an oncoming lane 14 beside 11 and a crosswalk."""
    osm = Map(local=local, ele=ele)
    middle = osm.way((0, 1.85), (50, 1.85), type="line_thin", subtype="dashed")
    right = osm.way((50, -1.85), (0, -1.85), type="curbstone", subtype="high")
    far = osm.way((0, 5.55), (50, 5.55), type="road_border")
    line = osm.way((49, 1.85), (49, -1.85), type="stop_line")
    sign = osm.way((80, 5), (80, 6), type="traffic_sign", subtype="de206")
    osm.lanelet(11, middle, right, [31, 33], **{"participant:vehicle": "yes"})
    osm.lanelet(14, middle, far, speed_limit="30 mph")
    osm.lanelet(
        12, osm.way((50, 1.85), (100, 1.85), type="virtual"), osm.way((50, -1.85), (100, -1.85), type="virtual")
    )
    upper = osm.way((50, 1.85), (80, 11.85), type="virtual")
    lower = osm.way((80, 8.15), (50, -1.85), type="guard_rail")
    osm.lanelet(13, upper, lower, one_way="no")
    ends = osm.way((40, -2), (40, 2)), osm.way((44, -2), (44, 2))
    osm.lanelet(23, *ends, subtype="crosswalk")
    osm.rule(31, "traffic_light", [("way", line, "ref_line")])
    osm.rule(32, "all_way_stop", [("relation", 13, "yield"), ("way", sign, "refers")])
    osm.rule(33, "speed_limit", [], sign_type="de274-50")
    return osm.text
