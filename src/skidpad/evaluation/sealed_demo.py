"""What `skidpad demo --sealed` starts from: a few rooms and streets, two mappers without any training, and a suite that
names them.

Everything lies in one folder with relative paths, so the same verbs work on it afterwards.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from skidpad.artifacts.files import create

EPISODES, WARMUP, STREAM, QUERIES = 20, 3, 6, 4
FIRST_SEED = 71_000_000


class Track(NamedTuple):
    """One of the two halves: its section, and the names of what lies in the folder."""

    section: str
    preset: str
    spec: str
    data: str
    mapper: str
    registration: str
    run: str


TRACKS = (
    Track("sealed", "embedded", "spec.toml", "data", "mapper.safetensors", "registration.json", "run"),
    Track(
        "streets", "street", "streets.toml", "data-streets", "mapper-streets.safetensors", "registration-streets.json",
        "run-streets",
    ),
)  # fmt: skip
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
# Five queries: one of each placement. The shortest of the recorded logs lasts 3.2 s.
STREETS = f"""salt = "streets of the demonstration"
warmup = {WARMUP}
stream = {STREAM}
queries = 5

[[parts]]
track = "street_dynamic"
split = "dev"
scenes = ["library:USA_*", "library:DEU_*", "synthetic:crossing:1", "synthetic:merge:1", "synthetic:curve:1"]
frame_step_s = 0.3
"""
SUITE = f"""# What `skidpad demo --sealed` ran. Nothing in these mappers is learned: they complete by a harmonic fill.
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

[eval.streets]
inherits = "sealed"
index = "data-streets/index.json"
checkpoint = "mapper-streets.safetensors"
policies = ["OFF", "FUSE", "ALL"]
controls = ["CACHE", "CONSTANT_DEPTH"]
queries = 5
"""


def write_inputs(folder: Path) -> None:
    """Write specs, suite and mappers into a folder, as far as they are not there."""
    from skidpad.streaming.mapper_file import Carrier, save_mapper
    from skidpad.streaming.presets import PRESETS
    from skidpad.streaming.write_rule import Gate

    folder.mkdir(parents=True, exist_ok=True)
    rooms, streets = TRACKS
    for name, text in ((rooms.spec, SPEC), (streets.spec, STREETS), ("suite.toml", SUITE)):
        if not (folder / name).exists():
            create(folder / name, text.encode())
    for track in TRACKS:
        if not (folder / track.mapper).exists():
            save_mapper(folder / track.mapper, Carrier(PRESETS[track.preset], "harmonic"), Gate())
