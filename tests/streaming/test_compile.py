"""The compiler: the same bytes twice, all or nothing, splits that do not touch, labels that can be recomputed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from episode_folders import FIRST_SEED, compiled, entries_of, small_spec

from skidpad.cli import run
from skidpad.errors import AlreadyThereError, SettingsError, UsageError
from skidpad.scenes.archive import save_scene
from skidpad.scenes.synthetic import synthetic
from skidpad.streaming import compile as compile_module
from skidpad.streaming.camera import Camera, points_of
from skidpad.streaming.compile import compile_episodes
from skidpad.streaming.episode import OnlineSource, load_episode_index
from skidpad.streaming.provenance import Provenance, validate_episodes
from skidpad.streaming.spec import load_spec, parse_spec
from skidpad.streaming.vault import Query, open_vault

ROOMS = {"track": "rooms_noisy", "split": "dev", "first_seed": 500, "count": 2, "image_size": [12, 16]}
STREET = {
    "track": "street_dynamic",
    "split": "dev",
    "scenes": ["synthetic:crossing:3"],
    "image_size": [16, 32],
}
SPEC = """
salt = "pepper"
warmup = 2
stream = 3
queries = 2

[[parts]]
track = "rooms"
split = "dev"
first_seed = 12000000
count = 1
image_size = [12, 16]

[[parts]]
track = "street_static"
split = "dev"
scenes = ["synthetic:straight:1"]
image_size = [12, 24]
"""


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_same_bytes_with_any_workers(tmp_path: Path) -> None:
    """M11: compiled twice, with one worker and with two, every file is the same: no clock, path or order in it."""
    spec = small_spec(ROOMS, STREET)
    roots = []
    for name, workers in (("one", 1), ("two", 2)):
        made = compile_episodes(spec, tmp_path / name, workers=workers)
        roots.append(made.root)
    assert roots[0] == roots[1]
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    assert made.counts == {"dev/rooms_noisy": 2, "dev/street_dynamic": 1}
    assert load_episode_index(tmp_path / "two" / "index.json").root == made.root


def test_folder_layout(rooms_index: Path) -> None:
    """M9, M11: exactly the files of the format; compile.json says spec, seeds, versions and counts."""
    folder = rooms_index.parent
    assert sorted(path.name for path in folder.iterdir()) == ["compile.json", "dev", "index.json"]
    report = json.loads((folder / "compile.json").read_text())
    assert report["splits"]["dev"]["seeds"] == [[FIRST_SEED, FIRST_SEED + 1]]
    assert report["counts"] == {"dev/rooms": 2}
    assert report["root"] == json.loads(rooms_index.read_text())["root"]
    for entry in entries_of(rooms_index):
        names = {path.name for path in (folder / "dev" / "online" / entry.episode_id).iterdir()}
        assert names == {"online.json", *(f"{kind}-{k:04d}.npy" for kind in ("rgb", "depth") for k in range(5))}


def test_salt_changes_names_and_nothing_else(tmp_path: Path, rooms_index: Path) -> None:
    """M5: another salt gives other ids and the same pictures."""
    other = compiled(tmp_path / "other", salt="salt")
    one, two = (validate_episodes(entries_of(index)) for index in (rooms_index, other))
    for a, b in zip(one, two, strict=True):
        for name in ("episode_id", "scene_id", "vault_id"):
            assert getattr(a.entry, name) != getattr(b.entry, name)
        assert [f.rgb.sha256 for f in a.online.manifest.frames] == [f.rgb.sha256 for f in b.online.manifest.frames]


def test_existing_target(tmp_path: Path) -> None:
    """M11: an existing target is refused and left alone, an empty folder and a file as well."""
    for name in ("folder", "file"):
        target = tmp_path / name
        target.mkdir() if name == "folder" else target.write_text("mine")
        with pytest.raises(AlreadyThereError, match="already there"):
            compile_episodes(small_spec(), target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.parametrize("failing", ["make_episode", "validate_episodes", "index_leaves"])
def test_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    """M11: a fault at any stage leaves neither target nor temporary folder."""

    def broken(*_: Any) -> Any:
        raise OSError("disk full")

    monkeypatch.setattr(compile_module, failing, broken)
    with pytest.raises(OSError, match="disk full"):
        compile_episodes(small_spec(), tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def test_killed_half_way(tmp_path: Path) -> None:
    """M11: a compiler killed while it writes leaves no target; what it leaves has a temporary name."""
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC.replace("count = 1", "count = 500"))
    out = tmp_path / "data"
    child = subprocess.Popen(
        [sys.executable, "-m", "skidpad", "episodes", "compile", str(spec), "--out", str(out)],
        env=os.environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60.0
        while not list(tmp_path.glob("data.tmp-*/dev/online/*/online.json")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert child.poll() is None
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert not out.exists()
    assert len(list(tmp_path.glob("data.tmp-*"))) == 1


def part(**changes: Any) -> dict[str, Any]:
    return {"track": "rooms", "split": "dev", "first_seed": 100, "count": 10, "image_size": [12, 16]} | changes


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ([part(), part(split="test", first_seed=109)], "rooms dev 100..109, rooms test 109..118"),
        ([part(), part(track="rooms_noisy", first_seed=95, count=6)], "overlap"),
        ([part(split="train"), part(split="train")], "overlap"),
    ],
)
def test_seed_ranges(tmp_path: Path, parts: list[dict[str, Any]], match: str) -> None:
    """M16: a room belongs to one split, once; ranges that touch without overlapping are fine."""
    with pytest.raises(SettingsError, match=match):
        compile_episodes(small_spec(*parts), tmp_path / "data")
    assert list(tmp_path.iterdir()) == []
    compile_module.check_splits(small_spec(part(), part(split="test", first_seed=110)), "spec")


def test_logs_belong_to_one_split(tmp_path: Path) -> None:
    """M16: two pieces of traffic on one map are snippets of one log, and are not cut into two splits."""
    other = {**STREET, "split": "test", "scenes": ["synthetic:crossing:4"]}
    with pytest.raises(SettingsError, match="belongs to one split"):
        compile_episodes(small_spec(STREET, other), tmp_path / "data")
    with pytest.raises(SettingsError, match="occurs twice"):
        compile_episodes(small_spec(STREET, STREET), tmp_path / "data")
    assert list(tmp_path.iterdir()) == []


def brute_seen(query: Query, found: Provenance, voxel: float) -> np.ndarray:
    """One pixel and one frame after the other: is the surface point where it projects, at an agreeing depth?"""
    seen = np.zeros(query.depth.shape, bool)
    points = points_of(query.camera, query.depth.astype(np.float64))
    folder = found.online.folder
    frames = []
    for frame in found.online.manifest.frames:
        camera = frame.camera
        frames.append(
            (
                Camera(camera.model, np.array(camera.intrinsics), np.array(camera.world_from_camera)),
                np.load(folder / frame.depth.path),
            )
        )
    for row, column in np.argwhere(query.depth > 0.0):
        for camera, depth in frames:
            x, y, z = camera.rotation.T @ (points[row, column] - camera.position)
            if z <= 0.0:
                continue
            u = camera.intrinsics[0] * x / z + camera.intrinsics[2]
            v = camera.intrinsics[1] * y / z + camera.intrinsics[3]
            if 0.0 <= u < depth.shape[1] and 0.0 <= v < depth.shape[0]:
                measured = depth[int(v), int(u)]
                seen[row, column] |= measured > 0.0 and abs(measured - z) <= max(voxel, 0.02 * z)
    return seen


def test_seen_by_brute_force(tmp_path: Path) -> None:
    """M15: `seen` of two noisy rooms and a street recomputed pixel by pixel from what was offered."""
    index = compiled(tmp_path / "data", ROOMS, STREET)
    some = 0
    for found in validate_episodes(entries_of(index)):
        voxel = 0.4 if found.entry.track_id.startswith("street") else 0.08
        for query in open_vault(found.vault).queries:
            np.testing.assert_array_equal(query.seen, brute_seen(query, found, voxel))
            some += int(query.seen.sum())
    assert some > 0


def test_street_vault(tmp_path: Path) -> None:
    """M13 to M15: a street episode keeps its labels: placements, moving pixels, the task."""
    index = compiled(tmp_path / "data", STREET, queries=5)
    found = validate_episodes(entries_of(index))[0]
    vault = open_vault(found.vault)
    assert {query.placement for query in vault.queries} == {"interpolated", "lateral", "ahead", "other_agent", "bev"}
    assert all(query.moving is not None for query in vault.queries)
    assert vault.task is not None
    assert vault.task.occupancy.shape == vault.task.agents.shape == (80, 80)
    assert vault.task.occupancy.dtype == np.bool_
    assert vault.task.ground_height == 0.0
    assert found.vault.manifest.origin.scene_digest == synthetic("crossing", 3).digest


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('salt = "pepper"\n', "", "salt is missing"),
        ("warmup = 2", "warmup = 0", r"spec.toml:3: warmup = '0'"),
        ("stream = 3", "stream = true", r"spec.toml:4: stream = 'True'"),
        ("queries = 2", "queries = 2\nquery = 1", r"spec.toml:6: unknown key 'query'; did you mean 'queries'"),
        ('track = "rooms"', 'track = "room"', r"spec.toml:7: parts.0 "),
        ('split = "dev"\nfirst', 'split = "Dev"\nfirst', r"spec.toml:9: parts.0.split = 'Dev'"),
        ("count = 1", 'count = "1"', r"spec.toml:11: parts.0.count = '1'"),
        ("count = 1", "count = 1\nsensor = 'pinhole'", r"spec.toml:12: unknown key 'parts.0.sensor'"),
        ("[12, 24]", "[12, 24, 3]", r"spec.toml:18: parts.1.image_size"),
        ("scenes = [", "scenes = ", r"spec.toml:17: Expected newline"),
    ],
)
def test_spec_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, match: str) -> None:
    """F1, F2: a mistake in a spec is a sentence with file and line, exit code 2, and nothing is written."""
    path = tmp_path / "spec.toml"
    path.write_text(SPEC.replace(old, new, 1))
    assert run(["episodes", "compile", str(path), "--out", str(tmp_path / "data")]) == 2
    assert re.search(match, capsys.readouterr().err)
    assert [one.name for one in tmp_path.iterdir()] == ["spec.toml"]


def test_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """M96: the verb compiles a spec, prints counts and the root, and refuses the same target again."""
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    arguments = ["episodes", "compile", str(path), "--out", str(tmp_path / "data")]
    assert run(arguments) == 0
    said = capsys.readouterr().out
    index = load_episode_index(tmp_path / "data" / "index.json")
    assert "dev/rooms: 1 episodes" in said
    assert f"root {index.root}" in said
    assert len(validate_episodes(index.select())) == 2
    assert run(arguments) == 2
    assert "already there" in capsys.readouterr().err
    assert run(["episodes", "compile", str(tmp_path / "none.toml"), "--out", str(tmp_path / "x")]) == 2


def test_scenes_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """M96: --scenes takes the place of the scenes a spec names; a spec without streets cannot use them."""
    save_scene(synthetic("curve", 2), tmp_path / "curve.scene")
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    out = tmp_path / "data"
    assert run(["episodes", "compile", str(path), "--scenes", str(tmp_path / "curve.scene"), "--out", str(out)]) == 0
    digests = {one.vault.manifest.origin.scene_digest for one in validate_episodes(entries_of(out / "index.json"))}
    assert digests == {None, synthetic("curve", 2).digest}
    path.write_text(SPEC[: SPEC.index('[[parts]]\ntrack = "street')])
    capsys.readouterr()
    assert run(["episodes", "compile", str(path), "--scenes", "library:*", "--out", str(tmp_path / "y")]) == 2
    assert "no part of a street track" in capsys.readouterr().err


def test_spec_file_equals_tree(tmp_path: Path) -> None:
    """M11: a spec is what its values are, however it was written."""
    path = tmp_path / "spec.toml"
    path.write_text("\ufeff" + SPEC.replace("\n", "\r\n"))
    import tomllib

    assert load_spec(path) == parse_spec(tomllib.loads(SPEC), "tree")


def test_workers_and_selection(rooms_index: Path, tmp_path: Path) -> None:
    """M32: a selection is the prefix of the index, in its order; no workers is refused."""
    index = load_episode_index(rooms_index)
    assert [entry.episode_id for entry in index.select(1)] == [index.episodes[0]["episode_id"]]
    assert len(index.select()) == len(index.select(9)) == 2
    with pytest.raises(UsageError, match="workers"):
        compile_episodes(small_spec(), tmp_path / "data", workers=0)
    source = OnlineSource(validate_episodes(index.select(1))[0].online)
    assert source.manifest.episode_id == index.episodes[0]["episode_id"]
