"""Nodes, ways and relations of an OSM file (R22), and where its nodes lie in metres."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.formats.projection import transverse_mercator
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.formats.xml import Element, parse_float, shown
from skidpad.scenes.loss import LossReport

F64 = NDArray[np.float64]

_ID = re.compile(r"-?[0-9]{1,19}")

Oriented = tuple[int, bool]
"""A way, and whether it is run along in the order of its nodes."""


@dataclass(eq=False)
class Way:
    """Ids of its nodes in order, and its tags."""

    nodes: list[int]
    tags: dict[str, str]


@dataclass(eq=False)
class Relation:
    """Members as (kind, id, role), and tags; `where` is for messages."""

    id: int
    where: str
    members: list[tuple[str, int, str]]
    tags: dict[str, str]

    @property
    def kind(self) -> str:
        return self.tags.get("type", "")

    @property
    def subtype(self) -> str:
        return self.tags.get("subtype", "")


@dataclass(eq=False)
class Osm:
    """A file. `place` is (3,) f64 [m] of each node, once `place_nodes` has been called."""

    degrees: dict[int, tuple[float, float]] = field(default_factory=dict)
    tags: dict[int, dict[str, str]] = field(default_factory=dict)
    ways: dict[int, Way] = field(default_factory=dict)
    relations: dict[int, Relation] = field(default_factory=dict)
    place: dict[int, F64] = field(default_factory=dict)

    def line(self, way: Oriented) -> F64:
        """(n, 3) f64 [m]: a way in one of its directions."""
        points = np.array([self.place[node] for node in self.ways[way[0]].nodes])
        return points if way[1] else points[::-1].copy()


class Lane(NamedTuple):
    """A lanelet in one direction: its borders as they are driven along. `ahead` is False for the second lane of a
    lanelet that is not one-way. `start` and `end` are the nodes (left, right) there, filled in by `with_nodes`.
    """

    relation: int
    ahead: bool
    left: Oriented
    right: Oriented
    start: tuple[int, int] = (-1, -1)
    end: tuple[int, int] = (-1, -1)

    @property
    def key(self) -> tuple[int, bool]:
        return self.relation, self.ahead

    def with_nodes(self, osm: Osm) -> Lane:
        """The lane with the nodes of its ends."""
        ends = []
        for way, ahead in (self.left, self.right):
            nodes = osm.ways[way].nodes
            ends.append((nodes[0], nodes[-1]) if ahead else (nodes[-1], nodes[0]))
        return self._replace(start=(ends[0][0], ends[1][0]), end=(ends[0][1], ends[1][1]))

    def reversed(self) -> Lane:
        """The same ground driven the other way."""
        left, right = (self.right[0], not self.right[1]), (self.left[0], not self.left[1])
        return Lane(self.relation, not self.ahead, left, right, self.end[::-1], self.start[::-1])


def read_osm(root: Element, loss: LossReport, limits: Limits) -> Osm:
    """Everything in a file; of things with one id the first wins, and nodes that are not there are left out."""
    osm = Osm()
    if root.tag != "osm":
        raise root.error("is the outermost element, expected <osm>")
    for element in _present(root, "node", loss):
        identity = _id(element, "id")
        if identity in osm.degrees:
            loss.count("dropped_doubled_id", f"{element.at}: node {identity}")
            element.skip()
            continue
        limits.check("map_points", len(osm.degrees) + 1, element.place)
        osm.degrees[identity] = element.require_float("lat"), element.require_float("lon")
        osm.tags[identity] = _tags(element)
    for element in _present(root, "way", loss):
        identity = _id(element, "id")
        references = [_id(member, "ref") for member in element.all("nd")]
        tags = _tags(element)
        if identity in osm.ways:
            loss.count("dropped_doubled_id", f"{element.at}: way {identity}")
            continue
        limits.check("elements", len(osm.ways) + 1, element.place)
        known = [node for node in references if node in osm.degrees]
        loss.count("dropped_dangling_node", f"{element.at}: of way {identity}", len(references) - len(known))
        osm.ways[identity] = Way(known, tags)
    for element in _present(root, "relation", loss):
        identity = _id(element, "id")
        members = [(one.require("type"), _id(one, "ref"), one.require("role")) for one in element.all("member")]
        tags = _tags(element)
        if identity in osm.relations:
            raise element.error(f"relation {identity} is there twice, expected unique ids")
        osm.relations[identity] = Relation(identity, f"{element.at}: relation {identity}", members, tags)
    return osm


def _present(root: Element, tag: str, loss: LossReport) -> list[Element]:
    """The elements of a kind, without those that an editor has marked as deleted."""
    kept = []
    for element in root.all(tag):
        if element.get("action") == "delete" or element.get("visible") == "false":
            loss.count("dropped_deleted", f"{element.at}: {tag}")
            element.skip()
        else:
            kept.append(element)
    return kept


def _id(element: Element, name: str) -> int:
    """An id of 64 bits: some are made of random bits."""
    text = element.require(name)
    if not _ID.fullmatch(text) or not -(1 << 63) <= int(text) < 1 << 63:
        raise element.error(f"attribute {name!r} is {shown(text)!r}, expected an integer of 64 bits")
    return int(text)


def _tags(element: Element) -> dict[str, str]:
    return {tag.require("k"): tag.require("v") for tag in element.all("tag")}


def place_nodes(osm: Osm, loss: LossReport) -> bool:
    """Put every node into metres; whether all have heights, without which none counts.

    In the file's own metres where all nodes have them, else on a transverse Mercator map around their mean.
    """
    ids = list(osm.degrees)
    if not ids:
        return False

    def numbers(key: str) -> F64:
        found = [parse_float(osm.tags[node].get(key, "")) for node in ids]
        return np.array([np.nan if one is None else one for one in found])

    x, y, z = numbers("local_x"), numbers("local_y"), numbers("ele")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        latitude, longitude = np.array([osm.degrees[node] for node in ids]).T
        middle = float(longitude.mean())
        x, y = transverse_mercator(latitude, longitude, middle)
        y = y - transverse_mercator(np.array([latitude.mean()]), np.array([middle]), middle)[1]
    has_z = bool(np.isfinite(z).all() and z.any())
    if not has_z:
        loss.count("ignored_ele", "heights of some nodes only, or all of them 0", int(np.isfinite(z).sum()))
        z = np.zeros(len(ids))
    osm.place = dict(zip(ids, np.stack([x, y, z], axis=1), strict=True))
    return has_z
