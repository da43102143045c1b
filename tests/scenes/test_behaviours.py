"""Behaviour classes: what is measured of a recorded vehicle, on generated scenes that show one thing each."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from skidpad.cli import run
from skidpad.errors import UsageError
from skidpad.scenes.archive import load_scene, save_scene
from skidpad.scenes.behaviour_scenes import BEHAVIOUR_SCENES, behaviour_scene, motion
from skidpad.scenes.behaviours import BEHAVIOURS, Drive, behaviours, is_ring, recorded_vehicle
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.check import check_scene
from skidpad.scenes.classify import classify_files, write_lists
from skidpad.scenes.library import library_scenes
from skidpad.scenes.scene import Scene
from skidpad.scenes.synthetic import DT_US, Town, four_ways, synthetic
from skidpad.settings.scene_paths import find_scenes

ALSO = {"stop_sign": {"yielding"}}  # it waits at its line for one who crosses


def shown(scene: Scene) -> set[str]:
    return {one.behaviour for one in behaviours(scene)}


@pytest.mark.parametrize("name", BEHAVIOURS)
@pytest.mark.parametrize("seed", [0, 3])
def test_each_class_is_found_and_no_other(name: str, seed: int) -> None:
    """E67: a scene made to show one behaviour lands in that class and in no class it does not show; a sorter that is
    merely generous would put every scene everywhere and every class would measure the same thing."""
    scene = behaviour_scene(name, seed)
    assert shown(scene) == {name} | ALSO.get(name, set())
    assert not [finding for finding in check_scene(scene) if finding.severity == "error"]


def test_there_is_a_scene_of_every_class() -> None:
    """E67: twelve classes, each with its generated scenes; an unknown one is refused with the list."""
    assert list(BEHAVIOUR_SCENES) == list(BEHAVIOURS)
    assert len(BEHAVIOURS) == 12
    with pytest.raises(UsageError, match="expected one of hard_stop"):
        behaviour_scene("parking")


@pytest.mark.parametrize("name", BEHAVIOURS)
def test_bundled_scenes_are_the_generated_ones(name: str) -> None:
    """E67, R15: the shipped suite names files; they must be what the generator makes, or tests and suite part ways."""
    paths = library_scenes(f"behaviours/{name}-*")
    assert [path.stem for path in paths] == [f"{name}-0", f"{name}-1"]
    assert [load_scene(path).digest for path in paths] == [behaviour_scene(name, seed).digest for seed in (0, 1)]
    assert not set(paths) & set(library_scenes())


def test_scenes_are_made_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """E67: `scenes generate` writes the scenes that class and seed name, as `library:behaviours/*` has them, lets those
    be that are there, and refuses an unknown class before it writes any."""
    out = tmp_path / "made"
    command = ["scenes", "generate", "merge", "u_turn", "--out", str(out), "--first", "1", "--count", "2"]
    assert run(command) == 0 == run(command)
    names = ["merge-1", "merge-2", "u_turn-1", "u_turn-2"]
    assert sorted(path.stem for path in out.iterdir()) == names
    (bundled,) = library_scenes("behaviours/merge-1")
    assert load_scene(out / "merge-1.scene").digest == load_scene(bundled).digest
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == names * 2
    save_scene(behaviour_scene("u_turn", 2), out / "merge-3.scene")
    assert run(["scenes", "generate", "merge", "--out", str(out), "--first", "3", "--count", "1"]) == 2
    assert run(["scenes", "generate", "merge", "parking", "--out", str(tmp_path / "none")]) == 2
    assert run(["scenes", "generate", "--out", str(tmp_path / "none"), "--count", "0"]) == 2
    said = capsys.readouterr().err
    assert "no behaviour class 'parking', expected some of hard_stop" in said
    assert "0 scenes of each class" in said
    assert not (tmp_path / "none").exists()


def crossing(*accelerations: tuple[float, float], start: float = 45.0, speed: float = 9.0, to: int = 2) -> Scene:
    """One car on the crossing without lights or signs, from arm 0."""
    builder = SceneBuilder("hand", "synthetic", "synthetic", "1", "0" * 64, DT_US)
    town = Town(builder, Random(0), True)
    four_ways(town)
    path = np.concatenate([town.centre["in", 0], town.centre["turn", 0, to], town.centre["out", to]])
    town.drive(path, *motion(start, speed, *accelerations))
    return builder.finish(has_z=False, sdc=0)


def test_thresholds_by_hand() -> None:
    """E67: hard braking means more than 4 m/s^2 over a second *and* standing after it; a turn counts from before the
    junction to behind it, so one that the log leaves half done is none; straight on is no turn."""
    assert "hard_stop" in shown(crossing((2.0, -6.0), start=5.0, speed=12.0))
    assert "hard_stop" not in shown(crossing((2.0, -3.5), start=5.0, speed=12.0))
    assert "hard_stop" not in shown(crossing((2.0, -6.0), (3.2, 0.0), start=5.0, speed=14.0))
    assert shown(crossing(to=2)) == set()
    assert shown(crossing(to=3)) == {"unprotected_left"}
    assert shown(crossing(to=1)) == {"unprotected_right"}
    assert shown(crossing((3.0, -5.0), to=3, start=55.0)) & {"unprotected_left"} == set()


def test_rings_are_rings() -> None:
    """E67: a roundabout is a closed round of lanes; ways across a junction that happen to close are not."""
    ring, cross = synthetic("roundabout", traffic=False).road, synthetic("crossing", traffic=False).road
    assert sum(is_ring(ring, lane) for lane in range(ring.lane_count)) == 8
    assert not any(is_ring(cross, lane) for lane in range(cross.lane_count))


def test_whom_a_scene_is_about() -> None:
    """E66, E67: the recording vehicle where one is named, else the vehicle that is there longest; without one, or with
    too short a log, a scene shows nothing and nothing fails."""
    scene = synthetic("straight")
    assert recorded_vehicle(scene) == 0
    bare = synthetic("straight", traffic=False)
    assert recorded_vehicle(bare) == -1
    assert behaviours(bare) == []
    assert len(Drive(scene, 0).runs) == 1


def test_lists_can_be_moved_and_are_replaced(tmp_path: Path) -> None:
    """E67, R15: a list names scenes relative to itself, in the form that `env.scenes` takes; sorting again leaves no
    list of a class that nobody shows any more, and a file that is no scene keeps nobody else."""
    data = tmp_path / "data"
    data.mkdir()
    for name in ("merge", "u_turn"):
        save_scene(behaviour_scene(name), data / f"{name}.scene")
    (data / "broken.scene").write_bytes(b"nothing")
    found = list(classify_files(sorted(data.glob("*.scene"))))
    assert [one.error is None for one in found] == [False, True, True]
    lists = write_lists(found, data / "lists")
    assert set(lists) == {"merge", "u_turn"}
    moved = tmp_path / "moved"
    data.rename(moved)
    scenes = find_scenes("lists/merge.txt", moved, {}, lambda pattern: [])
    assert [load_scene(path).meta.scene_id for path in scenes] == ["merge-0"]
    write_lists(list(classify_files([moved / "merge.scene"])), moved / "lists")
    assert sorted(path.name for path in (moved / "lists").iterdir()) == ["merge.txt"]
    with pytest.raises(UsageError, match="is a file"):
        write_lists([], moved / "merge.scene")
