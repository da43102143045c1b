"""Large grids in blocks: a state holds only the blocks that some view said something about.

A grid is cut into cubes of `preset.block` voxels a side, numbered along x, y, z. Instead of its grid tensors such a
state has pools, (B, b, b, b) or (3, B, b, b, b), and the numbers of the B blocks in ascending order, so that equal
content is equal bytes whatever was touched first. Numbers are looked up in a table with one entry per block: the grid
is bounded, so this hash has no collisions. Block 0 is always held, so that no pool is empty. Voxels outside the held
blocks are what `FILL` says: never seen.

Frames are fused and views rendered as in a dense grid, value by value: a block is where a voxel lies, never what it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from skidpad.streaming.camera import Camera
from skidpad.streaming.presets import Preset

if TYPE_CHECKING:
    from skidpad.streaming.carrier import FastState

GRID = ("distance", "weight", "colour", "colour_weight", "last_seen")
FILL = {"distance": 1.0, "layer_distance": 1.0, "last_seen": -1}
_MARGIN = 1.001  # of a block's radius, for rounding


def counts(preset: Preset) -> tuple[int, int, int]:
    """Blocks along x, y, z."""
    assert preset.block is not None
    x, y, z = preset.shape
    return x // preset.block, y // preset.block, z // preset.block


def _edge(state: FastState) -> int:
    assert state.preset.block is not None
    return state.preset.block


def places_of(state: FastState, index: Tensor) -> tuple[Tensor, Tensor]:
    """Where flat grid voxels (any shape, i64) lie in the flat pools, and whether their block is held; else the place is
    that of some voxel."""
    edge, (_, ny, nz) = _edge(state), counts(state.preset)
    _, height, depth = state.preset.shape
    x, y, z = index // (height * depth), index // depth % height, index % depth
    number = ((x // edge) * ny + y // edge) * nz + z // edge
    within = ((x % edge) * edge + y % edge) * edge + z % edge
    slot = _slots(state).index_select(0, number.reshape(-1)).view(number.shape)
    return slot.clamp_min(0) * edge**3 + within, slot >= 0


def _slots(state: FastState) -> Tensor:
    """(blocks of the grid,) i64: where each block lies in the pools, -1 where it is not held."""
    held = state.tensors["blocks"].long()
    table = torch.full((int(np.prod(counts(state.preset))),), -1, dtype=torch.int64, device=held.device)
    return table.index_copy_(0, held, torch.arange(len(held), device=held.device))


def with_blocks_of(state: FastState, index: Tensor) -> FastState:
    """The state with the blocks of these flat grid voxels (N,) held."""
    edge, (_, ny, nz) = _edge(state), counts(state.preset)
    _, height, depth = state.preset.shape
    x, y, z = index // (height * depth), index // depth % height, index % depth
    wanted = ((x // edge) * ny + y // edge) * nz + z // edge
    held = state.tensors["blocks"].long()
    numbers = torch.unique(torch.cat([held, wanted]))
    if len(numbers) == len(held):
        return state
    kept = torch.searchsorted(numbers, held)
    pools = {}
    for name in GRID:
        pool = state.tensors[name]
        axis = pool.ndim - 4
        size = (*pool.shape[:axis], len(numbers), edge, edge, edge)
        larger = torch.full(size, FILL.get(name, 0), dtype=pool.dtype, device=pool.device)
        pools[name] = larger.index_copy_(axis, kept, pool)
    return state.with_tensors(blocks=numbers.to(torch.int32), **pools)


def spread(state: FastState, values: Tensor, fill: float = 0.0) -> Tensor:
    """(C, X, Y, Z) grid of pooled values (C, B, e, e, e), at whatever resolution e says; `fill` where none is held."""
    along = counts(state.preset)
    channels, _, edge = values.shape[:3]
    every = torch.full(
        (channels, int(np.prod(along)), edge, edge, edge), fill, dtype=values.dtype, device=values.device
    )
    every.index_copy_(1, state.tensors["blocks"].long(), values)
    cut = every.view(channels, *along, edge, edge, edge).permute(0, 1, 4, 2, 5, 3, 6)
    return cut.reshape(channels, *(count * edge for count in along))


def dense(state: FastState, name: str) -> Tensor:
    """(X, Y, Z) grid of one of `GRID` without channels, whatever the state holds it in."""
    tensor = state.tensors[name]
    if state.preset.block is None:
        return tensor
    return spread(state, tensor[None], FILL.get(name, 0))[0]


def in_view(state: FastState, camera: Camera, depth: Tensor) -> Tensor:
    """Numbers (N,) i64, ascending, of all blocks that may hold a voxel that a view says something about; some hold
    none.

    camera  in the state's frame
    depth   (H, W) [m], what it measured
    """
    preset, edge = state.preset, _edge(state)
    along = np.stack(np.meshgrid(*(np.arange(count) for count in counts(preset)), indexing="ij"), axis=-1)
    middle = state.frame.corner + (along.reshape(-1, 3) + 0.5) * edge * preset.voxel
    local = (middle - camera.position) @ camera.rotation
    radius = 0.5 * np.sqrt(3.0) * edge * preset.voxel * _MARGIN
    farthest = float(depth.max()) + preset.truncation + radius
    if camera.model == "spherical":
        return torch.from_numpy(np.flatnonzero(np.linalg.norm(local, axis=1) <= farthest)).to(state.device)
    fx, fy, cx, cy = camera.intrinsics
    height, width = depth.shape
    x, y, z = local.T
    near = (z > -radius) & (z <= farthest)
    for across, low, high in ((x, -cx / fx, (width - cx) / fx), (y, -cy / fy, (height - cy) / fy)):
        near &= (across - low * z) / np.hypot(1.0, low) >= -radius
        near &= (high * z - across) / np.hypot(1.0, high) >= -radius
    return torch.from_numpy(np.flatnonzero(near)).to(state.device)


def voxels_of(preset: Preset, numbers: Tensor) -> tuple[list[Tensor], Tensor]:
    """Voxel coordinates x, y, z (N, b) i64 along each axis of blocks, and flat grid indices (N, b, b, b) i64."""
    edge, (_, ny, nz) = preset.block, counts(preset)
    assert edge is not None
    steps = torch.arange(edge, device=numbers.device)
    x, y, z = ((first * edge)[:, None] + steps for first in (numbers // (ny * nz), numbers // nz % ny, numbers % nz))
    _, height, depth = preset.shape
    index = (x[:, :, None] * height + y[:, None, :])[..., None] * depth + z[:, None, None, :]
    return [x, y, z], index
