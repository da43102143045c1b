"""The bench file: one line of figures per run, so that a later release can be held against an earlier one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skidpad.artifacts.files import parse_json
from skidpad.errors import FormatError

LIMIT = 0.15
RATIOS = ("copy_bound_share", "ring_copy_share", "two_thread_speedup")


def read_history(path: Path, schema: str) -> list[dict[str, Any]]:
    """The entries of one kind of bench in a file, oldest first; none where there is no file.

    Raises FormatError for a line that is not JSON.
    """
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            entry = parse_json(line.encode())
        except ValueError as error:
            raise FormatError(
                f"{path}:{number}: not a line of figures ({error}). Remove it, or name another file."
            ) from None
        if isinstance(entry, dict) and entry.get("schema") == schema:
            found.append(entry)
    return found


def append_history(path: Path, figures: Mapping[str, Any]) -> None:
    """Add one line; a reader sees all of it or nothing."""
    line = json.dumps(figures, sort_keys=True, allow_nan=False) + "\n"
    with path.open("ab") as file:
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())


def regressions(history: Sequence[Mapping[str, Any]], now: Mapping[str, Any], limit: float = LIMIT) -> list[str]:
    """Ratio figures that are more than `limit` worse than in the last entry that two equal calibrations vouch for
    (S131). Absolute times are not compared: they belong to a machine."""
    trusted = [entry for entry in history if entry.get("calibration", {}).get("reliable")]
    if not trusted:
        return []
    last = trusted[-1]
    return [
        f"{name}: {now[name]:.3f}, was {last[name]:.3f}"
        for name in RATIOS
        if name in last and name in now and now[name] < last[name] * (1 - limit)
    ]
