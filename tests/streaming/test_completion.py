"""Completion: networks, Laplace, and that nothing observed is ever overwritten."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from mapper_world import TINY, camera_at, frames, single_thread
from torch.utils.flop_counter import FlopCounterMode

from skidpad.streaming.carrier import CONFIDENT, FastState, empty_state, measured_frame, view_of
from skidpad.streaming.completion import (
    CHANNELS,
    CompletionUNet,
    Harmonic,
    Layer,
    MeanField,
    completed,
    completion_inputs,
    padded_half,
)
from skidpad.streaming.feedback import render_view
from skidpad.streaming.presets import PRESETS
from skidpad.streaming.renderer import MeasurementRenderer
from skidpad.streaming.write_rule import write

CPU = torch.device("cpu")
RENDERER = MeasurementRenderer(64, 500, TINY.near, TINY.far)


@pytest.fixture(autouse=True, scope="module")
def _threads():
    with single_thread(), torch.no_grad():
        yield


def observed(count: int = 3) -> FastState:
    arrivals = frames(count)
    place = measured_frame(arrivals, TINY)
    state = empty_state(TINY, place, CPU, "")
    for arrival in arrivals:
        state, _ = write(state, view_of(arrival, place, TINY, CPU), None)
    return state


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "gpu")) for n in PRESETS])
def test_network_fits_every_preset(name: str) -> None:
    """M85: layer shapes of all presets, padded to multiples of 8 inside; outputs in their ranges; the declared
    multiply-adds are half of what torch counts."""
    preset = PRESETS[name]
    network = CompletionUNet().eval()
    counter = FlopCounterMode(display=False)
    with counter, torch.device("meta"):
        CompletionUNet()(torch.zeros(1, len(CHANNELS), *preset.half))
    distance, colour, confidence = network(torch.rand(1, len(CHANNELS), *preset.half))
    assert distance.shape[1:] == confidence.shape[1:] == torch.Size(preset.half)
    assert colour.shape[1:] == (3, *preset.half)
    assert distance.abs().max() <= 1
    assert 0 <= colour.min() <= colour.max() <= 1
    assert 0 <= confidence.min() <= confidence.max() <= 1
    assert all(count % 8 == 0 for count in padded_half(preset))
    assert counter.get_total_flops() == 2 * network.units(preset) == network.flops(preset)


def test_network_size() -> None:
    """M85: 0.66 M parameters and 0.73 G multiply-adds in the embedded preset: what budgets were chosen for."""
    network = CompletionUNet()
    assert sum(parameter.numel() for parameter in network.parameters()) == 662_957
    assert network.units(PRESETS["embedded"]) == 727_538_688


def test_input_channels_by_hand() -> None:
    """M85: the eleven channels of some cells, recomputed from the voxels under them."""
    state = observed()
    found = completion_inputs(state).numpy()
    assert found.shape == (11, *TINY.half)
    d, w = state.tensors["distance"].numpy(), state.tensors["weight"].numpy()
    c, cw = state.tensors["colour"].float().numpy(), state.tensors["colour_weight"].numpy()
    for cell in ((3, 4, 2), (10, 9, 6), (15, 12, 3), (19, 19, 11)):
        block = tuple(slice(2 * n, 2 * n + 2) for n in cell)
        known, coloured = w[block] > 0, cw[block] > 0
        want = [d[block][known].mean() if known.any() else 0, known.mean(), np.log1p(w[block]).mean()]
        want += [c[channel][block][coloured].mean() if coloured.any() else 0 for channel in range(3)]
        want += [coloured.mean(), *(2 * (cell[axis] + 0.5) / TINY.half[axis] - 1 for axis in range(3))]
        height = state.frame.corner[2] + (2 * cell[2] + 1) * TINY.voxel - state.frame.ground
        assert found[(slice(None), *cell)] == pytest.approx([*want, height / 2.5], abs=1e-5)


def random_layer(confidence: float) -> Layer:
    generator = torch.Generator().manual_seed(5)
    half = TINY.half
    return Layer(
        torch.rand(half, generator=generator) * 2 - 1,
        torch.rand((3, *half), generator=generator),
        torch.full(half, confidence),
    )


def test_nothing_observed_is_overwritten() -> None:
    """M57: under a random confident layer, the field at observed voxels and rays through observed cells only are
    unchanged; below the threshold of confidence the layer is not there."""
    state = observed()
    covered = completed(state, random_layer(1.0))
    known = state.tensors["weight"] > 0
    assert torch.equal(covered.read_out.distance[known], state.read_out.distance[known])
    assert not torch.equal(covered.read_out.distance, state.read_out.distance)
    assert torch.equal(covered.tensors["distance"], state.tensors["distance"])
    ignored = completed(state, random_layer(CONFIDENT - 1e-3))
    views = [render_view(one, RENDERER, camera_at(1.5), *TINY.image) for one in (state, ignored)]
    for plain, other in zip(*views, strict=True):
        assert torch.equal(plain, other)
    # All voxels observed: no ray can meet the layer.
    full = state.with_tensors(weight=torch.ones(TINY.shape), colour_weight=torch.ones(TINY.shape))
    views = [
        render_view(one, RENDERER, camera_at(1.5), *TINY.image) for one in (full, completed(full, random_layer(1.0)))
    ]
    for plain, other in zip(*views, strict=True):
        assert torch.equal(plain, other)


def test_unknown_is_empty_space() -> None:
    """M57: an unobserved state without a layer is empty, and a confident layer fills it."""
    place = measured_frame(frames(1), TINY)
    empty = empty_state(TINY, place, CPU, "")
    assert not render_view(empty, RENDERER, camera_at(0), *TINY.image).opacity.any()
    wall = torch.ones(TINY.half)
    wall[12:] = -1  # x is ahead of the first camera
    layer = Layer(wall, torch.full((3, *TINY.half), 0.5), torch.ones(TINY.half))
    found = render_view(completed(empty, layer), RENDERER, camera_at(0), *TINY.image)
    assert found.opacity[9, 12] > 0.9
    assert (found.rgb[:, 9, 12] - 0.5).abs().max() < 1e-3


def test_laplace_of_a_ramp() -> None:
    """M57: between two observed slabs the solution is the ramp; observed cells keep their values; an empty state gets
    no confidence."""
    state = empty_state(TINY, measured_frame(frames(1), TINY), CPU, "")
    distance, weight = torch.ones(TINY.shape), torch.zeros(TINY.shape)
    distance[:4], distance[12:] = -0.6, 0.6
    weight[:4], weight[12:] = 1, 1
    layer = Harmonic(sweeps=400).layer(state.with_tensors(distance=distance, weight=weight))
    ramp = torch.tensor([-0.6, -0.6, -0.36, -0.12, 0.12, 0.36, 0.6])
    assert (layer.distance[:7] - ramp[:, None, None]).abs().max() < 1e-4
    assert (layer.confidence == 1).all()
    assert (Harmonic().layer(state).confidence == 0).all()
    assert Harmonic().units(TINY) == 64 * 6 * 4 * 20 * 20 * 12


def test_mean_field_is_one_layer_for_all() -> None:
    """M82: MEAN_FIELD answers with what was stored, whatever was observed, and costs what the network costs."""
    stored = random_layer(1.0)
    network = CompletionUNet()
    control = MeanField(stored, network)
    for state in (observed(1), observed(3)):
        assert all(torch.equal(*pair) for pair in zip(control.layer(state), stored, strict=True))
    assert control.units(TINY) == network.units(TINY)
    assert control.flops(TINY) == 0


def test_layer_step() -> None:
    """M52: a layer remembers the step it was made at; its age is a feature of the writer."""
    state = replace(observed(1), step=4)
    assert state.layer_step == -1
    assert completed(state, random_layer(1.0)).layer_step == 4


def test_direct_convolution_is_the_convolution() -> None:
    """M85: the convolution that goes to oneDNN directly has the values and gradients of torch's own, to rounding."""
    from skidpad.streaming.completion import _Conv3d

    torch.manual_seed(2)
    layer = _Conv3d(11, 12, 3, padding=1, bias=False)
    results = []
    for function in (layer.forward, lambda values: torch.nn.Conv3d.forward(layer, values)):
        values = torch.linspace(-1, 1, 11 * 512).reshape(1, 11, 8, 8, 8).requires_grad_(True)
        layer.zero_grad()
        with torch.enable_grad():
            out = function(values)
            (out**2).sum().backward()
        results.append((out.detach(), values.grad, layer.weight.grad.clone()))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-3)
