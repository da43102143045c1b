"""Arms of sealed runs, and what is made of renders alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skidpad.streaming.arguments import CONTROLS
from skidpad.streaming.arms import arms_of, constant, harmonic_fill
from skidpad.streaming.policies import POLICIES


def swept(image: np.ndarray, known: np.ndarray, sweeps: int = 2000) -> np.ndarray:
    """Laplace's equation by averaging neighbours over and over."""
    found = np.where(known, image, image[known].mean())
    for _ in range(sweeps):
        near = np.pad(found, 1, mode="edge")
        mean = (near[1:-1, 2:] + near[1:-1, :-2] + near[2:, 1:-1] + near[:-2, 1:-1]) / 4
        found = np.where(known, image, mean)
    return found


def test_arms_stand_in_one_order() -> None:
    """M82, M103: each control stands beside every arm it is for; the order in which they are named changes nothing."""
    names = [arm.name for arm in arms_of(["ALL", "OFF", "FUSE"], list(CONTROLS))]
    assert names == [
        *("OFF", "FUSE", "ALL", "CACHE", "CONSTANT_DEPTH", "OFF+HARMONIC_FILL", "FUSE+HARMONIC_FILL"),
        *("ALL+MEAN_FIELD", "FUSE+SHUFFLED_POSES", "ALL+WRONG_SCENE"),
    ]
    assert names == [arm.name for arm in arms_of(["FUSE", "ALL", "OFF"], list(CONTROLS)[::-1])]
    assert [arm.name for arm in arms_of(POLICIES, [])] == list(POLICIES)
    assert {arm.kind for arm in arms_of(["OFF"], ["CACHE"])} == {"policy", "control"}


def test_a_ramp_is_filled_exactly() -> None:
    """M82: a linear ramp is harmonic, so a hole in it is filled with the ramp itself, however large."""
    ramp = np.add.outer(0.3 * np.arange(20), 0.1 * np.arange(30)) + 1.0
    known = np.ones(ramp.shape, bool)
    known[3:17, 4:26] = False
    filled = harmonic_fill(np.stack([np.where(known, ramp, 99.0), np.where(known, -ramp, 99.0)]), known)
    np.testing.assert_allclose(filled, [ramp, -ramp], atol=1e-9)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_fill_equals_sweeps(seed: int) -> None:
    """M82: the direct solution is what averaging neighbours for ever would give, holes at the border included."""
    rng = np.random.default_rng(seed)
    image, known = rng.uniform(0.5, 5.0, (5, 6)), rng.random((5, 6)) < 0.4
    known[rng.integers(5), rng.integers(6)] = True
    np.testing.assert_allclose(harmonic_fill(image[None], known)[0], swept(image, known), atol=1e-6)


def test_fill_keeps_what_is_known_and_needs_some() -> None:
    """M82: covered pixels stay as they are; with none there is nothing to fill from."""
    image = np.arange(12.0).reshape(1, 3, 4)
    np.testing.assert_array_equal(harmonic_fill(image, np.ones((3, 4), bool)), image)
    with pytest.raises(ValueError, match="nothing to fill"):
        harmonic_fill(image, np.zeros((3, 4), bool))


def test_constant_covers_nothing() -> None:
    """M82: CONSTANT_DEPTH says the fallback everywhere and claims to have seen nothing."""
    depth, rgb, opacity = constant(2.5, (0.1, 0.2, 0.3), 2, 3)
    assert depth.tolist() == [[2.5] * 3] * 2
    assert not opacity.any()
    np.testing.assert_allclose(rgb[:, 1, 2], [0.1, 0.2, 0.3], rtol=1e-6)
