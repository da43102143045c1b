"""Index, manifests and assets: exact fields, ids, frames, arrays and the hash tree (M1 to M10)."""

from __future__ import annotations

import builtins
import contextlib
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from episode_folders import FIRST_SEED, change, change_entry, entries_of, manifest_path, rewrite_index
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.artifacts.files import parse_json
from skidpad.errors import FormatError, IntegrityError, SkidpadError
from skidpad.streaming import compile as compile_module
from skidpad.streaming import schemas
from skidpad.streaming.assets import decode_npy, encode_npy, inclusion_proof, leaf_hash, proves, root_of
from skidpad.streaming.episode import load_episode_index
from skidpad.streaming.provenance import validate_episodes


def test_schema_ids_are_pinned(index: Path) -> None:
    """M1: the schema strings are what files of others say; a newer or a lookalike one is refused, printing both."""
    names = (schemas.INDEX_SCHEMA, schemas.ONLINE_SCHEMA, schemas.VAULT_SCHEMA, compile_module.COMPILE_SCHEMA)
    assert names == tuple(f"skidpad.episodes.{name}/1" for name in ("index", "online", "vault", "compile"))
    for text in ("skidpad.episodes.index/2", "skidpad.episodes.index/1.0"):
        value = json.loads(index.read_text()) | {"schema": text}
        index.write_text(json.dumps(value))
        with pytest.raises(FormatError, match=f"{text}.*{schemas.INDEX_SCHEMA}"):
            load_episode_index(index)


@pytest.mark.parametrize("which", ["online", "vault"])
def test_manifest_schema(index: Path, which: str) -> None:
    """M1: a manifest of another schema is refused as such, not by its fields."""
    change(index, which, lambda value: value.update(schema=f"skidpad.episodes.{which}/2"))
    with pytest.raises(FormatError, match=rf"{which}/2', expected 'skidpad.episodes.{which}/1'"):
        validate_episodes(entries_of(index))


def objects(which: str) -> list[tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]]:
    """Each kind of object in a manifest, and how to reach one."""
    if which == "online":
        return [
            ("online", lambda value: value),
            ("frame", lambda value: value["stream"][1]),
            ("camera", lambda value: value["warmup"][0]["camera"]),
            ("asset", lambda value: value["warmup"][0]["depth"]),
        ]
    return [
        ("vault", lambda value: value),
        ("query", lambda value: value["queries"][1]),
        ("origin", lambda value: value["origin"]),
    ]


def wrong_types(value: Any) -> Iterator[Any]:
    """Neighbours of a value that another language would take for it."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, (int, float)):
        yield from (str(value), True)
    elif isinstance(value, str):
        yield 1
    elif isinstance(value, list):
        yield {}
    else:
        yield []


@pytest.mark.parametrize(
    ("which", "name"), [(which, name) for which in ("online", "vault") for name, _ in objects(which)]
)
def test_exact_fields(index: Path, which: str, name: str) -> None:
    """M2: every key of every object: dropped, given a neighbour, given a wrong type ("8" for 8, true for 1)."""
    reach = dict(objects(which))[name]
    path = manifest_path(index, which)
    original = path.read_text()
    keys = list(reach(json.loads(original)))

    def refused(edit: Callable[[dict[str, Any]], None], match: str) -> None:
        path.write_text(original)
        change(index, which, lambda value: edit(reach(value)))
        with pytest.raises(FormatError, match=match):
            validate_episodes(entries_of(index))

    for key in keys:
        match = "schema" if key == "schema" else rf"missing fields: [\w.]*{key}"
        refused(lambda value, key=key: value.pop(key), match)
        refused(lambda value, key=key: value.update({f"{key}_": 1}), f"unexpected: [\\w.]*{key}_")
        for other in wrong_types(reach(json.loads(original))[key]):
            refused(lambda value, key=key, other=other: value.update({key: other}), "wrong|schema")


def test_exact_entry(index: Path) -> None:
    """M2, M4: an entry's fields likewise; a broken one names itself and blocks nothing when it is not selected."""
    original = json.loads(index.read_text())
    for key, value in original["episodes"][1].items():
        wrong = [{k: v for k, v in original["episodes"][1].items() if k != key}]
        wrong += [original["episodes"][1] | {key: other} for other in wrong_types(value)]
        wrong += [original["episodes"][1] | {f"{key}_": 1}]
        for entry in wrong:
            rewrite_index(index, {**original, "episodes": [original["episodes"][0], entry]})
            loaded = load_episode_index(index)
            assert len(loaded.select(1)) == 1
            with pytest.raises(FormatError, match=r"episodes\[1\]"):
                loaded.select()


def test_index_opens_one_file(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M3: an index whose manifests do not exist loads, and the loader opens one path."""
    value = json.loads(index.read_text())
    for episode in value["episodes"]:
        episode["online_manifest"] = "nowhere/online.json"
    rewrite_index(index, value)
    opened: list[str] = []
    real = Path.open
    monkeypatch.setattr(Path, "open", lambda self, *args, **kw: opened.append(str(self)) or real(self, *args, **kw))
    monkeypatch.setattr(builtins, "open", lambda *args, **kw: pytest.fail("opened by another way"))
    assert len(load_episode_index(index).episodes) == 2
    assert opened == [str(index)]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[]", "expected an object"),
        ("{}", "schema None"),
        ('{"schema": "skidpad.episodes.index/1", "episodes": []}', "missing fields: root"),
        ('{"schema": "skidpad.episodes.index/1", "episodes": [], "root": ""}', "at least one object"),
        ('{"schema": "skidpad.episodes.index/1", "episodes": [1], "root": ""}', "at least one object"),
        ('{"schema": "skidpad.episodes.index/1", "episodes": [{}], "root": "", "x": 1}', "unexpected: x"),
        ('{"schema": "skidpad.episodes.index/1", "schema": 1}', "duplicate key"),
        ('{"schema": NaN}', "NaN"),
        ('{"schema": "skid', "not JSON"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_broken_index(tmp_path: Path, text: str, match: str) -> None:
    """M3: what is no index is refused with the file's name; the cause of broken JSON is kept."""
    path = tmp_path / "index.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=match) as caught:
        load_episode_index(path)
    assert "index.json" in str(caught.value)
    if match == "not JSON":
        assert isinstance(caught.value.__cause__, ValueError)


def test_index_root(index: Path) -> None:
    """M3, M10: a missing file stays FileNotFoundError; an edited, dropped or moved entry breaks the root."""
    with pytest.raises(FileNotFoundError):
        load_episode_index(index.with_name("none.json"))
    value = json.loads(index.read_text())
    edited = [value["episodes"][0] | {"query_count": 9}, value["episodes"][1]]
    for episodes in (
        edited,
        value["episodes"][:1],
        value["episodes"][::-1],
        [*value["episodes"], value["episodes"][0]],
    ):
        index.write_text(json.dumps({**value, "episodes": episodes}))
        with pytest.raises(IntegrityError, match="root"):
            load_episode_index(index)


@pytest.mark.parametrize("text", ["a/b", "..", ".", "", "a" * 65, "Upper", "a@b", "a\nb", "a\n", "-a", "ä"])
def test_identifiers(index: Path, text: str) -> None:
    """M5: ids become file names, so only plain ones are ids."""
    change_entry(index, lambda entry: entry.update(scene_id=text))
    with pytest.raises(FormatError, match=r"scene_id: an id is"):
        entries_of(index)


def test_seed_is_a_label(rooms_index: Path) -> None:
    """M6: no online byte and no index byte holds the seed, in decimal or hexadecimal: who has it has the truth."""
    marks = [text.encode() for seed in (FIRST_SEED, FIRST_SEED + 1) for text in (str(seed), f"{seed:x}")]
    online = [path for path in rooms_index.parent.rglob("*") if path.is_file() and "online" in path.parts]
    assert len(online) == 2 * (1 + 2 * 5)
    for path in [*online, rooms_index]:
        data = path.read_bytes()
        assert not any(mark in data for mark in marks), path
    vault = parse_json(manifest_path(rooms_index, "vault").read_bytes())
    assert vault["origin"]["seed"] == FIRST_SEED


def swap(manifest: dict[str, Any]) -> None:
    manifest["stream"][0], manifest["stream"][1] = manifest["stream"][1], manifest["stream"][0]


@pytest.mark.parametrize(
    ("which", "edit", "match"),
    [
        ("online", swap, "ids must rise"),
        ("online", lambda value: value["stream"][1].update(frame_id=2), "ids must rise"),
        ("online", lambda value: value["stream"][1].update(frame_id=-1), "frame_id"),
        ("online", lambda value: value["stream"][1].update(time_s=0.1), "times must not fall"),
        ("online", lambda value: value.update(declared_length=4), "declared_length is 4, it lists 5"),
        ("vault", lambda value: value.update(declared_length=3), "declared_length is 3, it lists 2"),
        ("vault", lambda value: value["queries"].reverse(), "must rise"),
        ("online", lambda value: value["stream"][1]["rgb"].update(shape=[12, 17, 3]), r"expected u1 \[12, 16, 3\]"),
        ("vault", lambda value: value["queries"][0]["seen"].update(dtype="f4"), r"for mask"),
        ("online", lambda value: value.update(modalities=["rgb"]), "has depth, the modalities are"),
        ("online", lambda value: value["stream"][1].update(depth=None), "lacks depth"),
        ("online", lambda value: value.update(modalities=["depth"]), "expected rgb"),
        ("online", lambda value: value["warmup"][0]["camera"].update(intrinsics=[0.0, 1.0, 1.0, 1.0]), "focal"),
        ("online", lambda value: value["warmup"][0]["camera"]["world_from_camera"][0].append(1.0), "frame 0"),
        (
            "online",
            lambda value: value["warmup"][0]["camera"]["world_from_camera"][0].__setitem__(0, 2.0),
            "orthonormal",
        ),
    ],
)
def test_frames(index: Path, which: str, edit: Callable[[dict[str, Any]], None], match: str) -> None:
    """M7, M18: order, counts, shapes and modalities of frames and queries, before anything is decoded."""
    change(index, which, edit)
    with pytest.raises(SkidpadError, match=match):
        validate_episodes(entries_of(index))


def npy_header(text: str) -> bytes:
    padded = text.encode() + b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded


def test_one_decoder() -> None:
    """M8: an array is exactly what its manifest declares; a header that promises 8 GB allocates nothing."""
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    data = encode_npy(array)
    np.testing.assert_array_equal(decode_npy(data, "f4", [4, 6], "x"), array)
    huge = npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (50000, 40000), }")
    cases = {
        "trailing": data + b"\0",
        "cut": data[:-1],
        "huge": huge,
        "pickled": encode_npy(array).replace(b"'<f4'", b"'|O'  "[:5]),
        "fortran": npy_header("{'descr': '<f4', 'fortran_order': True, 'shape': (4, 6), }") + array.tobytes(),
        "big-endian": npy_header("{'descr': '>f4', 'fortran_order': False, 'shape': (4, 6), }") + array.tobytes(),
        "no npy": b"GIF89a" + data,
        "empty": b"",
        "nested": npy_header("[" * 500),
    }
    for name, bad in cases.items():
        with pytest.raises(FormatError):
            decode_npy(bad, "f4", [4, 6], name)
    for dtype, shape in (("u1", [4, 6]), ("f4", [6, 4]), ("f4", [24])):
        with pytest.raises(FormatError, match="the manifest declares"):
            decode_npy(data, dtype, shape, "x")
    with pytest.raises(FormatError, match="bytes of values"):
        decode_npy(huge, "f4", [50000, 40000], "x")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 127), st.integers(0, 255))
def test_decoder_survives_anything(noise: bytes, at: int, byte: int) -> None:
    """M8: random bytes, and a good array with one byte changed in its header, end in an array or in FormatError."""
    data = bytearray(encode_npy(np.zeros((3, 5), np.uint8)))
    data[at] = byte
    for one in (noise, bytes(data)):
        with contextlib.suppress(FormatError):
            assert decode_npy(one, "u1", [3, 5], "x").shape == (3, 5)


LEAVES = [(f"f{k}.npy", f"{k:064x}") for k in range(11)]


def test_tree_notices_everything() -> None:
    """M10: a leaf flipped, renamed, exchanged, dropped or doubled gives another root; the order of listing does not."""
    root = root_of(LEAVES)
    assert root_of(LEAVES[::-1]) == root
    changed = [
        [*LEAVES[:-1], ("f10.npy", "f" * 64)],
        [*LEAVES[:-1], ("f11.npy", LEAVES[-1][1])],
        [(LEAVES[0][0], LEAVES[1][1]), (LEAVES[1][0], LEAVES[0][1]), *LEAVES[2:]],
        LEAVES[:-1],
        [*LEAVES, LEAVES[-1]],
        [*LEAVES, LEAVES[0]],
    ]
    roots = [root_of(leaves) for leaves in changed]
    assert root not in roots
    assert len(set(roots)) == len(roots)


def test_tree_by_hand() -> None:
    """M10: three leaves: the odd one is promoted as it is, and the two kinds of hashes have different first bytes."""
    import hashlib

    a, b, c = (leaf_hash(*leaf) for leaf in LEAVES[:3])
    assert a == hashlib.sha256(b"\0" + struct.pack("<Q", 6) + b"f0.npy" + bytes(32)).digest()
    left = hashlib.sha256(b"\1" + a + b).digest()
    assert root_of(LEAVES[:3]) == hashlib.sha256(b"\1" + left + c).hexdigest()


@given(st.integers(1, 40), st.data())
def test_inclusion_proofs(count: int, data: st.DataObject) -> None:
    """M10: any frame is proved with about log2(n) digests; another digest, another path or an inner node is not."""
    leaves = [(f"{k:03d}", f"{k:064x}") for k in range(count)]
    path, sha256 = leaves[data.draw(st.integers(0, count - 1))]
    proof = inclusion_proof(leaves, path)
    root = root_of(leaves)
    assert len(proof) <= max(1, count - 1).bit_length()
    assert proves(path, sha256, proof, root)
    assert not proves(path, "f" * 64, proof, root)
    assert not proves("other", sha256, proof, root)
    if count > 1:
        assert not proves(path, leaf_hash(path, sha256).hex(), proof[1:], root)
