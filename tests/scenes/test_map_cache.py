"""The map cache keeps what was made, trusts nothing that was altered, and says what it did (S22 to S24, S27, S28)."""

from __future__ import annotations

import ast
import dataclasses
import errno
import os
import stat
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from commonroad_files import SMALL_2018, SMALL_2020

import skidpad
from skidpad.artifacts import container as containers
from skidpad.errors import FormatError, IntegrityError, ProtocolError, SettingsError
from skidpad.scenes import formats, index_file, map_cache, map_files
from skidpad.scenes.archive import save_scene
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.index import IndexParams, MapIndex, build_index
from skidpad.scenes.index_file import index_bytes, index_key, open_index
from skidpad.scenes.map_cache import MapCache, user_cache
from skidpad.scenes.scene import LANE_STREET
from skidpad.scenes.synthetic import synthetic

PARAMS = IndexParams()
PACKAGE = Path(skidpad.__file__).parent


def leaves(value, where="index"):
    """Every array and number of an index by its place."""
    if isinstance(value, tuple):
        names = getattr(value, "_fields", range(len(value)))
        for name, part in zip(names, value, strict=True):
            yield from leaves(part, f"{where}.{name}")
    else:
        yield where, value


def parts(index):
    """Everything a kernel may read of an index, as (dtype, shape, bytes) or the number itself, by its place."""
    found = {}
    for field in dataclasses.fields(MapIndex):
        for where, leaf in leaves(getattr(index, field.name), field.name):
            found[where] = (leaf.dtype.str, leaf.shape, leaf.tobytes()) if isinstance(leaf, np.ndarray) else leaf
    return found


def street(length):
    """A map of its own for each length [m]."""
    builder = SceneBuilder(f"street-{length}", "test", "test", "1", "0" * 64, 100_000)
    points = np.array([[0.0, 0.0, 0.0], [float(length), 0.0, 0.0]])
    builder.lane(0, points, width=np.full(2, 3.5), kind=LANE_STREET, speed_limit=10.0)
    return builder.finish(has_z=False)


@pytest.fixture(scope="module")
def crossing():
    return synthetic("crossing", traffic=False)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "maps"


def only_file(folder, suffix=".index"):
    """The one file of a kind in a folder."""
    (path,) = folder.glob(f"*{suffix}")
    return path


# --------------------------------------------------------------------------------------------------------- form, S22


def test_a_file_gives_back_the_index(crossing, folder):
    """S22, S31: every array and number comes back as it was built, read-only, rows aligned for the vector load."""
    with MapCache(folder) as cache:
        mapped = cache.index(crossing, PARAMS)
        assert parts(mapped) == parts(build_index(crossing, PARAMS))
        for array in mapped.arrays:
            assert not array.flags.writeable
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True
        assert all(rows.row.ctypes.data % 32 == 0 for rows in mapped.rows)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(only_file(folder).stat().st_mode) == 0o600
        assert only_file(folder).read_bytes() == index_bytes(mapped)


def test_any_flipped_byte_is_found(tmp_path):
    """S22: each byte of the header and 1,000 of the body; one that went unnoticed would be a wrong map."""
    scene, path = street(50), tmp_path / "x.index"
    data = index_bytes(build_index(scene, PARAMS))
    places = [*range(128), *np.random.default_rng(0).integers(128, len(data), 1000).tolist()]
    for place in places:
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x41]) + data[place + 1 :])
        with pytest.raises((FormatError, IntegrityError)):
            open_index(path, scene.map_digest, PARAMS, verify="full")


@pytest.mark.parametrize("place", [0, 8, 20, 60, 100, 127, 128, 5000, -1])
def test_a_damaged_file_is_made_again(crossing, folder, place):
    """S22, F20: what was altered is never trusted: one warning, and the file is whole again."""
    with MapCache(folder) as cache:
        whole = parts(cache.index(crossing, PARAMS))
    path = only_file(folder)
    good = path.read_bytes()
    bad = bytearray(good)
    bad[place] ^= 1
    path.write_bytes(bad)
    with MapCache(folder) as cache:
        with pytest.warns(RuntimeWarning, match="made again") as caught:
            mended = cache.index(crossing, PARAMS)
        assert parts(mended) == whole
        assert cache.stats.builds == 1
    assert len(caught) == 1
    assert path.read_bytes() == good


@pytest.mark.parametrize("damage", ["cut", "longer", "empty", "readable by others", "link", "folder", "foreign"])
def test_an_odd_file_is_made_again(crossing, folder, damage):
    """S22: wrong length, mode, owner or kind of file means that it is not there."""
    with MapCache(folder) as cache:
        whole = parts(cache.index(crossing, PARAMS))
    path = only_file(folder)
    good = path.read_bytes()
    if damage == "cut":
        path.write_bytes(good[:-1])
    elif damage == "longer":
        path.write_bytes(good + b"\0")
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "readable by others":
        path.chmod(0o644)
    elif damage == "foreign":
        if os.geteuid() != 0:
            pytest.skip("only root can give a file away")
        os.chown(path, 12345, -1)
    else:
        elsewhere = folder / "elsewhere"
        path.rename(elsewhere)
        path.symlink_to(elsewhere) if damage == "link" else path.mkdir()
    with MapCache(folder) as cache:
        with pytest.warns(RuntimeWarning):
            mended = cache.index(crossing, PARAMS)
        assert parts(mended) == whole
        assert cache.stats.builds == 1
    if damage != "folder":  # nothing can be put in its place: works without
        assert path.is_file()
        assert not path.is_symlink()
        assert path.read_bytes() == good


def test_a_file_of_another_key_is_refused(crossing, folder):
    """S22: the name is no proof. A good file under the name of another index is made again."""
    with MapCache(folder) as cache:
        cache.index(crossing, PARAMS)
        other = dataclasses.replace(PARAMS, rows=(PARAMS.rows[0]._replace(slots=31),))
        path = only_file(folder)
        (folder / f"{index_key(crossing.map_digest, other)}.index").write_bytes(path.read_bytes())
        (folder / f"{index_key(crossing.map_digest, other)}.index").chmod(0o600)
        with pytest.warns(RuntimeWarning, match="another index"):
            assert cache.index(crossing, other).rows[0].ids.shape[2] == 31


@pytest.mark.parametrize("tree", [{}, {"edges": []}, {"edges": {"os": {}}}, {"edges": "x1"}])
def test_a_tree_that_is_no_index_is_refused(crossing, tmp_path, tree):
    """S22: a file with all checksums right and a tree of another shape is a FormatError, not an AttributeError."""
    path = tmp_path / "x.index"
    key = index_key(crossing.map_digest, PARAMS)
    path.write_bytes(containers.encode(containers.FLAG_INDEX, {"tree": tree}, {}, key))
    with pytest.raises(FormatError, match="do not make an index"):
        open_index(path, crossing.map_digest, PARAMS)


# ------------------------------------------------------------------------------------------- a folder without use, F20


def test_a_folder_open_to_others_is_not_used(crossing, folder):
    """S22, F20: files that somebody else may have put there are not read; one warning, and the work is done."""
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with pytest.warns(RuntimeWarning, match="not private") as caught:
        cache = MapCache(folder)
    assert parts(cache.index(crossing, PARAMS)) == parts(build_index(crossing, PARAMS))
    assert len(caught) == 1
    cache.close()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("fault", ["write", "lock"])
def test_a_disk_without_room_costs_one_warning(crossing, folder, monkeypatch, fault):
    """F20: disk full, or a file system without locks: works without, one warning, nothing half-written."""

    def fails(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(map_files, "replace" if fault == "write" else "held", fails)
    with MapCache(folder) as cache:
        with pytest.warns(RuntimeWarning, match="No space left") as caught:
            index = cache.index(crossing, PARAMS)
        assert len(caught) == 1
        assert parts(index) == parts(build_index(crossing, PARAMS))
        cache.index(street(50), PARAMS)
        assert cache.stats.size == 0


# ---------------------------------------------------------------------------------------------------------- key, S23


def test_every_parameter_changes_the_key(crossing, monkeypatch):
    """S23: map, code, and each field of the parameters; one outside the key hands out an index of other bytes."""
    other = {"window": (20.0, 60.0, 40.0), "order": "exact", "rows": PARAMS.rows * 2, "lists": "computed"}
    keys = {index_key(crossing.map_digest, PARAMS), index_key(street(50).map_digest, PARAMS)}
    for field in dataclasses.fields(IndexParams):
        value = other.get(field.name)
        changed = dataclasses.replace(PARAMS, **{field.name: field.default * 2 if value is None else value})
        keys.add(index_key(crossing.map_digest, changed))
    block = PARAMS.rows[0]
    blocks = {"kinds": (2,), "slots": 31, "columns": (("x", 0.5), *block.columns[1:])}
    assert set(blocks) == set(block._fields)
    for name, value in blocks.items():
        changed = dataclasses.replace(PARAMS, rows=(block._replace(**{name: value}),))
        keys.add(index_key(crossing.map_digest, changed))
    monkeypatch.setattr(index_file, "index_version", lambda: "1" * 64)
    keys.add(index_key(crossing.map_digest, PARAMS))
    assert len(keys) == 3 + len(dataclasses.fields(IndexParams)) + len(blocks)


def test_the_version_covers_the_code_that_makes_an_index():
    """S23: the version is the text of the code, so every module of ours that the index is computed by is in it."""
    covered = {path for pattern in index_file.INDEX_SOURCES for path in PACKAGE.glob(pattern)}
    # Errors and digests, and how a file gets on the disk, decide no byte of an index.
    apart = {PACKAGE / name for name in ("errors.py", "artifacts/digests.py", "artifacts/files.py")}
    for path in covered:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("skidpad"):
                base = PACKAGE.joinpath(*node.module.split(".")[1:])
                files = [base.with_suffix(".py"), *(base / f"{alias.name}.py" for alias in node.names)]
                assert {file for file in files if file.exists()} <= covered | apart, path


# ---------------------------------------------------------------------------------------------------- hits, S24 and S28


def test_scripted_counters(crossing, folder, tmp_path):
    """S28: each counter moves when it says and at no other time."""
    source = tmp_path / "small.xml"
    source.write_text(SMALL_2018)
    with MapCache(folder) as cache:
        assert cache.stats[:4] == (0, 0, 0, 0)
        first = cache.index(crossing, PARAMS)
        assert cache.index(crossing, PARAMS) is first
        computed = cache.index(crossing, dataclasses.replace(PARAMS, lists="computed"))
        scene = cache.scene(source)
        assert cache.scene(source) is scene
        stats = cache.stats
        assert (stats.hits, stats.misses, stats.builds, stats.parses, stats.evictions) == (2, 3, 2, 1, 0)
        assert (stats.size, stats.mapped, stats.stored_lists) == (3, 3, 1)
        assert stats.bytes == sum(path.stat().st_size for path in folder.iterdir())
        assert stats.build_seconds > 0
        del computed
    with MapCache(folder) as again:
        assert again.index(crossing, PARAMS) is not first
        assert again.stats._replace(size=0, bytes=0) == (0, 0, 1, 0, 0, 0.0, 0, 1, 1, 0)


def test_a_hit_parses_nothing(folder, tmp_path, monkeypatch):
    """S24: a file of another format is parsed once for each content, whoever asks, in whichever process."""
    source = tmp_path / "small.xml"
    source.write_text(SMALL_2018)
    with MapCache(folder) as cache:
        digest = cache.scene(source).digest
        assert cache.stats.parses == 1

    def refuse(*arguments, **options):
        raise AssertionError("parsed")

    monkeypatch.setattr(formats, "read_scene", refuse)
    monkeypatch.setattr(map_cache, "user_cache", refuse)
    with MapCache(folder) as cache:
        scenes = [cache.scene(source) for _ in range(100)]
        assert {id(scene) for scene in scenes} == {id(scenes[0])}
        assert scenes[0].digest == digest
        assert cache.stats.parses == 0
        other = tmp_path / "copy"
        other.mkdir()
        (other / "small.xml").write_text(SMALL_2018)
        assert cache.scene(other / "small.xml") is scenes[0]
        source.write_text(SMALL_2020)
        with pytest.raises(AssertionError, match="parsed"):
            cache.scene(source)


def test_another_reader_parses_again(folder, tmp_path, monkeypatch):
    """S24: what an older reader made of a file is not what this one would make."""
    source = tmp_path / "small.xml"
    source.write_text(SMALL_2018)
    with MapCache(folder) as cache:
        cache.scene(source)
    monkeypatch.setattr(map_cache, "_reader_version", lambda: "1" * 64)
    with MapCache(folder) as cache:
        cache.scene(source)
        assert cache.stats.parses == 1


def test_archives_are_mapped_where_they_lie(crossing, folder, tmp_path):
    """S24: an archive is not copied into the folder; one that changed is another scene."""
    path = tmp_path / "a.scene"
    save_scene(crossing, path)
    with MapCache(folder) as cache:
        scene = cache.scene(path)
        assert cache.scene(path) is scene
        assert scene.digest == crossing.digest
        assert cache.stats.size == 0
        save_scene(street(50), path, overwrite=True)
        assert cache.scene(path).digest == street(50).digest
        with pytest.raises(FileNotFoundError):
            cache.scene(tmp_path / "b.scene")


@pytest.mark.parametrize("verify", ["lazy", "full"])
def test_full_verification_hashes_every_time(crossing, folder, verify, monkeypatch):
    """S24: size, time and inode can all be kept by an edit in place; only a hash sees it."""
    with MapCache(folder, verify=verify) as cache:
        index = cache.index(crossing, PARAMS)
        path = only_file(folder)
        status = path.stat()
        place = path.read_bytes().find(index.points.tobytes()[:64])
        del index
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"\x01")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with MapCache(folder, verify=verify) as cache:
        if verify == "full":
            with pytest.warns(RuntimeWarning, match="checksum"):
                cache.index(crossing, PARAMS)
        else:
            cache.index(crossing, PARAMS)
        assert cache.stats.builds == (verify == "full")


# -------------------------------------------------------------------------------------------------------- bounds, S27


@pytest.mark.slow
def test_two_hundred_maps_under_small_bounds(folder):
    """S27: memory and disk stay bounded, the oldest use goes first, and what is mapped stays on the disk."""
    scenes = [street(length) for length in range(40, 240)]
    with MapCache(folder, max_mapped=4, max_disk_mib=0.25) as cache:
        mine = cache.index(scenes[0], PARAMS)
        for scene in scenes[1:]:
            cache.index(scene, PARAMS)
            stats = cache.stats
            assert stats.mapped <= 5
            # What was just written is mapped, and so are those kept: they may exceed the bound, nothing else.
            assert stats.bytes <= (1 << 18) or stats.size <= 6
        assert stats.builds == 200
        held = index_key(scenes[0].map_digest, PARAMS)
        assert (folder / f"{held}.index").exists()
        assert cache.index(scenes[0], PARAMS) is mine
        assert (folder / f"{index_key(scenes[199].map_digest, PARAMS)}.index").exists()
        assert not (folder / f"{index_key(scenes[1].map_digest, PARAMS)}.index").exists()
        assert stats.evictions == 196 + 200 - stats.size
        del mine


def test_oldest_use_goes_first(folder):
    """S27: asking for a file counts as use, so that the one not asked for is deleted."""
    one, two, three = (street(length) for length in (50, 60, 70))
    with MapCache(folder, max_mapped=1) as cache:
        cache.index(one, PARAMS)
        size = only_file(folder).stat().st_size
        cache.index(two, PARAMS)
        time.sleep(0.05)  # the clock of a file's last change ticks every few milliseconds
        cache.index(one, PARAMS)  # mapped anew
    with MapCache(folder, max_mapped=1, max_disk_mib=2.5 * size / (1 << 20)) as cache:
        cache.index(three, PARAMS)
        left = {path.stem for path in folder.glob("*.index")}
    assert left == {index_key(scene.map_digest, PARAMS) for scene in (one, three)}


def test_threads_build_once(folder, monkeypatch):
    """S27: threads that ask for one index at the same time wait for the first, and get the same one."""
    scene = street(50)
    calls = []

    def slow(*arguments):
        calls.append(1)
        barrier.wait(timeout=0.2) if len(calls) > 1 else threading.Event().wait(0.1)
        return build_index(*arguments)

    barrier = threading.Barrier(9)
    monkeypatch.setattr(map_cache, "build_index", slow)
    found = []
    with MapCache(folder) as cache:
        threads = [threading.Thread(target=lambda: found.append(cache.index(scene, PARAMS))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(index) for index in found}) == 1
        assert (len(found), len(calls), cache.stats.builds) == (8, 1, 1)


def test_bounds_must_be_positive(folder):
    """A bound of zero would evict what it has just made."""
    for bounds in ({"max_mapped": 0}, {"max_disk_mib": 0.0}, {"max_disk_mib": float("nan")}):
        with pytest.raises(SettingsError, match="must be positive"):
            MapCache(folder, **bounds)


def test_use_after_close(crossing, folder):
    """S30: closing twice is harmless, asking a closed cache is an error, what was given out lives on."""
    for where in (folder, None):
        cache = MapCache(where)
        index = cache.index(crossing, PARAMS)
        cache.close()
        cache.close()
        with pytest.raises(ProtocolError, match="closed"):
            cache.index(crossing, PARAMS)
        assert index.points[0, 0] == build_index(crossing, PARAMS).points[0, 0]


def test_the_users_cache_lies_under_the_cache_home(monkeypatch, tmp_path):
    """The default folder follows XDG_CACHE_HOME, as the kernels' does."""
    user_cache.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        assert user_cache().folder == tmp_path / "skidpad" / "maps"
        assert user_cache() is user_cache()
    finally:
        user_cache.cache_clear()
