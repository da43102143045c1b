"""Crash-safe files: after any fault each file is absent, old, or new, and no temporary file is left."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import IO

import pytest
from failing_files import every_fault

from skidpad.artifacts import files
from skidpad.artifacts.files import LineFile, create, parse_json, read_lines, replace, run_lock
from skidpad.errors import AlreadyThereError, IntegrityError


def temporaries(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*.tmp-*")]


def test_replace_leaves_old_or_new(tmp_path: Path) -> None:
    """F29, writing rule 1: whichever call fails, the target holds all of the old or all of the new bytes."""
    target = tmp_path / "a"
    raised = 0
    for failed in every_fault(lambda: replace(target, b"new")):
        content = target.read_bytes() if target.exists() else b"absent"
        assert content in (b"new", b"old", b"absent")
        assert temporaries(tmp_path) == []
        raised += failed
        if not failed:
            assert content == b"new"
        target.write_bytes(b"old")
    assert raised >= 4  # open, sync, replace and the folder's sync each failed once


def test_create_leaves_absent_or_new(tmp_path: Path) -> None:
    """F28, writing rule 2: an exclusive file never shows half of itself, and a failure may be tried again."""
    target = tmp_path / "a"
    raised = 0
    for failed in every_fault(lambda: create(target, b"new")):
        assert not target.exists() or target.read_bytes() == b"new"
        assert temporaries(tmp_path) == []
        raised += failed
        if not failed:
            assert target.exists()
        target.unlink(missing_ok=True)
    assert raised >= 4


def test_create_is_exclusive_between_threads(tmp_path: Path) -> None:
    """Writing rule 2: of many that create one name, one succeeds and the file is whole."""
    target, won = tmp_path / "a", []

    def attempt(number: int) -> None:
        try:
            create(target, bytes([number]) * 1000)
            won.append(number)
        except AlreadyThereError:
            pass

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert target.read_bytes() == bytes([won[0]]) * 1000
    assert temporaries(tmp_path) == []


def test_interrupt_while_writing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F60: Ctrl-C is an exception too; the temporary file goes and the old file stays."""

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", interrupt)
    for write in (replace, create):
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert temporaries(tmp_path) == []


def test_appended_lines_survive_every_fault(tmp_path: Path) -> None:
    """F42: whichever call fails while lines are appended, whole lines before it are read back, in order."""
    path = tmp_path / "lines"

    def work() -> None:
        with LineFile(path) as lines:
            for number in range(3):
                lines.append(f"line {number}")

    for failed in every_fault(work):
        there = [line for _, line in read_lines(path)] if path.exists() else []
        assert there == [f"line {number}" for number in range(len(there))]
        assert failed or len(there) == 3
        path.unlink(missing_ok=True)


def test_short_write_is_an_error_and_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing rule 4: a disk that fills up mid-line leaves a torn line, which the next opening cuts and counts; until
    then nothing may be appended behind it, where no opening would repair it."""
    path = tmp_path / "lines"
    lines = LineFile(path)
    lines.append("whole")

    class Short:
        def __init__(self, file: IO[bytes]) -> None:
            self.file = file

        def write(self, data: bytes) -> int:
            if data.startswith(b"n here"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return self.file.write(data[:3])

        def close(self) -> None:
            self.file.close()

    monkeypatch.setattr(lines, "_file", Short(lines._file))
    with pytest.raises(OSError, match="No space left") as raised:
        lines.append("torn here")
    assert raised.value.filename == str(path)
    with pytest.raises(ValueError, match="closed"):
        lines.append("behind it")
    again = LineFile(path)
    assert again.torn_bytes == 3
    again.append("after")
    again.close()
    assert [line for _, line in read_lines(path)] == ["whole", "after"]


def test_lines_are_bounded_and_single(tmp_path: Path) -> None:
    """Writing rule 4: a line break inside a line would be two lines, and a reader must not read without bound."""
    with LineFile(tmp_path / "lines") as lines:
        with pytest.raises(ValueError, match="no newline"):
            lines.append("a\nb")
        with pytest.raises(ValueError, match="16 MiB"):
            lines.append("x" * files.LINE_CAP_BYTES)
    (tmp_path / "bad").write_bytes(b"\xff\n")
    with pytest.raises(IntegrityError, match="not UTF-8"):
        list(read_lines(tmp_path / "bad"))


def test_a_line_above_the_cap_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing rule 10: a damaged file without line breaks is not read into memory whole."""
    monkeypatch.setattr(files, "LINE_CAP_BYTES", 100)
    (tmp_path / "long").write_bytes(b"x" * 200 + b"\n")
    with pytest.raises(IntegrityError, match="above 100 bytes"):
        list(read_lines(tmp_path / "long"))


def test_json_is_strict() -> None:
    """F5, hazards: JSON readers accept NaN and equal keys, and nest until the interpreter gives up."""
    for text, said in (
        ("NaN", "NaN is not JSON"),
        ('{"a": Infinity}', "Infinity"),
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ("[" * 100_000, "nested too deeply"),
        ("{", "Expecting"),
    ):
        with pytest.raises(ValueError, match=said):
            parse_json(text)
    assert parse_json('{"a": [1, 2.5, null, true]}') == {"a": [1, 2.5, None, True]}


def test_lock_is_released_and_says_who_holds_it(tmp_path: Path) -> None:
    """E103: the lock holds within one process too, ends with its block, and survives unreadable holder data."""
    with (
        run_lock(tmp_path),
        pytest.raises(AlreadyThereError, match=rf"pid {os.getpid()} on"),
        run_lock(tmp_path),
    ):
        pass
    with run_lock(tmp_path):
        (tmp_path / "run.lock").write_text("{}")
        with pytest.raises(AlreadyThereError, match="holder unknown"), run_lock(tmp_path):
            pass
