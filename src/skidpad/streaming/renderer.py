"""The fixed renderer: from a signed-distance grid to what a camera would measure. It has no parameters.

A ray is cut into equal intervals between near and far. With f the signed distance at interval ends (in truncation
units, positive in free space) and S(x) = sigmoid(28 x), an interval is opaque by

    alpha_i = max(0, (S(f_i) - S(f_{i+1})) / S(f_i))                      (Wang et al. 2021, "NeuS", eq. 13)

and the light that reaches it is the product of 1 - alpha before it. The depth of a ray is the mean of the linear zero
crossings inside its intervals, weighted by alpha times that light and divided by the total opacity: undivided, depth
is biased low wherever opacity is below one. Colour and normal are looked up at that surface point. One renderer per
pair of episode and policy serves feedback and scoring, so a policy sees what it will be scored with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from skidpad.errors import UsageError

RENDERER = "skidpad.renderer/1"
SHARPNESS = 28.0
COVERED = 0.5  # a pixel counts as covered above this opacity
_LEAST_OPACITY = 1e-4  # below this a ray has no depth: the mean of next to nothing is noise
_LEAST_FALL = 1e-6


# Arithmetic per interval end: place on three axes (6), clamps (6), shares (6), seven interpolations (21), sigmoid (4).
# Per interval: opacity (3), light passed (2), weight (1), sum (1), crossing (5), its place (2), its share of depth (2).
END_FLOPS = 43
INTERVAL_FLOPS = 16


def render_flops(samples: int) -> int:
    """Arithmetic of one ray; comparisons and exponentials count as one. Free cells are skipped, so this is the most."""
    return END_FLOPS * (samples + 1) + INTERVAL_FLOPS * samples


class Field(Protocol):
    """What the renderer reads.

    distance  (X, Y, Z)  float, truncation units in [-1, 1], at voxel centres; outside the grid counts as +1
    origin    (3,)       float, metres, the corner of voxel (0, 0, 0)
    voxel                metres
    """

    @property
    def distance(self) -> Tensor: ...
    @property
    def origin(self) -> Tensor: ...
    @property
    def voxel(self) -> float: ...
    def colour(self, points: Tensor, directions: Tensor) -> Tensor:
        """(N, 3) colours in [0, 1] at (N, 3) points in metres seen along (N, 3) unit directions."""
        ...


@dataclass(frozen=True, eq=False)
class Rays:
    """What rays measured.

    distance  (N,)    metres along the ray; 0 where nothing opaque was met
    rgb       (N, 3)  in [0, 1]
    opacity   (N,)    in [0, 1]
    normal    (N, 3)  unit, pointing into free space; 0 where there is none
    """

    distance: Tensor
    rgb: Tensor
    opacity: Tensor
    normal: Tensor


@dataclass(frozen=True, eq=False)
class _Corners:
    """Where points lie among voxel centres: flat index of the lower corner, and the shares along three axes."""

    index: Tensor
    share: tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class MeasurementRenderer:
    """Renders rays through a field.

    samples    intervals per ray, at least 2
    ray_chunk  rays handled at once; changes memory, never the result
    near, far  metres along the ray
    Raises UsageError for values out of range.
    """

    samples: int
    ray_chunk: int
    near: float
    far: float

    def __post_init__(self) -> None:
        for name, least in (("samples", 2), ("ray_chunk", 1)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise UsageError(f"render {name} = {value!r}: must be a whole number of at least {least}.")
        if not 0 < self.near < self.far:
            raise UsageError(f"near = {self.near}, far = {self.far}: expected 0 < near < far, in metres.")

    def render(self, field: Field, origins: Tensor, directions: Tensor) -> Rays:
        """Measure (N, 3) unit directions from (N, 3) origins, both in the field's frame, in metres."""
        volume = _Volume(field)
        parts = [self._chunk(volume, field, *pair) for pair in self._chunks(origins, directions)]
        names = ("distance", "rgb", "opacity", "normal")
        return Rays(*(torch.cat([getattr(part, name) for part in parts]) for name in names))

    def lengths(self, field: Field, origins: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        """`distance` and `opacity` of what `render` measures, (N,) each, without the looking up of colours."""
        volume = _Volume(field)
        parts = [self._lengths(volume, *pair) for pair in self._chunks(origins, directions)]
        return torch.cat([distance for distance, _ in parts]), torch.cat([opacity for _, opacity in parts])

    def _chunks(self, origins: Tensor, directions: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(torch.split(origins, self.ray_chunk), torch.split(directions, self.ray_chunk), strict=True)

    def _chunk(self, volume: _Volume, field: Field, origins: Tensor, directions: Tensor) -> Rays:
        distance, opacity = self._lengths(volume, origins, directions)
        points = origins + directions * distance[:, None]
        normal = torch.where((opacity > _LEAST_OPACITY)[:, None], volume.normal(points), 0)
        return Rays(distance, field.colour(points, directions), opacity, normal)

    def _lengths(self, volume: _Volume, origins: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        ends = torch.linspace(self.near, self.far, self.samples + 1, dtype=origins.dtype, device=origins.device)
        f = volume.along(origins, directions, ends)
        before, after = f[:, :-1], f[:, 1:]
        s = torch.sigmoid(f * SHARPNESS)
        # In place where it can be: what is allocated costs as much as what is computed.
        weight = (s[:, 1:] / s[:, :-1]).neg_().add_(1).clamp_min_(0)
        passed = torch.cumprod(1 - weight, dim=1)
        weight[:, 1:] *= passed[:, :-1]
        opacity = weight.sum(1)
        crossing = (before / (before - after).clamp_min(_LEAST_FALL)).clamp(0, 1)
        step = (self.far - self.near) / self.samples
        mean = (weight * torch.add(ends[:-1], crossing, alpha=step)).sum(1)
        return torch.where(opacity > _LEAST_OPACITY, mean / opacity.clamp_min(_LEAST_OPACITY), 0), opacity


class _Volume:
    """A distance grid with one layer of free space around it, so that a clamp is all that the outside costs."""

    def __init__(self, field: Field) -> None:
        self._size = tuple(n + 2 for n in field.distance.shape)
        values = torch.nn.functional.pad(field.distance, (1,) * 6, value=1.0)
        self._values, self._busy = values.reshape(-1), _busy_cells(values.detach()).reshape(-1)
        self._scale = 1.0 / field.voxel
        self._origin = field.origin
        _, y, z = self._size
        self._strides = (y * z, z, 1)

    def _grid(self, points: Tensor) -> Tensor:
        # 0.5 to centres, 1 for the padding.
        return (points - self._origin) * self._scale + 0.5

    def _at(self, corners: _Corners, offset: int) -> Tensor:
        # The whole volume shifted by a corner's offset: cheaper than adding to every index.
        return self._values[offset:].index_select(0, corners.index).view(corners.share[0].shape)

    def along(self, origins: Tensor, directions: Tensor, ends: Tensor) -> Tensor:
        """(N, S + 1) values at interval ends, trilinear. Most cells are free space all around, where the value is 1."""
        start, slope = self._grid(origins), directions * self._scale
        axes = [(slope[:, k : k + 1] * ends).add_(start[:, k : k + 1]) for k in range(3)]
        inside = [axis.clamp_(0.0, size - 1 - 1e-3).reshape(-1) for axis, size in zip(axes, self._size, strict=True)]
        cell = self._cell(inside)
        busy = self._busy.index_select(0, cell).nonzero()[:, 0]
        shares = _shares([axis.index_select(0, busy) for axis in inside])
        values = self._trilinear(_Corners(cell.index_select(0, busy), shares))
        free = torch.ones(len(cell), dtype=values.dtype, device=values.device)
        return free.index_copy_(0, busy, values).view(len(origins), -1)

    def _cell(self, inside: list[Tensor]) -> Tensor:
        x, y, z = (axis.detach().to(torch.int32) for axis in inside)  # truncation is floor: none is negative
        return x.mul_(self._strides[0]).add_(y, alpha=self._strides[1]).add_(z)

    def _trilinear(self, corners: _Corners) -> Tensor:
        x, y, z = corners.share
        sx, sy, _ = self._strides
        low = torch.lerp(
            torch.lerp(self._at(corners, 0), self._at(corners, 1), z),
            torch.lerp(self._at(corners, sy), self._at(corners, sy + 1), z),
            y,
        )
        high = torch.lerp(
            torch.lerp(self._at(corners, sx), self._at(corners, sx + 1), z),
            torch.lerp(self._at(corners, sx + sy), self._at(corners, sx + sy + 1), z),
            y,
        )
        return torch.lerp(low, high, x)

    def normal(self, points: Tensor) -> Tensor:
        """(N, 3) unit gradients of the trilinear interpolant: derivatives of the products of shares."""
        grid = self._grid(points).unbind(1)
        inside = [axis.clamp(0.0, size - 1 - 1e-3) for axis, size in zip(grid, self._size, strict=True)]
        corners = _Corners(self._cell(inside), _shares(inside))
        sx, sy, sz = self._strides
        x, y, z = corners.share
        c = {(i, j, k): self._at(corners, i * sx + j * sy + k * sz) for i in (0, 1) for j in (0, 1) for k in (0, 1)}
        gx = _bilinear([c[1, j, k] - c[0, j, k] for j in (0, 1) for k in (0, 1)], y, z)
        gy = _bilinear([c[i, 1, k] - c[i, 0, k] for i in (0, 1) for k in (0, 1)], x, z)
        gz = _bilinear([c[i, j, 1] - c[i, j, 0] for i in (0, 1) for j in (0, 1)], x, y)
        return torch.nn.functional.normalize(torch.stack([gx, gy, gz], dim=1), dim=1, eps=1e-6)


def _shares(inside: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    x, y, z = (axis - axis.detach().floor() for axis in inside)
    return x, y, z


def _busy_cells(values: Tensor) -> Tensor:
    """(X, Y, Z) bool: whether any of the eight corners from a voxel on is not free space."""
    busy = values != 1
    for axis, size in enumerate(values.shape):
        busy.narrow(axis, 0, size - 1).logical_or_(busy.narrow(axis, 1, size - 1).clone())
    return busy


def _bilinear(corners: list[Tensor], first: Tensor, second: Tensor) -> Tensor:
    return torch.lerp(torch.lerp(corners[0], corners[1], second), torch.lerp(corners[2], corners[3], second), first)
