"""Traces for the pages: the log itself as an arm, and a second arm that differs in the vehicle under test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from skidpad.runs.trace import TRACE_ARRAYS, Trace, TraceMeta
from skidpad.scenes.events import Controller, Event, Status
from skidpad.scenes.scene import Scene
from skidpad.scenes.synthetic import synthetic


def trace_of_log(scene: Scene, arm: str, *, ego: int = 0, shift: float = 0.0) -> Trace:
    """A trace in which everybody follows the log, and the vehicle under test does so `shift` metres aside."""
    tracks = scene.tracks
    states, agents = scene.meta.steps, tracks.count
    valid = tracks.valid.T[None]
    arrays: dict[str, np.ndarray] = {}
    sizes = {
        "R": 1,
        "T": states,
        "U": states - 1,
        "N": agents,
        "M": 1,
        "G": 1,
        "S": scene.signals.count,
        "Q": 1,
        "A": 2,
    }
    for spec in TRACE_ARRAYS:
        shape = tuple(sizes.get(axis, 0) if axis.isalpha() else int(axis) for axis in spec.shape.split(","))
        arrays[spec.name] = np.zeros(shape, spec.dtype)
    for name in ("x", "y", "z", "heading", "length", "width", "height"):
        arrays[name] = np.where(valid, getattr(tracks, name).T[None], 0).astype(np.float32)
    arrays["y"][0, :, ego] += np.where(valid[0, :, ego], np.float32(shift), 0)
    arrays["speed"] = np.where(valid, np.hypot(tracks.vx, tracks.vy).T[None], 0).astype(np.float32)
    arrays["status"] = np.where(valid, Status.ACTIVE, Status.ABSENT).astype(np.uint8)
    arrays["events"][0, states // 2, ego] = Event.COLLISION_VEHICLE if shift else 0
    arrays["scored"] = np.array([ego], np.int32)
    arrays["policy_agent"] = np.array([ego], np.int32)
    arrays["controller"][:] = Controller.REPLAY
    arrays["type"], arrays["subtype"], arrays["source_id"] = tracks.type, tracks.subtype, tracks.source_id
    arrays["goals"][0, 0, 0] = tracks.goal[ego]
    arrays["goal_count"][:] = arrays["goal_first"][:] = 1
    arrays["signal_state"][0] = scene.signals.state.T
    meta = TraceMeta(
        case=f"case{ego}",
        arm=arm,
        evaluator="test",
        scene_id=scene.meta.scene_id,
        scene_digest=scene.digest,
        dt_us=scene.meta.dt_us,
        start_row=0,
        action_selection="deterministic",
        profile="clean",
        ego=ego,
        ego_rule="each",
        end_reason="length",
        settings={"simulation_mode": "replay"},
        observed={},
        state_hash=tuple("0" * 16 for _ in range(states)),
    )
    return Trace(meta, arrays)


@pytest.fixture
def crossing() -> Scene:
    """A crossing with lights and a few logged cars."""
    return synthetic("crossing", seed=3)


@pytest.fixture
def arms(crossing: Scene) -> dict[str, Trace]:
    """One case: the log, and an arm in which the car under test drives 1.5 m aside."""
    return {"log": trace_of_log(crossing, "log"), "idm": trace_of_log(crossing, "idm", shift=1.5)}


@pytest.fixture
def make_trace() -> Callable[..., Trace]:
    """`trace_of_log`, for tests that want their own."""
    return trace_of_log
