"""A small dataset, a mapper file, and sealed runs of them in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from episode_folders import FIRST_SEED, compiled
from mapper_world import single_thread

from skidpad.evaluation.evaluators.sealed_stream import evaluate_sealed_stream
from skidpad.streaming.episode import load_episode_index
from skidpad.streaming.mapper_file import Carrier, save_mapper
from skidpad.streaming.presets import PRESETS
from skidpad.streaming.write_rule import Gate

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
