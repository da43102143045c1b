"""Evaluator types and a folder of empty scene files: settings never open a scene, so empty ones will do."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skidpad.errors import SettingsError
from skidpad.settings.schema import EvalKnobs
from skidpad.settings.suite import EvaluatorType, Suite, load_suite


class RealismKnobs(EvalKnobs):
    """A type with knobs of its own."""

    horizon: float = 8.0
    label: str = "plain"


TYPES = {
    "multi_scenario": EvaluatorType("multi_scenario", EvalKnobs, {"action_selection": "deterministic"}),
    "human_replay": EvaluatorType(
        "human_replay", EvalKnobs, {"action_selection": "deterministic", "env.control": "sdc", "eval.worst_n": 5}
    ),
    "realism": EvaluatorType("realism", RealismKnobs, {"action_selection": "sample"}),
}

Load = Callable[..., Suite]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with three scene files in `data/`, where suites are written."""
    (tmp_path / "data").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "data" / f"{name}.scene").touch()
    return tmp_path


@pytest.fixture
def load(folder: Path) -> Load:
    """Writes a suite and loads it: load(text, *overrides, name="suite.toml", **options of load_suite)."""

    def write_and_load(text: str, *overrides: str, name: str = "suite.toml", **options: Any) -> Suite:
        path = folder / name
        path.write_text(textwrap.dedent(text), "utf-8")
        options.setdefault("types", TYPES)
        return load_suite(path, overrides, **options)

    return write_and_load


@pytest.fixture
def refusal(load: Load, folder: Path) -> Callable[..., str]:
    """The message of the SettingsError that loading raises, without the folder's name."""

    def message(text: str, *overrides: str, **options: Any) -> str:
        with pytest.raises(SettingsError) as caught:
            load(text, *overrides, **options)
        return str(caught.value).replace(f"{folder}/", "")

    return message
