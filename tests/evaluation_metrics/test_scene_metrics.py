"""Metrics of rendered views by hand: 3x3 images, small grids of ground, and a second way to compute similarity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from skidpad.errors import CaseError
from skidpad.evaluation.metrics.scene_metrics import (
    SCENE_METRICS,
    SETS,
    Cells,
    Predicted,
    bev_occupancy_iou,
    cells_of,
    depth_absrel,
    false_free_rate,
    first_obstacle_error,
    free_space_iou,
    in_range,
    measured_metrics,
    pair_metrics,
    psnr,
    query_metrics,
    ssim,
)
from skidpad.streaming.camera import Camera
from skidpad.streaming.seal import Fallback
from skidpad.streaming.vault import Query, Task

CAMERA = Camera("pinhole", np.array([3.0, 3.0, 1.5, 1.5]), np.eye(4))
FALLBACK = Fallback(3.0, (0.5, 0.5, 0.5))
DEPTH = np.array([[2, 2, 4], [4, 0, 4], [2, 2, 1]], np.float32)
# Pixel (1, 1) has no label. Row 0 is covered and right, a half off, right; the rest is partly uncovered.
GUESS = np.array([[2, 3, 4], [5, 9, 9], [2, 9, 9]], np.float32)
OPACITY = np.array([[1, 1, 1], [1, 1, 0], [1, 0.5, 0]], np.float32)
SEEN = np.array([[1, 1, 1], [0, 0, 0], [0, 0, 0]], bool)


def query(**changes: Any) -> Query:
    """The hand-worked view, unless told otherwise."""
    fields = {"depth": DEPTH, "rgb": np.full((3, 3, 3), 0.5, np.float32), "seen": SEEN, "moving": None} | changes
    return Query(7, 0.0, "interpolated", CAMERA, fields["rgb"], fields["depth"], fields["seen"], fields["moving"])


def predicted(**changes: Any) -> Predicted:
    """The hand-worked render, unless told otherwise."""
    fields = {"depth": GUESS, "rgb": np.full((3, 3, 3), 0.5, np.float32), "opacity": OPACITY} | changes
    return Predicted(**fields)


class Everything:
    """A state that knows all: solid where `solid(x, y, z)`, its grid ends at `edge` metres along z."""

    def __init__(self, solid: Any = None, edge: float = 3.0) -> None:
        self._solid, self._edge = solid, edge

    def inside(self, points: np.ndarray) -> np.ndarray:
        return points[:, 2] < self._edge

    def occupancy(self, points: np.ndarray) -> np.ndarray:
        return np.array([self._solid(*point) for point in points], np.int8)


def test_depth_by_hand() -> None:
    """Fallback 3 m on the three uncovered label pixels (opacity 0.5 is not above it), none on .covered (M74)."""
    pixels, found = query_metrics(predicted(), query(), FALLBACK, None)
    # label 2 2 4 4 4 2 2 1, guess 2 3 4 5 3 2 3 3
    relative = [0, 0.5, 0, 0.25, 0.25, 0, 0.5, 2.0]
    assert found["depth_absrel"] == pytest.approx(sum(relative) / 8)
    assert found["depth_l1"] == pytest.approx((0 + 1 + 0 + 1 + 1 + 0 + 1 + 2) / 8)
    assert found["depth_rmse"] == pytest.approx(math.sqrt((1 + 1 + 1 + 1 + 4) / 8))
    assert found["depth_delta1"] == pytest.approx(3 / 8)  # 5 / 4 is not below 1.25
    assert found["depth_absrel.covered"] == pytest.approx((0 + 0.5 + 0 + 0.25 + 0) / 5)
    assert found["depth_absrel.seen"] == pytest.approx(0.5 / 3)
    assert found["depth_absrel.unseen"] == pytest.approx((0.25 + 0.25 + 0 + 0.5 + 2) / 5)
    assert found["depth_absrel.moving"] is None
    assert found["coverage"] == pytest.approx(5 / 8)
    assert pixels == {"label": 8, "covered": 5, "seen": 3, "unseen": 5}
    assert depth_absrel(GUESS, OPACITY, DEPTH, 3.0) == found["depth_absrel"]


def test_perfect_view() -> None:
    """A perfect render has no error, full coverage, and a PSNR of the cap and not of infinity (M74, M76)."""
    image = np.random.default_rng(0).random((3, 9, 9)).astype(np.float32)
    depth = np.full((9, 9), 2.0, np.float32)
    seen = np.ones((9, 9), bool)
    render = Predicted(depth, image, np.ones((9, 9), np.float32))
    label = query(depth=depth, rgb=image, seen=seen, moving=seen)
    _, found = query_metrics(render, label, FALLBACK, Everything())
    for name in ("depth_absrel", "depth_l1", "depth_rmse", "depth_absrel.moving", "outside_box"):
        assert found[name] == 0.0, name
    assert found["depth_delta1"] == found["coverage"] == 1.0
    assert found["rgb_psnr"] == 60.0
    assert found["rgb_ssim"] == pytest.approx(1.0)


def test_no_valid_pixel_is_no_value() -> None:
    """A query without any valid pixel has no depth value, never a zero, and its colour still counts (M76, F55)."""
    blank = np.zeros((3, 3), np.float32)
    pixels, found = query_metrics(predicted(), query(depth=blank), FALLBACK, Everything())
    assert pixels["label"] == 0
    depth_names = [name for name in found if name.startswith(("depth", "coverage", "outside"))]
    assert len(depth_names) == 4 * (1 + len(SETS)) + 2
    assert all(found[name] is None for name in depth_names)
    assert found["rgb_psnr"] is not None


def test_uncovered_colour_is_the_fallback() -> None:
    """An uncovered pixel counts in the warm-up's mean colour: black renders there change nothing (M74)."""
    image = np.full((3, 3, 3), 0.5, np.float32)
    image[:, OPACITY <= 0.5] = 0.0
    _, found = query_metrics(predicted(rgb=image), query(), FALLBACK, None)
    assert found["rgb_psnr"] == 60.0


def test_seen_and_unseen_add_up() -> None:
    """Seen and unseen split the valid pixels: the pixel-weighted mean of the two is the whole (M74)."""
    rng = np.random.default_rng(1)
    seen = rng.random((3, 3)) < 0.5
    pixels, found = query_metrics(predicted(), query(seen=seen), FALLBACK, None)
    assert pixels["seen"] + pixels["unseen"] == pixels["label"]
    total = pixels["seen"] * found["depth_l1.seen"] + pixels["unseen"] * found["depth_l1.unseen"]
    assert total / pixels["label"] == pytest.approx(found["depth_l1"])


def test_outside_box_by_hand() -> None:
    """Points at 4 m lie beyond a grid that ends at 3 m: three of eight (M74)."""
    _, found = query_metrics(predicted(), query(), FALLBACK, Everything(edge=3.0))
    assert found["outside_box"] == pytest.approx(3 / 8)


def test_psnr_by_hand() -> None:
    """An error of 0.1 everywhere is 20 dB, of 1 is 0 dB."""
    zero = np.zeros((3, 2, 2))
    assert psnr(zero + 0.1, zero) == pytest.approx(20.0)
    assert psnr(zero + 1.0, zero) == pytest.approx(0.0)


def test_ssim_against_windows_one_by_one() -> None:
    """Sums by tables equal every 7x7 window on its own, and blur lowers it (M74)."""
    rng = np.random.default_rng(2)
    a = rng.random((2, 9, 10))
    b = np.clip(a + rng.normal(0, 0.2, a.shape), 0, 1)
    values = []
    for channel in range(2):
        for row in range(3):
            for column in range(4):
                p, t = (image[channel, row : row + 7, column : column + 7].ravel() for image in (a, b))
                cov = np.cov(p, t)  # sample covariance, over n - 1
                top = (2 * p.mean() * t.mean() + 1e-4) * (2 * cov[0, 1] + 9e-4)
                values.append(top / ((p.mean() ** 2 + t.mean() ** 2 + 1e-4) * (cov[0, 0] + cov[1, 1] + 9e-4)))
    assert ssim(a, b) == pytest.approx(np.mean(values), abs=1e-12)
    assert ssim(a, a) == pytest.approx(1.0)
    assert ssim(a[:, :6], b[:, :6]) is None


def test_ssim_against_another_implementation() -> None:
    """The same number as scikit-image with its defaults, where that is installed (M74)."""
    metrics = pytest.importorskip("skimage.metrics")
    rng = np.random.default_rng(3)
    a, b = rng.random((3, 20, 24)), rng.random((3, 20, 24))
    assert ssim(a, b) == pytest.approx(metrics.structural_similarity(a, b, channel_axis=0, data_range=1.0))


def ground(occupied: list[int], unknown: list[int], solid: list[int], agents: list[int]) -> Cells:
    """A corridor of five cells at 1, 2, 3, 4, 5 m beside a row that is not in it."""

    def row(places: list[int]) -> np.ndarray:
        mask = np.zeros((2, 5), bool)
        mask[0, places] = True
        return mask

    corridor = row([0, 1, 2, 3, 4])
    return Cells(row(occupied), row(unknown), row(solid), row(agents), corridor, np.tile(np.arange(1.0, 6.0), (2, 1)))


def test_task_metrics_by_hand() -> None:
    """Free means nothing known or unknown; agents are compared on cells that are theirs or truly empty (M74)."""
    cells = ground(occupied=[2], unknown=[4], solid=[3, 4], agents=[3])
    # called free 0 1 3, truly free 0 1 2
    assert free_space_iou(cells) == pytest.approx(2 / 4)
    assert first_obstacle_error(cells) == pytest.approx(1.0)  # 3 m against 4 m
    assert false_free_rate(cells) == pytest.approx(1 / 2)  # cell 3 of 3 and 4
    assert bev_occupancy_iou(cells) == 0.0
    assert bev_occupancy_iou(ground([2, 3, 4], [], [3, 4], [3])) == pytest.approx(1 / 2)  # cell 4 is a wall


def test_task_metrics_without_anything() -> None:
    """No obstacle counts as 20 m; a rate over no cell is no value, never zero (M74)."""
    empty = ground([], [], [], [])
    assert free_space_iou(empty) == 1.0
    assert first_obstacle_error(empty) == 0.0
    assert first_obstacle_error(ground([], [], [1], [])) == pytest.approx(18.0)
    assert false_free_rate(empty) is None
    assert bev_occupancy_iou(empty) is None
    assert pair_metrics(None, None, None) == dict.fromkeys(
        ["bev_occupancy_iou", "false_free_rate", "first_obstacle_error", "forgetting", "free_space_iou"]
    )
    assert pair_metrics(None, None, -0.25)["forgetting"] == -0.25


def test_cells_of_a_known_street() -> None:
    """A state that knows a post at 6 m agrees with labels that hold it; heights outside 0.2-2.0 m do not matter."""
    labels = np.zeros((80, 80), bool)
    origin = np.array([-20.0, -20.0])
    labels[40, 52] = True  # x 6.0-6.5, y 0.0-0.5
    path = np.stack([np.arange(0.0, 22.0, 0.5), np.zeros(44)], 1)
    task = Task(0.0, path, np.zeros((4, 2)), origin, 0.5, labels, labels)

    def solid(x: float, y: float, z: float) -> int:
        assert 0.19 < z < 2.01
        return int(6.0 <= x < 6.5 and 0.0 <= y < 0.5 and z > 1.5)

    found = pair_metrics(task, Everything(solid), None)
    assert found["free_space_iou"] == found["bev_occupancy_iou"] == 1.0
    assert found["first_obstacle_error"] == found["false_free_rate"] == 0.0
    cells = cells_of(task, Everything(lambda x, y, z: -1))
    assert cells.unknown.all()
    assert not cells.occupied.any()
    assert cells.corridor.sum() == 40 * 8  # 20 m x 3.5 m, nothing behind the start
    assert pair_metrics(task, Everything(lambda x, y, z: -1), None)["free_space_iou"] == 0.0


def test_registry_is_complete_and_checked() -> None:
    """Every value has a line with unit, range, direction, version; one outside its range is an error (M74)."""
    _, found = query_metrics(predicted(), query(), FALLBACK, None, lambda guess, truth: 0.25)  # type: ignore[arg-type]
    assert found["rgb_lpips"] == 0.25
    once = set(pair_metrics(None, None, None))
    assert set(found) | once == set(SCENE_METRICS) == set(measured_metrics(lpips=True))
    _, without = query_metrics(predicted(), query(), FALLBACK, None)
    assert set(without) | once == set(measured_metrics(lpips=False)) == set(SCENE_METRICS) - {"rgb_lpips"}
    assert {line.direction for line in SCENE_METRICS.values()} == {"higher", "lower", "none"}
    assert all(line.version >= 1 and line.unit and line.aid for line in SCENE_METRICS.values())
    assert in_range({"rgb_psnr": float("nan")}) == {"rgb_psnr": None}
    with pytest.raises(CaseError, match="depth_delta1"):
        in_range({"depth_delta1": 1.5})
