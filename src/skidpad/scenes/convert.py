"""Files to archives, and archives described for a person: what stands behind `skidpad scenes`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from skidpad.artifacts.digests import digest_value
from skidpad.artifacts.files import create
from skidpad.errors import FormatError, SkidpadError, UsageError, listed
from skidpad.scenes import scene as codes
from skidpad.scenes.archive import load_scene, save_scene
from skidpad.scenes.behaviour_scenes import BEHAVIOUR_SCENES, behaviour_scene
from skidpad.scenes.check import Finding
from skidpad.scenes.formats import read_scene, read_scenes
from skidpad.scenes.formats.source import Limits
from skidpad.scenes.library import library_scenes
from skidpad.scenes.scene import Scene

Target = Literal["scene", "bin"]

PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
LIBRARY_PREFIX = "library:"


@dataclass(frozen=True)
class Converted:
    """What became of one file, or of one scene in it.

    target   archive or file of another format, None when the conversion failed
    scene    None when it failed
    lost     what the format of the target cannot hold
    error    why it failed
    seconds  reading and writing
    """

    source: Path
    target: Path | None
    scene: Scene | None
    error: SkidpadError | None
    seconds: float
    lost: Mapping[str, codes.LossEntry] = field(default_factory=dict)

    def summary(self) -> str:
        """One line, and one indented line per kind of loss."""
        if self.scene is None:
            return f"{self.source.name}: failed. {self.error}"
        lines = [f"{self.source.name} -> {self.target}: {counts(self.scene)} ({self.seconds:.2f} s)"]
        return "\n".join(lines + loss_lines(self.scene.meta.loss) + loss_lines(self.lost))


def convert_files(
    files: Sequence[Path],
    out: Path,
    options: Mapping[str, str],
    *,
    licence: str = "",
    attribution: str = "",
    limits: Limits | None = None,
    to: Target = "scene",
) -> Iterator[Converted]:
    """Convert each scene of each file to `out/<scene id>.scene`, or to a `.bin` file of PufferDrive. A file that fails
    is reported and does not keep the others, nor the scenes before the failure.

    A target that holds the same scene is left as it is; one that holds another scene fails.
    Raises UsageError when `out` is a file, or when a path is neither a file nor a folder of files.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file, expected a folder for the archives.")
    out.mkdir(parents=True, exist_ok=True)
    for path in files:
        start = time.perf_counter()
        try:
            for found in read_scenes(path, limits=limits or Limits(), options=options):
                scene = labelled(found, licence, attribution)
                target = out / f"{file_stem(scene.meta.scene_id)}.{to}"
                lost = _write(scene, target, to)
                yield Converted(path, target, scene, None, time.perf_counter() - start, lost)
                start = time.perf_counter()
        except SkidpadError as error:
            yield Converted(path, None, None, error, time.perf_counter() - start)


def generate_files(names: Sequence[str], out: Path, *, first: int = 0, count: int = 1) -> Iterator[tuple[Path, Scene]]:
    """Write `count` generated scenes of each behaviour class to `out/<class>-<seed>.scene`, seeds from `first` on.

    A target that holds the same scene is left as it is. Raises UsageError, before anything is written, for an unknown
    class, for numbers that cannot be, and when `out` is a file; for a target that holds another scene.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: is a file, expected a folder for the archives.")
    if first < 0 or count < 1:
        raise UsageError(f"{count} scenes of each class from seed {first} on; expected at least 1, from 0 on.")
    unknown = [name for name in names if name not in BEHAVIOUR_SCENES]
    if unknown:
        known = listed(BEHAVIOUR_SCENES, len(BEHAVIOUR_SCENES))
        raise UsageError(f"no behaviour class {unknown[0]!r}, expected some of {known}.")
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        for seed in range(first, first + count):
            scene = behaviour_scene(name, seed)
            target = out / f"{name}-{seed}.scene"
            _write(scene, target, "scene")
            yield target, scene


def _write(scene: Scene, target: Path, to: Target) -> Mapping[str, codes.LossEntry]:
    """Write a scene where no other one is; what the format cannot hold."""
    if to == "scene":
        if not (target.exists() and load_scene(target).digest == scene.digest):
            save_scene(scene, target)
        return {}
    from skidpad.scenes.formats.pufferdrive_write import pufferdrive_bytes

    data, lost = pufferdrive_bytes(scene)
    if not (target.exists() and target.read_bytes() == data):
        create(target, data)
    return lost


def labelled(scene: Scene, licence: str, attribution: str) -> Scene:
    """The scene with a licence and attribution line, where given. Its digest does not change."""
    meta = replace(scene.meta, licence=licence or scene.meta.licence, attribution=attribution or scene.meta.attribution)
    return Scene(scene.road, scene.tracks, scene.signals, meta)


def file_stem(name: str) -> str:
    """A file name for a scene id: itself where it is plain, else a short digest of it."""
    return name if PLAIN_NAME.fullmatch(name) and name.strip(".") else digest_value(name, "file name")[:16]


def find_scenes(patterns: Sequence[str]) -> list[Path]:
    """Archives named by paths, folders or `library:<glob>`, in order, each once.

    Raises UsageError naming a pattern that finds nothing.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        if pattern.startswith(LIBRARY_PREFIX):
            paths = library_scenes(pattern.removeprefix(LIBRARY_PREFIX) or "*")
        elif (path := Path(pattern)).is_dir():
            paths = sorted(path.glob("*.scene"))
        else:
            paths = [path] if path.is_file() else []
        if not paths:
            raise UsageError(
                f"{pattern!r}: no scene there. Name a .scene file, a folder of them, or library:<glob> for bundled "
                "ones."
            )
        found.update(dict.fromkeys(paths))
    if not found:
        raise UsageError("no scenes given. Name .scene files, folders, or library:<glob>.")
    return list(found)


def open_scene(path: Path) -> Scene:
    """A scene from an archive, or from any file a reader knows."""
    try:
        return load_scene(path)
    except FormatError:
        return read_scene(path)


def counts(scene: Scene) -> str:
    """Lanes, tracks, rows and signals in a few words."""
    lights = int((scene.signals.kind == codes.SIGNAL_LIGHT).sum())
    parts = [f"{scene.road.lane_count} lanes"]
    if scene.tracks.count:
        parts.append(f"{scene.tracks.count} tracks x {scene.meta.steps} rows of {scene.meta.dt:g} s")
    if scene.signals.count:
        parts.append(f"{lights} lights, {scene.signals.count - lights} signs")
    return ", ".join(parts)


def one_line(scene: Scene) -> str:
    """Name, digest and counts of a scene."""
    return f"{scene.meta.scene_id:32} {scene.digest[:16]}  {counts(scene)}"


def loss_lines(loss: Mapping[str, codes.LossEntry]) -> list[str]:
    """One line per kind of loss: how often, and the first example."""
    return [
        f"  {kind}: {entry.count}" + (f" ({entry.examples[0]})" if entry.examples else "")
        for kind, entry in sorted(loss.items())
    ]


def describe(scene: Scene, findings: Sequence[Finding]) -> str:
    """Everything a person asks about a scene, as text."""
    meta, road = scene.meta, scene.road
    drivable = road.lane_element[road.drivable]
    metres = sum(float(road.arc[road.points(int(element))][-1]) for element in drivable)
    extent = np.ptp(road.xyz[:, :2], axis=0) if len(road.xyz) else np.zeros(2)
    lines = [
        f"{meta.scene_id}",
        f"  digest        {scene.digest}",
        f"  map digest    {scene.map_digest}",
        f"  source        {meta.source_format} {meta.source_version}, data set {meta.dataset or 'unnamed'}",
        f"  contents      {counts(scene)}",
        f"  road          {len(drivable)} drivable lanes, {metres / 1000:.2f} km of them, {len(road.xyz)} points, "
        f"{extent[0]:.0f} x {extent[1]:.0f} m, {'with' if meta.has_z else 'without'} heights",
        f"  origin        {', '.join(f'{value:g}' for value in meta.origin)} m",
    ]
    if scene.tracks.count:
        ego = int(scene.tracks.source_id[meta.sdc]) if meta.sdc >= 0 else "none named"
        lines.append(f"  traffic       recording vehicle {ego}, start row {meta.current_step}")
    lines += [
        f"  {name:13} {value}" for name, value in sorted(meta.labels.items()) if isinstance(value, (str, int, float))
    ]
    lines += [f"  licence       {meta.licence or 'not stated'}", f"  attribution   {meta.attribution or 'not stated'}"]
    lines.append("  losses        " + ("none" if not meta.loss else ""))
    lines += ["  " + line for line in loss_lines(meta.loss)]
    lines.append("  findings      " + ("none" if not findings else ""))
    lines += [f"    {finding.severity}: {finding.check}: {finding.message}" for finding in findings[:20]]
    if len(findings) > 20:
        lines.append(f"    and {len(findings) - 20} more")
    return "\n".join(lines)
