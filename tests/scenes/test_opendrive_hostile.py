"""The OpenDRIVE reader on damaged and hostile files: an error that names the place, or a whole scene, never a crash."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from opendrive_files import document, geometry, lane, read, road, section, width

from skidpad.errors import FormatError
from skidpad.scenes.check import check_scene
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.scene import Scene


def small() -> bytes:
    """A file of less than 4 KiB with every kind of record the reader uses."""
    mark = '<roadMark sOffset="0" type="broken" color="white"/>'
    link = '<predecessor elementType="road" elementId="2" contactPoint="end"/>'
    link += '<successor elementType="junction" elementId="7"/>'
    sections = section(
        {1: lane(1), -1: lane(-1, width(3.5, 0.01) + mark, link='<predecessor id="-1"/>')}, centre=mark
    ) + section({-1: lane(-1, width(4, tag="border"), link='<predecessor id="-1"/>')}, s=60)
    view = geometry('<spiral curvStart="0" curvEnd="0.02"/>', 50) + geometry(
        '<arc curvature="0.001"/>', 50, 50, 48.7644, 8.1857, 0.5
    )
    signals = (
        '<signals><signal id="9" s="90" t="5" orientation="+" dynamic="yes" type="1000001"/>'
        '<signalReference id="9" s="5" t="0" orientation="+"><validity fromLane="-1" toLane="-1"/></signalReference>'
        "</signals>"
    )
    objects = (
        '<objects><object id="4" type="crosswalk" s="30" t="0" hdg="1.6" zOffset="0"><outline>'
        + "".join(f'<cornerLocal u="{u}" v="{v}" z="0"/>' for u, v in ((4, 1), (-4, 1), (-4, -1), (4, -1)))
        + "</outline></object></objects>"
    )
    curve = '<paramPoly3 aU="0" bU="40" cU="1" dU="1" aV="0" bV="0" cV="2" dV="1" pRange="normalized"/>'
    return document(
        road(
            sections=sections,
            view=view,
            link=link,
            types='<type s="0" type="town"><speed max="50" unit="km/h"/></type>',
            offset='<laneOffset s="0" a="0.5" b="0" c="0" d="0"/>',
            profile='<elevationProfile><elevation s="0" a="1" b="0.01" c="0" d="0"/></elevationProfile>',
            rest=objects + signals,
        ),
        road("2", section({-1: lane(-1)}), view=geometry(curve, 42.2, x=-42.0, y=-3.0), length=42.2),
        '<junction id="7"><connection id="0" incomingRoad="1" connectingRoad="2" contactPoint="start">'
        '<laneLink from="-1" to="-1"/></connection></junction>',
    )


def attempt(data: bytes) -> Scene | None:
    """The scene of a damaged file, or None where it is refused."""
    try:
        scene = read(data)
    except FormatError as refused:
        message = str(refused)
    else:
        assert [finding for finding in check_scene(scene) if finding.severity == "error"] == []
        return scene
    assert message.startswith("test.xodr"), f"an error without a place: {message}"
    return None


def test_the_small_file_is_read():
    """The tests below mean nothing if the undamaged file is refused or uses only part of the format."""
    data = small()
    assert len(data) <= 4096
    scene = read(data)
    assert scene.road.lane_count == 4
    assert scene.signals.count >= 1
    assert scene.meta.has_z
    assert {10, 20, 30} <= {int(kind) // 10 * 10 for kind in scene.road.element_type}


def test_cut_at_every_byte():
    """R6, F9: a cut file is refused with its line, or (cut inside trailing blanks) gives the identical scene."""
    data = small() + b"\n\n"
    whole = read(data)
    for size in range(1, len(data)):
        scene = attempt(data[:size])
        assert scene is None or scene.digest == whole.digest, f"cut at byte {size}: a partial scene"


def flipped(data: bytes, place: int, way: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= (0x01, 0x10, 0xFF)[way]
    return bytes(changed)


def test_flipped_bytes_sample():
    """R6: a flipped byte gives an error with a place, or a whole scene; 150 of the 3 x 3,000 flips, seeded."""
    data, choose = small(), random.Random(17)
    for _ in range(150):
        attempt(flipped(data, choose.randrange(len(data)), choose.randrange(3)))


@pytest.mark.slow
def test_flipped_bytes_all():
    """R6: every byte, flipped in three ways."""
    data = small()
    for place in range(len(data)):
        for way in range(3):
            attempt(flipped(data, place, way))


NUMBERS = re.compile(
    rb"\b(revMajor|revMinor|length|s|x|y|hdg|curvStart|curvEnd|curvature|[abcd][UV]?|sOffset|id|max|u|v|z|t|zOffset|from|to|"
    rb'fromLane|toLane)="(-?[0-9][^"]*)"'
)


@pytest.mark.parametrize(
    "value", [b"NaN", b"inf", b"1,5", b"-1e308", b"", b"1_0", b"0x10", pytest.param(b"1e308", marks=pytest.mark.slow)]
)
def test_no_number_is_taken_on_trust(value):
    """R5: NaN, infinity, a decimal comma, the largest numbers, nothing, and what only Python calls a number, at every
    numeric field. Ids of roads, signals and objects are text and may say anything."""
    data = small()
    refused = 0
    for match in NUMBERS.finditer(data):
        scene = attempt(data[: match.start(2)] + value + data[match.end(2) :])
        before = data[data.rindex(b"<", 0, match.start()) : match.start()]
        is_text = match[1] == b"id" and not before.startswith((b"<lane ", b"<predecessor", b"<successor"))
        unread = match[1] == b"t" and before.startswith((b"<signal", b"<signalReference"))
        refused += scene is None
        if not is_text and not unread and b"1e308" not in value:
            assert scene is None, f"{before.decode()}{match[1].decode()}={value.decode()} is taken for a number"
    assert refused > 20


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ('<arc curvature="1e6"/>', "expected a turn of 1000 rad"),
        ('<spiral curvStart="0" curvEnd="1e9"/>', "expected a turn of 1000 rad"),
        ('<poly3 a="1e300" b="0" c="0" d="0"/>', "coordinate m is 1e"),
        ('<paramPoly3 aU="0" bU="0" cU="0" dU="0" aV="0" bV="0" cV="0" dV="0"/>', "its curve has no length"),
        (
            '<paramPoly3 aU="1e300" bU="1e300" cU="1e300" dU="0" aV="0" bV="1e300" cV="0" dV="0"/>',
            "too large|no length",
        ),
    ],
)
def test_hostile_curves_are_refused_before_they_are_sampled(shape, message):
    """R3: a curvature of 1e6 would ask for millions of knots, and coefficients of 1e300 overflow on the way."""
    with pytest.raises(FormatError, match=message):
        read(document(road(view=geometry(shape))))


def test_points_are_counted_before_they_are_made():
    """R3: a width that oscillates by 1e9 m asks for a point every 5 cm; over 9,000 km that is refused, not tried."""
    wild = section({-1: lane(-1, width(3.0, 0.0, 1e9))})
    with pytest.raises(FormatError, match=r"road 1: map points is .*, the limit is 2e"):
        read(document(road(sections=wild, view=geometry(length=9e6), length=9e6)))
    with pytest.raises(FormatError, match="map points"):
        read(document(road()), Limits(map_points=3))


def test_thousand_short_sections_and_links_to_itself(shared: Path):
    """F13, R3: chains of dropped sections and roads that follow themselves end; every walk is bounded."""
    sections = "".join(section({-1: lane(-1, link='<successor id="-1"/>')}, s=50.0 + i * 1e-6) for i in range(1000))
    link = '<successor elementType="road" elementId="1" contactPoint="end"/>'
    link += '<predecessor elementType="road" elementId="1" contactPoint="end"/>'
    scene = read(document(road(sections=section({-1: lane(-1, link='<successor id="-1"/>')}) + sections, link=link)))
    assert scene.road.lane_count == 2
    assert scene.meta.loss["dropped_short_section"].count == 999


def test_coordinates_far_from_the_origin_keep_their_centimetres():
    """F11: recentring happens in float64, before anything becomes float32."""
    near, far = (read(document(road(view=geometry('<arc curvature="0.01"/>', x=x, y=x)))) for x in (0.0, 9e6))
    assert far.road.xyz == pytest.approx(near.road.xyz, abs=0.01)
    with pytest.raises(FormatError, match="coordinate m is 2e\\+07, the limit is 1e\\+07"):
        read(document(road(view=geometry(x=2e7))))


@pytest.mark.slow
def test_random_cuts_of_a_large_file(shared: Path):
    """R6: 1,000 random cuts of a real file, each an error with a line."""
    data = (shared / "data" / "opendrive_units" / "soderleden.xodr").read_bytes()
    choose = random.Random(5)
    for _ in range(1000):
        size = choose.randrange(1, len(data.rstrip()))
        assert attempt(data[:size]) is None
