"""The completion layer: a guess, at half resolution, of what was not observed.

Three ways make it. The U-Net is learned. `Harmonic` solves Laplace's equation between observed cells, with nothing
learned. `MeanField` is the control: the same guess for every scene. All of them read the observed state only, so the
layer of a state depends on nothing that happened to earlier layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from skidpad.streaming.blocks import spread
from skidpad.streaming.carrier import FastState
from skidpad.streaming.presets import Preset

CHANNELS = (
    "distance, 0 where unknown",
    "known share",
    "log of 1 + weight",
    "red",
    "green",
    "blue",
    "colour known share",
    "x over the grid, -1 to 1",
    "y over the grid, -1 to 1",
    "z over the grid, -1 to 1",
    "height above ground over 2.5 m",
)
LEVELS = (12, 24, 48, 72)
GROUPS = 4
PADDING = 8  # each side is padded to a multiple of this, for three halvings
HEIGHT_M = 2.5
SWEEPS = 64
_NEIGHBOURS = 6


class Layer(NamedTuple):
    """distance (x, y, z) in [-1, 1], colour (3, x, y, z) and confidence (x, y, z) in [0, 1]."""

    distance: Tensor
    colour: Tensor
    confidence: Tensor


class Completion(Protocol):
    """What makes a layer from an observed state, and what it declares to cost."""

    def layer(self, state: FastState) -> Layer: ...
    def units(self, preset: Preset) -> int: ...
    def flops(self, preset: Preset) -> int: ...


def _pooled(values: Tensor) -> Tensor:
    """Half the resolution of a grid (C, X, Y, Z), or of blocks (C, B, b, b, b)."""
    return functional.avg_pool3d(values, 2) if values.ndim == 5 else functional.avg_pool3d(values[None], 2)[0]


def observed_half(state: FastState) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The observed state at half resolution: distance (1, x, y, z) where known else 0, known share (1, ...), log
    weight (1, ...), colour (3, ...) where known else 0, colour known share (1, ...)."""
    tensors = state.tensors
    known = (tensors["weight"] > 0).float()[None]
    coloured = (tensors["colour_weight"] > 0).float()[None]
    share, colour_share = _pooled(known), _pooled(coloured)
    distance = _pooled(tensors["distance"][None] * known) / share.clamp_min(1e-6)
    colour = _pooled(tensors["colour"].float() * coloured) / colour_share.clamp_min(1e-6)
    found = distance, share, _pooled(torch.log1p(tensors["weight"])[None]), colour, colour_share
    if state.preset.block is None:
        return found
    a, b, c, d, e = (spread(state, values) for values in found)
    return a, b, c, d, e


def completion_inputs(state: FastState) -> Tensor:
    """(11, x, y, z) channels in the order of `CHANNELS`."""
    distance, share, weight, colour, colour_share = observed_half(state)
    half, preset = state.preset.half, state.preset
    axes = [torch.linspace(-1 + 1 / count, 1 - 1 / count, count, device=state.device) for count in half]
    place = torch.stack(torch.meshgrid(*axes, indexing="ij"))
    centre = float(state.frame.corner[2]) + 0.5 * preset.shape[2] * preset.voxel
    height = (place[2:] * (0.5 * preset.shape[2] * preset.voxel) + (centre - state.frame.ground)) / HEIGHT_M
    return torch.cat([distance, share, weight, colour, colour_share, place, height])


class _Conv3d(torch.nn.Conv3d):
    """A 3x3x3 convolution that asks oneDNN directly on the CPU.

    Of a single sample with few channels torch takes its own loop instead, which is five times slower at these sizes;
    values agree to rounding, gradients are defined.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.device.type != "cpu" or input.dtype != torch.float32 or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            return super().forward(input)
        ones = (1, 1, 1)
        found: Tensor = torch.mkldnn_convolution(input, self.weight, None, ones, ones, ones, 1)
        return found


def _convolution(inputs: int, outputs: int) -> torch.nn.Sequential:
    return torch.nn.Sequential(
        _Conv3d(inputs, outputs, 3, padding=1, bias=False),
        torch.nn.GroupNorm(GROUPS, outputs),
        torch.nn.ReLU(inplace=True),
    )


def padded_half(preset: Preset) -> tuple[int, int, int]:
    """Cells the network computes on."""
    x, y, z = (-(-count // PADDING) * PADDING for count in preset.half)
    return x, y, z


class CompletionUNet(torch.nn.Module):
    """Four levels of 12, 24, 48 and 72 channels; halved by strided 2x2x2 and doubled by transposed 2x2x2 convolutions.

    0.66 M parameters; 0.72 G multiply-adds on 32x32x24 cells.
    """

    def __init__(self) -> None:
        super().__init__()
        first, *rest = LEVELS
        self.encoders = torch.nn.ModuleList(
            torch.nn.Sequential(_convolution(inputs, width), _convolution(width, width))
            for inputs, width in zip((len(CHANNELS), *LEVELS[:-1]), LEVELS, strict=True)
        )
        self.halvings = torch.nn.ModuleList(torch.nn.Conv3d(width, width, 2, stride=2) for width in LEVELS[:-1])
        self.doublings = torch.nn.ModuleList(
            torch.nn.ConvTranspose3d(below, width, 2, stride=2) for width, below in zip(LEVELS, rest, strict=False)
        )
        # The finest level has one convolution: it costs most, and adds least there.
        self.decoders = torch.nn.ModuleList(
            torch.nn.Sequential(
                _convolution(2 * width, width), *([_convolution(width, width)] if width > first else [])
            )
            for width in LEVELS[:-1]
        )
        self.head = torch.nn.Conv3d(first, 5, 1)

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, 11, x, y, z) to distance (B, x, y, z), colour (B, 3, x, y, z) and confidence (B, x, y, z)."""
        size = inputs.shape[2:]
        missing = [-count % PADDING for count in size]
        values = functional.pad(inputs, (0, missing[2], 0, missing[1], 0, missing[0]))
        kept: list[Tensor] = []
        for level, encoder in enumerate(self.encoders):
            values = encoder(self.halvings[level - 1](values) if level else values)
            kept.append(values)
        for level in reversed(range(len(LEVELS) - 1)):
            values = self.decoders[level](torch.cat([kept[level], self.doublings[level](values)], dim=1))
        out = self.head(values)[:, :, : size[0], : size[1], : size[2]]
        return torch.tanh(out[:, 0]), torch.sigmoid(out[:, 1:4]), torch.sigmoid(out[:, 4])

    def layer(self, state: FastState) -> Layer:
        """The guess for one state."""
        distance, colour, confidence = self(completion_inputs(state)[None])
        return Layer(distance[0], colour[0], confidence[0])

    def units(self, preset: Preset) -> int:
        """Multiply-adds of all convolutions on the padded grid of a preset."""
        sizes = [padded_half(preset)]
        for _ in LEVELS[1:]:
            x, y, z = sizes[-1]
            sizes.append((x // 2, y // 2, z // 2))
        cells = [x * y * z for x, y, z in sizes]
        total = sum(_weights(encoder) * count for encoder, count in zip(self.encoders, cells, strict=True))
        total += sum(_weights(decoder) * count for decoder, count in zip(self.decoders, cells, strict=False))
        total += sum(_weights(halving) * count for halving, count in zip(self.halvings, cells[1:], strict=True))
        # A transposed convolution applies its kernel once per input cell.
        total += sum(_weights(doubling) * count for doubling, count in zip(self.doublings, cells[1:], strict=True))
        return total + _weights(self.head) * cells[0]

    def flops(self, preset: Preset) -> int:
        """Two per multiply-add, as torch's counter has it."""
        return 2 * self.units(preset)


def _weights(module: torch.nn.Module) -> int:
    """Elements of a module's convolution kernels."""
    kinds = (torch.nn.Conv3d, torch.nn.ConvTranspose3d)
    return sum(part.weight.numel() for part in module.modules() if isinstance(part, kinds))


@dataclass(frozen=True)
class Harmonic:
    """Laplace's equation between observed cells, by a fixed number of Jacobi sweeps from their mean; no flow through
    the grid's sides. Confident everywhere, once anything was observed."""

    sweeps: int = SWEEPS

    def layer(self, state: FastState) -> Layer:
        """The guess for one state."""
        distance, share, _, colour, colour_share = observed_half(state)
        values = torch.cat([distance, colour])
        fixed = torch.cat([share > 0, (colour_share > 0).expand(3, -1, -1, -1)])
        known = fixed.to(values.dtype)
        mean = (values * known).sum((1, 2, 3)) / known.sum((1, 2, 3)).clamp_min(1)
        solved = _relaxed(torch.where(fixed, values, mean[:, None, None, None]), fixed, self.sweeps)
        any_known = bool(fixed[0].any())
        return Layer(solved[0], solved[1:], torch.full_like(solved[0], float(any_known)))

    def units(self, preset: Preset) -> int:
        """One per neighbour, sweep, channel and cell."""
        x, y, z = preset.half
        return self.sweeps * _NEIGHBOURS * 4 * x * y * z

    def flops(self, preset: Preset) -> int:
        """Five additions and a division per cell: as many as there are neighbours."""
        return self.units(preset)


def _relaxed(values: Tensor, fixed: Tensor, sweeps: int) -> Tensor:
    """(C, x, y, z) values after Jacobi sweeps over the cells that are not `fixed`.

    All is done on flat memory with a border of zeros: a neighbour is then a shift, and a sweep allocates nothing.
    At the sides a cell stands in for each neighbour that it lacks.
    """
    around = functional.pad(values, (1,) * 6)
    flat, (_, _, y, z) = around.view(-1), around.shape
    reach, steps = y * z, (y * z, -y * z, z, -z, 1, -1)

    def shifted(array: Tensor, step: int) -> Tensor:
        return array[reach + step : len(array) - reach + step]

    inside = functional.pad(torch.ones_like(values), (1,) * 6).view(-1)
    missing = _NEIGHBOURS - torch.stack([shifted(inside, step) for step in steps]).sum(0)
    free = shifted(functional.pad((~fixed).to(values.dtype), (1,) * 6).view(-1), 0) / _NEIGHBOURS
    given = shifted(functional.pad(torch.where(fixed, values, 0), (1,) * 6).view(-1), 0)
    own, near = shifted(flat, 0), torch.empty_like(given)
    for _ in range(sweeps):
        torch.addcmul(shifted(flat, steps[0]), missing, own, out=near)
        for step in steps[1:]:
            near += shifted(flat, step)
        torch.addcmul(given, free, near, out=own)
    return around[:, 1:-1, 1:-1, 1:-1].contiguous()


@dataclass(frozen=True, eq=False)
class MeanField:
    """The control MEAN_FIELD: one stored layer for every scene, in place of the network that it stands beside."""

    stored: Layer
    beside: Completion

    def layer(self, state: FastState) -> Layer:
        """The stored layer, on the state's device."""
        return Layer(*(tensor.to(state.device) for tensor in self.stored))

    def units(self, preset: Preset) -> int:
        """Those of the network: control and arm get the same budget."""
        return self.beside.units(preset)

    def flops(self, preset: Preset) -> int:
        """Copying computes nothing."""
        return 0


def completed(state: FastState, layer: Layer) -> FastState:
    """The state with its layer replaced; what was observed stays as it is."""
    named: dict[str, Any] = {f"layer_{name}": value for name, value in layer._asdict().items()}
    return replace(state.with_tensors(**named), layer_step=state.step)
