"""One compiled dataset per session, and a fresh copy of it for tests that change files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from episode_folders import compiled


@pytest.fixture(scope="session")
def rooms_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Index of two small rooms; nobody may change it."""
    return compiled(tmp_path_factory.mktemp("episodes") / "rooms")


@pytest.fixture
def index(rooms_index: Path, tmp_path: Path) -> Path:
    """Index of a copy of the two rooms that a test may change."""
    shutil.copytree(rooms_index.parent, tmp_path / "data")
    return tmp_path / "data" / "index.json"


@pytest.fixture(autouse=True)
def no_lpips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the person who runs the tests has the weights of LPIPS changes no test."""
    monkeypatch.setattr("skidpad.evaluation.metrics.lpips.available", lambda: None)
