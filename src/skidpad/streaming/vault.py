"""Hidden queries and their labels: the schema of a vault, and the only reader of one.

A vault is opened after its episode is sealed. Nothing that runs while streaming imports this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from skidpad.streaming.camera import Camera
from skidpad.streaming.episode import F32, U8, camera_of, read_asset, read_depth
from skidpad.streaming.schemas import (
    AssetModel,
    CameraModel,
    Count,
    Exact,
    Finite,
    Identifier,
    ImageSize,
    Split,
)

Bool = NDArray[np.bool_]
F64 = NDArray[np.float64]

Point = Annotated[list[Finite], Field(min_length=2, max_length=2)]


class QueryModel(Exact):
    """One hidden view. `moving` is null on static tracks."""

    frame_id: Annotated[int, Field(ge=0)]
    time_s: Finite
    placement: Literal["interpolated", "extrapolated", "lateral", "ahead", "other_agent", "bev"]
    camera: CameraModel
    rgb: AssetModel
    depth: AssetModel
    seen: AssetModel
    moving: AssetModel | None


class TaskModel(Exact):
    """What a planner would need to know, in the world's frame.

    corridor   polygon of the planned path with its half width
    bev_*      grid of cells of `bev_cell_m`, cell (row, column) covers bev_origin + [column, row] * bev_cell_m
    occupancy  u1 (rows, columns): something solid between 0.2 and 2.0 m above the ground
    agents     u1 (rows, columns): a vehicle, cyclist or pedestrian stands there
    """

    ground_height: Finite
    path: Annotated[list[Point], Field(min_length=2)]
    corridor: Annotated[list[Point], Field(min_length=4)]
    bev_origin: Point
    bev_cell_m: Annotated[float, Field(gt=0.0)]
    occupancy: AssetModel
    agents: AssetModel


class OriginModel(Exact):
    """From what the episode can be made again: the label that gives everything away."""

    generator: str
    generator_version: str
    seed: int | None
    scene_digest: str | None
    trace_digest: str | None
    code_digest: str


class VaultModel(Exact):
    """The vault manifest. `declared_length` is the number of its queries."""

    schema_: Literal["skidpad.episodes.vault/1"] = Field(alias="schema")
    episode_id: Identifier
    scene_id: Identifier
    split_id: Split
    track_id: Identifier
    vault_id: Identifier
    image_size: ImageSize
    depth_convention: Literal["z", "ray"]
    declared_length: Count
    queries: Annotated[list[QueryModel], Field(min_length=1)]
    task: TaskModel | None
    origin: OriginModel


@dataclass(frozen=True)
class VaultEpisode:
    """The vault half of a provenance: what phase two needs.

    folder    of the vault manifest, resolved
    manifest  parsed from the validated bytes
    """

    folder: Path
    manifest: VaultModel
    manifest_sha256: str
    vault_root: str


@dataclass(frozen=True, eq=False)
class Query:
    """One hidden view with its labels.

    rgb     (3, H, W) f32 in [0, 1]
    depth   (H, W) f32 [m], the camera's own depth; 0 where there is no return
    seen    (H, W) bool: the surface was visible in some frame that was offered
    moving  (H, W) bool: pixel on an agent that moved since the stream began; None on static tracks
    """

    frame_id: int
    time_s: float
    placement: str
    camera: Camera
    rgb: F32
    depth: F32
    seen: Bool
    moving: Bool | None


@dataclass(frozen=True, eq=False)
class Task:
    """Labels of the driving task. Arrays as in `TaskModel`, masks as bool; path and corridor (n, 2) f64 [m]."""

    ground_height: float
    path: F64
    corridor: F64
    bev_origin: F64
    bev_cell_m: float
    occupancy: Bool
    agents: Bool


@dataclass(frozen=True, eq=False)
class Vault:
    """An opened vault: its queries in order, and the task labels where there are some."""

    vault_id: str
    queries: Sequence[Query]
    task: Task | None


def open_vault(vault: VaultEpisode) -> Vault:
    """Read and check everything in a vault.

    Raises IntegrityError when a file is not the validated one, FormatError when it is no such array.
    """
    manifest = vault.manifest
    queries = [_query(vault, fields) for fields in manifest.queries]
    return Vault(manifest.vault_id, queries, _task(vault.folder, manifest.task) if manifest.task else None)


def _mask(folder: Path, asset: AssetModel) -> Bool:
    return read_asset(folder, asset).astype(np.bool_)


def _query(vault: VaultEpisode, fields: QueryModel) -> Query:
    folder = vault.folder
    camera = camera_of(fields.camera, f"vault {vault.manifest.vault_id}, query {fields.frame_id}")
    rgb: U8 = read_asset(folder, fields.rgb)
    return Query(
        fields.frame_id,
        fields.time_s,
        fields.placement,
        camera,
        np.ascontiguousarray(rgb.transpose(2, 0, 1)).astype(np.float32) / np.float32(255.0),
        read_depth(folder, fields.depth, camera, vault.manifest.depth_convention),
        _mask(folder, fields.seen),
        _mask(folder, fields.moving) if fields.moving else None,
    )


def _task(folder: Path, fields: TaskModel) -> Task:
    return Task(
        fields.ground_height,
        np.array(fields.path),
        np.array(fields.corridor),
        np.array(fields.bev_origin),
        fields.bev_cell_m,
        _mask(folder, fields.occupancy),
        _mask(folder, fields.agents),
    )


def assets_of(manifest: VaultModel) -> list[tuple[str, AssetModel]]:
    """Every asset of a vault with its kind: rgb, depth, mask."""
    found: list[tuple[str, Any]] = []
    for query in manifest.queries:
        found += [("rgb", query.rgb), ("depth", query.depth), ("mask", query.seen), ("mask", query.moving)]
    if manifest.task:
        found += [("mask", manifest.task.occupancy), ("mask", manifest.task.agents)]
    return [(kind, asset) for kind, asset in found if asset is not None]
