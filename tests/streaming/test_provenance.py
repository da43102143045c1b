"""What is refused before anything is decoded: M20 to M30, one way of breaking an episode after the other."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from episode_folders import change, change_entry, entries_of, manifest_path, publish, rewrite_index

from skidpad.errors import FormatError, IntegrityError, UsageError
from skidpad.streaming import episode as episode_module
from skidpad.streaming.assets import encode_npy
from skidpad.streaming.episode import OnlineSource
from skidpad.streaming.provenance import Protocol, check_split, validate_episodes
from skidpad.streaming.vault import open_vault

IDS = ("episode_id", "scene_id", "split_id", "track_id", "vault_id")


def refused(index: Path, match: str, kind: type[Exception] = FormatError) -> None:
    with pytest.raises(kind, match=match):
        validate_episodes(entries_of(index))


def test_values_in_order(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M20, M29: one Provenance per entry, in order, without decoding an array; its JSON names ids, roots, digests."""
    monkeypatch.setattr(episode_module, "decode_npy", lambda *_: pytest.fail("decoded"))
    entries = entries_of(index)
    found = validate_episodes(entries, Protocol(2, 3, 2))
    assert [one.episode_id for one in found] == [entry.episode_id for entry in entries]
    text = found[0].to_json()
    assert json.loads(json.dumps(text)) == text
    assert set(text) == {
        *IDS,
        "index_root",
        "online_root",
        "vault_root",
        "online_manifest_sha256",
        "vault_manifest_sha256",
    }
    assert text["index_root"] == json.loads(index.read_text())["root"]


@pytest.mark.parametrize("which", ["online", "vault"])
@pytest.mark.parametrize("name", IDS)
def test_agreement(index: Path, which: str, name: str) -> None:
    """M21: each of the five ids in each manifest must be the entry's; the message names field, values and file."""
    other = "test" if name == "split_id" else "other-1"
    change(index, which, lambda value: value.update({name: other}))
    refused(index, f"{which}.json: {name} is '{other}'")


@pytest.mark.parametrize(("name", "value"), [("image_size", [16, 12]), ("depth_convention", "ray")])
def test_both_manifests_agree(index: Path, name: str, value: Any) -> None:
    """M7: image size and depth convention are those of both manifests."""
    change(index, "vault", lambda manifest: manifest.update({name: value}))
    refused(index, f"{name} is")


def test_roots(index: Path) -> None:
    """M27, F48: a manifest reformatted without a change of meaning is not the published one: exit code 3."""
    path = manifest_path(index, "online")
    path.write_text(json.dumps(json.loads(path.read_text())))
    refused(index, "root", IntegrityError)
    assert IntegrityError.exit_code == 3


def edit_asset(path: str) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["stream"][0]["rgb"].update(path=path)


def test_confinement(index: Path, tmp_path: Path) -> None:
    """M22, F47: paths outside the episode's own folder, by name or by link, and what is no regular file of its size."""
    folder = manifest_path(index, "online").parent
    sibling = manifest_path(index, "online", 1).parent / "rgb-0000.npy"
    outside = tmp_path / "outside.npy"
    shutil.copy(folder / "rgb-0002.npy", outside)
    for path in ("../x.npy", str(outside), "a/../rgb-0002.npy", "./rgb-0002.npy"):
        change(index, "online", edit_asset(path))
        refused(index, "expected a plain path")
    change(index, "online", edit_asset("link.npy"))
    refused(index, "expected a file")
    for target in (sibling, outside):
        (folder / "link.npy").symlink_to(target)
        refused(index, "outside the episode's own folder")
        (folder / "link.npy").unlink()
    (folder / "inner").symlink_to(sibling.parent)
    change(index, "online", edit_asset("inner/rgb-0000.npy"))
    refused(index, "outside the episode's own folder")
    (folder / "link.npy").mkdir()
    change(index, "online", edit_asset("link.npy"))
    refused(index, "not a regular file")
    (folder / "link.npy").rmdir()
    os.mkfifo(folder / "link.npy")
    refused(index, "not a regular file")
    change(index, "online", edit_asset("rgb-0002.npy"))
    (folder / "rgb-0002.npy").write_bytes((folder / "rgb-0002.npy").read_bytes() + b"x")
    refused(index, "bytes, the manifest declares")


def test_manifests_are_confined(index: Path) -> None:
    """M9, M22: a split is a folder, and a manifest is a file of its own, not a link to another."""
    change_entry(index, lambda entry: entry.update(split_id="test"))
    refused(index, "a split is a folder")
    change_entry(index, lambda entry: entry.update(split_id="dev", online_manifest="../x/online.json"))
    refused(index, "a split is a folder")


def test_linked_episode(index: Path) -> None:
    """M22: the folder of an episode may not be a link to another folder, or one vault serves two."""
    folder = manifest_path(index, "vault").parent
    moved = folder.with_name("elsewhere")
    folder.rename(moved)
    folder.symlink_to(moved)
    refused(index, "reached through a link")


def test_aliasing(index: Path) -> None:
    """M23: one file, or one content of rgb or depth, twice in an episode is a mistake or a trick; only masks may."""
    folder = manifest_path(index, "online").parent
    (folder / "rgb-0002.npy").unlink()
    os.link(folder / "rgb-0001.npy", folder / "rgb-0002.npy")
    refused(index, "are one file")
    (folder / "rgb-0002.npy").unlink()
    shutil.copy(folder / "rgb-0001.npy", folder / "rgb-0002.npy")

    def same(manifest: dict[str, Any]) -> None:
        manifest["stream"][0]["rgb"].update(sha256=manifest["warmup"][1]["rgb"]["sha256"])

    change(index, "online", same)
    refused(index, "hold the same bytes")


def test_leaked_file(index: Path) -> None:
    """M24, F47: a file of the vault under an online name."""
    vault = manifest_path(index, "vault").parent
    online = manifest_path(index, "online").parent
    (online / "rgb-0002.npy").unlink()
    os.link(vault / "rgb-0005.npy", online / "rgb-0002.npy")
    refused(index, "files of the vault")


def test_leaked_content(index: Path) -> None:
    """M24, F47: a copy of a hidden picture among the online frames."""
    hidden = json.loads(manifest_path(index, "vault").read_text())["queries"][0]["rgb"]
    shutil.copy(
        manifest_path(index, "vault").parent / hidden["path"], manifest_path(index, "online").parent / "rgb-0002.npy"
    )
    change(index, "online", lambda manifest: manifest["stream"][0]["rgb"].update(sha256=hidden["sha256"]))
    refused(index, "content of the vault's")


def test_leaked_frame_id(index: Path) -> None:
    """M7, M24: a query that bears the id of an online frame."""
    change(index, "vault", lambda manifest: manifest["queries"][0].update(frame_id=4))
    refused(index, "ids of online frames")


@pytest.mark.parametrize(("shift", "turn", "is_refused"), [(5e-4, 0.02, True), (2e-3, 0.0, False), (0.0, 0.2, False)])
def test_leaked_pose(index: Path, shift: float, turn: float, is_refused: bool) -> None:
    """M24: a query within 1 mm and 0.05 deg of an online frame is refused; 2 mm or 0.2 deg away is another view."""
    frame = json.loads(manifest_path(index, "online").read_text())["warmup"][0]["camera"]
    pose = np.array(frame["world_from_camera"])
    c, s = np.cos(np.radians(turn)), np.sin(np.radians(turn))
    pose[:3, :3] = pose[:3, :3] @ np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    pose[0, 3] += shift
    camera = {**frame, "world_from_camera": pose.tolist()}
    change(index, "vault", lambda manifest: manifest["queries"][0].update(camera=camera))
    if is_refused:
        refused(index, "has the pose of online frame 0")
    else:
        validate_episodes(entries_of(index))


@pytest.mark.parametrize("name", ["episode_id", "vault_id", "scene_id"])
def test_uniqueness(index: Path, name: str) -> None:
    """M25: no episode, vault or scene twice among the selected; a pair outside the selection harms nobody."""
    entries = entries_of(index)
    value = json.loads(index.read_text())
    value["episodes"][1][name] = value["episodes"][0][name]
    rewrite_index(index, value)
    refused(index, f"{name} .* is also that of")
    changed = entries_of(index)[:1]
    assert validate_episodes(changed)[0].episode_id == entries[0].episode_id


@pytest.mark.parametrize("name", ["warmup_count", "stream_count", "query_count"])
def test_counts_of_the_entry(index: Path, name: str) -> None:
    """M26: the counts an entry states are those of its manifests; wanted and found are printed."""
    change_entry(index, lambda entry: entry.update({name: entry[name] + 1}))
    refused(index, "the index entry wants .* the manifests hold 2 [+] 3 [+] 2")


@pytest.mark.parametrize("wanted", [(1, 3, 2), (2, 4, 2), (2, 3, 1)])
def test_counts_of_the_run(index: Path, wanted: tuple[int, int, int]) -> None:
    """M26: the counts a run is configured for are those of its episodes."""
    with pytest.raises(FormatError, match="the run wants"):
        validate_episodes(entries_of(index), Protocol(*wanted))


def test_no_second_look(index: Path) -> None:
    """M28, F48: a manifest exchanged after validation changes nothing; an image exchanged is noticed before use."""
    found = validate_episodes(entries_of(index))[0]
    for which in ("online", "vault"):
        manifest_path(index, which).write_text("{}")
    source = OnlineSource(found.online)
    assert [view.frame_id for view in source.warmup()] == [0, 1]
    image = manifest_path(index, "online").parent / "rgb-0002.npy"
    image.write_bytes(encode_npy(np.zeros((12, 16, 3), np.uint8)))
    with pytest.raises(IntegrityError, match="rgb-0002"):
        source.next()
    label = manifest_path(index, "vault").parent / "depth-0005.npy"
    data = bytearray(label.read_bytes())
    data[-1] ^= 1
    label.write_bytes(bytes(data))
    with pytest.raises(IntegrityError, match="depth-0005"):
        open_vault(found.vault)
    label.unlink()
    with pytest.raises(IntegrityError, match="can no longer be read"):
        open_vault(found.vault)


def test_split_gate(index: Path) -> None:
    """M30: train never, test with an official registration, holdout with a reason; all foreign episodes are listed."""
    value = json.loads(index.read_text())
    ids = [episode["episode_id"] for episode in value["episodes"]]
    value["episodes"][1]["split_id"] = "train"
    rewrite_index(index, value)
    entries = entries_of(index)
    check_split(entries[:1], "dev")
    with pytest.raises(UsageError, match=rf"split dev: not dev are {ids[1]} \(train\)"):
        check_split(entries, "dev")
    with pytest.raises(UsageError, match="never evaluated"):
        check_split(entries, "train")
    with pytest.raises(UsageError, match="official"):
        check_split(entries, "test")
    with pytest.raises(UsageError, match=rf"{ids[0]} \(dev\), {ids[1]} \(train\)"):
        check_split(entries, "test", official=True)
    with pytest.raises(UsageError, match="release"):
        check_split(entries, "holdout", release="  ")
    with pytest.raises(UsageError, match="not holdout"):
        check_split(entries, "holdout", release="the paper")
    with pytest.raises(UsageError, match="released before, by run run-1"):
        check_split([], "holdout", release="again", released_by="run-1", parent="run-0")
    check_split([], "holdout", release="again", released_by="run-1", parent="run-1")


def test_undamaged_copy_passes(index: Path) -> None:
    """M27: publishing an unchanged folder again changes no root, so the refusals above are not of the test's making."""
    before = index.read_text()
    publish(index)
    assert json.loads(index.read_text()) == json.loads(before)
    assert len(validate_episodes(entries_of(index))) == 2
