"""What `skidpad demo --sealed` starts from: a few rooms, a mapper without any training, and a suite that names both.

Everything lies in one folder with relative paths, so the same verbs work on it afterwards.
"""

from __future__ import annotations

from pathlib import Path

from skidpad.artifacts.files import create

EPISODES, WARMUP, STREAM, QUERIES = 24, 3, 6, 4
FIRST_SEED = 71_000_000
SPEC = f"""salt = "rooms of the demonstration"
warmup = {WARMUP}
stream = {STREAM}
queries = {QUERIES}

[[parts]]
track = "rooms"
split = "dev"
first_seed = {FIRST_SEED}
count = {EPISODES}
image_size = [48, 64]
"""
SUITE = f"""# What `skidpad demo --sealed` ran. Nothing in this mapper is learned: it completes by a harmonic fill.
[eval.sealed]
type = "sealed_stream"
index = "data/index.json"
checkpoint = "mapper.safetensors"
policies = ["OFF", "FUSE", "COMPLETE", "ALL", "SCHEDULED"]
controls = ["CACHE", "WRONG_SCENE", "SHUFFLED_POSES", "CONSTANT_DEPTH", "HARMONIC_FILL"]
warmup = {WARMUP}
stream = {STREAM}
queries = {QUERIES}
strips = true
"""


def write_inputs(folder: Path) -> None:
    """Write spec.toml, suite.toml and mapper.safetensors into a folder, as far as they are not there."""
    from skidpad.streaming.mapper_file import Carrier, save_mapper
    from skidpad.streaming.presets import PRESETS
    from skidpad.streaming.write_rule import Gate

    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("spec.toml", SPEC), ("suite.toml", SUITE)):
        if not (folder / name).exists():
            create(folder / name, text.encode())
    mapper = folder / "mapper.safetensors"
    if not mapper.exists():
        save_mapper(mapper, Carrier(PRESETS["embedded"], "harmonic"), Gate())
