"""Cameras and the two conventions of depth.

World: right-handed, z up, metres. Camera: x right, y down, z forward; the centre of pixel (row 0, column 0) lies at
(0.5, 0.5). A pinhole camera's own depth is z, a spherical camera's is the length of the ray: that is what an
Observation holds and what `project` returns. Files may hold the other one; it is converted once, when a frame is read.

`project`, `rays` and `points_of` work on NumPy arrays; `project` on torch tensors as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from skidpad.errors import UsageError

F64 = NDArray[np.float64]

Model = Literal["pinhole", "spherical"]
DepthConvention = Literal["z", "ray"]
ROTATION_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class Camera:
    """One posed camera.

    model              pinhole, or spherical: columns are azimuths, rows elevations
    intrinsics         (4,) f64: fx, fy, cx, cy [pixel]; of a spherical camera fx, fy [pixel/rad] and the pixel
                       (cx, cy) that looks forward
    world_from_camera  (4, 4) f64 [m], rigid

    Raises UsageError for an unknown model, a focal length that is not positive, or a pose that is not rigid.
    """

    model: Model
    intrinsics: F64
    world_from_camera: F64

    def __post_init__(self) -> None:
        for name, shape in (("intrinsics", (4,)), ("world_from_camera", (4, 4))):
            array = np.array(getattr(self, name), np.float64)
            if array.shape != shape or not np.isfinite(array).all():
                raise UsageError(f"camera {name}: expected {shape} finite numbers, got {array.tolist()}.")
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if self.model not in ("pinhole", "spherical"):
            raise UsageError(f"camera model {self.model!r}: expected 'pinhole' or 'spherical'.")
        if not (self.intrinsics[:2] > 0.0).all():
            raise UsageError(f"camera focal lengths {self.intrinsics[:2].tolist()}: expected positive numbers.")
        rotation = self.rotation
        if np.abs(rotation @ rotation.T - np.eye(3)).max() > ROTATION_TOLERANCE or np.linalg.det(rotation) < 0.0:
            raise UsageError(
                f"camera rotation {rotation.tolist()}: expected orthonormal axes that are right-handed. "
                "Store camera-to-world poses, x right, y down, z forward."
            )
        if not np.array_equal(self.world_from_camera[3], [0.0, 0.0, 0.0, 1.0]):
            raise UsageError(f"camera pose: last row is {self.world_from_camera[3].tolist()}, expected 0, 0, 0, 1.")

    @property
    def rotation(self) -> F64:
        """(3, 3) f64, columns are the camera's axes in the world."""
        return self.world_from_camera[:3, :3]

    @property
    def position(self) -> F64:
        """(3,) f64 [m]."""
        return self.world_from_camera[:3, 3]

    @property
    def own_depth(self) -> DepthConvention:
        """What this camera's depth means: z or the length of the ray."""
        return "z" if self.model == "pinhole" else "ray"

    def with_pose(self, world_from_camera: F64) -> Camera:
        """The same camera elsewhere."""
        return Camera(self.model, self.intrinsics, world_from_camera)


def look(position: F64, forward: F64, up: tuple[float, float, float] = (0.0, 0.0, 1.0)) -> F64:
    """(4, 4) f64 pose of a camera at `position` (3,) [m] that looks along `forward` (3,) with `up` upwards."""
    z = np.asarray(forward, np.float64) / np.linalg.norm(forward)
    right = np.cross(z, up)
    x = right / np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3] = np.stack([x, np.cross(z, x), z, np.asarray(position, np.float64)], axis=1)
    return pose


def pinhole(height: int, width: int, horizontal_fov: float) -> F64:
    """(4,) f64 intrinsics of a centred pinhole camera with square pixels; `horizontal_fov` [rad]."""
    focal = 0.5 * width / np.tan(0.5 * horizontal_fov)
    return np.array([focal, focal, 0.5 * width, 0.5 * height])


def local_directions(camera: Camera, height: int, width: int) -> F64:
    """(height, width, 3) f64 unit directions through the pixel centres, in the camera's frame."""
    fx, fy, cx, cy = camera.intrinsics
    across = (np.arange(width) + 0.5 - cx) / fx
    down = (np.arange(height) + 0.5 - cy) / fy
    x, y = np.meshgrid(across, down)
    if camera.model == "pinhole":
        direction = np.stack([x, y, np.ones_like(x)], axis=-1)
        length: F64 = np.sqrt((direction * direction).sum(-1, keepdims=True))
        return direction / length
    return np.stack([np.sin(x) * np.cos(y), np.sin(y), np.cos(x) * np.cos(y)], axis=-1)


def rays(camera: Camera, height: int, width: int) -> tuple[F64, F64, F64]:
    """One ray per pixel, in the world.

    Returns origin (3,) f64 [m], unit directions (height, width, 3) f64, and `z_scale` (height, width) f64: the cosine
    between ray and forward axis, so that z = ray length * z_scale.
    """
    local = local_directions(camera, height, width)
    return camera.position.copy(), local @ camera.rotation.T, local[..., 2].copy()


def ray_lengths(camera: Camera, depth: F64) -> F64:
    """(H, W) f64 ray lengths [m] of a camera's own depth (H, W) [m]; 0, no return, stays 0."""
    if camera.own_depth == "ray":
        return np.asarray(depth, np.float64)
    return np.asarray(depth, np.float64) / local_directions(camera, *depth.shape)[..., 2]


def own_depth(camera: Camera, lengths: F64) -> F64:
    """(H, W) f64 the camera's own depth [m] of ray lengths (H, W) [m]: the inverse of `ray_lengths`."""
    if camera.own_depth == "ray":
        return np.asarray(lengths, np.float64)
    return np.asarray(lengths, np.float64) * local_directions(camera, *lengths.shape)[..., 2]


def to_own_depth(camera: Camera, depth: F64, convention: DepthConvention) -> F64:
    """(H, W) f64 stored depth [m] as the camera's own. Raises UsageError for z of a spherical camera, which sees
    behind itself."""
    if convention == camera.own_depth:
        return np.asarray(depth, np.float64)
    if camera.model == "spherical":
        raise UsageError("depth_convention 'z' with a spherical camera: expected 'ray', for z has no sign behind it.")
    return own_depth(camera, depth)


def points_of(camera: Camera, depth: F64) -> F64:
    """(H, W, 3) f64 [m] world points of a camera's own depth (H, W) [m]; meaningless where the depth is 0."""
    origin, direction, _ = rays(camera, *depth.shape)
    return origin + direction * ray_lengths(camera, depth)[..., None]


def project(camera: Camera, points: Any) -> tuple[Any, Any]:
    """Where points (..., 3) [m] appear: pixel (..., 2) as (column, row), and the camera's own depth (...) [m].

    NumPy arrays or torch tensors, computed in their dtype and on their device. A pinhole's depth is negative behind the
    camera, where the pixel means nothing.
    """
    rotation: Any = camera.rotation
    position: Any = camera.position
    stack: Any = np.stack
    if not isinstance(points, np.ndarray):
        import torch

        stack = torch.stack
        rotation = torch.tensor(camera.rotation, dtype=points.dtype, device=points.device)
        position = torch.tensor(camera.position, dtype=points.dtype, device=points.device)
    local = (points - position) @ rotation
    column, row, depth = project_local(camera, local[..., 0], local[..., 1], local[..., 2])
    return stack((column, row), -1), depth


def project_local(camera: Camera, x: Any, y: Any, z: Any) -> tuple[Any, Any, Any]:
    """Column, row [pixel] and the camera's own depth [m] of points given by coordinates [m] in the camera's frame.

    Separate arrays of any one shape, NumPy or torch: the form for many points, as `project` is for few.
    """
    return project_by(camera.model, [float(value) for value in camera.intrinsics], x, y, z)


def project_by(model: Model, intrinsics: Sequence[Any], x: Any, y: Any, z: Any) -> tuple[Any, Any, Any]:
    """`project_local` for several cameras at once: their fx, fy, cx, cy are arrays that broadcast with x, y and z."""
    if isinstance(x, np.ndarray):
        xp: Any = np
    else:
        import torch as xp
    fx, fy, cx, cy = intrinsics
    if model == "pinhole":
        safe = xp.where(xp.abs(z) < 1e-9, xp.full_like(z, 1e-9), z)
        return fx * (x / safe) + cx, fy * (y / safe) + cy, z
    level = x * x + z * z
    return fx * xp.arctan2(x, z) + cx, fy * xp.arctan2(y, xp.sqrt(level)) + cy, xp.sqrt(level + y * y)
