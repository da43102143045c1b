"""What `skidpad episodes compile` is asked for: a TOML file, or the same models from Python.

salt = "rooms of March"      # ids are digests of it and of what an episode is made from
warmup = 4
stream = 8
queries = 4

[[parts]]
track = "rooms_noisy"
split = "dev"
first_seed = 71000000
count = 24
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from skidpad.errors import SettingsError, listed, nearest
from skidpad.settings.suite_file import read_toml
from skidpad.settings.toml_lines import statements
from skidpad.streaming.schemas import Count, Exact, NoiseFields, Split

Side = Annotated[int, Field(ge=8, le=4096)]
Texts = Annotated[tuple[str, ...], Field(min_length=1)]


class _Part(Exact):
    # Tuples come as TOML lists, which strict models take only from JSON; everything else stays strict.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, validate_default=True)

    split: Split


class RoomsPart(_Part):
    """Generated rooms of the seeds first_seed, first_seed + 1, ...; the noisy track shows them through a sensor."""

    track: Literal["rooms", "rooms_noisy"]
    first_seed: Annotated[int, Field(ge=0, lt=1 << 62)]
    count: Count
    image_size: tuple[Side, Side] = (48, 64)
    noise: NoiseFields | None = None


class StreetsPart(_Part):
    """One episode per scene or trace.

    scenes        scene files, folders, library:<glob>, or synthetic:<name>:<seed>
    traces        trace files of runs on these scenes, in place of the logged traffic
    frame_step_s  time between frames; more passes where the ego has not moved 0.2 m
    """

    track: Literal["street_static", "street_dynamic"]
    scenes: Texts
    traces: tuple[str, ...] = ()
    sensor: Literal["pinhole", "spherical"] = "pinhole"
    image_size: tuple[Side, Side] = (48, 96)
    frame_step_s: Annotated[float, Field(ge=0.1, le=10.0)] = 0.5


class ScansPart(_Part):
    """One episode per recorded sequence folder, every `every`-th of its frames."""

    track: Literal["seven_scenes", "icl_nuim", "argoverse2"]
    folders: Texts
    image_size: tuple[Side, Side] = (60, 80)
    every: Count = 5


Part = Annotated[RoomsPart | StreetsPart | ScansPart, Field(discriminator="track")]


class CompileSpec(Exact):
    """A whole dataset."""

    salt: Annotated[str, Field(min_length=1, max_length=200)]
    warmup: Count
    stream: Count
    queries: Count
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]


def load_spec(path: Path) -> CompileSpec:
    """The spec of a TOML file. Raises SettingsError naming file and line of what is wrong."""
    value, text = read_toml(path)
    return parse_spec(value, str(path), text)


def parse_spec(value: Any, where: str, text: str = "") -> CompileSpec:
    """The spec of a plain tree. `text`, the TOML it came from, gives the lines. Raises SettingsError for the first
    thing that is wrong, in the order of the file."""
    try:
        return CompileSpec.model_validate(_tuples(value))
    except ValidationError as error:
        found = []
        for one in error.errors(include_url=False):
            loc = [part for part in one["loc"] if part not in _TAGS]
            line = _line(text, loc)
            found.append((line, f"{where}:{line}: " if line else f"{where}: ", _sentence(loc, dict(one))))
        _, place, sentence = min(found, key=lambda item: item[0])
        raise SettingsError(place + sentence) from None


_TAGS = {"rooms", "rooms_noisy", "street_static", "street_dynamic", "seven_scenes", "icl_nuim", "argoverse2"}


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _sentence(loc: Sequence[Any], error: dict[str, Any]) -> str:
    name = ".".join(str(part) for part in loc)
    if error["type"] == "missing":
        return f"{name} is missing."
    if error["type"] == "extra_forbidden":
        known = {field for model in (RoomsPart, StreetsPart, ScansPart, CompileSpec) for field in model.model_fields}
        return f"unknown key {name!r}{nearest(str(loc[-1]), known)}."
    return f"{name} = {str(error['input'])[:60]!r}: {error['msg'].removeprefix('Value error, ')}."


def _line(text: str, loc: Sequence[Any]) -> int:
    """Line of the key at `loc`, else of its part, else 0."""
    part = loc[1] if len(loc) > 1 and loc[0] == "parts" and isinstance(loc[1], int) else None
    seen, line = -1, 0
    for statement in statements(text):
        if statement.is_table and statement.key == ("parts",):
            seen += 1
            line = statement.line if seen == part else line
        names = ("parts", *loc[2:3]) if part is not None else tuple(loc[:1])
        if statement.key == names and not statement.is_table and (part is None or seen == part):
            return statement.line
    return line


def with_sources(spec: CompileSpec, scenes: Sequence[str], traces: Sequence[str], where: str) -> CompileSpec:
    """The spec with other scenes or traces in every street part. Raises SettingsError when it has no such part."""
    if not scenes and not traces:
        return spec
    if not any(isinstance(part, StreetsPart) for part in spec.parts):
        raise SettingsError(f"{where}: no part of a street track; scenes and traces would change nothing.")
    changed = {key: tuple(value) for key, value in (("scenes", scenes), ("traces", traces)) if value}
    parts = [part.model_copy(update=changed) if isinstance(part, StreetsPart) else part for part in spec.parts]
    return spec.model_copy(update={"parts": tuple(parts)})


def check_splits(spec: CompileSpec, where: str) -> None:
    """Refuse room seeds that occur twice (M16). Streets and scans are compared once their logs are known."""
    ranges = [
        (part.first_seed, part.first_seed + part.count, part.split, part.track)
        for part in spec.parts
        if isinstance(part, RoomsPart)
    ]
    for number, one in enumerate(sorted(ranges)):
        for other in sorted(ranges)[number + 1 :]:
            if other[0] < one[1]:
                texts = [f"{part[3]} {part[2]} {part[0]}..{part[1] - 1}" for part in (one, other)]
                raise SettingsError(
                    f"{where}: seed ranges overlap: {listed(texts)}. A room belongs to one split, once."
                )
