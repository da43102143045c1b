"""What a generator hands to the compiler, and the labels that are made from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from skidpad.streaming.camera import F64, Camera, DepthConvention, points_of, project

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]
Bool = NDArray[np.bool_]

SEEN_SHARE = 0.02
MIN_VALID_SHARE = 0.05


@dataclass(frozen=True, eq=False)
class View:
    """One rendered or recorded view.

    rgb        (H, W, 3) u8
    depth      (H, W) f32 [m], the camera's own depth, 0 = no return
    placement  of a query, else ""
    moving     (H, W) bool of a query on a dynamic track, else None
    """

    time_s: float
    camera: Camera
    rgb: U8
    depth: F32
    placement: str = ""
    moving: Bool | None = None

    @property
    def is_usable(self) -> bool:
        """Whether enough pixels have a depth; emptier views are drawn again."""
        return float((self.depth > 0.0).mean()) >= MIN_VALID_SHARE


@dataclass(frozen=True, eq=False)
class TaskLabels:
    """Labels of the driving task; see `skidpad.streaming.vault.TaskModel`."""

    ground_height: float
    path: F64
    corridor: F64
    bev_origin: F64
    bev_cell_m: float
    occupancy: U8
    agents: U8


@dataclass(frozen=True, eq=False)
class Draft:
    """An episode before it is written.

    warmup, stream, queries  views in order of time; frames as they are offered, queries clean
    voxel_m                  tolerance of `seen`: the voxel of the preset that this track is for
    """

    warmup: Sequence[View]
    stream: Sequence[View]
    queries: Sequence[View]
    depth_convention: DepthConvention
    modalities: tuple[Literal["rgb", "depth"], ...]
    voxel_m: float
    task: TaskLabels | None = None

    @property
    def frames(self) -> list[View]:
        """Warm-up, then stream."""
        return [*self.warmup, *self.stream]


def seen_mask(query: Camera, depth: F32, frames: Sequence[tuple[Camera, F32]], voxel_m: float) -> U8:
    """(H, W) u8: 1 where the surface point of a query pixel was visible in some frame that was offered.

    query   camera of the query; `depth` (H, W) its own clean depth [m]
    frames  cameras and own depths (H, W) [m] as offered, whatever a policy made of them

    A point counts as visible where it projects onto a pixel whose depth agrees within max(voxel, 2 %).
    """
    valid = depth > 0.0
    points = points_of(query, depth.astype(np.float64))[valid]
    found = np.zeros(len(points), np.bool_)
    for camera, offered in frames:
        height, width = offered.shape
        pixel, own = project(camera, points)
        with np.errstate(invalid="ignore"):
            column, row = np.floor(pixel[:, 0]), np.floor(pixel[:, 1])
            inside = (own > 0.0) & (column >= 0) & (column < width) & (row >= 0) & (row < height)
        measured = offered[row[inside].astype(np.intp), column[inside].astype(np.intp)]
        agrees = np.abs(measured - own[inside]) <= np.maximum(voxel_m, SEEN_SHARE * own[inside])
        found[inside] |= agrees & (measured > 0.0)
    mask = np.zeros(depth.shape, np.uint8)
    mask[valid] = found
    return mask
