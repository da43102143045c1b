"""The fast state: its table, its frame, and how it is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from mapper_world import TINY, camera_at, frame, frames, single_thread

from skidpad.errors import RefusedError
from skidpad.streaming.camera import points_of
from skidpad.streaming.carrier import (
    KEYFRAMES,
    TABLE,
    FastState,
    empty_state,
    measured_frame,
    state_bytes,
    state_shapes,
    view_of,
)
from skidpad.streaming.feedback import render_view
from skidpad.streaming.presets import PRESETS
from skidpad.streaming.renderer import MeasurementRenderer
from skidpad.streaming.write_rule import write

CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def _threads():
    with single_thread():
        yield


def fused_state(count: int, world: np.ndarray | None = None) -> FastState:
    arrivals = frames(count, TINY, world)
    place = measured_frame(arrivals, TINY)
    state = empty_state(TINY, place, CPU, "parent")
    for arrival in arrivals:
        state, _ = write(state, view_of(arrival, place, TINY, CPU), None)
    return state


def test_table_drives_the_state() -> None:
    """M52: the tensors are those of the table, under 5 MB in the embedded preset; each of them changes the hash."""
    assert state_bytes(PRESETS["embedded"]) < 5e6
    state = fused_state(2)
    assert {name: tuple(tensor.shape) for name, tensor in state.tensors.items()} == state_shapes(TINY)
    assert {name: tensor.dtype for name, tensor in state.tensors.items()} == {n: e.dtype for n, e in TABLE.items()}
    before = state.hash()
    assert before == fused_state(2).hash()
    for name in TABLE:
        tensor = state.tensors[name].clone()
        tensor.view(-1)[-1] += 1
        assert state.with_tensors(**{name: tensor}).hash() != before, name


def test_world_frame_does_not_matter() -> None:
    """M53: moving and turning the whole world about the vertical changes a rendered view by less than 1e-3."""
    c, s = np.cos(2.1), np.sin(2.1)
    world = np.array([[c, -s, 0, 31.0], [s, c, 0, -12.0], [0, 0, 1, 4.0], [0, 0, 0, 1.0]])
    renderer = MeasurementRenderer(64, 500, TINY.near, TINY.far)
    views = [
        render_view(fused_state(4, moved), renderer, camera_at(2.5, TINY, moved), *TINY.image)
        for moved in (None, world)
    ]
    assert (views[0].depth - views[1].depth).abs().mean() < 1e-3
    assert (views[0].opacity - views[1].opacity).abs().mean() < 1e-3
    assert (views[0].rgb - views[1].rgb).abs().mean() < 1e-3


def test_bounds_come_from_the_warm_up() -> None:
    """M53: the box holds the 0.5-99.5 percentile of the warm-up points plus 0.4 m, in whole voxels; the grid is centred
    on it; other axes on request."""
    arrivals = frames(3)
    place = measured_frame(arrivals, TINY)
    points = np.concatenate([points_of(a.camera, a.depth.numpy().astype(float)).reshape(-1, 3) for a in arrivals])
    local = points @ place.state_from_world[:3, :3].T + place.state_from_world[:3, 3]
    low, high = np.percentile(local, (0.5, 99.5), axis=0)
    assert ((place.box[0] <= low - 0.4 + 1e-9) & (place.box[0] > low - 0.4 - TINY.voxel)).all()
    assert ((place.box[1] >= high + 0.4 - 1e-9) & (place.box[1] < high + 0.4 + TINY.voxel)).all()
    assert np.allclose(place.box / TINY.voxel, np.round(place.box / TINY.voxel))
    assert np.allclose(place.corner + 0.5 * np.array(TINY.shape) * TINY.voxel, place.box.mean(0))
    assert place.ground == pytest.approx(low[2])
    assert np.allclose(measured_frame(arrivals, TINY, "world").state_from_world[:3, :3], np.eye(3))
    centre = np.linalg.inv(place.state_from_world)[:3] @ [*place.box.mean(0), 1.0]
    assert place.outside(TINY, np.stack([centre, centre + 50.0])).tolist() == [False, True]


def test_street_grid_lies_ahead() -> None:
    """M53: the street preset's grid is 41.6 x 25.6 x 6.4 m ahead of the anchor, whatever was measured."""
    street = replace(PRESETS["street"], image=TINY.image)
    place = measured_frame(frames(2), street)
    assert np.allclose(np.array(street.shape) * street.voxel, [41.6, 25.6, 6.4])
    assert place.corner.tolist() == list(street.corner or ())


def test_camera_that_looks_down_has_an_anchor() -> None:
    """M53: a first camera that looks straight down still gives a frame about the vertical: its right side tells yaw."""
    camera = camera_at(0)
    pose = np.array([[0, -1, 0, 0.0], [-1, 0, 0, 0.0], [0, 0, -1, 1.4], [0, 0, 0, 1.0]])
    first = replace(frame(0), camera=camera.with_pose(pose))
    turn = measured_frame([first], TINY).state_from_world[:3, :3]
    assert np.allclose(turn @ turn.T, np.eye(3))
    assert turn[2].tolist() == [0, 0, 1]


def test_no_valid_depth_is_refused() -> None:
    """F55, M53: a warm-up without any valid depth has no bounds; a frame without depth or of another size is named."""
    blank = replace(frame(0), depth=torch.zeros(TINY.image))
    with pytest.raises(RefusedError, match="none of the 1 warm-up frames"):
        measured_frame([blank], TINY)
    with pytest.raises(RefusedError, match="has no depth"):
        measured_frame([replace(frame(0), depth=None)], TINY)
    with pytest.raises(RefusedError, match="image of 18 x 24, preset embedded has 48 x 64"):
        measured_frame([frame(0)], PRESETS["embedded"])


def test_keyframe_colour() -> None:
    """M56: a surface seen by one keyframe shows that keyframe's pixels to 2/255; the ring keeps the last six."""
    arrival = frame(0)
    texture = torch.rand((3, *TINY.image), generator=torch.Generator().manual_seed(1))
    arrival = replace(arrival, rgb=texture)
    place = measured_frame([arrival], TINY)
    view = view_of(arrival, place, TINY, CPU)
    state, _ = write(empty_state(TINY, place, CPU, ""), view, None)
    found = render_view(state, MeasurementRenderer(96, 500, TINY.near, TINY.far), arrival.camera, *TINY.image)
    near = (found.opacity > 0.5) & ((found.depth - arrival.depth).abs() < 2.5 * TINY.voxel)
    assert near.float().mean() > 0.6
    assert ((found.rgb - texture).abs().amax(0)[near] < 2 / 255).all()
    for _ in range(KEYFRAMES):
        state = state.with_keyframe(view)
    assert len(state.keyframe_cameras()) == KEYFRAMES
    assert state.keyframes == KEYFRAMES + 1


def test_voxel_colour_without_keyframes() -> None:
    """M56: where no keyframe sees the point, the voxels around it give their colour; voxels without colour do not
    darken it."""
    arrival = replace(frame(0), rgb=torch.full((3, *TINY.image), 0.75))
    place = measured_frame([arrival], TINY)
    state, _ = write(empty_state(TINY, place, CPU, ""), view_of(arrival, place, TINY, CPU), None)
    found = render_view(
        replace(state, keyframes=0), MeasurementRenderer(96, 500, TINY.near, TINY.far), arrival.camera, *TINY.image
    )
    shown = found.rgb[:, found.opacity > 0.9]
    assert ((shown - 0.75).abs() < 1e-3).float().mean() > 0.95
