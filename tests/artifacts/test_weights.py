"""Checkpoint files: nothing of a damaged or foreign file is ever loaded."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.artifacts.weights import content_digest, decode_weights, encode_weights, load_weights, save_weights
from skidpad.errors import AlreadyThereError, CheckpointError, IntegrityError, SkidpadError

ARRAYS = {
    "layer.weight": np.arange(6, dtype="f4").reshape(2, 3),
    "layer.bias": np.zeros(2, "f4"),
    "count": np.array(3, "i8"),
}
META = {"kind": "driver", "step": 7, "scale": 0.5}


def test_round_trip_is_exact(tmp_path: Path) -> None:
    """What is loaded is what was saved, bit for bit and with its metadata: everything else rests on this."""
    digest = save_weights(tmp_path / "a.safetensors", ARRAYS, META)
    weights = load_weights(tmp_path / "a.safetensors")
    assert weights.digest == digest
    assert weights.meta == META
    assert {name: array.tobytes() for name, array in weights.arrays.items()} == {
        name: array.tobytes() for name, array in ARRAYS.items()
    }
    assert {name: array.shape for name, array in weights.arrays.items()} == {
        name: array.shape for name, array in ARRAYS.items()
    }


def test_equal_content_gives_equal_bytes() -> None:
    """Two metadata keys make safetensors files differ from save to save; one key must not, in any insertion order."""
    reordered = dict(reversed(ARRAYS.items()))
    assert {encode_weights(ARRAYS, META)[0] for _ in range(10)} == {encode_weights(reordered, META)[0]}


def test_flipped_byte_is_found_everywhere() -> None:
    """F30: safetensors itself loads a flipped data byte without complaint, so every byte of the file is tried."""
    data, _ = encode_weights(ARRAYS, META)
    refused = 0
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x01
        try:
            weights = decode_weights(bytes(damaged), "x")
        except SkidpadError:
            refused += 1
        else:  # A bit of white-space padding may change without changing anything that is read.
            assert weights.digest == content_digest(ARRAYS, META)
    assert refused > len(data) - 16


def test_cut_at_every_byte(tmp_path: Path) -> None:
    """F30: a checkpoint whose copying was interrupted is never partly loaded."""
    data, _ = encode_weights(ARRAYS, META)
    path = tmp_path / "cut.safetensors"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises((CheckpointError, IntegrityError)):
            load_weights(path)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    """F30: random bytes end in one of our errors, never in an exception of a parser."""
    with pytest.raises(SkidpadError):
        decode_weights(data, "x")


def test_pickles_are_refused_unread(tmp_path: Path) -> None:
    """F31: a hostile pickle runs code when it is loaded, so its first bytes are enough to refuse it."""
    fired = tmp_path / "fired"
    path = tmp_path / "hostile.pt"
    path.write_bytes(pickle.dumps(Hostile(str(fired)), protocol=4))
    with pytest.raises(CheckpointError, match="can run code"):
        load_weights(path)
    path.write_bytes(b"PK\x03\x04" + b"\0" * 100)
    with pytest.raises(CheckpointError, match="zip archive"):
        load_weights(path)
    assert not fired.exists()


class Hostile:
    """Creates a file when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (self.path, "w")


def test_foreign_safetensors_are_refused(tmp_path: Path) -> None:
    """F30, F31: a valid file of someone else carries no digest of ours; it is refused with what was expected."""
    from safetensors.numpy import save

    path = tmp_path / "foreign.safetensors"
    for metadata in (None, {"format": "pt"}, {"skidpad": "{}", "format": "pt"}):
        path.write_bytes(save(dict(ARRAYS), metadata=metadata))
        with pytest.raises(CheckpointError, match="expected exactly 'skidpad'"):
            load_weights(path)


def test_exchanged_metadata_is_found() -> None:
    """F30: the digest covers the metadata too; weights under another architecture's description are not loaded."""
    from safetensors.numpy import save

    _, digest = encode_weights(ARRAYS, META)
    document = json.dumps({"schema": "skidpad.weights/1", "digest": digest, "meta": {**META, "step": 8}})
    with pytest.raises(IntegrityError, match="content has digest"):
        decode_weights(save(dict(ARRAYS), metadata={"skidpad": document}), "x")


def test_file_name_is_no_part_of_the_content(tmp_path: Path) -> None:
    """E25: the same weights under two names are the same checkpoint; another step is another."""
    assert save_weights(tmp_path / "a", ARRAYS, META) == save_weights(tmp_path / "b", ARRAYS, META)
    assert save_weights(tmp_path / "c", ARRAYS, {**META, "step": 8}) != save_weights(tmp_path / "d", ARRAYS, META)


def test_existing_file_is_kept_unless_asked(tmp_path: Path) -> None:
    """F28: writing over a checkpoint is a decision, not an accident."""
    path = tmp_path / "a"
    save_weights(path, ARRAYS, META)
    with pytest.raises(AlreadyThereError):
        save_weights(path, ARRAYS, {**META, "step": 9})
    assert load_weights(path).meta["step"] == 7
    save_weights(path, ARRAYS, {**META, "step": 9}, overwrite=True)
    assert load_weights(path).meta["step"] == 9


def test_absent_file_and_odd_dtype() -> None:
    """F31: a missing file and an unsupported tensor are told in a sentence, on reading and on writing."""
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_weights(Path("nowhere.safetensors"))
    with pytest.raises(TypeError, match="complex64"):
        encode_weights({"a": np.zeros(1, "c8")}, {})
