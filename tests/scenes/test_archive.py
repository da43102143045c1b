"""The scene archive and the identity of scenes."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.artifacts.container import FLAG_SCENE, encode
from skidpad.errors import AlreadyThereError, FormatError, IntegrityError
from skidpad.scenes.archive import load_scene, meta_to_table, save_scene, scene_bytes, scene_header, table_to_meta
from skidpad.scenes.scene import MAP_ARRAYS, SCENE_ARRAYS, LossEntry, Scene, SceneMeta
from skidpad.scenes.synthetic import FIXTURES, synthetic

FROZEN = Path(__file__).parent / "dead_end-1.0.scene"
FROZEN_DIGEST = "a4af2384ad9f1fa1ba954725fca2000a484df9630fd2d0a2ea50c74a425f743b"


@pytest.fixture(scope="module")
def scene() -> Scene:
    return synthetic("crossing")


def with_arrays(scene: Scene, **changed: Any) -> Scene:
    """A copy of a scene with some arrays replaced; names as `road__xyz`."""
    arrays = scene.arrays() | {name.replace("__", "."): array for name, array in changed.items()}
    return Scene.from_arrays(arrays, scene.meta)


@pytest.mark.parametrize("name", FIXTURES)
def test_round_trip(name: str) -> None:
    """R13, S7: read(write(x)) == x with meta and digests, and write(read(f)) == f, for every fixture."""
    scene = synthetic(name)
    data = scene_bytes(scene)
    found = load_scene(data, verify="full")
    assert found.meta == scene.meta
    assert (found.digest, found.map_digest) == (scene.digest, scene.map_digest)
    for path, array in scene.arrays().items():
        assert found.arrays()[path].tobytes() == array.tobytes(), path
    assert scene_bytes(found) == data


def test_any_changed_element_changes_the_digest(scene: Scene) -> None:
    """S1: every element of every array is part of the identity, and of the map's identity exactly where the map index
    depends on it."""
    random = Random(5)
    for spec in SCENE_ARRAYS:
        array = scene.arrays()[spec.path]
        for _ in range(min(array.size, 3)):
            other = array.copy()
            place = random.randrange(other.size)
            bits = other.reshape(-1).view("u1")
            byte = place * other.itemsize
            bits[byte] = 1 - bits[byte] if spec.dtype == "b1" else bits[byte] ^ 1
            changed = with_arrays(scene, **{spec.path.replace(".", "__"): other})
            assert changed.digest != scene.digest, spec.path
            assert (changed.map_digest != scene.map_digest) == (spec.path in MAP_ARRAYS), spec.path


def test_empty_arrays_of_other_shapes_differ() -> None:
    """S1: the digest is injective also where there is nothing to hash but the shape."""
    scene = synthetic("curve", traffic=False)
    longer = replace(scene.meta, steps=2)
    arrays = scene.arrays()
    for spec in SCENE_ARRAYS:
        if spec.shape == "N,T":
            arrays[spec.path] = np.zeros((0, 2), spec.dtype)
    arrays["signals.state"] = np.zeros((0, 2), np.uint8)
    same_meta = Scene.from_arrays(arrays, scene.meta)
    assert same_meta.digest != scene.digest
    assert Scene.from_arrays(arrays, longer).digest not in {scene.digest, same_meta.digest}


CHANGED_META: dict[str, Any] = {
    "scene_id": "other",
    "dataset": "other",
    "source_format": "other",
    "source_version": "9",
    "source_digest": "1" * 64,
    "dt_us": 50_000,
    "steps": 90,
    "current_step": 3,
    "origin": (1.0, 0.0, 0.0),
    "has_z": True,
    "sdc": 1,
    "tracks_to_predict": (0,),
    "objects_of_interest": (2,),
    "labels": {"a": 1},
    "licence": "other",
    "attribution": "other",
    "loss": {"dropped_x": LossEntry(1, ("x",))},
}
WORDING = {"scene_id", "dataset", "source_format", "source_version", "source_digest", "labels", "licence"}
WORDING |= {"attribution", "loss"}


def test_what_is_part_of_the_identity(scene: Scene) -> None:
    """S1: what simulating reads names the scene; a reworded notice or another source path renames no case. The table
    of changes covers every field, so a new field must decide."""
    assert set(CHANGED_META) == {item.name for item in fields(SceneMeta)}
    for name, value in CHANGED_META.items():
        meta = replace(scene.meta, **{name: value})
        changed = Scene(scene.road, scene.tracks, scene.signals, meta)
        assert (changed.digest == scene.digest) == (name in WORDING), name


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    labels=st.dictionaries(st.text(max_size=4), JSON, max_size=3),
    origin=st.tuples(*[st.floats(-1e7, 1e7)] * 3),
    text=st.text(max_size=20),
)
@settings(max_examples=80, deadline=None)
def test_meta_round_trips(labels: dict[str, Any], origin: tuple[float, float, float], text: str) -> None:
    """S7, F16: any labels, any text (slashes, newlines, markup) and any origin come back as they were, bit for bit."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    meta = replace(load_scene(FROZEN).meta, labels=labels, origin=origin, scene_id=text, attribution=text)
    table = meta_to_table(meta)
    assert encode(FLAG_SCENE, table, {}, "0" * 64)  # nothing but integers and text
    found = table_to_meta(table, "x")
    assert found == meta
    assert str(found.origin) == str(meta.origin)


@pytest.mark.parametrize(
    "change",
    [
        {"dt_us": "100"},
        {"scene_id": 1},
        {"origin": ["0", "0"]},
        {"origin": ["1_0.0", "0.0", "0.0"]},
        {"origin": ["nan", "0.0", "0.0"]},
        {"has_z": 2},
        {"labels": "[1]"},
        {"labels": '{"a":NaN}'},
        {"loss": {"dropped_x": [1]}},
        {"loss": []},
        {"tracks_to_predict": ["a"]},
        {"extra": 1},
    ],
)
def test_odd_meta_is_refused(scene: Scene, change: dict[str, Any]) -> None:
    """R12: a table with good checksums may still hold nonsense; it is a FormatError that names file and key."""
    data = encode(FLAG_SCENE, meta_to_table(scene.meta) | change, scene.arrays(), scene.digest)
    with pytest.raises(FormatError, match=f"x.scene.*{next(iter(change))}"):
        load_scene(data, name="x.scene")


def test_arrays_that_do_not_fit_together_are_refused(scene: Scene) -> None:
    """R12: offsets inside arrays are validated at opening: a kernel would follow them without asking."""
    road = scene.road
    broken = {
        "road__exit_offset": np.where(np.arange(road.lane_count + 1) == 3, 10_000, road.exit_offset).astype(np.int32),
        "road__exit_lane": road.exit_lane + np.int32(10_000),
        "road__element_points": road.element_points[::-1].copy(),
        "road__arc": road.arc[:-1].copy(),
        "tracks__x": scene.tracks.x[:, :-1].copy(),
    }
    for name, array in broken.items():
        changed = with_arrays(scene, **{name: array})
        data = encode(FLAG_SCENE, meta_to_table(scene.meta), changed.arrays(), changed.digest)
        with pytest.raises(FormatError, match="do not fit together"):
            load_scene(data)
    wrong_type = scene.arrays() | {"road.arc": road.arc.astype(np.float64)}
    with pytest.raises(FormatError, match=r"road\.arc"):
        load_scene(encode(FLAG_SCENE, meta_to_table(scene.meta), wrong_type, scene.digest))


def test_full_verification_computes_the_digest(scene: Scene) -> None:
    """S1, F30: a file that claims the digest of another scene is caught by `full`, and never trusted by `lazy`."""
    data = encode(FLAG_SCENE, meta_to_table(scene.meta), scene.arrays(), "0" * 64)
    assert load_scene(data).digest == scene.digest
    with pytest.raises(IntegrityError, match="digest"):
        load_scene(data, verify="full")


def test_writing(scene: Scene, tmp_path: Path) -> None:
    """R13: a file is written once; to write over it must be said."""
    path = tmp_path / "a.scene"
    save_scene(scene, path)
    with pytest.raises(AlreadyThereError):
        save_scene(scene, path)
    other = synthetic("dead_end")
    save_scene(other, path, overwrite=True)
    assert load_scene(path).digest == other.digest
    assert scene_header(path) == (other.meta, other.digest)
    assert [item.name for item in tmp_path.iterdir()] == ["a.scene"]


def test_frozen_file() -> None:
    """R14: a file of version 1.0 is read for ever, and writing it again gives its bytes."""
    scene = load_scene(FROZEN, verify="full")
    assert scene.digest == FROZEN_DIGEST
    assert scene_bytes(scene) == FROZEN.read_bytes()


def test_the_map_digest_is_that_of_the_file(tmp_path: Path) -> None:
    """R14: what a process remembers of a file it has read is the digest of the very bytes there: another map in the
    same place has its own."""
    path = tmp_path / "a.scene"
    for seed in (0, 1, 0):
        scene = synthetic("dense", seed)
        save_scene(replace(scene, road=replace(scene.road, width=scene.road.width + seed)), path, overwrite=True)
        digests = [load_scene(path).map_digest for _ in range(2)]
        assert digests == [Scene.from_arrays(load_scene(path).arrays(), scene.meta).map_digest] * 2
    assert len({load_scene(FROZEN).map_digest, *digests}) == 2


@pytest.mark.slow
def test_killed_while_writing(tmp_path: Path) -> None:
    """R13: killed at any moment, the file is the old one or the new one, whole, and reading never fails."""
    path = tmp_path / "a.scene"
    save_scene(synthetic("dense", 0), path)
    known = {synthetic("dense", seed).digest for seed in range(2)}
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from skidpad.scenes.archive import save_scene\nfrom skidpad.scenes.synthetic import synthetic\n"
        "scenes = [synthetic('dense', seed) for seed in range(2)]\nprint(flush=True)\n"
        "while True:\n    for scene in scenes:\n        save_scene(scene, Path(sys.argv[1]), overwrite=True)\n"
    )
    random = Random(3)
    for _ in range(40):
        with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(random.random() * 0.05)
            writer.kill()
        assert load_scene(path, verify="full").digest in known
