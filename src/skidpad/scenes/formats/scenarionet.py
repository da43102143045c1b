"""ScenarioNet and MetaDrive scenarios (R24): a pickle of plain values and NumPy arrays, read as data.

`pickle_data.py` is the machine that reads it and says why no unpickler is involved. Keys of the format: Apache-2.0
sources of MetaDrive. Both generations are read: of before and of after NumPy 2, lists or arrays, ids as texts or as
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from skidpad.errors import FormatError
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats import pickle_values
from skidpad.scenes.formats.json_file import count_keys
from skidpad.scenes.formats.motion_codes import time_step
from skidpad.scenes.formats.pickle_data import read_pickle
from skidpad.scenes.formats.scenarionet_map import add_lights, add_map
from skidpad.scenes.formats.scenarionet_tracks import add_tracks, chosen_tracks
from skidpad.scenes.formats.source import Limits, Source
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import Scene

FORMAT = "scenarionet"
OPTIONS: frozenset[str] = frozenset()

# Protocol 2 to 5, then a frame, a dictionary, a tuple, a list or a name.
_HEAD = re.compile(rb"\x80[\x02-\x05][\x95}()\]c]")
_MEMBERS = ("id", "version", "length", "metadata", "tracks", "dynamic_map_states", "map_features")
_USED = (
    "ts",
    "sdc_id",
    "current_time_index",
    "tracks_to_predict",
    "objects_of_interest",
    "dataset",
    "coordinate",
    "id",
)
_UNUSED = (
    *("sample_rate", "scenario_id", "source_file", "track_length", "sdc_track_index", "metadrive_processed"),
    *("number_summary", "object_summary", "timestep", "map", "seed", "history_metadata"),
)
# All of them right-handed, with z up.
_FRAMES = frozenset({"metadrive", "waymo", "nuplan", "nuscenes", "right-handed"})


def sniff(head: bytes, name: str) -> float:
    """1 for a pickle of protocol 2 to 5, which is what only this reader knows; its members are checked in `read`."""
    return 1.0 if _HEAD.match(head) else 0.0


def read(source: Source, limits: Limits, options: Mapping[str, Any]) -> Scene:
    """The scene of a file.

    Raises FormatError, with the byte or the member, where the file is a program or breaks its format or a limit.
    """
    root = read_pickle(source, limits)
    if type(root) is tuple:
        raise FormatError("a tuple, as the legacy files of Argoverse are, expected a dictionary. Convert them again.")
    root = pickle_values.record(root, "file")
    for member in ("tracks", "map_features", "metadata"):
        if member not in root:
            raise FormatError(f"a pickle without the member {member!r}, expected a ScenarioNet scenario.")
    loss = LossReport()
    count_keys(loss, "file", root, _MEMBERS)
    metadata = pickle_values.record(root["metadata"], "metadata")
    count_keys(loss, "metadata", metadata, _USED, _UNUSED)
    times = pickle_values.numbers(metadata.get("ts", []), "metadata.ts")
    scenario = pickle_values.text(root.get("id", source.stem), "id") or source.stem
    dataset = pickle_values.text(metadata.get("dataset", ""), "metadata.dataset")
    version = pickle_values.text(root.get("version", ""), "version")
    dt_us = time_step(times, loss)
    builder = SceneBuilder(scenario, dataset, FORMAT, version, source.digest, dt_us, loss=loss, limits=limits)
    tracks = add_tracks(pickle_values.by_id(root["tracks"], "tracks"), len(times), builder)
    lights = pickle_values.by_id(root.get("dynamic_map_states", {}), "dynamic_map_states")
    add_lights(lights, tracks.steps, builder)
    has_z, has_edges = add_map(pickle_values.by_id(root["map_features"], "map_features"), builder)
    frame = pickle_values.text(metadata.get("coordinate", "metadrive"), "metadata.coordinate")
    if frame not in _FRAMES:
        loss.count("unknown_coordinates", f"{frame[:60]!r}: taken as right-handed with z up")
    sdc, predict, interest = chosen_tracks(metadata, tracks, loss)
    now = pickle_values.integer(metadata.get("current_time_index", 0), "metadata.current_time_index")
    labels = {"scenario_id": scenario} | ({} if tracks.are_numbers else {"tracks": tracks.ids})
    return builder.finish(
        has_z=has_z,
        edges_from_borders=not has_edges,
        current_step=now,
        sdc=sdc,
        tracks_to_predict=predict,
        objects_of_interest=interest,
        labels=labels,
    )
