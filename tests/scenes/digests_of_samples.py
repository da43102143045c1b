"""Digests of the scenes of all samples (R9), as a program: it is run where locale, zone, hash seed and threads differ.

python digests_of_samples.py made              of the files that the tests write
python digests_of_samples.py real FOLDER       of the files below FOLDER, by their path in it
Either prints one JSON object, name to digest; with no argument more, what stands in `frozen_digests.json`.
"""

from __future__ import annotations

import contextlib
import json
import locale
import sys
from pathlib import Path

FROZEN = Path(__file__).with_name("frozen_digests.json")
FOLDERS = ("ngsim", "commonroad_xml", "carla_towns", "opendrive_units", "lanelet2", "sumo_nets", "gpudrive_json")
SUFFIXES = (".xml", ".xml.gz", ".xodr", ".xodr.gz", ".osm", ".json")


def made() -> dict[str, str]:
    """Of the small world in every format."""
    from reader_samples import FORMATS, read, sample
    from small_world import small_world
    from world_writers import commonroad_xml, lanelet2_osm, opendrive_xodr, sumo_net

    from skidpad.scenes.formats import read_scene

    found = {form: read(form, sample(form)).digest for form in FORMATS}
    for write in (commonroad_xml, lanelet2_osm, opendrive_xodr, sumo_net):
        found[write.__name__] = read_scene(write(small_world()), name="small").digest
    return found


def files(data: Path) -> list[Path]:
    """The sample files that a scene can be made of."""
    return sorted(
        path
        for folder in FOLDERS
        for path in (data / folder).rglob("*")
        if path.name.endswith(SUFFIXES) and path.name != "PROVENANCE.json"
    )


def real(data: Path) -> dict[str, str]:
    """Of every file below a folder; of one that is refused, what is said of it."""
    from skidpad.errors import FormatError
    from skidpad.scenes.formats import read_scene

    found = {}
    for path in files(data):
        name = path.relative_to(data).as_posix()
        try:
            found[name] = read_scene(path, name=path.name).digest
        except FormatError as error:
            found[name] = f"refused: {error}"
    return found


def main(which: str, *rest: str) -> None:
    with contextlib.suppress(locale.Error):  # where the locale is not installed, its name alone is set
        locale.setlocale(locale.LC_ALL, "")
    found = made() if which == "made" else real(Path(rest[0]))
    print(json.dumps(found, indent=1, sort_keys=True))


if __name__ == "__main__":
    main(*sys.argv[1:])
