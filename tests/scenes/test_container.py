"""The container: what is written is read, and nothing else is."""

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from skidpad.artifacts import container
from skidpad.artifacts.container import FLAG_INDEX, FLAG_SCENE, MAGIC, encode, open_container, read_header
from skidpad.artifacts.digests import canonical_json
from skidpad.errors import FormatError, IntegrityError, SkidpadError

DIGEST = hashlib.sha256(b"content").hexdigest()
META = {"name": "x", "numbers": [1, 2], "deep": {"text": "ü"}}
ARRAYS = {
    "road.xyz": np.arange(12, dtype=np.float32).reshape(4, 3),
    "road.flags": np.array([True, False, True]),
    "tracks.x": np.zeros((0, 5), np.float32),
}


def small() -> bytes:
    return encode(FLAG_SCENE, META, ARRAYS, DIGEST)


def edited(data: bytes, edit: Callable[[dict[str, Any]], None]) -> bytes:
    """The same file with an edited table and every hash made to fit, as a forger would."""
    offset = struct.unpack_from("<Q", data, 24)[0]
    table = json.loads(data[offset:])
    edit(table)
    raw = canonical_json(table).encode()
    head = bytearray(data[:128])
    struct.pack_into("<QQQ32s", head, 16, offset + len(raw), offset, len(raw), hashlib.sha256(raw).digest())
    return bytes(head) + data[128:offset] + raw


def entry(table: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in table["arrays"] if item["name"] == name)


SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)
ANY_ARRAY = st.sampled_from(sorted(container.DTYPES)).flatmap(lambda text: hnp.arrays(np.dtype(text), SHAPES))


@given(arrays=st.dictionaries(st.text("abc.", max_size=4), ANY_ARRAY, max_size=4))
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read(arrays: dict[str, np.ndarray]) -> None:
    """R13: read(write(x)) == x and write(read(f)) == f, for any arrays, also empty ones: zero-size arrays and odd
    paddings are where layouts go wrong."""
    data = encode(FLAG_SCENE, META, arrays, DIGEST)
    found = open_container(data, flags=FLAG_SCENE)
    assert found.meta == META
    assert found.content_digest == DIGEST
    assert found.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert found.arrays[name].tobytes() == array.tobytes()
        assert not found.arrays[name].flags.writeable
    assert encode(FLAG_SCENE, found.meta, found.arrays, found.content_digest) == data


def test_big_endian_arrays_become_little_endian() -> None:
    """R11, F19: the file is little-endian whatever the array was, or a foreign machine would read garbage."""
    data = encode(FLAG_SCENE, {}, {"x": np.array([1.5, 2.5], ">f4")}, DIGEST)
    assert data == encode(FLAG_SCENE, {}, {"x": np.array([1.5, 2.5], "<f4")}, DIGEST)


def test_layout_is_the_documented_one() -> None:
    """R11: the offsets of the header table, read with struct and nothing of ours."""
    data = small()
    magic, major, minor, flags, length, offset, table_length = struct.unpack_from("<8sHHIQQQ", data)
    assert (magic, major, minor, flags) == (b"SKIDSCN\x1a", 1, 0, 0)
    assert length == len(data) == offset + table_length
    assert data[40:72] == hashlib.sha256(data[offset:]).digest()
    assert data[72:104].hex() == DIGEST
    assert data[104:128] == bytes(24)
    for item in json.loads(data[offset:])["arrays"]:
        assert item["offset"] % 64 == 0
        payload = data[item["offset"] : item["offset"] + item["length"]]
        assert hashlib.sha256(payload).hexdigest() == item["sha256"]
        assert payload == ARRAYS[item["name"]].tobytes()


def test_cut_at_every_byte() -> None:
    """R6, F9: a file cut anywhere is refused with FormatError that names the byte, never read in part."""
    data = small()
    for end in range(len(data)):
        with pytest.raises(FormatError) as caught:
            open_container(data[:end], flags=FLAG_SCENE, name="cut.scene")
        assert "cut.scene" in str(caught.value)
        assert end < 8 or str(end) in str(caught.value)


def test_every_flipped_byte_is_noticed() -> None:
    """R6, F19: each byte flipped in three ways is refused; padding counts, or bytes could be hidden there. Beyond the
    fields that say what kind of file it is, the refusal is about integrity."""
    data = small()
    kind = set(range(16)) | set(range(16, 24))  # magic, version, flags, file length
    for position in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            broken = bytearray(data)
            broken[position] ^= flip
            with pytest.raises((FormatError, IntegrityError)) as caught:
                open_container(bytes(broken), flags=FLAG_SCENE)
            assert position in kind or caught.type is IntegrityError, position


def test_random_bytes_and_trailing_bytes() -> None:
    """F9: noise is no container, and nothing may follow the end."""
    noise = random.Random(1)
    for size in (0, 1, 7, 8, 127, 128, 500):
        with pytest.raises(FormatError):
            open_container(noise.randbytes(size), flags=FLAG_SCENE)
        with pytest.raises((FormatError, IntegrityError)):
            open_container(MAGIC + noise.randbytes(size), flags=FLAG_SCENE)
    with pytest.raises(FormatError, match="1 bytes follow"):
        open_container(small() + b"\0", flags=FLAG_SCENE)


FORGERIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "outside": lambda table: entry(table, "road.xyz").update(offset=1 << 40),
    "overlapping": lambda table: entry(table, "road.xyz").update(offset=128),
    "negative offset": lambda table: entry(table, "road.xyz").update(offset=-64),
    "negative shape": lambda table: entry(table, "road.xyz").update(shape=[-4, -3]),
    "misaligned": lambda table: entry(table, "road.xyz").update(offset=entry(table, "road.xyz")["offset"] + 4),
    "too long": lambda table: entry(table, "road.xyz").update(shape=[400, 3], length=4800),
    "object dtype": lambda table: entry(table, "road.xyz").update(dtype="|O", length=96),
    "structured dtype": lambda table: entry(table, "road.xyz").update(dtype=[["a", "<f4"]]),
    "big-endian dtype": lambda table: entry(table, "road.xyz").update(dtype=">f4"),
    "shape overflow": lambda table: entry(table, "road.xyz").update(shape=[1 << 62, 1 << 62, 4]),
    "shape product overflow": lambda table: entry(table, "road.xyz").update(shape=[1 << 32, 1 << 32], length=0),
    "shape of bool": lambda table: entry(table, "road.xyz").update(shape=[True, 12]),
    "many axes": lambda table: entry(table, "road.xyz").update(shape=[12] + [1] * 40),
    "no shape": lambda table: entry(table, "road.xyz").pop("shape"),
    "unknown key": lambda table: entry(table, "road.xyz").update(extra=1),
    "name twice": lambda table: entry(table, "tracks.x").update(name="road.xyz"),
    "arrays not a list": lambda table: table.update(arrays={}),
    "entry not a mapping": lambda table: table.update(arrays=[1]),
    "missing table key": lambda table: table.pop("meta"),
    "hole before the table": lambda table: table.update(arrays=table["arrays"][:1]),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_tables_are_refused(forgery: str) -> None:
    """R12: a table with valid hashes may still lie; every number in it is compared with the file before use."""
    with pytest.raises((FormatError, IntegrityError)):
        open_container(edited(small(), FORGERIES[forgery]), flags=FLAG_SCENE)


def test_forged_content_digest() -> None:
    """S1: header and table must name the same content, or an altered header would rename a scene unnoticed."""
    data = edited(small(), lambda table: table.update(content="0" * 64))
    with pytest.raises(IntegrityError, match="content digest"):
        open_container(data, flags=FLAG_SCENE)


def test_table_must_be_canonical() -> None:
    """R13: one spelling per table, or two files of one content could differ; NaN and doubled keys are no JSON (R4)."""
    data = small()
    offset = struct.unpack_from("<Q", data, 24)[0]
    for raw in (b" " + data[offset:], b'{"a":1,"a":1}', b"[" * 100_000, b'{"a":NaN}', b"\xff"):
        head = bytearray(data[:128])
        struct.pack_into("<QQQ32s", head, 16, offset + len(raw), offset, len(raw), hashlib.sha256(raw).digest())
        with pytest.raises(FormatError):
            open_container(bytes(head) + data[128:offset] + raw, flags=FLAG_SCENE)


def test_bool_arrays_hold_only_zero_and_one() -> None:
    """R12: a bool of 2 is neither true nor false to compiled code."""
    data = encode(FLAG_SCENE, {}, {"x": np.array([2, 0], np.uint8)}, DIGEST)
    with pytest.raises(FormatError, match="bool"):
        open_container(edited(data, lambda table: entry(table, "x").update(dtype="|b1")), flags=FLAG_SCENE)


def test_kinds_and_versions() -> None:
    """R14, F19: another kind of file and another major version are refused naming both; a later minor is read."""
    with pytest.raises(FormatError, match="holds a scene, expected a map index"):
        open_container(small(), flags=FLAG_INDEX)
    other = bytearray(small())
    struct.pack_into("<H", other, 8, 2)
    with pytest.raises(FormatError, match=r"version 2\.0.*reads 1\.x"):
        open_container(bytes(other), flags=FLAG_SCENE)
    struct.pack_into("<HH", other, 8, 1, 1)
    with pytest.raises(IntegrityError, match="version"):
        open_container(bytes(other), flags=FLAG_SCENE)
    later = edited(bytes(other), lambda table: table.update(version=[1, 1]))
    assert open_container(later, flags=FLAG_SCENE).version == (1, 1)


def test_unknown_arrays() -> None:
    """R14: a later minor version may add arrays; optional ones are left out, others are refused by name."""
    extra = ARRAYS | {"road.extra": np.zeros(3, np.float32)}
    data = encode(FLAG_SCENE, META, extra, DIGEST, optional=["road.extra"])
    assert open_container(data, flags=FLAG_SCENE, known=ARRAYS).arrays.keys() == ARRAYS.keys()
    with pytest.raises(FormatError, match=r"'road\.extra' is not known"):
        open_container(encode(FLAG_SCENE, META, extra, DIGEST), flags=FLAG_SCENE, known=ARRAYS)
    with pytest.raises(FormatError, match=r"lacks the arrays tracks\.y"):
        open_container(small(), flags=FLAG_SCENE, known=[*ARRAYS, "tracks.y"])


def test_only_storable_values() -> None:
    """R11: integers and text only in the table: a float has many spellings, an object array is a pickle."""
    for meta in ({"a": 1.5}, {"a": True}, {"a": [None]}):
        with pytest.raises(TypeError):
            encode(FLAG_SCENE, meta, {}, DIGEST)
    for array in (np.array([None]), np.array(["text"]), np.zeros(2, np.complex64)):
        with pytest.raises(TypeError):
            encode(FLAG_SCENE, {}, {"x": array}, DIGEST)
    with pytest.raises(FormatError, match="limit"):
        encode(FLAG_SCENE, {"a": "x" * (5 << 20)}, {}, DIGEST)


def test_lazy_hashes_once_and_again_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: arrays are hashed on first opening, not again while size, time and inode stay, and always with `full`."""
    monkeypatch.setattr(container, "_hashed", {})
    path = tmp_path / "a.scene"
    data = bytearray(small())
    path.write_bytes(data)
    open_container(path, flags=FLAG_SCENE)
    times = os.stat(path)
    data[130] ^= 1  # inside the first array
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    open_container(path, flags=FLAG_SCENE)  # the price of laziness, which is why official runs say `full`
    with pytest.raises(IntegrityError, match="checksum of array"):
        open_container(path, flags=FLAG_SCENE, verify="full")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns + 1))
    with pytest.raises(IntegrityError, match="checksum of array"):
        open_container(path, flags=FLAG_SCENE)


def test_files_are_mapped_read_only(tmp_path: Path) -> None:
    """R12: arrays come from the page cache, shared by processes, and a write to them raises instead of spreading."""
    path = tmp_path / "a.scene"
    path.write_bytes(small())
    path.chmod(0o400)
    found = open_container(path, flags=FLAG_SCENE)
    base: Any = found.arrays["road.xyz"]
    while isinstance(base, np.ndarray):
        base = base.base
    assert type(base.obj).__name__ == "mmap"
    with pytest.raises(ValueError, match="read-only"):
        found.arrays["road.xyz"][0] = 1.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        found.arrays["road.xyz"].flags.writeable = True


def test_header_is_read_without_the_arrays(tmp_path: Path) -> None:
    """R12: listing a thousand scenes must not read their arrays; a damaged array is no matter for the header."""
    data = bytearray(small())
    data[130] ^= 1
    path = tmp_path / "a.scene"
    path.write_bytes(data)
    assert read_header(path, flags=FLAG_SCENE) == (META, DIGEST)


def test_odd_paths(tmp_path: Path) -> None:
    """F9: a missing file, a folder, a pipe and an empty file are errors in a sentence, and none of them hangs."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").write_bytes(b"")
    for name in ("missing", "pipe", "empty", "."):
        with pytest.raises(SkidpadError):
            open_container(tmp_path / name, flags=FLAG_SCENE)
