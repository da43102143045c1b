"""The small world in every format that the tests can write: what the tests of all readers run over."""

from __future__ import annotations

from functools import cache, partial

from gpudrive_files import gpudrive_json
from pufferdrive_files import pufferdrive_bin
from small_world import small_world
from waymo_files import waymo_file

_WRITERS = {
    "gpudrive": gpudrive_json,
    "pufferdrive F0": partial(pufferdrive_bin, layout="F0"),
    "pufferdrive F0i": partial(pufferdrive_bin, layout="F0i"),
    "pufferdrive F1": partial(pufferdrive_bin, layout="F1"),
    "pufferdrive F2b": partial(pufferdrive_bin, layout="F2b"),
    "waymo": waymo_file,
}
FORMATS = tuple(_WRITERS)


@cache
def sample(form: str) -> bytes:
    """A file of at most 4 KiB in one of FORMATS: a reader's name and a variant."""
    return _WRITERS[form](small_world())
