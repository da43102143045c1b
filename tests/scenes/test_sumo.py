"""SUMO networks (R23): lanes and their order, chains of internal lanes, programmes by letter, and the two samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sumo_files import NET, connection, edge, lane, logic, net

from skidpad.errors import FormatError
from skidpad.scenes.archive import load_scene
from skidpad.scenes.formats import read_scene
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.library import library_scenes
from skidpad.scenes.scene import (
    EDGE_BOUNDARY,
    LANE_BICYCLE,
    LANE_BUS,
    LANE_OTHER,
    LANE_STREET,
    LANE_WALKWAY,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    SIGNAL_YIELD,
    STATE_GREEN,
    STATE_OFF,
    STATE_RED,
    STATE_YELLOW,
)


def test_a_network_comes_back() -> None:
    """R23: shapes less the offset, index 0 on the right, links over chains of internal lanes, a light and a yield at
    the end of the lanes that come in, edges around it all."""
    scene = read_scene(NET, name="town.net.xml")
    road = scene.road
    assert scene.meta.scene_id == "town"
    assert road.lane_count == 6  # a_0 a_1 b_0 and three internal ones
    starts = road.xyz[road.element_points[:6], :2] + scene.meta.origin[:2]
    np.testing.assert_allclose(starts, [(0, 0), (0, 3.2), (70, 0), (50, 0), (60, 0), (50, 3.2)], atol=1e-4)
    assert [road.exits(n).tolist() for n in range(6)] == [[3], [5], [], [4], [2], [2]]
    assert road.left_lane.tolist() == [1]
    assert road.right_lane.tolist() == [0]
    np.testing.assert_allclose(road.speed_limit[:3], (13.9, 13.9, 8.3), rtol=1e-6)
    np.testing.assert_allclose(road.width[:4], 3.2, rtol=1e-6)
    assert road.lane_junction.tolist() == [-1, -1, -1, 0, 0, 0]
    signals = scene.signals
    assert signals.kind.tolist() == [SIGNAL_LIGHT, SIGNAL_YIELD]
    assert signals.lane.tolist() == [3, 5]
    np.testing.assert_allclose(signals.line[0].mean(axis=0)[:2] + scene.meta.origin[:2], (50, 0), atol=1e-4)
    assert signals.cycle_offset.tolist() == [5.0, 0.0]
    assert signals.program_duration.tolist() == [30.0, 3.0, 27.0]
    assert signals.program_state.tolist() == [STATE_GREEN, STATE_YELLOW, STATE_RED]
    assert (road.element_type == EDGE_BOUNDARY).any()
    assert not scene.meta.has_z


def test_left_hand_counts_from_the_left() -> None:
    """R23: where one drives on the left, lane 0 is the leftmost."""
    two = edge("a", lane("a_0", 0, "0,0 50,0"), lane("a_1", 1, "0,3.2 50,3.2"))
    assert read_scene(net(two)).road.left_lane.tolist() == [1]
    assert read_scene(net(two, lefthand="true")).road.left_lane.tolist() == [0]


@pytest.mark.parametrize(
    ("uses", "kind", "drivable"),
    [
        ("", LANE_STREET, True),
        ('allow="all"', LANE_STREET, True),
        ('allow="bus passenger"', LANE_STREET, True),
        ('allow="bus taxi"', LANE_BUS, False),
        ('disallow="passenger bus"', LANE_BICYCLE, False),
        ('allow="pedestrian"', LANE_WALKWAY, False),
        ('allow="rail"', LANE_OTHER, False),
        ('disallow="all"', LANE_OTHER, False),
    ],
)
def test_who_may_drive(uses: str, kind: int, drivable: bool) -> None:
    """R23: a lane is drivable where passenger cars are allowed."""
    road = read_scene(net(edge("a", lane("a_0", 0, "0,0 50,0", uses)))).road
    assert (road.element_type[0], road.drivable[0]) == (kind, drivable)


def test_letters_and_states_of_connections() -> None:
    """R23: every letter, and the rules of way that need no light."""
    parts = [edge("a", lane("a_0", 0, "0,0 50,0")), edge("b", lane("b_0", 0, "50,0 99,0"))]
    light = connection("a", "b", tl="t", linkIndex="1")
    phases = "".join(f'<phase duration="1" state="r{letter}"/>' for letter in "ruyYGgoOsx")
    scene = read_scene(net(*parts, logic("t", phases), light))
    states = scene.signals.program_state.tolist()
    assert states == [STATE_RED, STATE_YELLOW, STATE_GREEN, STATE_OFF, STATE_YELLOW, 0]
    assert scene.signals.program_duration.tolist() == [2, 2, 2, 2, 1, 1]
    assert (scene.meta.loss["assumed_yellow"].count, scene.meta.loss["unknown_light_state"].count) == (1, 1)
    for state, kind in (("m", [SIGNAL_YIELD]), ("s", [SIGNAL_STOP]), ("w", [SIGNAL_STOP]), ("M", [])):
        assert read_scene(net(*parts, connection("a", "b", state=state))).signals.kind.tolist() == kind


def test_losses_are_counted() -> None:
    """R7, R8: an unknown element, a known one that is not used, links, programmes and letters that are not there."""
    a = edge("a", lane("a_0", 0, "0,0,5 50,0,6"))
    more = (
        '<surprise/><junction id="j"/>',
        edge("w", lane("w_0", 0, "0,9 5,9"), function="walkingarea"),
        connection("a", "z"),
        connection("a", "a", tl="none", linkIndex="0"),
        logic("t", '<phase duration="9" state="r"/><phase duration="0" state="G"/>', type="actuated"),
        logic("t", ""),
    )
    scene = read_scene(net(a, *more))
    assert scene.meta.has_z
    for kind in (
        *("unknown_element", "ignored_junction", "ignored_walkingarea", "dropped_dangling_link", "dropped_phase"),
        *("dropped_dangling_programme", "assumed_static_programme", "ignored_programme", "assumed_lane_width"),
    ):
        assert scene.meta.loss[kind].count == 1, kind


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b'shape="100.0,200.0', b'shape="1e400,2', "expected x,y or x,y,z"),
        (b'shape="100.0,200.0', b'shape="1,2,3,4', "expected x,y or x,y,z"),
        (b'shape="100.0,200.0', b'shape="1;2', "expected x,y or x,y,z"),
        (b'shape="100.0,200.0 150.0,200.0"', b'shape="1,2"', "expected at least 2"),
        (b'netOffset="100,200"', b'netOffset="100"', "expected two numbers"),
        (b'speed="13.9"', b'speed="fast"', "expected a number"),
        (b'index="1"', b'index="one"', "expected an integer"),
        (b'id="a_1"', b'id="a_0"', "is there twice"),
        (b'duration="30"', b'duration="nan"', "expected a finite number"),
        (b'linkIndex="0"', b"", "'linkIndex' is missing"),
        (b"<net ", b"<nets ", "none of the known formats"),
    ],
)
def test_hostile_networks_are_refused_in_words(old: bytes, new: bytes, says: str) -> None:
    """R5, F9: each with its line."""
    assert old in NET
    with pytest.raises(FormatError, match=r"town\.net\.xml") as caught:
        read_scene(NET.replace(old, new), name="town.net.xml")
    assert says in str(caught.value)


def test_limits_hold() -> None:
    """R3: lanes, phases and signals are counted."""
    for limit in ("lanes", "program_phases", "signals"):
        with pytest.raises(FormatError, match=limit.replace("_", " ")):
            read_scene(NET, limits=Limits(**{limit: 1}))


@pytest.mark.parametrize(("town", "lanes", "lights"), [("Town01", 152, 80), ("Town10HD", 216, 58)])
def test_the_samples(shared: Path, town: str, lanes: int, lights: int) -> None:
    """R23 on both towns: no lane is lost but those of a decimetre, and outside junctions lane centres are where the
    OpenDRIVE of the same town has them, within a metre."""
    from scipy.spatial import cKDTree

    scene = read_scene(shared / "data" / "sumo_nets" / f"{town}.net.xml.gz")
    road = scene.road
    assert road.lane_count + scene.meta.loss["repaired_short_lane"].count == lanes
    assert (scene.signals.kind == SIGNAL_LIGHT).sum() == lights
    (path,) = library_scenes(town)
    other = load_scene(path)
    theirs = np.concatenate([dense(other.road.xyz[other.road.lane_points(n)]) for n in range(other.road.lane_count)])
    tree = cKDTree(theirs + other.meta.origin[:2])
    outside = [road.xyz[road.lane_points(n), :2] for n in np.flatnonzero(road.lane_junction < 0)]
    places = np.concatenate(outside).astype(float) + scene.meta.origin[:2]
    gap = tree.query(places)[0]
    assert gap.max() < 1.0


def dense(points: np.ndarray) -> np.ndarray:
    """(n, 2) f64 [m]: a line with a point every half metre."""
    arc = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points[:, :2].astype(float), axis=0).T))])
    at = np.linspace(0.0, arc[-1], int(arc[-1] / 0.5) + 2)
    return np.column_stack([np.interp(at, arc, points[:, axis]) for axis in (0, 1)])
