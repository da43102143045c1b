"""The suites that come with the package, through the types that come with it."""

from __future__ import annotations

from pathlib import Path

import pytest

import skidpad
from skidpad.evaluation.evaluators import TYPES
from skidpad.settings.suite import load_suite

SUITES = sorted((Path(skidpad.__file__).parent / "suites").glob("*.[ti][on][mi]*"))


def test_there_are_suites() -> None:
    """E20: an empty list would make the test below pass without looking at anything."""
    assert SUITES


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_every_shipped_suite_resolves_and_prints(path: Path, tmp_path: Path) -> None:
    """E20, E17: a key renamed in the schema must be renamed in the suites, and what --print-config writes of them is
    the same evaluation."""
    suite = load_suite(path, types=TYPES)
    assert suite.names
    printed = tmp_path / "printed.toml"
    printed.write_text(suite.print_config(), "utf-8")
    again = load_suite(printed, types=TYPES)
    assert again.names == suite.names
    for name in suite.names:
        assert suite.spec(name).scenes
        assert again.spec(name).scenes == suite.spec(name).scenes
        assert again.spec(name).section_digest(["d"]) == suite.spec(name).section_digest(["d"])
