"""The content hash is injective: two values share it only when they are the same value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.artifacts.digests import digest_value, encoded

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, 1.0, -1.5, 2.0]),
    st.text("ab1", max_size=3),
    st.binary(max_size=2),
    st.builds(
        lambda shape, dtype: np.arange(np.prod(shape), dtype=dtype).reshape(shape),
        st.sampled_from([(), (0,), (2,), (1, 2), (2, 1), (0, 2)]),
        st.sampled_from(["f4", "f8", "i4", "u1"]),
    ),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=8,
)


def spelled(value: Any) -> str:
    """A spelling that tells apart what the hash must tell apart."""
    if isinstance(value, np.ndarray):
        return f"array({value.dtype.str},{value.shape},{value.tobytes().hex()})"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(spelled(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{spelled(value[key])}" for key in sorted(value)) + "}"
    return f"{type(value).__name__}({value!r})"


@settings(max_examples=400)
@given(TREES, TREES)
def test_equal_hashes_mean_equal_values(a: Any, b: Any) -> None:
    """M33: no collision among nested structures; equal structures hash equally."""
    assert (digest_value(a, "x") == digest_value(b, "x")) == (spelled(a) == spelled(b))


def test_known_lookalikes() -> None:
    """M33: the pairs that careless hashes confuse."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    lookalikes = [
        ["ab", "c"], ["a", "bc"], ["abc"], [["ab"], "c"], ["ab", ["c"]], 1, 1.0, True, "1", b"1", None, "", [], {},
        [[]], {"a": None}, {"a": []}, ["a", None], array, array.T, array.astype(np.float64), array.reshape(3, 2),
        array.reshape(6), array.tolist(), np.zeros((0, 2), np.float32), np.zeros((2, 0), np.float32),
        np.array(1, np.float32), np.zeros(1, np.float32), {"ab": "c"}, {"a": "bc"},
    ]  # fmt: skip
    assert len({digest_value(value, "x") for value in lookalikes}) == len(lookalikes)


def test_what_does_not_matter() -> None:
    """M33: strides, byte order, device, insertion order and the library that holds an array do not matter; the kind
    does."""
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    same = [array.T, array.T.copy(), torch.from_numpy(array).T, array.T.astype(">f4")]
    assert len({digest_value(value, "x") for value in same}) == 1
    assert digest_value({"a": 1, "b": 2}, "x") == digest_value({"b": 2, "a": 1}, "x")
    assert digest_value((1, 2), "x") == digest_value([1, 2], "x")
    assert digest_value(1, "x") != digest_value(1, "y")
    if torch.cuda.is_available():
        assert digest_value(torch.ones(3).cuda(), "x") == digest_value(torch.ones(3), "x")


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, {1: 2}, object(), np.array([None]), 1j])
def test_refused_values(value: Any) -> None:
    """M33: NaN, sets, keys that are no text, objects: refused, never given some hash."""
    with pytest.raises((TypeError, ValueError)):
        digest_value([value], "x")


def test_old_digests_stay() -> None:
    """Digests in files on disk stay valid: a pinned tree keeps its hash, whatever is added for other types."""
    tree = {"a": [1, 2.5, None, True, "x", b"y"], "b": {"c": []}}
    assert digest_value(tree, "pinned") == "81817221ce74f60dd40d99cb97f69f6f66fe9bd05c4a7e0f90546c26f3121668"


def test_encoded_parts_digest_as_the_value() -> None:
    """A part that is encoded once for many values must give the digest it had: records of earlier runs name it."""
    part = {"a": [1, 2.5, None], "b": {"c": "text", "d": True}, "array": np.arange(3, dtype=np.int32)}
    assert digest_value({"x": encoded(part), "y": 1}, "test") == digest_value({"x": part, "y": 1}, "test")
    assert digest_value([encoded(part)], "test") != digest_value([encoded({**part, "a": []})], "test")
