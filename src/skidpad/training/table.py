"""training.csv: one line for each update, appended as it ends, cut back to the checkpoint that is resumed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from skidpad.artifacts.files import LineFile, read_lines, replace

COLUMNS = (
    "epoch",
    "step",
    "drives",
    "goals",
    "crashes",
    "departures",
    "reward_per_step",
    "learning_rate",
    "loss",
    "policy",
    "value",
    "entropy",
    "kl",
    "clipped",
    "gradient_norm",
    "explained_variance",
    "simulate_seconds",
    "act_seconds",
    "learn_seconds",
    "steps_per_second",
)
"""Counts are of the update; `docs/formats.md` says what each is."""


class TrainingTable:
    """The open file. Lines after `epoch` are of updates that a resumed run makes again, and are cut."""

    def __init__(self, path: Path, epoch: int) -> None:
        header = ",".join(COLUMNS)
        kept = [header]
        if path.exists():
            kept += [line for _, line in read_lines(path) if line[:1].isdigit() and int(line.split(",")[0]) <= epoch]
        replace(path, ("\n".join(kept) + "\n").encode())
        self._lines = LineFile(path)

    def add(self, values: Mapping[str, float]) -> None:
        """One line; integers as such, other numbers with six digits."""
        cells = [values[name] for name in COLUMNS]
        self._lines.append(",".join(f"{v:d}" if isinstance(v, int) else f"{v:.6g}" for v in cells))

    def close(self) -> None:
        self._lines.close()
