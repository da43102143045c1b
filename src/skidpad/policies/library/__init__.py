"""Drivers that are shipped, known to `--policy` by name. How each was trained and how it drives: `docs/results/`."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent


def library_drivers() -> dict[str, Path]:
    """Checkpoint files by the names of their drivers."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.safetensors"))}
