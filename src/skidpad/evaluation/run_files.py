"""What a run was made from, found again: the scenes its manifest names, and the weights its records name.

A path is only where to look; what counts is the content. Scenes are looked for in folders that the person names, in
the bundled library and at the manifest's path, weights in named folders, among the run's own checkpoints, at the
manifest's path and among the shipped drivers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skidpad.errors import IntegrityError, SkidpadError, UsageError
from skidpad.evaluation.sources import SceneEntry, SceneSources
from skidpad.runs.folder import RunFolder

if TYPE_CHECKING:
    from skidpad.policies.checkpoint import Checkpoint
    from skidpad.scenes.scene import Scene


def named_scenes(manifest: Mapping[str, Any]) -> dict[str, SceneEntry]:
    """Every scene of a run by digest, as its manifest has it."""
    return {
        digest: SceneEntry(Path(entry["path"]), digest, entry["scene_id"], None)
        for part in manifest["evaluators"].values()
        for digest, entry in part["scenes"].items()
    }


def found_scenes(
    manifest: Mapping[str, Any], assets: Sequence[Path] = (), sources: SceneSources | None = None
) -> dict[str, SceneEntry]:
    """The scenes of a run by digest, as far as a file is found that says it holds them. Files that cannot be read are
    passed over."""
    from skidpad.scenes.library import library_scenes

    sources = sources or SceneSources()
    wanted = named_scenes(manifest)
    names = {entry.path.name for entry in wanted.values()}
    places = [path for folder in assets for path in sorted(folder.rglob("*.scene"))]
    places += [path for path in library_scenes() if path.name in names]
    places += [entry.path for entry in wanted.values() if entry.path.is_file()]
    found: dict[str, SceneEntry] = {}
    for path in places:
        if len(found) == len(wanted):
            break
        entry = sources.entry(path)
        if entry.digest in wanted and entry.problem is None:
            found.setdefault(entry.digest, entry)
    return found


def scenes_of(manifest: Mapping[str, Any], assets: Sequence[Path] = ()) -> dict[str, Scene]:
    """The scenes of a run by digest, as far as they are found and still are what the manifest says."""
    sources = SceneSources()
    found: dict[str, Scene] = {}
    for digest in found_scenes(manifest, assets, sources):
        try:
            found[digest] = sources.load(digest)
        except (SkidpadError, OSError):
            continue  # a page without this scene's replays is still a page; the cases keep their numbers
    return found


def check_scene_file(entry: SceneEntry, sources: SceneSources) -> None:
    """Hash every byte of a scene's file. Raises IntegrityError where it is another scene than its entry says, or is
    damaged; FormatError or OSError where it cannot be read."""
    from skidpad.scenes.archive import load_scene
    from skidpad.scenes.formats import read_scene

    scene = load_scene(entry.path, verify="full") if sources.is_archive(entry.path) else read_scene(entry.path)
    if scene.digest != entry.digest:
        raise IntegrityError(f"{entry.path}: holds scene {scene.digest}, the run had scene {entry.digest}.")


def absent_scene(entry: SceneEntry, sources: SceneSources) -> SkidpadError:
    """Why no file was found for a scene of a manifest: another one lies in its place, or none."""
    if entry.path.is_file():
        there = sources.entry(entry.path)
        said = f"holds scene {there.digest}" if there.problem is None else f"cannot be read ({there.problem})"
        return IntegrityError(f"{entry.path}: {said}, the run had scene {entry.digest}.")
    return UsageError(
        f"scene {entry.scene_id} ({entry.digest}) is not at {entry.path} any more. Say --assets with a folder that "
        "holds it."
    )


def found_weights(digest: str, folder: RunFolder, part: Mapping[str, Any], places: Sequence[Path] = ()) -> Checkpoint:
    """The checkpoint with weights of a content digest.

    part    an evaluator's entry in the manifest
    places  folders to look in first

    Raises IntegrityError where the manifest's file holds other weights or is damaged, UsageError where no file has
    them.
    """
    from skidpad.policies.checkpoint import load_checkpoint
    from skidpad.policies.library import library_drivers

    beside = {file["digest"]: file["path"] for file in part.get("weights", {}).values()}
    told = beside.get(digest, part.get("checkpoint_path"))  # None of training, whose checkpoints are the run's own
    named = [] if told is None else [Path(told)]
    folders = [*places, folder.path / "checkpoints"]
    candidates = [path for place in folders for path in sorted(place.rglob("*.safetensors"))]
    wrong: SkidpadError | None = None
    for path in [*candidates, *named, *library_drivers().values()]:
        try:
            checkpoint = load_checkpoint(path)
        except (SkidpadError, OSError) as error:
            found = f"cannot be read ({error})"
        else:
            if checkpoint.digest == digest:
                return checkpoint
            found = f"holds weights {checkpoint.digest}"
        if path in named and path.is_file():
            wrong = IntegrityError(f"{path}: {found}, the run had weights {digest}.")
    raise wrong or UsageError(
        f"weights {digest} are in no file{f' at {told}' if told else ' that the run names'}. Say --checkpoints with a "
        "folder that holds them."
    )
