"""The shipped drivers: whole, small, documented, and known to `--policy` by name."""

from __future__ import annotations

from pathlib import Path

from skidpad.cli import shipped_driver
from skidpad.policies.checkpoint import load_checkpoint
from skidpad.policies.library import library_drivers

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"


def test_shipped_drivers_load_and_are_documented() -> None:
    """Each file is a checkpoint under 3 MB whose digest stands in its page of results: weights that were exchanged
    without a new evaluation show here."""
    drivers = library_drivers()
    assert drivers
    for name, path in drivers.items():
        assert path.stat().st_size < 3_000_000
        digest = load_checkpoint(path).digest
        assert digest[:16] in (RESULTS / f"{name}.md").read_text(encoding="utf-8")
        assert shipped_driver(name) == path
    assert shipped_driver("idm") is None
