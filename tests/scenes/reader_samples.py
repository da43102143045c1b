"""The small world in every format that the tests can write (of maps, a small map): what the tests of all readers run
over."""

from __future__ import annotations

from functools import cache, partial

from gpudrive_files import gpudrive_json
from lanelet2_files import small_map
from nuplan_files import nuplan_log
from pufferdrive_files import pufferdrive_bin
from scenarionet_files import scenarionet_pickle
from small_world import small_world
from sumo_files import NET
from waymo_files import waymo_file

from skidpad.scenes.formats import read_scene
from skidpad.scenes.scene import Scene

_WRITERS = {
    "gpudrive": gpudrive_json,
    "lanelet2": lambda scene: small_map(),
    "nuplan": nuplan_log,
    "pufferdrive F0": partial(pufferdrive_bin, layout="F0"),
    "pufferdrive F0i": partial(pufferdrive_bin, layout="F0i"),
    "pufferdrive F1": partial(pufferdrive_bin, layout="F1"),
    "pufferdrive F2b": partial(pufferdrive_bin, layout="F2b"),
    "scenarionet": partial(scenarionet_pickle, generation=1),
    "scenarionet of NumPy 2": scenarionet_pickle,
    "sumo": lambda scene: NET,
    "waymo": waymo_file,
}
FORMATS = tuple(_WRITERS)
WITH_TRAFFIC = tuple(form for form in FORMATS if form not in ("lanelet2", "sumo"))


@cache
def sample(form: str) -> bytes:
    """A small file in one of FORMATS: a reader's name and a variant."""
    return _WRITERS[form](small_world())


def read(form: str, data: bytes, name: str = "") -> Scene:
    """The scene of such a file, with the options that its reader insists on."""
    return read_scene(data, name=name, options={"map": "none"} if form == "nuplan" else None)
