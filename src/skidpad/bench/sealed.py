"""`skidpad bench sealed`: what one pair of sealed evaluation costs, on one core.

Frames come of generated rooms compiled into a temporary folder, so reading, hashing and decoding are those of a real
run. `episode_s` is one pair of the policy FUSE with 4 warm-up frames, 8 arrivals and 4 queries, from its files to its
depth errors. Gate and network are untrained: their arithmetic does not depend on their weights.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from skidpad.bench.calibration import DRIFT_LIMIT, calibrate, cpu_seconds, drift, machine, spread
from skidpad.streaming.budget import BudgetProtocol
from skidpad.streaming.carrier import view_of
from skidpad.streaming.compile import compile_episodes
from skidpad.streaming.completion import CompletionUNet, completion_inputs
from skidpad.streaming.episode import OnlineSource, load_episode_index
from skidpad.streaming.feedback import render_view
from skidpad.streaming.mapper_file import Carrier, RenderProtocol, make_mapper
from skidpad.streaming.policies import make_policy
from skidpad.streaming.presets import PRESETS
from skidpad.streaming.provenance import Provenance, validate_episodes
from skidpad.streaming.renderer import MeasurementRenderer
from skidpad.streaming.rooms import Room
from skidpad.streaming.runner import MapperRunner
from skidpad.streaming.schemas import ID_NAMES
from skidpad.streaming.seal import SealedState
from skidpad.streaming.spec import parse_spec
from skidpad.streaming.threads import one_thread
from skidpad.streaming.vault import open_vault
from skidpad.streaming.write_rule import Gate, write

SCHEMA = "skidpad.bench.sealed/1"
EPISODES = 24
WARMUP, STREAM, QUERIES = 4, 8, 4
SAMPLES = (16, 64, 96)


def spec_of(episodes: int) -> dict[str, Any]:
    """The data that is measured on: clean rooms."""
    part = {"track": "rooms", "split": "dev", "first_seed": 0, "count": episodes, "image_size": [48, 64]}
    return {"salt": "bench", "warmup": WARMUP, "stream": STREAM, "queries": QUERIES, "parts": [part]}


def run_pair(runner: MapperRunner, provenance: Provenance) -> tuple[SealedState, float]:
    """Stream, seal, open the vault, render and compare depth; returns the state and the mean relative error."""
    source = OnlineSource(provenance.online)
    ids = {name: getattr(source.manifest, name) for name in ID_NAMES}
    runner.reset(source.warmup(), ids, STREAM, QUERIES)
    for arrival in source.stream():
        runner.step(arrival)
    sealed = runner.seal()
    errors = []
    for query in open_vault(provenance.vault).queries:
        found = sealed.render(query.camera, *query.depth.shape)
        valid, depth = query.depth > 0, np.maximum(query.depth, 1e-6)
        guess = np.where(found.opacity.numpy() > 0.5, found.depth.numpy(), sealed.fallback.depth)
        errors.append(float((np.abs(guess - depth) / depth)[valid].mean()))
    return sealed, float(np.mean(errors))


def operations(repeats: int, provenance: Provenance) -> dict[str, dict[str, float]]:
    """CPU seconds of each operation in the embedded preset."""
    preset = PRESETS["embedded"]
    mapper = make_mapper(Carrier(preset, "harmonic"), Gate())
    runner = MapperRunner(
        mapper, make_policy("FUSE"), render_protocol=RenderProtocol(), budget_protocol=BudgetProtocol()
    )
    sealed, _ = run_pair(runner, provenance)
    state, arrival = sealed.state, OnlineSource(provenance.online).warmup()[0]
    times = {"episode": cpu_seconds(lambda: run_pair(runner, provenance), max(repeats // 4, 3))}
    network, room = CompletionUNet().eval(), Room.random(0)
    with torch.inference_mode():
        view = view_of(arrival, state.frame, preset, torch.device("cpu"))
        times["fuse"] = cpu_seconds(lambda: write(state, view, mapper.write_rule), repeats)
        for samples in SAMPLES:
            renderer = MeasurementRenderer(samples, 2048, preset.near, preset.far)
            # A fresh value of the state: what is read out of it is computed anew, as after a write.
            times[f"render_{samples}"] = cpu_seconds(
                lambda renderer=renderer: render_view(replace(state), renderer, arrival.camera, *preset.image),  # type: ignore[misc]
                repeats,
            )
        times["seal_hash"] = cpu_seconds(state.hash, repeats)
        inputs = completion_inputs(state)[None]
        times["unet_embedded"] = cpu_seconds(lambda: network(inputs), repeats)
        times["harmonic"] = cpu_seconds(lambda: mapper.carrier.completion().layer(state), repeats)
    times["room_frame"] = cpu_seconds(lambda: room.render(arrival.camera, *preset.image), max(repeats // 4, 3))
    return {name: spread(values) for name, values in times.items()}


def bench_sealed(*, quick: bool = False) -> dict[str, Any]:
    """Measure one pair and its parts; returns what `--json` prints. Milliseconds and seconds are medians."""
    one_thread()
    before = calibrate()
    episodes, repeats = (2, 5) if quick else (EPISODES, 20)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        compile_episodes(parse_spec(spec_of(episodes), "bench"), data)
        entries = load_episode_index(data / "index.json").select()
        validated = cpu_seconds(lambda: validate_episodes(entries), repeats)
        times = operations(repeats, validate_episodes(entries)[0])
    after = calibrate()
    pixels = PRESETS["embedded"].image[0] * PRESETS["embedded"].image[1]
    return {
        "schema": SCHEMA,
        "machine": machine(),
        "calibration": {"before": before, "after": after, "reliable": drift(before, after) <= DRIFT_LIMIT},
        "threads": 1,
        "preset": "embedded",
        "fuse_ms": 1e3 * times["fuse"]["median"],
        "render_ms": 1e3 * times["render_96"]["median"],
        "render_ms_by_samples": {str(samples): 1e3 * times[f"render_{samples}"]["median"] for samples in SAMPLES},
        "rays_per_cpu_second": pixels / times["render_96"]["median"],
        "seal_hash_ms": 1e3 * times["seal_hash"]["median"],
        "unet_ms": 1e3 * times["unet_embedded"]["median"],
        "harmonic_ms": 1e3 * times["harmonic"]["median"],
        "room_frame_ms": 1e3 * times["room_frame"]["median"],
        "episode_s": times["episode"]["median"],
        "provenance_s": spread(validated)["median"],
        "provenance_episodes": episodes,
        "cpu_seconds": times,
    }
