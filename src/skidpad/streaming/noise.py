"""What a depth camera adds to a clean frame: only to frames that are shown, never to labels (M17).

On clean depth a plain average can hardly be beaten, so whatever is learned there learns nothing. The axial law is that
of a structured-light sensor (Nguyen, Izadi and Lovell 2012, without the lateral part).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skidpad.streaming.camera import F64, Camera
from skidpad.streaming.schemas import NoiseFields

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]

SENSOR = NoiseFields(
    axial_m=0.0012, axial_per_m2=0.0019, edge_jump_m=0.1, holes=0.02, shift_m=0.005, turn_deg=0.3, exposure=0.1
)
NONE = NoiseFields(axial_m=0.0, axial_per_m2=0.0, edge_jump_m=0.0, holes=0.0, shift_m=0.0, turn_deg=0.0, exposure=0.0)
_NEAREST_M = 0.05


def axial_sigma(noise: NoiseFields, z: F64) -> F64:
    """(...) f64 standard deviation [m] of depth at `z` (...) [m]."""
    return noise.axial_m + noise.axial_per_m2 * (z - 0.4) ** 2


def noisy_depth(noise: NoiseFields, depth: F32, rng: np.random.Generator) -> F32:
    """(H, W) f32 depth [m] with axial noise, with returns lost at jumps between neighbours and in random pixels."""
    z = depth.astype(np.float64)
    valid = depth > 0.0
    shaken = z + axial_sigma(noise, z) * rng.standard_normal(z.shape)
    lost = rng.random(z.shape) < noise.holes
    if noise.edge_jump_m > 0.0:
        for axis in (0, 1):
            jump = np.abs(np.diff(z, axis=axis)) > noise.edge_jump_m
            before = [(0, 0), (0, 0)]
            after = [(0, 0), (0, 0)]
            before[axis], after[axis] = (0, 1), (1, 0)
            lost |= np.pad(jump, before) | np.pad(jump, after)
    kept = valid & ~lost & (shaken > _NEAREST_M)
    result: F32 = np.where(kept, shaken, 0.0).astype(np.float32)
    return result


def noisy_colour(noise: NoiseFields, rgb: U8, rng: np.random.Generator) -> U8:
    """(H, W, 3) u8 colours under another exposure."""
    gain = 1.0 + noise.exposure * rng.uniform(-1.0, 1.0)
    return np.clip(np.round(rgb * gain), 0, 255).astype(np.uint8)


def noisy_camera(noise: NoiseFields, camera: Camera, rng: np.random.Generator) -> Camera:
    """The camera where its pose is believed to be: shifted along each axis, turned about a random one."""
    pose = camera.world_from_camera.copy()
    shift = noise.shift_m * rng.standard_normal(3)
    axis = rng.standard_normal(3)
    angle = np.radians(noise.turn_deg) * rng.standard_normal()
    pose[:3, :3] = pose[:3, :3] @ _turned(axis / np.linalg.norm(axis), angle)
    pose[:3, 3] += shift
    return camera.with_pose(pose)


def _turned(axis: F64, angle: float) -> F64:
    """(3, 3) rotation about a unit axis (Rodrigues); exactly the identity for angle 0."""
    x, y, z = axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    rotation: F64 = np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * (cross @ cross)
    return rotation
