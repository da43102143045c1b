"""What the JSON files of an episode hold, field by field, and the strict reader of all of them.

Each object has exactly the fields of its model: a missing, an additional or a mistyped one is refused. Numbers are not
made from text nor from truth values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from skidpad.artifacts.files import parse_json
from skidpad.errors import FormatError, listed

INDEX_SCHEMA = "skidpad.episodes.index/1"
ONLINE_SCHEMA = "skidpad.episodes.online/1"
VAULT_SCHEMA = "skidpad.episodes.vault/1"

ID_NAMES = ("episode_id", "scene_id", "split_id", "track_id", "vault_id")
SPLITS = ("train", "dev", "test", "holdout")
PLACEMENTS = ("interpolated", "extrapolated", "lateral", "ahead", "other_agent", "bev")
MAX_JSON_BYTES = 1 << 24

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _identifier(text: str) -> str:
    if not _ID.fullmatch(text):
        raise ValueError("an id is 1 to 64 of a-z, 0-9, '.', '_', '-', beginning with a letter or digit")
    return text


def _digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise ValueError("a digest is 64 lower-case hexadecimal digits")
    return text


Identifier = Annotated[str, AfterValidator(_identifier)]
Digest = Annotated[str, AfterValidator(_digest)]
Count = Annotated[int, Field(ge=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Split = Literal["train", "dev", "test", "holdout"]
ImageSize = Annotated[list[Count], Field(min_length=2, max_length=2)]


class Exact(BaseModel):
    """An object with exactly its fields, of exactly their types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class AssetModel(Exact):
    """One array file. `path` is relative to the manifest that names it."""

    path: str
    sha256: Digest
    bytes: Annotated[int, Field(ge=1, le=1 << 28)]
    dtype: Literal["u1", "f4"]
    shape: Annotated[list[Count], Field(min_length=1, max_length=3)]


class CameraModel(Exact):
    """A camera as the manifests spell it; `skidpad.streaming.camera.Camera` checks the numbers."""

    model: Literal["pinhole", "spherical"]
    intrinsics: Annotated[list[Finite], Field(min_length=4, max_length=4)]
    world_from_camera: Annotated[list[list[Finite]], Field(min_length=4, max_length=4)]


class FrameModel(Exact):
    """One online frame."""

    frame_id: Annotated[int, Field(ge=0)]
    time_s: Finite
    camera: CameraModel
    rgb: AssetModel
    depth: AssetModel | None


class NoiseFields(Exact):
    """What was done to the frames of a noisy track; all zero would be no noise, which is spelt null."""

    axial_m: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    axial_per_m2: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    edge_jump_m: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    holes: Annotated[float, Field(ge=0.0, le=1.0)]
    shift_m: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    turn_deg: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    exposure: Annotated[float, Field(ge=0.0, lt=1.0)]


class OnlineModel(Exact):
    """The online manifest: what a mapper is shown."""

    schema_: Literal["skidpad.episodes.online/1"] = Field(alias="schema")
    episode_id: Identifier
    scene_id: Identifier
    split_id: Split
    track_id: Identifier
    vault_id: Identifier
    modalities: Annotated[list[Literal["rgb", "depth"]], Field(min_length=1)]
    image_size: ImageSize
    depth_convention: Literal["z", "ray"]
    noise: NoiseFields | None
    declared_length: Count
    warmup: Annotated[list[FrameModel], Field(min_length=1)]
    stream: Annotated[list[FrameModel], Field(min_length=1)]

    @property
    def frames(self) -> list[FrameModel]:
        """Warm-up, then stream."""
        return [*self.warmup, *self.stream]


class EntryModel(Exact):
    """One episode in the index. Paths are relative to the index."""

    episode_id: Identifier
    scene_id: Identifier
    split_id: Split
    track_id: Identifier
    vault_id: Identifier
    online_manifest: str
    vault_manifest: str
    warmup_count: Count
    stream_count: Count
    query_count: Count
    online_root: Digest
    vault_root: Digest


Model = TypeVar("Model", bound=Exact)


def read_object(data: bytes, where: str) -> dict[str, Any]:
    """The object at the root of strict UTF-8 JSON. Raises FormatError for anything else, with the position."""
    try:
        value = parse_json(data.decode("utf-8"))
    except ValueError as error:
        raise FormatError(f"{where}: not JSON ({error}).") from error
    if not isinstance(value, dict):
        raise FormatError(f"{where}: holds a {type(value).__name__}, expected an object.")
    return value


def check_schema(value: Mapping[str, Any], schema: str, where: str) -> None:
    """Refuse a file of another schema, printing both."""
    if value.get("schema") != schema:
        raise FormatError(
            f"{where}: schema {value.get('schema')!r}, expected {schema!r}. It was written by another version, or is "
            "another file."
        )


def check_keys(value: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    """Refuse a missing or an additional key, listing both kinds."""
    missing, extra = sorted(set(keys) - set(value)), sorted(set(value) - set(keys))
    if missing or extra:
        raise FormatError(
            f"{where}: missing fields: {listed(missing) or 'none'}; unexpected: {listed(extra) or 'none'}."
        )


def validated(model: type[Model], data: bytes, where: str, schema: str | None = None) -> Model:
    """The model of JSON bytes, which must be of `schema` where one is given.

    Raises FormatError listing every missing, unexpected and wrong field.
    """
    value = read_object(data, where)
    if schema is not None:
        check_schema(value, schema, where)
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        missing, extra, wrong = [], [], []
        for one in error.errors(include_url=False, include_context=False):
            place = ".".join(str(part) for part in one["loc"])
            if one["type"] == "missing":
                missing.append(place)
            elif one["type"] == "extra_forbidden":
                extra.append(place)
            else:
                wrong.append(f"{place}: {one['msg'].removeprefix('Value error, ')}, got {str(one['input'])[:60]!r}")
        parts = [
            f"missing fields: {listed(missing)}" if missing else "",
            f"unexpected: {listed(extra)}" if extra else "",
            f"wrong: {'; '.join(wrong[:5])}" if wrong else "",
        ]
        raise FormatError(f"{where}: {'; '.join(part for part in parts if part)}.") from None
