"""Small datasets for the tests of episodes, and a way to change one and publish it again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skidpad.streaming.assets import root_of
from skidpad.streaming.compile import compile_episodes
from skidpad.streaming.episode import EpisodeEntry, index_leaves, load_episode_index
from skidpad.streaming.spec import CompileSpec, parse_spec

FIRST_SEED = 918273645


def small_spec(*parts: dict[str, Any], **changes: Any) -> CompileSpec:
    """Two rooms of 2 + 3 frames and 2 queries, 12x16, unless told otherwise."""
    rooms = {"track": "rooms", "split": "dev", "first_seed": FIRST_SEED, "count": 2, "image_size": [12, 16]}
    tree = {"salt": "pepper", "warmup": 2, "stream": 3, "queries": 2, "parts": list(parts) or [rooms]}
    return parse_spec(tree | changes, "spec")


def compiled(folder: Path, *parts: dict[str, Any], **changes: Any) -> Path:
    """A dataset; returns the path of its index."""
    compile_episodes(small_spec(*parts, **changes), folder)
    return folder / "index.json"


def entries_of(index: Path) -> list[EpisodeEntry]:
    """All entries, each checked by itself."""
    return load_episode_index(index).select()


def manifest_path(index: Path, which: str, number: int = 0) -> Path:
    """Path of an `online` or `vault` manifest."""
    episode = json.loads(index.read_text())["episodes"][number]
    return index.parent / episode[f"{which}_manifest"]


def publish(index: Path) -> None:
    """Recompute all roots from what lies there: the owner of data and code can always do that."""
    value = json.loads(index.read_text())
    for episode in value["episodes"]:
        for which in ("online", "vault"):
            path = index.parent / episode[f"{which}_manifest"]
            if path.is_file():
                data = path.read_bytes()
                leaves = [(path.name, hashlib.sha256(data).hexdigest()), *_assets(json.loads(data))]
                episode[f"{which}_root"] = root_of(leaves)
    rewrite_index(index, value)


def rewrite_index(index: Path, value: dict[str, Any]) -> None:
    """Write an index with a root that holds."""
    value["root"] = root_of(index_leaves(value["episodes"]))
    index.write_text(json.dumps(value))


def _assets(value: Any) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        texts = value.get("path"), value.get("sha256")
        if all(isinstance(text, str) for text in texts) and re.fullmatch("[0-9a-f]{64}", texts[1]):
            return [(value["path"], value["sha256"])]
        return [leaf for item in value.values() for leaf in _assets(item)]
    return [leaf for item in value for leaf in _assets(item)] if isinstance(value, list) else []


def change(index: Path, which: str, edit: Callable[[dict[str, Any]], None], number: int = 0) -> None:
    """Edit a manifest in place and publish the dataset again."""
    path = manifest_path(index, which, number)
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value))
    publish(index)


def change_entry(index: Path, edit: Callable[[dict[str, Any]], None], number: int = 0) -> None:
    """Edit an index entry and write the index with a root that holds."""
    value = json.loads(index.read_text())
    edit(value["episodes"][number])
    rewrite_index(index, value)
