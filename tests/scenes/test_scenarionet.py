"""ScenarioNet pickles (R24): what the reader makes of each member, and that no file of it ever runs anything."""

from __future__ import annotations

import builtins
import collections
import os
import pickle
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scenarionet_files import document, scenarionet_pickle
from small_world import assert_same_world, small_world

from skidpad.errors import FormatError
from skidpad.scenes.formats import format_of, read_scene, scenarionet_map
from skidpad.scenes.formats.source import Limits, read_source
from skidpad.scenes.scene import SIGNAL_LIGHT, SUBTYPE_STATIC, TYPE_UNKNOWN, Scene


@pytest.fixture(scope="module")
def world() -> Scene:
    return small_world()


def read(value: Any, limits: Limits | None = None) -> Scene:
    data = value if isinstance(value, bytes) else pickle.dumps(value, protocol=4)
    return read_scene(data, name="small.pkl", limits=limits)


@pytest.mark.parametrize("lists", [False, True])
@pytest.mark.parametrize("generation", [1, 2])
def test_a_scenario_comes_back(world: Scene, generation: int, lists: bool) -> None:
    """R24, R26: lanes with widths and limits, links, paint, edges, lights, signs, rows and whom the metadata single
    out, of before and after NumPy 2, as arrays or as lists; what is lost is said."""
    scene = read(scenarionet_pickle(world, generation=generation, lists=lists))
    assert_same_world(scene, world, goals=False)
    np.testing.assert_allclose(scene.road.speed_limit, world.road.speed_limit, atol=1e-5)
    assert (scene.meta.dataset, scene.meta.scene_id, scene.meta.dt_us) == ("test", "small", 100_000)
    assert {kind: entry.count for kind, entry in scene.meta.loss.items()} == {
        "ignored_difficulty": 2,
        "ignored_interpolating": 3,
        "ignored_left_boundaries": 3,
        "ignored_metadata": 4,
        "ignored_number_summary": 1,
        "ignored_right_boundaries": 3,
    }


def test_files_of_cities_without_a_graph(world: Scene) -> None:
    """R24: nuScenes scenes have flat lanes in two axes with an outline and nothing else: links come from where lanes
    end, widths from the outline, edges from the borders; ids that are no numbers stay in the labels."""
    file = document(world)
    for name, feature in list(file["map_features"].items()):
        if not feature["type"].startswith("LANE"):
            del file["map_features"][name]
            continue
        (x, y), (x1, y1) = feature["polyline"][0, :2], feature["polyline"][-1, :2]
        aside = 1.5 * np.array([y - y1, x1 - x]) / np.hypot(x1 - x, y1 - y)
        ends = np.array([(x, y), (x1, y1)])
        outline = np.concatenate([ends + aside, (ends - aside)[::-1]])
        file["map_features"][name] = {"type": "LANE_SURFACE_STREET", "polyline": ends, "polygon": outline}
    file["dynamic_map_states"] = {}
    file["tracks"]["ab12"] = file["tracks"].pop("102")
    file["tracks"]["ab12"]["type"] = "TRAFFIC_CONE"
    del file["tracks"]["ab12"]["state"]["length"]
    scene = read(file)
    assert not scene.meta.has_z
    np.testing.assert_allclose(scene.road.width[: scene.road.element_points[3]], 3.0, atol=1e-6)
    assert scene.road.exit_lane.tolist() == [1, 2]
    assert (scene.road.element_type == 21).any()
    assert scene.tracks.source_id.tolist() == [101, 103, -1]
    assert scene.meta.labels["tracks"] == ["101", "103", "ab12"]
    assert (scene.tracks.type[2], scene.tracks.subtype[2]) == (TYPE_UNKNOWN, SUBTYPE_STATIC)
    for kind, count in {"assumed_links": 2, "assumed_size": 1, "dropped_object_of_interest": 1}.items():
        assert scene.meta.loss[kind].count == count


def test_what_is_not_known_is_counted(world: Scene) -> None:
    """R7, R8: one unknown member, one that is known and unused, one dangling id: three entries more than without."""
    plain = {kind: entry.count for kind, entry in read(document(world)).meta.loss.items()}
    file = document(world)
    file["map_features"]["11"]["colour"] = "red"
    file["metadata"]["seed"] = np.float64(3.5)
    file["map_features"]["12"]["exit_lanes"] = [4711]
    found = {kind: entry.count for kind, entry in read(file).meta.loss.items()}
    assert {kind: found[kind] for kind in found.keys() - plain.keys()} == {
        "unknown_key": 1,
        "ignored_seed": 1,
        "dropped_dangling_link": 1,
    }


def test_absent_and_odd_lights(world: Scene) -> None:
    """R24: words may be an array of texts; flashing yellow is yellow, what nobody knows is counted and unknown."""
    file = document(world)
    words = ["LANE_STATE_FLASHING_CAUTION", "PURPLE", "TRAFFIC_LIGHT_GREEN", "LANE_STATE_UNKNOWN"]
    file["dynamic_map_states"]["12"]["state"]["object_state"] = np.array(words)
    file["dynamic_map_states"]["12"]["stop_point"] = None
    scene = read(file)
    assert scene.signals.state[scene.signals.kind == SIGNAL_LIGHT].tolist() == [[2, 0, 3, 0]]
    assert scene.meta.loss["unknown_light_state"].count == 1


def _changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    file = document(small_world())
    change(file)
    return file


BAD = {
    "a tuple": (lambda: ("map", "tracks"), "legacy files of Argoverse"),
    "no tracks": (lambda: _changed(lambda file: file.pop("tracks")), "without the member 'tracks'"),
    "short series": (
        lambda: _changed(lambda file: file["tracks"]["101"]["state"].update(heading=np.zeros(3))),
        r"tracks\['101'\]: heading 3 rows, expected 4",
    ),
    "half valid": (
        lambda: _changed(lambda file: file["tracks"]["101"]["state"].update(valid=[0.5] * 4)),
        "expected true, false, 1 or 0",
    ),
    "a flat shape": (
        lambda: _changed(lambda file: file["map_features"]["11"].update(polyline=np.zeros(6))),
        r"polyline: shape \(6,\), expected \(n, 3\) or \(n, 2\)",
    ),
    "time backwards": (lambda: _changed(lambda file: file["metadata"].update(ts=[3.0, 2.0, 1.0, 0.0])), "that grow"),
    "beyond single precision": (
        lambda: _changed(lambda file: file["map_features"]["11"].update(speed_limit_kmh=1e100)),
        "speed limit .* expected a positive number",
    ),
    "an eternity": (
        lambda: _changed(lambda file: file["metadata"].update(ts=[0.0, 1e38, 2e38, 3e38])),
        "by an hour at most",
    ),
    "infinite lane": (
        lambda: _changed(lambda file: file["map_features"]["11"].update(polyline=[[0.0, 0.0], [np.inf, 0.0]])),
        "expected finite numbers",
    ),
    "an id twice": (lambda: _changed(lambda file: file["tracks"].update({101: {}})), "both as a text and as a number"),
    "text for a number": (
        lambda: _changed(lambda file: file["tracks"]["101"]["state"].update(length=["4,5"] * 4)),
        r"length\[0\]: '4,5', expected a number",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_content_is_refused_in_words(name: str) -> None:
    """R3, R5, R24: the member, what stands there, what was expected."""
    make, says = BAD[name]
    with pytest.raises(FormatError, match=says):
        read(make())


class Runs:
    """What somebody hides in a file: a call of anything when it is loaded."""

    def __init__(self, call: Callable[..., Any], *arguments: Any, state: Any = None) -> None:
        self._reduced = (call, arguments) if state is None else (call, arguments, state)

    def __reduce__(self) -> Any:
        return self._reduced


class Extended:
    def __init__(self) -> None:
        self.name = "x"


def _arrays(dtype: Any, shape: tuple[int, ...], content: Any) -> bytes:
    """A pickled array whose parts are what the caller says."""
    kind = pickle.dumps(np.dtype(dtype), protocol=3)[2:-1]
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01"
    made += pickle.dumps(shape, protocol=3)[2:-1] + kind + b"\x89" + pickle.dumps(content, protocol=3)[2:-1]
    return b"\x80\x03}X\x06\x00\x00\x00tracks" + made + b"tbs."


def _nested(depth: int) -> bytes:
    """Lists that hold the one before twice: 2^depth leaves in a few bytes."""
    return b"\x80\x04" + b"]\x94" + b"".join(b"]\x94(h" + bytes([n]) + b"h" + bytes([n]) + b"e" for n in range(depth))


def attacks(mark: Path) -> dict[str, bytes]:
    """Pickles that would write the file `mark`, exhaust memory, or bring what no scenario has."""
    write = f"open({str(mark)!r}, 'w').close()"
    shell = f"touch {mark}"
    calls: dict[str, Callable[[], Any]] = {
        "os.system": lambda: Runs(os.system, shell),
        "subprocess": lambda: Runs(subprocess.check_output, ["touch", str(mark)]),
        "eval": lambda: Runs(eval, write),
        "exec": lambda: Runs(exec, write),
        "open": lambda: Runs(open, str(mark), "w"),
        "getattr": lambda: Runs(getattr, Runs(builtins.__import__, "os"), "system"),
        "import": lambda: Runs(builtins.__import__, "os"),
        "map of eval": lambda: Runs(list, Runs(map, eval, [write])),
        "as a key": lambda: {Runs(os.system, shell): 1},
        "in a track": lambda: {"tracks": {"1": Runs(os.system, shell)}},
        "in a default": lambda: {"tracks": Runs(collections.defaultdict, Runs(os.system, shell))},
        "default of a function": lambda: collections.defaultdict(os.getcwd),
        "in a state": lambda: Runs(Extended, state={"name": Runs(os.system, shell)}),
        "an object": Extended,
        "array of objects": lambda: np.array([Runs(os.system, shell)], object),
        "array of nothing": lambda: np.array([None, {}], object),
        "array of records": lambda: np.zeros(2, [("a", "f4"), ("b", "i2")]),
        "array of dates": lambda: np.array(["2020-01-01"], "M8[D]"),
        "complex": lambda: np.zeros(2, complex),
        "numpy.load": lambda: Runs(np.load, str(mark)),
        "numpy.fromfile": lambda: Runs(np.fromfile, "/etc/hostname", np.uint8),
        "bytearray": lambda: Runs(bytearray, 1 << 40),
        "range": lambda: Runs(list, range(10**9)),
        "huge integer": lambda: {"tracks": 1 << 70},
    }
    found = {
        f"{name}, protocol {protocol}": pickle.dumps(make(), protocol=protocol)
        for name, make in calls.items()
        for protocol in ((0, 1, 2, 3, 4, 5) if name in ("os.system", "eval", "in a track") else (4,))
    }
    text = b"X\x01\x00\x00\x00"
    by_hand = {
        "instance": b"\x80\x02(S'" + shell.encode() + b"'\nios\nsystem\n.",
        "object": b"\x80\x02(cos\nsystem\nX" + struct.pack("<I", len(shell)) + shell.encode() + b"o.",
        "new object": b"\x80\x02cos\nsystem\n)\x81.",
        "new object with names": b"\x80\x04cos\nsystem\n)}\x92.",
        "extension": b"\x80\x02\x82\x01.",
        "extension, four bytes": b"\x80\x02\x84\x01\x00\x00\x00.",
        "persistent": b"\x80\x02Pfile\n.",
        "persistent of the stack": b"\x80\x02" + text + b"aQ.",
        "outside buffer": b"\x80\x05\x97.",
        "read-only buffer": b"\x80\x05\x97\x98.",
        "name with a dot": b"\x80\x04\x8c\x05numpy\x8c\x0fndarray.tofile\x93.",
        "deeper module": b"\x80\x04\x8c\x0enumpy.lib.npyio\x8c\x04load\x93.",
        "name without an end": b"\x80\x03c" + b"n" * 4000,
        "name of numbers": b"\x80\x04K\x01K\x02\x93.",
        "call of a factory": b"\x80\x03cbuiltins\nlist\n(K\x01tR.",
        "call of the array": b"\x80\x03cnumpy\nndarray\nK\x05\x85R.",
        "blank of a size": b"\x80\x03cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nM\xff\xff\x85C\x01b\x87R.",
        "type of a call": b"\x80\x03cnumpy\ndtype\nX\x02\x00\x00\x00O8\x89\x88\x87R.",
        "array a billion long": _arrays("f8", (10**9,), b"\x00" * 8),
        "array of overflow": _arrays("f8", (1 << 61, 8), b"\x00" * 8),
        "array of negative size": _arrays("f8", (-1,), b"\x00" * 8),
        "array of lists": _arrays("f8", (1,), [1.0]),
        "array of an object's state": _arrays(object, (1,), [None]),
        "state of a list": b"\x80\x03]K\x01b.",
        "text of a gigabyte": b"\x80\x04X\xff\xff\xff\x3fabc",
        "text of 2^64": b"\x80\x04\x8d" + b"\xff" * 8 + b"abc.",
        "bytes of 2^63": b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7fabc.",
        "memo without a value": b"\x80\x04h\x05.",
        "memo of nothing": b"\x80\x04\x94.",
        "list of itself": b"\x80\x04]\x94h\x00a.",
        "lists of lists": _nested(200) + b".",
        "many values": b"\x80\x04K\x01K\x02.",
        "a mark": b"\x80\x04(.",
        "after the end": b"\x80\x04}.}.",
        "deep": b"\x80\x04" + b"]" * 50_000 + b"a" * 49_999 + b".",
        "keys twice": b"\x80\x04}(K\x01NK\x01Nu.",
        "unhashable key": b"\x80\x04}(]Nu.",
    }
    return found | by_hand


@pytest.mark.parametrize("name", attacks(Path("mark")))
def test_nothing_of_a_pickle_is_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R24: more than sixty files that are programs, bombs or objects are refused before any call: nothing that
    they name is called, and neither pickle nor NumPy is asked to load anything."""
    mark = tmp_path / "mark"
    data = attacks(mark)[name]

    def forbidden(*_: Any, **__: Any) -> Any:
        raise AssertionError("called")

    with monkeypatch.context() as patch:
        for module, called in ((os, "system"), (subprocess, "check_output"), (np, "load"), (np, "fromfile")):
            patch.setattr(module, called, forbidden)
        for module, called in ((pickle, "loads"), (pickle, "load"), (pickle, "Unpickler")):
            patch.setattr(module, called, forbidden)
        with pytest.raises(FormatError, match=r"mean\.dat"):
            read_scene(data, name="mean.dat")
    assert not mark.exists()
    assert len(attacks(mark)) >= 60


def test_limits_hold(world: Scene) -> None:
    """R3: operations and values that are kept are counted before they are made; the message names the limit."""
    data = scenarionet_pickle(world)
    for limits, says in (
        (Limits(pickle_operations=50), "pickle operations is 51, the limit is 50"),
        (Limits(pickle_memo=20), "pickle memo is 21, the limit is 20"),
        (Limits(tracks=2), "tracks is 3, the limit is 2"),
        (Limits(rows=3), "rows is 4, the limit is 3"),
        (Limits(map_points=5), "map points is 7, the limit is 5"),
    ):
        with pytest.raises(FormatError, match=says):
            read(data, limits)


def test_one_outline_a_thousand_times(world: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """R6: a file that refers to one long outline again and again is bounded in time; the lanes beyond keep an assumed
    width, which is counted."""
    monkeypatch.setattr(scenarionet_map, "_MOST_CROSSINGS", 4500)
    file = document(world)
    turn = np.linspace(0.0, 2.0 * np.pi, 100, endpoint=False)
    outline = np.array([20.0, 0.0]) + np.stack([30.0 * np.cos(turn), 5.0 * np.sin(turn)], axis=1)
    centre = np.stack([np.linspace(0.0, 40.0, 20), np.zeros(20)], axis=1)
    lane = {"type": "LANE_SURFACE_STREET", "polyline": centre, "polygon": outline, "exit_lanes": ["1"]}
    file["map_features"] = {str(n): dict(lane) for n in range(3)} | {"edge": {"type": "UNKNOWN", "polyline": centre}}
    scene = read(file)
    assert scene.meta.loss["assumed_lane_width"].count == 1
    expected = 10.0 * np.sqrt(1.0 - ((centre[:, 0] - 20.0) / 30.0) ** 2)
    np.testing.assert_allclose(scene.road.width[:20], expected, rtol=0.01)


def test_scalars_bytes_orders_and_layouts(world: Scene) -> None:
    """R24: big-endian arrays, Fortran order, NumPy's own scalars and texts are the same numbers."""
    file = document(world)
    for feature in file["map_features"].values():
        if "polyline" in feature:
            feature["polyline"] = np.asfortranarray(feature["polyline"].astype(">f8"))
    file["id"] = np.str_("small")
    file["metadata"]["current_time_index"] = np.int64(0)
    file["map_features"]["11"]["speed_limit_kmh"] = np.float32(50.04)
    assert_same_world(read(file), world, goals=False)


def test_rows_beyond_single_precision_fall(world: Scene) -> None:
    """R5: a flipped exponent makes 1e100 of a height: no number of a scene, so the row is invalid and counted."""
    file = document(world)
    file["tracks"]["101"]["state"]["position"][2, 2] = 1e100
    scene = read(file)
    assert scene.tracks.valid[0].tolist() == [True, True, False, True]
    assert scene.meta.loss["dropped_row_not_finite"].count == 1


def test_content_not_name_tells(world: Scene) -> None:
    """R2: a pickle is this reader's, whatever it is called, and one that is no scenario is refused by saying so."""
    assert format_of(read_source(scenarionet_pickle(world), name="map.json")) == "scenarionet"
    with pytest.raises(FormatError, match="without the member 'tracks', expected a ScenarioNet scenario"):
        read({"weights": [1.0, 2.0]})
