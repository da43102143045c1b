"""Folders of compiled kernels that no code wants any more go away, and no others (S127)."""

from __future__ import annotations

import os
import time

import pytest

from skidpad.artifacts import compile as compiling
from skidpad.artifacts.compile import FOLDER_DIGITS, KEPT_FOLDERS, UNUSED_SECONDS, prune_kernel_folders


def made(base, name, age_seconds, mode=0o700):
    """A folder with an entry, last wanted some time ago."""
    folder = base / name
    folder.mkdir(mode=mode)
    folder.chmod(mode)
    (folder / "entry.bin").write_bytes(b"x")
    then = time.time() - age_seconds
    os.utime(folder, (then, then))
    return folder


def name_of(number):
    """A name like those of kernel folders."""
    return f"{number:0{FOLDER_DIGITS}x}"


def test_old_folders_go_and_the_rest_stays(tmp_path):
    """S127: every edit of a kernel leaves a folder; without an end they fill the disk. Kept are the most recent ones,
    all that were wanted within a week, and whatever is not ours."""
    recent = [made(tmp_path, name_of(k), 60.0 * k) for k in range(KEPT_FOLDERS + 3)]
    old = [made(tmp_path, name_of(100 + k), UNUSED_SECONDS + 60.0 * (k + 1)) for k in range(3)]
    half_gone = made(tmp_path, f"{name_of(200)}.gone", UNUSED_SECONDS * 2)
    foreign = [
        made(tmp_path, "notes", UNUSED_SECONDS * 2),
        made(tmp_path, name_of(300), UNUSED_SECONDS * 2, mode=0o755),
        made(tmp_path, "g" * FOLDER_DIGITS, UNUSED_SECONDS * 2),
    ]
    link = tmp_path / name_of(400)
    link.symlink_to(foreign[0])
    assert set(prune_kernel_folders(tmp_path)) == {*old, half_gone}
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in [*recent, *foreign, link]}
    assert all((path / "entry.bin").exists() for path in [*recent, *foreign])


def test_the_most_recent_are_kept_however_old(tmp_path):
    """S127: whoever comes back after a month finds the kernels compiled."""
    for k in range(KEPT_FOLDERS):
        made(tmp_path, name_of(k), UNUSED_SECONDS * (k + 2))
    assert prune_kernel_folders(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == KEPT_FOLDERS


def test_wanting_a_folder_makes_it_recent(tmp_path, monkeypatch):
    """S127: a folder in daily use is never the oldest, though its entries were written long ago."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    base = tmp_path / "skidpad" / "kernels"
    folder = base / compiling.kernel_digest()[:FOLDER_DIGITS]
    folder.mkdir(parents=True, mode=0o700)
    os.utime(folder, (1.0, 1.0))
    for k in range(KEPT_FOLDERS):
        made(base, name_of(k), UNUSED_SECONDS * 2)
    assert compiling.kernel_cache.__wrapped__() == folder
    assert folder.stat().st_mtime > time.time() - 3600
    assert len(list(base.iterdir())) == KEPT_FOLDERS


def test_a_folder_that_cannot_be_removed_is_no_error(tmp_path, monkeypatch):
    """S127: another process may be removing the same folder; starting must not fail over cleaning."""
    for k in range(KEPT_FOLDERS + 1):
        made(tmp_path, name_of(k), UNUSED_SECONDS * (k + 2))

    def fails(*arguments, **options):
        raise OSError("busy")

    monkeypatch.setattr("pathlib.Path.rename", fails)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling.shutil, "rmtree", lambda path, ignore_errors: None)
        prune_kernel_folders(tmp_path)
    assert len(list(tmp_path.iterdir())) == KEPT_FOLDERS + 1
