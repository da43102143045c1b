"""Writing one view into a state: the classical weighted average, and a learned gate that starts out as it.

For every voxel whose projection falls on a valid depth with depth - z > -truncation, the view says

    s = clip((depth - z) / truncation, -1, 1)

and the classical write is d <- (w d + s) / (w + 1), w <- min(w + 1, w_max) (Curless and Levoy 1996, with unit
weights). The gate answers, from eight features of voxel and view, with g in (0, 2), how much the view counts, lambda in
(0, 1], how much of the past is kept, and r in [0, 1], how much of a surface is erased that the ray now sees through:

    w' = w (1 - r [s = 1 and d < 1]),  eta = g / (lambda w' + g),  d <- d + eta (s - d),  w <- min(lambda w' + g, w_max)

which is a delta rule whose rate depends on confidence (as in TTT3R).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from skidpad.streaming.blocks import in_view, places_of, voxels_of, with_blocks_of
from skidpad.streaming.camera import Camera, local_directions, project_local
from skidpad.streaming.carrier import FastState, View

MAX_WEIGHT = 64.0
FEATURES = (
    "log of 1 + weight",
    "new minus held distance",
    "absolute difference",
    "depth over far",
    "cosine of incidence",
    "depth edge",
    "colour residual",
    "steps since seen, over 8, at most 1",
)
HIDDEN = 32
SATURATION = 8.0  # sigmoid(8) = 0.9997: as good as one, and still with a gradient
EDGE_SHARE = 0.05  # a jump of more than this share of depth between neighbours is an edge
AGES = 8.0
UNITS_PER_VOXEL = 16  # declared for a write; an upper bound, since most voxels lie outside the view
# Per voxel of the grid: two additions for each of three coordinates, two divisions, two products and sums, six
# comparisons. Per touched voxel: distance, weight and colour (33), features (22), the network (two per multiply-add).
FLOPS_PER_VOXEL = 18
FLOPS_PER_TOUCHED = 33
_PART = 4096
_LEAST_GAIN = 1e-6  # a sigmoid in float32 can be 0, and 0 / 0 is no distance


class Gate(torch.nn.Module):
    """(N, 8) features of `FEATURES` to g, lambda, r, each (N,). Untrained it answers 1, 1, 0 up to 1e-3."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(len(FEATURES), HIDDEN),
            torch.nn.ReLU(inplace=True),
            torch.nn.Linear(HIDDEN, HIDDEN),
            torch.nn.ReLU(inplace=True),
            torch.nn.Linear(HIDDEN, 3),
        )
        last = self.layers[-1]
        assert isinstance(last, torch.nn.Linear)
        torch.nn.init.zeros_(last.weight)
        with torch.no_grad():
            last.bias.copy_(torch.tensor([0.0, SATURATION, -SATURATION]))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # In parts that stay in a core's cache: what lies between the layers is four times as large as the features.
        answer = torch.sigmoid(torch.cat([self.layers(part) for part in torch.split(features, _PART)]))
        return 2 * answer[:, 0].clamp_min(_LEAST_GAIN), answer[:, 1], answer[:, 2]


@dataclass(frozen=True, eq=False)
class Touched:
    """The voxels a view says something about.

    index  (N,) i64 flat voxel of the grid; once there is room for it, its place in the tensors
    pixel  (N,) i64 flat pixel it projects into
    s      (N,) new signed distance, truncation units
    z      (N,) metres, the camera's own depth of the voxel
    """

    index: Tensor
    pixel: Tensor
    s: Tensor
    z: Tensor


def grid_axes(state: FastState, camera: Camera) -> list[Tensor]:
    """x, y, z [m] of all voxel centres in a camera's frame, (X, Y, Z) each.

    A rotation of a grid is a sum of one term per axis, so no list of centres is ever made.
    """
    along = [torch.arange(count, device=state.device) for count in state.preset.shape]
    return _axes(state, camera, along)


def _axes(state: FastState, camera: Camera, along: Sequence[Tensor]) -> list[Tensor]:
    """As `grid_axes`, of the voxels whose coordinates along the three axes are (..., n) each: (..., n, n, n)."""
    preset = state.preset
    first = camera.rotation.T @ (state.frame.corner + 0.5 * preset.voxel - camera.position)
    found = []
    for axis in range(3):
        step = camera.rotation[:, axis] * preset.voxel
        i, j, k = (values.to(torch.float32) * float(step[n]) for n, values in enumerate(along))
        found.append((i[..., :, None] + (j + float(first[axis]))[..., None, :])[..., None] + k[..., None, None, :])
    return found


def touched(state: FastState, view: View) -> Touched:
    """The voxels of the rule above; each projects into the pixel that it falls into."""
    truncation = state.preset.truncation
    height, width = state.preset.image
    if state.preset.block is None:
        voxels, axes = None, grid_axes(state, view.camera)
    else:
        along, voxels = voxels_of(state.preset, in_view(state, view.camera, view.depth))
        axes = _axes(state, view.camera, along)
    column, row, z = project_local(view.camera, *axes)
    ahead = (z > 0) & (column >= 0) & (column < width) & (row >= 0) & (row < height)
    index = ahead.reshape(-1).nonzero()[:, 0]
    column, row, z = (values.reshape(-1).index_select(0, index) for values in (column, row, z))
    pixel = row.to(torch.int64) * width + column.to(torch.int64)
    depth = view.depth.reshape(-1).index_select(0, pixel)
    valid = ((depth > 0) & (depth - z > -truncation)).nonzero()[:, 0]
    index, pixel, depth, z = (values.index_select(0, valid) for values in (index, pixel, depth, z))
    if voxels is not None:
        index = voxels.reshape(-1).index_select(0, index)
    return Touched(index, pixel, ((depth - z) / truncation).clamp(-1, 1), z)


def incidence_and_edges(view: View) -> tuple[Tensor, Tensor]:
    """Per pixel (H, W): cosine between ray and measured surface, and 1 where depth jumps beside it.

    The normal is the cross product of differences of neighbouring points; border pixels take their inner neighbours'.
    """
    depth = view.depth
    local = torch.as_tensor(local_directions(view.camera, *depth.shape), dtype=depth.dtype, device=depth.device)
    lengths = depth / local[..., 2] if view.camera.own_depth == "z" else depth
    points = local * lengths[..., None]
    across = torch.nn.functional.pad(points[1:-1, 2:] - points[1:-1, :-2], (0, 0, 1, 1, 1, 1))
    down = torch.nn.functional.pad(points[2:, 1:-1] - points[:-2, 1:-1], (0, 0, 1, 1, 1, 1))
    normal = torch.nn.functional.normalize(torch.linalg.cross(across, down), dim=-1, eps=1e-12)
    cosine = (normal * local).sum(-1).abs()
    cosine[0], cosine[-1] = cosine[1], cosine[-2]
    cosine[:, 0], cosine[:, -1] = cosine[:, 1], cosine[:, -2]
    jump = torch.zeros_like(depth)
    row, column = (depth[1:] - depth[:-1]).abs(), (depth[:, 1:] - depth[:, :-1]).abs()
    jump[1:], jump[:-1] = row, torch.maximum(jump[:-1], row)
    jump[:, 1:] = torch.maximum(jump[:, 1:], column)
    jump[:, :-1] = torch.maximum(jump[:, :-1], column)
    return cosine, (jump > EDGE_SHARE * depth).to(depth.dtype)


def gate_features(state: FastState, view: View, hit: Touched, colour: Tensor) -> Tensor:
    """(N, 8) features in the order of `FEATURES`; `colour` (3, N) is what the view shows there."""
    tensors = state.tensors
    held, weight = _at(tensors["distance"], hit), _at(tensors["weight"], hit)
    cosine, edge = incidence_and_edges(view)
    last = _at(tensors["last_seen"], hit).float()
    age = torch.where(last >= 0, (state.step - last) / AGES, 0).clamp(0, 1)
    kept = tensors["colour"].reshape(3, -1).index_select(1, hit.index).float()
    residual = torch.where(_at(tensors["colour_weight"], hit) > 0, (colour - kept).abs().mean(0), 0)
    delta = hit.s - held
    return torch.stack(
        [
            torch.log1p(weight),
            delta,
            delta.abs(),
            hit.z / state.preset.far,
            cosine.reshape(-1).index_select(0, hit.pixel),
            edge.reshape(-1).index_select(0, hit.pixel),
            residual,
            age,
        ],
        dim=1,
    )


def _at(tensor: Tensor, hit: Touched) -> Tensor:
    return tensor.reshape(-1).index_select(0, hit.index)


def _put(tensor: Tensor, hit: Touched, values: Tensor) -> Tensor:
    return tensor.reshape(-1).index_put((hit.index,), values.to(tensor.dtype)).view(tensor.shape)


def write(state: FastState, view: View, gate: Gate | None) -> tuple[FastState, int]:
    """The state after a view was fused and joined the keyframes, and how many voxels it touched. Without a gate this is
    the classical write."""
    new, touched_voxels = fused(state, view, gate)
    return new.with_keyframe(view), touched_voxels


def fused(state: FastState, view: View, gate: Gate | None) -> tuple[FastState, int]:
    """The state with distance, weight and colour of the touched voxels updated, and their number."""
    hit = touched(state, view)
    if state.preset.block is not None:
        state = with_blocks_of(state, hit.index)
        hit = replace(hit, index=places_of(state, hit.index)[0])
    tensors = state.tensors
    held, weight = _at(tensors["distance"], hit), _at(tensors["weight"], hit)
    colour = view.rgb.reshape(3, -1).index_select(1, hit.pixel)
    gain, kept, erased = torch.ones_like(hit.s), torch.ones_like(hit.s), torch.zeros_like(hit.s)
    if gate is not None:
        gain, kept, erased = gate(gate_features(state, view, hit, colour))
        erased = torch.where((hit.s >= 1) & (held < 1), erased, 0)
    past = kept * weight * (1 - erased)
    distance = held + gain / (past + gain) * (hit.s - held)
    colour_weight = _at(tensors["colour_weight"], hit) * (1 - erased)
    # Colour belongs to surfaces: voxels in front of the saturated band learn none.
    share = torch.where(hit.s < 1, gain, 0)
    before = tensors["colour"].reshape(3, -1).index_select(1, hit.index).float()
    mixed = before + share / (colour_weight + share).clamp_min(1e-12) * (colour - before)
    new = state.with_tensors(
        distance=_put(tensors["distance"], hit, distance),
        weight=_put(tensors["weight"], hit, (past + gain).clamp_max(MAX_WEIGHT)),
        colour=tensors["colour"].reshape(3, -1).index_copy(1, hit.index, mixed.half()).view(tensors["colour"].shape),
        colour_weight=_put(tensors["colour_weight"], hit, (colour_weight + share).clamp_max(MAX_WEIGHT)),
        last_seen=_put(tensors["last_seen"], hit, torch.full_like(hit.index, state.step)),
    )
    return new, len(hit.index)


def fuse_flops(state: FastState, touched_voxels: int, gate: Gate | None) -> int:
    """Arithmetic of one write, by counting the operations above."""
    network = 0
    if gate is not None:
        network = 22 + sum(2 * layer.weight.numel() for layer in gate.layers if isinstance(layer, torch.nn.Linear))
    return FLOPS_PER_VOXEL * state.preset.voxels + (FLOPS_PER_TOUCHED + network) * touched_voxels
