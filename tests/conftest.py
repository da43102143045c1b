"""Fixtures that every room's tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[1].parent / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with oracles and real files beside the checkout; the test is skipped where it is absent."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the folder `shared` with oracles and real files is not beside this checkout")
    return SHARED
