"""Small scenes, and suites over them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stub_evaluator import StubEvaluator, forget

from skidpad.evaluation.evaluators import TYPES
from skidpad.scenes.archive import save_scene
from skidpad.scenes.synthetic import synthetic
from skidpad.settings.suite import Suite, load_suite

LoadSuite = Callable[..., Suite]


@pytest.fixture
def stub() -> type[StubEvaluator]:
    """The stub evaluator, forgetting what earlier tests made it do."""
    forget()
    return StubEvaluator


@pytest.fixture(scope="session")
def scene_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six archives: `straight-<seed>.scene` for seeds 0 to 3 and one `crossing` and `curve` each."""
    folder = tmp_path_factory.mktemp("scenes")
    for seed in range(4):
        save_scene(synthetic("straight", seed), folder / f"straight-{seed}.scene")
    for name in ("crossing", "curve"):
        save_scene(synthetic(name), folder / f"{name}.scene")
    return folder


@pytest.fixture
def load(tmp_path: Path, scene_folder: Path) -> LoadSuite:
    """load(text, *overrides): writes a suite and loads it; `{scenes}` in the text stands for the scene folder."""

    def write_and_load(text: str, *overrides: str, **options: Any) -> Suite:
        path = tmp_path / "suite.toml"
        path.write_text(textwrap.dedent(text).replace("{scenes}", str(scene_folder)), "utf-8")
        types = {**TYPES, "stub": StubEvaluator.TYPE}
        return load_suite(path, list(overrides), types=types, **options)

    return write_and_load
