"""The bundled scenes: there, as frozen, with their licences, and the same when built again."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from skidpad.artifacts.digests import digest_bytes
from skidpad.errors import FormatError, IntegrityError, SettingsError, UsageError
from skidpad.scenes import formats
from skidpad.scenes.archive import load_scene, scene_bytes, scene_header
from skidpad.scenes.check import check_scene
from skidpad.scenes.formats import format_of, read_scene
from skidpad.scenes.formats.source import Limits, Source, read_source
from skidpad.scenes.library import attributions, library_scenes
from skidpad.scenes.stop_lines import crosses
from skidpad.scenes.synthetic import synthetic

ROOT = Path(__file__).parents[2]
TOWNS = {f"Town{number}" for number in ("01", "02", "03", "04", "05", "06", "07", "10HD")}
RECORDED = {"USA_US101-3_1_T-1", "USA_US101-3_3_T-1", "DEU_Guetersloh-36_1_T-1"}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """scripts/build_library.py as a module."""
    spec = importlib.util.spec_from_file_location("build_library", ROOT / "scripts/build_library.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_library"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


bundled = pytest.mark.parametrize("path", library_scenes(), ids=lambda path: path.stem)


def test_all_are_there(script: ModuleType) -> None:
    """formats.md 4: three pieces of traffic and eight towns, small enough to travel with the package."""
    assert {path.stem for path in library_scenes()} == TOWNS | RECORDED == set(script.SCENES)
    assert sum(path.stat().st_size for path in library_scenes()) < 8e6


def test_patterns() -> None:
    """E17: suites name bundled scenes by glob; the order is by bytes, whatever the file system says."""
    assert [path.stem for path in library_scenes("Town0[12]")] == ["Town01", "Town02"]
    assert library_scenes("town*") == []
    names = [path.name.encode() for path in library_scenes()]
    assert names == sorted(names)


@bundled
def test_frozen_and_clean(path: Path, script: ModuleType) -> None:
    """R9, R13: each file holds the scene of the frozen digest, passes check_scene, and is what writing gives."""
    scene = load_scene(path, verify="full")
    assert scene.digest == scene_header(path).digest == script.SCENES[path.stem].digest
    assert [finding for finding in check_scene(scene) if finding.severity == "error"] == []
    assert scene_bytes(scene) == path.read_bytes()
    assert scene.meta.scene_id == path.stem
    assert scene.meta.source_digest == script.SCENES[path.stem].source


@bundled
def test_attribution(path: Path, script: ModuleType) -> None:
    """formats.md 4: a bundled scene without licence and attribution fails; NOTICE prints them all."""
    licence, attribution = attributions()[path.stem]
    assert licence == script.SCENES[path.stem].licence
    assert attribution == script.SCENES[path.stem].attribution
    notice = (ROOT / "NOTICE").read_text()
    assert path.stem in notice
    assert attribution in " ".join(notice.split())


@bundled
def test_stop_lines_cross_their_lanes(path: Path) -> None:
    """S6: each stop line crosses a controlled lane within 15 degrees of square, or is in the loss report."""
    from skidpad.scenes.pieces import LanePiece

    scene = load_scene(path)
    doubtful = 0
    for signal in range(scene.signals.count):
        lanes = []
        for lane in scene.signals.lanes(signal).tolist():
            where = scene.road.lane_points(lane)
            centre = scene.road.xyz[where].astype(float)
            lanes.append(LanePiece(lane, centre, scene.road.width[where], None, None, 2, -1, np.nan, True, -1, 0))
        doubtful += not any(crosses(scene.signals.line[signal].astype(float), lane) for lane in lanes)
    entry = scene.meta.loss.get("assumed_stop_line")
    assert doubtful == (entry.count if entry else 0)


def source_file(shared: Path, name: str) -> Path:
    folder = {"Town": "carla_towns", "USA_": "ngsim", "DEU_": "commonroad_xml"}[name[:4]]
    return shared / "data" / folder / (f"{name}.xodr.gz" if name in TOWNS else f"{name}.xml.gz")


@pytest.mark.parametrize(
    "name",
    [*sorted(RECORDED), "Town02", *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(TOWNS - {"Town02"}))],
)
def test_rebuild_gives_the_frozen_digest(
    shared: Path, name: str, script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """formats.md 4: whoever rebuilds the library from the public files gets the same scenes."""
    path = source_file(shared, name)
    if not path.exists():
        pytest.skip(f"{path.name} is only in the public package")
    data = path.read_bytes()
    if read_source(data).digest != script.SCENES[name].source:
        pytest.skip(f"{path.name} in `shared` is another edition of the file")
    script.build(name, data, tmp_path, freeze=False)
    # Digests, not bytes: a reworded loss report is no other scene.
    assert load_scene(tmp_path / f"{name}.scene").digest == load_scene(library_scenes(name)[0]).digest
    assert name in capsys.readouterr().out


def test_build_refuses_what_is_not_frozen(
    shared: Path, script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """formats.md 4: another source, another scene, or a missing attribution stops the build, and writes nothing."""
    name = "USA_US101-3_3_T-1"
    data = source_file(shared, name).read_bytes()
    good = script.SCENES[name]
    for change, error in (
        ({"source": "0" * 64}, IntegrityError),
        ({"source": read_source(data).digest, "digest": "0" * 64}, IntegrityError),
        ({"source": read_source(data).digest, "attribution": ""}, UsageError),
    ):
        monkeypatch.setitem(script.SCENES, name, script.replace(good, **change))
        with pytest.raises(error):
            script.build(name, data, tmp_path, freeze=False)
    assert list(tmp_path.iterdir()) == []


# Reading files of any format


def test_sniffing_goes_by_content(shared: Path, tmp_path: Path) -> None:
    """R2: a file keeps its reader under any name; random bytes belong to none; two claims are an error naming both."""
    for name, reader in (("USA_US101-3_3_T-1", "commonroad"), ("Town02", "opendrive")):
        other = tmp_path / f"{name}.dat"
        other.write_bytes(source_file(shared, name).read_bytes())
        assert format_of(read_source(other)) == reader
    random = np.random.default_rng(1)
    for size in range(1000):
        with pytest.raises(FormatError, match="none of the known formats"):
            format_of(Source(random.bytes(size + 1), "noise.xml", ""))


def test_two_readers_claiming_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """R2: which of two would be chosen must not depend on the order of a table."""
    monkeypatch.setitem(formats.READERS, "second", formats.READERS["opendrive"])
    with pytest.raises(FormatError, match="any of opendrive, second"):
        format_of(Source(b"<OpenDRIVE><header/></OpenDRIVE>", "x", ""))


def test_archives_are_read_too(tmp_path: Path) -> None:
    """R2: one door for all files; an archive given as bytes or compressed is the scene it holds."""
    import gzip

    scene = synthetic("merge")
    data = scene_bytes(scene)
    assert read_scene(data).digest == scene.digest
    packed = tmp_path / "merge.scene.gz"
    packed.write_bytes(gzip.compress(data))
    assert read_scene(packed).digest == scene.digest
    with pytest.raises(IntegrityError, match="merge"):
        read_scene(data[:200] + bytes([data[200] ^ 1]) + data[201:], name="merge")
    with pytest.raises(SettingsError, match="archive reader: unknown option 'ego'"):
        read_scene(data, options={"ego": "planning_problem"})


def test_options_are_checked(shared: Path) -> None:
    """F1: an option no reader knows is refused with the nearest name, before the file is parsed."""
    path = source_file(shared, "USA_US101-3_3_T-1")
    with pytest.raises(SettingsError, match="unknown option 'egos'; did you mean 'ego'"):
        read_scene(path, options={"egos": "planning_problem"})


class _Broken:
    """A reader that hands over a scene that cannot be simulated, or fails without naming its file."""

    OPTIONS: frozenset[str] = frozenset()

    def __init__(self, result: Callable[[], object]) -> None:
        self.result = result

    def sniff(self, head: bytes, name: str) -> float:
        return float(head == b"broken")

    def read(self, source: Source, limits: Limits, options: object) -> object:
        return self.result()


def fail() -> object:
    raise FormatError("lane 7 has no points")


def test_reader_errors_name_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """F9, R6: whatever a reader hands over passes check_scene, and its errors name the file."""
    scene = synthetic("merge")
    arrays = scene.arrays() | {"road.width": -scene.road.width}
    results = {"cannot be simulated": lambda: type(scene).from_arrays(arrays, scene.meta), "no points": fail}
    monkeypatch.setitem(formats.READERS, "broken", "broken_reader")
    for message, result in results.items():
        monkeypatch.setitem(sys.modules, "broken_reader", _Broken(result))  # type: ignore[arg-type]
        with pytest.raises(FormatError, match=f"a.xml: .*{message}"):
            read_scene(b"broken", name="a.xml")


def test_digests_are_of_content() -> None:
    """R9: the frozen source digests are of the inflated files, so that a recompressed copy still builds."""
    assert digest_bytes(b"x") == read_source(b"x").digest
