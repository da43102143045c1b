"""Where streets come from: scenes with their logged traffic, generated scenes, and traffic recorded in a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from skidpad.errors import UsageError
from skidpad.scenes.convert import find_scenes, open_scene
from skidpad.scenes.scene import Scene, Tracks
from skidpad.scenes.synthetic import synthetic

SYNTHETIC = "synthetic:"


@dataclass(frozen=True, eq=False)
class Recording:
    """Traffic of one run on a scene.

    digest  of the trace it was made from
    """

    scene_digest: str
    tracks: Tracks
    dt_s: float
    digest: str


TraceReader = Callable[[Path], Recording]


@dataclass(frozen=True, eq=False)
class SceneLog:
    """A scene and the traffic that is driven on it.

    trace_digest  of a recording that takes the place of the log, else None
    """

    name: str
    scene: Scene
    tracks: Tracks
    dt_s: float
    trace_digest: str | None


def find_logs(scenes: Sequence[str], traces: Sequence[str], read_trace: TraceReader | None) -> list[SceneLog]:
    """The logs that a part of a spec names, in its order; with traces, one log per trace.

    scenes  paths, folders, library:<glob>, synthetic:<name>:<seed>
    Raises UsageError for what is not there, and for a trace whose scene is not among the scenes.
    """
    opened = [scene for text in scenes for scene in _opened(text)]
    if not traces:
        return [SceneLog(scene.meta.scene_id, scene, scene.tracks, scene.meta.dt, None) for scene in opened]
    if read_trace is None:
        raise UsageError("traces are named, and no reader of traces was given. Pass read_trace.")
    by_digest = {scene.digest: scene for scene in opened}
    found = []
    for text in traces:
        recording = read_trace(Path(text))
        scene = by_digest.get(recording.scene_digest)
        if scene is None:
            raise UsageError(
                f"{text}: was recorded on scene {recording.scene_digest[:16]}, which is not among `scenes`."
            )
        found.append(SceneLog(scene.meta.scene_id, scene, recording.tracks, recording.dt_s, recording.digest))
    return found


def _opened(text: str) -> list[Scene]:
    if not text.startswith(SYNTHETIC):
        return [open_scene(path) for path in find_scenes([text])]
    name, _, seed = text.removeprefix(SYNTHETIC).partition(":")
    if not seed.isascii() or not seed.isdigit():
        raise UsageError(f"{text!r}: expected synthetic:<name>:<seed>, the seed a whole number.")
    return [synthetic(name, int(seed))]
