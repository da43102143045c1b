"""The fast state of one episode: a signed-distance grid with colour, a completion layer, and six keyframes.

The state lives in a frame of its own: the anchor is the first warm-up camera, turned about the vertical only, so that
moving or turning the whole world changes nothing. Its grid is centred on what the warm-up measured; neither stream nor
queries move it. `TABLE` is the one list of its tensors: saving, hashing and the documents all follow it.

States are values: a write returns a new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from skidpad.artifacts.digests import digest_value
from skidpad.errors import RefusedError
from skidpad.streaming.blocks import FILL, counts, dense, places_of
from skidpad.streaming.camera import Camera, Model, points_of, project_by
from skidpad.streaming.episode import Observation
from skidpad.streaming.presets import Preset

F64 = NDArray[np.float64]
FrameKind = Literal["anchor", "world"]

KEYFRAMES = 6
MARGIN_M = 0.4
PERCENTILES = (0.5, 99.5)
CONFIDENT = 0.5  # layer cells from this confidence on are read
AGREE_VOXELS = 3.0
VIEW_POWER = 8  # keyframes that look another way than the query fade as this power of the cosine
_LEVEL = 1e-3


class Entry(NamedTuple):
    """One tensor of the state: its axes (X Y Z voxels, x y z layer cells, K keyframes, H W pixels), dtype, meaning."""

    axes: str
    dtype: torch.dtype
    meaning: str


TABLE: Mapping[str, Entry] = {
    "distance": Entry("X Y Z", torch.float32, "signed distance, truncation units, positive in free space"),
    "weight": Entry("X Y Z", torch.float32, "how much was observed; 0 is unknown"),
    "colour": Entry("3 X Y Z", torch.float16, "0 to 1"),
    "colour_weight": Entry("X Y Z", torch.float32, "how much colour was observed"),
    "last_seen": Entry("X Y Z", torch.int16, "step of the last write, -1 never"),
    "layer_distance": Entry("x y z", torch.float32, "completed distance, truncation units"),
    "layer_colour": Entry("3 x y z", torch.float32, "completed colour, 0 to 1"),
    "layer_confidence": Entry("x y z", torch.float32, "0 to 1; read from 0.5 on"),
    "keyframe_rgb": Entry("K 3 H W", torch.float32, "0 to 1"),
    "keyframe_depth": Entry("K H W", torch.float32, "metres, the camera's own depth, 0 none"),
    "keyframe_pose": Entry("K 4 4", torch.float64, "state from camera, metres"),
    "keyframe_intrinsics": Entry("K 4", torch.float64, "pixels, or pixels per radian"),
    "keyframe_spherical": Entry("K", torch.uint8, "1: spherical camera"),
}


BLOCKS = Entry("B", torch.int32, "numbers of the blocks held, ascending; B of them, each X Y Z is then B b b b")


def table(preset: Preset) -> Mapping[str, Entry]:
    """The tensors of a preset's states: those of `TABLE`, and where it is held in blocks, their numbers."""
    if preset.block is None:
        return TABLE
    pooled = {name: entry._replace(axes=entry.axes.replace("X Y Z", "B b b b")) for name, entry in TABLE.items()}
    return {**pooled, "blocks": BLOCKS}


def state_shapes(preset: Preset, blocks: int = 1) -> dict[str, tuple[int, ...]]:
    """Shape of every tensor of a preset's states; `blocks` are held, where it is in blocks."""
    sizes = dict(zip("XYZ", preset.shape, strict=True)) | dict(zip("xyz", preset.half, strict=True))
    sizes |= {"K": KEYFRAMES, "H": preset.image[0], "W": preset.image[1], "B": blocks, "b": preset.block or 0}
    entries = table(preset).items()
    return {name: tuple(sizes.get(axis) or int(axis) for axis in entry.axes.split()) for name, entry in entries}


def state_bytes(preset: Preset) -> int:
    """Bytes of one state's tensors; in blocks the most, with all of them held."""
    shapes = state_shapes(preset, 1 if preset.block is None else int(np.prod(counts(preset))))
    return sum(table(preset)[name].dtype.itemsize * int(np.prod(shape)) for name, shape in shapes.items())


@dataclass(frozen=True, eq=False)
class Frame:
    """Where a state lies.

    state_from_world  (4, 4) f64 [m]
    corner            (3,) f64 [m], corner of voxel (0, 0, 0) in the state's frame
    box               (2, 3) f64 [m], what the warm-up measured plus margin, snapped to voxels, in the state's frame
    ground            height [m] of the lowest measured surface, in the state's frame
    """

    state_from_world: F64
    corner: F64
    box: F64
    ground: float

    def to_json(self) -> dict[str, Any]:
        return {
            "state_from_world": self.state_from_world.tolist(),
            "corner": self.corner.tolist(),
            "box": self.box.tolist(),
            "ground": self.ground,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Frame:
        pose, corner, box = (np.asarray(value[name], np.float64) for name in ("state_from_world", "corner", "box"))
        return cls(pose, corner, box, float(value["ground"]))

    def outside(self, preset: Preset, points: F64) -> NDArray[np.bool_]:
        """(N,) whether world points (N, 3) [m] lie outside the grid."""
        local = _moved(self.state_from_world, points)
        top = self.corner + np.asarray(preset.shape) * preset.voxel
        return np.asarray(((local < self.corner) | (local >= top)).any(1))


def _moved(pose: F64, points: F64) -> F64:
    return np.asarray(points @ pose[:3, :3].T + pose[:3, 3])


def _anchor(camera: Camera) -> F64:
    """(4, 4) state from world: the camera's position, turned about the vertical so that x looks where it looks."""
    level = camera.rotation[:2, 2]  # forward
    if np.linalg.norm(level) < _LEVEL:  # looks straight up or down: its right side says where x is
        level = np.array([-camera.rotation[1, 0], camera.rotation[0, 0]])
    c, s = level / np.linalg.norm(level)
    pose = np.eye(4)
    pose[:2, :2] = [[c, s], [-s, c]]
    pose[:3, 3] = -pose[:3, :3] @ camera.position
    return pose


def measured_frame(warmup: Sequence[Observation], preset: Preset, kind: FrameKind = "anchor") -> Frame:
    """The frame of an episode from its warm-up depth alone.

    kind  "anchor": as above; "world": the world's axes about the first camera's position
    Raises RefusedError when no warm-up pixel has a depth, and as `measured_depth`.
    """
    first = warmup[0].camera
    pose = _anchor(first)
    if kind == "world":
        pose = np.eye(4)
        pose[:3, 3] = -first.position
    found = []
    for observation in warmup:
        depth = measured_depth(observation, preset).cpu().numpy().astype(np.float64)
        found.append(points_of(observation.camera, depth)[depth > 0])
    points = _moved(pose, np.concatenate(found))
    if not len(points):
        raise RefusedError(
            f"episode {warmup[0].episode_id}: none of the {len(warmup)} warm-up frames has a valid depth, so the state "
            "has no bounds. Give it frames that measure something."
        )
    low, high = np.percentile(points, PERCENTILES, axis=0)
    voxel = preset.voxel
    box = np.stack([np.floor((low - MARGIN_M) / voxel), np.ceil((high + MARGIN_M) / voxel)]) * voxel
    if preset.corner is None:
        corner = box.mean(0) - 0.5 * np.asarray(preset.shape) * preset.voxel
    else:
        corner = np.asarray(preset.corner, np.float64)
    return Frame(pose, corner, box, float(low[2]))


@dataclass(frozen=True, eq=False)
class View:
    """One observation in a state's frame and on its device."""

    camera: Camera
    rgb: Tensor
    depth: Tensor


def measured_depth(observation: Observation, preset: Preset) -> Tensor:
    """(H, W) depth of an observation. Raises RefusedError where it has none, or another image size than the preset."""
    where = f"episode {observation.episode_id}, frame {observation.frame_id}"
    if observation.depth is None:
        raise RefusedError(f"{where}: has no depth, and this mapper writes measured depth. Use episodes with depth.")
    if tuple(observation.depth.shape) != preset.image:
        found = " x ".join(str(size) for size in observation.depth.shape)
        raise RefusedError(
            f"{where}: image of {found}, preset {preset.name} has {preset.image[0]} x {preset.image[1]}. Use a mapper "
            "of another preset, or compile the episodes at that size."
        )
    return observation.depth


def view_of(observation: Observation, frame: Frame, preset: Preset, device: torch.device) -> View:
    """The observation seen from the state. Raises as `measured_depth`."""
    depth = measured_depth(observation, preset)
    camera = observation.camera.with_pose(frame.state_from_world @ observation.camera.world_from_camera)
    return View(camera, observation.rgb.to(device), depth.to(device))


@dataclass(frozen=True, eq=False)
class FastState:
    """All that an episode's writes may change.

    tensors     one per entry of `table(preset)`
    step        arrivals written or dropped so far, the warm-up counts as step 0
    layer_step  step of the completion layer, -1 without one
    keyframes   how many frames have joined the ring so far
    parent      content hash of the slow weights it descends from
    """

    preset: Preset
    frame: Frame
    tensors: Mapping[str, Tensor]
    parent: str
    step: int = 0
    layer_step: int = -1
    keyframes: int = 0

    def with_tensors(self, **tensors: Tensor) -> FastState:
        """The same state with some tensors replaced."""
        return replace(self, tensors={**self.tensors, **tensors})

    def hash(self) -> str:
        """Content hash of the tensors: the fast-state hash."""
        return digest_value(dict(self.tensors), "fast_state")

    def counters(self) -> dict[str, int]:
        """The state's plain numbers."""
        return {"step": self.step, "layer_step": self.layer_step, "keyframes": self.keyframes}

    @property
    def device(self) -> torch.device:
        return self.tensors["distance"].device

    @cached_property
    def read_out(self) -> ReadOut:
        """The field that the renderer sees."""
        return ReadOut(self)

    def with_keyframe(self, view: View) -> FastState:
        """The view joins the ring, in place of the oldest when it is full."""
        slot = self.keyframes % KEYFRAMES
        values = {
            "keyframe_rgb": view.rgb,
            "keyframe_depth": view.depth,
            "keyframe_pose": torch.from_numpy(view.camera.world_from_camera.copy()),
            "keyframe_intrinsics": torch.from_numpy(view.camera.intrinsics.copy()),
            "keyframe_spherical": torch.tensor(int(view.camera.model == "spherical")),
        }
        rings = {}
        for name, value in values.items():
            ring = self.tensors[name].clone()
            ring[slot] = value.to(ring)
            rings[name] = ring
        return replace(self.with_tensors(**rings), keyframes=self.keyframes + 1)

    def keyframe_cameras(self) -> list[Camera]:
        """Cameras of the keyframes held, in ring order, in the state's frame."""
        held = min(self.keyframes, KEYFRAMES)
        poses = self.tensors["keyframe_pose"].cpu().numpy()
        intrinsics = self.tensors["keyframe_intrinsics"].cpu().numpy()
        spherical = self.tensors["keyframe_spherical"].cpu().numpy()
        return [Camera("spherical" if spherical[k] else "pinhole", intrinsics[k], poses[k]) for k in range(held)]


def empty_state(preset: Preset, frame: Frame, device: torch.device, parent: str) -> FastState:
    """A state that knows nothing: free space with weight 0."""
    tensors = {
        name: torch.full(shape, FILL.get(name, 0), dtype=table(preset)[name].dtype, device=device)
        for name, shape in state_shapes(preset).items()
    }
    return FastState(preset, frame, tensors, parent)


def doubled(layer: Tensor, mode: str = "trilinear") -> Tensor:
    """A (C, x, y, z) layer at the grid's resolution (C, 2x, 2y, 2z)."""
    align = {"align_corners": False} if mode == "trilinear" else {}
    return torch.nn.functional.interpolate(layer[None], scale_factor=2, mode=mode, **align)[0]


class ReadOut:
    """A state as a field: observed voxels always win, then confident cells of the layer, else empty space."""

    def __init__(self, state: FastState) -> None:
        self._state = state
        self.voxel = state.preset.voxel
        tensors = state.tensors
        self.origin = torch.tensor(state.frame.corner, dtype=tensors["distance"].dtype, device=state.device)
        self._confident: Tensor | None = None
        self.distance = dense(
            state, "distance"
        )  # 1 where the weight is 0: nothing but a write, which adds weight, moves it
        if state.layer_step >= 0:
            confidence = doubled(tensors["layer_confidence"][None], "nearest")[0]
            self._confident = (confidence >= CONFIDENT) & (dense(state, "weight") <= 0)
            self.distance = torch.where(self._confident, doubled(tensors["layer_distance"][None])[0], self.distance)

    @cached_property
    def known(self) -> Tensor:
        """(X, Y, Z) bool: observed, or guessed with confidence."""
        observed = dense(self._state, "weight") > 0
        return observed if self._confident is None else observed | self._confident

    @cached_property
    def _layer_colour(self) -> Tensor | None:
        """(3, voxels) colours of the layer, where it is confident; None without one."""
        if self._confident is None:
            return None
        return doubled(self._state.tensors["layer_colour"]).reshape(3, -1)

    def colour(self, points: Tensor, directions: Tensor) -> Tensor:
        """(N, 3) colours at (N, 3) points seen along (N, 3) unit directions, in the state's frame.

        Keyframes that see the point, weighted by how alike they look at it; else the voxels around it; else 0.
        """
        seen, weight = self._from_keyframes(points, directions)
        rest = (weight <= 0).nonzero()[:, 0]
        found = seen / weight.clamp_min(1e-12)[:, None]
        return found.index_copy(0, rest, self._from_voxels(points[rest])).clamp(0, 1)

    def _from_voxels(self, points: Tensor) -> Tensor:
        """(N, 3) trilinear mean of the colours known around each point; voxels without colour do not count."""
        shape, tensors = self._state.preset.shape, self._state.tensors
        top = torch.tensor(shape, dtype=points.dtype, device=points.device) - (1 + 1e-3)
        grid = ((points - self.origin) / self.voxel - 0.5).clamp_min(0).minimum(top)
        lower = grid.detach().to(torch.int64)
        share = grid - lower
        corners = torch.tensor([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)], device=points.device)
        strides = torch.tensor([shape[1] * shape[2], shape[2], 1], device=points.device)
        index = (lower * strides).sum(1)[:, None] + (corners * strides).sum(1)
        part = torch.where(corners.bool(), share[:, None], 1 - share[:, None]).prod(2)
        there, held = (index, None) if self._state.preset.block is None else places_of(self._state, index)
        known = tensors["colour_weight"].reshape(-1)[there] > 0
        known = known if held is None else known & held
        colour = tensors["colour"].reshape(3, -1)[:, there].to(points.dtype)
        if self._confident is not None and self._layer_colour is not None:
            guessed = self._confident.reshape(-1)[index] & ~known
            colour = torch.where(guessed, self._layer_colour[:, index].to(points.dtype), colour)
            known = known | guessed
        part = part * known
        return ((colour * part).sum(2) / part.sum(1).clamp_min(1e-6)).T

    def _from_keyframes(self, points: Tensor, directions: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 3) weighted sum of keyframe colours, and (N,) sum of weights."""
        tensors, (height, width) = self._state.tensors, self._state.preset.image
        total, weights = torch.zeros_like(points), torch.zeros_like(points[:, 0])
        along = points.T.contiguous()
        rgb = tensors["keyframe_rgb"].permute(1, 0, 2, 3).reshape(3, -1).to(points.dtype)
        for ring in self._rings:
            column, row, depth = project_by(ring.model, ring.intrinsics, *ring.local_axes(along))
            at, inside = pixel_index(column, row, (height, width))
            at += ring.slots[:, None] * (height * width)
            held = tensors["keyframe_depth"].reshape(-1).index_select(0, at.reshape(-1)).view(at.shape).to(points.dtype)
            near = (held - depth).abs() <= AGREE_VOXELS * self.voxel
            camera, hit = (inside & near & (held > 0)).nonzero().unbind(1)
            flat = camera * len(points) + hit
            column, row = (values.reshape(-1).index_select(0, flat) for values in (column, row))
            seen, way = points.index_select(0, hit), directions.index_select(0, hit)
            towards = torch.nn.functional.normalize(seen - ring.positions.index_select(0, camera), dim=1, eps=1e-9)
            alike = (towards * way).sum(1).clamp_min(0) ** VIEW_POWER
            down = row + (ring.slots * height).index_select(0, camera)
            colour = between_pixels(rgb, (height, width), column, down)
            total = total.index_add(0, hit, colour * alike[:, None])
            weights = weights.index_add(0, hit, alike)
        return total, weights

    @cached_property
    def _rings(self) -> list[_Ring]:
        """The keyframes held, those of one camera model together."""
        cameras, like = self._state.keyframe_cameras(), self.origin
        models: tuple[Model, ...] = ("pinhole", "spherical")
        slots = [(model, [k for k, camera in enumerate(cameras) if camera.model == model]) for model in models]
        return [_ring(model, {k: cameras[k] for k in held}, like) for model, held in slots if held]


class _Ring(NamedTuple):
    """Keyframes of one model, K of them, on a device.

    slots       (K,) i64 places in the ring
    intrinsics  fx, fy, cx, cy, (K, 1) each
    turns       (3 K, 3) rows: x, y, z of each camera's axes, camera by camera
    shifts      (3 K, 1) [m]
    positions   (K, 3) [m]
    """

    model: Model
    slots: Tensor
    intrinsics: list[Tensor]
    turns: Tensor
    shifts: Tensor
    positions: Tensor

    def local_axes(self, points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x, y, z [m] in each camera's frame, (K, N) each, of points (3, N) [m]."""
        found = torch.addmm(self.shifts, self.turns, points, beta=-1).view(len(self.slots), 3, -1)
        return found[:, 0], found[:, 1], found[:, 2]


def _ring(model: Model, cameras: Mapping[int, Camera], like: Tensor) -> _Ring:
    def tensor(values: Any, dtype: torch.dtype = like.dtype) -> Tensor:
        return torch.as_tensor(np.asarray(values), dtype=dtype, device=like.device)

    held = list(cameras.values())
    turns = np.concatenate([camera.rotation.T for camera in held])
    shifts = np.concatenate([camera.rotation.T @ camera.position for camera in held])[:, None]
    intrinsics = tensor([camera.intrinsics for camera in held])[:, :, None].unbind(1)
    positions = tensor([camera.position for camera in held])
    return _Ring(model, tensor(list(cameras), torch.int64), list(intrinsics), tensor(turns), tensor(shifts), positions)


def pixel_index(column: Tensor, row: Tensor, image: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Flat i64 index of the pixel that each position falls into, and whether it lies inside the (H, W) image; outside,
    the index is that of some pixel."""
    height, width = image
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    return row.clamp(0, height - 1).to(torch.int64) * width + column.clamp(0, width - 1).to(torch.int64), inside


def between_pixels(images: Tensor, size: tuple[int, int], column: Tensor, row: Tensor) -> Tensor:
    """(N, 3) bilinear colours at (N,) positions; beyond the outer centres, the outer pixels.

    images  (3, K H W), images of `size` (H, W) stacked one below the other: row counts on from image to image
    """
    height, width = size
    top = (row / height).floor().detach() * height
    column, row = (column - 0.5).clamp(0, width - 1), (row - top - 0.5).clamp(0, height - 1)
    left, upper = column.detach().floor().clamp_max(width - 2), row.detach().floor().clamp_max(height - 2)
    across, down = column - left, row - upper
    at = (top + upper).to(torch.int64) * width + left.to(torch.int64)
    corners = [images.index_select(1, at + step) for step in (0, 1, width, width + 1)]
    return torch.lerp(torch.lerp(corners[0], corners[1], across), torch.lerp(corners[2], corners[3], across), down).T
