"""Small OpenDRIVE documents for tests, put together from readable pieces."""

from __future__ import annotations

from skidpad.scenes.formats import opendrive
from skidpad.scenes.formats.source import Limits, Source, read_source
from skidpad.scenes.scene import Scene

LINE = "<line/>"


def geometry(
    shape: str = LINE, length: float = 100.0, s: float = 0.0, x: float = 0.0, y: float = 0.0, hdg: float = 0.0
) -> str:
    return f'<geometry s="{s}" x="{x}" y="{y}" hdg="{hdg}" length="{length}">{shape}</geometry>'


def width(a: float, b: float = 0.0, c: float = 0.0, d: float = 0.0, at: float = 0.0, tag: str = "width") -> str:
    return f'<{tag} sOffset="{at}" a="{a}" b="{b}" c="{c}" d="{d}"/>'


def lane(id: int, body: str | None = None, type: str = "driving", link: str = "") -> str:
    return f'<lane id="{id}" type="{type}"><link>{link}</link>{width(3.5) if body is None else body}</lane>'


def section(lanes: dict[int, str], s: float = 0.0, centre: str = "") -> str:
    """One section of lanes by id, each from `lane`."""
    left = "".join(lanes[id] for id in sorted(lanes, reverse=True) if id > 0)
    right = "".join(lanes[id] for id in sorted(lanes, reverse=True) if id < 0)
    return (
        f'<laneSection s="{s}">'
        + (f"<left>{left}</left>" if left else "")
        + f'<center><lane id="0" type="none">{centre}</lane></center>'
        + (f"<right>{right}</right>" if right else "")
        + "</laneSection>"
    )


def road(
    id: str = "1",
    sections: str | None = None,
    *,
    view: str | None = None,
    length: float = 100.0,
    junction: str = "-1",
    rule: str = "",
    link: str = "",
    types: str = "",
    offset: str = "",
    profile: str = "",
    rest: str = "",
) -> str:
    if sections is None:
        sections = section({1: lane(1), -1: lane(-1)})
    return (
        f'<road id="{id}" length="{length}" junction="{junction}"{f" rule={chr(34)}{rule}{chr(34)}" if rule else ""}>'
        f"<link>{link}</link>{types}<planView>{view if view is not None else geometry(length=length)}</planView>"
        f"{profile}<lanes>{offset}{sections}</lanes>{rest}</road>"
    )


def document(*parts: str, minor: int = 7) -> bytes:
    head = f'<?xml version="1.0"?>\n<OpenDRIVE><header revMajor="1" revMinor="{minor}"/>'
    return (head + "\n".join(parts) + "</OpenDRIVE>").encode()


def read(data: bytes, limits: Limits | None = None) -> Scene:
    limits = limits or Limits()
    source: Source = read_source(data, limits, name="test.xodr")
    return opendrive.read(source, limits, {})


def lane_of(scene: Scene, road: int, section: int, lane: int) -> int:
    """Number of the scene lane made of a lane of the file."""
    wanted = (road * 1000 + section) * 1000 + lane + 500
    ids = scene.road.source_id[scene.road.lane_element]
    (found,) = (ids == wanted).nonzero()[0].tolist()
    return int(found)


def points_of(scene: Scene, number: int):  # type: ignore[no-untyped-def]
    """World points (n, 3) f64 [m] of a scene lane."""
    return scene.road.xyz[scene.road.lane_points(number)].astype("f8") + scene.meta.origin
