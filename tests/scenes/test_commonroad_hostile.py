"""CommonRoad files that are cut, flipped, hostile or read elsewhere (R3-R6, R9, F9-F16): an error or the same scene."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys

import pytest
from commonroad_files import LIGHT, SMALL_2018, SMALL_2020, driven, dynamic, file_2018, file_2020, lanelet, state

from skidpad.errors import FormatError
from skidpad.scenes.formats import read_scene
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.scene import Scene

SMALL = {"2018b": SMALL_2018.encode(), "2020a": SMALL_2020.encode()}
FLIPS = (0x01, 0x10, 0x80)
NUMBER = re.compile(r"(?<=[>\"])-?[0-9]+(?:\.[0-9]+)?(?=[<\"])")


def read(data: bytes, limits: Limits | None = None) -> Scene:
    """The scene; `read_scene` itself refuses one that does not pass check_scene."""
    return read_scene(data, name="small.xml", limits=limits)


def read_or_refuse(data: bytes) -> Scene | None:
    """The scene, or None where a FormatError naming the file is raised; anything else is a defect of ours."""
    try:
        return read(data)
    except FormatError as error:
        if "small.xml" not in str(error):
            raise
        return None


def check_cuts(version: str, cuts: list[int]) -> None:
    data = SMALL[version]
    whole = read(data)
    for cut in cuts:
        scene = read_or_refuse(data[:cut])
        assert scene is None or (scene.digest == whole.digest and data[cut:].isspace()), f"cut at byte {cut}"


@pytest.mark.parametrize("version", sorted(SMALL))
def test_cut_at_sampled_bytes(version: str) -> None:
    """R6, F9: a cut file is refused with its line, never read as a smaller scene; the last bytes are all tried."""
    size = len(SMALL[version])
    assert size <= 4096
    check_cuts(version, sorted({*random.Random(6).sample(range(size), 250), *range(size - 40, size)}))


@pytest.mark.slow
@pytest.mark.parametrize("version", sorted(SMALL))
def test_cut_at_every_byte(version: str) -> None:
    """R6 in full."""
    check_cuts(version, list(range(len(SMALL[version]))))


@pytest.mark.parametrize("version", sorted(SMALL))
def test_flipped_bytes_sampled(version: str) -> None:
    """R6: no checksum protects XML, so a flipped byte is an error or a scene that passes check_scene, never a crash."""
    data = SMALL[version]
    for position in sorted(random.Random(7).sample(range(len(data)), 120)):
        for flip in FLIPS:
            read_or_refuse(data[:position] + bytes([data[position] ^ flip]) + data[position + 1 :])


@pytest.mark.slow
@pytest.mark.parametrize("version", sorted(SMALL))
def test_flipped_bytes_all(version: str) -> None:
    """R6 in full."""
    data = SMALL[version]
    for position in range(len(data)):
        for flip in FLIPS:
            read_or_refuse(data[:position] + bytes([data[position] ^ flip]) + data[position + 1 :])


@pytest.mark.parametrize("version", sorted(SMALL))
@pytest.mark.parametrize("bad", ["NaN", "1e308", "1,5", ""])
def test_bad_numbers_in_every_numeric_field(version: str, bad: str) -> None:
    """R5: every number of the file is replaced in turn; what is no number at all is always refused, save free text."""
    text = SMALL[version].decode()
    fields = list(NUMBER.finditer(text))
    assert len(fields) > 60
    for field in fields:
        broken = (text[: field.start()] + bad + text[field.end() :]).encode()
        scene = read_or_refuse(broken)
        before = text[: field.start()]
        is_free_text = before.endswith(("<additionalValue>", 'version="', 'date="', "<trafficSignID>"))
        if bad in ("1,5", "") and not is_free_text:
            assert scene is None, text[field.start() - 40 : field.end() + 20]


@pytest.mark.parametrize("bad", ["NaN", "-inf", "1e308", "1e8"])
def test_bad_geometry_is_an_error_with_its_place(bad: str) -> None:
    """R5: unlike in a track, a vertex that is nowhere cannot be left out: the road would be another one."""
    with pytest.raises(FormatError, match=r"small\.xml"):
        read(file_2018(lanelet(1, 0, 50, 0).replace("<x>50</x>", f"<x>{bad}</x>", 1)))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"\x00" * 100, "small.xml"),
        (b'<OpenDrive commonRoad="<commonRoad"/>', "small.xml"),
        (b"<other><commonRoad/></other>", "expected <commonRoad>"),
        (b'<!DOCTYPE commonRoad [<!ENTITY a "b">]><commonRoad/>', "DTD in XML is refused"),
        (b"<commonRoad>" + b"<a>" * 100_000, "xml_depth is 65"),
        (b'<commonRoad x="' + b"y" * 70_000 + b'"/>', "xml_attribute_bytes"),
        (b"<commonRoad/>", "attribute 'commonRoadVersion' is missing"),
        (b'<commonRoad commonRoadVersion="2017a"/>', "expected 2018b or 2020a"),
        (b'<commonRoad commonRoadVersion="2020a"/>', "attribute 'timeStepSize' is missing"),
        (b'<commonRoad commonRoadVersion="2020a" timeStepSize="0"/>', "expected 0.001 to 10 s"),
        (b'<commonRoad commonRoadVersion="2020a" timeStepSize="-0.1"/>', "expected 0.001 to 10 s"),
        (b'<commonRoad commonRoadVersion="2020a" timeStepSize="0.1"/>', "small.xml"),
        (file_2020('<lanelet id="1"/>'), "exactly one <leftBound>, found 0"),
        (
            file_2020(lanelet(1, 0, 50, 0).replace("<point><x>50</x><y>2.0</y></point>", "")),
            "1 points, expected at least 2",
        ),
        (file_2020(lanelet(1, 0, 50, 0).replace('id="1"', 'id="one"')), "expected an integer"),
        (
            file_2020(lanelet(1, 0, 50, 0, "<stopLine><point><x>1</x><y>2</y></point></stopLine>")),
            "1 points, expected 2",
        ),
        (file_2020(lanelet(1, 0, 50, 0, "<successor/>")), "attribute 'ref' is missing"),
        (file_2020(lanelet(1, 0, 50, 0), dynamic(7, "car", driven(-3, 2))), "expected 0 or more"),
        (file_2020(lanelet(1, 0, 50, 0), dynamic(7, "car", driven(10**9, 1))), "rows"),
        (file_2020(lanelet(1, 0, 50, 0), dynamic(7, "car", "")), "exactly one <initialState>"),
        (file_2020(lanelet(1, 0, 50, 0), dynamic(7, "car", driven(0, 2), "<shape/>")), "expected a rectangle"),
        (file_2020(lanelet(1, 0, 50, 0), LIGHT.replace("<duration>7", "<duration>-7")), "expected 0 or more"),
        (file_2020(lanelet(1, 0, 50, 0), LIGHT.replace(">true<", ">perhaps<")), "expected true or false"),
        (
            file_2018(lanelet(1, 0, 50, 0), '<obstacle id="7"><role>extra</role><type>car</type></obstacle>'),
            "expected dynamic or static",
        ),
    ],
)
def test_broken_files_are_refused_in_words(data: bytes, says: str) -> None:
    """F9, F15: each message says what was expected; none is an IndexError of ours."""
    with pytest.raises(FormatError, match=re.escape(says)):
        read(data)


def test_limits_are_asked_before_arrays_are_made() -> None:
    """R3: a time step of 19,999 in 300 bytes is legal; rows times tracks, lanes and phases are counted first."""
    late = dynamic(7, "car", driven(19_999, 1))
    assert read(file_2020(lanelet(1, 0, 50, 0), late)).meta.steps == 20_000
    many = "".join(dynamic(number, "car", driven(19_999, 1)) for number in range(3))
    with pytest.raises(FormatError, match="track rows is"):
        read(file_2020(lanelet(1, 0, 50, 0), many), Limits(track_rows=50_000))
    with pytest.raises(FormatError, match="lanes is 2, the limit is 1"):
        read(file_2020(lanelet(1, 0, 50, 0), lanelet(2, 50, 90, 0)), Limits(lanes=1))
    with pytest.raises(FormatError, match="tracks is 2, the limit is 1"):
        read(file_2020(lanelet(1, 0, 50, 0), many), Limits(tracks=1))
    reference = '<trafficLightRef ref="50"/>'
    with pytest.raises(FormatError, match="program phases is 4, the limit is 3"):
        read(file_2020(lanelet(1, 0, 50, 0, reference), LIGHT), Limits(program_phases=3))
    with pytest.raises(FormatError, match="track rows is 20000"):
        read(file_2020(lanelet(1, 0, 50, 0, reference), LIGHT, late), Limits(track_rows=19_999))


def test_huge_cycle_does_not_become_a_huge_array() -> None:
    """A light may stay red for 10^17 steps: the cycle is never counted out."""
    light = LIGHT.replace("<duration>7", "<duration>99999999999999999")
    scene = read(file_2020(lanelet(1, 0, 50, 0, '<trafficLightRef ref="50"/>'), light))
    assert scene.signals.state.shape == (1, 1)


def test_hostile_names_stay_names() -> None:
    """F16: markup, newlines and slashes in an id are data; a benchmark without an id is called after its file."""
    data = SMALL_2018.replace('benchmarkID="TST_Small-1_1_T-1"', 'benchmarkID="../&lt;b&gt;&#10;x"')
    assert read(data.encode()).meta.scene_id == "../<b>\nx"
    nameless = SMALL_2018.replace('benchmarkID="TST_Small-1_1_T-1"', 'benchmarkID=""')
    assert read(nameless.encode()).meta.scene_id == "small"


def test_map_without_anything_and_tracks_without_a_map() -> None:
    """F17: no agent is a scene; no lane and no track is none."""
    assert read(file_2020(lanelet(1, 0, 50, 0))).tracks.count == 0
    assert read(file_2020(dynamic(7, "car", driven(0, 3)))).road.lane_count == 0
    with pytest.raises(FormatError):
        read(file_2020())


def test_zero_length_lanelet_is_dropped_and_counted() -> None:
    """F10: all vertices in one place, with a sign that stops there: dropped, and nothing divides by its length."""
    place = lanelet(2, 20, 20, 0, '<trafficLightRef ref="50"/>')
    scene = read(file_2020(lanelet(1, 0, 50, 0), place, LIGHT))
    assert scene.road.lane_count == 1
    assert any(kind.startswith("dropped_lane") for kind in scene.meta.loss)


def test_state_without_a_place_is_dropped_and_counted() -> None:
    """A trajectory state needs a position and an orientation; one without is lost, said, and the rest stays."""
    bare = "<state><time><exact>2</exact></time></state>"
    half = re.sub("<orientation>.*?</orientation>", "", state("state", 3, 12.0, 0.0))
    states = driven(0, 2).replace("</trajectory>", bare + half + "</trajectory>")
    scene = read(file_2020(lanelet(1, 0, 50, 0), dynamic(7, "car", states)))
    assert scene.tracks.valid.tolist() == [[True, True]]
    assert scene.meta.loss["dropped_state_without_position"].count == 1
    assert scene.meta.loss["dropped_state_without_orientation"].count == 1


PROGRAM = """
import sys
from skidpad.scenes.formats import read_scene
print(read_scene(sys.stdin.buffer.read(), name="small.xml").digest)
"""


def test_same_digest_in_another_locale_zone_and_hash_seed() -> None:
    """R9: where decimal commas, another clock and another hash order rule, the same bytes give the same scene."""
    elsewhere = {"LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "77"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=SMALL["2020a"],
        capture_output=True,
        env={**os.environ, **elsewhere},
        check=True,
        timeout=120,
    )
    assert done.stdout.decode().strip() == read(SMALL["2020a"]).digest
