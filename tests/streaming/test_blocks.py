"""A grid in blocks is the grid: every value that both hold is the same, whatever was written, rendered or saved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from mapper_world import (
    TINY,
    camera_at,
    frame,
    frames,
    known_preset,
    run_episode,
    runner_for,
    single_thread,
    tiny_mapper,
)

from skidpad.errors import CheckpointError, IntegrityError
from skidpad.streaming.blocks import GRID, counts, dense, in_view, places_of, spread
from skidpad.streaming.camera import Camera
from skidpad.streaming.carrier import (
    FastState,
    View,
    empty_state,
    measured_frame,
    state_bytes,
    state_shapes,
    table,
    view_of,
)
from skidpad.streaming.completion import Harmonic, completed, completion_inputs
from skidpad.streaming.feedback import held, render_view
from skidpad.streaming.presets import PRESETS, Preset
from skidpad.streaming.renderer import MeasurementRenderer
from skidpad.streaming.seal import SealedState
from skidpad.streaming.sealed import StateProbe
from skidpad.streaming.write_rule import touched, write

CPU = torch.device("cpu")
BLOCKED = replace(TINY, name="tiny-blocks", block=8)


@pytest.fixture(autouse=True, scope="module")
def _threads():
    with single_thread():
        yield


def fused(preset: Preset, order: tuple[int, ...] = (0, 1, 2, 3)) -> FastState:
    """The state after some frames, each of which holes were cut into."""
    place = measured_frame(frames(2, preset), preset)
    state = empty_state(preset, place, CPU, "parent")
    for number in order:
        arrival = frame(number, preset)
        arrival.depth[3:9, 5:12] = 0
        state, _ = write(state, view_of(arrival, place, preset, CPU), None)
    return state


def whole(state: FastState, name: str) -> torch.Tensor:
    """One of the grid's tensors as a grid, with its channels first."""
    tensor = state.tensors[name]
    if state.preset.block is None:
        return tensor if tensor.ndim == 4 else tensor[None]
    fill = {"distance": 1.0, "last_seen": -1}.get(name, 0)
    return spread(state, tensor if tensor.ndim == 5 else tensor[None], fill)


def test_writes_are_those_of_the_whole_grid() -> None:
    """M51: after four writes every voxel of every tensor is bit by bit what the whole grid holds, while fewer blocks
    than there are were ever held; their numbers ascend, and the first is always among them."""
    grid, blocks = fused(TINY), fused(BLOCKED)
    for name in GRID:
        assert torch.equal(whole(grid, name), whole(blocks, name)), name
    numbers = blocks.tensors["blocks"]
    assert 1 < len(numbers) < int(np.prod(counts(BLOCKED)))
    assert numbers[0] == 0
    assert (numbers[1:] > numbers[:-1]).all()
    assert {name: tuple(tensor.shape) for name, tensor in blocks.tensors.items()} == state_shapes(BLOCKED, len(numbers))
    assert {n: tensor.dtype for n, tensor in blocks.tensors.items()} == {n: e.dtype for n, e in table(BLOCKED).items()}
    assert state_bytes(BLOCKED) == state_bytes(TINY) + 4 * int(np.prod(counts(BLOCKED)))
    written = sum(tensor.nbytes for tensor in blocks.tensors.values())
    assert written < sum(tensor.nbytes for tensor in grid.tensors.values())


def test_order_of_blocks_follows_from_what_is_held() -> None:
    """M51: the same frames in another order hold the same blocks in the same places."""
    one, other = fused(BLOCKED), fused(BLOCKED, (3, 1, 0, 2))
    assert torch.equal(one.tensors["blocks"], other.tensors["blocks"])
    assert torch.allclose(one.tensors["distance"], other.tensors["distance"], atol=1e-5)


@pytest.mark.parametrize("spherical", [False, True])
def test_no_touched_voxel_is_left_out(spherical: bool) -> None:
    """M51: blocks are left out before their voxels are projected; none of them held one that the view touches, also for
    cameras beside, behind and above the grid, and for range images."""
    place = measured_frame(frames(2, TINY), TINY)
    grid, blocks = (empty_state(preset, place, CPU, "parent") for preset in (TINY, BLOCKED))
    rng = np.random.default_rng(0)
    fewer = 0
    for number in range(12):
        pose = camera_at(number).world_from_camera.copy()
        pose[:3, 3] = rng.uniform(-4, 4, 3)
        depth = torch.from_numpy(rng.uniform(0, 3, TINY.image).astype(np.float32))
        camera = Camera("spherical", np.array([12.0, 12.0, 16.0, 12.0]), pose) if spherical else camera_at(number)
        view = View(camera.with_pose(pose), torch.zeros(3, *TINY.image), depth)
        all_of, part = touched(grid, view), touched(blocks, view)
        order = part.index.argsort()
        assert torch.equal(all_of.index, part.index[order])
        assert torch.equal(all_of.s, part.s[order])
        assert torch.equal(all_of.pixel, part.pixel[order])
        fewer += len(in_view(blocks, view.camera, depth)) < int(np.prod(counts(BLOCKED)))
    assert fewer


def test_views_are_those_of_the_whole_grid() -> None:
    """M51: colour, depth, opacity and normal of a view are the same, before and after completion, whose inputs are too;
    so is what a state says of points in the world, and of itself."""
    grid, blocks = fused(TINY), fused(BLOCKED)
    renderer = MeasurementRenderer(48, 500, TINY.near, TINY.far)
    assert torch.equal(completion_inputs(grid), completion_inputs(blocks))
    assert held(grid, 5)["known share"] == held(blocks, 5)["known share"]
    assert held(grid, 5)["thin share"] == held(blocks, 5)["thin share"]
    assert held(grid, 5)["mean log weight"] == pytest.approx(held(blocks, 5)["mean log weight"], rel=1e-5)
    points = np.random.default_rng(1).uniform(-3, 3, (2000, 3))
    for _ in range(2):
        for place in (0.5, 4.5, 9.0):
            views = [render_view(state, renderer, camera_at(place, TINY), *TINY.image) for state in (grid, blocks)]
            for one, other in zip(*views, strict=True):
                assert torch.equal(one, other)
        probes = [StateProbe(_Sealed(state)).occupancy(points) for state in (grid, blocks)]  # type: ignore[arg-type]
        assert np.array_equal(*probes)
        grid, blocks = (completed(state, Harmonic().layer(state)) for state in (grid, blocks))


class _Sealed:
    def __init__(self, state: FastState) -> None:
        self.state = state


def test_nothing_seen_is_nothing_shown() -> None:
    """M51: a state without a write renders as empty, and knows no voxel."""
    state = empty_state(BLOCKED, measured_frame(frames(2, TINY), TINY), CPU, "parent")
    view = render_view(state, MeasurementRenderer(16, 500, TINY.near, TINY.far), camera_at(1, TINY), *TINY.image)
    assert view.opacity.max() == 0
    place, there = places_of(state, torch.arange(BLOCKED.voxels))
    assert int(there.sum()) == 8**3
    assert place.max() < 8**3
    assert (dense(state, "weight") == 0).all()


def test_an_episode_in_blocks() -> None:
    """M51, M69: a pair in blocks seals to what it renders like in a whole grid; its bytes load to the same hashes, and
    a pool of another size, or a block more, is refused."""
    arrivals = frames(6, TINY)
    sealed = {
        preset.name: run_episode(runner_for(tiny_mapper(preset=preset), "SCHEDULED"), arrivals)
        for preset in (TINY, BLOCKED)
    }
    views = [one.render(camera_at(4.5, TINY), *TINY.image) for one in sealed.values()]
    assert torch.allclose(views[0].depth, views[1].depth, atol=1e-5)
    assert torch.allclose(views[0].rgb, views[1].rgb, atol=1e-4)
    blocks = sealed[BLOCKED.name]
    with known_preset(BLOCKED):
        again = SealedState.from_bytes(blocks.to_bytes(), "here")
        assert (again.state_hash, again.fast_state_hash) == (blocks.state_hash, blocks.fast_state_hash)
        short = blocks.state.with_tensors(weight=blocks.state.tensors["weight"][:-1])
        with pytest.raises(CheckpointError, match="not those of preset tiny-blocks"):
            SealedState.from_bytes(replace(blocks, state=short).to_bytes(), "here")
        moved = blocks.state.with_tensors(blocks=blocks.state.tensors["blocks"].flip(0))
        with pytest.raises(IntegrityError, match="The state was changed"):
            SealedState.from_bytes(replace(blocks, state=moved).to_bytes(), "here")


def test_the_preset_in_blocks() -> None:
    """M51: `gpu` is 256 voxels a side in blocks of 16."""
    gpu = PRESETS["gpu"]
    assert gpu.shape == (256, 256, 256)
    assert counts(gpu) == (16, 16, 16)
