"""Whether episodes may be run: everything that can be checked before an image or a label is decoded.

`validate_episodes` reads each manifest once, checks it against the index and against everything else in the episode,
and returns the parsed bytes: nothing is read a second time, so nothing can change between the check and the use.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from skidpad.artifacts.digests import digest_bytes
from skidpad.artifacts.files import read_bytes
from skidpad.errors import FormatError, IntegrityError, UsageError, listed
from skidpad.streaming.assets import root_of
from skidpad.streaming.camera import F64, to_own_depth
from skidpad.streaming.episode import EpisodeEntry, OnlineEpisode, camera_of
from skidpad.streaming.schemas import (
    ID_NAMES,
    MAX_JSON_BYTES,
    ONLINE_SCHEMA,
    VAULT_SCHEMA,
    AssetModel,
    EntryModel,
    OnlineModel,
    validated,
)
from skidpad.streaming.vault import VaultEpisode, VaultModel, assets_of

SAME_PLACE_M = 1e-3
SAME_HEADING_COS = float(np.cos(np.radians(0.05)))


class Protocol(NamedTuple):
    """How many frames and queries a run asks for."""

    warmup: int
    stream: int
    queries: int


@dataclass(frozen=True)
class Provenance:
    """One validated episode: where it comes from, and the two halves that the two phases run on."""

    entry: EntryModel
    online: OnlineEpisode
    vault: VaultEpisode

    @property
    def episode_id(self) -> str:
        return self.entry.episode_id

    def to_json(self) -> dict[str, str]:
        """The five ids, the three roots, and the digests of both manifests."""
        return {
            **{name: getattr(self.entry, name) for name in ID_NAMES},
            "index_root": self.online.index_root,
            "online_root": self.online.online_root,
            "vault_root": self.vault.vault_root,
            "online_manifest_sha256": self.online.manifest_sha256,
            "vault_manifest_sha256": self.vault.manifest_sha256,
        }


def check_split(
    entries: Sequence[EpisodeEntry],
    split: str,
    *,
    official: bool = False,
    release: str = "",
    released_by: str | None = None,
    parent: str | None = None,
) -> None:
    """Refuse entries of another split, and splits that may not be run like this.

    official     an official registration is at hand
    release      why the holdout split is opened
    released_by  run id of the first release of these holdout vaults, if there was one
    parent       run id that the registration names as its parent
    Raises UsageError listing all episodes at fault.
    """
    if split == "train":
        raise UsageError("split train: is for training and never evaluated. Choose dev, test or holdout.")
    if split == "test" and not official:
        raise UsageError("split test: needs an official registration. Make one with `skidpad register --official`.")
    if split == "holdout" and not release.strip():
        raise UsageError('split holdout: needs release = "<reason>"; the reason becomes part of the registration.')
    if split == "holdout" and released_by is not None and parent != released_by:
        raise UsageError(
            f"split holdout: these vaults were released before, by run {released_by}. A second release needs a "
            f"registration with parent = {released_by!r}."
        )
    foreign = [f"{entry.episode_id} ({entry.split_id})" for entry in entries if entry.split_id != split]
    if foreign:
        raise UsageError(f"split {split}: not {split} are {listed(foreign, len(foreign))}.")


def validate_episodes(entries: Sequence[EpisodeEntry], protocol: Protocol | None = None) -> list[Provenance]:
    """Parse, digest and check all JSON of all entries; one Provenance per entry, in order.

    protocol  wanted counts, beside those that each entry states itself
    Raises FormatError for what breaks a rule, IntegrityError where bytes are not those of the roots.
    """
    _check_unique(entries)
    return [_validate(entry, protocol) for entry in entries]


def _check_unique(entries: Sequence[EpisodeEntry]) -> None:
    for name in ("episode_id", "vault_id", "scene_id"):
        first: dict[str, str] = {}
        for entry in entries:
            value = getattr(entry.fields, name)
            if value in first:
                raise FormatError(
                    f"{entry.where}: {name} {value!r} is also that of {first[value]}; each scene is evaluated once."
                )
            first[value] = entry.where


def _validate(entry: EpisodeEntry, protocol: Protocol | None) -> Provenance:
    fields = entry.fields
    online_path = _manifest_path(entry, fields.online_manifest, f"online/{fields.episode_id}/online.json")
    vault_path = _manifest_path(entry, fields.vault_manifest, f"vaults/{fields.vault_id}/vault.json")
    online_bytes, vault_bytes = (_manifest_bytes(path) for path in (online_path, vault_path))
    online = validated(OnlineModel, online_bytes, str(online_path), ONLINE_SCHEMA)
    vault = validated(VaultModel, vault_bytes, str(vault_path), VAULT_SCHEMA)
    hidden = assets_of(vault)
    shown = online_assets(online)
    digests = (digest_bytes(online_bytes), digest_bytes(vault_bytes))
    _check_root(online_path, digests[0], shown, fields.online_root)
    _check_root(vault_path, digests[1], hidden, fields.vault_root)
    _check_agreement(entry, online, online_path, vault, vault_path)
    _check_counts(fields, online, vault, protocol, entry.where)
    _check_frames(online, online_path, vault, vault_path)
    _check_shapes(online, online_path, vault, vault_path)
    files = _check_files(online_path.parent, shown), _check_files(vault_path.parent, hidden)
    _check_leakage(entry.where, files, shown, hidden)
    _check_poses(online, online_path, vault, vault_path)
    return Provenance(
        fields,
        OnlineEpisode(online_path.parent, online, digests[0], fields.online_root, entry.index_root),
        VaultEpisode(vault_path.parent, vault, digests[1], fields.vault_root),
    )


def online_assets(manifest: OnlineModel) -> list[tuple[str, AssetModel]]:
    """Every asset of an online manifest with its kind: rgb, depth."""
    found: list[tuple[str, AssetModel]] = []
    for frame in manifest.frames:
        found.append(("rgb", frame.rgb))
        if frame.depth is not None:
            found.append(("depth", frame.depth))
    return found


def _manifest_path(entry: EpisodeEntry, text: str, tail: str) -> Path:
    wanted = f"{entry.split_id}/{tail}"
    if text != wanted:
        raise FormatError(f"{entry.where}: manifest path {text!r}, expected {wanted!r}: a split is a folder.")
    folder = Path(os.path.realpath(entry.folder))
    path = folder / wanted
    if Path(os.path.realpath(path)) != path:
        raise FormatError(f"{path}: is reached through a link, expected a file in its own folder.")
    _regular(path, None)
    return path


def _regular(path: str | Path, size: int | None) -> os.stat_result:
    try:
        found = os.stat(path)
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror}, expected a file.") from None
    if not stat.S_ISREG(found.st_mode):
        raise FormatError(f"{path}: is not a regular file.")
    if size is not None and found.st_size != size:
        raise FormatError(f"{path}: {found.st_size} bytes, the manifest declares {size}.")
    return found


def _manifest_bytes(path: Path) -> bytes:
    return read_bytes(path, MAX_JSON_BYTES)


def manifest_leaves(name: str, sha256: str, assets: Iterable[tuple[str, AssetModel]]) -> list[tuple[str, str]]:
    """Leaves of an online or vault tree: the manifest and its assets by path."""
    return [(name, sha256), *((asset.path, asset.sha256) for _, asset in assets)]


def _check_root(path: Path, sha256: str, assets: Sequence[tuple[str, AssetModel]], root: str) -> None:
    found = root_of(manifest_leaves(path.name, sha256, assets))
    if found != root:
        raise IntegrityError(
            f"{path}: manifest and assets have root {found}, the index says {root}. The manifest is not the one that "
            "was published; restore it."
        )


def _check_agreement(
    entry: EpisodeEntry, online: OnlineModel, online_path: Path, vault: VaultModel, vault_path: Path
) -> None:
    for manifest, path in ((online, online_path), (vault, vault_path)):
        for name in ID_NAMES:
            ours, other = getattr(entry.fields, name), getattr(manifest, name)
            if ours != other:
                raise FormatError(f"{path}: {name} is {other!r}, {entry.where} says {ours!r}.")
    for name in ("image_size", "depth_convention"):
        one, other = getattr(online, name), getattr(vault, name)
        if one != other:
            raise FormatError(f"{vault_path}: {name} is {other!r}, {online_path} says {one!r}.")


def _check_counts(
    fields: EntryModel, online: OnlineModel, vault: VaultModel, protocol: Protocol | None, where: str
) -> None:
    found = Protocol(len(online.warmup), len(online.stream), len(vault.queries))
    stated = Protocol(fields.warmup_count, fields.stream_count, fields.query_count)
    for wanted, whose in ((stated, "the index entry"), (protocol, "the run")):
        if wanted is not None and wanted != found:
            raise FormatError(
                f"{where}: {whose} wants {wanted.warmup} + {wanted.stream} + {wanted.queries} warm-up, stream and "
                f"query frames, the manifests hold {found.warmup} + {found.stream} + {found.queries}."
            )


def _check_frames(online: OnlineModel, online_path: Path, vault: VaultModel, vault_path: Path) -> None:
    frames = online.frames
    for one, other in pairwise(frames):
        if other.frame_id <= one.frame_id or other.time_s < one.time_s:
            raise FormatError(
                f"{online_path}: frame {other.frame_id} at {other.time_s} s follows frame {one.frame_id} at "
                f"{one.time_s} s; ids must rise and times must not fall."
            )
    for declared, found, path in (
        (online.declared_length, len(frames), online_path),
        (vault.declared_length, len(vault.queries), vault_path),
    ):
        if declared != found:
            raise FormatError(f"{path}: declared_length is {declared}, it lists {found}.")
    ids = [query.frame_id for query in vault.queries]
    if any(other <= one for one, other in pairwise(ids)):
        raise FormatError(f"{vault_path}: query ids {listed(ids)} must rise.")
    if shared := sorted({frame.frame_id for frame in frames} & set(ids)):
        raise FormatError(f"{vault_path}: queries {listed(shared)} have the ids of online frames.")


def _check_shapes(online: OnlineModel, online_path: Path, vault: VaultModel, vault_path: Path) -> None:
    size = online.image_size
    if "rgb" not in online.modalities or len(set(online.modalities)) != len(online.modalities):
        raise FormatError(f"{online_path}: modalities {online.modalities}, expected rgb, and depth where it is shown.")
    for frame in online.frames:
        if (frame.depth is not None) != ("depth" in online.modalities):
            raise FormatError(
                f"{online_path}: frame {frame.frame_id} {'has' if frame.depth else 'lacks'} depth, the modalities are "
                f"{online.modalities}."
            )
    whole = {"rgb": ("u1", [*size, 3]), "depth": ("f4", size), "mask": ("u1", size)}
    kinds = [(online_path, kind, asset) for kind, asset in online_assets(online)]
    task = {id(vault.task.occupancy), id(vault.task.agents)} if vault.task else set()
    kinds += [(vault_path, kind, asset) for kind, asset in assets_of(vault) if id(asset) not in task]
    for path, kind, asset in kinds:
        dtype, shape = whole[kind]
        if (asset.dtype, asset.shape) != (dtype, shape):
            raise FormatError(
                f"{path}: {asset.path} is {asset.dtype} {asset.shape}, expected {dtype} {shape} for {kind}."
            )
    if vault.task and (
        vault.task.occupancy.shape != vault.task.agents.shape
        or len(vault.task.occupancy.shape) != 2
        or {vault.task.occupancy.dtype, vault.task.agents.dtype} != {"u1"}
    ):
        raise FormatError(f"{vault_path}: occupancy and agents must be u1 grids of one shape.")


def _check_files(folder: Path, assets: Sequence[tuple[str, AssetModel]]) -> dict[tuple[int, int], str]:
    """Device and inode of every asset; each is confined to the folder, regular, of its size, and there once."""
    root = os.path.realpath(folder) + os.sep
    files: dict[tuple[int, int], str] = {}
    digests: dict[str, str] = {}
    for kind, asset in assets:
        pure = PurePosixPath(asset.path)
        if pure.is_absolute() or ".." in pure.parts or str(pure) != asset.path or "\0" in asset.path:
            raise FormatError(f"{folder}: asset path {asset.path!r}, expected a plain path below this folder.")
        path = root + asset.path
        if "/" in asset.path or os.path.islink(path):
            path = os.path.realpath(path)
            if not path.startswith(root):
                raise FormatError(f"{root}{asset.path}: leads to {path}, outside the episode's own folder.")
        found = _regular(path, asset.bytes)
        key = (found.st_dev, found.st_ino)
        if key in files:
            raise FormatError(f"{folder}: {asset.path} and {files[key]} are one file.")
        files[key] = asset.path
        if kind == "mask":
            continue
        if asset.sha256 in digests:
            raise FormatError(f"{folder}: {asset.path} and {digests[asset.sha256]} hold the same bytes.")
        digests[asset.sha256] = asset.path
    return files


def _check_leakage(
    where: str,
    files: tuple[Mapping[tuple[int, int], str], Mapping[tuple[int, int], str]],
    shown: Sequence[tuple[str, AssetModel]],
    hidden: Sequence[tuple[str, AssetModel]],
) -> None:
    online_files, vault_files = files
    if shared := sorted(online_files[key] for key in online_files.keys() & vault_files.keys()):
        raise FormatError(f"{where}: the mapper would see files of the vault: {listed(shared)}.")
    names = {asset.sha256: asset.path for _, asset in hidden}
    if shared := sorted(names[asset.sha256] for _, asset in shown if asset.sha256 in names):
        raise FormatError(f"{where}: the mapper would see the content of the vault's {listed(shared)}.")


def _check_poses(online: OnlineModel, online_path: Path, vault: VaultModel, vault_path: Path) -> None:
    poses: list[F64] = []
    for manifest, path, views in ((online, online_path, online.frames), (vault, vault_path, vault.queries)):
        for view in views:
            camera = camera_of(view.camera, f"{path}: frame {view.frame_id}")
            to_own_depth(camera, np.zeros((1, 1)), manifest.depth_convention)
            poses.append(camera.world_from_camera)
    stacked = np.stack(poses)
    shown, hidden = stacked[: len(online.frames)], stacked[len(online.frames) :]
    apart = np.linalg.norm(shown[:, None, :3, 3] - hidden[None, :, :3, 3], axis=-1)
    cosine = (np.einsum("aij,bij->ab", shown[:, :3, :3], hidden[:, :3, :3]) - 1.0) / 2.0
    at = np.argwhere((apart < SAME_PLACE_M) & (cosine > SAME_HEADING_COS))
    if len(at):
        one, other = online.frames[at[0][0]].frame_id, vault.queries[at[0][1]].frame_id
        raise FormatError(
            f"{vault_path}: query {other} has the pose of online frame {one} (within 1 mm and 0.05 deg): the mapper "
            "would see the answer."
        )
