"""Files of rollouts, npz and JSON, whole, broken and hostile; and the public submission layout (Q21, Q39)."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_world import world

from skidpad.artifacts.wire import fields
from skidpad.errors import AlreadyThereError, FormatError, SkidpadError
from skidpad.evaluation.metrics.realism import realism
from skidpad.evaluation.rollout_files import GROUPS, ROLLOUTS_SCHEMA, read_case, read_rollouts, write_rollouts
from skidpad.evaluation.rollouts import POSE, RolloutCase, Rollouts
from skidpad.evaluation.submission import read_submission
from skidpad.scenes.formats.source import Limits


def tree_of(case: RolloutCase, rollouts: Rollouts) -> dict:
    """The JSON layout of a case."""
    parts = {"rollouts": rollouts, "log": case.log, "edges": case.edges, "lights": case.lights}
    tree: dict = {"schema": ROLLOUTS_SCHEMA, "scenario_id": case.scenario_id}
    for group, part in parts.items():
        tree[group] = {name: np.asarray(getattr(part, name)).tolist() for name in GROUPS[group]}
    return tree


def same(a: object, b: object) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))


def test_npz_and_json_are_the_same_case(tmp_path: Path) -> None:
    """One layout in two dresses: what one of them loses would be a score that depends on the file's ending."""
    case, rollouts = world(0, count=2)
    write_rollouts(tmp_path / "a.npz", case, rollouts)
    (tmp_path / "a.json").write_text(json.dumps(tree_of(case, rollouts)))
    for name in ("a.npz", "a.json"):
        found, moved = read_rollouts(tmp_path / name)
        assert found.scenario_id == "world-0"
        assert same(moved, rollouts)
        assert same(found.log, case.log)
        assert same(found.edges, case.edges)
        assert same(found.lights, case.lights)
    with pytest.raises(AlreadyThereError):
        write_rollouts(tmp_path / "a.npz", case)


def test_the_document_lists_every_array() -> None:
    """docs/formats.md is the layout people write; an array that it lacks is one that nobody can hand over."""
    document = (Path(__file__).parents[2] / "docs" / "formats.md").read_text("utf-8")
    section = document.split("## Rollouts")[1].split("\n## ")[0]
    assert ROLLOUTS_SCHEMA in section
    for group, names in GROUPS.items():
        rows = [line for line in section.splitlines() if line.startswith(f"| `{group}.")]
        for name in names:
            assert any(f"`{group}.{name}`" in row or f"`.{name}`" in row for row in rows), f"{group}.{name}"


def test_what_a_source_lacks_stays_missing(tmp_path: Path) -> None:
    """A case without edges or lights scores as missing, and a file without rollouts is a case."""
    case, rollouts = world(0, count=2)
    write_rollouts(tmp_path / "case.npz", RolloutCase("bare", case.log))
    found = read_case(tmp_path / "case.npz")
    assert (found.edges, found.lights) == (None, None)
    with pytest.raises(FormatError, match="a case without rollouts"):
        read_rollouts(tmp_path / "case.npz")
    tree = tree_of(case, rollouts) | {"lights": None}
    assert read_case(json.dumps(tree).encode(), name="x.json").lights is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tree: tree.pop("schema"), "schema None"),
        (lambda tree: tree.update(schema="skidpad.rollouts/2"), "rollouts/2"),
        (lambda tree: tree.pop("log"), "no log"),
        (lambda tree: tree["log"].pop("valid"), "missing array log.valid"),
        (lambda tree: tree["log"].update(vaild=[]), "did you mean 'log.valid'"),
        (lambda tree: tree.update(light={}), "did you mean 'lights'"),
        (lambda tree: tree["log"].update(x="far"), "log.x"),
        (lambda tree: tree["log"].update(current_step=1.5), "current_step"),
        (lambda tree: tree["log"].update(scored=[99]), "names row 99"),
        (lambda tree: tree["log"]["x"].pop(), "N = "),
        (lambda tree: tree["rollouts"]["x"][0][0].pop(), "rectangular"),
        (lambda tree: tree["edges"].update(offset=[0, 3]), "ascending numbers"),
        (lambda tree: tree["lights"].update(signal_lane=[7, 0]), "a lane number"),
        (lambda tree: tree.update(edges=[1]), "no object of arrays"),
    ],
)
def test_broken_files_name_the_array(change, message: str) -> None:
    """F: a misspelt or missing array is named with what was expected, whoever reads it."""
    tree = tree_of(*world(0, count=2))
    change(tree)
    with pytest.raises(FormatError, match=message):
        read_rollouts(json.dumps(tree).encode(), name="a.json")


def test_neither_npz_nor_json() -> None:
    """Wrong files are refused by what they are."""
    for data in (b"\x93NUMPY", b"[1, 2]", b'{"a": NaN}', b"\xff\xfe", b"PK\x03\x04" + bytes(50)):
        with pytest.raises(FormatError):
            read_case(data, name="a")


def npz(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def test_an_npz_cannot_claim_more_than_it_has() -> None:
    """F14: a header of terabytes, an object array (a pickle), and a bomb cost an error, not memory or a shell."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117) + b"\n"
    lying = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    with pytest.raises(FormatError, match="does not fit"):
        read_case(npz(**{"log.x": lying}), name="a.npz")
    pickled = io.BytesIO()
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(FormatError, match="no plain array"):
        read_case(npz(**{"log.x": pickled.getvalue()}), name="a.npz")
    with pytest.raises(FormatError, match="decompressed bytes"):
        read_case(npz(**{"log.x": bytes(1 << 20)}), name="a.npz", limits=Limits(decompressed_bytes=1 << 16))


def test_every_cut_of_an_npz_is_an_error(tmp_path: Path) -> None:
    """A torn download must not score."""
    case, _ = world(0, count=1, objects=2)
    write_rollouts(tmp_path / "a.npz", RolloutCase("a", case.log))
    data = (tmp_path / "a.npz").read_bytes()
    for size in range(1, len(data) - 1, max(1, len(data) // 60)):
        with pytest.raises(FormatError):
            read_case(data[:size], name="a.npz")


# -- the public submission layout ---------------------------------------------------------------------------------


def varint(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def nested(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def trajectory(number: int, poses, *, packed: bool = True) -> bytes:
    out = b""
    for field, series in zip((2, 3, 4, 5), poses, strict=True):
        raw = np.asarray(series, dtype="<f4").tobytes()
        unpacked = b"".join(varint(field << 3 | 5) + raw[k : k + 4] for k in range(0, len(raw), 4))
        out += nested(field, raw) if packed else unpacked
    return out + varint(6 << 3) + varint(number)


def submission(*scenarios: tuple[str, Rollouts], packed: bool = True, extra: bytes = b"") -> bytes:
    """An encoder of our own, written from the schema."""
    out = extra
    for name, made in scenarios:
        scenes = b""
        for r in range(made.count):
            inner = b"".join(
                nested(1, trajectory(int(i), [getattr(made, a)[r, n] for a in POSE], packed=packed))
                for n, i in enumerate(made.object_id)
            )
            scenes += nested(2, inner)
        out += nested(1, scenes + nested(1, name.encode()))
    return out + extra


def test_a_submission_scores_like_its_arrays(tmp_path: Path) -> None:
    """Issue 8: the files people have already; packed and unpacked, compressed, with fields that nobody knows."""
    case, rollouts = world(0)
    other = world(1, count=2)[1]
    unknown = nested(4, b"method") + varint(2 << 3) + varint(1) + varint(99 << 3 | 1) + bytes(8)
    data = submission((case.scenario_id, rollouts), ("second", other), extra=unknown)
    (tmp_path / "a.binproto").write_bytes(data)
    (tmp_path / "a.binproto.gz").write_bytes(gzip.compress(data))
    for path in sorted(tmp_path.iterdir()):
        found = read_submission(path)
        assert list(found) == ["world-0", "second"]
        assert same(found["world-0"], rollouts)
        assert same(found["second"], other)
    loose = read_submission(submission(("second", other), packed=False), name="loose")
    assert same(loose["second"], other)
    ours = realism(rollouts, case.log, case.edges, case.lights)
    assert realism(read_submission(data)["world-0"], case.log, case.edges, case.lights) == ours


def test_objects_may_come_in_any_order() -> None:
    """A set of trajectories has no order; negative ids are ids."""
    _, made = world(0, count=2, objects=3)
    made = dataclasses.replace(made, object_id=np.array([-5, 7, 3]))
    scenes = b""
    for r, order in enumerate(([0, 1, 2], [2, 0, 1])):
        scenes += nested(
            2,
            b"".join(
                nested(1, trajectory(int(made.object_id[n]), [getattr(made, a)[r, n] for a in POSE])) for n in order
            ),
        )
    found = read_submission(nested(1, nested(1, b"s") + scenes))["s"]
    assert found.object_id.tolist() == [-5, 3, 7]
    assert np.array_equal(found.x, made.x[:, [0, 2, 1]])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (nested(4, b"only a name"), "no scenario"),
        (nested(1, nested(2, b"")), "has no id"),
        (nested(1, nested(1, b"s")), "has no joint scene"),
        (nested(1, nested(1, b"s") + nested(2, nested(1, nested(2, bytes(4))))), "without object id"),
        (nested(1, nested(1, b"s") + nested(2, nested(1, trajectory(1, [[0.0]] * 4)) * 2)), "two trajectories"),
        (
            nested(
                1,
                nested(1, b"s")
                + nested(2, nested(1, trajectory(1, [[0.0]] * 4)))
                + nested(2, nested(1, trajectory(2, [[0.0]] * 4))),
            ),
            "other objects",
        ),
        (nested(1, nested(1, b"s") + nested(2, nested(1, trajectory(1, [[0.0]] * 3 + [[0.0, 1.0]])))), "lengths"),
        (nested(1, nested(1, b"s") + nested(2, nested(1, trajectory(1, [[np.nan]] * 4)))), "not finite"),
        (nested(1, nested(1, b"s") + nested(2, nested(1, nested(2, bytes(3))))), "no 32-bit floats"),
        (varint(1 << 3 | 3), "wire type 3"),
        (varint(1 << 3 | 2) + varint(1 << 40), "are left"),
        (b"\xff" * 11, "varint"),
        (nested(1, nested(1, b"s") + nested(2, nested(1, trajectory(1, [[0.0]] * 4)))) * 2, "occurs twice"),
        (b"a" * 257 + b"ustar" + bytes(300), "tar archive"),
    ],
)
def test_hostile_submissions(data: bytes, message: str) -> None:
    """Each is refused with the byte and what was expected, before anything is allocated by its word."""
    with pytest.raises(FormatError, match=message):
        read_submission(data, name="s")


def test_submissions_are_bounded() -> None:
    """A row or object too many is named with its limit."""
    _, made = world(0, count=1, objects=3)
    data = submission(("s", made))
    with pytest.raises(FormatError, match="rows is 80"):
        read_submission(data, limits=Limits(rows=79))
    with pytest.raises(FormatError, match="tracks is 3"):
        read_submission(data, limits=Limits(tracks=2))


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=80), st.integers(0, 400), st.integers(1, 255))
def test_any_bytes_are_read_or_refused(noise: bytes, at: int, flip: int) -> None:
    """Fuzz: random bytes, and a good file with one byte changed, end in rollouts or in one of our errors."""
    made = world(0, count=1, objects=1)[1]
    good = bytearray(submission(("s", made)))
    good[at % len(good)] ^= flip
    for data in (noise, bytes(good)):
        try:
            read_submission(data, name="fuzz")
        except SkidpadError:
            continue


def test_fields_of_a_message() -> None:
    """The walk itself: numbers, kinds, signed integers, offsets."""
    data = (
        varint(6 << 3) + varint(-2) + nested(2, b"ab") + varint(3 << 3 | 5) + bytes(4) + varint(4 << 3 | 1) + bytes(8)
    )
    found = list(fields(memoryview(data), 100))
    assert [(f.number, f.kind) for f in found] == [(6, 0), (2, 2), (3, 5), (4, 1)]
    assert found[0].integer() == -2
    assert bytes(found[1].message()) == b"ab"
    assert found[1].offset == 111
    with pytest.raises(FormatError, match="no message"):
        found[0].message()
    with pytest.raises(FormatError, match="no integer"):
        found[1].integer()
    with pytest.raises(FormatError, match="no 32-bit floats"):
        found[3].floats()
