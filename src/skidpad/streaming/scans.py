"""Recorded RGB-D sequences and lidar sweeps as episodes: 7-Scenes, ICL-NUIM, Argoverse 2 (M19).

None is bundled; the user names the folder of one sequence. All are turned so that z is up. Argoverse boxes and ground
explain only about half of real lidar returns: use it for layout and traffic, never as sensor realism.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.artifacts.digests import digest_bytes, digest_value
from skidpad.artifacts.files import read_bytes
from skidpad.errors import FormatError, MissingExtraError, UsageError
from skidpad.streaming.camera import F64, Camera
from skidpad.streaming.labels import Draft, View

GENERATOR, VERSION = "scans", "1"
MAX_FILE_BYTES = 1 << 26
RIGID_TOLERANCE = 1e-3
VOXEL_M = {"seven_scenes": 0.05, "icl_nuim": 0.05, "argoverse2": 0.4}
LIDAR_HEIGHT_M = 1.64
LIDAR_UP_RAD, LIDAR_DOWN_RAD = np.radians(15.0), np.radians(25.0)

# y down, z forward (7-Scenes: the first camera) to z up; y up, left-handed (ICL-NUIM: POV-Ray) to z up.
_FROM_Y_DOWN = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])
_FROM_Y_UP_LEFT = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])


@dataclass(frozen=True)
class Scan:
    """A sequence on disk. `read(k)` decodes frame k; `files(k)` are the files it is made of."""

    count: int
    read: Callable[[int], View]
    files: Callable[[int], list[Path]]


def open_scan(track: str, folder: Path, image_size: tuple[int, int]) -> Scan:
    """The frames of a folder. Raises UsageError when it does not look like the layout, MissingExtraError for a library
    that is not installed."""
    openers = {"seven_scenes": _seven_scenes, "icl_nuim": _icl_nuim, "argoverse2": _argoverse2}
    return openers[track](folder, image_size)


def chosen(scan: Scan, every: int, frames: int, queries: int, where: str) -> tuple[list[int], list[int], list[str]]:
    """Which frames are shown, which are asked for, and each query's placement.

    Of every `every`-th frame half of the queries lie between shown ones and the other half after them.
    """
    wanted = frames + queries
    if scan.count < (wanted - 1) * every + 1:
        raise UsageError(
            f"{where}: {scan.count} frames, {wanted} that are {every} apart need {(wanted - 1) * every + 1}. "
            "Use fewer frames or a smaller `every`."
        )
    between = min(queries // 2, frames - 1)
    held = {(2 * (k + 1) * (frames + between) + between + 1) // (2 * (between + 1)) - 1 for k in range(between)}
    places = list(range(wanted))
    asked = [k for k in places if k in held] + places[frames + len(held) :]
    shown = [k for k in places if k not in set(asked)]
    words = ["interpolated" if k in held else "extrapolated" for k in asked]
    return [k * every for k in shown], [k * every for k in asked], words


def scan_draft(
    track: str, folder: Path, *, image_size: tuple[int, int], every: int, warmup: int, stream: int, queries: int
) -> Draft:
    """An episode from a recorded sequence."""
    scan = open_scan(track, folder, image_size)
    shown, asked, words = chosen(scan, every, warmup + stream, queries, str(folder))
    frames = [scan.read(k) for k in shown]
    hidden = [_renamed(scan.read(k), word) for k, word in zip(asked, words, strict=True)]
    for number, view in zip([*shown, *asked], [*frames, *hidden], strict=True):
        if not view.is_usable:
            raise UsageError(f"{folder}: frame {number} has a depth in under 5 % of its pixels. Choose another part.")
    convention = "ray" if track == "argoverse2" else "z"
    return Draft(frames[:warmup], frames[warmup:], hidden, convention, ("rgb", "depth"), VOXEL_M[track])  # type: ignore[arg-type]


def scan_digest(track: str, folder: Path, image_size: tuple[int, int], every: int, frames: int, queries: int) -> str:
    """Digest of the bytes of every file that an episode is made of."""
    scan = open_scan(track, folder, image_size)
    shown, asked, _ = chosen(scan, every, frames, queries, str(folder))
    used = [path for k in sorted([*shown, *asked]) for path in scan.files(k)]
    return digest_value([digest_bytes(_bytes(path)) for path in dict.fromkeys(used)], "scan")


def _renamed(view: View, placement: str) -> View:
    return View(view.time_s, view.camera, view.rgb, view.depth, placement)


def _bytes(path: Path) -> bytes:
    try:
        return read_bytes(path, MAX_FILE_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None


def _picture(path: Path, dtype: type[np.generic], channels: int) -> NDArray[Any]:
    import cv2

    image = cv2.imdecode(np.frombuffer(_bytes(path), np.uint8), cv2.IMREAD_UNCHANGED)
    if image is None or image.dtype != dtype or (image.shape[2:] or (1,)) != (channels,):
        raise FormatError(f"{path}: expected a picture of {channels} x {np.dtype(dtype)}.")
    return image


def _rgbd(
    colour: Path,
    depth: Path,
    metres: float,
    intrinsics: Sequence[float],
    pose: F64,
    time_s: float,
    size: tuple[int, int],
) -> View:
    """A view of a colour and a 16-bit depth picture, reduced to `size`: colours averaged, depths picked."""
    import cv2

    height, width = size
    rgb = _picture(colour, np.uint8, 3)[..., ::-1]
    raw = _picture(depth, np.uint16, 1)
    z = np.where(raw == 65535, 0, raw).astype(np.float32) * np.float32(metres)
    scale = np.array([width / z.shape[1], height / z.shape[0]])
    fx, fy, cx, cy = intrinsics
    # The sources put pixel centres at whole numbers; ours lie at + 0.5.
    scaled = np.array([fx * scale[0], fy * scale[1], (cx + 0.5) * scale[0], (cy + 0.5) * scale[1]])
    small = np.asarray(cv2.resize(rgb.copy(), (width, height), interpolation=cv2.INTER_AREA), np.uint8)
    rows = np.floor((np.arange(height) + 0.5) / scale[1]).astype(np.intp)
    columns = np.floor((np.arange(width) + 0.5) / scale[0]).astype(np.intp)
    return View(time_s, Camera("pinhole", scaled, pose), small, np.ascontiguousarray(z[np.ix_(rows, columns)]))


def _rigid(rotation: F64, position: F64, where: str) -> F64:
    """(4, 4) pose with the nearest rotation. Raises FormatError when there is none near."""
    u, _, v = np.linalg.svd(rotation) if np.isfinite(rotation).all() else (np.eye(3), None, -np.eye(3))
    nearest = u @ v
    if np.abs(nearest - rotation).max() > RIGID_TOLERANCE or np.linalg.det(nearest) < 0.0:
        raise FormatError(f"{where}: the pose is no rotation, expected a rigid camera-to-world matrix.")
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = nearest, position
    return pose


def _seven_scenes(folder: Path, size: tuple[int, int]) -> Scan:
    """frame-000000.{color.png, depth.png, pose.txt}: depth in mm, 65535 = none; camera-to-world, 640 x 480."""
    stems = sorted(path.name.removesuffix(".pose.txt") for path in folder.glob("frame-*.pose.txt"))
    if not stems:
        raise UsageError(f"{folder}: no frame-*.pose.txt. Name the folder of one sequence (seq-01) of 7-Scenes.")

    def files(k: int) -> list[Path]:
        return [folder / f"{stems[k]}.{kind}" for kind in ("color.png", "depth.png", "pose.txt")]

    def read(k: int) -> View:
        colour, depth, pose_file = files(k)
        matrix = _numbers(pose_file, (4, 4))
        pose = _rigid(_FROM_Y_DOWN @ matrix[:3, :3], _FROM_Y_DOWN @ matrix[:3, 3], str(pose_file))
        return _rgbd(colour, depth, 1e-3, (585.0, 585.0, 320.0, 240.0), pose, k / 30.0, size)

    return Scan(len(stems), read, files)


def _icl_nuim(folder: Path, size: tuple[int, int]) -> Scan:
    """rgb/<n>.png, depth/<n>.png in 1/5000 m, and one *.gt.freiburg of `n tx ty tz qx qy qz qw`.

    The ray tracer's world is left-handed with y up, and so is its camera (fy = -480): both are mirrored.
    """
    truth = sorted(folder.glob("*.gt.freiburg"))
    if len(truth) != 1:
        raise UsageError(
            f"{folder}: {len(truth)} files *.gt.freiburg, expected one. Name the folder of one trajectory."
        )
    rows = _numbers(truth[0], (-1, 8))
    poses = {int(row[0]): row[1:] for row in rows}
    there = sorted(number for number in poses if (folder / "rgb" / f"{number}.png").is_file())
    if not there:
        raise UsageError(f"{folder}: no rgb/<number>.png with a pose in {truth[0].name}.")

    def files(k: int) -> list[Path]:
        return [folder / "rgb" / f"{there[k]}.png", folder / "depth" / f"{there[k]}.png", truth[0]]

    def read(k: int) -> View:
        colour, depth, _ = files(k)
        row = poses[there[k]]
        rotation = _FROM_Y_UP_LEFT @ _quaternion(row[3:7]) @ np.diag([1.0, -1.0, 1.0])
        pose = _rigid(rotation, _FROM_Y_UP_LEFT @ row[:3], f"{truth[0]}: frame {there[k]}")
        return _rgbd(colour, depth, 1.0 / 5000.0, (481.2, 480.0, 319.5, 239.5), pose, there[k] / 30.0, size)

    return Scan(len(there), read, files)


def _argoverse2(folder: Path, size: tuple[int, int]) -> Scan:
    """sensors/lidar/<timestamp_ns>.feather in the vehicle's frame, and city_SE3_egovehicle.feather; colours are the
    intensity."""
    sweeps = sorted((folder / "sensors" / "lidar").glob("*.feather"), key=lambda path: int(path.stem))
    if not sweeps:
        raise UsageError(f"{folder}: no sensors/lidar/*.feather. Name the folder of one log of the sensor data set.")
    pose_file = folder / "city_SE3_egovehicle.feather"
    table = _feather(pose_file, ("timestamp_ns", "qx", "qy", "qz", "qw", "tx_m", "ty_m", "tz_m"))
    by_time = {int(time): k for k, time in enumerate(table["timestamp_ns"])}
    start = table["tx_m"][0], table["ty_m"][0], table["tz_m"][0]

    def files(k: int) -> list[Path]:
        return [sweeps[k], pose_file]

    def read(k: int) -> View:
        stamp = int(sweeps[k].stem)
        if stamp not in by_time:
            raise FormatError(f"{pose_file}: no pose at {stamp}, the time of a sweep.")
        row = by_time[stamp]
        vehicle = _quaternion(np.array([table[name][row] for name in ("qx", "qy", "qz", "qw")]))
        position = np.array([table[name][row] for name in ("tx_m", "ty_m", "tz_m")]) - start
        # The vehicle's x is forward and z up; a camera's z is forward and y down.
        axes = vehicle @ np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
        centre = position + vehicle @ np.array([0.0, 0.0, LIDAR_HEIGHT_M])
        pose = _rigid(axes, centre, f"{pose_file}: {stamp}")
        points = _feather(sweeps[k], ("x", "y", "z", "intensity"))
        xyz = np.stack([points[name] for name in ("x", "y", "z")], 1) - [0.0, 0.0, LIDAR_HEIGHT_M]
        seconds = (stamp - int(sweeps[0].stem)) * 1e-9
        return _range_image(xyz, points["intensity"], pose, seconds, size)

    return Scan(len(sweeps), read, files)


def _range_image(xyz: F64, intensity: F64, pose: F64, time_s: float, size: tuple[int, int]) -> View:
    """The nearest return in each pixel of a whole turn."""
    height, width = size
    per_radian = height / (LIDAR_UP_RAD + LIDAR_DOWN_RAD)
    camera = Camera(
        "spherical", np.array([width / (2 * np.pi), per_radian, width / 2, LIDAR_UP_RAD * per_radian]), pose
    )
    length = np.linalg.norm(xyz, axis=1)
    column = np.floor(np.arctan2(-xyz[:, 1], xyz[:, 0]) * camera.intrinsics[0] + width / 2).astype(np.int64) % width
    row = np.floor((LIDAR_UP_RAD - np.arctan2(xyz[:, 2], np.hypot(xyz[:, 0], xyz[:, 1]))) * per_radian).astype(np.int64)
    kept = (row >= 0) & (row < height) & (length > 0.5)
    order = np.flatnonzero(kept)[np.argsort(-length[kept], kind="stable")]  # the last written wins: the nearest
    depth = np.zeros((height, width), np.float32)
    rgb = np.zeros((height, width, 3), np.uint8)
    depth[row[order], column[order]] = length[order]
    rgb[row[order], column[order]] = np.clip(intensity[order], 0, 255).astype(np.uint8)[:, None]
    return View(time_s, camera, rgb, depth)


def _feather(path: Path, columns: Sequence[str]) -> dict[str, NDArray[Any]]:
    try:
        from pyarrow import ArrowInvalid, BufferReader, feather
    except ImportError:
        raise MissingExtraError("Argoverse 2 logs need pyarrow: pip install 'skidpad[argoverse]'") from None
    try:
        table = feather.read_table(BufferReader(_bytes(path)), columns=list(columns))
    except (ArrowInvalid, KeyError) as error:
        raise FormatError(f"{path}: not a table with the columns {', '.join(columns)} ({error}).") from None
    return {name: table[name].to_numpy().astype(np.int64 if name == "timestamp_ns" else np.float64) for name in columns}


_REAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _numbers(path: Path, shape: tuple[int, int]) -> F64:
    """The numbers of a text file as a matrix; -1 is any count of rows."""
    words = _bytes(path).decode("ascii", "replace").split()
    odd = next((word for word in words if not _REAL.fullmatch(word)), None)
    if odd is not None or not words or len(words) % shape[1] or (shape[0] > 0 and len(words) != shape[0] * shape[1]):
        raise FormatError(f"{path}: {odd or f'{len(words)} numbers'!r}, expected rows of {shape[1]} numbers.")
    return np.array([float(word) for word in words]).reshape(shape)


def _quaternion(xyzw: F64) -> F64:
    """(3, 3) rotation of a quaternion x, y, z, w."""
    x, y, z, w = np.asarray(xyzw, np.float64) / max(float(np.linalg.norm(xyzw)), 1e-12)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
