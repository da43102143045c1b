"""Reading files: bounded before anything is made of them."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import math
import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from skidpad.errors import FormatError
from skidpad.scenes.formats.source import Limits, read_source

TEXT = b"<OpenDRIVE/>" * 20


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress], ids=["plain", "gzip", "xz"])
def test_content_decides_how_it_is_inflated(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    """R2, R9: the digest is of what the reader reads, so a compressed copy has the digest of the file itself; the
    suffix is not asked."""
    path = tmp_path / "map.dat"
    path.write_bytes(compress(TEXT))
    source = read_source(path)
    assert source.data == TEXT
    assert source.digest == read_source(TEXT).digest
    assert source.name == str(path)


@pytest.mark.parametrize(
    ("name", "stem"),
    [("Town01.xodr.gz", "Town01"), ("a/b.xml", "b"), ("USA_US101-3_1_T-1.xml.xz", "USA_US101-3_1_T-1")],
)
def test_stem(name: str, stem: str) -> None:
    """R16: where a file has no id of its own, its name without suffixes is one."""
    assert read_source(b"x", name=name).stem == stem


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
def test_cut_and_altered_streams(compress: Callable[[bytes], bytes]) -> None:
    """R6: a compressed file cut at any byte, or with any byte flipped, is refused or inflates to the same."""
    packed = compress(TEXT)
    for end in range(1, len(packed)):
        try:
            assert read_source(packed[:end], name="cut").data == packed[:end]  # too short to be known as compressed
            assert end < 6
        except FormatError as error:
            assert "cut" in str(error)  # noqa: PT017
    for position in range(6, len(packed)):
        broken = bytearray(packed)
        broken[position] ^= 0x41
        with contextlib.suppress(FormatError):
            assert read_source(bytes(broken)).data == TEXT  # a flag or time stamp that changes nothing


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
def test_nothing_may_follow_a_stream(compress: Callable[[bytes], bytes]) -> None:
    """R4: a second member or trailing bytes are refused, saying where the stream ended."""
    packed = compress(TEXT)
    for tail in (b"\0", packed, b"junk"):
        with pytest.raises(FormatError, match=f"ends at byte {len(packed)}"):
            read_source(packed + tail)


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
def test_bombs(compress: Callable[[bytes], bytes]) -> None:
    """R3, R4, F14: a bomb is stopped by the ratio after a few chunks, or by the size, long before it fills memory."""
    bomb = compress(bytes(16 << 20))
    with pytest.raises(FormatError, match="compression ratio"):
        read_source(bomb)
    with pytest.raises(FormatError, match="decompressed bytes"):
        read_source(bomb, Limits(compression_ratio=1 << 40, decompressed_bytes=4 << 20))


def test_xz_that_asks_for_gigabytes() -> None:
    """R3: an xz stream states how much memory inflating takes; above 128 MiB it is refused unread."""
    # Encoding with such a dictionary would itself take gigabytes: the header of a small one is edited instead.
    small = bytearray(lzma.compress(TEXT, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 20}]))
    header = small.index(b"\x21\x01") + 2
    small[header] = 36  # dictionary of 1 GiB
    size = (small[12] + 1) * 4
    small[12 + size - 4 : 12 + size] = zlib.crc32(small[12 : 12 + size - 4]).to_bytes(4, "little")
    with pytest.raises(FormatError, match=r"corrupted.*[Mm]emory"):
        read_source(bytes(small))


def test_file_size(tmp_path: Path) -> None:
    """R3: a file above the limit is refused from its size, before it is read."""
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FormatError, match="file bytes is"):
        read_source(path)
    with pytest.raises(FormatError, match="file bytes is 240"):
        read_source(TEXT, Limits(file_bytes=100))


def test_odd_files(tmp_path: Path) -> None:
    """F9: empty, missing, folder and pipe are FormatErrors that name the file; a pipe does not hang."""
    (tmp_path / "empty").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    for name in ("empty", "missing", "pipe", "."):
        with pytest.raises(FormatError, match=str(tmp_path)):
            read_source(tmp_path / name)


def test_links(tmp_path: Path) -> None:
    """R4: a link in a data set may point anywhere and is refused; one that a person names is theirs to follow."""
    (tmp_path / "real").write_bytes(TEXT)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert read_source(tmp_path / "link").data == TEXT
    assert read_source(tmp_path / "real", follow_links=False).data == TEXT
    with pytest.raises(FormatError, match="symbolic link"):
        read_source(tmp_path / "link", follow_links=False)


def test_limits_refuse_nan() -> None:
    """R3: NaN compares as neither above nor below; a bound that let it pass would bound nothing."""
    with pytest.raises(FormatError, match="map: extent m is nan"):
        Limits().check("extent_m", math.nan, "map")
    Limits().check("extent_m", 16_384.0, "map")
