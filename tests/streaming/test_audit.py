"""Which files may be opened while frames arrive."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from skidpad.errors import RefusedError
from skidpad.streaming.audit import opening, watching


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A dataset of two files."""
    for name in ("online/a.npy", "vaults/b.npy"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
    return tmp_path / "data"


def test_only_what_is_opened_is_read(data: Path, tmp_path: Path) -> None:
    """M102: inside `opening` its folder may be read and is logged; outside nothing below the data folder may."""
    (tmp_path / "elsewhere").write_bytes(b"y")
    with watching(data, "stream") as watch:
        with opening(data / "online"):
            assert (data / "online/a.npy").read_bytes() == b"x"
            with pytest.raises(RefusedError, match=r"vaults/b\.npy"):
                (data / "vaults/b.npy").read_bytes()
        with pytest.raises(RefusedError, match=r"online/a\.npy"):
            os.open(data / "online/a.npy", os.O_RDONLY)
        assert (tmp_path / "elsewhere").read_bytes() == b"y"
    assert watch.row("p") == {
        "phase": "stream",
        "pair": "p",
        "paths": ["online/a.npy"],
        "refused": ["vaults/b.npy", "online/a.npy"],
    }
    assert (data / "vaults/b.npy").read_bytes() == b"x"  # nobody watches any more


def test_detours_are_seen(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M102: links, relative paths, bytes and `..` lead to the same file and are refused like it."""
    (tmp_path / "link").symlink_to(data / "vaults")
    monkeypatch.chdir(data)
    ways = ("vaults/b.npy", tmp_path / "link/b.npy", os.fsencode(data / "online/../vaults/b.npy"))
    for way in ways:
        with watching(data, "stream") as watch:
            with pytest.raises(RefusedError), open(way, "rb"):
                pass
            assert watch.refused == ["vaults/b.npy"]


def test_a_caught_error_is_found_later(data: Path) -> None:
    """F53: who swallows the error of the open is refused all the same."""
    with watching(data, "stream") as watch:
        with contextlib.suppress(RefusedError):
            (data / "vaults/b.npy").read_bytes()
        with pytest.raises(RefusedError, match=r"vaults/b\.npy"):
            watch.check()
