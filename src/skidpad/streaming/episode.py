"""Episodes as a mapper meets them: the index, the online manifest, and frames that arrive one by one.

Nothing here knows where a vault lies. The depth convention of the files ends in this module: an Observation holds each
camera's own depth (z of a pinhole, ray length of a spherical camera).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import canonical_json, digest_value
from skidpad.artifacts.files import read_bytes
from skidpad.errors import FormatError, IntegrityError, ProtocolError
from skidpad.streaming.assets import checked_bytes, decode_npy, root_of
from skidpad.streaming.camera import Camera, DepthConvention, to_own_depth
from skidpad.streaming.schemas import (
    INDEX_SCHEMA,
    MAX_JSON_BYTES,
    AssetModel,
    CameraModel,
    EntryModel,
    FrameModel,
    OnlineModel,
    check_keys,
    check_schema,
    read_object,
    validated,
)

if TYPE_CHECKING:
    import torch

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]


@dataclass(frozen=True)
class EpisodeEntry:
    """One checked entry of an index, with the folder its paths are relative to and the root of the whole index."""

    fields: EntryModel
    folder: Path
    index_root: str
    where: str

    @property
    def episode_id(self) -> str:
        return self.fields.episode_id

    @property
    def split_id(self) -> str:
        return self.fields.split_id


@dataclass(frozen=True)
class EpisodeIndex:
    """An index whose root holds. Its entries are raw until they are selected, so that a broken one blocks nothing else.

    root      hash tree over the entries and their places
    episodes  entry objects in file order
    """

    path: Path
    root: str
    episodes: tuple[Mapping[str, Any], ...]

    def select(self, max_episodes: int | None = None) -> list[EpisodeEntry]:
        """The first `max_episodes` entries (all by default), in order, each checked by itself.

        Raises FormatError naming the first entry at fault.
        """
        return [self._entry(number) for number in range(len(self.episodes))[:max_episodes]]

    def _entry(self, number: int) -> EpisodeEntry:
        where = f"{self.path}: episodes[{number}]"
        fields = validated(EntryModel, canonical_json(self.episodes[number]).encode(), where)
        return EpisodeEntry(fields, self.path.parent, self.root, where)


def index_leaves(episodes: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Leaves of the index tree: place and id of each entry, and the digest of all its fields."""
    return [
        (f"{number:06d}/{entry.get('episode_id')}", digest_value(entry, "episode entry"))
        for number, entry in enumerate(episodes)
    ]


def load_episode_index(path: Path) -> EpisodeIndex:
    """Read an index and recompute its root; opens no other file.

    Raises FileNotFoundError; FormatError for what is not an index; IntegrityError when the root does not hold.
    """
    value = read_object(read_bytes(path, MAX_JSON_BYTES), str(path))
    check_schema(value, INDEX_SCHEMA, str(path))
    check_keys(value, ("schema", "episodes", "root"), str(path))
    episodes = value["episodes"]
    if not isinstance(episodes, list) or not episodes or not all(isinstance(one, dict) for one in episodes):
        raise FormatError(f"{path}: 'episodes' must be a list of at least one object, and of nothing else.")
    root = root_of(index_leaves(episodes))
    if value["root"] != root:
        raise IntegrityError(
            f"{path}: the entries have root {root}, the file says {value['root']!r}. An entry was changed, added, "
            "removed or moved; restore the file."
        )
    return EpisodeIndex(path, root, tuple(episodes))


def camera_of(fields: CameraModel, where: str) -> Camera:
    """The camera a manifest spells. Raises FormatError naming the place for numbers that make no camera."""
    try:
        return Camera(fields.model, np.array(fields.intrinsics), np.array(fields.world_from_camera, np.float64))
    except ValueError as error:  # ragged rows, or our own refusal, which is a ValueError too
        raise FormatError(f"{where}: {error}") from None


@dataclass(frozen=True)
class OnlineEpisode:
    """The online half of a provenance: all that phase one needs, and no way to the vault's folder.

    folder       of the online manifest, resolved
    manifest     parsed from the validated bytes
    """

    folder: Path
    manifest: OnlineModel
    manifest_sha256: str
    online_root: str
    index_root: str


@dataclass(frozen=True, eq=False)
class Observation:
    """One arrival.

    rgb      [3, H, W] float32 in [0, 1]
    depth    [H, W] float32 [m], the camera's own depth; 0 where there is no return; None where the episode has no depth
    digests  SHA-256 of the files it was decoded from, by "rgb" and "depth"

    Raises ProtocolError for an array of another shape or dtype, or with values outside their range.
    """

    episode_id: str
    frame_id: int
    time_s: float
    rgb: torch.Tensor
    depth: torch.Tensor | None
    camera: Camera
    digests: Mapping[str, str]

    def __post_init__(self) -> None:
        import torch

        where = f"episode {self.episode_id}, frame {self.frame_id}"
        if self.rgb.ndim != 3 or self.rgb.shape[0] != 3 or self.rgb.dtype != torch.float32:
            raise ProtocolError(
                f"{where}: rgb is {self.rgb.dtype} {tuple(self.rgb.shape)}, expected float32 [3, H, W]."
            )
        # NaN fails both comparisons, so one test finds it and what is out of range.
        if not bool(((self.rgb >= 0.0) & (self.rgb <= 1.0)).all()):
            raise ProtocolError(f"{where}: rgb has values outside [0, 1]. Divide bytes by 255.")
        if not np.isfinite(self.time_s):
            raise ProtocolError(f"{where}: time {self.time_s}, expected a finite number of seconds.")
        if self.depth is None:
            return
        if self.depth.shape != self.rgb.shape[1:] or self.depth.dtype != torch.float32:
            raise ProtocolError(
                f"{where}: depth is {self.depth.dtype} {tuple(self.depth.shape)}, expected float32 "
                f"{tuple(self.rgb.shape[1:])}."
            )
        if not bool(((self.depth >= 0.0) & torch.isfinite(self.depth)).all()):
            raise ProtocolError(
                f"{where}: depth is negative or not finite somewhere; expected metres, 0 for no return."
            )


def read_asset(folder: Path, asset: AssetModel) -> NDArray[Any]:
    """The array of one asset, hashed on the very bytes that are decoded.

    Raises IntegrityError when they are not the declared ones, FormatError when they are no such array.
    """
    path = folder / asset.path
    try:
        data = read_bytes(path, asset.bytes)
    except (OSError, FormatError) as error:
        raise IntegrityError(f"{path}: was validated and can no longer be read ({error}).") from None
    return decode_npy(checked_bytes(data, asset.sha256, str(path)), asset.dtype, asset.shape, str(path))


def read_depth(folder: Path, asset: AssetModel, camera: Camera, convention: DepthConvention) -> F32:
    """(H, W) f32 the camera's own depth [m] of a depth asset."""
    stored = read_asset(folder, asset)
    if convention == camera.own_depth:
        return stored
    return to_own_depth(camera, stored.astype(np.float64), convention).astype(np.float32)


class OnlineSource:
    """Frames of one episode as they arrive: decoded once, in order, and never before.

    `warmup()` gives the warm-up frames, `next()` the next of the stream, `remaining` how many are left of it.

    device  torch device of the tensors
    Raises ProtocolError when a frame is asked for out of turn or when none is left.
    """

    def __init__(self, online: OnlineEpisode, device: str = "cpu") -> None:
        self._online = online
        self._device = device
        self._warm = False
        self._taken = 0

    @property
    def manifest(self) -> OnlineModel:
        """Ids, counts, image size; the frames in it name files that only this object opens."""
        return self._online.manifest

    @property
    def remaining(self) -> int:
        """Stream frames that have not arrived yet."""
        return len(self._online.manifest.stream) - self._taken

    def warmup(self) -> list[Observation]:
        """All warm-up frames. Raises ProtocolError when asked a second time."""
        if self._warm:
            raise ProtocolError(f"episode {self.manifest.episode_id}: the warm-up was already taken.")
        self._warm = True
        return [self._decode(frame) for frame in self.manifest.warmup]

    def next(self) -> Observation:
        """The next frame of the stream. Raises ProtocolError before the warm-up and after the last."""
        if not self._warm:
            raise ProtocolError(f"episode {self.manifest.episode_id}: take the warm-up before the stream.")
        if not self.remaining:
            raise ProtocolError(f"episode {self.manifest.episode_id}: all {self._taken} stream frames have arrived.")
        frame = self.manifest.stream[self._taken]
        self._taken += 1
        return self._decode(frame)

    def stream(self) -> Iterator[Observation]:
        """The frames that are left, one by one."""
        while self.remaining:
            yield self.next()

    def _decode(self, frame: FrameModel) -> Observation:
        import torch

        manifest = self.manifest
        camera = camera_of(frame.camera, f"episode {manifest.episode_id}, frame {frame.frame_id}")
        rgb = read_asset(self._online.folder, frame.rgb)
        digests = {"rgb": frame.rgb.sha256}
        depth = None
        if frame.depth is not None:
            stored = read_depth(self._online.folder, frame.depth, camera, manifest.depth_convention)
            depth = torch.from_numpy(stored.copy()).to(self._device)
            digests["depth"] = frame.depth.sha256
        return Observation(
            manifest.episode_id,
            frame.frame_id,
            frame.time_s,
            (torch.from_numpy(rgb.copy()).to(self._device).permute(2, 0, 1).to(torch.float32) / 255.0).contiguous(),
            depth,
            camera,
            digests,
        )
