"""Rendered views of a state, and what a policy learns from comparing one with an arrival."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from skidpad.streaming.camera import Camera, rays
from skidpad.streaming.carrier import FastState
from skidpad.streaming.episode import Observation
from skidpad.streaming.policies import FEATURES, MOTION, Action
from skidpad.streaming.renderer import COVERED, MeasurementRenderer

WRONG_SHARE = 0.1


class Rendered(NamedTuple):
    """What a camera measures in a state.

    depth    [H, W]     metres, the camera's own depth; 0 where nothing opaque was met
    rgb      [3, H, W]  in [0, 1]
    opacity  [H, W]     in [0, 1]; a pixel counts as covered above 0.5
    normal   [3, H, W]  unit, world axes; 0 where there is none
    """

    depth: Tensor
    rgb: Tensor
    opacity: Tensor
    normal: Tensor


def render_view(state: FastState, renderer: MeasurementRenderer, camera: Camera, height: int, width: int) -> Rendered:
    """A view of the state by a camera in the world."""
    origins, directions, z_scale = _local_rays(state, camera, height, width)
    found = renderer.render(state.read_out, origins, directions)
    world = found.normal @ _tensor(state, state.frame.state_from_world[:3, :3])
    image = (3, height, width)
    depth = found.distance.view(height, width) * z_scale
    return Rendered(depth, found.rgb.T.reshape(image), found.opacity.view(height, width), world.T.reshape(image))


def render_depth(
    state: FastState, renderer: MeasurementRenderer, camera: Camera, height: int, width: int
) -> tuple[Tensor, Tensor]:
    """Depth and opacity of `render_view`, where colour is not asked for."""
    origins, directions, z_scale = _local_rays(state, camera, height, width)
    distance, opacity = renderer.lengths(state.read_out, origins, directions)
    return distance.view(height, width) * z_scale, opacity.view(height, width)


def _local_rays(state: FastState, camera: Camera, height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Origins and directions (H W, 3) in the state's frame, and (H, W) the camera's own depth per ray length."""
    local = camera.with_pose(state.frame.state_from_world @ camera.world_from_camera)
    origin, directions, z_scale = rays(local, height, width)
    along = _tensor(state, directions.reshape(-1, 3))
    scale = z_scale if camera.own_depth == "z" else np.ones_like(z_scale)
    return _tensor(state, origin).expand_as(along), along, _tensor(state, scale)


def _tensor(state: FastState, array: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(torch.float32).to(state.device)


def compared(rendered: Rendered, arrival: Observation) -> tuple[dict[str, float], float | None]:
    """Features of an arrival against the rendered old state, and its residual (None without a valid pixel)."""
    assert arrival.depth is not None
    target = arrival.depth
    valid = target > 0
    count = int(valid.sum())
    if not count:
        return {"mean depth": 0.0, "uncovered share": 0.0, "wrong share": 0.0, "colour error": 0.0}, None
    covered = valid & (rendered.opacity > COVERED)
    covered_count = max(int(covered.sum()), 1)
    off = torch.where(covered, (rendered.depth - target).abs() / target.clamp_min(1e-6), valid.to(target.dtype))
    wrong = (covered & (off > WRONG_SHARE)).sum()
    colour = ((rendered.rgb - arrival.rgb) ** 2).mean(0) * covered
    features = {
        "mean depth": float(target.sum()) / count,
        "uncovered share": 1.0 - int(covered.sum()) / count,
        "wrong share": int(wrong) / covered_count,
        "colour error": float(colour.sum()) / covered_count,
    }
    return features, float(off.sum()) / count


def motion(before: Camera, now: Camera) -> dict[str, float]:
    """Translation [m] and rotation vector [rad] from one arrival to the next, in the earlier camera's axes."""
    turn = before.rotation.T @ now.rotation
    shift = before.rotation.T @ (now.position - before.position)
    sine = 0.5 * np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
    size = float(np.linalg.norm(sine))
    angle = math.atan2(size, 0.5 * (float(np.trace(turn)) - 1.0))
    vector = sine * (angle / size) if size > 1e-12 else np.zeros(3)
    return dict(zip(MOTION, [*shift.tolist(), *vector.tolist()], strict=True))


def held(state: FastState, stream_count: int) -> dict[str, float]:
    """Features of the state itself."""
    weight = state.tensors["weight"]
    known = int((weight > 0).sum())
    thin = int((weight <= 1).sum()) - (weight.numel() - known)
    age = (state.step - state.layer_step) / stream_count if state.layer_step >= 0 else 1.0
    return {
        "known share": known / state.preset.voxels,
        "mean log weight": float(torch.log1p(weight).sum()) / max(known, 1),
        "thin share": thin / max(known, 1),
        "layer age": age,
    }


def prospects(
    steps_left: int, stream_count: int, budget: float, step_units: Mapping[Action, int], previous: Action | None
) -> dict[str, float]:
    """Features of what is left. `budget` is what all steps that are left may use, fixed costs included; `step_units` is
    what one step costs with each action."""
    past = "none" if previous is None else previous.value
    return {
        "steps left": steps_left / stream_count,
        **{f"steps of {action} left": math.log1p(budget / units) for action, units in step_units.items()},
        **{f"previous was {name}": float(name == past) for name in ("none", *(action.value for action in Action))},
    }


def in_order(*parts: Mapping[str, float]) -> dict[str, float]:
    """All features in the order of `FEATURES`; exactly those."""
    found = {name: value for part in parts for name, value in part.items()}
    assert found.keys() == FEATURES.keys(), found.keys() ^ FEATURES.keys()
    return {name: found[name] for name in FEATURES}
