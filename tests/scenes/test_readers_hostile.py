"""Every reader on files that are cut, flipped, renamed or random (R2, R4, R6, R9): an error in words or the scene."""

from __future__ import annotations

import gzip
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reader_samples import FORMATS, read, sample

from skidpad.errors import FormatError
from skidpad.scenes.formats import format_of
from skidpad.scenes.formats.source import read_source
from skidpad.scenes.scene import Scene

FLIPS = (0x01, 0x10, 0x80)
# A flipped byte of these is always found: their records carry checksums.
CHECKSUMMED = frozenset({"waymo"})
# A file that ends before one of these is whole: the format has no count of its tails, and no length.
OPTIONAL = {"pufferdrive F2b": (b"TLPHASE1", b"LANEWID1")}


def read_or_refuse(form: str, data: bytes) -> Scene | None:
    """The scene, or None where a FormatError names the file; anything else is a defect of ours."""
    try:
        return read(form, data, name="small.dat")
    except FormatError as error:
        if "small.dat" not in str(error):
            raise
        return None


def check_cuts(form: str, cuts: list[int]) -> None:
    data = sample(form)
    whole = read(form, data)
    for cut in cuts:
        scene = read_or_refuse(form, data[:cut])
        if scene is not None and data[cut:].startswith(OPTIONAL.get(form, ())):
            continue
        assert scene is None or (scene.digest == whole.digest and data[cut:].isspace()), f"cut at byte {cut}"


def check_flips(form: str, places: list[int]) -> None:
    data = sample(form)
    for place in places:
        for flip in FLIPS:
            scene = read_or_refuse(form, data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :])
            assert scene is None or form not in CHECKSUMMED, f"byte {place}"


@pytest.mark.parametrize("form", FORMATS)
def test_content_tells_the_format(form: str) -> None:
    """R2, R9: by content, whatever the name, compressed too, by exactly one reader; the same bytes give the same
    digest."""
    assert format_of(read_source(sample(form), name="map.dat")) == form.split()[0]
    assert read(form, gzip.compress(sample(form)), name="x.jpg").digest == read(form, sample(form)).digest


@pytest.mark.parametrize("form", FORMATS)
def test_cut_at_sampled_bytes(form: str) -> None:
    """R6: a cut file is refused, never read as a smaller scene."""
    size = len(sample(form))
    # Nine tables, XML, or a pickle that names every member of every array, need more.
    assert size <= (16_384 if form.startswith(("nuplan", "lanelet2", "scenarionet")) else 4096)
    check_cuts(form, sorted({*random.Random(6).sample(range(1, size), 40), *range(size - 12, size)}))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_cut_at_every_byte(form: str) -> None:
    """R6 in full."""
    check_cuts(form, list(range(1, len(sample(form)))))


@pytest.mark.parametrize("form", FORMATS)
def test_flipped_bytes_sampled(form: str) -> None:
    """R6: an error, or a scene that passes check_scene; with checksums always an error."""
    check_flips(form, sorted(random.Random(7).sample(range(len(sample(form))), 16)))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_flipped_bytes_all(form: str) -> None:
    """R6 in full."""
    check_flips(form, list(range(len(sample(form)))))


@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_bytes_put_anywhere(form: str, data: st.DataObject) -> None:
    """R6: what somebody writes into the middle of a file is refused or harmless: counts, offsets and texts alike."""
    whole = sample(form)
    place = data.draw(st.integers(0, len(whole)))
    other = data.draw(st.binary(min_size=1, max_size=12) | st.sampled_from([b"\xff\xff\xff\x7f", b"\0" * 8, b"1e308"]))
    read_or_refuse(form, whole[:place] + other + whole[place + data.draw(st.sampled_from([0, len(other)])) :])


def test_random_bytes_are_nobodys() -> None:
    """R2: 1,000 random byte strings are claimed by no reader, among them the one that has no magic."""
    draw = random.Random(2)
    for _ in range(1000):
        with pytest.raises(FormatError, match="none of the known formats"):
            format_of(read_source(b"\x00" + draw.randbytes(draw.randrange(1, 400)), name="x"))
    for zeros in (4, 8, 16, 20, 64, 400):
        with pytest.raises(FormatError, match="none of the known formats"):
            format_of(read_source(b"\x00" * zeros, name="x"))
