"""The small world in every format that the tests can write: what the tests of all readers run over."""

from __future__ import annotations

from functools import cache

from gpudrive_files import gpudrive_json
from small_world import small_world

FORMATS = ("gpudrive",)


@cache
def sample(form: str) -> bytes:
    """A file of at most 4 KiB in one of FORMATS."""
    return {"gpudrive": gpudrive_json}[form](small_world())
