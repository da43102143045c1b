"""CommonRoad XML, versions 2018b and 2020a (R16): lanelet maps with recorded or simulated traffic.

This file reads the header and puts the parts together: the road is `commonroad_map.py`, obstacles and planning problems
are `commonroad_traffic.py`. What the scene model has no place for is counted, never dropped in silence.

Option `ego`: `none` (default), or `planning_problem`: the first planning problem becomes the SDC, a track of one row
with the goal of the problem.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skidpad.errors import FormatError, SettingsError
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats.commonroad_map import add_map, read_map
from skidpad.scenes.formats.commonroad_traffic import add_planning_problem, add_traffic, read_problems, read_traffic
from skidpad.scenes.formats.source import Limits, Source
from skidpad.scenes.formats.xml import Element, parse_xml, report_unread, shown
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import Scene

FORMAT = "commonroad"
VERSIONS = ("2018b", "2020a")
OPTIONS = frozenset({"ego"})
EGO_CHOICES = ("none", "planning_problem")
DT_RANGE_S = (0.001, 10.0)

# Names of the format that a scene has no place for; the loss report calls them ignored, not unknown.
_UNUSED = frozenset(
    {
        # states beyond pose and speed
        "acceleration",
        "accelerationY",
        "jerk",
        "positionZ",
        "rollAngle",
        "rollRate",
        "pitchRate",
        "slipAngle",
        "steeringAngle",
        "steeringAngleSpeed",
        "velocityY",
        "velocityZ",
        "yawRate",
        "initialSignalState",
        "signalSeries",
        # signs and lights stand beside the road; what they mean is tied to lanelets
        "trafficSign/position",
        "trafficSign/virtual",
        "trafficLight/position",
        "stopLine/lineMarking",
        "intersection/crossing",
        "incoming/isLeftOf",
        "incoming@id",
        # header
        "geoTransformation/additionalTransformation",
        "location/environment",
        # obstacles that are no part of the traffic
        "environmentObstacle",
        "phantomObstacle",
    }
)


def sniff(head: bytes, name: str) -> float:
    """How sure this reader is that a file beginning with `head` is its own: 0 to 1."""
    return 1.0 if b"<commonRoad" in head else 0.0


def read(source: Source, limits: Limits, options: Mapping[str, Any]) -> Scene:
    """The scene of a CommonRoad file.

    Raises FormatError where the file breaks its format or a limit, SettingsError for an unknown value of `ego`.
    """
    ego = options.get("ego", "none")
    if ego not in EGO_CHOICES:
        raise SettingsError(f"option ego is {ego!r}, expected one of {', '.join(EGO_CHOICES)}.")
    root = parse_xml(source.data, source.name, limits)
    version, dt_us = _version(root), _dt_us(root)
    loss = LossReport()
    scene_id = (root.get("benchmarkID") or "").strip() or source.stem
    labels = _labels(root)

    road = read_map(root, loss, limits)
    logs = read_traffic(root, loss, limits)
    problems = read_problems(root, loss)
    rows = max([1, *(log.last + 1 for log in logs)])
    if ego == "planning_problem":
        if not problems:
            raise FormatError(f"{source.name}: no planning problem, which ego = 'planning_problem' asks for.")
        limits.check("rows", problems[0].step + 1, source.name)
        rows = max(rows, problems[0].step + 1)

    builder = SceneBuilder(scene_id, "CommonRoad", FORMAT, version, source.digest, dt_us, loss=loss, limits=limits)
    add_map(road, builder, rows, dt_us, limits)
    add_traffic(logs, builder, rows, dt_us)
    sdc = add_planning_problem(problems[0], road, logs, builder, rows) if ego == "planning_problem" else -1
    labels["planning_problems"] = [problem.label for problem in problems]
    report_unread(root, loss.count, _UNUSED)
    return builder.finish(
        has_z=road.has_z,
        edges_from_borders=True,
        sdc=sdc,
        labels=labels,
        attribution=_attribution(labels),
    )


def _version(root: Element) -> str:
    if root.tag != "commonRoad":
        raise root.error("is the outermost element, expected <commonRoad>. Is this a CommonRoad file?")
    version = root.require("commonRoadVersion")
    if version not in VERSIONS:
        raise root.error(
            f"commonRoadVersion is {shown(version)!r}, expected {' or '.join(VERSIONS)}. "
            "Convert the file with commonroad-io."
        )
    return version


def _dt_us(root: Element) -> int:
    seconds = root.require_float("timeStepSize")
    low, high = DT_RANGE_S
    if not low <= seconds <= high:
        raise root.error(f"timeStepSize is {seconds:g} s, expected {low:g} to {high:g} s")
    return round(seconds * 1e6)


def _labels(root: Element) -> dict[str, Any]:
    """Header, tags and location as plain values."""
    labels: dict[str, Any] = {}
    for name in ("author", "affiliation", "source", "date"):
        value = (root.get(name) or "").strip()
        if value:
            labels[name] = value
    tags = (root.get("tags") or "").split()  # 2018b
    for holder in root.all("scenarioTags"):  # 2020a
        for tag in holder.children:
            tag.taken = True
            tags.append(tag.tag)
    labels["tags"] = sorted(set(tags))
    location = root.first("location")
    if location is not None:
        labels["location"] = _location(location)
    return labels


def _location(location: Element) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("geoNameId", "gpsLatitude", "gpsLongitude"):
        element = location.first(name)
        if element is not None:
            found[name] = element.text_int() if name == "geoNameId" else element.text_float()
    transformation = location.first("geoTransformation")
    reference = None if transformation is None else transformation.first("geoReference")
    if reference is not None:
        found["geoReference"] = reference.text
    return found


def _attribution(labels: Mapping[str, Any]) -> str:
    people = ", ".join(labels[name] for name in ("author", "affiliation") if name in labels)
    parts = [f"CommonRoad scenario by {people}" if people else "", labels.get("source", "")]
    return "; ".join(part for part in parts if part)
