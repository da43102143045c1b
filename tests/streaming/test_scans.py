"""Recorded sequences become episodes: a fake folder of a few frames per layout (M19)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from episode_folders import compiled, entries_of

from skidpad.errors import FormatError, MissingExtraError, UsageError
from skidpad.streaming.camera import Camera, points_of, rays
from skidpad.streaming.episode import OnlineSource
from skidpad.streaming.provenance import validate_episodes
from skidpad.streaming.scans import Scan, chosen, open_scan, scan_digest
from skidpad.streaming.vault import open_vault

FULL = (480, 640)
SMALL = (24, 32)


def png(path: Path, image: np.ndarray) -> None:
    import cv2

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(cv2.imencode(".png", image)[1].tobytes())


def colour_picture(number: int) -> np.ndarray:
    """Blue, green, red as OpenCV has them: red rises with the column, blue says the frame."""
    image = np.zeros((*FULL, 3), np.uint8)
    image[..., 0] = 10 * number
    image[..., 2] = np.arange(640) // 3
    return image


def wall_depth(camera: Camera, point: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """z-depth (H, W) [m] of a wall as a full-size camera sees it."""
    origin, direction, z_scale = rays(camera, *FULL)
    return ((point - origin) @ normal) / (direction @ normal) * z_scale


def seven_scenes(folder: Path, frames: int = 3) -> Path:
    """A wall 2 m in front of the first camera (world y down, z forward), each frame 10 cm further right."""
    intrinsics = np.array([585.0, 585.0, 320.5, 240.5])
    for k in range(frames):
        pose = np.eye(4)
        pose[:3, 3] = [0.1 * k, 0.0, 0.05 * k]
        depth = wall_depth(Camera("pinhole", intrinsics, pose), np.array([0.0, 0.0, 2.0]), np.array([0.0, 0.0, 1.0]))
        raw = np.round(depth * 1000.0).astype(np.uint16)
        raw[:40, :40] = 65535
        stem = folder / f"frame-{k:06d}"
        png(stem.with_suffix(".color.png"), colour_picture(k))
        png(stem.with_suffix(".depth.png"), raw)
        stem.with_suffix(".pose.txt").write_text("\n".join("\t ".join(f"{v:.7e}" for v in row) for row in pose) + "\n")
    return folder


def icl_nuim(folder: Path, frames: int = 3) -> Path:
    """A floor 1.5 m below a camera that looks along the ray tracer's z; its y is up and its world left-handed."""
    rows = []
    intrinsics = np.array([481.2, 480.0, 320.0, 240.0])
    for k in range(frames):
        pose = np.eye(4)
        pose[:3, :3] = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])  # the same view, z up
        pose[:3, 3] = [0.05 * k, 0.0, 1.5 + 0.1 * k]
        depth = wall_depth(Camera("pinhole", intrinsics, pose), np.zeros(3), np.array([0.0, 0.0, 1.0]))
        raw = np.where((depth > 0.0) & (depth < 12.0), depth * 5000.0, 0.0)
        png(folder / "rgb" / f"{k}.png", colour_picture(k))
        png(folder / "depth" / f"{k}.png", np.round(raw).astype(np.uint16))
        rows.append(f"{k} {0.05 * k:.6f} {1.5 + 0.1 * k:.6f} 0.0 0 0 0 1")
    (folder / "living_room.gt.freiburg").write_text("\n".join(rows) + "\n")
    return folder


def test_seven_scenes(tmp_path: Path) -> None:
    """M19: depth in mm, 65535 as none, camera-to-world, turned so that z is up; the wall's points come out at 2 m."""
    scan = open_scan("seven_scenes", seven_scenes(tmp_path), SMALL)
    assert scan.count == 3
    view = scan.read(2)
    assert view.rgb.shape == (*SMALL, 3)
    assert abs(int(view.rgb[5, 31, 0]) - 210) <= 3
    assert (view.rgb[..., 2] == 20).all()
    assert (view.depth[:2, :2] == 0.0).all()
    points = points_of(view.camera, view.depth.astype(np.float64))[view.depth > 0.0]
    np.testing.assert_allclose(points[:, 1], 2.0, atol=2e-3)
    np.testing.assert_allclose(view.camera.position, [0.2, 0.1, 0.0], atol=1e-6)
    np.testing.assert_allclose(view.camera.rotation[:, 1], [0.0, 0.0, -1.0], atol=1e-6)
    assert points[:, 2].max() > 0.5 > -0.5 > points[:, 2].min()


def test_icl_nuim(tmp_path: Path) -> None:
    """M19: the mirrored world of the ray tracer: with the poses as they stand the floor lies at height 0, level."""
    scan = open_scan("icl_nuim", icl_nuim(tmp_path), SMALL)
    view = scan.read(1)
    valid = view.depth > 0.0
    points = points_of(view.camera, view.depth.astype(np.float64))
    np.testing.assert_allclose(points[valid][:, 2], 0.0, atol=0.02)
    np.testing.assert_allclose(view.camera.position, [0.05, 0.0, 1.6], atol=1e-9)
    assert np.linalg.det(view.camera.rotation) > 0.99
    assert not valid[: SMALL[0] // 2 - 1].any()


@pytest.mark.parametrize("track", ["seven_scenes", "icl_nuim"])
def test_scans_compile(tmp_path: Path, track: str) -> None:
    """M19: a folder of three frames compiles into an episode that validates, streams and opens like any other."""
    maker = {"seven_scenes": seven_scenes, "icl_nuim": icl_nuim}[track]
    folder = maker(tmp_path / "scan")
    part = {"track": track, "split": "dev", "folders": [str(folder)], "image_size": list(SMALL), "every": 1}
    index = compiled(tmp_path / "data", part, warmup=1, stream=1, queries=1)
    found = validate_episodes(entries_of(index))[0]
    source = OnlineSource(found.online)
    assert [len(source.warmup()), source.remaining] == [1, 1]
    query = open_vault(found.vault).queries[0]
    assert query.placement == "extrapolated"
    assert query.seen.mean() > 0.1
    assert found.vault.manifest.origin.scene_digest == scan_digest(track, folder, SMALL, 1, 2, 1)


def test_held_out_frames() -> None:
    """M19: half of the queries lie between shown frames and the others after them; all frames differ."""
    scan = Scan(200, lambda _: pytest.fail("read"), lambda _: [])
    for frames, queries in ((12, 4), (2, 1), (5, 3), (12, 1), (3, 8), (20, 9)):
        shown, asked, words = chosen(scan, 3, frames, queries, "x")
        assert len(shown) == frames
        assert len(asked) == len(words) == queries
        assert sorted({*shown, *asked}) == [3 * k for k in range(frames + queries)]
        assert shown == sorted(shown)
        assert asked == sorted(asked)
        for place, word in zip(asked, words, strict=True):
            assert (word == "interpolated") == (shown[0] < place < shown[-1])
    with pytest.raises(UsageError, match="200 frames, 30 that are 7 apart need 204"):
        chosen(scan, 7, 26, 4, "x")


@pytest.mark.parametrize("track", ["seven_scenes", "icl_nuim", "argoverse2"])
def test_wrong_folder(tmp_path: Path, track: str) -> None:
    """M19: a folder of another layout is refused in a sentence that names what was looked for."""
    with pytest.raises(UsageError, match=r"Name the folder|no rgb"):
        open_scan(track, tmp_path, SMALL)


def test_broken_frames(tmp_path: Path) -> None:
    """M19: a mirrored pose, words for numbers, and a picture of another kind are refused, naming the file."""
    folder = seven_scenes(tmp_path / "a")
    scan = open_scan("seven_scenes", folder, SMALL)
    pose = folder / "frame-000000.pose.txt"
    for text, match in (
        ("-1 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1", "no rotation"),
        ("1 0 0 0 0 1 0 0 0 0 1 nan 0 0 0 1", "nan"),
        ("1 0 0", "rows of 4 numbers"),
        ("1_0 0 0 0 0 1 0 0 0 0 1 0 0 0 0 1", "1_0"),
    ):
        pose.write_text(text)
        with pytest.raises(FormatError, match=match):
            scan.read(0)
    png(folder / "frame-000001.depth.png", np.zeros(FULL, np.uint8))
    with pytest.raises(FormatError, match="expected a picture of 1 x uint16"):
        scan.read(1)
    (folder / "frame-000002.color.png").write_bytes(b"GIF89a")
    with pytest.raises(FormatError, match="expected a picture of 3 x uint8"):
        scan.read(2)
    (folder / "frame-000002.color.png").unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        scan.read(2)


def argoverse2(folder: Path, frames: int = 3) -> Path:
    """Sweeps of a wall 10 m ahead of a car that drives 1 m per sweep to the north-east."""
    feather = pytest.importorskip("pyarrow.feather", reason="pyarrow, the extra `argoverse`, is not installed")
    import pyarrow

    (folder / "sensors" / "lidar").mkdir(parents=True)
    y, z = (grid.ravel() for grid in np.meshgrid(np.linspace(-4.0, 4.0, 200), np.linspace(0.0, 3.0, 100)))
    columns: dict[str, list[Any]] = {
        name: [] for name in ("timestamp_ns", "qw", "qx", "qy", "qz", "tx_m", "ty_m", "tz_m")
    }
    for k in range(frames):
        stamp = 315_969_904_359_876_000 + 100_000_000 * k
        row = (stamp, np.cos(np.pi / 8), 0.0, 0.0, np.sin(np.pi / 8), 500.0 + k * 0.5**0.5, 700.0 + k * 0.5**0.5, 20.0)
        for name, value in zip(columns, row, strict=True):
            columns[name].append(value)
        sweep = {"x": np.full(len(y), 10.0 - k), "y": y, "z": z, "intensity": np.full(len(y), 40 + k)}
        table = pyarrow.table({name: np.float32(values) for name, values in sweep.items()})
        feather.write_feather(table, folder / "sensors" / "lidar" / f"{stamp}.feather")
    feather.write_feather(pyarrow.table(columns), folder / "city_SE3_egovehicle.feather")
    return folder


def test_argoverse2(tmp_path: Path) -> None:
    """M19: lidar sweeps become range images; the wall stays where it is while the car drives towards it."""
    scan = open_scan("argoverse2", argoverse2(tmp_path), (48, 360))
    for k in range(3):
        view = scan.read(k)
        assert view.camera.model == "spherical"
        hit = view.depth > 0.0
        along = points_of(view.camera, view.depth.astype(np.float64))[hit][:, :2] @ np.full(2, 0.5**0.5)
        assert abs(float(np.median(along)) - 10.0) < 0.1
        assert (view.rgb[hit] == 40 + k).all()
        assert view.time_s == pytest.approx(0.1 * k)


def test_argoverse2_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F8: without the optional library one sentence ends in the install command."""
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "sensors" / "lidar").mkdir(parents=True)
    (tmp_path / "sensors" / "lidar" / "1.feather").write_bytes(b"")
    with pytest.raises(MissingExtraError, match=r"pip install 'skidpad\[argoverse\]'$"):
        open_scan("argoverse2", tmp_path, SMALL)
