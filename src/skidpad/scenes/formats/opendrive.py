"""Reader of OpenDRIVE 1.4 to 1.8 road maps (R17): an XML file of roads becomes a scene without traffic.

`opendrive_network` and `opendrive_planview` read the file into `opendrive_records`; `opendrive_strips` places each lane
in the plane on the mathematics of `opendrive_geometry`; `opendrive_lanes`, `opendrive_marks`, `opendrive_links` and
`opendrive_signals` turn strips into lanes, paint, the lane graph and stop lines. Road edges come from lane borders.
Not used, and counted: superelevation, crossfall, objects other than crosswalks, virtual junctions, and controllers that
name no phases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from skidpad.errors import FormatError, SettingsError, listed
from skidpad.scenes.build import LossReport, SceneBuilder
from skidpad.scenes.formats.opendrive_lanes import add_lanes
from skidpad.scenes.formats.opendrive_links import connect_lanes
from skidpad.scenes.formats.opendrive_network import read_network
from skidpad.scenes.formats.opendrive_records import Network
from skidpad.scenes.formats.opendrive_signals import add_crosswalks, add_signals
from skidpad.scenes.formats.opendrive_strips import Strips, cut_strips
from skidpad.scenes.formats.source import Limits, Source
from skidpad.scenes.formats.xml import parse_xml
from skidpad.scenes.scene import Scene

NAME = "opendrive"
OPTIONS: frozenset[str] = frozenset()

_ROOT = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>\s*)?(?:<!--.*?-->\s*)*<OpenDRIVE[\s>]", re.DOTALL)


def sniff(head: bytes, name: str) -> float:
    """1 when the first element is <OpenDRIVE>, else 0."""
    return 1.0 if _ROOT.match(head) else 0.0


def read(source: Source, limits: Limits, options: Mapping[str, Any]) -> Scene:
    """The scene of one map. Labels: roads, junctions, road_km, opendrive (version), geo_reference.

    Raises FormatError, with file and line, for a file that is not OpenDRIVE 1.x, is malformed, holds no lane, or is
    above a limit; SettingsError for an option it does not know.
    """
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        raise SettingsError(f"{source.name}: the OpenDRIVE reader knows no option {listed(unknown)}. Remove it.")
    try:
        # Hostile coefficients overflow on the way to a check that refuses what is not finite.
        with np.errstate(all="ignore"):
            return _scene(source, limits)
    except FormatError as error:
        if str(error).startswith(source.name):
            raise
        raise FormatError(f"{source.name}: {error}") from error


def _scene(source: Source, limits: Limits) -> Scene:
    loss = LossReport()
    network = read_network(parse_xml(source.data, source.name, limits), loss, limits)
    strips = cut_strips(network, loss, limits)
    if not strips.lanes:
        raise FormatError(f"{source.name}: no road has a lane with a width, expected at least one.")
    builder = SceneBuilder(source.stem, NAME, NAME, network.version, source.digest, loss=loss, limits=limits)
    add_lanes(network, strips, builder, loss)
    connect_lanes(network, strips, builder, loss)
    add_signals(network, strips, builder, loss)
    add_crosswalks(network.roads, builder, loss)
    return builder.finish(has_z=_has_z(strips), edges_from_borders=True, labels=_labels(network))


def _has_z(strips: Strips) -> bool:
    return any(bool(np.any(strip.centre[:, 2])) for strip in strips.lanes.values())


def _labels(network: Network) -> dict[str, Any]:
    labels: dict[str, Any] = {
        "roads": len(network.roads),
        "junctions": len(network.junctions),
        "road_km": round(sum(road.length for road in network.roads.values()) / 1000.0, 3),
        "opendrive": network.version,
    }
    if network.name:
        labels["name"] = network.name
    if network.geo_reference:
        labels["geo_reference"] = network.geo_reference
    return labels
