"""A small dataset, a mapper file, and sealed runs of them in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from episode_folders import FIRST_SEED, compiled
from mapper_world import single_thread

from skidpad.evaluation import sealed_pool
from skidpad.evaluation.evaluators.sealed_stream import evaluate_sealed_stream
from skidpad.evaluation.interrupts import Interrupted
from skidpad.streaming import sealed as phases
from skidpad.streaming.episode import load_episode_index
from skidpad.streaming.mapper_file import Carrier, load_mapper, save_mapper
from skidpad.streaming.presets import PRESETS
from skidpad.streaming.write_rule import Gate

World = tuple[Path, Path]
SMALL = {"warmup": 1, "stream": 2, "queries": 1}


def make_world(folder: Path, count: int = 2) -> tuple[Path, Path]:
    """Index of `count` rooms of 1 + 2 frames and 1 query, and the file of a mapper that fits them."""
    part = {"track": "rooms", "split": "dev", "first_seed": FIRST_SEED, "count": count, "image_size": [48, 64]}
    index = compiled(folder / "rooms", part, **SMALL)
    mapper = folder / "mapper.safetensors"
    save_mapper(mapper, Carrier(PRESETS["embedded"], "harmonic"), Gate())
    return index, mapper


def run_sealed(world: tuple[Path, Path], out: Path, **changes: Any) -> dict[str, Any]:
    """One run in this process, of few samples; `changes` are arguments of the door."""
    index, mapper = world
    given = {"policies": ["OFF", "FUSE"], "render_samples": 16, "workers": 0, **SMALL, **changes}
    with single_thread():
        return evaluate_sealed_stream(load_episode_index(index), mapper, out, **given)


def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that were done once are not done again: what a test of writing and resuming needs is only their results."""
    cache: dict[Any, Any] = {}
    real = sealed_pool.perform

    def perform(equipment: Any, job: Any) -> Any:
        key = (type(job).__name__, job.pair, getattr(job, "arms", None))
        if key not in cache:
            cache[key] = real(equipment, job)
        return cache[key]

    monkeypatch.setattr(sealed_pool, "perform", perform)


def stopping(after: int) -> Any:
    """Stops the run when it has said so many lines, as a kill would: between two writes."""
    left = [after]

    def say(text: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Interrupted

    return say


def settings_of(world: tuple[Path, Path]) -> phases.RunSettings:
    """What a worker process would be given."""
    info = load_mapper(world[1]).info
    render = phases.RenderProtocol(16, 2048)
    return phases.RunSettings(
        world[0].parent, world[1], (info["content_hash"], info["file_sha256"]), None, render, 1e12, 0.03, 0, "cpu"
    )
