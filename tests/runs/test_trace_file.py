"""Traces read back from disk are the traces that were written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from skidpad.artifacts.container import FLAG_SCENE, encode
from skidpad.errors import AlreadyThereError, FormatError, IntegrityError, SkidpadError
from skidpad.runs.trace import TRACE_ARRAYS, Trace, TraceMeta
from skidpad.runs.trace_file import encode_trace, read_trace, write_trace

SIZES = {"D": 3, "V": 1, "K": 4, "R": 1, "T": 4, "N": 3, "M": 2, "G": 2, "S": 1, "Q": 2, "U": 3, "A": 2, "3": 3, "2": 2}


def example_trace(seed: int = 0) -> Trace:
    generator = np.random.default_rng(seed)
    arrays = {}
    for spec in TRACE_ARRAYS:
        shape = tuple(SIZES[axis] for axis in spec.shape.split(","))
        arrays[spec.name] = generator.integers(0, 2, shape).astype(spec.dtype)
    meta = TraceMeta(
        case="c" * 20,
        arm="idm",
        evaluator="validation",
        scene_id="<script>\n",
        scene_digest="d" * 64,
        dt_us=100_000,
        start_row=0,
        action_selection="deterministic",
        profile="clean",
        ego=-1,
        ego_rule="",
        end_reason="length",
        settings={"dt": 0.1, "max_controlled": None, "idm": {"headway": 1.5}, "flag": True},
        observed={
            "layout": "x/1",
            "blocks": [{"name": "ego", "rows": 1, "features": [["speed", "m/s", 40.0, -1.0, 1.0]]}],
        },
        state_hash=("a" * 16, "b" * 16, "c" * 16, "d" * 16),
    )
    return Trace(meta, arrays)


def test_round_trip_keeps_every_array_and_the_digest(tmp_path: Path) -> None:
    """E118: metrics, pages and checks read traces from disk, so nothing of one may change on the way."""
    trace = example_trace()
    write_trace(trace, tmp_path / "a.trace")
    back = read_trace(tmp_path / "a.trace")
    assert back.meta == trace.meta
    assert back.digest == trace.digest
    for spec in TRACE_ARRAYS:
        assert back[spec.name].dtype == trace[spec.name].dtype
        assert np.array_equal(back[spec.name], trace[spec.name])


def test_equal_traces_give_equal_bytes() -> None:
    """R13, E102: a regenerated trace file is byte-equal, so resuming changes no file."""
    assert encode_trace(example_trace()) == encode_trace(example_trace())
    assert encode_trace(example_trace()) != encode_trace(example_trace(1))


def test_any_flipped_byte_is_found() -> None:
    """E118, F45: a trace decides what a page shows; an edit anywhere in its file is an error."""
    data = encode_trace(example_trace())
    for at in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        with pytest.raises(SkidpadError):
            read_trace(bytes(damaged))


def test_digest_is_recomputed() -> None:
    """E105: a file whose checksums hold but whose content is not that of its digest was put together by hand."""
    trace = example_trace()
    other = replace(trace.meta, arm="log")
    meta = {
        **vars(other),
        "schema": "skidpad.trace/3",
        "settings": "{}",
        "observed": "{}",
        "state_hash": list(other.state_hash),
    }
    with pytest.raises(IntegrityError, match="holds trace"):
        read_trace(encode(2, meta, trace.arrays, trace.digest))


def test_other_files_are_refused(tmp_path: Path) -> None:
    """E118: a scene, a foreign schema, an incomplete table and an absent file are told apart from a trace."""
    trace = example_trace()
    meta = {**vars(trace.meta), "schema": "skidpad.trace/9", "settings": "{}", "observed": "{}", "state_hash": []}
    with pytest.raises(FormatError, match=r"skidpad\.trace/3"):
        read_trace(encode(2, meta, trace.arrays, trace.digest))
    with pytest.raises(FormatError, match="holds a scene"):
        read_trace(encode(FLAG_SCENE, {}, {}, "0" * 64))
    fewer = {name: array for name, array in trace.arrays.items() if name != "x"}
    with pytest.raises(FormatError, match="lacks the arrays x"):
        read_trace(encode(2, {**meta, "schema": "skidpad.trace/3"}, fewer, trace.digest))
    with pytest.raises(FormatError, match="cannot be opened"):
        read_trace(tmp_path / "absent.trace")


def test_a_kept_trace_is_not_overwritten_unless_asked(tmp_path: Path) -> None:
    """E90: what a page shows must not change under it by accident."""
    write_trace(example_trace(), tmp_path / "a.trace")
    with pytest.raises(AlreadyThereError):
        write_trace(example_trace(1), tmp_path / "a.trace")
    write_trace(example_trace(1), tmp_path / "a.trace", overwrite=True)
    assert read_trace(tmp_path / "a.trace").digest == example_trace(1).digest
