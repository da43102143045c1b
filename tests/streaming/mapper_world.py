"""A small room by closed formulas, its frames, and a mapper of a size that tests can afford."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from skidpad.streaming.budget import BudgetProtocol
from skidpad.streaming.camera import Camera, look, pinhole, rays
from skidpad.streaming.episode import Observation
from skidpad.streaming.mapper_file import Carrier, Mapper, RenderProtocol, make_mapper
from skidpad.streaming.policies import WritePolicy, make_policy
from skidpad.streaming.presets import PRESETS, Preset
from skidpad.streaming.runner import MapperRunner
from skidpad.streaming.seal import SealedState
from skidpad.streaming.threads import one_thread
from skidpad.streaming.write_rule import Gate

TINY = Preset("tiny", (40, 40, 24), 0.14, (18, 24), 0.15, 5.6)
IDS = {"episode_id": "ep-1", "scene_id": "sc-1", "split_id": "dev", "track_id": "rooms", "vault_id": "va-1"}
HALF = np.array([2.1, 1.9])
HEIGHT = 2.6
BOX = (np.array([0.6, -0.9, 0.0]), np.array([1.3, -0.1, 0.9]))
RENDER = RenderProtocol(samples=64, ray_chunk=500)


@contextmanager
def single_thread() -> Iterator[None]:
    """The thread setting that runners ask for, while entered."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    one_thread()
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(deterministic)


def signed_distance(points: np.ndarray) -> np.ndarray:
    """(...,) metres to a box room with one box in it."""
    walls = np.minimum.reduce(
        [HALF[0] - abs(points[..., 0]), HALF[1] - abs(points[..., 1]), points[..., 2], HEIGHT - points[..., 2]]
    )
    beyond = abs(points - (BOX[0] + BOX[1]) / 2) - (BOX[1] - BOX[0]) / 2
    box = np.linalg.norm(np.maximum(beyond, 0), axis=-1) + np.minimum(beyond.max(-1), 0)
    return np.minimum(walls, box)


def colours(points: np.ndarray) -> np.ndarray:
    """(..., 3) smooth colours in the room."""
    return 0.5 + 0.4 * np.sin(2.0 * points)


def camera_at(place: float, preset: Preset = TINY, world: np.ndarray | None = None) -> Camera:
    """A camera on an arc, turning with it; `world` (4, 4) moves everything."""
    angle = 0.3 + place * 0.16
    position = np.array([-0.6 + 0.5 * np.cos(angle), 0.2 + 0.5 * np.sin(angle), 1.4])
    pose = look(position, np.array([np.cos(angle), np.sin(angle), -0.25]))
    height, width = preset.image
    return Camera("pinhole", pinhole(height, width, 1.5), pose if world is None else world @ pose)


def measured(camera: Camera, preset: Preset = TINY, world: np.ndarray | None = None) -> tuple[Any, Any]:
    """True rgb (3, H, W) and depth (H, W) f32 of a view, by sphere tracing."""
    inside = camera if world is None else camera.with_pose(np.linalg.inv(world) @ camera.world_from_camera)
    origin, directions, z_scale = rays(inside, *preset.image)
    length = np.zeros(preset.image)
    for _ in range(100):
        length += signed_distance(origin + directions * length[..., None])
    rgb = colours(origin + directions * length[..., None]).transpose(2, 0, 1)
    return torch.from_numpy(rgb.astype(np.float32)), torch.from_numpy((length * z_scale).astype(np.float32))


def frame(number: int, preset: Preset = TINY, world: np.ndarray | None = None, episode: str = "ep-1") -> Observation:
    """Frame `number` of the episode."""
    camera = camera_at(number, preset, world)
    rgb, depth = measured(camera, preset, world)
    digests = {"rgb": f"{number:064x}", "depth": f"{number + 1000:064x}"}
    return Observation(episode, number, 0.1 * number, rgb, depth, camera, digests)


def frames(count: int, preset: Preset = TINY, world: np.ndarray | None = None) -> list[Observation]:
    """The first frames of the episode."""
    return [frame(number, preset, world) for number in range(count)]


def tiny_mapper(completion: str = "harmonic", seed: int = 0, preset: Preset = TINY) -> Mapper:
    """A mapper with an untrained gate; the network, if any, has random weights."""
    torch.manual_seed(seed)
    return make_mapper(Carrier(preset, completion), Gate())


def runner_for(mapper: Mapper, policy: str | WritePolicy, max_units: float = 1e12, **more: Any) -> MapperRunner:
    """A runner of a policy by name, or of the given one."""
    made = make_policy(policy, residual_threshold=0.03) if isinstance(policy, str) else policy
    return MapperRunner(mapper, made, render_protocol=RENDER, budget_protocol=BudgetProtocol(max_units), **more)


def run_episode(runner: MapperRunner, arrivals: list[Observation], warm: int = 3, queries: int = 2) -> SealedState:
    """Warm-up, stream and seal."""
    runner.reset(arrivals[:warm], IDS, len(arrivals) - warm, queries)
    for arrival in arrivals[warm:]:
        runner.step(arrival)
    return runner.seal()


def depth_error(sealed: SealedState, places: tuple[float, ...] = (3.5, 5.5, 7.5)) -> float:
    """Mean relative depth error over views between the frames, uncovered pixels counting as the fallback."""
    errors = []
    for place in places:
        camera = camera_at(place, sealed.state.preset)
        _, depth = measured(camera, sealed.state.preset)
        found = sealed.render(camera, *sealed.state.preset.image)
        guess = torch.where(found.opacity > 0.5, found.depth, sealed.fallback.depth)
        errors.append(float(((guess - depth).abs() / depth).mean()))
    return float(np.mean(errors))


@contextmanager
def known_preset(preset: Preset = TINY) -> Iterator[None]:
    """While entered, files may name the tests' preset."""
    PRESETS[preset.name] = preset
    try:
        yield
    finally:
        del PRESETS[preset.name]
