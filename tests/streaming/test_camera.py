"""Cameras: the two depth conventions, rays against projection, and poses that are refused (M18)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skidpad.errors import UsageError
from skidpad.streaming.camera import (
    Camera,
    look,
    own_depth,
    pinhole,
    points_of,
    project,
    ray_lengths,
    rays,
    to_own_depth,
)

HEIGHT, WIDTH = 12, 16


def pinhole_camera(position: tuple[float, ...] = (0.3, -1.0, 1.4), forward: tuple[float, ...] = (1.0, 0.4, -0.2)):
    return Camera("pinhole", pinhole(HEIGHT, WIDTH, 1.4), look(np.array(position), np.array(forward)))


def spherical_camera():
    return Camera("spherical", np.array([8.0, 9.0, 8.0, 6.0]), pinhole_camera().world_from_camera)


def plane_lengths(camera: Camera) -> np.ndarray:
    """Ray lengths to the slanted plane n.x = 4, pixel by pixel."""
    normal = np.array([0.9, 0.1, -0.3])
    origin, direction, _ = rays(camera, HEIGHT, WIDTH)
    return (4.0 - normal @ origin) / (direction @ normal)


def test_slanted_plane_both_ways() -> None:
    """M18: a slanted plane stored as z and as ray gives the same points to 1e-5 m, and reading one as the other moves
    the relative depth error by more than 2 %, so that this test can see the mistake."""
    camera = pinhole_camera()
    lengths = plane_lengths(camera)
    as_z = to_own_depth(camera, lengths * rays(camera, HEIGHT, WIDTH)[2], "z")
    as_ray = to_own_depth(camera, lengths, "ray")
    assert np.abs(points_of(camera, as_z) - points_of(camera, as_ray)).max() < 1e-5
    mistaken = to_own_depth(camera, lengths, "z")
    assert (np.abs(mistaken - as_ray) / as_ray).mean() > 0.02


@pytest.mark.parametrize("camera", [pinhole_camera(), spherical_camera()], ids=["pinhole", "spherical"])
def test_projection_inverts_rays(camera: Camera) -> None:
    """M18: the point of every pixel projects onto that pixel's centre with that depth; a half-pixel slip, the commonest
    camera mistake, moves it by 0.5."""
    depth = 1.0 + np.arange(HEIGHT * WIDTH, dtype=np.float64).reshape(HEIGHT, WIDTH) / 50.0
    pixel, found = project(camera, points_of(camera, depth))
    column, row = np.meshgrid(np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5)
    np.testing.assert_allclose(pixel, np.stack([column, row], -1), atol=1e-9)
    np.testing.assert_allclose(found, depth, atol=1e-9)
    np.testing.assert_allclose(own_depth(camera, ray_lengths(camera, depth)), depth, atol=1e-12)


def test_projection_on_tensors() -> None:
    """M95: tensors project as arrays do, in their own dtype: there is one formula, not one per library."""
    import torch

    for camera in (pinhole_camera(), spherical_camera()):
        points = np.random.default_rng(1).uniform(-3.0, 3.0, (50, 3))
        pixel, depth = project(camera, points)
        pixels, depths = project(camera, torch.tensor(points, dtype=torch.float32))
        assert pixels.dtype == torch.float32
        np.testing.assert_allclose(depths.numpy(), depth, atol=1e-5)
        ahead = depth > 0.1
        np.testing.assert_allclose(pixels.numpy()[ahead], pixel[ahead], rtol=1e-4, atol=1e-2)


def test_spherical_slow_twin() -> None:
    """M18: a spherical pixel looks where its azimuth (to the right) and elevation (downwards) say, written out."""
    camera = spherical_camera()
    _, direction, _ = rays(camera, HEIGHT, WIDTH)
    right, down, forward = camera.rotation.T
    for row, column in ((0, 0), (5, 11), (11, 15)):
        azimuth, elevation = (column + 0.5 - 8.0) / 8.0, (row + 0.5 - 6.0) / 9.0
        level = np.sin(azimuth) * right + np.cos(azimuth) * forward
        np.testing.assert_allclose(direction[row, column], np.cos(elevation) * level + np.sin(elevation) * down)


@given(st.tuples(*[st.floats(-1.0, 1.0)] * 3).filter(lambda v: np.hypot(v[0], v[1]) > 1e-3))
def test_look_is_level(forward: tuple[float, float, float]) -> None:
    """M18: a looked-at pose is rigid, looks along its direction, and keeps the horizon level (x has no z part)."""
    camera = pinhole_camera(forward=forward)
    np.testing.assert_allclose(camera.rotation[:, 2], np.array(forward) / np.linalg.norm(forward), atol=1e-9)
    assert abs(camera.rotation[2, 0]) < 1e-9
    assert camera.rotation[2, 1] < 0.0


def test_refusals() -> None:
    """M18: a pose that is no rotation, a mirrored one, a focal length of 0 and numbers that are not finite are refused;
    z of a spherical camera has no meaning behind it."""
    good = pinhole_camera()
    mirrored = good.world_from_camera.copy()
    mirrored[:3, 0] *= -1.0
    stretched = good.world_from_camera.copy()
    stretched[:3, 0] *= 1.001
    projective = good.world_from_camera.copy()
    projective[3, 0] = 0.1
    for pose in (mirrored, stretched, projective, np.full((4, 4), np.nan), np.eye(3)):
        with pytest.raises(UsageError):
            Camera("pinhole", good.intrinsics, pose)
    for intrinsics in ([0.0, 5.0, 1.0, 1.0], [5.0, -1.0, 1.0, 1.0], [5.0, np.inf, 1.0, 1.0], [5.0, 5.0]):
        with pytest.raises(UsageError):
            Camera("pinhole", np.array(intrinsics), good.world_from_camera)
    with pytest.raises(UsageError, match="fisheye"):
        Camera("fisheye", good.intrinsics, good.world_from_camera)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="spherical"):
        to_own_depth(spherical_camera(), np.ones((HEIGHT, WIDTH)), "z")
