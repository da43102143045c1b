"""Files of any known format to scenes: which reader a file belongs to is asked of its content, never of its name (R2).

Each reader is one module with `sniff`, `read` and `OPTIONS`; adding a format is one module and one line in READERS.
Readers of files that hold many scenes have `read_each` in place of `read`, and stand in MANY as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from skidpad.errors import FormatError, SettingsError, SkidpadError, listed, nearest
from skidpad.scenes.formats.source import Limits, Source, read_source

if TYPE_CHECKING:
    from skidpad.scenes.scene import Scene

READERS = {
    "argoverse2": "skidpad.scenes.formats.argoverse",
    "gpudrive": "skidpad.scenes.formats.gpudrive",
    "commonroad": "skidpad.scenes.formats.commonroad",
    "lanelet2": "skidpad.scenes.formats.lanelet2",
    "nuplan": "skidpad.scenes.formats.nuplan",
    "opendrive": "skidpad.scenes.formats.opendrive",
    "pufferdrive": "skidpad.scenes.formats.pufferdrive",
    "scenarionet": "skidpad.scenes.formats.scenarionet",
    "sumo": "skidpad.scenes.formats.sumo",
    "waymo": "skidpad.scenes.formats.waymo",
}
MANY = frozenset({"nuplan", "waymo"})
HEAD_BYTES = 64 << 10
# A reader claims a file when it is more sure than not.
CLAIM = 0.5


class Reader(Protocol):
    """What a reader module offers.

    OPTIONS  names of the options `read` knows
    """

    OPTIONS: frozenset[str]

    def sniff(self, head: bytes, name: str) -> float:
        """How sure the reader is, 0 to 1, that a file beginning with `head` is its own."""

    def read(self, source: Source, limits: Limits, options: Mapping[str, Any]) -> Scene:
        """The scene of a file."""

    def read_each(self, source: Source, limits: Limits, options: Mapping[str, Any]) -> Iterator[Scene]:
        """The scenes of a file; for formats of MANY, in place of `read`."""


def read_scene(
    path: Path | str | bytes,
    *,
    name: str = "",
    limits: Limits | None = None,
    options: Mapping[str, Any] | None = None,
) -> Scene:
    """The scene of a file in any known format, or of an archive; what it lost on the way is in `meta.loss`.

    As `read_scenes`, for a file that holds exactly one.

    Raises FormatError for a file of several scenes as well, naming the option that chooses one.
    """
    scenes = read_scenes(path, name=name, limits=limits, options=options)
    first = next(scenes, None)
    shown = name or ("<bytes>" if isinstance(path, bytes) else str(path))
    if first is None:
        raise FormatError(f"{shown}: holds no scene, expected one.")
    if (second := next(scenes, None)) is not None:
        raise FormatError(
            f"{shown}: holds several scenes ({first.meta.scene_id}, {second.meta.scene_id}, ...). Name one with the "
            "option scenario=ID, or convert all of them with `skidpad scenes convert`."
        )
    return first


def read_scenes(
    path: Path | str | bytes,
    *,
    name: str = "",
    limits: Limits | None = None,
    options: Mapping[str, Any] | None = None,
) -> Iterator[Scene]:
    """The scenes of a file, in its order; most formats have one in each file.

    path     a file, plain or compressed, or its content
    name     what messages call it; the path when left out
    limits   bounds on what a file may ask for
    options  the reader's own options, by name

    Raises FormatError for a file of no or of two formats, one that breaks its format or a limit, and one whose scene
    does not pass check_scene; the scenes before it have been handed out. SettingsError for an option that its reader
    does not know; IntegrityError for an altered archive.
    """
    from skidpad.artifacts.container import MAGIC
    from skidpad.scenes.archive import load_scene

    limits, options = limits or Limits(), options or {}
    source = read_source(path, limits, name=name)
    if source.data.startswith(MAGIC):
        _refuse_unknown_options("archive", frozenset(), options)
        scenes: Iterator[Scene] = iter([load_scene(source.data, name=source.name)])
    else:
        form = format_of(source)
        reader = _reader(form)
        _refuse_unknown_options(form, reader.OPTIONS, options)
        scenes = _named(reader, form in MANY, source, limits, options)
    for scene in scenes:
        _refuse_findings(scene, source.name)
        yield scene


def _named(
    reader: Reader, is_many: bool, source: Source, limits: Limits, options: Mapping[str, Any]
) -> Iterator[Scene]:
    """What a reader makes of a file, with the file's name in every message."""
    try:
        if is_many:
            yield from reader.read_each(source, limits, options)
        else:
            yield reader.read(source, limits, options)
    except SkidpadError as error:
        if source.name in str(error):
            raise
        raise type(error)(f"{source.name}: {error}") from error


def format_of(source: Source) -> str:
    """Name of the one reader that claims a file. Raises FormatError when none does, or more than one."""
    head = source.data[:HEAD_BYTES]
    claims = [name for name in READERS if _reader(name).sniff(head, source.name) > CLAIM]
    if not claims:
        known = listed(["Skidpad archive", *READERS], len(READERS) + 1)
        raise FormatError(f"{source.name}: none of the known formats ({known}). Convert it to one of them.")
    if len(claims) > 1:
        raise FormatError(f"{source.name}: could be any of {listed(claims)}. Cut what makes it look like two formats.")
    return claims[0]


def _reader(name: str) -> Reader:
    return cast(Reader, import_module(READERS[name]))


def _refuse_unknown_options(reader: str, known: frozenset[str], options: Mapping[str, Any]) -> None:
    for option in options:
        if option not in known:
            offered = f"it knows {listed(sorted(known))}" if known else "it has no options"
            raise SettingsError(f"{reader} reader: unknown option {option!r}{nearest(option, known)}; {offered}.")


def _refuse_findings(scene: Scene, name: str) -> None:
    from skidpad.scenes.check import check_scene

    errors = [finding.message for finding in check_scene(scene) if finding.severity == "error"]
    if errors:
        raise FormatError(f"{name}: the scene it describes cannot be simulated: {listed(errors)}. Repair the file.")
