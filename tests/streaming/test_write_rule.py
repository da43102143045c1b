"""The classical write and the gate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mapper_world import TINY, frame, frames, single_thread

from skidpad.streaming.camera import project
from skidpad.streaming.carrier import FastState, View, empty_state, measured_frame, view_of
from skidpad.streaming.write_rule import FEATURES, MAX_WEIGHT, Gate, fuse_flops, fused, gate_features, touched

CPU = torch.device("cpu")
SMALL = replace(TINY, shape=(20, 20, 12), voxel=0.28)


@pytest.fixture(autouse=True, scope="module")
def _threads():
    with single_thread():
        yield


def opened(count: int = 4, preset=SMALL) -> tuple[FastState, list[View]]:
    arrivals = frames(count)
    place = measured_frame(arrivals, preset)
    return empty_state(preset, place, CPU, ""), [view_of(arrival, place, preset, CPU) for arrival in arrivals]


def naive_write(d: np.ndarray, w: np.ndarray, unsure: np.ndarray, state: FastState, view: View) -> None:
    """Curless and Levoy, voxel by voxel, in double; marks voxels that project onto a border between pixels."""
    preset = state.preset
    depth = view.depth.numpy().astype(float)
    for i in range(preset.shape[0]):
        for j in range(preset.shape[1]):
            for k in range(preset.shape[2]):
                centre = state.frame.corner + (np.array([i, j, k]) + 0.5) * preset.voxel
                pixel, z = project(view.camera, centre)
                column, row = int(np.floor(pixel[0])), int(np.floor(pixel[1]))
                unsure[i, j, k] |= bool((np.abs(pixel - np.round(pixel)) < 1e-4).any())
                if z <= 0 or not (0 <= column < depth.shape[1] and 0 <= row < depth.shape[0]):
                    continue
                seen = depth[row, column]
                if seen <= 0 or seen - z <= -preset.truncation:
                    continue
                s = min(max((seen - z) / preset.truncation, -1.0), 1.0)
                d[i, j, k] = (w[i, j, k] * d[i, j, k] + s) / (w[i, j, k] + 1)
                w[i, j, k] = min(w[i, j, k] + 1, MAX_WEIGHT)


def test_classical_write_is_a_triple_loop() -> None:
    """M54: the vectorised write equals a loop over voxels, with a hole in the depth. The grid is aligned with the first
    camera, so a few voxels lie on borders between pixels and may fall to either side."""
    state, views = opened(2)
    holed = views[1].depth.clone()
    holed[3:9, 4:12] = 0
    views[1] = replace(views[1], depth=holed)
    d, w, unsure = np.ones(SMALL.shape), np.zeros(SMALL.shape), np.zeros(SMALL.shape, bool)
    for view in views:
        state, count = fused(state, view, None)
        naive_write(d, w, unsure, state, view)
        assert count == len(touched(state, view).index) > 500
    assert unsure.mean() < 0.1
    assert np.abs(state.tensors["distance"].numpy() - d)[~unsure].max() < 1e-5
    assert np.array_equal(state.tensors["weight"].numpy()[~unsure], w[~unsure])


def test_order_of_frames_changes_only_rounding() -> None:
    """M54: below the largest weight an average does not depend on the order of its terms."""
    state, views = opened()
    forward, backward = state, state
    for view in views:
        forward, _ = fused(forward, view, None)
    for view in reversed(views):
        backward, _ = fused(backward, view, None)
    for name, tolerance in (("distance", 1e-5), ("weight", 0.0), ("colour", 2e-3)):
        difference = (forward.tensors[name].float() - backward.tensors[name].float()).abs().max()
        assert difference <= tolerance, name


def test_weight_saturates() -> None:
    """M54: weights stop at the largest one, so that a state never becomes deaf."""
    state, views = opened(1)
    for _ in range(int(MAX_WEIGHT) + 3):
        state, _ = fused(state, views[0], None)
    assert state.tensors["weight"].max() == MAX_WEIGHT


def test_untrained_gate_is_the_classical_write() -> None:
    """M55, M59: an untrained gate departs from the classical write by less than 1e-3 after 12 frames, in colour too."""
    assert sum(parameter.numel() for parameter in Gate().parameters()) == 1443
    state, views = opened(12)
    plain, gated = state, state
    gate = Gate().eval()
    with torch.no_grad():
        for step, view in enumerate(views):
            plain, _ = fused(replace(plain, step=step), view, None)
            gated, _ = fused(replace(gated, step=step), view, gate)
    for name in ("distance", "colour"):
        assert (plain.tensors[name].float() - gated.tensors[name].float()).abs().max() < 1e-3, name


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.floats(0.1, 300.0))
def test_any_gate_keeps_the_state_in_range(seed: int, scale: float) -> None:
    """M55: whatever the weights, d stays in [-1, 1] and w in [0, w_max], all finite; w > 0 wherever d was written."""
    state, views = opened(3)
    gate = Gate()
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in gate.parameters():
            parameter.normal_(0, scale)
        for step, view in enumerate(views):
            state, _ = fused(replace(state, step=step), view, gate)
    distance, weight = state.tensors["distance"], state.tensors["weight"]
    assert torch.isfinite(distance).all()
    assert distance.abs().max() <= 1 + 1e-6
    assert weight.min() >= 0
    assert weight.max() <= MAX_WEIGHT
    assert (distance[weight == 0] == 1).all()


def gate_that_says(g: float, keep: float, erase: float) -> Gate:
    gate = Gate()
    with torch.no_grad():
        gate.layers[-1].bias.copy_(torch.logit(torch.tensor([g / 2, keep, erase]), eps=1e-7))
    return gate.eval()


def test_forgetting_replaces() -> None:
    """M55: with lambda near 0 the new view replaces what was held: a car that left is forgotten."""
    state, views = opened(3)
    with torch.no_grad():
        old, _ = fused(state, views[0], None)
        replaced, _ = fused(old, views[2], gate_that_says(1.0, 1e-9, 0.0))
        fresh, _ = fused(state, views[2], None)
    hit = touched(state, views[2]).index
    difference = replaced.tensors["distance"].view(-1)[hit] - fresh.tensors["distance"].view(-1)[hit]
    assert difference.abs().max() < 1e-4


def test_see_through_erases_a_removed_box() -> None:
    """M55: with r = 1, held surface that the ray now sees through becomes free space at once; with r = 0 it lingers."""
    state, views = opened(1)
    blocked = replace(views[0], depth=views[0].depth * 0.5)
    with torch.no_grad():
        held = state
        for _ in range(5):
            held, _ = fused(held, blocked, None)
        hit = touched(held, views[0])
        surface = (hit.s >= 1) & (held.tensors["distance"].view(-1)[hit.index] < 0.2)
        assert surface.sum() > 10
        at = hit.index[surface]
        cleared = fused(held, views[0], gate_that_says(1.0, 1 - 1e-7, 1 - 1e-7))[0].tensors["distance"].view(-1)[at]
        lingers = fused(held, views[0], gate_that_says(1.0, 1 - 1e-7, 0.0))[0].tensors["distance"].view(-1)[at]
    assert (cleared > 0.99).all()
    assert (lingers < 0.6).all()


def test_gate_features_by_hand() -> None:
    """M55: the eight features at some voxels, recomputed one by one from their names; incidence on a flat wall is the
    ray's cosine to its normal."""
    assert len(FEATURES) == 8
    state, views = opened(2)
    state, _ = fused(replace(state, step=3), views[0], None)
    state = replace(state, step=5)
    hit = touched(state, views[1])
    colour = views[1].rgb.reshape(3, -1)[:, hit.pixel]
    found = gate_features(state, views[1], hit, colour).numpy()
    d, w = state.tensors["distance"].view(-1).numpy(), state.tensors["weight"].view(-1).numpy()
    for n in range(0, len(hit.index), 37):
        voxel = int(hit.index[n])
        s = float(hit.s[n])
        assert found[n, 0] == pytest.approx(np.log1p(w[voxel]), rel=1e-6)
        assert found[n, 1] == pytest.approx(s - d[voxel], abs=1e-6)
        assert found[n, 2] == pytest.approx(abs(s - d[voxel]), abs=1e-6)
        assert found[n, 3] == pytest.approx(float(hit.z[n]) / SMALL.far, rel=1e-6)
        assert 0 <= found[n, 4] <= 1 + 1e-6
        assert found[n, 5] in (0.0, 1.0)
        assert found[n, 7] == pytest.approx(2 / 8 if w[voxel] else 0.0)
    flat = replace(views[0], depth=torch.full(SMALL.image, 2.0))
    flat_hit = touched(state, flat)
    cosine = gate_features(state, flat, flat_hit, flat.rgb.reshape(3, -1)[:, flat_hit.pixel])[:, 4]
    assert cosine.max() == pytest.approx(1.0, abs=0.01)
    assert cosine.min() > 0.6


def test_flops_grow_with_what_is_touched() -> None:
    """M64: FLOPs of a write follow the touched voxels and the network; declared units do not."""
    state, _ = opened(1)
    network = sum(2 * layer.weight.numel() for layer in Gate().layers if isinstance(layer, torch.nn.Linear))
    assert network == 2 * (8 * 32 + 32 * 32 + 32 * 3)
    assert fuse_flops(state, 10, Gate()) - fuse_flops(state, 0, Gate()) == 10 * (33 + 22 + network)
    assert fuse_flops(state, 10, None) - fuse_flops(state, 0, None) == 330


def test_frames_of_the_helper_agree() -> None:
    """The tests' own frames are what their formulas say: an observation's depth is positive everywhere in a room."""
    assert (frame(3).depth > 0.1).all()
