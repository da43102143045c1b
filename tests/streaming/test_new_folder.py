"""A folder that appears whole or not at all (M11), and the one reader of bytes (M101)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from failing_files import MOST_CALLS, FailingFiles

from skidpad.artifacts.files import new_folder, read_bytes, write_new
from skidpad.errors import AlreadyThereError, FormatError


def fill(target: Path) -> None:
    with new_folder(target) as folder:
        for name in ("a", "b"):
            write_new(folder / name, name.encode())


def test_every_failing_call(tmp_path: Path) -> None:
    """F29: whichever file call fails, the folder is there whole or not at all, and no temporary is left."""
    for k in range(MOST_CALLS):
        target = tmp_path / f"t{k}"
        with pytest.MonkeyPatch.context() as monkeypatch:
            files = FailingFiles(monkeypatch, k)
            with contextlib.suppress(OSError):
                fill(target)
        found = sorted(path.name for path in target.iterdir()) if target.exists() else None
        assert found in (None, ["a", "b"])
        assert not list(tmp_path.glob("*.tmp-*"))
        if not files.failed:
            break
    assert k > 3


def test_interrupt_and_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F29: an interrupt while filling, and a rename that fails, leave nothing."""

    def interrupted() -> None:
        with new_folder(tmp_path / "t") as folder:
            write_new(folder / "a", b"")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    def failing(*_: Any) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="no"):
        fill(tmp_path / "t")
    assert list(tmp_path.iterdir()) == []


def test_never_over_another(tmp_path: Path) -> None:
    """M11: what stands there stays, also when it came while the folder was filled."""

    def overtaken() -> None:
        with new_folder(tmp_path / "late") as folder:
            write_new(folder / "a", b"mine")
            (tmp_path / "late").mkdir()

    with pytest.raises(AlreadyThereError):
        overtaken()
    assert [path.name for path in tmp_path.iterdir()] == ["late"]
    assert not list((tmp_path / "late").iterdir())
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(AlreadyThereError):
        fill(tmp_path / "link")


def test_read_bytes_is_bounded(tmp_path: Path) -> None:
    """M8, M101: a file is read up to its limit and no further; what is larger is refused."""
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert read_bytes(path, 5) == b"12345"
    with pytest.raises(FormatError, match="above 4 bytes"):
        read_bytes(path, 4)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none", 4)
