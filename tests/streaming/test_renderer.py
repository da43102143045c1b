"""The fixed renderer against closed forms and a slow twin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from skidpad.errors import UsageError
from skidpad.streaming.renderer import (
    END_FLOPS,
    INTERVAL_FLOPS,
    SHARPNESS,
    MeasurementRenderer,
    render_flops,
)

VOXEL = 0.1
SHAPE = (24, 20, 16)
ORIGIN = (-1.2, -1.0, -0.8)


class Grid:
    """A field given by a function of points (..., 3) in metres; colour is the point itself."""

    voxel = VOXEL

    def __init__(self, function: Any, dtype: torch.dtype = torch.float32) -> None:
        axes = [o + (np.arange(n) + 0.5) * VOXEL for o, n in zip(ORIGIN, SHAPE, strict=True)]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        self.distance = torch.tensor(np.clip(function(points) / (4 * VOXEL), -1, 1), dtype=dtype)
        self.origin = torch.tensor(ORIGIN, dtype=dtype)

    def colour(self, points: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
        return points


def sphere(points: np.ndarray) -> np.ndarray:
    return 0.7 - np.linalg.norm(points, axis=-1)


def plane(points: np.ndarray) -> np.ndarray:
    return 0.4 - points[..., 0] * 0.8 - points[..., 1] * 0.6


def some_rays(count: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(1)
    directions = rng.normal(size=(count, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    origins = rng.uniform(-0.1, 0.1, (count, 3))
    return torch.tensor(origins, dtype=dtype), torch.tensor(directions, dtype=dtype)


def test_sphere_and_plane_depth() -> None:
    """M50: depth of a sphere from inside and of a slanted plane to a tenth of a voxel at 64 samples."""
    renderer = MeasurementRenderer(64, 2048, 0.05, 1.4)
    origins, directions = some_rays(500)
    origins = torch.zeros_like(origins)
    found = renderer.render(Grid(sphere), origins, directions)
    assert (found.distance - 0.7).abs().max() < 0.1 * VOXEL
    assert (found.opacity > 0.5).all()
    assert (found.normal + directions).abs().max() < 0.1
    ahead = torch.tensor([[0.8, 0.6, 0.0]])
    slanted = torch.nn.functional.normalize(ahead + 0.2 * directions[:50].clamp(-1, 1), dim=1)
    true = 0.4 / (slanted @ ahead[0])
    found = renderer.render(Grid(plane), origins[:50], slanted)
    assert (found.distance - true).abs().max() < 0.1 * VOXEL
    assert (found.normal + ahead).abs().max() < 1e-3
    assert torch.allclose(found.rgb, slanted * found.distance[:, None], atol=1e-6)


def test_chunks_change_nothing() -> None:
    """M50: chunks of 1, 7 and 2048 rays give the same bytes: a chunk size that leaks into results moves scores."""
    origins, directions = some_rays(60)
    field = Grid(sphere)
    whole, *others = (
        MeasurementRenderer(32, chunk, 0.05, 1.6).render(field, origins, directions) for chunk in (2048, 1, 7)
    )
    for other in others:
        for name in ("distance", "rgb", "opacity", "normal"):
            assert torch.equal(getattr(whole, name), getattr(other, name)), name


class Counted(float):
    """A number that counts the arithmetic done with it."""

    done = 0


def _count(result: float) -> Counted:
    Counted.done += 1
    return Counted(result)


for _name in ("__add__", "__sub__", "__mul__", "__truediv__", "__radd__", "__rsub__", "__rmul__", "__rtruediv__"):
    setattr(Counted, _name, lambda self, other, _name=_name: _count(getattr(float, _name)(self, float(other))))


def least(a: float, b: float) -> Counted:
    return _count(min(a, b))


def most(a: float, b: float) -> Counted:
    return _count(max(a, b))


def slow_ray(grid: np.ndarray, start: np.ndarray, slope: np.ndarray, ends: list[float]) -> tuple[float, float, int]:
    """Depth and opacity of one ray by the formulas of the module's docstring, and the arithmetic it took."""
    Counted.done = 0
    values, shades = [], []
    for end in ends:
        places, shares = [], []
        for axis in range(3):
            at = Counted(slope[axis]) * end + start[axis]
            at = least(most(at, 0.0), grid.shape[axis] - 1 - 1e-3)
            low = _count(math.floor(at))
            places.append(int(low))
            shares.append(at - low)
        i, j, k = places

        def mixed(a: float, b: float, share: float) -> Counted:
            return Counted(a) + (Counted(b) - a) * share

        edges = [mixed(grid[i + a, j + b, k], grid[i + a, j + b, k + 1], shares[2]) for a in (0, 1) for b in (0, 1)]
        values.append(mixed(mixed(edges[0], edges[1], shares[1]), mixed(edges[2], edges[3], shares[1]), shares[0]))
        scaled = values[-1] * SHARPNESS
        shades.append(1.0 / (1.0 + _count(math.exp(-scaled))))
    passed, opacity, depth = Counted(1.0), Counted(0.0), Counted(0.0)
    step = ends[1] - ends[0]
    for n in range(len(ends) - 1):
        alpha = most(1.0 - shades[n + 1] / shades[n], 0.0)
        weight = alpha * passed
        passed = passed * (1.0 - alpha)
        opacity = opacity + weight
        fall = most(values[n] - values[n + 1], 1e-6)
        share = least(most(values[n] / fall, 0.0), 1.0)
        depth = depth + weight * (share * step + ends[n])
    total = float(opacity)
    return (float(depth) / total if total > 1e-4 else 0.0), total, Counted.done


def test_slow_twin_and_its_arithmetic() -> None:
    """M50, M64: the renderer equals a per-ray twin in plain numbers, and declared FLOPs are what it counts."""
    rng = np.random.default_rng(3)
    field = Grid(lambda points: sphere(points) + 0.1 * rng.normal(size=points.shape[:-1]), torch.float64)
    samples, near, far = 24, 0.05, 1.8  # the far end lies outside the grid
    origins, directions = some_rays(40, torch.float64)
    found = MeasurementRenderer(samples, 16, near, far).render(field, origins, directions)
    padded = np.pad(field.distance.numpy(), 1, constant_values=1.0)
    ends = np.linspace(near, far, samples + 1).tolist()
    for n in range(len(origins)):
        start = (origins[n].numpy() - ORIGIN) / VOXEL + 0.5
        depth, opacity, done = slow_ray(padded, start, directions[n].numpy() / VOXEL, ends)
        assert found.distance[n].item() == pytest.approx(depth, abs=1e-9)
        assert found.opacity[n].item() == pytest.approx(opacity, abs=1e-9)
        assert done == render_flops(samples) == END_FLOPS * (samples + 1) + INTERVAL_FLOPS * samples


def test_empty_grid() -> None:
    """M50: nothing is opaque in an empty grid: opacity, depth and normal are 0."""
    origins, directions = some_rays(20)
    found = MeasurementRenderer(16, 8, 0.1, 3.0).render(Grid(lambda p: np.full(p.shape[:-1], 9.0)), origins, directions)
    assert not found.opacity.any()
    assert not found.distance.any()
    assert not found.normal.any()


def test_gradients() -> None:
    """M50: gradients of depth and opacity with respect to the grid hold in double, so a gate can be trained through."""
    field = Grid(sphere, torch.float64)
    origins, directions = some_rays(4, torch.float64)
    renderer = MeasurementRenderer(12, 3, 0.05, 1.2)
    patch = field.distance[5:18:4, 5:15:4, 4:12:4].clone().requires_grad_(True)

    def render(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        changed = Grid(sphere, torch.float64)
        changed.distance = changed.distance.clone()
        changed.distance[5:18:4, 5:15:4, 4:12:4] = values
        found = renderer.render(changed, origins, directions)
        return found.distance, found.opacity

    assert torch.autograd.gradcheck(render, (patch * 0.9,), eps=1e-6, atol=1e-5)


def test_refused_ranges() -> None:
    """M31, M50: one sample, a chunk of 0, a bool and near above far are refused with the allowed range."""
    for values in ((1, 8, 0.1, 1.0), (True, 8, 0.1, 1.0), (8, 0, 0.1, 1.0), (8, 8, 1.0, 0.5), (8.0, 8, 0.1, 1.0)):
        with pytest.raises(UsageError):
            MeasurementRenderer(*values)
